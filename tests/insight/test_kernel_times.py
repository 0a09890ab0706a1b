"""The times of single kernels: from a build of their own, beside their bounds, and never mixed into other timings."""

from __future__ import annotations

import dataclasses
import functools
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import pytest
import torch

import regional_explorer as rx
from regional_explorer.compiler.run import Run
from regional_explorer.insight.kernel_times import (
    KernelClocks,
    kernel_calls,
    kernel_time,
    kernel_times,
    measure_kernel_times,
    timed_code,
)
from regional_explorer.measure import rates
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.rates import STEPS, Rates, product_work, rates_of, traffic_work
from regional_explorer.measure.rounds import Parts, run_rounds
from regional_explorer.record.artifact import ArtifactCode, ArtifactKernelTimes, BoundBy, Kernel, KernelKind, KernelTime
from regional_explorer.record.figure import Figure
from regional_explorer.record.region_code import partition_codes
from tests.insight.programs import block
from tests.shared.checks import torch_setting
from tests.shared.fakes import BudgetByStamps, FakeClock, InterruptedWhen
from tests.shared.work import torch_threads

pytestmark = pytest.mark.compiles


def inputs():
    return torch.randn(512, 512, requires_grad=True), torch.randn(512, 512)


def compiled_ex():
    ex = rx.explore(block, inputs())
    ex.compile()
    return ex


@pytest.fixture(scope="module")
def timed_ex():
    """Return an exploration with kernel times of as many rounds on every machine, for tests that only read them."""
    ex, fastest = compiled_ex(), simulated_rates(1e13, 1e14)
    with pytest.MonkeyPatch.context() as patch:
        rounds_by_stamps = functools.partial(run_rounds, clock=BudgetByStamps())
        patch.setattr("regional_explorer.insight.kernel_times.run_rounds", rounds_by_stamps)
        patch.setattr("regional_explorer.insight.kernel_times.rates_of", lambda _device: fastest)
        patch.setattr(Rates, "measure", lambda *_: None)
        ex.kernel_times("r", 1.0)
    return ex


def times_in(session):
    """Return the times of the kernels that a session has."""
    return [artifact.kernel_times for artifact in session.artifacts.values() if artifact.kernel_times]


def test_each_kernel_is_timed_beside_its_bound_most_wasted_first(timed_ex):
    found = timed_ex.results.kernel_times("r")
    forward = found[found.partition.str.contains("forward")]
    kernels = forward[forward.number.notna()]
    assert sorted(kernels.number) == [1, 2, 3]
    assert (kernels.time_us > 0).all()
    bound_by = dict(zip(kernels.kind, kernels.bound_by, strict=True))
    assert {bound_by["pointwise"], bound_by["reduction"]} == {"copy"}
    assert bound_by["extern call"] == "matrix product"
    wasted = found.wasted_us.dropna()
    assert list(wasted) == sorted(wasted, reverse=True)
    assert found.groupby("partition").share.sum().tolist() == [pytest.approx(1.0)] * 2
    assert (found.share.dropna() >= 0).all()
    assert list(forward.kernel[forward.number.isna()])[:2] == ["between kernels", "around the generated code"]
    assert ((found.low_us <= found.time_us) & (found.time_us <= found.high_us)).all()
    times = times_in(timed_ex.session)
    assert len(times) == 2
    for one in times:
        assert one.between.value > 0
        assert one.noise.rounds > 0, "fixed work stands around each round"


def test_the_build_with_clocks_changes_nothing_else():
    x, w = inputs()
    ex = rx.explore(block, (x, w))
    ex.benchmark(("eager", "regional"), 0.1)
    assert ex.kernel_times("r", 5.0, run=rx.Run(cancelled=lambda: True)).empty
    assert times_in(ex.session) == []

    def others():
        session, program = ex.session, ex.live.program
        return (
            (session.timings, session.partition_timings, session.reconciliation),
            [artifact.compile for artifact in session.artifacts.values()],
            dict(program.store.artifacts),
            [switch.artifact for switch in program.switches],
        )

    before, x_before = others(), x.detach().clone()
    ex.kernel_times("r", 0.2)
    assert times_in(ex.session)
    assert others() == before
    assert not any("_regional_explorer_clock" in part.text for part in partition_codes(ex.session))
    torch.testing.assert_close(x.detach(), x_before)
    torch.testing.assert_close(ex.compiled(x, w), block(x, w))


