"""Counts facts of the code that the changelog quotes: imports between packages, logical lines, tests that reach inside.

``python scripts/code_facts.py`` prints them for this checkout, ``python scripts/code_facts.py PATH`` for another one.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "regional_explorer"


def main(root: Path) -> None:
    """Print the facts of the checkout at ``root``."""
    edges = package_imports(root / PACKAGE)
    python = sum(logical_lines(path) for path in sorted((root / PACKAGE).rglob("*.py")))
    page = sum(lines_of_script(path) for path in sorted((root / PACKAGE).rglob("*")) if path.suffix in {".js", ".css"})
    private, patched = reaching_inside(root / "tests")
    print(f"imports between top-level packages and modules: {len(edges)}")
    print(f"logical lines: {python + page} ({python} Python, {page} JavaScript and CSS)")
    print(f"tests: {private} touches of private attributes, {patched} patched globals")


def package_imports(package: Path) -> set[tuple[str, str]]:
    """Return who imports whom among the top-level packages and modules; ``__init__`` of the package is not counted."""
    return {
        (top(path, package), name.split(".")[1])
        for path in package.rglob("*.py")
        if path != package / "__init__.py"
        for name in imported(ast.parse(path.read_text(encoding="utf-8")))
        if name.startswith(f"{PACKAGE}.") and name.split(".")[1] != top(path, package)
    }


def top(path: Path, package: Path) -> str:
    """Return the top-level package or module that a file belongs to."""
    return path.relative_to(package).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a file imports, those inside functions and for type checking included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            yield from (f"{PACKAGE}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def logical_lines(path: Path) -> int:
    """Return the logical lines of a Python file: statements, without docstrings, comments and blank lines."""
    source = path.read_text(encoding="utf-8")
    docstrings = {
        node.body[0].lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and isinstance(node.body[0].value, ast.Constant)
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    ends = [token.line for token in tokens if token.type == tokenize.NEWLINE]
    return len(ends) - len(docstrings)


def lines_of_script(path: Path) -> int:
    """Return the lines of a script or style sheet that are neither blank nor comment."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return sum(bool(line.strip()) and not line.strip().startswith("//") for line in text.splitlines())


def reaching_inside(tests: Path) -> tuple[int, int]:
    """Return how often tests touch private attributes of other objects, and how often they patch a global.

    The methods `_repr_html_` and such are no private ones, but the interface of IPython.
    """
    private = patched = 0
    for path in tests.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and re.fullmatch(r"_(?!repr_)[a-zA-Z]\w*", node.attr):
                private += not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls", "torch"})
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                patched += node.func.attr in {"setattr", "setitem"} and ast.unparse(node.func.value) == "monkeypatch"
                patched += ast.unparse(node.func).startswith("mock.patch")
    return private, patched


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
