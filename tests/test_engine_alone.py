"""The engine without the notebook packages: everything but the panel works, and the panel names the pip command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

WITHOUT_NOTEBOOK = """
import sys

for name in ("IPython", "ipywidgets", "anywidget", "graphviz", "pygraphviz"):
    sys.modules[name] = None  # as if it were not installed
import torch
import regional_explorer as rx

def f(x):
    with rx.region("r"):
        return x.sin().cos()

ex = rx.explore(f, (torch.ones(8),))
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NOTEBOOK + code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("call", "command"),
    [
        ("ex.show()", "pip install IPython ipywidgets anywidget"),
        ("ex.graph()", "pip install graphviz"),
        ("rx.load_ipython_extension(None)", "pip install IPython"),
    ],
)
def test_what_needs_the_notebook_names_the_pip_command(call: str, command: str) -> None:
    code = f"try:\n    {call}\nexcept rx.MissingPackageError as error:\n    print(error)\n"
    assert command in run(code)


def test_without_pandas_what_needs_it_names_the_pip_command() -> None:
    program = (
        "import sys\nsys.modules['pandas'] = None\nimport regional_explorer as rx\n"
        "for name in ('explore', 'load', 'compare'):\n"
        "    try:\n        getattr(rx, name)\n    except rx.MissingPackageError as error:\n        print(error)\n"
        "print(rx.compile.__name__, rx.status.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *errors, works = done.stdout.splitlines()
    assert len(errors) == 3
    assert all("need pandas" in error and "pip install pandas" in error for error in errors)
    assert works == "compile status"


def test_tables_and_the_saved_page_work_without_the_notebook(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    said = run(f"print(ex.regions.region.tolist(), ex.save({str(target)!r}).name, len(repr(ex)) > 0)")
    assert said.strip() == "['r'] page.html True"
    assert "<svg" in target.read_text(encoding="utf-8")
