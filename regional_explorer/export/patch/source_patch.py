"""``ex.to_source``: a plan as a diff of source files, new notebook cells, and calls for what no mark can express."""

from __future__ import annotations

import ast
import difflib
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from regional_explorer.errors import SourcePatchError
from regional_explorer.export.patch.placement import PreviewPartitions, place
from regional_explorer.export.patch.rewrite import rewritten
from regional_explorer.export.patch.source_file import SourceFile
from regional_explorer.export.patch.working_tree import root_of, write_all
from regional_explorer.record.graph import Graph, GraphBreak, is_library
from regional_explorer.record.plan import Plan
from regional_explorer.record.selector import SelectorKind
from regional_explorer.render.report.plan_source import plan_source


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
