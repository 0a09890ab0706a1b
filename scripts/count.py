"""Counts the package and its tests: files, lines, code and statements.

Code is lines that are neither blank, comment nor docstring; statements are those of Python's grammar.
"""

from __future__ import annotations

import argparse
import ast
import re
import tokenize
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "regional_explorer"
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


class Size(NamedTuple):
    """How much Python a folder has."""

    files: int
    lines: int
    code: int
    statements: int


def size_of(paths: Iterable[Path]) -> Size:
    """Return the sum over Python files."""
    texts = [path.read_text(encoding="utf-8") for path in paths]
    return Size(
        len(texts),
        sum(len(text.splitlines()) for text in texts),
        sum(map(lines_of_code, texts)),
        sum(map(statements, texts)),
    )


def lines_of_code(text: str) -> int:
    """Return the number of lines that are neither blank, comment nor docstring."""
    lines = {
        line
        for token in tokenize.generate_tokens(StringIO(text).readline)
        if token.type not in LAYOUT
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def statements(text: str) -> int:
    """Return the number of statements, docstrings included."""
    return sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(text)))


def script_lines(paths: Iterable[Path]) -> tuple[int, int]:
    """Return how many lines scripts and style sheets have, and how many of them are neither blank nor comment."""
    texts = [path.read_text(encoding="utf-8") for path in paths]
    bare = [re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).splitlines() for text in texts]
    code = sum(bool(line.strip()) and not line.strip().startswith("//") for lines in bare for line in lines)
    return sum(len(text.splitlines()) for text in texts), code


def print_sizes(root: Path) -> None:
    """Print the size of each folder of Python, and of the page's scripts."""
    campaign = root / "benchmarks" / "campaign"
    folders = {
        PACKAGE: (root / PACKAGE).rglob("*.py"),
        "tests": (root / "tests").rglob("*.py"),
        "campaigns": campaign.rglob("*.py"),
        "benchmarks": (path for path in (root / "benchmarks").rglob("*.py") if campaign not in path.parents),
        "scripts": (root / "scripts").rglob("*.py"),
    }
    print(f"{'':20}{'files':>8}{'lines':>8}{'code':>8}{'statements':>12}")
    for name, paths in folders.items():
        size = size_of(paths)
        print(f"{name:20}{size.files:8,}{size.lines:8,}{size.code:8,}{size.statements:12,}")
    lines, code = script_lines(path for path in (root / PACKAGE).rglob("*") if path.suffix in {".js", ".css"})
    print(f"{'JavaScript and CSS':28}{lines:8,}{code:8,}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, help="another checkout to count")
    print_sizes(parser.parse_args().root)
