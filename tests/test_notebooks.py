"""The notebooks of the gallery run from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
ALWAYS = "quickstart"
"""Run by `make test`; the others with the slow tests."""

pytestmark = pytest.mark.compiles


def notebooks() -> list[object]:
    names = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
    return [pytest.param(name, marks=() if name == ALWAYS else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", notebooks())
def test_a_notebook_runs(name: str) -> None:
    import nbformat  # takes seconds, as does what runs it

    from scripts.demo import PRINT_TABLES, run

    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells if name == ALWAYS else ():  # its figures do not matter here
        cell.source = re.sub(r"(--budget |budget_s=)[\d.]+", r"\g<1>0.1", cell.source)
        cell.source = cell.source.replace("blocks=4, width=256", "blocks=1, width=64")
        cell.source = cell.source.replace('"cpp.simdlen": 256', '"max_fusion_size": 16')  # needs a header of its own
    printed = run(notebook, NOTEBOOKS, PRINT_TABLES if name == ALWAYS else "")
    assert all(text in printed for text in ("Diagnostics", "traced", "Plans tried")) == (name == ALWAYS)
    ran = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in ran)
    assert any(cell.outputs for cell in ran)
