"""Traces that fail or differ from the call, and calls that differ from themselves: reported, or repaired."""

import itertools
import os
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.utils.checkpoint import checkpoint

import regional_explorer as rx
from regional_explorer.measure import timings as measured_timings
from regional_explorer.measure.numerics import compare_results, run_once
from regional_explorer.measure.reference import find_reference
from regional_explorer.tables.benchmark import timings_table
from regional_explorer.torch_api import dynamo
from tests.shared import programs
from tests.shared.checks import change_code, codes, diagnostics_of, only
from tests.shared.sessions import cells

NOT_COMPARABLE = "not comparable"


def wrong_when_traced(x):
    with rx.region("r"):
        y = x.sin()
    return y * (2 if torch.compiler.is_compiling() else 3)


def trace_difference(function, *args):
    ex = rx.explore(function, args)
    found = find_reference(ex.live.call, ex.live.program)
    (item,) = found.diagnostics
    assert item.code == "trace-differs"
    assert found.exact is None, "float64 follows the trace"
    return item


@pytest.mark.compiles
def test_no_variant_of_a_wrong_trace_is_ok():
    ex = rx.explore(wrong_when_traced, (torch.randn(64, 64),))
    timings = ex.benchmark(budget_s=0.3)
    others = timings[timings.variant != "eager"]
    assert len(others) == 3
    assert set(others.numerics) == {"failed"}
    assert others.speedup.isna().all()
    found = only(ex, "trace-differs")
    assert (found.graph, found.nodes) == ("0/inference", ("mul",))
    assert [line.text for line in found.where] == ["return y * (2 if torch.compiler.is_compiling() else 3)"]
    assert "The same under torch.compile(backend='eager')" in found.message


