"""Tensors that a call writes or assigns are compared like its outputs: buffers, statistics, caches, ``out=``."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regional_explorer as rx
from regional_explorer.measure.numerics import compare_results, run_once
from regional_explorer.measure.reference import find_reference
from regional_explorer.tables.benchmark import numerics_table
from tests.shared.checks import codes


def verdicts_by_tensor(ex, variant=None):
    """Return the verdicts of a variant, by default of the captured graphs, by tensor."""
    call = ex.live.call
    found = find_reference(call, ex.live.program)
    assert not found.diagnostics
    rows = compare_results("fake", run_once(call, variant or ex.live.capture.run), found)
    return {row.tensor: str(row.verdict) for row in rows}


@pytest.mark.parametrize("called_before", [False, True])
def test_a_call_that_only_writes_is_checked(called_before):
    buf, w, x = torch.zeros(8, 8), torch.randn(8, 8), torch.randn(8, 8)

    def step(x):
        buf.copy_(F.gelu(x @ w))

    def write_wrong(x):
        buf.copy_(F.gelu(x @ w) * 1.001)

    def write_nothing(x):
        F.gelu(x @ w)

    if called_before:
        step(x)
    before = buf.clone()
    ex = rx.explore(step, (x,))
    assert verdicts_by_tensor(ex) == {"written buf": "ok"}
    assert verdicts_by_tensor(ex, write_wrong) == {"written buf": "failed"}
    assert called_before or verdicts_by_tensor(ex, write_nothing) == {"written buf": "failed"}
    assert torch.equal(buf, before), "restored"


def test_call_without_outputs_is_not_ok():
    lost = []

    def f(x):
        lost.append(float(x.sin().sum()))

    ex = rx.explore(f, (torch.randn(8),))
    timings = ex.benchmark(("aot_eager",), budget_s=0.2).set_index("variant")
    assert timings.numerics["aot_eager"] == "not checked"
    assert ex.numerics.verdict.tolist() == ["not checked"]
    assert "returns no tensors" in " ".join(numerics_table(ex.session).notes())


STATISTICS = {"written 1.running_mean", "written 1.running_var", "written 1.num_batches_tracked"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_running_statistics_are_compared(dtype):
    model = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU()).to(dtype)
    x = torch.randn(64, 16).to(dtype)
    ex = rx.explore(model, (x,))
    found = verdicts_by_tensor(ex)
    assert set(found) >= STATISTICS
    assert set(found.values()) == {"ok"}

    def other_momentum(x):
        model[1].momentum = 0.5
        try:
            return model(x)
        finally:
            model[1].momentum = 0.1

    found = verdicts_by_tensor(ex, other_momentum)
    assert {name for name in found if found[name] == "failed"} == STATISTICS - {"written 1.num_batches_tracked"}


@pytest.mark.compiles
@pytest.mark.parametrize("grad", [True, False])
def test_compiled_running_statistics_are_ok(grad):
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    ex = rx.explore(model, (torch.randn(16, 8, 24, 24),), grad=grad)
    ex.mark("all", modules="*")
    ex.benchmark(("regional",), budget_s=0.1, regions=False)
    written = ex.numerics[ex.numerics.tensor.str.startswith("written")]
    assert len(written) == 3
    assert not written.bitwise.all(), "rounded as in eager: nothing is tested"
    assert set(written.verdict) == {"ok"}
    assert written[written.tensor.str.contains("running")].eager_rms_error_f64.notna().all()


def write_row(cache, position, x, w):
    cache[:, position : position + 1] = (x @ w).sin()
    return (cache.float().sum(1) > 0).int()


@pytest.mark.parametrize("unwritten", ["zeros", "garbage", "written before"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_written_row_of_a_cache_is_compared_alone(dtype, unwritten):
    cache = torch.full((4, 512, 32), 1e30 if unwritten == "garbage" else 0.0, dtype=dtype)
    x, w = torch.randn(4, 1, 64, dtype=dtype), torch.randn(64, 32, dtype=dtype) / 8
    if unwritten == "written before":
        write_row(cache, 7, x, w)
    ex = rx.explore(lambda x: write_row(cache, 7, x, w), (x,))
    ours = {name: found for name, found in verdicts_by_tensor(ex).items() if name.startswith("written")}
    assert ours == {"written cache": "ok"}
    # A fused kernel rounds once, and sums in another order.
    halves = lambda x: ((x[..., :32].float() @ w[:32].float() + x[..., 32:].float() @ w[32:].float()).sin()).to(dtype)  # noqa: E731

    def write_fused(x):
        cache[:, 7:8] = halves(x)
        return (cache.float().sum(1) > 0).int()

    def write_next_row(x):
        return write_row(cache, 8, x, w)

    def write_wrong(x):
        cache[:, 7:8] = halves(x) * (1.0 + (0.1 if dtype is torch.bfloat16 else 1e-3))
        return (cache.float().sum(1) > 0).int()

    assert verdicts_by_tensor(ex, write_fused)["written cache"] == "ok"
    assert verdicts_by_tensor(ex, write_next_row)["written cache"] == "failed"
    assert verdicts_by_tensor(ex, write_wrong)["written cache"] == "failed"


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.state = torch.zeros(8)
        self.table = None

    def forward(self, x):
        if self.table is None:
            self.table = torch.ones(8)
        self.state = (self.linear(x) + self.state).tanh()
        self.linear.bias.data = self.linear.bias.data * 0.5
        return x + self.table


class Cache:
    def __init__(self):
        self.keys = [torch.randn(2, 8)]


def test_assigned_tensors_are_compared():
    model, cache = Recurrent(), Cache()

    def step(x, scale=1.0):
        cache.keys[0] = torch.cat([cache.keys[0], x[None].cos() * scale])
        return model(x)

    ex = rx.explore(step, (torch.randn(8),))
    found = verdicts_by_tensor(ex)
    assert set(found) >= {"output", "written model.state", "written linear.bias", "written cache.keys[0]"}
    assert "written model.table" not in found, "made by the first call alone"
    assert set(found.values()) == {"ok"}
    wrong = verdicts_by_tensor(ex, lambda x: step(x, 1.01))
    assert [name for name in wrong if wrong[name] == "failed"] == ["written cache.keys[0]"]


class Accumulating(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.state = torch.zeros(8)

    def forward(self, x):
        self.state = (self.linear(x) + self.state).tanh()
        return self.state


class Growing(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.seen = torch.zeros(1, 8)

    def forward(self, x):
        self.seen = torch.cat([self.seen, x[None]])
        return self.linear(self.seen)


@pytest.mark.compiles
@pytest.mark.parametrize("kind", [Accumulating, Growing])
def test_a_call_that_keeps_its_outputs_can_be_measured(kind):
    """A second call, from the state that the first left, has other outputs or another autograd graph."""
    model, x = kind(), torch.randn(8)
    ex = rx.explore(model, (x,)).mark("all", ops="*")
    ex.benchmark(budget_s=0.05)
    assert {"output", "grad linear.weight", "grad linear.bias"} <= set(ex.numerics.tensor)
    assert set(ex.numerics.verdict) == {"ok"}
    assert "call-nondeterministic" not in codes(ex)
    compiled, own = ex.compiled, kind()
    own.load_state_dict(model.state_dict())
    for _ in range(2):
        torch.testing.assert_close(compiled(x), own(x))


def test_writes_and_random_numbers_are_compared_across_a_graph_break():
    out, noise, buf, w = torch.empty(8, 8), torch.empty(8, 8), torch.zeros(8, 8), torch.randn(8, 8)

    def step(x):
        torch.mm(x, w, out=out)
        noise.copy_(F.dropout(x, 0.5))
        buf.add_(x.sin())
        torch._dynamo.graph_break()
        return buf * 2

    ex = rx.explore(step, (torch.randn(8, 8),))
    assert len(ex.live.capture.frames) == 2
    assert verdicts_by_tensor(ex) == {"output": "ok", "written out": "ok", "written noise": "ok", "written buf": "ok"}
    rows = compare_results("eager", run_once(ex.live.call), find_reference(ex.live.call, ex.live.program))
    followed = [row for row in rows if row.tensor in ("output", "written buf")]
    assert not any(row.judged_by_eager or row.eager_error is None for row in followed), "float64 follows the writes"


def test_a_trace_that_does_not_write_is_reported():
    buf = torch.zeros(8)

    def step(x):
        if not torch.compiler.is_compiling():
            buf.copy_(x)
        return x.sin()

    ex = rx.explore(step, (torch.randn(8),))
    (found,) = find_reference(ex.live.call, ex.live.program).diagnostics
    assert found.code == "trace-differs"
    assert "written buf" in found.message


def test_tensors_of_a_written_storage_keep_their_versions():
    linear, x = torch.nn.Linear(4, 4), torch.randn(2, 4)

    def scale_weight(x):
        with rx.region("r"):
            y = linear(x).relu()
        linear.weight.data.mul_(0.99)
        return y.sum()

    pending = linear(torch.randn(2, 4, requires_grad=True)).sum()
    ex = rx.explore(scale_weight, (x,))
    ex.benchmark(variants=["regional"], budget_s=0.1)
    pending.backward()  # raises if a version has changed
