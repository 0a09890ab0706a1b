from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from regional_explorer.picture.open_folds import compose
from regional_explorer.picture.page_records import PARTITIONS, Payload, Records, first_tab, tabs
from regional_explorer.picture.scene import Box
from regional_explorer.record.benchmark import Verdict
from regional_explorer.record.figure import Figure, Noise
from regional_explorer.record.graph import Graph, GraphKind, Node, Role
from regional_explorer.record.partition import State
from regional_explorer.record.plan import Plan
from regional_explorer.record.session import Session
from regional_explorer.record.time_shares import TimeShares
from regional_explorer.style.formats import percent
from tests.shared import sessions
from tests.shared.work import calls
from tests.ui_graph.reading import EVERYTHING, NOTHING, needs_node, read

pytestmark = needs_node


@pytest.mark.parametrize("opening", [None, EVERYTHING, NOTHING])
@pytest.mark.parametrize("tab", ["0/forward", "0/backward", PARTITIONS])
def test_every_number_points_at_something(tab: str, opening: dict[str, bool] | None) -> None:
    found = read(sessions.trained(5), tab, opening)
    boxes = len(found.titles)
    assert len(found.groups) == boxes == sum(graph["boxes"] for graph in found.graphs)
    assert set(found.groups) - {-1} == set(range(len(found.group_pieces)))
    assert all(end < boxes for edge in found.edges for end in edge)
    assert all(box < boxes for box in found.node_boxes)
    assert all(-1 <= piece < len(found.pieces) for piece in found.node_pieces)
    assert set(found.node_boxes) == set(range(boxes))


def test_groups_hold_the_boxes_of_their_piece() -> None:
    found = read(sessions.trained(3), "0/forward")
    assert len(found.group_pieces) > 1
    for group, piece in enumerate(found.group_pieces):
        inside = {box for box, owner in zip(found.node_boxes, found.node_pieces, strict=True) if owner == piece}
        assert len(inside) == 3
        assert inside == {box for box, owner in enumerate(found.groups) if owner == group}


def indexed() -> Session:
    """Return a session with a graph of Dynamo's, where ``getitem`` also indexes tensors, of ops and a parameter."""
    row = replace(sessions.SPEC, shape=(128, 256))
    nodes = (
        Node("x", Role.INPUT, "x", values=(sessions.SPEC,)),
        Node("w", Role.PARAMETER, "w", values=(sessions.SPEC,)),
        sessions.op("relu", "torch.relu", "x"),
        sessions.op("argmax", "argmax", "relu"),
        sessions.op("rows", "getitem", "relu", "argmax"),
        replace(sessions.op("first", "getitem", "rows"), values=(row,)),
        sessions.op("part", "getitem", "w"),
        replace(sessions.op("chunk", "chunk", "first"), values=(row, row)),
        replace(sessions.op("half", "getitem", "chunk"), values=(row,)),
    )
    return sessions.session((Graph("0/forward", GraphKind.DYNAMO, 0, nodes),))


def nested() -> Session:
    """Return a session with repeats, and with pieces of regions of several ops and of one."""
    base = sessions.trained(9, state=State.FAILED)
    members = {**base.members, "norm": {"0/forward": ("norm0", "norm5", "add5"), "0/backward": ("sum3",)}}
    return replace(base, plan=Plan((*base.plan.regions, sessions.region("norm"))), members=members)


