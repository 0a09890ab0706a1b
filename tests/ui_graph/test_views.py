from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from regional_explorer.record.region import Plan
from regional_explorer.ui import graph_view
from regional_explorer.ui.graph_view import GraphView
from regional_explorer.ui.source_view import SourceView
from tests.render import sessions
from tests.ui_graph.reading import Read


def view(count: int = 40, **options: Any) -> GraphView:
    return GraphView(sessions.trained(count), **{"time_limit_s": 0, **options})


def titles(shown: GraphView) -> list[str]:
    return Read(shown.payload).titles


def test_a_view_begins_with_the_first_graph_that_runs() -> None:
    shown = view()
    assert shown.tab == "0/forward"
    assert [tab for tab, _ in shown.tabs] == ["0/forward", "0/backward", "partitions"]
    assert shown.payload["tab"] == "0/forward"
    assert shown.problem == ""


def test_a_tab_brings_its_graph() -> None:
    shown = view(2)
    shown.tab = "0/backward"
    assert shown.payload["tab"] == "0/backward"
    assert "gelu_backward" in titles(shown)


def test_messages_open_and_close() -> None:
    shown = view()
    before = Read(shown.payload)
    key = before.opens[before.titles.index("39 times more")]
    shown.receive(shown, {"do": "open", "key": key}, [])
    assert "39 times more" not in titles(shown)
    shown.receive(shown, {"do": "close", "key": key}, [])
    assert titles(shown) == before.titles
    shown.receive(shown, {"do": "open all"}, [])
    assert titles(shown).count("gelu") == 40
    shown.receive(shown, {"do": "close all"}, [])
    assert titles(shown).count("gelu") == 0
    assert shown.problem == ""


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"do": "fly"},
        {"do": "open", "key": 3},
        None,
        "text",
        {"do": "open", "key": "?"},
        {"do": "select", "nodes": [3]},
    ],
)
def test_other_messages_do_no_harm(message: Any) -> None:
    shown = view()
    before = titles(shown)
    shown.receive(shown, message, [])
    assert titles(shown) == before
    assert shown.problem == ""


def test_what_goes_wrong_in_a_message_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no\x00 luck")

    shown = view()
    monkeypatch.setattr(graph_view, "picture", broken)
    shown.receive(shown, {"do": "open all"}, [])
    assert shown.problem == "RuntimeError: no luck"
    monkeypatch.undo()
    shown.expand_all()
    assert shown.problem == ""


def test_a_selection_is_heard_by_message_too_from_a_linked_view_as_well() -> None:
    shown, source = view(3), SourceView(sessions.trained(3))
    source.link(shown)
    shown.receive(shown, {"do": "select", "nodes": ["0/forward:gelu0"]}, [])
    assert shown.selected() == {"0/forward": ("gelu0",)}
    source._handle_custom_msg({"do": "select", "nodes": ["0/forward:gelu1"]}, [])
    assert shown.selected() == {"0/forward": ("gelu1",)}


def test_folds_are_kept_per_tab_and_over_sessions() -> None:
    shown = view()
    shown.expand_all()
    shown.tab = "0/backward"
    assert titles(shown).count("gelu_backward") == 1
    shown.tab = "0/forward"
    assert titles(shown).count("gelu") == 40
    shown.set_session(sessions.trained(40, max_autotune=False))
    assert titles(shown).count("gelu") == 40


def test_a_session_without_the_tab_shows_its_first_one() -> None:
    shown = view()
    shown.tab = "partitions"
    shown.set_session(replace(sessions.trained(2), plan=Plan(), partitions=(), members={}))
    assert shown.tab == "0/forward"


def test_selection_survives_as_far_as_nodes_do() -> None:
    shown = view(3)
    shown.select(["0/forward:gelu0", "0/backward:tanh2"])
    assert shown.selected() == {"0/forward": ("gelu0",), "0/backward": ("tanh2",)}
    shown.set_session(sessions.trained(1))
    assert shown.selection == ["0/forward:gelu0"]


def test_better_places_come_for_the_picture_in_view() -> None:
    shown = view(3, time_limit_s=30)
    assert shown.wait_arranged(60)
    assert shown.places["of"] == shown.payload["number"]
    assert len(shown.places["rects"]) == len(shown.payload["places"]["rects"])
    assert not shown.arranging


def test_without_graphviz_the_first_places_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_view, "arranged", lambda *_, **__: None)
    shown = view(3, time_limit_s=30)
    assert shown.wait_arranged(60)
    assert shown.places == {}
    assert not shown.arranging


def test_only_the_newest_picture_is_arranged(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = view(3, time_limit_s=30)
    for tab in ("0/backward", "partitions", "0/forward"):
        shown.tab = tab
    assert shown.wait_arranged(120)
    assert shown.places["of"] == shown.payload["number"]


def test_closing_gives_up_the_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_view, "arranged", lambda *_, stop, **__: stop.wait(60) and None)
    shown = view(3, time_limit_s=30)
    assert shown.arranging
    shown.close()
    assert shown.wait_arranged(0)


def test_an_empty_view_and_an_empty_session() -> None:
    assert GraphView().payload == {}
    shown = GraphView(sessions.session())
    assert shown.payload["texts"] == [""]
    assert shown.tab == ""


@pytest.mark.parametrize("text", sessions.HOSTILE)
def test_hostile_sessions_are_shown(text: str) -> None:
    shown = GraphView(sessions.hostile(text), time_limit_s=0)
    assert len(Read(shown.payload).boxes) == 4
    assert shown.problem == ""
    assert len(SourceView(sessions.hostile(text)).payload["functions"]) == 1


def test_linked_views_share_selection_and_hover() -> None:
    graph, source = view(2), SourceView(sessions.trained(2))
    links = source.link(graph)
    assert {tuple(name for _, name in (link.source, link.target)) for link in links} == {
        ("selection", "selection"),
        ("hover", "hover"),
    }
