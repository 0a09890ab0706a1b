"""The fixtures themselves: a widget round-trips, themes and sizes change, a notebook reopens without a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.lab import Lab

BUTTON = """
import ipywidgets
from IPython.display import HTML, display

button = ipywidgets.Button(description="Press")
place = ipywidgets.Output()

def pressed(_):
    with place:
        print("pressed")

button.on_click(pressed)
display(button, place, HTML("<p class='still-here'>static</p>"))
"""


@pytest.fixture
def opened(lab: Lab) -> Lab:
    lab.write_notebook("button.ipynb", [BUTTON, "2 + 2"])
    lab.open_notebook("button.ipynb")
    lab.run_all()
    return lab


def test_a_widget_round_trips(opened: Lab) -> None:
    opened.output(0).get_by_role("button", name="Press").click()
    opened.output(0).get_by_text("pressed").wait_for()
    assert opened.outputs(1)[0]["data"]["text/plain"] == "4"


def test_a_cell_is_added_and_run(opened: Lab) -> None:
    index = opened.add_cell_and_run("import time; time.sleep(0.5); print('done', 6 * 7)")
    assert index == 2
    assert opened.outputs(index)[0]["text"] == "done 42\n"
    assert opened.output(index).get_by_text("done 42").is_visible()


def test_the_kernel_is_this_python(opened: Lab) -> None:
    import sys

    index = opened.add_cell_and_run("import sys, regional_explorer; print(sys.prefix)")
    assert Path(opened.outputs(index)[0]["text"].strip()) == Path(sys.prefix)


def test_themes_sizes_and_pictures(opened: Lab) -> None:
    opened.set_theme("dark")
    opened.set_viewport(700, 500)
    picture = opened.screenshot("lab-dark")
    assert picture.read_bytes().startswith(b"\x89PNG")
    opened.set_theme("light")


def test_a_notebook_reopens_without_a_kernel(opened: Lab) -> None:
    opened.reopen_without_kernel("button.ipynb")
    opened.output(0).locator(".still-here").wait_for()
    assert opened.output(0).get_by_role("button", name="Press").count() == 0
    assert opened.server.sessions() == []


def test_nothing_goes_wrong_and_nothing_is_fetched(opened: Lab) -> None:
    assert opened.errors == []
    assert opened.foreign_requests == []


def test_errors_of_the_page_are_noted(lab: Lab) -> None:
    lab.page.evaluate("() => { console.error('first'); setTimeout(() => { throw new Error('second'); }); }")
    lab.page.wait_for_timeout(200)
    assert any("first" in error for error in lab.errors)
    assert any("second" in error for error in lab.errors)