@pytest.mark.parametrize("graph", ["0/forward", "0/backward"])
@pytest.mark.parametrize("everything", [True, False])
def test_the_page_shows_the_boxes_of_the_static_picture(graph: str, everything: bool) -> None:
    for session in (nested(), indexed(), sessions.trained(40), sessions.session((sessions.layers(12),))):
        if graph not in {one.id for one in session.graphs}:
            continue
        (section,) = compose(session, graph, everything=everything).sections
        found = read(session, graph, EVERYTHING if everything else None)
        numbers = {box.id: found.box_of(box.nodes[0]) for box in section.boxes}
        told = zip(found.titles, found.details, found.signs, found.looks, found.regions, strict=True)
        assert [one for _, one in sorted(zip(numbers.values(), map(told_of, section.boxes), strict=True))] == list(told)
        assert {(numbers[tail], numbers[head]) for tail, head in section.edges} == set(found.edges)
        held = [frozenset(numbers[box] for box in group.boxes) for group in section.groups]
        hulls = [frozenset(box for box, at in enumerate(found.groups) if at == hull) for hull in range(len(held))]
        assert sorted(map(sorted, hulls)) == sorted(map(sorted, held))
        for box in section.boxes:
            at, ops = numbers[box.id], len(box.nodes)
            assert found.shares[at] == [[region, pytest.approx(share / ops)] for region, share in box.shares]
            assert found.failed[at] == (box.failed and ops > 1)


def told_of(box: Box) -> tuple[object, ...]:
    return box.title, box.detail, "".join(box.marks), box.look, -1 if box.region is None else box.region


def test_the_selection_reaches_up_and_down() -> None:
    session = sessions.trained(3)
    assert len(read(session, "0/forward", None, "0/forward:mm1").up) == 11
    assert read(session, "0/forward", None, "0/forward:gelu2").down == ["gelu2", "add2"]


def test_the_records_that_stay_alike_are_the_same_objects() -> None:
    session, records = sessions.trained(3), Records()

    def made(session: Session) -> list[Payload]:
        known = [records.of(session, graph) for graph in session.graphs]
        return [*(one.facts for one in known), *(one.folds for one in known)]

    first = made(session)
    assert all(one is other for one, other in zip(first, made(sessions.measured(session)), strict=True))
    stale = replace(session, partitions=tuple(replace(one, state=State.STALE) for one in session.partitions))
    known = records.of(stale, stale.graphs[0])
    assert known.made[0] is first[0]
    assert known.made[1] == {}
    assert known.folds != first[2]


def test_boxes_tell_their_share_of_the_time_in_the_direction_of_their_graph() -> None:
    session = sessions.profiled(sessions.trained(3))
    shares = TimeShares.of(session)
    assert shares
    whole = shares.profile.whole_s or 1.0
    for graph, seconds_of in (("0/forward", shares.seconds), ("0/backward", shares.own_seconds)):
        for opening in (EVERYTHING, NOTHING):
            found = read(session, graph, opening)
            for box, (seconds, share, tooltip) in enumerate(found.times):
                inside = [name for name, at in zip(found.names, found.node_boxes, strict=True) if at == box]
                expected = sum(seconds_of(f"{graph}:{name}") for name in inside)
                assert seconds == pytest.approx(expected, rel=0.005)
                assert share == percent(expected / whole)
                assert tooltip.startswith(f"{share} of the call, ")
                assert tooltip.endswith(" in the backward") == (graph == "0/backward")


def test_a_profile_of_a_machine_too_busy_to_tell_is_not_painted() -> None:
    session = sessions.profiled(sessions.trained(3))
    assert session.profile
    busy = replace(session, profile=replace(session.profile, noise=Noise(rounds=30, disturbed=21)))
    running = session.graphs[1]
    assert Records().of(session, running).folds["times"]
    assert Records().of(busy, running).folds["times"] is None


def test_a_small_graph_is_open_from_the_start() -> None:
    found = read(sessions.trained(3), "0/forward")
    assert found.titles.count("gelu") == 3
    assert not any(found.opens)


def test_a_deep_graph_shows_one_layer_and_how_often_it_comes() -> None:
    found = read(sessions.trained(40), "0/forward")
    assert "layers.1–39 × 39" in found.titles
    assert found.titles.count("gelu") == 1
    assert len(found.titles) < 20


