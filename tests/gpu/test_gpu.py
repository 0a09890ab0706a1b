"""Events, launches and the allocator of a GPU; skipped where there is none."""

import pytest
import torch
from torch import nn

import regional_explorer as rx
from regional_explorer.measure.clock import TimedCall, clock_for
from regional_explorer.measure.machine import LAUNCH_BOUND, device_state, launch_share
from regional_explorer.measure.memory import AllocatorGauge, gauge_for, measure_peak
from regional_explorer.measure.rounds import run_rounds
from regional_explorer.record.benchmark import Phase, Verdict
from regional_explorer.record.figure import Figure

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.compiles,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

MIB = 1 << 20


@pytest.fixture
def clock():
    return clock_for("cuda:0 (whatever it is called)")


def matmul_chain(count, size):
    x = torch.randn(size, size, device="cuda")

    def call():
        y = x
        for _ in range(count):
            y = y @ x
        return y

    return call


def test_events_measure_device_work_not_host_work(clock):
    result = run_rounds(
        [TimedCall("eager", matmul_chain(4, 2048)), TimedCall("double", matmul_chain(8, 2048))],
        2.0,
        clock=clock,
    )
    ratios = result.ratios("double", Phase.FORWARD)
    assert 0.4 < sorted(ratios)[len(ratios) // 2] < 0.65


def test_small_ops_are_launch_bound_and_large_ones_are_not(clock):
    small = torch.randn(8, device="cuda")

    def many():
        y = small
        for _ in range(200):
            y = y + 1
        return y

    assert launch_share(TimedCall("small", many), clock) > LAUNCH_BOUND
    assert launch_share(TimedCall("large", matmul_chain(4, 8192)), clock) < LAUNCH_BOUND


def test_the_allocator_reports_the_exact_peak():
    gauge = gauge_for("cuda:0 (whatever it is called)")
    assert isinstance(gauge, AllocatorGauge)
    found = measure_peak("eager", lambda: torch.empty(64 * MIB, dtype=torch.uint8, device="cuda"), gauge)
    assert (found.peak_bytes, found.how, found.least_bytes) == (Figure(64 * MIB, 64 * MIB, 64 * MIB), "allocator", 0)


def test_device_state_has_used_and_total_memory():
    state = device_state("cuda:0 (whatever it is called)")
    assert 0 < state.used_bytes <= state.total_bytes


def test_a_call_that_takes_gradients_itself_is_explored():
    """The backward of such a call is compiled when it first runs: while the traced run holds the compile lock."""
    energy = nn.Sequential(nn.Linear(8, 8), nn.Tanh()).cuda()

    def forces(x):
        return torch.autograd.grad(energy(x).sum(), x)[0]

    ex = rx.explore(forces, (torch.randn(4, 8, device="cuda", requires_grad=True),))
    assert ex.session.graphs


def test_a_model_is_explored_compiled_and_measured():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512)) for _ in range(3)))
    model = model.cuda()
    x = torch.randn(256, 512, device="cuda")
    ex = rx.explore(model, (x,)).mark("blocks", modules="*")
    before = torch.cuda.get_rng_state()
    ex.benchmark(budget_s=3.0)
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert set(ex.numerics.verdict) == {"ok"}
    assert (ex.timings.median_us > 0).all()
    assert ex.session.conditions.gpu
    assert set(ex.timings.peak_read_from) == {"allocator"}
    step = ex.regions.iloc[0]
    assert step.eager_us > 0
    assert step.numerics == "ok"
    assert step.verdict in set(Verdict)
    assert {"eager", "regional", "rest"} <= set(ex.reconciliation.part)
