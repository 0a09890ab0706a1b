from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regional_explorer.page.view import Overlay, partition_heat
from regional_explorer.picture.records import picture
from regional_explorer.record.artifact import ArtifactCode, Kernel, KernelKind
from regional_explorer.record.graph import Graph, GraphKind, Node, Role
from regional_explorer.record.plan import Plan
from regional_explorer.record.region_code import region_code
from regional_explorer.style.formats import duration
from regional_explorer.ui import view as view_module
from regional_explorer.ui.view import CodeView, GraphView, SourceView
from tests.render.test_small_parts import contrast
from tests.shared import sessions
from tests.ui_graph.reading import Read
from tests.ui_graph.test_listing import session_of


def view(count: int = 40, **options: Any) -> GraphView:
    return GraphView(sessions.trained(count), **options)


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
    key = before.opens[before.titles.index("layers.1–39 × 39")]
    shown.receive(shown, {"do": "open", "of": key}, [])
    assert "layers.1–39 × 39" not in titles(shown)
    shown.receive(shown, {"do": "close", "of": key}, [])
    assert titles(shown) == before.titles
    shown.receive(shown, {"do": "open all", "of": ""}, [])
    assert titles(shown).count("gelu") == 40
    shown.receive(shown, {"do": "close all", "of": ""}, [])
    assert titles(shown).count("gelu") == 0
    assert shown.problem == ""


def test_the_crumbs_lead_back() -> None:
    def crumbs() -> list[tuple[str, str]]:
        (bar,) = [part for part in shown.tree if part[1].get("class") == "rxg-crumbs"]
        return [(button[1]["data-of"], button[2]) for button in bar[2:]]

    def opener(title: str) -> str:
        found = Read(shown.payload)
        return str(found.opens[found.titles.index(title)])

    shown = GraphView(sessions.session((sessions.layers(30),)))
    before = titles(shown)
    assert crumbs() == [("", "forward")]
    press(shown, "open", opener("layers.0–29 × 30"))
    press(shown, "open", opener("layers.0"))
    assert [title for _, title in crumbs()] == ["forward", "layers.0–29", "layers.0"]
    press(shown, "open", opener("layers.0.mlp"))
    assert "mm" in titles(shown)
    assert crumbs()[-1][1] == "layers.0.mlp"
    press(shown, "back", crumbs()[2][0])  # to layers.0, whose modules are closed again
    assert titles(shown)[1:4] == ["layers.0.norm", "layers.0.mlp", "add"]
    press(shown, "close", crumbs()[2][0])
    assert [title for _, title in crumbs()] == ["forward", "layers.0–29"]
    assert titles(shown) == ["x", "layers.0", "layers.1–29 × 29"]
    press(shown, "back", "")
    assert titles(shown) == before
    assert crumbs() == [("", "forward")]


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"do": "fly"},
        {"do": "open", "of": 3},
        None,
        "text",
        {"do": "open", "of": "?"},
        {"do": "fly", "of": ""},
        {"do": "select", "nodes": [3], "number": 1},
        {"do": "select", "nodes": []},
    ],
)
def test_other_messages_do_no_harm(message: Any) -> None:
    shown = view()
    before = titles(shown)
    shown.receive(shown, message, [])
    assert titles(shown) == before
    assert shown.problem == ""


def test_what_goes_wrong_in_a_message_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("no\x00 luck")

    shown = view()
    monkeypatch.setattr(view_module, "picture", broken)
    shown.receive(shown, {"do": "open all", "of": ""}, [])
    assert shown.problem == "RuntimeError: no luck"
    shown.tab = "partitions"  # another that fails alike: the tabs show it
    buttons = shown.tree[0][2][2:]
    assert [button[1]["data-of"] for button in buttons if button[1]["aria-selected"] == "true"] == ["partitions"]
    monkeypatch.undo()
    shown.expand_all()
    assert shown.problem == ""


def test_a_session_that_cannot_be_drawn_is_told_and_the_next_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("no luck")

    shown = view()
    monkeypatch.setattr(view_module, "picture", broken)
    shown.set_session(sessions.trained(3))
    assert shown.problem == "RuntimeError: no luck"
    monkeypatch.undo()
    shown.set_session(sessions.trained(2))
    assert shown.problem == ""


def test_of_two_sessions_drawn_on_two_threads_the_newer_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow_at_first(*given: Any, **more: Any) -> Any:
        if not begun.is_set():
            begun.set()
            go_on.wait(60)
        return picture(*given, **more)

    shown = view(3)
    monkeypatch.setattr(view_module, "picture", slow_at_first)
    older = threading.Thread(target=shown.expand_all)
    older.start()
    assert begun.wait(60)
    newer = threading.Thread(target=shown.set_session, args=(sessions.trained(5),))
    newer.start()
    newer.join(0.5)  # it would end now if it did not wait for the older one
    go_on.set()
    older.join()
    newer.join()
    assert titles(shown).count("gelu") == 5


