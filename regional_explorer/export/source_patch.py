"""A plan written into the user's source: the diff, cells, and files that git has committed."""

from __future__ import annotations

import ast
import difflib
import io
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import libcst as cst

from regional_explorer.errors import SourcePatchError, fresh_names
from regional_explorer.export.placement import NewMark, Placement, PreviewPartitions, place, reused_mark
from regional_explorer.export.plan_source import plan_source
from regional_explorer.export.source_file import (
    REGION_KEY,
    Hoisted,
    Mark,
    SourceFile,
    Statement,
    StatementRange,
    SubmoduleCalls,
    WholeFunction,
    dotted_name,
    hoisted,
    submodule_calls,
)
from regional_explorer.record.files import write_bytes
from regional_explorer.record.graph import Graph, GraphBreak, is_library
from regional_explorer.record.plan import Direction, Plan, Region, SelectorKind, config_of

FALLBACK_KEY = "fallback_to_eager"
"""The key of the annotation that makes ops of a region run eagerly."""

TRACEBACK = "torch.fx.traceback"


@dataclass
class LoopIndices:
    """The index variables of loops; ``added`` are those that the patch introduces, by the id of the loop's node."""

    added: dict[int, str] = field(default_factory=dict)

    def name(self, loop: Statement) -> str:
        """Return the index variable of ``loop``, a new one if it has none."""
        node = loop.node
        if (counted := _loop_counter(node)) is not None:
            return counted
        if id(node) not in self.added:
            used = {name.value for name in names_in(loop.suite.function.node)} | set(self.added.values())
            self.added[id(node)] = next(fresh_names("index", used))
        return self.added[id(node)]


def _loop_counter(loop: cst.For) -> str | None:
    """Return the index variable that a loop already has: that of ``range``, or the first of ``enumerate``."""
    kind = dotted_name(loop.iter.func) if isinstance(loop.iter, cst.Call) else ""
    target: cst.BaseExpression = loop.target
    if kind == "enumerate" and isinstance(target, cst.Tuple):
        target = target.elements[0].value
    elif kind != "range":
        return None
    if not isinstance(target, cst.Name):
        return None
    reassigned = (
        node.target.value for nodes in _assignments(loop.body) for node in nodes if isinstance(node.target, cst.Name)
    )
    return target.value if target.value not in set(reassigned) else None


def _assignments(node: cst.CSTNode) -> Iterator[Sequence[Any]]:
    if isinstance(node, cst.Assign):
        yield node.targets
    elif isinstance(node, (cst.AugAssign, cst.AnnAssign)):
        yield [node]
    for child in node.children:
        yield from _assignments(child)


def names_in(node: cst.CSTNode) -> Iterator[cst.Name]:
    """Yield all names below a node."""
    if isinstance(node, cst.Name):
        yield node
    for child in node.children:
        yield from names_in(child)


def value_text(new_mark: NewMark, indices: LoopIndices) -> str:
    """Return the dict of an annotation as Python."""
    if new_mark.carve:
        return f'{{"{FALLBACK_KEY}": True}}'
    entries = []
    if (name := _region_id(new_mark, indices)) is not None:
        entries.append(f'"inductor_region": {name}')
    if config := config_of(new_mark.region, Direction.FORWARD):
        entries.append(f'"inductor_configs": {text_of(config)}')
    return f'{{"{REGION_KEY}": {{{", ".join(entries)}}}}}'


def _region_id(new_mark: NewMark, indices: LoopIndices) -> str | None:
    region = new_mark.region
    if not new_mark.instance:
        return None if is_default(region) else text_of(region.name)
    parts = (str(part) if isinstance(part, int) else indices.name(part) for part in new_mark.instance)
    return f"({text_of(region.name)}, {', '.join(parts)})"


def is_default(region: Region) -> bool:
    """Return whether a region stands for marks without an id, which have no name."""
    return region.name == "default" and all(
        selector.kind is SelectorKind.ANNOTATION and pattern.startswith("default:")
        for selector in region.selectors
        for pattern in selector.patterns
    )


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


