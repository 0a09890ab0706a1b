"""Cutting: cycles, sums of gradients, carved ops, reused pieces, and the order of ops.

The partitions of many programs, and that they compute the same, are in ``tests/golden/test_engine.py``.
"""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import regional_explorer as rx
from regional_explorer.capture.convert import GraphRecorder
from regional_explorer.record.files import load_plan
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.plan import CutRule, Plan, Region, Selector, SelectorKind
from regional_explorer.regions.cut import cut_graph
from regional_explorer.regions.order import dependencies, written_inputs
from regional_explorer.regions.select import assign
from regional_explorer.torch_api.graphs import ORIGIN, inductor_honours_fallback
from tests.shared import diagnostics_programs, programs
from tests.shared.checks import (
    assert_compiled_is_right,
    assert_eager_pieces_are_bitwise,
    codes,
    cut_by_region,
    diagnostics_of,
)

carves = pytest.mark.skipif(not inductor_honours_fallback(), reason="Inductor compiles carved ops")


def set_cut(ex, cut):
    ex.plan = replace(ex.plan, cut=cut)
    return ex


def test_pieces_that_an_edit_does_not_change_are_reused():
    ex = rx.explore(programs.two_regions, (torch.ones(3),))
    before = {switch.piece.claim.region: switch.piece.gm for switch in ex.live.program.switches}
    ex.rename("a", "first").mark("added", ops="exp")
    after = {switch.piece.claim.region: switch.piece.gm for switch in ex.live.program.switches}
    assert list(after) == ["first", "added", "b"]
    assert after["first"] is before["a"]
    assert after["b"] is before["b"]
    assert_eager_pieces_are_bitwise(ex)


def test_regions_that_feed_each_other_split_the_later_one(tmp_path):
    ex = diagnostics_programs.run_page_program(diagnostics_programs.page_programs()["region-cycle"], tmp_path)
    cut = cut_by_region(ex, "0/inference")
    assert cut["a"] == [["sin", "mul"]]
    assert len(cut["b"]) == 2
    assert ex.live.program.cyclic
    assert_eager_pieces_are_bitwise(ex)


def sin_with_dropout(x):
    return F.dropout(x.sin(), 0.5)


@pytest.mark.parametrize(
    "random_op",
    [
        torch.compiler.nested_compile_region(sin_with_dropout),
        lambda x: checkpoint(sin_with_dropout, x, use_reentrant=False),
    ],
    ids=["in a body", "in a checkpoint"],
)
def test_random_numbers_keep_the_order_of_the_program(random_op):
    def program(x):
        with rx.region("r"):
            a = F.dropout(x, 0.5)
        b = random_op(random_op(x))
        with rx.region("r"):
            c = a * 2
        return b, c

    ex = rx.explore(program, (torch.ones(64, requires_grad=True),))
    assert_eager_pieces_are_bitwise(ex)


class LayerWithBreak(programs.Layer):
    """A layer with a graph break inside: each half is a frame, which calls its submodules alone."""

    def forward(self, x):
        x = self.up(x) * 2
        torch._dynamo.graph_break()
        return self.down(x).sin()


def test_modules_are_found_behind_graph_breaks():
    model = nn.ModuleDict({"layers": nn.ModuleList([LayerWithBreak(), LayerWithBreak()])})

    def fn(x):
        for layer in model["layers"]:
            x = layer(x)
        return x

    ex = rx.explore(fn, (torch.randn(4, 16),)).mark("layers", modules="layers.*")
    marked = {
        node.target for graph in ex.session.graphs if graph.kind == "dynamo" for node in graph.ops if node.module_path
    }
    assert marked >= {"torch._C._nn.linear", "mul", "sin"}
    assert {part.instance for part in ex.session.partitions} == {0, 1}
    assert_eager_pieces_are_bitwise(ex)


def test_a_module_that_only_holds_others_can_be_marked(ex):
    assert len(ex.mark("all", modules="layers").partitions) == 2


# ------------------------------------------------------------------------------------------------- what is carved out


@pytest.mark.compiles
def test_carved_ops_split_a_region_except_under_upstreams_cut():
    ex = rx.explore(programs.op_carved_in_source, (torch.randn(8),))
    assert cut_by_region(ex, "0/inference") == {"r": [["sin"], ["cos"]]}
    set_cut(ex, CutRule.UPSTREAM)
    assert len(ex.partitions) == (1 if inductor_honours_fallback() else 2)
    ex.compile()
    if inductor_honours_fallback():
        assert "aten.exp" in ex.code("r").partitions[0].text, "Inductor has to call the eager kernel"


@pytest.mark.compiles
@carves
def test_carved_piece_gets_its_own_cached_code():
    ex = rx.explore(lambda x: x.sin().exp().cos(), (torch.randn(8),)).mark("r", ops="*")
    set_cut(ex, CutRule.UPSTREAM).compile()
    ex.carve("r", ops="aten.exp*").compile()
    assert "aten.exp" in ex.code("r").partitions[0].text


