"""Cutting: circles, what is carved out, which pieces are used again, and what must run before what.

Which partitions come of many programs is in ``tests/golden/test_engine.py``, that they compute the same in
``test_upstream.py``.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import regional_explorer as rx
from regional_explorer.capture.convert import GraphRecorder
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.plan import Plan, Region, Selector, SelectorKind
from regional_explorer.regions.cut import cut_graph
from regional_explorer.regions.order import dependencies, written_inputs
from regional_explorer.regions.select import assign
from regional_explorer.torch_api.graphs import ORIGIN
from tests.shared import programs
from tests.shared.checks import assert_eager_pieces_are_bitwise, cut_by_region


def test_what_the_source_carves_out_cuts_a_region():
    ex = rx.explore(programs.carved, (torch.ones(3),))
    assert cut_by_region(ex, "0/inference") == {"r": [["sin"], ["cos"]]}


def test_pieces_that_an_edit_does_not_change_are_used_again():
    ex = rx.explore(programs.two, (torch.ones(3),))
    before = {switch.piece.claim.region: switch.piece.gm for switch in ex.live.program.switches}
    ex.rename("a", "first").mark("added", ops="exp")
    after = {switch.piece.claim.region: switch.piece.gm for switch in ex.live.program.switches}
    assert list(after) == ["first", "added", "b"]
    assert after["first"] is before["a"]
    assert after["b"] is before["b"]
    assert_eager_pieces_are_bitwise(ex)


def test_regions_that_feed_each_other_both_ways_leave_the_first_whole():
    def crossed(x, y):
        with rx.region("a"):
            a1 = x.sin()
        with rx.region("b"):
            b1 = a1.cos()
            b2 = y.sin() + b1
            b3 = y.exp()
        with rx.region("a"):
            a2 = b3.cos() * a1
        with rx.region("b"):
            b4 = b2 * b3
        return a2, b4

    ex = rx.explore(crossed, (torch.ones(3), torch.ones(3)))
    cut = cut_by_region(ex, "0/inference")
    assert cut["a"] == [["sin", "cos_1", "mul"]]
    assert len(cut["b"]) > 1
    assert ex.live.program.cyclic
    assert_eager_pieces_are_bitwise(ex)


def drop(x):
    return F.dropout(x.sin(), 0.5)


@pytest.mark.parametrize(
    "draw",
    [torch.compiler.nested_compile_region(drop), lambda x: checkpoint(drop, x, use_reentrant=False)],
    ids=["in a body", "in a checkpoint"],
)
def test_random_numbers_are_drawn_in_the_order_of_the_program(draw):
    def draws(x):
        with rx.region("r"):
            a = F.dropout(x, 0.5)
        b = draw(draw(x))
        with rx.region("r"):
            c = a * 2
        return b, c

    ex = rx.explore(draws, (torch.ones(64, requires_grad=True),))
    assert_eager_pieces_are_bitwise(ex)


ATEN = torch.ops.aten
STATISTICS = ("x", None, None, "mean", "variance")
WRITES = {
    "an argument": (ATEN.add_.Tensor, ("x", "y"), {"x"}),
    "by keyword": (ATEN.add.out, ("x", "y", {"out": "z"}), {"z"}),
    "a list": (ATEN._foreach_add_.List, (["x", "y"], ["z", "z"]), {"x", "y"}),
    "nothing": (ATEN.add.Tensor, ("x", "y"), set()),
    "statistics": (ATEN.native_batch_norm.default, (*STATISTICS, True, 0.1, 1e-5), {"mean", "variance"}),
    "no statistics": (ATEN._native_batch_norm_legit_no_training.default, (*STATISTICS, 0.1, 1e-5), set()),
    "new statistics": (ATEN._native_batch_norm_legit_functional.default, (*STATISTICS, True, 0.1, 1e-5), set()),
}


@pytest.mark.parametrize(("target", "arguments", "expected"), WRITES.values(), ids=WRITES)
def test_what_an_op_writes_comes_before_and_after_it(target, arguments, expected):
    graph = fx.Graph()
    values = {name: graph.placeholder(name) for name in ("x", "y", "z", "mean", "variance")}
    for node in values.values():
        node.meta["val"] = torch.zeros(3)
    before = {name: graph.call_function(ATEN.sin.default, (node,)) for name, node in values.items()}
    positional = [argument for argument in arguments if not isinstance(argument, dict)]
    keywords = next((argument for argument in arguments if isinstance(argument, dict)), {})
    named = fx.node.map_aggregate((tuple(positional), keywords), lambda name: values.get(name, name))
    write = graph.call_function(target, *named)
    after = {name: graph.call_function(ATEN.cos.default, (node,)) for name, node in values.items()}
    found = dependencies(graph)
    assert {node.name for node in written_inputs(write)} == expected
    assert {name for name, node in before.items() if node in found[write]} == expected
    assert {name for name, node in after.items() if write in found[node]} == expected


def test_what_writes_in_place_stays_outside_of_partitions():
    """As the body of a HOP may, that AOTAutograd has not made functional."""

    def writes(x):
        return x.sin().add_(1).cos()

    gm = make_fx(writes, tracing_mode="fake")(torch.ones(3))
    for number, node in enumerate(gm.graph.nodes):
        node.meta["custom"] = {ORIGIN: number}
    graph, *_ = GraphRecorder(GraphKind.INFERENCE, 0).record(gm, "0/inference")
    plan = Plan((Region("r", (Selector(SelectorKind.OPS, ("*",)),)),))
    cut = cut_graph(gm, graph.id, {graph.id: graph.by_name}, assign([graph], plan), ["r"])
    assert [[node.name for node in part.nodes] for part in cut.parts] == [["sin"], ["cos"]]
