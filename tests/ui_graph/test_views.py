from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from regional_explorer.page import static
from regional_explorer.page.view import PALETTE, overlay
from regional_explorer.record.artifact import ArtifactCode, Kernel, KernelKind
from regional_explorer.record.graph import Graph, GraphKind, Node, Role
from regional_explorer.record.partition import State
from regional_explorer.record.plan import Plan
from regional_explorer.record.region_code import region_code
from regional_explorer.style.css import mix
from regional_explorer.style.formats import duration
from regional_explorer.ui import view as view_module
from regional_explorer.ui.view import CodeView, GraphView, SourceView
from tests.shared import sessions
from tests.shared.pages import contrast
from tests.ui_graph.reading import needs_node, node
from tests.ui_graph.test_listing import session_of


def view(count: int = 40, **options: Any) -> GraphView:
    return GraphView(sessions.trained(count), **options)


def press(shown: Any, do: str, of: str = "", **more: Any) -> None:
    shown._handle_custom_msg({"do": do, "of": of, "value": None, "shift": False, "ctrl": False, **more}, [])


def record(shown: GraphView, name: str) -> Any:
    return getattr(shown, name)


def test_a_view_begins_with_the_first_graph_that_runs() -> None:
    shown = view()
    assert shown.first == "0/forward"
    assert [tab["id"] for tab in shown.tabs] == ["0/forward", "0/backward", "partitions"]
    assert record(shown, "facts0")["title"].startswith("forward")
    assert record(shown, "facts1") == record(shown, "folds1") == {}
    assert shown.problem == ""


def test_another_graph_comes_when_the_page_asks_for_it() -> None:
    shown = view(2)
    press(shown, "graph", "1")
    assert record(shown, "facts1")["title"].startswith("backward")
    assert record(shown, "folds1")["homes"]


def test_a_session_brings_the_graphs_of_the_tab_and_what_stays_of_the_others() -> None:
    shown = view(3)
    press(shown, "graph", "1")
    facts = [record(shown, f"facts{number}") for number in (0, 1)]
    stale = replace(sessions.trained(3), graphs=shown._session.graphs)  # type: ignore[union-attr]
    shown.set_session(replace(stale, partitions=tuple(replace(one, state=State.STALE) for one in stale.partitions)))
    assert record(shown, "facts0") is facts[0]
    assert record(shown, "folds0")["homes"]
    assert record(shown, "facts1") is facts[1]
    assert record(shown, "folds1") == {}
    shown.shown = {"tab": "partitions"}
    shown.set_session(stale)
    assert record(shown, "folds0")["homes"]
    assert record(shown, "folds1")["homes"]


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"do": "fly"},
        {"do": "graph", "of": 3},
        None,
        "text",
        {"do": "graph", "of": "?"},
        {"do": "graph", "of": "7"},
        {"do": "graph", "of": "-1"},
        {"do": "fly", "of": ""},
        {"do": "select", "nodes": [3], "number": 1},
        {"do": "select", "nodes": []},
    ],
)
def test_other_messages_do_no_harm(message: Any) -> None:
    shown = view()
    before = shown.get_state()
    shown.receive(shown, message, [])
    assert shown.get_state() == before
    assert shown.problem == ""


def test_a_graph_that_cannot_be_drawn_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("no\x00 luck")

    shown = view()
    monkeypatch.setattr("regional_explorer.picture.records.graph_facts", broken)
    press(shown, "graph", "1")
    assert shown.problem == "RuntimeError: no luck"


def test_a_session_that_cannot_be_drawn_is_told_and_the_next_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("no luck")

    shown = view()
    monkeypatch.setattr(view_module, "view_state", broken)
    shown.set_session(sessions.trained(3))
    assert shown.problem == "RuntimeError: no luck"
    monkeypatch.undo()
    shown.set_session(sessions.trained(2))
    assert shown.problem == ""


def test_a_selection_is_heard_by_message_too_and_the_page_is_told() -> None:
    shown = view(3)
    told: list[Any] = []
    shown.send = lambda message, *_: told.append(message)
    shown.receive(shown, {"do": "select", "nodes": ["0/forward:gelu0"], "number": 7}, [])
    assert shown.selection == ["0/forward:gelu0"]
    assert told == [{"heard": 7}]


def texts_in(tree: Any) -> list[str]:
    return [tree] if isinstance(tree, str) else [text for part in tree[2:] for text in texts_in(part)]


def test_overlays_tell_how_far_up_the_scale_each_partition_is() -> None:
    found = overlay("time", duration, {"a": 1.2345e-6, "b": 2e-3, "c": float("inf")})
    assert found["values"] == {"a": [0.0, "1.23 µs"], "b": [1.0, "2.00 ms"]}
    assert texts_in(found["scale"]) == ["time 1.23 µs", "2.00 ms"]
    assert overlay("slow", duration, {"x": 1234.567})["values"] == {"x": [0.5, "1,230 s"]}
    assert overlay("none", duration, {"x": float("inf")}) | {"title": ""} == {"title": "", "scale": None, "values": {}}