# -------------------------------------------------------------------------------------------------- sums of gradients


def vector(size=3):
    return torch.linspace(0.1, 0.9, size).requires_grad_()


SUMS: dict[str, Any] = {}


def expect_sums(pieces, inside, *messages, args=None):
    """Decorator: the pieces of the program's backward, the sums in them, and texts about sums left out."""

    def add(fn):
        SUMS[fn.__name__] = fn, args or (vector(),), pieces, inside, messages
        return fn

    return add


@expect_sums({"r": 1}, 2)
def thrice(x):
    with rx.region("r"):
        a = x.sin()
        return a.cos() * a.exp() * a.tanh()


@expect_sums({"r": 2}, 4)
def two_residuals(x):
    """Two blocks as transformers have them: what comes into a branch also goes past it."""
    for _ in range(2):
        with rx.region("r"):
            x = x + x.sin().exp()
            x = x + x.cos().tanh()
        x = x * 2
    return x


@expect_sums({"r": 2}, 0, "2 ops", "they also take inputs from outside the instance")
def a_value_used_outside_as_well(x):
    with rx.region("r"):
        a = x.sin()
        b = a.cos() * a.exp()
    return a * b


@expect_sums({"r": 2}, 0, "they also take inputs from outside the instance")
def a_value_that_returns_through_unmarked_ops(x):
    with rx.region("r"):
        a = x.sin()
        b = a.cos()
    c = a.neg()
    with rx.region("r"):
        return b * c


@expect_sums({"one": 1, "two": 1}, 0)
def between_regions(x):
    a = x.sin()
    with rx.region("one"):
        b = a.cos()
    with rx.region("two"):
        c = a.exp()
    return b * c


@expect_sums({"r": 1}, 0)
def a_residual_around_a_region(x):
    with rx.region("r"):
        y = x.sin().exp()
    return (x + y).cos()


@expect_sums(
    {"a": 2, "b": 1},
    1,
    "if the instance had them, instances would feed each other in a cycle",
    args=(vector(4), vector(2)),
)
def crossed(x, z):
    """The backward of ``a`` is two halves with a sum between; ``b`` feeds the second and is fed by the first."""
    with rx.region("a"):
        y1, y2 = x.sin().chunk(2)
    with rx.region("b"):
        w = y2.exp()
    with rx.region("a"):
        s = y1.cos() * y1.tan()
    with rx.region("b"):
        k = z.exp() + w.detach().sum()
    with rx.region("a"):
        return s * k, w


@expect_sums({"r": 2}, 2, "run_with_rng_state", "keeps its place")
def dropout_in_a_checkpoint(x):
    def repeated(x):
        a = x.sin()
        return F.dropout(a.cos() * a.exp(), 0.5)

    with rx.region("r"):
        y = checkpoint(repeated, x, use_reentrant=False)
        return y * y.exp()


@torch.compiler.nested_compile_region
def body(x):
    with rx.region("r"):
        a = x.sin()
        return a.cos() * a.exp()


@expect_sums({"r": 1}, 1)
def a_body_that_several_calls_share(x):
    return body(body(x)) * 2


def backward_cut(ex):
    return cut_by_region(ex, "0/backward")


def messages_of_sums_left_out(ex):
    return [item.message for item in diagnostics_of(ex, "backward-unmarked")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SUMS)
def test_sums_of_gradients_belong_to_a_region(name):
    fn, args, pieces, inside, messages = SUMS[name]
    ex = rx.explore(fn, args)
    cut = backward_cut(ex)
    assert {region: len(parts) for region, parts in cut.items()} == pieces
    added = {
        node.name for graph in ex.session.graphs if graph.kind == "backward" for node in graph.ops if node.op == "add"
    }
    assert added
    owned = [name for parts in cut.values() for part in parts for name in part]
    assert len(added.intersection(owned)) == inside
    assert "run_with_rng_state" not in owned
    assert "region-cycle" not in codes(ex)
    assert bool(messages_of_sums_left_out(ex)) is bool(messages)
    assert all(text in messages_of_sums_left_out(ex)[0] for text in messages)
    preview = ex.preview(ex.plan)
    assert [part.nodes for part in preview.partitions] == [part.nodes for part in ex.session.partitions]
    assert list(preview.diagnostics) == ex.diagnostics
    assert_eager_pieces_are_bitwise(ex)