def changed_call(mark: Mark, new_mark: NewMark, value: str) -> cst.Call:
    """Return the call of an existing mark with a new value; the form of the call is kept."""
    if not mark.by_region:
        first, *other_args = mark.call.args
        return mark.call.with_changes(args=[first.with_changes(value=cst.parse_expression(value)), *other_args])
    if new_mark.instance:  # a name alone cannot distinguish instances
        annotate_call = cst.parse_expression(f"{TRACEBACK}.annotate({value})")
        assert isinstance(annotate_call, cst.Call)  # noqa: S101 - that is how it is written
        return annotate_call
    config = config_of(new_mark.region, Direction.FORWARD)
    plain = [f"{key}={text_of(item)}" for key, item in config.items() if key.isidentifier()]
    dotted = {key: item for key, item in config.items() if not key.isidentifier()}
    arguments = [text_of(new_mark.region.name), *plain, *([f"**{text_of(dotted)}"] if dotted else [])]
    call = cst.parse_expression(f"f({', '.join(arguments)})")
    assert isinstance(call, cst.Call)  # noqa: S101 - that is how it is written
    return mark.call.with_changes(args=call.args)


LONGEST_LINE = 100
"""A longer mark is split over several lines."""


@dataclass
class _Edits:
    """The changes of one file, by the ``id`` of the syntax nodes concerned."""

    wraps: dict[int, list[tuple[int, int, str]]] = field(default_factory=dict)
    decorators: dict[int, str] = field(default_factory=dict)
    hoists: dict[int, list[tuple[cst.Call, Hoisted, str]]] = field(default_factory=dict)
    values: dict[int, cst.Call] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    loops: dict[int, str] = field(default_factory=dict)


def rewritten(file: SourceFile, placement: Placement) -> str:
    """Return the text of ``file`` with the marks of ``placement`` in it."""
    file_marks = [new_mark for new_mark in placement.marks if new_mark.span.function in file.functions]
    indices = LoopIndices()
    edits = _Edits(gone={id(mark.call) for mark in placement.obsolete}, loops=indices.added)
    for new_mark in file_marks:
        value = value_text(new_mark, indices)
        if (mark := reused_mark(new_mark)) is not None:
            edits.values[id(mark.call)] = changed_call(mark, new_mark, value)
            continue
        match new_mark.span:
            case StatementRange(suite, first, last):
                edits.wraps.setdefault(id(suite.node), []).append((first, last, f"{TRACEBACK}.annotate({value})"))
            case WholeFunction(function):
                edits.decorators[id(function.node)] = f"{TRACEBACK}.annotate_fn({value})"
            case SubmoduleCalls(statement, attribute):
                call_node = submodule_calls(statement)[attribute][0]
                used_names = {name.value for name in names_in(statement.suite.function.node)}
                used_names |= {hoist.name.value for entries in edits.hoists.values() for _, hoist, _ in entries}
                entry = call_node, hoisted(call_node, attribute, used_names), f"{TRACEBACK}.annotate({value})"
                edits.hoists.setdefault(id(statement.node), []).append(entry)
    module: cst.Module = file.module.visit(_MarkWriter(edits))
    # A mark that was there before has its imports; a file without changes is returned as it is.
    uses_torch = edits.wraps or edits.decorators or edits.hoists or any(new_mark.instance for new_mark in file_marks)
    if uses_torch and not _imports_torch(file):
        module = _with_torch_import(module)
    return module.code


# ---------------------------------------------------------------------------------------------------------- the imports


def _imports_torch(file: SourceFile) -> bool:
    """Return whether a file imports ``torch``; of a cell, whether it uses it: another cell may import it."""
    if file.cell:
        return any(name.value == "torch" for name in names_in(file.module))
    return any(
        isinstance(statement, cst.Import)
        and any(alias.asname is None and dotted_name(alias.name).split(".")[0] == "torch" for alias in statement.names)
        for line in file.module.body
        if isinstance(line, cst.SimpleStatementLine)
        for statement in line.body
    )