def test_an_interrupt_keeps_the_rounds_that_were_measured():
    ex, seen = compiled_ex(), []
    threads = InterruptedWhen(lambda: any("round" in doing for doing in seen))
    run = rx.Run(progress=lambda doing, _: seen.append(doing), threads=threads)
    with pytest.raises(KeyboardInterrupt):
        ex.kernel_times("r", 20.0, run=run)
    assert len(times_in(ex.session)) == 1
    assert not ex.results.kernel_times("r").empty


def compute_other_results(ex, monkeypatch):
    target = "regional_explorer.insight.kernel_times.timed_code"
    monkeypatch.setattr(target, lambda code: re.sub(r"\bsin\b", "cos", timed_code(code)))


def raise_in_code(ex, monkeypatch):
    for key, code in ex.live.insights.codes.items():
        ex.live.insights.codes[key] = ArtifactCode("raise RuntimeError('injected')\n" + code.text, code.kernels)


def move_to_gpu(ex, monkeypatch):
    for switch in ex.live.program.switches:
        outputs = tuple(dataclasses.replace(layout, device="cuda:0") for layout in switch.known_workpiece.outputs)
        switch.workpiece = dataclasses.replace(switch.known_workpiece, outputs=outputs)


@pytest.mark.parametrize(
    ("spoil", "problem", "partitions"),
    [
        (compute_other_results, "the code with clocks gives other results", 1),
        (raise_in_code, "the code with clocks does not run: RuntimeError: injected", 2),
        (move_to_gpu, "kernels on cuda are not timed: ex.benchmark() times the region, torch.profiler its kernels", 2),
    ],
)
def test_the_problem_says_why_code_cannot_be_timed(spoil, problem, partitions, monkeypatch):
    ex = compiled_ex()
    ex.code("r")
    spoil(ex, monkeypatch)
    measure_kernel_times(ex.live.insights, "r", 2.0, Run())
    problems = [times.problem for times in ex.live.insights.kernel_times.values()]
    assert problems == [problem] * partitions + [None] * (2 - partitions), "the backward has no sine"


CODE = ArtifactCode("", tuple(Kernel(name, KernelKind.POINTWISE) for name in "klm"))


@dataclass
class FakeMachine:
    """Three calls on a clock that only they advance; ``pauses`` are added to each in turn, round by round."""

    clock: FakeClock
    pauses: Iterator[float]
    whole_s: float = 9e-2
    clocks: KernelClocks = dataclasses.field(default_factory=KernelClocks)

    def call(self, name, *seconds):
        """Advance the clock by ``seconds``, for kernels and around them; only code with clocks records the kernels."""
        self.clock.log.append(name)
        for number, taken in enumerate(seconds[1:]):
            self.clock.spend(taken)
            if name == "clocked":
                self.clocks.record(number, taken)
        self.clock.spend(seconds[0] + next(self.pauses))

    def times(self):
        """Return the times that rounds of 8 s show."""
        whole = TimedCall("compiled", lambda: self.call("whole", self.whole_s - 6e-2, 4e-2, 2e-2))
        generated, clocked = (
            functools.partial(self.call, name, other_s, 4e-2, 2e-2)
            for name, other_s in (("generated", 1e-2), ("clocked", 2e-2))
        )
        calls = kernel_calls(whole, generated, clocked, self.clocks)
        between = functools.partial(self.clock.log.append, "burst")
        rounds = run_rounds(calls, 8.0, baseline="", clock=self.clock, between=between)
        return kernel_times(CODE, rounds, Rates("cpu"))


@pytest.fixture
def no_clock_overhead(monkeypatch):
    """Let the clocks in the code cost nothing."""
    monkeypatch.setattr("regional_explorer.insight.kernel_times.overhead_s", lambda _clock: 0.0)