class CallCounter(nn.Module):
    """A module that counts its calls in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return x.sin()


def checkpointed_call(module):
    def call(x):
        y = checkpoint(lambda x: module(x).relu(), x, use_reentrant=False)
        return (y * 2).sum()

    return call


def several_checkpoints():
    modules = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)) for _ in range(3))

    def call(x):
        for module in modules:
            x = checkpoint(module, x, use_reentrant=False)
        return x.sum()

    return call


@pytest.mark.parametrize(
    ("function", "shape", "which", "ops", "tensors"),
    [
        (checkpointed_call(nn.BatchNorm1d(8)), (4, 8), "The checkpoint at", "add_, torch.nn.functional.batch_norm", 3),
        (
            checkpointed_call(nn.InstanceNorm1d(8, track_running_stats=True)),
            (4, 8, 3),
            "The checkpoint at",
            "torch.nn.functional.instance_norm",
            2,
        ),
        (checkpointed_call(CallCounter()), (4, 8), "The checkpoint at", "add_", 1),
        (
            several_checkpoints(),
            (4, 8),
            "Each of 3 checkpoints, the first at",
            "add_, torch.nn.functional.batch_norm",
            9,
        ),
    ],
)
def test_the_message_names_the_double_write_of_a_checkpoint(function, shape, which, ops, tensors):
    found = trace_difference(function, torch.randn(shape, requires_grad=True))
    assert f"{which} test_wrong_traces.py:" in found.message
    assert all(op in found.message for op in ops.split(", "))
    assert "a second time; the traced graphs write once" in found.message
    assert f"{tensors} of " in found.message
    assert found.graph == "0/dynamo"
    assert all(name.startswith("tag_activation_checkpoint") for name in found.nodes)
    assert "checkpoint(" in found.where[0].text
    assert "out of the checkpoint" in found.remedy


def test_another_difference_in_a_checkpoint_is_not_reported_as_double_write():
    calls = CallCounter()

    def scale_wrongly(x):
        calls(x)
        return x * (2 if torch.compiler.is_compiling() else 3)

    found = trace_difference(
        lambda x: checkpoint(scale_wrongly, x, use_reentrant=False).sum(), torch.randn(4, 8, requires_grad=True)
    )
    assert "second time" not in found.message


def benchmark_against_trace(
    monkeypatch, function, *args, variants=("aot_eager", "regional", "full"), change=lambda call: call
):
    monkeypatch.setattr(measured_timings, "LEAST_SAMPLES", 1)
    ex = rx.explore(function, args).mark("r", ops="*")
    ex.compile()
    change_code(ex, change)
    ex.benchmark(variants, budget_s=0.1, regions=False)
    return ex, {name: timing.against_trace for name, timing in ex.session.whole_timings.items()}


@pytest.mark.compiles
def test_variants_that_equal_the_trace_are_timed_against_it(monkeypatch, tmp_path):
    x = torch.randn(4, 8, requires_grad=True)
    ex, compared = benchmark_against_trace(monkeypatch, checkpointed_call(nn.BatchNorm1d(8)), x)
    assert compared.pop("eager") is None
    assert compared["aot_eager"].verdict == "baseline"
    assert {compared[name].numerics for name in ("regional", "full")} == {"ok"}
    assert set(ex.numerics.verdict) == {"ok", "failed"}, "against eager"
    table = ex.timings[ex.timings.phase == "step"].set_index("variant")
    assert table.speedup.drop("eager").isna().all()
    assert table.trace_speedup.drop("eager").notna().all()
    assert rx.load(ex.save(tmp_path / "saved.json")).session.whole_timings == ex.session.whole_timings
    for text in (ex.text, Path(ex.save(tmp_path / "saved.html")).read_text()):
        assert "against trace" in text
        assert "Against trace: traced ÷ variant" in " ".join(text.split())


@pytest.mark.compiles
def test_every_trace_that_differs_from_eager_is_a_baseline(monkeypatch):
    _, compared = benchmark_against_trace(monkeypatch, wrong_when_traced, torch.randn(64, 64))
    assert [name for name, comparison in compared.items() if comparison] == ["aot_eager", "regional", "full"]


@pytest.mark.compiles
def test_a_variant_that_differs_is_not_timed_against_the_trace(monkeypatch):
    def double_results(call):
        return lambda args: tuple(2 * result for result in call(args))

    _, compared = benchmark_against_trace(monkeypatch, wrong_when_traced, torch.randn(64, 64), change=double_results)
    assert compared["regional"] is None
    assert compared["full"] is not None


@pytest.mark.compiles
def test_comparison_with_trace_needs_the_trace(monkeypatch):
    _, compared = benchmark_against_trace(monkeypatch, wrong_when_traced, torch.randn(64, 64), variants=("full",))
    assert set(compared.values()) == {None}


@pytest.mark.compiles
def test_variants_are_not_compared_with_a_right_trace(monkeypatch):
    ex, compared = benchmark_against_trace(monkeypatch, lambda x: x.sin().relu(), torch.randn(64, 64))
    assert set(compared.values()) == {None}
    assert "against trace" not in repr(ex)


def wrong_in_the_middle(x):
    for i in range(20):
        x = torch.tanh(x) + (0.1 if i == 11 and torch.compiler.is_compiling() else 0.0)
    return x


def lacks_an_op(x):
    y = x.sin()
    if not torch.compiler.is_compiling():
        y = y.exp()
    return y.cos() + 1


def lacks_a_gradient(x, y):
    y = y.detach() if torch.compiler.is_compiling() else y
    return (x * y).sin()


@pytest.mark.parametrize(
    ("function", "first_node", "message"),
    [
        (wrong_in_the_middle, "add_11", ""),
        (lacks_an_op, "cos", ""),  # the user of the missing op's result
        (lacks_a_gradient, "", "grad args[1]"),
    ],
)
def test_first_difference_is_found_on_any_default_device(function, first_node, message):
    args = programs.pair() if message else (torch.randn(32),)
    with torch.device("meta"):
        found = trace_difference(function, *args)
    assert not first_node or found.nodes[0] == first_node
    assert message in found.message


def test_close_results_of_other_ops_are_not_reported_as_different():
    turns = iter(range(100))

    def other_ops(x):
        mask = torch.ones(8, 8).tril().bool() if torch.compiler.is_compiling() else torch.tril(torch.ones(8, 8)) > 0
        return torch.where(mask, x, 0.0).sum(-1)

    def other_order(x):
        order = torch.arange(512) if next(turns) % 2 else torch.arange(511, -1, -1)
        return x[:, order] @ x[:, order].t()

    ex = rx.explore(other_ops, (torch.randn(8, 8),))
    assert find_reference(ex.live.call, ex.live.program).diagnostics == ()
    ex = rx.explore(other_order, (torch.randn(16, 512),))
    assert not find_reference(ex.live.call, ex.live.program).nondeterministic


def test_wrong_decomposition_is_attributed_to_aot_autograd():
    def thrice(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    op = torch.library.custom_op("regional_explorer_tests::thrice", mutates_args=())(thrice)
    op.register_fake(torch.empty_like)
    table = {torch.ops.regional_explorer_tests.thrice.default: lambda x: x * 2}
    decomposing = partial(aot_autograd, decompositions=table)
    with (
        mock.patch.dict(torch._decomp.decomposition_table, table),
        mock.patch.object(dynamo, "aot_autograd", decomposing),
    ):
        found = trace_difference(lambda x: op(x).sin(), torch.randn(8))
    assert "AOTAutograd makes the difference" in found.message
    assert found.nodes == ("mul",)


def masked_by_numpy(x):
    return x * torch.from_numpy(np.random.uniform(size=8)).float()  # noqa: NPY002


def test_the_message_names_foreign_random_numbers():
    found = trace_difference(masked_by_numpy, torch.randn(8))
    assert "where the random states differ" in found.message
    assert "NumPy" in found.message
    assert "torch._dynamo.config.use_numpy_random_stream = True" in found.remedy
    with torch._dynamo.config.patch(use_numpy_random_stream=True):
        ex = rx.explore(masked_by_numpy, (torch.randn(8),))
        ex.benchmark(("aot_eager",), budget_s=0.1)
    assert set(ex.numerics.verdict) == {"ok"}


class LayerDrop(nn.Module):
    """Skips layers at random behind graph breaks, as speech models do, after a random mask from NumPy."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))

    def forward(self, x):
        x = masked_by_numpy(x)
        for layer in self.layers:
            if torch.rand([]) < 0.5:
                continue
            x = layer(x).sin()
        return x.sum()


