"""A plan as source: marks in the user's files, as a diff; calls and blocks of Python to paste."""

from __future__ import annotations

import ast
import difflib
import re
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from regional_explorer.capture.swapped_functions import run_under_changed_source
from regional_explorer.capture.trace import Capture
from regional_explorer.compiler.partition_records import preview_of
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.region_config import source_plan
from regional_explorer.compiler.run import PLAIN_RUN, Run
from regional_explorer.errors import CaptureError, SourcePatchError, listing
from regional_explorer.export.mark_places import NewMark, Placement, Places
from regional_explorer.export.statements import (
    LineEdits,
    SourceFile,
    first_argument,
    split_lines,
)
from regional_explorer.record.action import (
    Action,
    ActionKind,
    carve_action,
    configure_action,
    disable_action,
    mark_action,
    merge_action,
)
from regional_explorer.record.files import write_bytes
from regional_explorer.record.graph import is_library
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition
from regional_explorer.record.plan import (
    AS_UPSTREAM,
    DEFAULT,
    CutRule,
    Direction,
    Plan,
    Region,
    Selector,
    SelectorKind,
    config_of,
)
from regional_explorer.style.element import clean
from regional_explorer.torch_api.graphs import ANNOTATION, FALLBACK

ANNOTATE = "torch.fx.traceback.annotate"

Contents = Mapping[str, AbstractSet[Any]]
"""The partitions of each region, by content: graph, nodes and config."""


def source_patch(program: Program, run: Run = PLAIN_RUN) -> SourcePatch:
    """Return the change that expresses the plan of ``program`` in the source that its graphs were traced from.

    The changed source is traced. If a region gets other partitions than under the plan, its next choice is tried. A
    mark without instances is tried only if a preview with its ops alone gives the same partitions.
    """
    plan, capture = program.plan, program.capture
    places = Places(capture.graphs, capture.breaks, plan)
    expected, connected_components = (
        _previewed_contents(program, plan),
        _previewed_contents(program, places.without_instances()),
    )
    candidates = {
        region.name: places.choices(region, plain=connected_components.get(region.name) == expected.get(region.name))
        for region in plan.regions
    }
    choices = {name: next(options) for name, options in candidates.items()}
    while True:
        placement = places.placement_of(choices)
        changed = [
            ChangedFile(file, after)
            for file in places.files.values()
            if (after := _marked_text(file, placement)) != file.text
        ]
        marked = dict.fromkeys(mark.region.name for mark in placement.marks)
        if not marked:
            break
        if run.cancelled():
            choices |= dict.fromkeys(marked, "cancelled before it was traced")
            changed, placement = [], places.placement_of(choices)
            break
        run.progress("tracing the changed source", 0.0)
        try:
            found = _traced_contents(program, changed, places.by_node_names(placement.refused))
        except (CaptureError, SyntaxError) as error:
            choices |= dict.fromkeys(marked, f"the changed source cannot be traced: {str(error).splitlines()[0]}")
            continue
        wrong = [name for name in marked if found.get(name) != expected.get(name)]
        if not wrong:
            break
        choices |= {name: next(candidates[name]) for name in wrong}
    staying = {f"{Path(site.file.path).name}:{site.first}": why for site, why in placement.staying.items()}
    return SourcePatch(plan, tuple(changed), placement.refused, tuple(placement.kept), staying)


def _traced_contents(program: Program, changes: Iterable[ChangedFile], others: Sequence[Region]) -> Contents:
    """Trace the call under changed files, and return the partitions of their marks and of ``others``."""
    capture = program.capture
    texts = {change.file.path: (change.file.text, change.after) for change in changes}
    traced = run_under_changed_source(texts, lambda: Capture(capture.call, capture.tracing, dynamic=capture.dynamic))
    try:
        regions = (*source_plan(traced.graphs)[0].regions, *others)
        plan = replace(program.plan, regions=tuple({region.name: region for region in regions}.values()))
        return _contents(preview_of(Program(traced, plan), plan).partitions)
    finally:
        traced.close()


def _previewed_contents(program: Program, plan: Plan) -> Contents:
    late = program.capture.late_graphs
    return _contents(part for part in preview_of(program, plan).partitions if part.graph not in late)


def _contents(partitions: Iterable[Partition]) -> Contents:
    by_region = grouped(
        (part.region, (part.graph, part.nodes, repr(sorted(part.config_requested.items())))) for part in partitions
    )
    return {region: set(found) for region, found in by_region.items()}


# ------------------------------------------------------------------------------------------------------------ the marks