@needs_node
def test_figures_can_be_read_on_their_ground() -> None:
    program = (
        static.script("colours")
        + """
import { readFileSync } from "node:fs";
const scales = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(scales.map((scale) => [...Array(61).keys()].map((place) => shade(scale, place / 60)))));
"""
    )
    scales: list[Any] = [colours["scale"] for colours in PALETTE.values()]
    for (cold, warm), shades in zip(scales, json.loads(node(program=program, given=scales)), strict=True):
        assert all(contrast(one["text"], one["fill"]) >= 4.5 for one in shades)
        assert [shades[0]["fill"], shades[30]["fill"], shades[-1]["fill"]] == [cold, mix(cold, warm, 0.5), warm]


def test_lines_select_their_nodes_and_nodes_light_their_lines(tmp_path: Path) -> None:
    session = session_of(tmp_path / "model.py")
    shown, source = GraphView(session), SourceView(session)
    source.link(shown)
    press(source, "pick", "0")  # y = helper(x)
    assert shown.selection == ["0/forward:add"]
    assert source.lit["rows"] == {"0": "selected", "2": "selected chosen"}
    assert source.lit["say"] == "1 node selected"
    press(source, "pick", "1", shift=True)  # to the last line of the same function
    assert shown.selection == ["0/forward:add", "0/forward:mul"]
    press(source, "pick", "0", ctrl=True)
    assert shown.selection == ["0/forward:mul"]
    shown.set_trait("hover", ["0/forward:add"])
    assert source.lit["rows"]["0"] == "above"
    assert source.lit["rows"]["2"] == "hovered above"
    press(source, "point", "1")
    assert shown.hover == ["0/forward:mul"]
    for wrong in ("", "7", "-1", "x"):
        press(source, "pick", wrong)
        press(source, "point", wrong)
        assert shown.hover == []
    press(source, "clear")
    assert shown.selection == []


def test_lines_tell_their_regions(tmp_path: Path) -> None:
    shown = SourceView(session_of(tmp_path / "model.py"))
    (listed, _) = shown.tree
    rows = [row for block in listed[3:] for row in block[3][2:]]
    chips = {row[5][2]: row[3][2:] for row in rows}
    assert [chip[2] for chip in chips["    return [y * n for n in range(2)]"]] == ["A"]
    assert chips["    y = helper(x)"] == chips["    # nothing here"] == []


def test_a_session_without_regions_has_no_tab_of_partitions() -> None:
    shown = view()
    shown.shown = {"tab": "partitions"}
    shown.set_session(replace(sessions.trained(2), plan=Plan(), partitions=(), members={}))
    assert [tab["id"] for tab in shown.tabs] == ["0/forward", "0/backward"]
    assert record(shown, "folds0")["homes"]  # of the tab that is shown instead


def test_selection_survives_as_far_as_nodes_do() -> None:
    shown = view(3)
    shown.select(["0/forward:gelu0", "0/backward:tanh2"])
    assert shown.selection == ["0/forward:gelu0", "0/backward:tanh2"]
    shown.set_session(sessions.trained(1))
    assert shown.selection == ["0/forward:gelu0"]


def test_an_empty_view_and_an_empty_session() -> None:
    empty = GraphView()
    assert empty.tabs == []
    assert empty.lit is None  # the page would look for rows to light
    assert SourceView().lit is None
    shown = GraphView(sessions.session())
    assert shown.tabs == []
    assert shown.first == ""


@pytest.mark.parametrize("text", sessions.HOSTILE)
def test_hostile_sessions_are_shown(text: str) -> None:
    shown = GraphView(sessions.hostile(text))
    assert len(record(shown, "facts0")["ops"]) == 4
    assert shown.problem == ""
    assert len(SourceView(sessions.hostile(text)).tree[0][2:]) == 2  # its style, and a function


def test_a_session_without_lines_has_a_message() -> None:
    nodes = (Node("a", Role.OP, "aten.add.Tensor"),)
    shown = SourceView(sessions.session((Graph("0/forward", GraphKind.FORWARD, 0, nodes),)))
    assert texts_in(["", {}, *shown.tree]) == ["The nodes of this session have no source lines."]


def test_what_is_picked_in_the_code_is_selected_in_the_order_it_runs() -> None:
    kernel = Kernel("kernel", KernelKind.POINTWISE, nodes=(1,), defined=(1, 1))
    session = sessions.with_code(sessions.trained(12), ArtifactCode("code", kernels=(kernel,)))
    graph, code = GraphView(session), CodeView()
    code.link(graph)
    code.set_code(region_code(session, "mlp"))
    press(code, "pick", "k0.1")
    assert graph.selection == [f"0/forward:mm{n}" for n in range(12)]
    press(graph, "select", nodes=["0/backward:tanh3", "0/forward:gelu11"], number=1)
    press(code, "pick", "k0.1", ctrl=True)
    assert graph.selection == [*(f"0/forward:mm{n}" for n in range(12)), "0/forward:gelu11", "0/backward:tanh3"]


def test_linked_views_share_selection_and_hover_until_they_are_not() -> None:
    graph, source = view(2), SourceView(sessions.trained(2))
    source.link(graph)
    graph.select(["0/forward:gelu0"])
    assert source.selection == ["0/forward:gelu0"]
    source.hover = ["0/forward:gelu1"]
    assert graph.hover == ["0/forward:gelu1"]
    for _ in range(2):
        source.unlink()
    graph.select([])
    assert source.selection == ["0/forward:gelu0"]
