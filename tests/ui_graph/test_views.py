from __future__ import annotations

import json
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from regional_explorer.page import static
from regional_explorer.page.code import code_pane
from regional_explorer.page.graph import PALETTE, overlay
from regional_explorer.page.source_pane import row_links
from regional_explorer.record.artifact import ArtifactCode, Kernel, KernelKind
from regional_explorer.record.figure import exactly
from regional_explorer.record.graph import Graph, GraphKind, Node, Role
from regional_explorer.record.partition import State
from regional_explorer.record.plan import Plan
from regional_explorer.record.region_code import region_code
from regional_explorer.style.css import mix
from regional_explorer.style.formats import duration
from regional_explorer.ui.widget import SessionView
from tests.shared import sessions
from tests.shared.pages import contrast
from tests.ui.test_messages import message
from tests.ui_graph.reading import needs_node, node
from tests.ui_graph.test_listing import session_of


def view(count: int = 40, **options: Any) -> SessionView:
    return SessionView(sessions.trained(count), **options)


def record(shown: SessionView, name: str) -> Any:
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
    shown.press("graph", "1")
    assert record(shown, "facts1")["title"].startswith("backward")
    assert record(shown, "folds1")["homes"]


def test_a_session_brings_the_graphs_of_the_tab_and_what_stays_of_the_others() -> None:
    shown = view(3)
    shown.press("graph", "1")
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
        {"do": "select", "of": "", "value": [3]},
        {"do": "select", "of": "", "value": "nodes"},
        {"do": "shown", "of": "", "value": {"tab": ["0/forward"]}},
        {"do": "shown", "of": "", "value": None},
    ],
)
def test_other_messages_do_no_harm(message: Any) -> None:
    shown = view()
    before = shown.get_state()
    shown.receive(shown, message, [])
    if isinstance(message, dict):
        shown.receive(shown, {"page": "one", "number": 1, **message}, [])
    assert {**shown.get_state(), "answered": {}} == before
    assert shown.problem == ""


def test_a_graph_that_cannot_be_drawn_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = view()
    broken = Mock(side_effect=RuntimeError("no\x00 luck"))
    monkeypatch.setattr("regional_explorer.picture.page_records.graph_facts", broken)
    shown.press("graph", "1")
    assert shown.problem == "RuntimeError: no luck"


def test_what_a_page_says_of_itself_is_answered_and_not_sent_back(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = view(3)
    sent: list[str] = []
    monkeypatch.setattr(shown, "send_state", lambda key: sent.extend([key] if isinstance(key, str) else key))
    shown.receive(shown, message(1, "select", value=["0/forward:gelu0"]), [])
    shown.receive(shown, message(2, "shown", value={"tab": "0/backward"}), [])
    assert shown.selection == ["0/forward:gelu0"]
    assert shown.shown == {"tab": "0/backward"}
    assert shown.answered == {"one": 2}
    assert set(sent) == {"answered"}
    shown.select([])
    assert set(sent) == {"answered", "selection"}


def texts_in(tree: Any) -> list[str]:
    return [tree] if isinstance(tree, str) else [text for part in tree[2:] for text in texts_in(part)]


def test_overlays_tell_how_far_up_the_scale_each_partition_is() -> None:
    found = overlay("time", duration, {"a": exactly(1.2345e-6), "b": exactly(2e-3), "c": exactly(inf)})
    assert found["values"] == {"a": [0.0, "1.23 µs"], "b": [1.0, "2.00 ms"]}
    assert texts_in(found["scale"]) == ["time 1.23 µs", "2.00 ms"]
    assert overlay("slow", duration, {"x": exactly(1234.567)})["values"] == {"x": [0.5, "1,230 s"]}
    assert overlay("none", duration, {"x": exactly(inf)}) | {"title": ""} == {"title": "", "scale": None, "values": {}}


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


def lit(links: Any, names: Sequence[str]) -> dict[str, tuple[list[str], list[str]]]:
    """Return by node the rows that stand for what it is in, and those that stand for it."""
    return {name: tuple(links["chains"][chain]) for name, chain in zip(names, links["of"], strict=True) if chain >= 0}


def test_nodes_light_their_lines_and_those_that_call_them(tmp_path: Path) -> None:
    shown = SessionView(session_of(tmp_path / "model.py"))
    (graph,) = shown.graphs
    assert lit(shown.links["source"], graph["names"]) == {"add": (["l0"], ["l2"]), "mul": ([], ["l1"])}
    keys = [row[1]["data-of"] for row in rows_of(shown) if "data-do" in row[1]]
    assert keys == ["l0", "l1", "l2"]


def test_nodes_of_the_same_lines_share_a_chain() -> None:
    links = row_links({"a": (["x", "y"], ["x", "y", "z"]), "b": ([], ["z"])}, ["w", "x", "y", "z"])
    assert links["of"] == [-1, 0, 0, 1]
    assert lit(links, ["w", "x", "y", "z"]) == {"x": ([], ["a"]), "y": ([], ["a"]), "z": (["a", "b"], [])}


def rows_of(shown: SessionView) -> list[Any]:
    (listed,) = shown.part_source
    return [row for block in listed[2:] for row in block[3][2:]]


def test_lines_tell_their_regions(tmp_path: Path) -> None:
    shown = SessionView(session_of(tmp_path / "model.py"))
    chips = {row[5][2]: row[3][2:] for row in rows_of(shown)}
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
    empty = SessionView()
    assert empty.tabs == []
    shown = SessionView(sessions.session())
    assert shown.tabs == []
    assert shown.first == ""


@pytest.mark.parametrize("text", sessions.HOSTILE)
def test_hostile_sessions_are_shown(text: str) -> None:
    shown = SessionView(sessions.hostile(text))
    assert len(record(shown, "facts0")["ops"]) == 4
    assert shown.problem == ""
    assert len(shown.part_source[0][2:]) == 1  # a function


def test_a_session_without_lines_has_a_message() -> None:
    nodes = (Node("a", Role.OP, "aten.add.Tensor"),)
    shown = SessionView(sessions.session((Graph("0/forward", GraphKind.FORWARD, 0, nodes),)))
    assert texts_in(["", {}, *shown.part_source]) == ["The nodes of this session have no source lines."]


def test_nodes_light_their_kernels_in_all_partitions_of_equal_code() -> None:
    kernel = Kernel("kernel", KernelKind.POINTWISE, nodes=(1,), defined=(1, 1))
    session = sessions.with_code(sessions.trained(12), ArtifactCode("code", kernels=(kernel,)))
    shown = SessionView(session)
    shown.set_code(region_code(session, "mlp"))
    names = [f"{graph['id']}:{name}" for graph in shown.graphs for name in graph["names"]]
    found = lit(shown.links["listing"], names)
    ops = [f"0/forward:mm{n}" for n in range(12)]
    assert [name for name, (_, own) in found.items() if "c0.1" in own] == ops
    assert [name for name, (around, _) in found.items() if "k0.1" in around] == ops
    assert code_pane(())[0] == []


def test_the_lines_are_sent_again_only_when_they_are_others(tmp_path: Path) -> None:
    session = session_of(tmp_path / "model.py")
    shown = SessionView(session)
    source, links = shown.part_source, shown.links
    shown.set_session(replace(session, plan=session.plan.changed("mlp", config={"max_fusion_size": 2})))
    assert shown.part_source is source
    assert shown.links is links
    shown.set_session(replace(session, members={}))
    assert shown.part_source != source
    assert shown.links is links