def _marked_text(file: SourceFile, placement: Placement) -> str:
    """Return the text of ``file`` with the marks of ``placement`` in it."""
    edits = LineEdits(file)
    marks = [mark for mark in placement.marks if mark.first.file is file]
    for mark in marks:
        value, old = _value_text(mark, edits), mark.reused_mark
        if old is None and mark.first.scope:
            edits.decorate(mark.first, f"{ANNOTATE}_fn({value})")
        elif old is None:
            edits.wrap(mark.first, mark.last, f"{ANNOTATE}({value})")
        elif not old.by_region:
            edits.replace(first_argument(old.call), value)
        elif mark.parts:  # a name alone cannot distinguish instances
            edits.replace(old.call, f"{ANNOTATE}({value})")
        else:
            arguments = region_arguments(mark.region.name, config_of(mark.region, Direction.FORWARD), text_of)
            edits.replace(old.call, f"{ast.unparse(old.call.func)}({arguments})")
    for site in placement.obsolete:
        if site.file is file:
            edits.unmark(site)
    # Marks that were there before have their imports; a file without changes is returned as it is.
    if any(mark.reused_mark is None or mark.parts for mark in marks) and not _imports_torch(file):
        edits.add_import("torch")
    return edits.text()


def _imports_torch(file: SourceFile) -> bool:
    """Return whether a file imports ``torch``; for a cell, whether it uses ``torch``: another cell may import it."""
    if file.cell:
        return any(isinstance(node, ast.Name) and node.id == "torch" for node in ast.walk(file.tree))
    imported = (alias for node in file.tree.body if isinstance(node, ast.Import) for alias in node.names)
    return any(alias.asname is None and alias.name.split(".")[0] == "torch" for alias in imported)


def _value_text(mark: NewMark, edits: LineEdits) -> str:
    """Return the dict of an annotation as Python source."""
    if mark.carve:
        return f'{{"{FALLBACK}": True}}'
    entries = []
    if mark.parts:
        parts = (str(part) if isinstance(part, int) else edits.index_of(part) for part in mark.parts)
        entries.append(f'"inductor_region": ({text_of(mark.region.name)}, {", ".join(parts)})')
    elif not _stands_for_marks_without_id(mark.region):
        entries.append(f'"inductor_region": {text_of(mark.region.name)}')
    if config := config_of(mark.region, Direction.FORWARD):
        entries.append(f'"inductor_configs": {text_of(config)}')
    return f'{{"{ANNOTATION}": {{{", ".join(entries)}}}}}'


def _stands_for_marks_without_id(region: Region) -> bool:
    kinds, patterns = {selector.kind for selector in region.selectors}, region.patterns(SelectorKind.ANNOTATION)
    is_marked = kinds == {SelectorKind.ANNOTATION} and all(pattern.startswith("default:") for pattern in patterns)
    return is_marked and region.name == "default"