def _with_torch_import(module: cst.Module) -> cst.Module:
    """Return the module with ``import torch`` after its first imports, or after its docstring."""
    position = 0
    for number, line in enumerate(module.body):
        statement = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
        docstring = number == 0 and isinstance(statement, cst.Expr) and isinstance(statement.value, cst.SimpleString)
        if not docstring and not isinstance(statement, (cst.Import, cst.ImportFrom)):
            break
        position = number + 1
    line = cst.parse_statement("import torch\n")
    return module.with_changes(body=[*module.body[:position], line, *module.body[position:]])


# ----------------------------------------------------------------------------------------------------------- the writer


class _MarkWriter(cst.CSTTransformer):
    """Applies ``edits`` to a syntax tree."""

    def __init__(self, edits: _Edits) -> None:
        super().__init__()
        self._edits = edits

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Change the value of a mark."""
        return self._edits.values.get(id(original_node), updated_node)

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        """Add a decorator next to the ``def``, inside all others, or remove one."""
        decorators = [
            new
            for old, new in zip(original_node.decorators, updated_node.decorators, strict=True)
            if id(old.decorator) not in self._edits.gone
        ]
        text = self._edits.decorators.get(id(original_node))
        if text is not None:
            decorators.append(cst.Decorator(cst.parse_expression(text)))
        elif len(decorators) == len(updated_node.decorators):
            return updated_node
        return updated_node.with_changes(decorators=decorators)

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        """Add an index to a loop with ``enumerate``."""
        name = self._edits.loops.get(id(original_node))
        if name is None:
            return updated_node
        target = updated_node.target
        if isinstance(target, cst.Tuple) and not target.lpar:
            target = target.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        counted = cst.Tuple([cst.Element(cst.Name(name)), cst.Element(target)], lpar=[], rpar=[])
        turns = cst.Call(cst.Name("enumerate"), [cst.Arg(updated_node.iter)])
        return updated_node.with_changes(target=counted, iter=turns)

    def leave_With(self, original_node: cst.With, updated_node: cst.With) -> cst.With:
        """Remove a mark among other context managers; ``leave_IndentedBlock`` removes a ``with`` of marks alone."""
        items = [
            new
            for old, new in zip(original_node.items, updated_node.items, strict=True)
            if id(old.item) not in self._edits.gone
        ]
        if len(items) == len(updated_node.items) or not items:
            return updated_node
        items[-1] = items[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(items=items)

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        """Wrap statements in a new mark, and unwrap those whose mark is removed."""
        groups: list[list[Any]] = []
        carried: list[cst.EmptyLine] = []
        for old, new in zip(original_node.body, updated_node.body, strict=True):
            unwrapped, carried_on = self._unwrapped(old, new, updated_node.indent)
            groups.append(_with_leading_lines(unwrapped, carried))
            carried = carried_on
        wraps = sorted(self._edits.wraps.get(id(original_node), ()), key=lambda wrap: (wrap[0], -wrap[1]))
        body = _wrapped_statements(groups, 0, len(groups), wraps, updated_node.indent)
        return updated_node.with_changes(body=body, footer=[*carried, *updated_node.footer])

    def _unwrapped(self, old: Any, new: Any, indent: str | None) -> tuple[list[Any], list[cst.EmptyLine]]:
        """Return the statements that replace ``old``, and the comments that go below them."""
        if (hoists := self._edits.hoists.get(id(old))) is not None:
            return _with_hoists(old, hoists, indent), []
        marks_only = isinstance(old, cst.With) and all(id(item.item) in self._edits.gone for item in old.items)
        if not marks_only:
            return [new], []
        if not isinstance(new.body, cst.IndentedBlock):
            return [cst.SimpleStatementLine(new.body.body, leading_lines=new.leading_lines)], []
        above = list(new.leading_lines)
        if new.body.header.comment is not None:
            above.append(cst.EmptyLine(comment=new.body.header.comment))
        return _with_leading_lines(list(new.body.body), above), list(new.body.footer)


def _with_hoists(
    line: cst.SimpleStatementLine, hoists: Sequence[tuple[cst.Call, Hoisted, str]], indent: str | None
) -> list[Any]:
    """Return a line with calls moved out of it, each wrapped in its mark."""
    statements: list[Any] = []
    new_line: Any = line.with_changes(leading_lines=[])
    for call, hoist, text in hoists:
        statements += [*hoist.inputs, _with_block(text, [hoist.call], indent)]
        new_line = new_line.deep_replace(call, hoist.name)
    return _with_leading_lines([*statements, new_line], line.leading_lines)


def _with_leading_lines(statements: list[Any], above: Sequence[cst.EmptyLine]) -> list[Any]:
    """Return the statements with ``above`` added before the first."""
    if not above:
        return statements
    first, *later = statements
    return [first.with_changes(leading_lines=[*above, *first.leading_lines]), *later]


def _wrapped_statements(
    groups: Sequence[Sequence[Any]], start: int, end: int, wraps: Sequence[tuple[int, int, str]], indent: str | None
) -> list[Any]:
    """Return the statements from ``start`` up to ``end``, those of each wrap inside a ``with``; wraps may nest."""
    statements: list[Any] = []
    position = start
    for number, (first, last, text) in enumerate(wraps):
        if first < position:
            continue  # inside one that is already written
        inner_wraps = [wrap for wrap in wraps[number + 1 :] if wrap[1] <= last]
        statements += [statement for group in groups[position:first] for statement in group]
        statements.append(_with_block(text, _wrapped_statements(groups, first, last + 1, inner_wraps, indent), indent))
        position = last + 1
    return [*statements, *(statement for group in groups[position:end] for statement in group)]


def _with_block(text: str, body: Sequence[Any], indent: str | None) -> cst.With:
    head = f"with {text}:"
    if len(head) > LONGEST_LINE:
        name, _, value = text.partition("(")
        head = f"with {name}(\n    {value[:-1]}\n):"
    block = cst.parse_statement(f"{head}\n    pass\n")
    assert isinstance(block, cst.With)  # noqa: S101 - that is how it is written
    inside = [body[0].with_changes(leading_lines=[]), *body[1:]]
    return block.with_changes(leading_lines=body[0].leading_lines, body=cst.IndentedBlock(inside, indent=indent))


def root_of(path: Path) -> Path | None:
    """Return the root of the git working tree that contains ``path``, or None."""
    return next((folder for folder in path.parents if (folder / ".git").exists()), None)


def require_clean(path: Path) -> None:
    """Raise SourcePatchError unless git tracks ``path`` and it has no uncommitted changes."""
    if _git_output(path, "ls-files", "--error-unmatch", "--", path.name) is None:
        raise SourcePatchError(
            f"{path} is not under version control, so it is left alone; nothing was written. Take the diff that "
            "ex.to_source() returns and apply it by hand, or `git add` and commit the file first."
        )
    if changed := _git_output(path, "status", "--porcelain", "--", path.name):
        raise SourcePatchError(
            f"{path} has changes that are not committed ({changed.strip()}), so it is left alone; nothing was written. "
            "Commit or stash them first."
        )


def _git_output(path: Path, *arguments: str) -> str | None:
    """Return the output of git in the folder of ``path``; None if git fails or is not installed."""
    try:
        process = subprocess.run(  # noqa: S603 - fixed arguments, and a path that is not an option
            ["git", "-C", str(path.parent), *arguments],  # noqa: S607 - the user's own git
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return process.stdout if process.returncode == 0 else None


def write_all(texts: Mapping[Path, tuple[bytes, bytes]]) -> None:
    """Write each file, given its content before and after; if one cannot be written, restore all of them.

    Raises:
        SourcePatchError: a file is not tracked by git, is not clean, or cannot be written.
    """
    for path, (before, _) in texts.items():
        require_clean(path)
        if path.read_bytes() != before:
            raise SourcePatchError(f"{path} has changed meanwhile; nothing was written. Call ex.to_source again.")
    written: list[Path] = []
    try:
        for path, (_, after) in texts.items():
            write_bytes(path, after, SourcePatchError)
            written.append(path)
    except BaseException:
        for path in written:
            write_bytes(path, texts[path][0], SourcePatchError)
        raise


@dataclass(frozen=True)
class ChangedFile:
    """A file, or the cell of a notebook, with its text before and after."""

    file: SourceFile
    after: str

    @property
    def path(self) -> Path:
        """The path of the file; of a cell, a name that is not on disk."""
        return Path(self.file.path)

    def diff(self) -> str:
        """Return the unified diff, in paths that ``git apply`` and ``patch -p1`` take."""
        name = _shown_path(self.path)
        before, after = (io.StringIO(text, newline="").readlines() for text in (self.file.text, self.after))
        lines = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}")
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

    def content(self) -> tuple[bytes, bytes]:
        """Return the bytes of the file before and after."""
        encoding = self.file.module.encoding
        return self.file.text.encode(encoding), self.after.encode(encoding)


@dataclass(frozen=True)
class SourcePatch:
    """The change of the source that expresses a plan.

    ``refused`` has the regions that no mark can express, with the reason; ``kept`` are those already marked in it;
    ``staying`` are the places of marks that belong to no region and cannot be removed.
    """

    plan: Plan
    changed: tuple[ChangedFile, ...]
    refused: dict[str, str]
    kept: tuple[str, ...]
    staying: tuple[str, ...]

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
        for where in self.staying:
            yield (
                f"# The mark at {where} is of no region of the plan, and stays: it is computed, not written out. "
                "Remove it there.\n"
            )
        if any(not change.file.cell and is_library(change.file.path) for change in self.changed):
            yield "# This changes an installed library: make it in a copy of your own.\n"

    def _note_on_lines(self, region: str) -> str:
        picked = self.plan[region]
        has_lines = any(selector.kind is SelectorKind.LINES for selector in (*picked.selectors, *picked.carved))
        return " Its line numbers are those before this change." if has_lines and self.changed else ""

    def _cells(self) -> Iterator[str]:
        for change in self.changed:
            if change.file.cell:
                defs = ", ".join(function.scope for function in change.file.functions if "." not in function.scope)
                yield f"# The cell that defines {defs or 'the function'}, with its regions:\n\n{as_typed(change.after)}"

    def apply(self) -> None:
        """Write the changed files.

        Raises:
            SourcePatchError: a file is a notebook's cell, is not tracked by git or not clean, or cannot be written.
        """
        if any(change.file.cell for change in self.changed):
            raise SourcePatchError(
                "The function is defined in a notebook, which is not a file to patch; nothing was written. Paste the "
                "cell that ex.to_source() returns."
            )
        write_all({change.path.resolve(): change.content() for change in self.changed})


def source_patch(
    graphs: Sequence[Graph], breaks: Sequence[GraphBreak], plan: Plan, preview: PreviewPartitions
) -> SourcePatch:
    """Return the change that expresses ``plan`` in the source that ``graphs`` were traced from."""
    placement = place(graphs, breaks, plan, preview)
    return SourcePatch(
        plan,
        tuple(
            ChangedFile(file, after)
            for file in placement.sites.files.values()
            if (after := rewritten(file, placement)) != file.text
        ),
        placement.refused,
        tuple(placement.kept),
        tuple(f"{Path(file).name}:{site.first}" for site, file in placement.staying.items()),
    )


def _shown_path(path: Path) -> str:
    """Return a path relative to its working tree, or else to the current directory."""
    path = path.resolve()
    for folder in (root_of(path), Path.cwd()):
        if folder is not None and path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    return path.as_posix().lstrip("/")


def as_typed(cell: str) -> str:
    """Return the text of a cell with its magics as the user typed them: IPython stores the Python code they become."""
    quoted = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    cell = re.sub(
        rf"get_ipython\(\)\.run_line_magic\({quoted}, {quoted}\)",
        lambda match: f"%{_unquoted_literal(match[1])} {_unquoted_literal(match[2])}".rstrip(),
        cell,
    )
    return re.sub(rf"get_ipython\(\)\.system\({quoted}\)", lambda match: f"!{_unquoted_literal(match[1])}", cell)


def _unquoted_literal(text: str) -> str:
    return str(ast.literal_eval(text))
