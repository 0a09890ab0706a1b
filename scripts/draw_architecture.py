"""Writes into docs/architecture.md what the code says of itself: the drawing of the packages and the list of files.

``python -m scripts.draw_architecture`` writes it; a test fails where it is out of date. The drawing is made from the
imports: an arrow means "imports", and an arrow that others imply is left out. The list has the first line of each
Python and JavaScript file, the names of the classes and functions that other files may use, and the names inside that
at most two other files have.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import chain
from pathlib import Path

from scripts.code_facts import PACKAGE, package_imports

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "```mermaid\n", "```\n"
FILES = "<!-- The rest of the page is written by scripts/draw_architecture.py. -->\n"

SMALL = 400
"""An `__init__.py` of fewer bytes holds nothing but the docstring of its package."""

MOST_FILES = 3
"""A name that more files define says little of any of them."""

SCRIPT_NAME = r"^(?:export )?(?:class|(?:async )?function|const) (\w+)|^  (?:async )?(\w+)\(.*\) \{$"
"""A class, function or constant of a script, or a method of a class."""

Edges = set[tuple[str, str]]


def main() -> None:
    """Write the drawing and the list of files into the page."""
    PAGE.write_text(up_to_date(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def up_to_date(page: str) -> str:
    """Return the page with the drawing and the list of files as the code is now."""
    before, _, _ = with_drawing(page, drawing()).partition(FILES)
    return f"{before}{FILES}{files()}"


def drawing() -> str:
    """Return the flowchart of the packages, in Mermaid's language."""
    edges = without_implied(package_imports(ROOT / PACKAGE))
    return "\n".join(["flowchart TD", *(f"    {above} --> {below}" for above, below in sorted(edges)), ""])


def files() -> str:
    """Return the files of each package, each with the first line of its docstring and its public names."""
    lines = []
    rare = rare_names()
    folders = [ROOT / PACKAGE, *sorted(path.parent for path in (ROOT / PACKAGE).rglob("*/__init__.py"))]
    for folder in folders:
        paths = [
            path
            for path in sorted((*folder.glob("*.py"), *folder.glob("*.js")))
            if path.name != "__init__.py" or path.stat().st_size > SMALL
        ]
        if paths:
            lines += [
                "",
                f"`{folder.relative_to(ROOT / PACKAGE)}/`" if folder != ROOT / PACKAGE else f"`{PACKAGE}/`",
                "",
            ]
            lines += [f"- `{path.name}`: {summary(path, rare)}" for path in paths]
    return "\n".join([*lines, ""])


def summary(path: Path, rare: Collection[str]) -> str:
    """Return the first line of a file's docstring and the names that it defines, as Markdown.

    Those for other files come first, then those of ``rare``, the names that few other files define.
    """
    code = path.read_text(encoding="utf-8")
    first_line, defined = (python_summary if path.suffix == ".py" else script_summary)(code)
    inside = [name for name in names_in(path) if name in rare and name not in defined]
    texts = [listed(defined), f"inside: {listed(inside)}" if inside else ""]
    return f"{first_line} {'; '.join(filter(None, texts))}".rstrip()


def listed(names: Iterable[str]) -> str:
    """Return names as Markdown."""
    return ", ".join(f"`{name}`" for name in names)


def rare_names() -> set[str]:
    """Return the names of all ``names_in`` that at most ``MOST_FILES`` files define."""
    paths = ((ROOT / PACKAGE).rglob(pattern) for pattern in ("*.py", "*.js"))
    files_with = Counter(name for path in chain.from_iterable(paths) for name in names_in(path))
    return {name for name, files in files_with.items() if files <= MOST_FILES}


def names_in(path: Path) -> list[str]:
    """Return the names of the classes, functions, methods, constants and fields in a file, each once."""
    code = path.read_text(encoding="utf-8")
    if path.suffix == ".js":
        found = re.findall(SCRIPT_NAME, code, re.MULTILINE)
        return list(dict.fromkeys(name or method for name, method in found if method != "constructor"))
    tree = ast.parse(code)
    defined = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    classes = (one for one in defined if isinstance(one, ast.ClassDef))
    constants = [target for one in tree.body if isinstance(one, ast.Assign) for target in one.targets]
    fields = [line.target for kind in classes for line in kind.body if isinstance(line, ast.AnnAssign)]
    assigned = (target.id for target in (*constants, *fields) if isinstance(target, ast.Name))
    names = dict.fromkeys((*(one.name for one in defined), *assigned))
    return [name for name in names if len(name) > 1 and not name.startswith("__")]


def python_summary(code: str) -> tuple[str, list[str]]:
    """Return the first line of a module's docstring and the names of its public classes and functions."""
    tree = ast.parse(code)
    first_line = (ast.get_docstring(tree) or "").partition("\n")[0].replace("``", "`")
    defined = (node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef))
    return first_line, [name for name in defined if not name.startswith("_")]


def script_summary(code: str) -> tuple[str, list[str]]:
    """Return the first comment of a script, without directives for checkers, and the names that it exports."""
    comments = re.findall(r"^// (?!@)(.*)$", code, re.MULTILINE)
    return comments[0], re.findall(r"^export (?:class|function|const) (\w+)", code, re.MULTILINE)


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