def test_the_marked_cut_and_upstreams_cut_leave_sums_eager(tmp_path):
    ex = rx.explore(thrice, (vector(),))
    assert set(backward_cut(ex)["r"][0]) == set(ex.session.members["r"]["0/backward"])
    assert not ex.diagnostics
    for cut in (CutRule.MARKED, CutRule.UPSTREAM):
        set_cut(ex, cut)
        assert len(backward_cut(ex)["r"]) == 2
        assert "add" not in ex.session.members["r"]["0/backward"]
        (message,) = messages_of_sums_left_out(ex)
        assert message.startswith("2 ops")
        assert f"cut='{cut}' takes only marked ops" in message
        assert_eager_pieces_are_bitwise(ex)
    set_cut(ex, CutRule.MARKED).save_plan(tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == ex.plan


def tangents_alone(x):
    y = x.sin()
    return y, y + 1


@pytest.mark.parametrize(
    ("fn", "args", "pieces"),
    [(programs.Stack(), (torch.randn(4, 16),), 3), (tangents_alone, (vector(),), 1)],
    ids=["residuals", "tangents"],
)
def test_marking_every_op_gives_one_partition_per_graph(fn, args, pieces):
    ex = rx.explore(fn, args).mark("all", ops="*")
    ops = {graph.id: {node.name for node in graph.ops} for graph in ex.session.graphs if graph.kind != "dynamo"}
    assert {part.graph: set(part.nodes) for part in ex.session.partitions} == ops
    assert len(ex.session.partitions) == len(ops)
    assert_eager_pieces_are_bitwise(ex)
    marked = backward_cut(set_cut(ex, CutRule.MARKED))["all"]
    assert len(marked) == pieces
    assert sum(map(len, marked)) < len(ops["0/backward"])


def test_the_marked_cut_leaves_the_sums_of_both_residuals():
    ex = rx.explore(two_residuals, (vector(),))
    assert len(backward_cut(ex)["r"]) == 2
    assert len(backward_cut(set_cut(ex, CutRule.MARKED))["r"]) == 4


@pytest.mark.compiles
@pytest.mark.parametrize("fn", [thrice, two_residuals])
def test_partitions_with_sums_of_gradients_compile_and_match_eager(fn):
    assert_compiled_is_right(rx.explore(fn, (vector(),)))


# -------------------------------------------------------------------------------------------------------- what writes

ATEN = torch.ops.aten
STATISTICS = ("x", None, None, "mean", "variance")
WRITES = {
    "an argument": (ATEN.add_.Tensor, ("x", "y"), {}, {"x"}),
    "by keyword": (ATEN.add.out, ("x", "y"), {"out": "z"}, {"z"}),
    "a list": (ATEN._foreach_add_.List, (["x", "y"], ["z", "z"]), {}, {"x", "y"}),
    "nothing": (ATEN.add.Tensor, ("x", "y"), {}, set()),
    "statistics": (ATEN.native_batch_norm.default, (*STATISTICS, True, 0.1, 1e-5), {}, {"mean", "variance"}),
    "no statistics": (ATEN._native_batch_norm_legit_no_training.default, (*STATISTICS, 0.1, 1e-5), {}, set()),
    "new statistics": (ATEN._native_batch_norm_legit_functional.default, (*STATISTICS, True, 0.1, 1e-5), {}, set()),
}


@pytest.mark.parametrize(("target", "args", "keywords", "expected"), WRITES.values(), ids=WRITES)
def test_ops_keep_their_order_around_writes(target, args, keywords, expected):
    graph = fx.Graph()
    values = {name: graph.placeholder(name) for name in ("x", "y", "z", "mean", "variance")}
    for node in values.values():
        node.meta["val"] = torch.zeros(3)
    before = {name: graph.call_function(ATEN.sin.default, (node,)) for name, node in values.items()}
    given = fx.node.map_aggregate((args, keywords), lambda name: values.get(name, name))
    write = graph.call_function(target, *given)
    after = {name: graph.call_function(ATEN.cos.default, (node,)) for name, node in values.items()}
    found = dependencies(graph)
    assert {node.name for node in written_inputs(write)} == expected
    assert {name for name, node in before.items() if node in found[write]} == expected
    assert {name for name, node in after.items() if write in found[node]} == expected


def test_in_place_writes_stay_outside_partitions():
    """The body of a higher-order op may contain in-place ops: AOTAutograd does not functionalize it."""

    def writes(x):
        return x.sin().add_(1).cos()

    gm = make_fx(writes, tracing_mode="fake")(torch.ones(3))
    for number, node in enumerate(gm.graph.nodes):
        node.meta["custom"] = {ORIGIN: number}
    graph, *_ = GraphRecorder(GraphKind.INFERENCE, 0).record(gm, "0/inference")
    plan = Plan((Region("r", (Selector(SelectorKind.OPS, ("*",)),)),))
    cut = cut_graph(gm, graph.id, {graph.id: graph.by_name}, assign([graph], plan), ["r"])
    assert [[node.name for node in part.nodes] for part in cut.parts] == [["sin"], ["cos"]]
