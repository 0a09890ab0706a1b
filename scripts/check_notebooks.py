"""Check with mypy that the names in the notebooks exist: only the slow tests run most notebooks."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from mypy import api

ROOT = Path(__file__).resolve().parent.parent
FOUND = ("[attr-defined]", "[call-arg]")
"""Errors that count in a cell; missing annotations do not."""


def cells_of(path: Path) -> str:
    """Return the code of a notebook as a Python module."""
    cells = nbformat.read(path, as_version=4).cells
    return "\n".join(TransformerManager().transform_cell(cell.source) for cell in cells if cell.cell_type == "code")


def main() -> int:
    """Print the errors; return the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
            Path(folder, f"{path.stem}.py").write_text(cells_of(path), encoding="utf-8")
        options = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
        text, errors, _ = api.run([*options, *map(str, sorted(Path(folder).glob("*.py")))])
    wrong = [line for line in text.splitlines() if line.endswith(FOUND)]
    print("\n".join([*wrong, errors]) if wrong or errors else "The names in the notebooks exist.")
    return 1 if wrong or errors else 0


if __name__ == "__main__":
    sys.exit(main())