def test_layers_that_only_the_trace_drops_are_reported():
    found = trace_difference(LayerDrop(), torch.randn(4, 8))
    assert "(output: off by up to " in found.message
    assert "; 7 of 7 tensors)" in found.message, "with the gradients of layers that only one of the two skips"
    assert "where the random states differ: the state of NumPy's generator" in found.message
    assert "The same under torch.compile(backend='eager')" in found.message
    assert [line.function for line in found.where] == ["masked_by_numpy"]


@torch.compiler.disable
def noise():
    return torch.tensor(int.from_bytes(os.urandom(2), "big") / 65536)


@pytest.mark.compiles
def test_a_nondeterministic_call_is_not_comparable():
    ex = rx.explore(lambda x: x.sin() + noise(), (torch.randn(64),)).mark("r", ops="aten.sin*")
    ex.compile()
    change_code(ex, lambda right: lambda args: tuple(value * 0 for value in right(args)))
    timings = ex.benchmark(variants=("aot_eager", "regional"), budget_s=0.3)
    assert set(timings.numerics) == {NOT_COMPARABLE}
    assert set(ex.numerics.verdict) == {NOT_COMPARABLE}
    assert "call-nondeterministic" in codes(ex)
    assert set(ex.regions.numerics) == {"failed"}, "a region alone, on recorded inputs, does repeat itself"
    for row in cells(timings_table(ex.session)):
        shown = row[4]
        assert shown == "–" or shown.endswith(NOT_COMPARABLE)


@torch.compiler.disable
def triple_in_place(y):
    y.mul_(3)


@torch.compiler.disable
def triple_first_in_place(y):
    y.data[0].mul_(3)


@pytest.mark.parametrize("write", [triple_in_place, triple_first_in_place])
def test_float64_run_sees_writes_between_graphs(write):
    def f(x):
        y = x.sin()
        write(y)
        return y.cos()

    ex = rx.explore(f, (torch.randn(64),))
    assert ex.session.breaks
    (row,) = compare_results("eager", run_once(ex.live.call), find_reference(ex.live.call, ex.live.program))
    assert row.eager_error < 1e-7
    assert not row.judged_by_eager


class Drift:
    """The number that each call adds; nothing restores the position of an iterator."""

    added = itertools.repeat(0.0)


@torch.compiler.disable
def drift(x):
    return x + next(Drift.added)


def drift_after_sin(x):
    return drift(x.sin()) * 2


def start_drift_after(calls):
    Drift.added = itertools.chain([0.0] * calls, itertools.repeat(1.0))


def test_eager_runs_again_before_a_variant_fails():
    ex = rx.explore(drift_after_sin, (torch.randn(8),))
    start_drift_after(2)  # eager, and eager again
    found = find_reference(ex.live.call, ex.live.program)
    assert [diagnostic.code for diagnostic in found.diagnostics] == ["call-nondeterministic"]
    assert found.nondeterministic
    start_drift_after(4)  # eager twice, the trace, and the trace in float64
    timings = ex.benchmark(variants=("aot_eager",), budget_s=0.1)
    assert set(timings.numerics) == {NOT_COMPARABLE}
    assert "call-nondeterministic" in codes(ex)


@pytest.mark.compiles
def test_a_result_that_is_wrong_once_is_not_comparable():
    ex = rx.explore(lambda x: x.sin() + 1, (torch.randn(64),)).mark("r", ops="*")
    ex.compile()
    calls = itertools.count()
    change_code(ex, lambda right: lambda args: tuple(v * 0 if next(calls) == 0 else v for v in right(args)))
    ex.benchmark(variants=("regional",), budget_s=0.1, regions=False)
    (row,) = ex.numerics.itertuples()
    assert row.verdict == NOT_COMPARABLE
    assert row.note == "two calls of this code differ: one is right, the other is wrong"


