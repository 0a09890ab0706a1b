"""Counts the package and its tests: files, lines, code and statements, and with ``--paths`` the files executed.

Code is lines that are neither blank, comment nor docstring; statements are those of Python's grammar. A path executes a
file if one of its functions runs: ``--paths`` runs six actions of a user, and prints how many files of the package each
executes.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import threading
import time
import tokenize
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "regional_explorer"
CELL = "-r r=ops:aten.s* --budget 0.1 call(x)"
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
    campaign = root / "tests" / "campaign"
    folders = {
        PACKAGE: (root / PACKAGE).rglob("*.py"),
        "tests of make test": (path for path in (root / "tests").rglob("*.py") if campaign not in path.parents),
        "campaigns": campaign.rglob("*.py"),
        "benchmarks": (root / "benchmarks").rglob("*.py"),
        "scripts": (root / "scripts").rglob("*.py"),
    }
    print(f"{'':20}{'files':>8}{'lines':>8}{'code':>8}{'statements':>12}")
    for name, paths in folders.items():
        size = size_of(paths)
        print(f"{name:20}{size.files:8,}{size.lines:8,}{size.code:8,}{size.statements:12,}")
    lines, code = script_lines(path for path in (root / PACKAGE).rglob("*") if path.suffix in {".js", ".css"})
    print(f"{'JavaScript and CSS':28}{lines:8,}{code:8,}")


@contextmanager
def recording_files() -> Iterator[set[str]]:
    """Collect the files of the package in which a function runs in the block, on this thread or a new one."""
    folder, files = str(ROOT / PACKAGE), set[str]()

    def notice(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>" and frame.f_code.co_filename.startswith(folder):
            files.add(frame.f_code.co_filename)

    threading.setprofile(notice)
    sys.setprofile(notice)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def print_paths() -> None:
    """Run actions of a user, and print how many files of the package each executes."""
    import torch
    from IPython.core.interactiveshell import InteractiveShell

    import regional_explorer as rx
    from regional_explorer.ui.control import control_of
    from regional_explorer.ui.panel import Panel

    def call(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * 2).softmax(-1).sum()

    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", PACKAGE)
    shell.user_ns |= {"call": call, "x": torch.ones(64, 64, requires_grad=True)}
    ex = rx.explore(call, (shell.user_ns["x"],)).mark("r", ops="aten.s*")
    ex.benchmark(budget_s=0.1)
    control = control_of(ex)
    panel = Panel(control)

    def edit() -> None:
        panel.press("open", "r")
        panel.press("set", "max_fusion_size", value="8")
        panel.press("measure")
        while control.state.busy:
            time.sleep(0.01)

    paths: dict[str, Callable[[], object]] = {
        "rx.explore": lambda: rx.explore(call, (shell.user_ns["x"],)),
        "a cell to its tables": lambda: shell.run_line_magic("regional_compile", CELL),
        "opening the panel": lambda: Panel(control),
        "a config edit to its figure": edit,
        "ex.diagnose": lambda: ex.diagnose("r"),
        "reading ex.timings": lambda: ex.timings,
    }
    _ = ex.timings
    for name, run in paths.items():
        with recording_files() as files:
            run()
        print(f"{name:32}{len(files):4}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, help="another checkout to count")
    parser.add_argument("--paths", action="store_true", help="count the files that actions of a user execute")
    options = parser.parse_args()
    if options.paths:
        print_paths()
    else:
        print_sizes(options.root)
