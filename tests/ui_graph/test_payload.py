from __future__ import annotations

import json
from dataclasses import replace

import pytest

from regional_explorer.picture.compose import Detail, Opening
from regional_explorer.picture.records import PARTITIONS, first_tab, picture, tabs
from regional_explorer.picture.scene import Entry
from regional_explorer.record.graph import Graph, GraphKind, Node, Role
from regional_explorer.record.partition import State
from regional_explorer.record.session import Session
from regional_explorer.record.timing import NumericsVerdict, PartitionTiming, Phase, Verdict
from tests.shared import sessions
from tests.shared.work import calls
from tests.ui_graph.reading import read, sent

EVERYTHING = Opening(Detail.OPS)
NOTHING = Opening(Detail.NOTHING)


@pytest.mark.parametrize("opening", [None, EVERYTHING, NOTHING])
@pytest.mark.parametrize("tab", ["0/forward", "0/backward", PARTITIONS])
def test_every_number_points_at_something(tab: str, opening: Opening | None) -> None:
    found = read(sessions.trained(5), tab, opening)
    boxes = len(found.boxes)
    assert len(found.groups) == boxes == sum(graph["boxes"] for graph in found.payload["graphs"])
    assert set(found.groups) - {-1} == set(range(len(found.group_pieces)))
    assert all(end < boxes for edge in found.edges for end in edge)
    assert all(box < boxes for box in found.node_boxes)
    assert all(-1 <= piece < len(found.payload["pieces"]) for piece in found.node_pieces)
    assert set(found.node_boxes) == set(range(boxes))


def test_groups_hold_the_boxes_of_their_piece() -> None:
    found = read(sessions.trained(3), "0/forward")
    for group, piece in enumerate(found.group_pieces):
        inside = {box for box, owner in zip(found.node_boxes, found.node_pieces, strict=True) if owner == piece}
        assert len(inside) == 3
        assert inside == {box for box, owner in enumerate(found.groups) if owner == group}


def test_a_small_graph_is_open_from_the_start() -> None:
    found = read(sessions.trained(3), "0/forward")
    assert found.titles.count("gelu") == 3
    assert not any(found.opens)


def test_a_deep_graph_shows_one_layer_and_how_often_it_comes() -> None:
    found = read(sessions.trained(40), "0/forward")
    assert "layers.1–39 × 39" in found.titles
    assert found.titles.count("gelu") == 1
    assert len(found.boxes) < 20


def test_a_fold_opens_and_closes() -> None:
    session = sessions.trained(40)
    closed = read(session, "0/forward")
    repeat = closed.opens[closed.titles.index("layers.1–39 × 39")]
    opened = read(session, "0/forward", Opening(chosen={repeat: True}))
    assert "layers.1–39 × 39" not in opened.titles
    assert opened.titles.count("layers.7") == 1
    assert repeat in opened.around
    piece = closed.around[closed.titles.index("gelu")]
    shut = read(session, "0/forward", Opening(chosen={piece: False}))
    assert "gelu" not in shut.titles
    assert piece in shut.opens


def test_a_fold_opened_by_hand_closes_no_other_one() -> None:
    session = sessions.trained(60)
    before = read(session, "0/forward")
    repeat = before.opens[before.titles.index("layers.1–59 × 59")]
    after = read(session, "0/forward", Opening(chosen={repeat: True}))
    assert [title for title in before.titles if title not in after.titles] == ["layers.1–59 × 59"]
    assert after.titles.count("gelu") == 1
    assert len(after.boxes) == len(before.boxes) + 58


def test_modules_fold_where_no_region_is_marked() -> None:
    session = sessions.session((sessions.layers(2),))
    found = read(session, "0/forward", NOTHING)
    assert {"layers.0", "layers.1"} & {title.split(" ")[0] for title in found.titles} or len(found.boxes) < 8
    assert len(found.boxes) < len(session.graphs[0].ops)


def test_nothing_opened_is_less_and_everything_opened_is_all() -> None:
    session = sessions.trained(8)
    few, some, everything = (len(read(session, "0/forward", opening).boxes) for opening in (NOTHING, None, EVERYTHING))
    assert few < some <= everything
    drawn = [node for node in session.graphs[0].ops if node.op != "getitem"]
    assert everything == len(drawn) + 1  # and the input


def test_what_picks_a_result_out_lies_with_its_producer() -> None:
    found = read(sessions.trained(1), "0/forward")
    assert found.box_of("item0") == found.box_of("norm0")


def test_parameters_and_outputs_are_signs_not_boxes() -> None:
    found = read(sessions.trained(2), "0/forward", EVERYTHING)
    assert not {"w0", "output"} & set(found.names)
    assert found.signs[found.box_of("t0")] == "◆"
    assert "◆ reads a parameter" in picture(sessions.trained(2), "0/forward", EVERYTHING).legend
    assert ("reads", "parameter w0") in found.rows[found.box_of("t0")]


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
    piece = found.payload["pieces"][0]
    assert piece["state"] == "failed"
    assert piece["facts"] == [
        ["region", "mlp[0] · 3 ops · failed"],
        ["requested", "max_autotune=True"],
        ["error", "CppCompileError: no"],
    ]
    chip = picture(session, "0/forward").legend[0]
    assert isinstance(chip, Entry)
    assert chip.state == "failed"