def test_a_fold_opens_and_closes() -> None:
    session = sessions.trained(40)
    closed = read(session, "0/forward")
    repeat = closed.opens[closed.titles.index("layers.1–39 × 39")]
    opened = read(session, "0/forward", {"chosen": {repeat: True}})
    assert "layers.1–39 × 39" not in opened.titles
    assert opened.titles.count("layers.7") == 1
    assert repeat in opened.around
    piece = closed.around[closed.titles.index("gelu")]
    shut = read(session, "0/forward", {"chosen": {piece: False}})
    assert "gelu" not in shut.titles
    assert piece in shut.opens


def test_a_fold_opened_by_hand_closes_no_other_one() -> None:
    session = sessions.trained(60)
    before = read(session, "0/forward")
    repeat = before.opens[before.titles.index("layers.1–59 × 59")]
    after = read(session, "0/forward", {"chosen": {repeat: True}})
    assert [title for title in before.titles if title not in after.titles] == ["layers.1–59 × 59"]
    assert after.titles.count("gelu") == 1
    assert len(after.titles) == len(before.titles) + 58


def test_modules_fold_where_no_region_is_marked() -> None:
    session = sessions.session((sessions.layers(2),))
    found = read(session, "0/forward", NOTHING)
    assert found.titles == ["x", "layers.0", "layers.1"]


def test_nothing_opened_is_less_and_everything_opened_is_all() -> None:
    session = sessions.trained(8)
    few, some, everything = (len(read(session, "0/forward", opening).titles) for opening in (NOTHING, None, EVERYTHING))
    assert few < some <= everything
    drawn = [node for node in session.graphs[0].ops if node.op != "getitem"]
    assert everything == len(drawn) + 1  # and the input


def test_what_picks_a_result_out_lies_with_its_producer() -> None:
    found = read(sessions.trained(1), "0/forward")
    assert found.box_of("item0") == found.box_of("norm0")


def test_what_indexes_a_tensor_is_an_op_like_others() -> None:
    found = read(indexed(), "0/forward", EVERYTHING)
    edges = {("x", "relu"), ("relu", "argmax"), ("relu", "rows"), ("argmax", "rows"), ("rows", "first")}
    assert {(found.box_of(tail), found.box_of(head)) for tail, head in edges | {("first", "chunk")}} == set(found.edges)
    assert found.signs[found.box_of("part")] == "◆"
    assert found.box_of("half") == found.box_of("chunk")
    assert len(found.titles) == 7


def test_parameters_and_outputs_are_signs_not_boxes() -> None:
    found = read(sessions.trained(2), "0/forward", EVERYTHING)
    assert not {"w0", "output"} & set(found.names)
    assert found.signs[found.box_of("t0")] == "◆"
    assert ["span", {}, "◆ reads a parameter"] in found.legend
    assert ["reads", "parameter w0"] in found.rows[found.box_of("t0")]


def test_what_is_special_about_a_node_is_told() -> None:
    nodes = (
        sessions.op("a", "aten.mul.Tensor", recompute=True),
        sessions.op("b", "aten.bernoulli.p", "a", random=True),
        sessions.op("c", "aten.sort.default", "b", carved=True),
    )
    session = sessions.session((Graph("0/forward", GraphKind.FORWARD, 0, nodes),))
    found = read(session, "0/forward")
    notes = [[text for word, text in found.rows[found.box_of(name)] if word == "note"] for name in "abc"]
    assert notes == [["recomputed in the backward"], ["random"], ["taken out of its region: runs eagerly"]]


def test_pieces_tell_state_config_and_error() -> None:
    session = sessions.trained(2, state=State.FAILED, error="CppCompileError: no", max_autotune=True)
    found = read(session, "0/forward")
    piece = found.pieces[0]
    assert piece["state"] == "failed"
    assert piece["facts"] == [
        ["region", "mlp[0] · 3 ops · failed"],
        ["requested", "max_autotune=True"],
        ["error", "CppCompileError: no"],
    ]
    assert found.legend[0][-1] == ["span", {}, "failed"]


