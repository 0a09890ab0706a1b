"""Snapshots of every text, page and table of six saved sessions.

``pytest tests/golden --snapshot-update`` writes the current ones; read the difference before you commit it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from regional_explorer.exploration.results import SavedSession, compare, load
from regional_explorer.export.to_source import plan_source
from regional_explorer.page.report import page_html, session_text
from regional_explorer.picture.layout import layers
from regional_explorer.picture.open_folds import compose
from regional_explorer.picture.svg import draw
from regional_explorer.style.element import to_html
from regional_explorer.tables.frame import table_csv
from regional_explorer.ui.state import PanelState, Shown
from regional_explorer.ui.tables import region_table, time_table
from tests.golden.snapshots import SNAPSHOT_FILES
from tests.shared.sessions import FRAMES

SESSIONS = Path(__file__).parent / "sessions"
NAMES = ("textbook", "training", "troubled", "repeated", "numerics", "insight")


def code_of_regions(results: SavedSession) -> str:
    return "\n".join(f"{region.name}\n{results.code(region.name)}" for region in results.session.plan.regions)


def kernel_times(results: SavedSession) -> str:
    names = [region.name for region in results.session.plan.regions]
    return "\n".join(f"{name}\n{table_csv(results.kernel_times(name))}" for name in names)


def frame_csv(name: str) -> Callable[[SavedSession], str]:
    return lambda results: table_csv(getattr(results, name))


def panel_tables(results: SavedSession) -> str:
    shown = Shown("", "ex", PanelState(results.session.plan), results.session, (), {}, None)
    return readable(to_html(*region_table(shown), *time_table(shown)))


def picture(results: SavedSession) -> str:
    """Return the picture in our own layout, as Graphviz's depends on the fonts of the machine."""
    scene = compose(results.session)
    return re.sub(r"(?=<(?!/))", "\n", draw(scene, layers(scene)))


def readable(html: str) -> str:
    """Return a page with one tag per line, without scripts, style sheets and the static picture of the graph."""
    for invisible in (r"<style>.*?</style>", r"<script.*?</script>", r"<svg.*?</svg>"):
        html = re.sub(invisible, "", html, flags=re.DOTALL)
    html = re.sub(r"script-src '[^']*'", "script-src", html)
    return re.sub(r"(?<=.)(?=<(?!/))", "\n", html)


def notebook_beside_page(results: SavedSession) -> str:
    """Return the lines of the notebook's view that the page lacks: all others stand in its snapshot."""
    in_page = set(readable(page_html(results.session)).splitlines())
    lines = readable(results._repr_mimebundle_()["text/html"]).splitlines()
    return "\n".join(line for line in lines if line not in in_page)


VIEWS: dict[str, Callable[[SavedSession], str]] = {
    "report.txt": lambda results: session_text(results.session, width=100),
    "notebook.html": notebook_beside_page,
    "page.html": lambda results: readable(page_html(results.session)),
    "panel.html": panel_tables,
    "picture.svg": picture,
    "graph.dot": lambda results: results.graph().source,
    "plan.txt": lambda results: plan_source(results.session.plan),
    "compare.csv": lambda results: table_csv(compare(results.session, results.session)),
    "code.txt": code_of_regions,
    "kernel_times.csv": kernel_times,
    **{f"{name}.csv": frame_csv(name) for name in FRAMES},
}


@pytest.fixture(scope="module", params=NAMES)
def results(request: pytest.FixtureRequest) -> SavedSession:
    return load(SESSIONS / f"{request.param}.json")


@pytest.mark.parametrize("view", VIEWS)
def test_view(view: str, results: SavedSession, snapshot: SnapshotAssertion) -> None:
    made, ending = VIEWS[view](results), view.rpartition(".")[2]
    assert made == snapshot(extension_class=SNAPSHOT_FILES[ending])
