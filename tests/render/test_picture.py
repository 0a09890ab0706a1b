"""Pictures: their contents, folds and layout."""

from __future__ import annotations

import dataclasses
import re
import sys

import pytest
from msgspec.structs import replace

from regional_explorer.errors import SessionError
from regional_explorer.picture.folds import Stretch, pieces, stretches
from regional_explorer.picture.layout import (
    HEADING_PT,
    Badge,
    Box,
    BoxLook,
    PlacedScene,
    Scene,
    dot_lines,
    graphviz,
    layers,
    layout_command,
    place,
    quoted,
    text_width,
)
from regional_explorer.picture.open_folds import compose, shown_graphs
from regional_explorer.picture.svg import digraph, draw, session_svg
from regional_explorer.record.graph import Graph, GraphKind, Node, Role
from regional_explorer.record.partition import State
from regional_explorer.record.session import Session
from tests.shared import sessions
from tests.shared.processes import python
from tests.shared.sessions import parse_svg
from tests.shared.work import calls

SVG = "{http://www.w3.org/2000/svg}"
SLOW = (sys.executable, "-c", "import time; time.sleep(60); print('laid out')")

needs_graphviz = pytest.mark.skipif(layout_command("svg") is None, reason="no Graphviz")


def box_of(scene: Scene, node: str) -> Box:
    return next(box for box in scene.boxes if node in box.nodes)


def texts(svg: str) -> set[str]:
    return {"".join(text.itertext()) for text in parse_svg(svg).iter(f"{SVG}text")}


def test_every_op_is_in_exactly_one_box() -> None:
    session = sessions.training_session(6)
    ops = sorted(node.name for graph in session.graphs for node in graph.ops if not node.name.startswith("item"))
    for everything in (False, True):
        scene = compose(session, everything=everything)
        assert sorted(name for box in scene.boxes if box.look is not BoxLook.INPUT for name in box.nodes) == ops


def test_an_input_with_many_users_is_a_badge() -> None:
    few = compose(sessions.training_session())
    assert box_of(few, "x").look is BoxLook.INPUT
    ops = tuple(sessions.op(f"op{n}", "aten.add.Tensor", "x") for n in range(9))
    many = compose(sessions.session((Graph("0", GraphKind.INFERENCE, 0, (Node("x", Role.INPUT, "x"), *ops)),)))
    assert {box.marks for box in many.boxes} == {(Badge.INPUT,)}


def test_connected_members_are_groups_without_partitions() -> None:
    base = sessions.training_session(3)
    scene = compose(replace(base, partitions=()))
    assert [group.title for group in scene.sections[0].groups] == [f"mlp part {n} · 3 ops" for n in (1, 2, 3)]


def test_members_outside_partitions_are_shown_as_left_out() -> None:
    base = sessions.training_session(1)
    short = tuple(replace(cut, nodes=cut.nodes[1:]) for cut in base.partitions)
    found = pieces(replace(base, partitions=short), base.graphs[0])
    assert [(piece.nodes, piece.note) for piece in found] == [
        (("t0",), "left out of the partition"),
        (("mm0", "gelu0"), ""),
    ]


def test_equal_layers_fold_and_the_first_one_shows_its_region() -> None:
    session = sessions.training_session(40)
    scene = compose(session)
    stack = box_of(scene, "mm20")
    assert (stack.look, stack.title, stack.detail) == (BoxLook.STACK, "layers.1–39 × 39", "Layer · 234 ops · A")
    assert stack.shares == ((0, 117),)
    assert box_of(scene, "mm0").look is BoxLook.OP


def test_a_failed_piece_stays_visible_among_equal_layers() -> None:
    base = sessions.training_session(40)
    bad = tuple(replace(cut, state=State.FAILED) if cut.instance == 20 else cut for cut in base.partitions)
    scene = compose(replace(base, partitions=bad))
    assert box_of(scene, "mm20").failed
    assert [box_of(scene, name).title for name in ("mm19", "mm30")] == ["layers.1–19 × 19", "layers.21–39 × 19"]
    assert not box_of(scene, "mm30").failed


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ("abcdef", []),
        ("aab", []),
        ("aaaaab", [Stretch(0, 1, 5)]),
        ("xabababababy", [Stretch(1, 2, 5)]),
        ("abcabcabcabcabc", [Stretch(0, 3, 5)]),
    ],
)
def test_repeated_patterns_are_found_as_stretches(keys: str, found: list[Stretch]) -> None:
    assert stretches(keys) == found