def test_the_tab_of_partitions_has_a_box_for_each() -> None:
    session = sessions.trained(30)
    found = read(session, PARTITIONS)
    assert found.looks.count("piece") == len(session.partitions)
    second = found.box_of("mm1")
    assert (found.titles[second], found.details[second]) == ("mlp[1] · 3 ops", "layers.1.mlp · equals mlp[0]")
    assert [graph["id"] for graph in found.graphs] == ["0/forward", "0/backward"]


def test_tabs() -> None:
    session = sessions.trained(2)
    assert [(tab["id"], tab["title"], tab["graphs"]) for tab in tabs(session)] == [
        ("0/forward", "forward", [0]),
        ("0/backward", "backward", [1]),
        (PARTITIONS, PARTITIONS, [0, 1]),
    ]
    assert first_tab(session) == "0/forward"
    assert [tab["id"] for tab in tabs(sessions.session((sessions.layers(1),)))] == ["0/forward"]


@pytest.mark.parametrize("tab", ["nowhere", ""])
def test_an_unknown_tab_and_an_empty_session_show_nothing(tab: str) -> None:
    for session in (sessions.trained(2), sessions.session()):
        assert read(session, tab).titles == []
    assert first_tab(sessions.session()) == ""


@pytest.mark.parametrize("text", sessions.HOSTILE)
def test_hostile_names_are_sent_clean(text: str) -> None:
    session = sessions.hostile(text)
    for tab in tabs(session):
        found = read(session, tab["id"], EVERYTHING)
        json.dumps([tab, found.state], ensure_ascii=False).encode()
        pairs = [*found.facts, *(pair for box in found.rows for pair in box)]
        shown = [*found.titles]
        for piece in found.pieces:
            pairs += piece["facts"]
            shown += [piece["state"], *piece["words"], piece["speedup"]]
        shown += [text for pair in pairs for text in pair]
        assert all(len(one) <= 240 and one.isprintable() for one in shown)


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
    base = sessions.trained(3)
    fields = {"speedup": speedup, "verdict": verdict}
    timings = tuple(sessions.alone(part.id, 1.0, 0.5, **fields) for part in base.partitions)
    found = read(replace(base, partition_timings=timings), "0/forward", EVERYTHING)
    assert {piece["speedup"] for piece in found.pieces} == {shown}


def test_a_bad_node_is_drawn_as_a_bad_node() -> None:
    class Unspeakable:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    bad = replace(sessions.op("bad", "aten.mul.Tensor", "a"), values=(Unspeakable(),))
    nodes = (sessions.op("a", "aten.add.Tensor"), bad, sessions.op("c", "aten.sub.Tensor", "bad"))
    found = read(sessions.session((Graph("0/forward", GraphKind.FORWARD, 0, nodes),)), "0/forward")
    assert found.looks[found.box_of("bad")] == "bad"
    assert found.titles[found.box_of("c")] == "sub"


def test_ten_thousand_nodes_without_modules() -> None:
    found = read(sessions.huge(10_000), "0/inference", EVERYTHING)
    assert len(found.titles) == 10_001
    assert found.sent < 1_500_000


def test_the_work_of_a_payload_grows_with_its_nodes_not_faster() -> None:
    def work(number: int) -> int:
        session = sessions.huge(number)
        graph = Records().of(session, session.graphs[0])
        return calls(lambda: (graph.facts, graph.folds))

    work(10)  # what is done once per process
    assert work(4000) < 5 * work(1000)


def test_a_small_payload_is_small() -> None:
    assert read(sessions.trained(3), "0/forward").sent < 11_000


def test_a_deep_payload_grows_with_its_nodes_not_faster() -> None:
    def size(layers_count: int) -> int:
        return read(sessions.trained(layers_count), "0/forward").sent

    assert size(200) < 2.5 * size(100)


def test_a_circle_of_nodes_does_not_stop_it() -> None:
    nodes = sessions.op("a", "aten.add.Tensor", "b"), sessions.op("b", "aten.mul.Tensor", "a")
    found = read(sessions.session((Graph("g", GraphKind.FORWARD, 0, nodes),)), "g")
    assert len(found.titles) == 2
    assert len(found.edges) == 2