@pytest.mark.usefixtures("no_clock_overhead")
def test_kernel_times_are_of_the_same_rounds():
    machine = FakeMachine(FakeClock(), repeat(0.0))
    times = machine.times()
    first, second, never = times.kernels
    assert (first.seconds.value, second.seconds.value) == pytest.approx((4e-2, 2e-2))
    assert never is None
    assert times.between.value == pytest.approx(2e-2)
    assert times.around.value == pytest.approx(2e-2)
    assert times.with_clocks.value == pytest.approx(10 / 9)
    assert times.whole.value == pytest.approx(9e-2)
    assert times.parts_s == pytest.approx(times.whole.value * times.with_clocks.value)
    assert (first.seconds.low, first.seconds.high) == pytest.approx((4e-2, 4e-2))
    assert machine.clock.log.count("burst") == 6, "the rates see the machine as the kernels do"
    order = [name for name in machine.clock.log if name != "burst"][-3 * times.noise.rounds :]
    in_rounds = [order[start : start + 3] for start in range(0, len(order), 3)]
    assert all(sorted(names) == ["clocked", "generated", "whole"] for names in in_rounds)
    assert len({names[0] for names in in_rounds}) == 3, "each comes first in some round, so that the caches favour none"
    around = FakeMachine(FakeClock(), repeat(0.0), whole_s=6.5e-2).times().around
    assert (around.value, around.bounds) == (0.0, (0.0, 0.0)), (
        "if the whole is faster than its code, nothing is around it"
    )


@pytest.mark.usefixtures("no_clock_overhead")
@pytest.mark.parametrize("seed", range(5))
def test_disturbed_times_stay_consistent(seed):
    """Shares were once 103 % and 109 %, beside a row of -26 %."""
    chance = np.random.default_rng(seed)
    pauses = (float(seconds) for seconds in chance.exponential(0.2, 10_000) * (chance.random(10_000) < 0.5))
    times = FakeMachine(FakeClock(), pauses).times()
    parts = [*(one.seconds for one in times.kernels if one), times.between, times.around]
    assert all(part.value >= 0.0 for part in parts)
    assert all(part.bounds is None or 0.0 <= part.bounds[0] <= part.value <= part.bounds[1] for part in parts)
    assert sum(part.value / times.parts_s for part in parts) == pytest.approx(1.0)


def test_clock_overhead_is_subtracted(monkeypatch):
    monkeypatch.setattr("regional_explorer.insight.kernel_times.overhead_s", lambda _clock: 0.5)
    clocks = KernelClocks([{0: 3.0, 1: 0.25}])
    assert clocks.parts(0, (10.0, 15.0)) == {0: 2.5, 1: 0.0, "between": 0.75}


def test_only_a_clock_around_each_launch_is_added():
    code = ArtifactCode(
        "def call(args):\n    a = 1\n    k0(a)\n    extern_kernels.mm(a,\n        a)\n",
        (Kernel("k0", KernelKind.POINTWISE, called=3), Kernel("extern_kernels.mm", KernelKind.EXTERN, called=4)),
    )
    lines = timed_code(code).splitlines()
    assert [line.strip() for line in lines if "_regional_explorer" in line or "k0" in line] == [
        "_t = _regional_explorer_clock()",
        "k0(a)",
        "_regional_explorer_record(0, _regional_explorer_clock() - _t)",
    ]


def test_wasted_time_is_beyond_the_bound():
    assert KernelTime(Figure(3.0), 1.0, BoundBy.COPY).wasted_s == 2.0
    assert KernelTime(Figure(1.0), 3.0, BoundBy.COPY).wasted_s is None, "no bound lies above what was measured"
    assert KernelTime(Figure(1.0)).wasted_s is None
    assert ArtifactKernelTimes((KernelTime(Figure(1.0)), None)).kernels_s == 1.0


MIB = 1 << 20
LOOP = Kernel("k", KernelKind.POINTWISE, bytes_read=MIB, bytes_written=MIB)
PRODUCT = Kernel("mm", KernelKind.EXTERN, bytes_read=MIB, bytes_written=MIB, operations=10**9, dtype="float32")


