"""The picture that the page draws from the records of a graph."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from regional_explorer.picture.layout import Box
from regional_explorer.picture.open_folds import compose
from regional_explorer.picture.page_records import PARTITIONS, Records, first_tab, graph_tabs
from regional_explorer.record.benchmark import Verdict
from regional_explorer.record.figure import Figure, Noise
from regional_explorer.record.graph import Graph, GraphKind, Node, Role
from regional_explorer.record.partition import State
from regional_explorer.record.plan import Plan
from regional_explorer.record.session import Session
from regional_explorer.style.formats import percent
from tests.shared import sessions
from tests.shared.work import calls
from tests.ui_graph.reading import EVERYTHING, NOTHING, PictureRequest, needs_node, read_picture, read_pictures

pytestmark = needs_node


def session_with_nodes(*nodes: Node, kind: GraphKind = GraphKind.FORWARD) -> Session:
    return sessions.session((Graph("0/forward", kind, 0, nodes),))


def session_with_indexing() -> Session:
    """Return a session with a Dynamo graph, where ``getitem`` also indexes tensors: results of ops and a parameter."""
    row = replace(sessions.SPEC, shape=(128, 256))
    return session_with_nodes(
        Node("x", Role.INPUT, "x", values=(sessions.SPEC,)),
        Node("w", Role.PARAMETER, "w", values=(sessions.SPEC,)),
        sessions.op("relu", "torch.relu", "x"),
        sessions.op("argmax", "argmax", "relu"),
        sessions.op("rows", "getitem", "relu", "argmax"),
        replace(sessions.op("first", "getitem", "rows"), values=(row,)),
        sessions.op("part", "getitem", "w"),
        replace(sessions.op("chunk", "chunk", "first"), values=(row, row)),
        replace(sessions.op("half", "getitem", "chunk"), values=(row,)),
        kind=GraphKind.DYNAMO,
    )


def session_with_repeats() -> Session:
    """Return a session with repeats, and with pieces of several ops and of one op."""
    base = sessions.training_session(9, state=State.FAILED)
    members = {**base.members, "norm": {"0/forward": ("norm0", "norm5", "add5"), "0/backward": ("sum3",)}}
    return replace(base, plan=Plan((*base.plan.regions, sessions.region("norm"))), members=members)


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def session_with_bad_nodes() -> Session:
    """Return a session with a cycle of nodes, and a node without a text."""
    bad = replace(sessions.op("bad", "aten.mul.Tensor", "a"), values=(Unprintable(),))
    return session_with_nodes(sessions.op("a", "aten.add.Tensor", "b"), sessions.op("b", "aten.mul.Tensor", "a"), bad)


@pytest.mark.parametrize("graph", ["0/forward", "0/backward"])
@pytest.mark.parametrize("everything", [True, False])
def test_the_page_shows_the_boxes_of_the_static_picture(graph: str, everything: bool) -> None:
    every = (
        session_with_repeats(),
        session_with_indexing(),
        session_with_bad_nodes(),
        sessions.training_session(40),
        sessions.session((sessions.layers_graph(12),)),
    )
    chosen = [session for session in every if graph in {one.id for one in session.graphs}]
    pictures = read_pictures(
        *(PictureRequest(session, graph, EVERYTHING if everything else None) for session in chosen)
    )
    for session, found in zip(chosen, pictures, strict=True):
        (section,) = compose(session, graph, everything=everything).sections
        numbers = {box.id: found.box_of(box.nodes[0]) for box in section.boxes}
        texts = zip(found.titles, found.details, found.signs, found.looks, found.regions, strict=True)
        expected_texts = sorted(zip(numbers.values(), map(box_texts, section.boxes), strict=True))
        assert [text for _, text in expected_texts] == list(texts)
        assert {(numbers[tail], numbers[head]) for tail, head in section.edges} == set(found.edges)
        expected = [frozenset(numbers[box] for box in group.boxes) for group in section.groups]
        hulls = [frozenset(box for box, at in enumerate(found.groups) if at == hull) for hull in range(len(expected))]
        assert sorted(map(sorted, hulls)) == sorted(map(sorted, expected))
        for box in section.boxes:
            at, ops = numbers[box.id], len(box.nodes)
            assert found.shares[at] == [[region, pytest.approx(share / ops)] for region, share in box.shares]
            assert found.failed[at] == ((box.failed and ops > 1) or box.look == "bad")


def box_texts(box: Box) -> tuple[object, ...]:
    return box.title, box.detail, "".join(box.marks), box.look, -1 if box.region is None else box.region


def test_nodes_reach_their_inputs_and_users() -> None:
    session = sessions.training_session(3)
    up, down = read_pictures(
        *(PictureRequest(session, "0/forward", None, [f"0/forward:{name}"]) for name in ("mm1", "gelu2"))
    )
    assert len(up.up) == 11
    assert down.down == ["gelu2", "add2"]


# ------------------------------------------------------------------------------------------------------------ the time


def test_boxes_show_their_share_of_the_time() -> None:
    session = sessions.profiled(sessions.training_session(3))
    shares = session.time_shares
    assert shares
    whole = shares.profile.whole_s or 1.0
    for graph, seconds_of in (("0/forward", shares.seconds), ("0/backward", shares.own_seconds)):
        for found in read_pictures(PictureRequest(session, graph, EVERYTHING), PictureRequest(session, graph, NOTHING)):
            for box, (seconds, share, tooltip) in enumerate(found.times):
                inside = [name for name, at in zip(found.names, found.node_boxes, strict=True) if at == box]
                expected = sum(seconds_of(f"{graph}:{name}") for name in inside)
                assert seconds == pytest.approx(expected, rel=0.005)
                assert share == percent(expected / whole)
                assert tooltip.startswith(f"{share} of the call, ")
                assert tooltip.endswith(" in the backward") == (graph == "0/backward")


def test_a_profile_of_a_too_busy_machine_is_not_painted() -> None:
    session = sessions.profiled(sessions.training_session(3))
    assert session.profile
    busy = replace(session, profile=replace(session.profile, noise=Noise(rounds=30, disturbed=21)))
    running = session.graphs[1]
    assert Records().of(session, running).folds["times"]
    assert Records().of(busy, running).folds["times"] is None


# ---------------------------------------------------------------------------------------------- from session to session


def test_boxes_follow_changes_of_other_graphs() -> None:
    """A backward is traced after its forward, and another frame once the call has inputs of another shape."""
    trained, records = sessions.training_session(2), Records()
    forward = trained.graphs[0]
    other = replace(sessions.layers_graph(1), id="1/forward", frame=1)
    for graphs in ((forward,), trained.graphs, (*trained.graphs, other)):
        session = replace(trained, graphs=graphs)
        kept, new = records.of(session, forward), Records().of(session, forward)
        assert kept.facts == new.facts
        assert kept.folds == new.folds
    assert kept.facts["title"].startswith("forward of frame 0")


# --------------------------------------------------------------------------------------------------------------- folds


def test_folds_open_and_close_independently() -> None:
    session, stack = sessions.training_session(60), "layers.1–59 × 59"
    closed = read_picture(session, "0/forward")
    repeat, piece = closed.opens[closed.titles.index(stack)], closed.around[closed.titles.index("gelu")]
    opened = read_picture(session, "0/forward", {"chosen": {repeat: True}})
    assert [title for title in closed.titles if title not in opened.titles] == [stack]
    assert len(opened.titles) == len(closed.titles) + 58
    assert opened.titles.count("layers.7") == opened.titles.count("gelu") == 1
    assert repeat in opened.around
    shut = read_picture(session, "0/forward", {"chosen": {piece: False}})
    assert "gelu" not in shut.titles
    assert piece in shut.opens


def test_modules_fold_where_no_region_is_marked() -> None:
    session = sessions.session((sessions.layers_graph(2),))
    assert read_picture(session, "0/forward", NOTHING).titles == ["x", "layers.0", "layers.1"]


# ----------------------------------------------------------------------------------------------------------- the boxes


def test_indexing_is_an_op() -> None:
    found = read_picture(session_with_indexing(), "0/forward", EVERYTHING)
    edges = {("x", "relu"), ("relu", "argmax"), ("relu", "rows"), ("argmax", "rows"), ("rows", "first")}
    assert {(found.box_of(tail), found.box_of(head)) for tail, head in edges | {("first", "chunk")}} == set(found.edges)
    assert found.signs[found.box_of("part")] == "◆"
    assert found.box_of("half") == found.box_of("chunk")
    assert len(found.titles) == 7


def test_special_nodes_are_labelled() -> None:
    found = read_picture(
        session_with_nodes(
            Node("w", Role.PARAMETER, "w"),
            sessions.op("a", "aten.mul.Tensor", "w", recompute=True),
            sessions.op("b", "aten.bernoulli.p", "a", random=True),
            sessions.op("c", "aten.sort.default", "b", carved=True),
        ),
        "0/forward",
    )
    rows = [[one for one in found.rows[found.box_of(name)] if one[0] in {"note", "reads"}] for name in "abc"]
    assert rows == [
        [["reads", "parameter w"], ["note", "recomputed in the backward"]],
        [["note", "random"]],
        [["note", "taken out of its region: runs eagerly"]],
    ]
    assert ["span", {}, "◆ reads a parameter"] in found.legend
    bad = read_picture(session_with_bad_nodes(), "0/forward")
    assert [bad.looks[bad.box_of(name)] for name in ("a", "b", "bad")] == ["op", "op", "bad"]
    assert len(bad.edges) == 3


def test_pieces_have_their_state_config_and_error() -> None:
    found = read_picture(
        sessions.training_session(2, state=State.FAILED, error="CppCompileError: no", max_autotune=True), "0/forward"
    )
    piece = found.pieces[0]
    assert piece["state"] == "failed"
    assert piece["facts"] == [
        ["region", "mlp[0] · 3 ops · failed"],
        ["requested", "max_autotune=True"],
        ["error", "CppCompileError: no"],
    ]
    assert found.legend[0][-1] == ["span", {}, "failed"]


@pytest.mark.parametrize(
    ("verdict", "speedup", "shown"),
    [
        (Verdict.FASTER, Figure(2.0, 1.9, 2.1), "2.00×"),
        (Verdict.INCONCLUSIVE, Figure(2.0, 0.9, 3.0), "2.00× inconclusive"),
        (Verdict.BUSY, Figure(2.0, 0.9, 3.0), "2.00× machine busy"),
        (Verdict.BUSY, Figure(2.0, why="the machine was too busy"), ""),
    ],
)
def test_the_title_of_a_region_has_a_speedup_with_interval(verdict: Verdict, speedup: Figure, shown: str) -> None:
    base = sessions.training_session(3)
    timings = tuple(
        sessions.partition_timing(part.id, 1.0, 0.5, speedup=speedup, verdict=verdict) for part in base.partitions
    )
    found = read_picture(replace(base, partition_timings=timings), "0/forward", EVERYTHING)
    assert {piece["speedup"] for piece in found.pieces} == {shown}


# ---------------------------------------------------------------------------------------------------------------- tabs


def test_the_tab_of_partitions_has_a_box_for_each() -> None:
    session = sessions.training_session(30)
    found, *_ = read_pictures(
        *(PictureRequest(session, PARTITIONS, opening) for opening in (None, EVERYTHING, NOTHING))
    )
    assert found.looks.count("piece") == len(session.partitions)
    second = found.box_of("mm1")
    assert (found.titles[second], found.details[second]) == ("mlp[1] · 3 ops", "layers.1.mlp · equals mlp[0]")
    assert [graph["id"] for graph in found.graphs] == ["0/forward", "0/backward"]


def test_graph_tabs_list_the_running_graphs_and_the_partitions() -> None:
    session, empty = sessions.training_session(2), sessions.session()
    assert [(tab["id"], tab["title"], tab["graphs"]) for tab in graph_tabs(session)] == [
        ("0/forward", "forward", [0]),
        ("0/backward", "backward", [1]),
        (PARTITIONS, PARTITIONS, [0, 1]),
    ]
    assert [first_tab(one) for one in (session, empty)] == ["0/forward", ""]
    assert [tab["id"] for tab in graph_tabs(sessions.session((sessions.layers_graph(1),)))] == ["0/forward"]
    for found in read_pictures(*(PictureRequest(one, tab) for one in (session, empty) for tab in ("nowhere", ""))):
        assert found.titles == []


def test_hostile_names_are_sent_clean() -> None:
    every = map(sessions.hostile_session, sessions.HOSTILE)
    hostile = [(session, tab) for session in every for tab in graph_tabs(session)]
    pictures = read_pictures(*(PictureRequest(session, tab["id"], EVERYTHING) for session, tab in hostile))
    for (_, tab), found in zip(hostile, pictures, strict=True):
        json.dumps([tab, found.state], ensure_ascii=False).encode()
        pairs = [*found.facts, *(pair for box in found.rows for pair in box)]
        shown = [*found.titles]
        for piece in found.pieces:
            pairs += piece["facts"]
            shown += [piece["state"], *piece["words"], piece["speedup"]]
        shown += [text for pair in pairs for text in pair]
        assert all(len(one) <= 240 and one.isprintable() for one in shown)


# ------------------------------------------------------------------------------------------------------------ how much


def test_payloads_are_small_and_grow_linearly() -> None:
    small, deep, twice = read_pictures(
        *(PictureRequest(sessions.training_session(count), "0/forward") for count in (3, 50, 100))
    )
    assert small.sent < 11_000
    assert twice.sent < 2.5 * deep.sent
    huge = read_picture(sessions.huge_session(10_000), "0/inference", EVERYTHING)
    assert len(huge.titles) == 10_001
    assert huge.sent < 1_500_000


def test_the_work_of_a_payload_grows_linearly() -> None:
    def count_calls(number: int) -> int:
        session = sessions.huge_session(number)
        graph = Records().of(session, session.graphs[0])
        return calls(lambda: (graph.facts, graph.folds))

    count_calls(10)  # what is done once per process
    assert count_calls(4000) < 5 * count_calls(1000)