# --------------------------------------------------------------------------------- graphs that fail when they run

linear = nn.Linear(8, 8)
weight = torch.randn(4, 4, requires_grad=True)


def dropout(x):
    with rx.region("r"):
        z = linear(x).sin()
    z = nn.functional.dropout(linear(z))
    return (z.transpose(1, 2) @ weight).sum()


@pytest.mark.filterwarnings("ignore:The call was traced again")
def test_exploration_runs_where_plain_aot_fails():
    ex = rx.explore(dropout, (torch.randn(2, 4, 8, requires_grad=True),))
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
    with torch.enable_grad():
        ex.live.capture.run(torch.randn(3, 4, 8, requires_grad=True)).backward()
    assert len(ex.live.capture.frames) == 2


norm = nn.GroupNorm(8, 32)


def group_norm(x):
    with rx.region("r"):
        x = (x * 2).sin()
    return norm(x.transpose(-1, -2).reshape(1, 32, 8, 8)).cos()


REPAIRED = {
    "dropout, trained": (dropout, (2, 4, 8), True),
    "group norm, trained": (group_norm, (1, 64, 32), True),
    "group norm": (group_norm, (1, 64, 32), False),
}
CASES = [
    pytest.param(*case, marks=() if "trained" in name else pytest.mark.slow, id=name) for name, case in REPAIRED.items()
]
"""The forward of what is trained has the ops of the inference."""


@pytest.mark.compiles
@pytest.mark.parametrize(("function", "shape", "grad"), CASES)
def test_regions_and_full_are_measured_if_aot_eager_fails(function, shape, grad):
    ex = rx.explore(function, (torch.randn(shape, requires_grad=function is dropout),), grad=grad)
    found = diagnostics_of(ex, "aot-eager-failed")
    if function is group_norm and torch.__version__ < "2.14":
        assert "aten.native_group_norm.default" in found[0].message
        assert "norm(x.transpose" in found[0].where[0].text
    ex.benchmark(budget_s=0.3)
    assert set(ex.timings.variant) == {"eager", "regional", "full"} | (set() if found else {"aot_eager"})
    assert set(ex.numerics[ex.numerics.variant == "regional"].verdict) == {"ok"}
    assert function is dropout or set(ex.numerics.verdict) == {"ok"}
    ex.mark("all", ops="*").compile()
    assert (ex.partitions.state == "compiled").all(), "the repair is inside a region"


RUNS: list[int] = []


@torch.library.custom_op("rx_tests::runs_once", mutates_args=())
def runs_once(x: torch.Tensor) -> torch.Tensor:
    RUNS.append(1)
    if len(RUNS) > 1:
        raise ValueError("not today")
    return x.clone()


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


def test_failing_op_is_reported_with_its_line():
    def step(x):
        return runs_once(x.sin())

    RUNS.clear()
    with pytest.raises(rx.CaptureError, match="not today") as caught:
        rx.explore(step, (torch.randn(3),))
    text = str(caught.value)
    assert "could not trace" not in text
    assert "torch traced the call, but the graph it made fails when it runs" in text
    assert "rx_tests.runs_once" in text
    assert "return runs_once(x.sin())" in text


@pytest.mark.filterwarnings("ignore:The call was traced again")
def test_op_gets_a_copy_of_wrong_strides():
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


def region_with_break(x):
    with rx.region("lost"):
        torch._dynamo.graph_break()
        return x + 1


def break_by_item(x):
    y = helper(x)
    with rx.region("lost"):
        y = y * float(y.sum().item())
    return helper(y)


def break_by_branch(x):
    y = helper(x)
    with rx.region("lost"):
        y = y + 1 if y.sum() > 0 else y - 1
    return helper(y)


def break_in_a_loop(x):
    for _ in range(2):
        with rx.region("lost"):
            x = helper(x)
            torch._dynamo.graph_break()
    return x


def break_in_a_checkpoint(x):
    return helper(checkpoint(region_with_break, helper(x), use_reentrant=False))


@pytest.mark.parametrize("fn", [break_by_item, break_by_branch, break_in_a_loop, break_in_a_checkpoint])
def test_only_the_block_with_a_graph_break_is_lost(fn):
    ex = rx.explore(fn, (torch.randn(3, requires_grad=True),))
    assert [item.region for item in diagnostics_of(ex, "region-lost")] == ["lost"]
    functions = {node.source.function for graph in ex.session.graphs for node in graph.ops if node.source}
    assert "helper" in functions
    ex.mark("kept", ops="aten.sin*")
    assert set(ex.partitions.region) == {"kept"}
