"""Panels that are cleared away within one cell, in a real kernel."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient

SETUP = """
import torch
from IPython.display import clear_output, display
from ipywidgets import Output
from ipywidgets.widgets.widget import _instances
import regional_explorer as rx

ex = rx.explore(lambda x: torch.relu(x).sum(), (torch.ones(4),))
"""

SHOWN_OFTEN = """
ex.show()
one = len(_instances)
for turn in range(49):
    clear_output(wait=bool(turn % 2))
    ex.show()
print(one, len(_instances))
"""

CLEARED = """
ex.show()
clear_output(wait=True)
waiting = len(_instances)
display("something else")
print(waiting, len(_instances))
"""

BESIDE_AN_OUTPUT_WIDGET = """
ex.show()
beside = Output()
display(beside)
before = len(_instances)
with beside:
    clear_output()
beside.clear_output()
print(before, len(_instances))
"""


@pytest.fixture(scope="module")
def counts() -> list[list[int]]:
    cells = [nbformat.v4.new_code_cell(source) for source in (SETUP, SHOWN_OFTEN, CLEARED, BESIDE_AN_OUTPUT_WIDGET)]
    book = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(book, timeout=300, kernel_name="python3").execute()
    texts = [
        "".join(output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout")
        for cell in cells[1:]
    ]
    return [[int(word) for word in text.split()] for text in texts]


def test_the_widgets_of_fifty_panels_are_those_of_one(counts: list[list[int]]) -> None:
    one, fifty = counts[0]
    assert one > 0
    assert fifty == one


def test_a_clear_that_waits_closes_the_panel_with_the_next_output(counts: list[list[int]]) -> None:
    waiting, after = counts[1]
    assert after < waiting


def test_clearing_an_output_widget_leaves_the_panel(counts: list[list[int]]) -> None:
    before, after = counts[2]
    assert after == before