def test_the_tab_of_partitions_has_a_box_for_each() -> None:
    session = sessions.trained(30)
    found = read(session, PARTITIONS)
    assert found.looks.count("piece") == len(session.partitions)
    assert [graph["id"] for graph in found.payload["graphs"]] == ["0/forward", "0/backward"]


def test_tabs() -> None:
    session = sessions.trained(2)
    assert tabs(session) == (("0/forward", "forward"), ("0/backward", "backward"), (PARTITIONS, PARTITIONS))
    assert first_tab(session) == "0/forward"
    assert tabs(sessions.session((sessions.layers(1),))) == (("0/forward", "forward"),)


@pytest.mark.parametrize("tab", ["nowhere", ""])
def test_an_unknown_tab_and_an_empty_session_show_nothing(tab: str) -> None:
    for session in (sessions.trained(2), sessions.session()):
        assert read(session, tab).boxes == []
    assert first_tab(sessions.session()) == ""


@pytest.mark.parametrize("text", sessions.HOSTILE)
def test_hostile_names_are_sent_clean(text: str) -> None:
    session = sessions.hostile(text)
    for tab, _ in tabs(session):
        found = read(session, tab, EVERYTHING)
        told = {key: value for key, value in found.payload.items() if not isinstance(value, bytes)}
        json.dumps([tab, told], ensure_ascii=False).encode()
        shown = [
            *found.titles,
            *(fact for facts in (*found.facts, *(pair for box in found.rows for pair in box)) for fact in facts),
        ]
        for piece in found.payload["pieces"]:
            shown += [
                piece["state"],
                *piece["words"],
                piece["speedup"],
                *(text for pair in piece["facts"] for text in pair),
            ]
        assert all(len(one) <= 240 and one.isprintable() for one in shown)


@pytest.mark.parametrize(
    ("verdict", "shown"), [(Verdict.FASTER, "2.00×"), (Verdict.INCONCLUSIVE, "2.00× inconclusive")]
)
def test_the_title_of_a_region_has_its_speedup_and_whether_that_is_inconclusive(verdict: Verdict, shown: str) -> None:
    base = sessions.trained(3)
    timings = (
        PartitionTiming(
            part.id, part.region, Phase.STEP, 1.0, 0.1, 0.5, 0.1, 2.0, 0.9, 3.0, verdict, artifact=part.artifact,
            numerics=NumericsVerdict.OK,
        )
        for part in base.partitions
    )  # fmt: skip
    found = read(replace(base, partition_timings=tuple(timings)), "0/forward", EVERYTHING)
    assert {piece["speedup"] for piece in found.payload["pieces"]} == {shown}


def test_a_bad_node_is_drawn_as_a_bad_node() -> None:
    class Unspeakable:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    bad = replace(sessions.op("bad", "aten.mul.Tensor", "a"), values=(Unspeakable(),))  # type: ignore[arg-type]
    nodes = (sessions.op("a", "aten.add.Tensor"), bad, sessions.op("c", "aten.sub.Tensor", "bad"))
    found = read(sessions.session((Graph("0/forward", GraphKind.FORWARD, 0, nodes),)), "0/forward")
    assert found.looks[found.box_of("bad")] == "bad"
    assert found.titles[found.box_of("c")] == "sub"


def test_ten_thousand_nodes_without_modules() -> None:
    found = read(sessions.huge(10_000), "0/inference", EVERYTHING)
    assert len(found.boxes) == 10_001
    assert sent(found.payload) < 1_500_000


def test_the_work_of_a_payload_grows_with_its_nodes_not_faster() -> None:
    def work(number: int) -> int:
        session = sessions.huge(number)
        return calls(lambda: read(session, "0/inference", EVERYTHING))

    work(10)  # what is done once per process
    assert work(4000) < 5 * work(1000)


def test_a_small_payload_is_small() -> None:
    assert sent(read(sessions.trained(3), "0/forward").payload) < 11_000


def test_a_deep_payload_grows_with_its_nodes_not_faster() -> None:
    def size(layers_count: int) -> int:
        return sent(read(sessions.trained(layers_count), "0/forward").payload)

    assert size(200) < 2.5 * size(100)


def test_a_circle_of_nodes_does_not_stop_it() -> None:
    nodes = (
        Node("a", Role.OP, "aten.add.Tensor", ("b",)),
        Node("b", Role.OP, "aten.mul.Tensor", ("a",)),
    )
    found = read(Session("f", sessions.ENVIRONMENT, False, (Graph("g", GraphKind.FORWARD, 0, nodes),)), "g")
    assert len(found.boxes) == 2
    assert len(found.edges) == 2