def test_a_selection_is_heard_by_message_too_and_the_page_is_told() -> None:
    shown = view(3)
    told: list[Any] = []
    shown.send = lambda message, *_: told.append(message)
    shown.receive(shown, {"do": "select", "nodes": ["0/forward:gelu0"], "number": 7}, [])
    assert shown.selection == ["0/forward:gelu0"]
    assert told == [{"heard": 7}]


def press(shown: Any, do: str, of: str = "", **more: Any) -> None:
    shown._handle_custom_msg({"do": do, "of": of, "value": None, "shift": False, "ctrl": False, **more}, [])


def test_the_selection_reaches_up_and_down() -> None:
    shown = view(3)
    told: list[Any] = []
    shown.send = lambda message, *_: told.append(message)
    shown.select(["0/backward:tanh1", "0/forward:mm1"])
    press(shown, "upstream")
    assert [node.partition(":")[0] for node in shown.selection] == ["0/forward"] * 11
    shown.select(["0/forward:gelu2"])
    press(shown, "downstream")
    assert shown.selection == ["0/forward:gelu2", "0/forward:add2"]
    assert told[-1] == {"pick": ["0/forward:gelu2", "0/forward:add2"]}  # the page tells it again, last


def test_tabs_are_gone_through_by_name_and_in_turn() -> None:
    shown = view(2)
    for what, of, tab in (
        ("next tab", "", "0/backward"),
        ("tab before", "", "0/forward"),
        ("tab before", "", "partitions"),
        ("next tab", "", "0/forward"),
        ("tab", "0/backward", "0/backward"),
    ):
        press(shown, what, of)
        assert shown.tab == shown.payload["tab"] == tab


def texts_in(tree: Any) -> list[str]:
    return [tree] if isinstance(tree, str) else [text for part in tree[2:] for text in texts_in(part)]


def test_overlays_are_worn_in_turn() -> None:
    def words() -> list[str]:
        return [text for part in shown.tree for text in texts_in(part)]

    shown = view(2)
    cuts = [f"mlp/{n}/0/forward" for n in range(2)]
    assert "Overlay" in words()
    shown.overlays = [Overlay("time", duration, dict(zip(cuts, (1.2345e-6, 2e-3), strict=True)))]
    assert shown.heat == {}
    press(shown, "overlay")
    assert {"Overlay: time", "time 1.23 µs", "2.00 ms"} <= set(words())
    assert [shown.heat[cut]["light"]["label"] for cut in cuts] == ["1.23 µs", "2.00 ms"]
    assert shown.heat[cuts[0]]["light"] != shown.heat[cuts[0]]["dark"]
    press(shown, "overlay")
    assert shown.heat == {}
    assert "Overlay" in words()
    press(shown, "overlay")
    shown.overlays = [Overlay("none", duration, {"x": float("inf")}), Overlay("slow", duration, {"x": 1234.567})]
    assert shown.heat == {}
    shown.tab = "0/backward"
    assert shown.payload["tab"] == "0/backward"
    press(shown, "overlay")
    press(shown, "overlay")
    assert shown.heat["x"]["light"]["label"] == "1,230 s"
    shown.overlays = []
    assert shown.heat == {}


def test_figures_can_be_read_on_their_ground() -> None:
    shown = partition_heat(Overlay("time", duration, {str(one): float(one) for one in range(60)}))
    assert all(contrast(one["text"], one["fill"]) >= 4.5 for themes in shown.values() for one in themes.values())
    assert set(partition_heat(Overlay("time", duration, {"a": 2.0}))) == {"a"}


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
    assert shown.selection == ["0/forward:gelu0", "0/backward:tanh2"]
    shown.set_session(sessions.trained(1))
    assert shown.selection == ["0/forward:gelu0"]


def test_an_empty_view_and_an_empty_session() -> None:
    empty = GraphView()
    assert empty.payload == {}
    assert empty.lit is None  # the page would look for rows to light
    assert SourceView().lit is None
    shown = GraphView(sessions.session())
    assert shown.payload["texts"] == [""]
    assert shown.tab == ""


@pytest.mark.parametrize("text", sessions.HOSTILE)
def test_hostile_sessions_are_shown(text: str) -> None:
    shown = GraphView(sessions.hostile(text))
    assert len(Read(shown.payload).boxes) == 4
    assert shown.problem == ""
    assert len(SourceView(sessions.hostile(text)).tree[0][2:]) == 2  # its style, and a function


def test_a_session_without_lines_has_a_message() -> None:
    nodes = (Node("a", Role.OP, "aten.add.Tensor"),)
    shown = SourceView(sessions.session((Graph("0/forward", GraphKind.FORWARD, 0, nodes),)))
    assert texts_in(["", {}, *shown.tree]) == ["The nodes of this session have no source lines."]


def test_what_is_picked_in_the_code_is_selected_in_the_order_it_runs() -> None:
    kernel = Kernel("kernel", KernelKind.POINTWISE, nodes=(1,), defined=(1, 1))
    session = replace(sessions.trained(12), codes=(ArtifactCode("artifact-0/forward", "code", kernels=(kernel,)),))
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