def simulated_rates(copied=1e10, multiplied=1e11):
    rates = Rates("cpu")
    rates.fastest |= {("copy", step): copied for step in STEPS} | {("float32", 0): multiplied}
    return rates


@pytest.mark.parametrize("kernel", [LOOP, PRODUCT, Kernel("k", KernelKind.POINTWISE)], ids=["loop", "product", "?"])
@pytest.mark.parametrize("slower", [0.01, 0.5, 1.0, 1.1, 2.0, 390.0])
@pytest.mark.parametrize("taken_s", [1e-6, 2e-4, 1e-2, 1.0])
def test_no_bound_exceeds_the_measured_time(kernel, slower, taken_s):
    """Even if the rates were disturbed by factors from 0.01 to 390."""
    rates = simulated_rates(1e10 / slower, 1e11 / slower)
    times = [taken_s * (1 + number / 7) for number in range(9)]
    time = kernel_time(kernel, Parts({0: np.array(times)}), 0, rates)
    assert time.bound_s is None or 0 < time.bound_s <= min(times)
    assert (time.bound_s is None) == (time.bound_by is None)


def test_faster_kernel_raises_the_rate():
    rates, bound_s = simulated_rates(), 2 * MIB / 1e10
    for beaten_by, bound in ((1.2, pytest.approx(bound_s / 1.2)), (9, None)):
        assert kernel_time(LOOP, Parts({0: np.full(9, bound_s / beaten_by)}), 0, rates).bound_s == bound
        assert rates.seconds(traffic_work(MIB, MIB)) == pytest.approx(bound_s / 1.2)


