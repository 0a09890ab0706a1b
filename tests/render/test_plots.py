"""Drawings by matplotlib: they agree with the tables; without figures, an error names the method to call."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import pytest
from msgspec.structs import replace

from regional_explorer.errors import MeasureError
from regional_explorer.exploration.plots import DRAWINGS, WHOLE, Plots, drawings
from regional_explorer.exploration.results import SavedSession, save
from regional_explorer.record.regions import region_timings_of_whole_call
from regional_explorer.record.session import Session
from tests.shared import sessions
from tests.shared.random_sessions import random_measurement


@pytest.fixture(autouse=True)
def off_screen() -> Iterator[None]:
    with mpl.rc_context({"backend": "agg", "figure.max_open_warning": 0}):
        yield


def test_regions_and_the_whole_call_have_their_gains_with_whiskers() -> None:
    session = random_measurement(0)[1]
    axes = SavedSession(session).plot.gain()
    gains = {
        name: timing.gain_s
        for name, timing in region_timings_of_whole_call(session).items()
        if timing.gain_s is not None
    }
    shown = dict(zip([label.get_text() for label in axes.get_yticklabels()], axes.patches, strict=True))
    assert list(shown) == [*gains, WHOLE]
    assert {name: shown[name].get_width() for name in gains} == pytest.approx(  # type: ignore[attr-defined]
        {name: 1e3 * gain.value for name, gain in gains.items()}
    )


def test_every_sample_of_a_benchmark_is_drawn() -> None:
    session = sessions.measured()
    axes = Plots(session).samples()
    assert Plots(session).samples(axes) is axes
    points = {line.get_label(): list(line.get_ydata()) for line in axes.lines}  # type: ignore[arg-type]
    for timing in session.whole_timings.values():
        assert [1e3 * seconds for seconds in timing.samples_s] in points.values()


def test_the_timeline_has_a_row_of_ops_for_each_graph() -> None:
    session = sessions.profiled(sessions.training_session(2))
    axes = Plots(session).timeline()
    ends = [patch.get_x() + patch.get_width() for patch in axes.patches]  # type: ignore[attr-defined]
    assert len(axes.patches) == sum(len(graph.ops) for graph in session.graphs)
    assert max(ends) == pytest.approx(1e3 * sum(1e-6 * 1.1**n for n in range(12)))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0/forward", "0/backward"]


def session_with_drawings() -> Session:
    """Return a session with figures for three drawings, whose title is shown neither as markup nor as a formula."""
    name = "<b>&$x_{1$"
    session = sessions.profiled(sessions.measured_alone())
    return replace(session, title=name, timings=sessions.measured().timings)


def test_a_saved_page_has_the_drawings_in_folds(tmp_path: Path) -> None:
    session = session_with_drawings()
    page = save(session, tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<h4>Drawings</h4>") == 1
    for title in ("Gain", "Samples", "Timeline"):
        assert f"<details><summary>{title}</summary>" in page
    assert "Drawings" not in save(sessions.training_session(1), tmp_path / "bare.html").read_text(encoding="utf-8")


def test_drawings_have_texts_unique_ids_and_dark_colours() -> None:
    found = {title: ET.fromstring(svg) for title, svg in drawings(session_with_drawings()).items()}  # noqa: S314 - our own
    ids = [one.get("id") for svg in found.values() for one in svg.iter() if one.get("id")]
    assert len(set(ids)) == len(ids)
    for title, svg in found.items():
        named = {one.get("id"): one.text for one in svg if one.tag.endswith(("title", "desc"))}
        assert [named[name] for name in svg.get("aria-labelledby", "").split()] == [title, DRAWINGS[title.lower()][1]]
        texts = [one.text for one in svg.iter() if one.tag.endswith("text")]
        assert "<b>&$x_{1$" in texts
        styles = " ".join(one.get("style", "") for one in svg.iter())
        assert "light-dark(" in styles
        assert not re.findall(r": #[0-9a-f]{6}", styles), "black on black"
        assert not [one for one in svg.iter() if one.tag.endswith("style")], "it would be the page's"


def test_nothing_is_drawn_without_matplotlib_or_if_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regional_explorer.exploration.plots.LARGEST_DRAWING", 1000)
    assert drawings(session_with_drawings()) == {}
    monkeypatch.undo()
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert drawings(session_with_drawings()) == {}


@pytest.mark.parametrize("name", ["gain", "samples", "timeline"])
def test_a_plot_without_figures_names_the_method_that_measures_them(name: str) -> None:
    with pytest.raises(MeasureError, match=r"nothing to draw yet: run ex\.\w+\(\) first"):
        getattr(Plots(sessions.training_session(1)), name)()
