"""Cutting: which partitions come of which regions, and that a cut graph computes what the whole did."""

import pytest
import torch
from torch import fx, nn
from torch.fx.traceback import annotate

import regional_explorer as rx
from regional_explorer.measure.numerics import run_once, same
from regional_explorer.regions.order import dependencies, written_inputs
from tests.shared import programs


def cut_by_region(ex, graph="0/forward"):
    found = {}
    for part in ex.session.partitions:
        if part.graph == graph:
            found.setdefault(part.region, []).append(list(part.nodes))
    return found


def assert_bitwise(ex):
    """Cut, with eager pieces, the call gives bitwise what it gives uncut."""
    program, call = ex.live.program, ex.live.call
    program.select_regional(on=False)
    whole = run_once(call, program.capture.run)
    program.select_regional(on=True)
    assert same(whole, run_once(call, program.capture.run))


def test_one_block_one_partition():
    ex = rx.explore(programs.textbook, programs.pair())
    assert cut_by_region(ex) == {"middle": [["mul", "add"]]}
    assert cut_by_region(ex, "0/backward") == {"middle": [["mul_2", "mul_3"]]}
    assert_bitwise(ex)


def joined(x, _):
    with rx.region("r"):
        x = x.sin()
    with rx.region("r"):
        return x.cos()


def apart(x, y):
    with rx.region("r"):
        a = x.sin()
    with rx.region("r"):
        b = y.cos()
    return a, b


def on_path(x, _):
    with rx.region("r"):
        a = x.sin()
    b = a.exp()
    with rx.region("r"):
        return b.cos() + a


def beside(x, y):
    with rx.region("r"):
        a = x.sin()
    b = y.exp()
    with rx.region("r"):
        return a.cos(), b


def carved(x, _):
    with rx.region("r"):
        a = x.sin()
        with annotate({"fallback_to_eager": True}):
            a = a.exp()
        return a.cos()


@pytest.mark.parametrize(
    ("fn", "parts"),
    [
        (joined, [["sin", "cos"]]),
        (apart, [["sin"], ["cos"]]),
        (on_path, [["sin"], ["cos", "add"]]),
        (beside, [["sin", "cos"]]),
        (carved, [["sin"], ["cos"]]),
    ],
)
def test_blocks_of_one_name_are_joined_where_they_feed_each_other_directly(fn, parts):
    assert cut_by_region(rx.explore(fn, (torch.ones(3), torch.ones(3))), "0/inference") == {"r": parts}


def test_pieces_that_an_edit_does_not_change_are_used_again():
    def two(x):
        with rx.region("a"):
            x = x.sin()
        x = x + 1
        with rx.region("b"):
            x = x.cos()
        return x

    ex = rx.explore(two, (torch.ones(3),))
    before = {switch.piece.claim.region: switch.piece.gm for switch in ex.live.program.switches}
    ex.rename("a", "first").mark("added", ops="add")
    after = {switch.piece.claim.region: switch.piece.gm for switch in ex.live.program.switches}
    assert list(after) == ["first", "added", "b"]
    assert after["first"] is before["a"]
    assert after["b"] is before["b"]
    assert_bitwise(ex)


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
    assert_bitwise(ex)


def test_random_ops_keep_their_order():
    ex = rx.explore(programs.with_dropout, programs.pair())
    assert len(cut_by_region(ex)["drops"]) == 2
    assert_bitwise(ex)


def test_upstreams_cut_would_reorder_the_random_ops():
    ex = rx.explore(programs.with_dropout, programs.pair(), plan=rx.Plan(cut="upstream"))
    assert not ex.plan.regions


def test_several_results_of_one_op_stay_behind_the_call():
    def several(x):
        with rx.region("r"):
            variance, mean = torch.var_mean(x, dim=0)
        return variance + mean

    ex = rx.explore(several, (torch.randn(4, 4),))
    assert cut_by_region(ex, "0/inference") == {"r": [["var_mean", "getitem", "getitem_1"]]}
    assert_bitwise(ex)


def test_writes_keep_their_place():
    def write(x, buffer):
        before = buffer * 2
        with rx.region("r"):
            buffer.add_(x.sin())
            after = buffer.cos()
        return before, after

    x, buffer = torch.randn(3), torch.zeros(3)
    ex = rx.explore(write, (x, buffer))
    assert ex.partitions.shape[0] == 1
    assert_bitwise(ex)
    ex.live.program.capture.run(x, buffer)
    torch.testing.assert_close(buffer, x.sin())


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


def test_bodies_of_cond_are_cut_inside():
    def branch(x):
        def true(x):
            with rx.region("yes"):
                return x.sin() + 1

        return torch.cond(x.sum() > 0, true, lambda x: x.cos(), (x,))

    ex = rx.explore(branch, (torch.ones(3),))
    ((graph, nodes),) = ex.partitions[["graph", "ops"]].to_numpy().tolist()
    assert graph.startswith("0/inference/true_graph")
    assert nodes == 2
    assert_bitwise(ex)


def test_a_whole_higher_order_op_can_be_a_region():
    def branch(x):
        with rx.region("all"):
            return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    ex = rx.explore(branch, (torch.ones(3),))
    assert "cond" in " ".join(name for part in cut_by_region(ex, "0/inference")["all"] for name in part)
    assert_bitwise(ex)


@pytest.mark.parametrize("grad", [True, False])
def test_all_regions_eager_is_bitwise_aot_eager(grad):
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 8))
    ex = rx.explore(model, (torch.randn(4, 8),), grad=grad)
    ex.mark("front", modules=["0", "1"]).mark("back", modules=["3", "4"])
    assert ex.partitions.shape[0] >= 2
    assert_bitwise(ex)


def test_strides_autocast_and_empty_inputs():
    def cast(x):
        with torch.autocast("cpu", torch.bfloat16), rx.region("r"):
            return (x @ x.t()).relu().sum(0)

    for x in (torch.randn(6, 4).t(), torch.randn(0, 4), torch.randn(4, 8)[:, ::2]):
        ex = rx.explore(cast, (x.requires_grad_(),))
        assert ex.partitions.shape[0] >= 1
        assert_bitwise(ex)