def test_a_size_has_the_rate_of_the_largest_step_within():
    rates = Rates("cpu")
    rates.fastest |= {("copy", step): 4e10 if step < 1 << 26 else 1e10 for step in STEPS}
    assert rates.seconds(traffic_work(33 * MIB // 2, 33 * MIB // 2)) == pytest.approx(33 * MIB / 4e10), (
        "not that of 64 MiB"
    )
    assert rates.seconds(traffic_work(32 * MIB, 32 * MIB)) == pytest.approx(64 * MIB / 1e10)
    rates.fastest["copy", STEPS[0]] = 1.0
    assert rates.seconds(traffic_work(100, 100)) == pytest.approx(200 / 4e10), (
        "starting the copy of a few bytes counts not"
    )


def test_read_and_write_rates_are_at_least_the_copy_rate():
    rates = simulated_rates()
    rates.fastest |= {("read", step): 2e10 for step in STEPS} | {("write", step): 1e9 for step in STEPS}
    assert rates.seconds(traffic_work(2 * MIB, 0)) == pytest.approx(2 * MIB / 2e10)
    assert rates.seconds(traffic_work(0, 2 * MIB)) == pytest.approx(2 * MIB / 1e10)
    assert rates.seconds(traffic_work(3 * MIB, MIB)) == pytest.approx(2 * MIB / 1e10 + 2 * MIB / 2e10)


@pytest.mark.parametrize("disturbed", [0, 1, 2])
def test_one_slow_measurement_does_not_lower_a_rate(disturbed, monkeypatch):
    """A rate is the fastest seen: a pause while it was measured does not stay for the life of the process."""
    found, works = Rates("cpu"), [traffic_work(MIB, MIB), product_work(10**9, "float32")]
    for burst in range(3):
        slow = 390 if burst == disturbed else 1
        monkeypatch.setattr(rates, "_seconds", lambda _device, _call, calls, slow=slow: [slow * 1e-3] * calls)
        found.measure(works, 3600)
    assert found.seconds(traffic_work(MIB, MIB)) == pytest.approx(2 * MIB * 1e-3 / (4 * MIB))
    assert found.seconds(product_work(10**9, "float32")) == pytest.approx(10**9 * 1e-3 / (2 * 1024**3))


def test_rates_are_measured_with_explicit_dtypes_and_device(monkeypatch):
    moved = set()

    def seconds(_device, call, calls, _limit_s=0.0):
        result = call()
        moved.add((result.device.type, result.dtype))
        return [1.0] * calls

    monkeypatch.setattr(rates, "_seconds", seconds)
    with torch_setting("default_dtype", torch.float64), torch.device("meta"):
        Rates("cpu").measure([traffic_work(8, 8), product_work(1, "bfloat16")], 3600)
    assert moved == {("cpu", torch.float32), ("cpu", torch.bfloat16)}


class SlowMachine:
    """A clock, and rates of calls that move or multiply ``per_s`` per second."""

    def __init__(self, monkeypatch, per_s):
        self.now_s = 0.0

        def note_rate(measured, kind, step, amount, _call):
            took_s = (rates.CALLS + 1) * amount / per_s
            self.now_s += took_s
            measured.fastest[kind, step] = per_s
            return took_s

        monkeypatch.setattr(time, "perf_counter", lambda: self.now_s)
        monkeypatch.setattr(Rates, "_measure_rate", note_rate)


SLOW_WORKS = {
    "products": [product_work(1, "float16")],
    "products of two dtypes": [product_work(1, "float16"), product_work(1, "float64")],
    "copies": [traffic_work(128 * MIB, 128 * MIB)],
    "reads beside products": [traffic_work(128 * MIB, 0), product_work(1, "int8")],
}


@pytest.mark.parametrize("works", SLOW_WORKS.values(), ids=SLOW_WORKS)
@pytest.mark.parametrize("per_s", [1e6, 1e8, 1e12])
def test_rates_of_a_slow_device_are_measured_within_a_time_limit(works, per_s, monkeypatch):
    """On a CPU without float16, the rate of an 8 × 8 product once waited 146 s for products of 1024 × 1024."""
    machine, measured = SlowMachine(monkeypatch, per_s), Rates("cpu")
    measured.measure(works, 0.5)
    smallest_s = (rates.CALLS + 1) * 2 * (2 * 64**3 + 3 * STEPS[0]) / per_s
    assert machine.now_s <= 0.5 + smallest_s
    assert measured.seconds(works[0]) > 0, "the rate of the largest step that was reached stands for larger ones"
    if per_s == 1e12:
        assert not works[0].keys() - measured.fastest.keys(), "a fast device reaches every step"


def test_rates_are_kept_by_threads_and_precision():
    here = rates_of("cpu")
    assert rates_of("cpu") is here
    with torch_threads(torch.get_num_threads() + 1):
        assert rates_of("cpu") is not here
    other = "high" if torch.get_float32_matmul_precision() == "medium" else "medium"
    with torch_setting("float32_matmul_precision", other):
        assert rates_of("cpu") is not here


def kernels_of(function, *args):
    ex = rx.explore(rx.region("r")(function), args)
    ex.compile()
    return [kernel for part in ex.code("r") for kernel in part.code.kernels]


def test_matmul_kernels_have_their_operands_dtype():
    halves = kernels_of(lambda x, w: (x.bfloat16() @ w.bfloat16()).float(), torch.randn(64, 64), torch.randn(64, 64))
    assert [kernel.dtype for kernel in halves if kernel.kind is KernelKind.EXTERN] == ["bfloat16"]
    convolved = kernels_of(torch.conv2d, torch.randn(1, 4, 8, 8), torch.randn(4, 4, 3, 3))
    assert {kernel.dtype for kernel in convolved} == {None}
    attention = torch.nn.functional.scaled_dot_product_attention
    attended = kernels_of(lambda q: attention(q, q, q, is_causal=True), torch.randn(1, 2, 16, 8))
    assert {kernel.dtype for kernel in attended} == {None}, "half of the products that are counted are not needed"


def test_only_touched_bytes_count_as_read():
    (looked_up,) = kernels_of(lambda i, table: table[i] * 2, torch.tensor([3, 1, 2]), torch.randn(5000, 16))
    assert looked_up.bytes_read == 3 * 8 + 3 * 16 * 4, "not the whole table"
    (multiplied,) = kernels_of(lambda x: x[:, :8] @ x[:, 8:16].mT, torch.randn(64, 512))
    assert multiplied.bytes_read == 2 * 64 * 8 * 4, "not all columns"
