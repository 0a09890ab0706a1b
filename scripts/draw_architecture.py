"""Writes into docs/architecture.md what the code says of itself: the drawing of the packages, the files, and an index.

``python -m scripts.draw_architecture`` writes it; a test fails where it is out of date. The drawing is made from the
imports: an arrow means "imports", and an arrow that others imply is left out. The list has the first line of each
Python and JavaScript file and the names of the classes and functions that other files may use. The index has all other
names that a file defines.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts.code_facts import PACKAGE, package_imports

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "```mermaid\n", "```\n"
FILES = "<!-- The rest of the page is written by scripts/draw_architecture.py. -->\n"

INDEX = """
## Index

The other names that each file defines, in their order there: constants, helpers, fields and methods.
"""

SMALL = 400
"""An `__init__.py` of fewer bytes holds nothing but the docstring of its package."""

Edges = set[tuple[str, str]]


def main() -> None:
    """Write the drawing, the list of files and the index into the page."""
    PAGE.write_text(up_to_date(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def up_to_date(page: str) -> str:
    """Return the page with the drawing, the list of files and the index as the code is now."""
    before, _, _ = with_drawing(page, drawing()).partition(FILES)
    return f"{before}{FILES}{listed(summary)}{INDEX}{listed(other_names)}"


def drawing() -> str:
    """Return the flowchart of the packages, in Mermaid's language."""
    edges = without_implied(package_imports(ROOT / PACKAGE))
    return "\n".join(["flowchart TD", *(f"    {above} --> {below}" for above, below in sorted(edges)), ""])


def listed(describe: Callable[[Path], str]) -> str:
    """Return the files of each package, each with what ``describe`` says of it; files without that are left out."""
    lines = []
    folders = [ROOT / PACKAGE, *sorted(path.parent for path in (ROOT / PACKAGE).rglob("*/__init__.py"))]
    for folder in folders:
        paths = [
            path
            for path in sorted((*folder.glob("*.py"), *folder.glob("*.js")))
            if path.name != "__init__.py" or path.stat().st_size > SMALL
        ]
        found = [f"- `{path.name}`: {text}" for path in paths if (text := describe(path))]
        if found:
            name = PACKAGE if folder == ROOT / PACKAGE else folder.relative_to(ROOT / PACKAGE)
            lines += ["", f"`{name}/`", "", *found]
    return "\n".join([*lines, ""])


def summary(path: Path) -> str:
    """Return the first line of a file's docstring and the names that it defines for others, as Markdown."""
    code = path.read_text(encoding="utf-8")
    first_line = python_summary(code) if path.suffix == ".py" else script_summary(code)
    return f"{first_line} {', '.join(f'`{name}`' for name in public_names(path))}".rstrip()


def other_names(path: Path) -> str:
    """Return the names that a file defines besides the public ones, as one span of code."""
    code = path.read_text(encoding="utf-8")
    public = set(public_names(path))
    found = dict.fromkeys(python_names(ast.parse(code)) if path.suffix == ".py" else script_names(code))
    names = [name for name in found if name not in public and not (name.startswith("__") and name.endswith("__"))]
    return f"`{', '.join(names)}`" if names else ""


def public_names(path: Path) -> list[str]:
    """Return the classes and functions of a file that other files may use."""
    code = path.read_text(encoding="utf-8")
    if path.suffix == ".js":
        return re.findall(r"^export (?:class|function|const) (\w+)", code, re.MULTILINE)
    defined = (node.name for node in ast.parse(code).body if isinstance(node, ast.ClassDef | ast.FunctionDef))
    return [name for name in defined if not name.startswith("_")]


def python_names(tree: ast.Module | ast.ClassDef) -> Iterator[str]:
    """Yield the names that a module or class defines, those of its classes and the attributes of objects included."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
            yield from python_names(node)
        elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
            attributes = (one for one in ast.walk(node) if isinstance(one, ast.Attribute))
            yield from (one.attr for one in attributes if isinstance(one.ctx, ast.Store))
        elif isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))


def script_names(code: str) -> list[str]:
    """Return the constants, functions and methods of a script."""
    pattern = r"^(?:class|function|const|let) (\w+)|^  (?:async |get |set |static )?(#?\w+)\(.*\) \{$"
    return [name or method for name, method in re.findall(pattern, code, re.MULTILINE) if method not in NOT_METHODS]


NOT_METHODS = {"constructor", "if", "for", "while", "switch"}


def python_summary(code: str) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(code)) or "").partition("\n")[0].replace("``", "`")


def script_summary(code: str) -> str:
    """Return the first comment of a script, without directives for checkers."""
    comments: list[str] = re.findall(r"^// (?!@)(.*)$", code, re.MULTILINE)
    return comments[0]


def with_drawing(page: str, chart: str) -> str:
    """Return the page with its drawing replaced."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{chart}{END}{after}"


def without_implied(edges: Edges) -> Edges:
    """Return the edges that no longer way implies (the transitive reduction of a graph without cycles)."""
    return {(above, below) for above, below in edges if not reaches(edges - {(above, below)}, above, below)}


def reaches(edges: Edges, start: str, goal: str) -> bool:
    """Return whether a way leads from ``start`` to ``goal``."""
    reached, waiting = {start}, [start]
    while waiting:
        here = waiting.pop()
        found = {below for above, below in edges if above == here} - reached
        reached |= found
        waiting += found
    return goal in reached


if __name__ == "__main__":
    main()