def test_bodies_and_the_dynamo_graph_are_drawn_on_request_only() -> None:
    base = sessions.training_session(1)
    dynamo = replace(base.graphs[0], id="0/dynamo", kind=GraphKind.DYNAMO)
    body = replace(base.graphs[0], id="0/forward/body", parent=("0/forward", "mm0"))
    session = replace(base, graphs=(dynamo, *base.graphs, body))
    assert [graph.id for graph in shown_graphs(session)] == ["0/forward", "0/backward"]
    assert [graph.id for graph in shown_graphs(session, "0/forward/body")] == ["0/forward/body"]
    assert [graph.id for graph in shown_graphs(replace(session, graphs=(dynamo,)))] == ["0/dynamo"]
    with pytest.raises(SessionError):
        compose(session, "nonsense")


def test_only_a_bad_node_is_drawn_as_bad() -> None:
    base = sessions.training_session(1)
    nodes = tuple(replace(node, values=None) if node.name == "gelu0" else node for node in base.graphs[0].nodes)
    scene = compose(replace(base, graphs=(replace(base.graphs[0], nodes=nodes),)))
    assert box_of(scene, "gelu0").look is BoxLook.BAD
    assert "cannot be drawn" in box_of(scene, "gelu0").tooltip
    assert box_of(scene, "mm0").look is BoxLook.OP


def test_dot_for_the_layout_has_no_legend() -> None:
    scene, entry = compose(sessions.training_session(1)), "mlp · max_autotune"
    assert [entry in "\n".join(dot_lines(scene, legend=legend)) for legend in (True, False)] == [True, False]


def test_quoted_keeps_backslashes_quotes_and_entities_literal() -> None:
    assert quoted('a\\N"&lt;\nb') == '"a\\\\N\\"&amp;lt;\\nb"'


def test_svg_loads_nothing_and_has_no_ids() -> None:
    svg = session_svg(sessions.measured())
    assert "http" not in svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"url\(|@import|href|\bid=|javascript|<!|<\?", svg)


def test_a_failed_region_is_drawn_as_failed() -> None:
    session = sessions.training_session(1, state=State.FAILED, error="CppCompileError: boom")
    svg = session_svg(session)
    assert {"mlp · 3 ops · failed", "mlp · max_autotune=True · failed"} <= texts(svg)
    groups = [element.attrib["class"] for element in parse_svg(svg).iter(f"{SVG}g")]
    assert "c f r0 x" in groups
    assert "CppCompileError: boom" in svg
    assert Badge.RECOMPUTE in compose(session).marks
    assert Badge.RANDOM not in compose(session).marks


def test_the_picture_of_an_empty_session_is_a_message() -> None:
    assert texts(session_svg(sessions.session())) == {"Nothing to draw: the graph has no op."}


def test_a_picture_of_a_training_step_stays_small() -> None:
    assert len(session_svg(sessions.training_session(60)).encode()) < 60_000


@needs_graphviz
def test_graphviz_places_all_boxes_inside_their_groups() -> None:
    scene = compose(sessions.training_session(3))
    placed = place(scene)
    assert set(placed.boxes) == {box.id for box in scene.boxes}
    assert len(placed.curves) == sum(len(section.edges) for section in scene.sections)
    for section in scene.sections:
        for group in section.groups:
            outer = placed.groups[group.id]
            for inner in (placed.boxes[name] for name in group.boxes):
                assert outer.x <= inner.x
                assert inner.x + inner.width <= outer.x + outer.width
                assert outer.y <= inner.y
                assert inner.y + inner.height <= outer.y + outer.height


@needs_graphviz
def test_layout_needs_no_dot_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygraphviz")
    monkeypatch.setenv("PATH", "")
    assert b"<svg" in (graphviz("digraph { without_path -> dot }", "svg") or b"")


def test_layouts_that_fail_or_take_too_long_are_dropped() -> None:
    assert graphviz("digraph { this is -> [ not dot", "svg") is None
    assert graphviz("digraph { slow }", "svg", time_limit_s=0.2, command=SLOW) is None


@pytest.mark.parametrize("output", [None, b"not json", b"{}", b'{"bb": "0,0,1"}'])
def test_a_picture_is_laid_out_without_graphviz(output: bytes | None) -> None:
    scene = compose(sessions.training_session(3))
    svg = draw(scene, place(scene, lay_out=lambda *_args, **_kwargs: output))
    assert {"mlp[0] · 3 ops", "gelu", "native_layer_norm", "forward · 18 ops"} <= texts(svg)


