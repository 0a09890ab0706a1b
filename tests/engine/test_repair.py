"""Graphs that fail when they run: repaired and told, or refused; graph breaks in marked blocks lose them alone."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import regional_explorer as rx
from regional_explorer.errors import CaptureError
from tests.shared.checks import only, told

linear = nn.Linear(8, 8)
weight = torch.randn(4, 4, requires_grad=True)


def dropout(x):
    with rx.region("r"):
        z = linear(x).sin()
    z = nn.functional.dropout(linear(z))
    return (z.transpose(1, 2) @ weight).sum()


def test_plain_aot_fails_and_the_exploration_runs():
    x = torch.randn(2, 4, 8, requires_grad=True)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        torch.compile(dropout, backend="aot_eager")(x).backward()
    ex = rx.explore(dropout, (x,))
    found = only(ex, "aot-eager-failed")
    assert found.graph == "0/backward"
    assert len(found.nodes) == 1
    assert [line.function for line in found.where] == ["dropout"]
    assert "linear(" in found.where[0].text
    with ex.live.call.restoring():
        gradients = ex.live.call.backward(ex.live.call.forward())
        ex.live.call.restore()
        again = ex.live.call.backward(ex.live.call.forward(ex.live.capture.run))
    torch.testing.assert_close(again, gradients)


@pytest.mark.compiles
def test_regions_and_full_are_measured_and_aot_eager_is_left_out():
    ex = rx.explore(dropout, (torch.randn(2, 4, 8, requires_grad=True),))
    ex.benchmark(budget_s=0.3)
    assert set(ex.timings.variant) == {"eager", "regional", "full"}
    assert set(ex.numerics[ex.numerics.variant == "regional"].verdict) == {"ok"}
    ex.mark("all", ops="*").compile()
    assert (ex.partitions.state == "compiled").all(), "a repaired view inside a region"


@pytest.mark.filterwarnings("ignore:The call was traced again")
def test_a_later_trace_is_repaired_too():
    ex = rx.explore(dropout, (torch.randn(2, 4, 8, requires_grad=True),))
    with torch.enable_grad():
        ex.live.capture.run(torch.randn(3, 4, 8, requires_grad=True)).backward()
    assert len(ex.live.capture.frames) == 2


RUNS: list[int] = []


@torch.library.custom_op("rx_tests::runs_once", mutates_args=())
def runs_once(x: torch.Tensor) -> torch.Tensor:
    RUNS.append(1)
    if len(RUNS) > 1:
        raise ValueError("not today")
    return x.clone()


def test_another_op_that_fails_is_told_with_its_line_and_not_as_tracing():
    def step(x):
        return runs_once(x.sin())

    RUNS.clear()
    with pytest.raises(CaptureError, match="not today") as caught:
        rx.explore(step, (torch.randn(3),))
    text = str(caught.value)
    assert "could not trace" not in text
    assert "torch traced the call, but the graph it made fails when it runs" in text
    assert "rx_tests.runs_once" in text
    assert "return runs_once(x.sin())" in text


norm = nn.GroupNorm(8, 32)
IMAGE = torch.randn(1, 64, 32)


def group_norm(x):
    with rx.region("r"):
        x = (x * 2).sin()
    return norm(x.transpose(-1, -2).reshape(1, 32, 8, 8)).cos()


@pytest.mark.compiles
@pytest.mark.parametrize("grad", [False, True])
def test_group_norm_of_a_transposed_view(grad):
    ex = rx.explore(group_norm, (IMAGE,), grad=grad)
    found = told(ex, "aot-eager-failed")
    if torch.__version__ < "2.14":
        with pytest.raises(RuntimeError, match="is_contiguous"), torch.set_grad_enabled(grad):
            torch.compile(group_norm, backend="aot_eager")(IMAGE)
        assert "aten.native_group_norm.default" in found[0].message
        assert "norm(x.transpose" in found[0].where[0].text
    ex.benchmark(budget_s=0.3)
    assert {"eager", "regional", "full"} <= set(ex.timings.variant)
    assert ("aot_eager" in set(ex.timings.variant)) is not found
    assert set(ex.numerics.verdict) == {"ok"}
    ex.mark("all", ops="*").compile()
    assert (ex.partitions.state == "compiled").all(), "the copy inside a region"


@torch.library.custom_op("rx_tests::other_order", mutates_args=())
def other_order(x: torch.Tensor) -> torch.Tensor:
    return x.sin().t().contiguous().t()


@torch.library.custom_op("rx_tests::contiguous_alone", mutates_args=())
def contiguous_alone(x: torch.Tensor) -> torch.Tensor:
    if not x.is_contiguous():
        raise RuntimeError("give me a contiguous one")
    return x + 1


for op in (runs_once, other_order, contiguous_alone):
    op.register_fake(torch.empty_like)


@pytest.mark.filterwarnings("ignore:The call was traced again")
def test_an_op_gets_a_copy_of_what_has_other_strides_than_the_trace_says():
    def step(x):
        return contiguous_alone(other_order(x).contiguous()) * 2

    x = torch.randn(3, 4)
    ex = rx.explore(step, (x,))
    found = only(ex, "aot-eager-failed")
    assert "rx_tests.contiguous_alone" in found.message
    assert "give me a contiguous one" in found.message
    torch.testing.assert_close(ex.live.capture.run(x), step(x))
    targets = [node.target for node in ex.session.graphs[-1].ops]
    assert targets[1:3] == ["aten.clone.default", "rx_tests.contiguous_alone.default"]
    later = torch.randn(5, 4)
    torch.testing.assert_close(ex.live.capture.run(later), step(later), msg="a later trace gets the copy at once")


# ------------------------------------------------------------------------------------- graph breaks in marked blocks


def helper(x):
    return x.sin() * 2


def stops(x):
    with rx.region("lost"):
        torch._dynamo.graph_break()
        return x + 1


def by_item(x):
    y = helper(x)
    with rx.region("lost"):
        y = y * float(y.sum().item())
    return helper(y)


def by_branch(x):
    y = helper(x)
    with rx.region("lost"):
        y = y + 1 if y.sum() > 0 else y - 1
    return helper(y)


def in_a_loop(x):
    for _ in range(2):
        with rx.region("lost"):
            x = helper(x)
            torch._dynamo.graph_break()
    return x


def in_a_checkpoint(x):
    return helper(checkpoint(stops, helper(x), use_reentrant=False))


@pytest.mark.parametrize("fn", [by_item, by_branch, in_a_loop, in_a_checkpoint])
def test_what_else_the_function_calls_is_explored(fn):
    x = torch.randn(3, requires_grad=True)
    ex = rx.explore(fn, (x,))
    assert [item.region for item in told(ex, "region-lost")] == ["lost"]
    functions = {node.source.function for graph in ex.session.graphs for node in graph.ops if node.source}
    assert "helper" in functions
    ex.mark("kept", ops="aten.sin*")
    assert set(ex.partitions.region) == {"kept"}