def text_of(value: Any) -> str:
    """Return a plain value as Python source: strings in double quotes, ASCII only."""
    if isinstance(value, str):
        quoted = ascii(value)
        return f'"{quoted[1:-1]}"' if quoted.startswith("'") and '"' not in quoted else quoted
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{text_of(key)}: {text_of(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(text_of, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(text_of, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


# ------------------------------------------------------------------------------------------------------- the patch


@dataclass(frozen=True)
class ChangedFile:
    """A file, or the cell of a notebook, with its text before and after."""

    file: SourceFile
    after: str

    @property
    def path(self) -> Path:
        """The path of the file; for a cell, a name that is not on disk."""
        return Path(self.file.path)

    @property
    def root(self) -> Path:
        """The folder that the paths of the diff are relative to."""
        return _root(self.path.resolve())

    def diff(self) -> str:
        """Return the unified diff: ``git apply`` takes it in ``root``, or in a repository's folder above the file."""
        name = self.path.resolve().relative_to(self.root).as_posix()
        before, after = map(split_lines, (self.file.text, self.after))
        lines = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}")
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

    def content(self) -> tuple[bytes, bytes]:
        """Return the bytes of the file before and after."""
        return self.file.text.encode(self.file.encoding), self.after.encode(self.file.encoding)


@dataclass(frozen=True)
class SourcePatch:
    """The change of the source that expresses a plan.

    ``refused`` has the regions that no mark can express, with the reason; ``kept`` are the regions that the source
    marks already. ``staying`` are the places of marks that belong to no region but cannot be removed, with the reason.
    """

    plan: Plan
    changed: tuple[ChangedFile, ...]
    refused: dict[str, str]
    kept: tuple[str, ...]
    staying: Mapping[str, str]

    def __str__(self) -> str:
        """Return diff, cells and calls as one text."""
        texts = [*self._comments(), *(change.diff() for change in self.changed if not change.file.cell), *self._cells()]
        return "\n".join(texts) if texts else "# No region yet.\n"

    def _comments(self) -> Iterator[str]:
        for name, reason in self.refused.items():
            note = self._note_on_lines(name)
            yield f"# Region {name!r} is not in the source below: {reason}.{note}\n{plan_source(self.plan, [name])}"
        if self.kept:
            yield f"# In the source already: {', '.join(map(repr, self.kept))}.\n"
        if self.plan.regions and self.plan.cut is not CutRule.INSTANCES:
            cut, default = repr(str(self.plan.cut)), repr(str(CutRule.INSTANCES))
            yield f"# The plan's cut, {cut}, is not in the source: marks are cut as {default}.\n"
        for where, why in self.staying.items():
            yield f"# The mark at {where} belongs to no region of the plan, but it stays: {why}. Remove it there.\n"
        files = [change for change in self.changed if not change.file.cell]
        if any(is_library(change.file.path) for change in files):
            yield "# This changes an installed library: make the change in a copy of your own.\n"
        roots = dict.fromkeys(change.root for change in files)
        if len(roots) > 1 or not all(map(_is_repository, roots)):
            yield f"# The paths begin at {' and '.join(map(str, roots))}: run `git apply` there.\n"

    def _note_on_lines(self, region: str) -> str:
        picked = self.plan[region]
        has_lines = any(selector.kind is SelectorKind.LINES for selector in (*picked.selectors, *picked.carved))
        return " Its line numbers are from before this change." if has_lines and self.changed else ""

    def _cells(self) -> Iterator[str]:
        for change in self.changed:
            if change.file.cell:
                defs = ", ".join(function.scope for function in change.file.functions if "." not in function.scope)
                yield f"# The cell that defines {defs or 'the function'}, with its regions:\n\n{as_typed(change.after)}"

    def apply(self) -> None:
        """Write the changed files.

        Raises:
            SourcePatchError: a file is a notebook's cell, is not tracked by git, has changes, or cannot be written.
        """
        if any(change.file.cell for change in self.changed):
            raise SourcePatchError(
                "The function is defined in a notebook, which cannot be patched; nothing was written. Paste the cell "
                "that ex.to_source() returns."
            )
        for change in self.changed:
            if is_library(change.file.path):
                raise SourcePatchError(
                    f"{change.path} belongs to an installed library, so nothing was written. Make the change that "
                    "ex.to_source() returns in a copy of your own."
                )
        write_all({change.path.resolve(): change.content() for change in self.changed})


def _root(path: Path) -> Path:
    """Return the root of the file's git working tree; if it has none, or for a library, the folder of its package."""
    package = next(folder for folder in path.parents if not (folder / "__init__.py").exists())
    return package if is_library(str(path)) else next(filter(_is_repository, path.parents), package)


def _is_repository(folder: Path) -> bool:
    return (folder / ".git").exists()


def as_typed(cell: str) -> str:
    """Return the text of a cell with its magics as the user typed them: IPython stores them as Python code."""
    quoted = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""

    def magic(match: re.Match[str]) -> str:
        return f"%{' '.join(map(ast.literal_eval, match.groups()))}".rstrip()

    cell = re.sub(rf"get_ipython\(\)\.run_line_magic\({quoted}, {quoted}\)", magic, cell)
    return re.sub(rf"get_ipython\(\)\.system\({quoted}\)", lambda match: f"!{ast.literal_eval(match[1])}", cell)


# ------------------------------------------------------------------------------------------- git's tracked files


def require_clean(path: Path) -> None:
    """Raise SourcePatchError unless git tracks ``path`` and it has no uncommitted changes."""
    options = ("--porcelain", "--untracked-files=all", "--ignored")
    try:
        status = subprocess.run(  # noqa: S603 - fixed arguments, and a path that is not an option
            ["git", "-C", str(path.parent), "status", *options, "--", path.name],  # noqa: S607 - the user's own git
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):  # no git, or no working tree
        status = "??"
    if any(line.startswith(("??", "!!")) for line in status.splitlines()):  # untracked, or ignored
        raise SourcePatchError(
            f"{path} is not under version control, so nothing was written. Apply the diff that ex.to_source() returns "
            "by hand, or `git add` and commit the file first."
        )
    if status:
        raise SourcePatchError(
            f"{path} has changes that are not committed ({status.strip()}), so nothing was written. Commit or stash "
            "them first."
        )


def write_all(texts: Mapping[Path, tuple[bytes, bytes]]) -> None:
    """Write each file, given its content before and after; if a file cannot be written, restore all of them.

    Raises:
        SourcePatchError: a file is not tracked by git, has changes, or cannot be written.
    """
    for path, (before, _) in texts.items():
        require_clean(path)
        if path.read_bytes() != before:
            raise SourcePatchError(
                f"{path} changed while the patch was made; nothing was written. Call ex.to_source again."
            )
    written: list[Path] = []
    try:
        for path, (_, after) in texts.items():
            write_bytes(path, after, SourcePatchError)
            written.append(path)
    except BaseException:
        for path in written:
            write_bytes(path, texts[path][0], SourcePatchError)
        raise


# ----------------------------------------------------------------------------------------------------- a plan as Python


def plan_source(plan: Plan, names: Collection[str] | None = None) -> str:
    """Return Python code that recreates the plan: blocks for regions marked in the source, calls for others.

    With ``names``, only these regions. A part of a region that is marked in the source cannot be written as a block: it
    is marked by its nodes.
    """
    if not plan.regions:
        return "# No region yet.\n"
    parts = [_region_source(region) for region in plan.regions if names is None or region.name in names]
    if names is None and plan.cut is not CutRule.INSTANCES:
        parts.append(f"{Action(ActionKind.CUT, options={'cut': str(plan.cut)})}\n")
    if names is None and plan.tracing != AS_UPSTREAM:
        parts.insert(0, f"{Action(ActionKind.RETRACE, tracing=plan.tracing)}\n")
    return "\n".join(parts)


def plan_program(plan: Plan, title: str) -> str:
    """Return a program that explores the call ``title`` and makes the plan; the user fills in the call."""
    call = f"ex = rx.explore(fn, args)  # Put the call here that was explored: {clean(title)}."
    return f"import regional_explorer as rx\n\n{call}\n\n{plan_source(plan)}\nex.benchmark()\nprint(ex.answer)\n"


def _region_source(region: Region) -> str:
    name = region.name
    blocks = [selector for selector in region.selectors if _is_block(selector)]
    called = [selector for selector in region.selectors if not _is_block(selector)]
    lines = [f"# Region {name!r}{'' if region.enabled else ', disabled'}"]
    if region.patterns(SelectorKind.SUBGRAPH):
        lines.append("# In the source it is a nested_compile_region(options=…); other options than configs stay there.")
    if blocks:
        lines += [f"with rx.region({region_arguments(name, region.config)}):", "    ...  # the marked lines"]
    is_merged = region.joined and len(region.selectors) > 1
    lines += (
        list(_merge_calls(region, called)) if is_merged else [str(mark_action(name, selector)) for selector in called]
    )
    lines += [str(carve_action(name, selector)) for selector in region.carved]
    if not blocks and not is_merged:
        lines += configure_calls(region)
    elif region.backward_config is not None:
        call = "rx.region" if blocks else "ex.merge"
        lines.append(
            f"# {call} takes one config, for forward and backward alike; this one is set for the backward alone:"
        )
        lines.append(_configure_call(name, region.backward_config, Direction.BACKWARD, region.config))
    if texts := region.treatment.texts:
        lines.append(f"# It has {listing(texts)}: give it with ex.configure({name!r}, passes=[…], backend=…).")
    if not region.enabled:
        lines.append(str(disable_action(name)))
    return "\n".join(lines) + "\n"


def configure_calls(region: Region) -> Iterator[str]:
    """Yield the ``ex.configure`` calls that set a region's configs."""
    if region.config:
        yield _configure_call(region.name, region.config, None)
    if region.backward_config is not None:
        yield _configure_call(region.name, region.backward_config, Direction.BACKWARD, region.config)


def _configure_call(
    name: str, config: Mapping[str, Any], direction: Direction | None, before: Mapping[str, Any] | None = None
) -> str:
    """Return the ``ex.configure`` call that changes the config from ``before`` to ``config``."""
    changed = {key: value for key, value in config.items() if (before or {}).get(key, DEFAULT) != value}
    unset = tuple(key for key in before or () if key not in config)
    return str(configure_action(name, changed, direction, unset=unset))


def _is_block(selector: Selector) -> bool:
    return selector.kind is SelectorKind.ANNOTATION and not selector.only


def _merge_calls(region: Region, called: Sequence[Selector]) -> Iterator[str]:
    """Yield the calls that recreate a merged region: one mark per selector, then a merge."""
    names = [region.name]
    if len(called) == len(region.selectors):
        yield str(mark_action(region.name, called[0]))
        called = called[1:]
    for number, selector in enumerate(called, start=2):
        names.append(f"{region.name}+{number}")
        yield str(mark_action(names[-1], selector))
    if len(names) > 1:
        yield str(merge_action(*names, config=region.config))


def region_arguments(name: str, config: Mapping[str, Any], text: Callable[[Any], str] = repr) -> str:
    """Return the arguments of ``rx.region`` as source, each value as ``text`` writes it."""
    plain = [f"{key}={text(value)}" for key, value in config.items() if key.isidentifier()]
    dotted = {key: value for key, value in config.items() if not key.isidentifier()}
    return ", ".join([text(name), *plain, *([f"**{text(dotted)}"] if dotted else [])])