def test_rows_put_boxes_below_their_inputs() -> None:
    scene = compose(sessions.training_session(5), everything=True)
    placed = layers(scene)
    for section in scene.sections:
        for tail, head in section.edges:
            assert placed.boxes[tail].y + placed.boxes[tail].height <= placed.boxes[head].y
    rects = list(placed.boxes.values())
    for n, one in enumerate(rects):
        for other in rects[:n]:
            beside = one.x + one.width <= other.x or other.x + other.width <= one.x
            assert beside or one.y + one.height <= other.y or other.y + other.height <= one.y


def test_the_titles_of_graphs_have_room_beside_each_other() -> None:
    scene = compose(sessions.training_session(1))
    title = "forward of a frame with a name much longer than its two boxes are wide"
    titled = dataclasses.replace(scene, sections=tuple(dataclasses.replace(one, title=title) for one in scene.sections))
    placed = layers(titled)
    starts = [x for x, _ in placed.titles.values()]
    assert len(starts) == 2
    for start, end in zip(starts, [*starts[1:], placed.width], strict=True):
        assert end - start > text_width(title, HEADING_PT)


def test_thousands_of_ops_are_summarized_or_drawn_one_by_one() -> None:
    session = sessions.huge_session(3_001)
    short = session_svg(session)
    assert len(short) < 60_000
    assert "add, mul, mul × 1000" in texts(short)
    scene = compose(session, everything=True)
    placed = place(scene, lay_out=lambda *_args, **_kwargs: None)
    assert len(placed.boxes) == draw(scene, placed).count("<rect") == 3_002


@pytest.mark.parametrize("detail", ["short", "ops"])
def test_the_work_of_a_picture_grows_linearly(detail: str) -> None:
    def count_calls(number: int) -> int:
        session = sessions.huge_session(number)
        if detail == "short":
            return calls(lambda: session_svg(session))
        scene = compose(session, everything=True)
        return calls(lambda: draw(scene, place(scene, lay_out=lambda *_args, **_kwargs: None)))

    count_calls(10)  # what is done once per process
    assert count_calls(4000) < 5 * count_calls(1000)


def test_regions_are_below_their_inputs_in_any_order_of_ops() -> None:
    nodes = (
        Node("x", Role.INPUT, "x", values=(sessions.SPEC,)),
        Node("w", Role.PARAMETER, "w"),
        sessions.op("t", "aten.t.default", "w"),  # runs first, and belongs to the region
        sessions.op("add", "aten.add.Tensor", "x"),
        sessions.op("mm", "aten.mm.default", "add", "t"),
    )
    graph = Graph("0", GraphKind.INFERENCE, 0, nodes)
    session = sessions.session((graph,), (sessions.region("r"),), {"r": {"0": ("t", "mm")}})
    scene = compose(session, everything=True)
    placed = layers(scene)
    (hull,) = placed.groups.values()
    x, add = (placed.boxes[box_of(scene, name).id] for name in ("x", "add"))
    assert x.y + x.height <= add.y
    assert add.y + add.height <= hull.y


def test_a_cycle_of_edges_does_not_stop_the_layout() -> None:
    a, b = sessions.op("a", "aten.mul.Tensor", "b"), sessions.op("b", "aten.mul.Tensor", "a")
    session: Session = sessions.session((Graph("0", GraphKind.INFERENCE, 0, (a, b)),))
    placed: PlacedScene = layers(compose(session))
    assert len(placed.boxes) == 2


# -------------------------------------------------------------------- a Digraph that shows itself without an executable


def test_picture_needs_no_dot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    made = digraph(sessions.training_session(2))
    bundle = made._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert "mlp[0] · 3 ops" in bundle["text/html"]
    assert set(made._repr_mimebundle_(include=["image/svg+xml"])) == {"image/svg+xml"}
    assert set(made._repr_mimebundle_(exclude=["text/html"])) == {"text/plain"}


@needs_graphviz
def test_the_users_own_dot_statements_are_drawn() -> None:
    made = digraph(sessions.training_session(1))
    made.node("mine", label="added by hand")
    svg = made._repr_svg_()
    assert svg is not None
    assert svg.startswith("<svg")
    assert "added by hand" in "".join(parse_svg(svg).itertext())


def test_the_showing_process_never_loads_pygraphviz() -> None:
    python("""
import sys
from regional_explorer.picture.svg import digraph
from tests.shared import sessions

digraph(sessions.training_session(1))._repr_mimebundle_()
assert "pygraphviz" not in sys.modules
""")
