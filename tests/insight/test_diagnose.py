"""Why a region is slow: programs, thresholds, and remedies that are measured before they are offered."""

import dataclasses
import weakref
from unittest.mock import Mock

import pytest
import torch
from msgspec.structs import replace

import regional_explorer as rx
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run import Run
from regional_explorer.insight import diagnose
from regional_explorer.insight.diagnose import (
    is_faster_and_never_slower,
    recomputed_in_kernels,
    remedies,
    time_findings,
)
from regional_explorer.insight.kernel_times import measure_kernel_times
from regional_explorer.measure import alone, partitions, timings
from regional_explorer.measure.benchmark import BenchmarkResults
from regional_explorer.measure.clock import CpuClock
from regional_explorer.measure.rounds import RoundsResult, StopReason
from regional_explorer.measure.timings import MeasureContext
from regional_explorer.record.artifact import ArtifactCode, ArtifactKernelTimes, BoundBy, Kernel, KernelKind, KernelTime
from regional_explorer.record.benchmark import Phase, Verdict
from regional_explorer.record.diagnostic import DiagnosticCode
from regional_explorer.record.figure import QUIET, Figure, Noise, exactly
from regional_explorer.record.partition import Partition, State
from regional_explorer.record.region_code import PartitionCode
from tests.insight.programs import compiled_ex, gelu_norm, simulate_times
from tests.shared import diagnostics_programs
from tests.shared.fakes import InterruptedWhen
from tests.shared.sessions import timing
from tests.shared.work import torch_threads

PART = PartitionCode(
    Partition("r", "r", 0, "0/inference", (), State.COMPILED, artifact="a"),
    ArtifactCode("x", (Kernel("k", KernelKind.REDUCTION, loop_ops={"erf": 3, "add": 9}),)),
    (),
)


def findings(kernel_s, bound_s, whole_s, bound_by=BoundBy.COPY, noise=QUIET):
    kernel = KernelTime(exactly(kernel_s), bound_s, None if bound_s is None else bound_by)
    outside = {"between": exactly(whole_s - kernel_s), "around": exactly(0.0)}
    times = ArtifactKernelTimes((kernel,), **outside, noise=noise)
    return list(time_findings("r", [dataclasses.replace(PART, times=times)]))


SECONDS = {
    "at its bound": (1.0, 0.80, 1.0, ["kernel-bound"]),
    "not quite": (1.0, 0.79, 1.0, []),
    "no known bound": (1.0, None, 1.0, []),
    "half of it launches": (0.5, 0.5, 1.0, ["launch-bound"]),
    "less than half": (0.51, 0.51, 1.0, []),
    # The bound of a region does not exceed its time.
    "512 × 1024 floats on a busy machine": (80e-6, 7.96e-3, 90.9e-6, []),
    "a softmax of 16 MB": (2.1e-3, 6.3e-3, 2.13e-3, []),
    "kernels longer than their region": (100e-6, 100e-6, 91e-6, []),
}


@pytest.mark.parametrize(("kernel_s", "bound_s", "whole_s", "codes"), SECONDS.values(), ids=SECONDS)
def test_findings_from_kernel_times(kernel_s, bound_s, whole_s, codes):
    assert [item.code for item in findings(kernel_s, bound_s, whole_s)] == codes
    too_busy = Noise(rounds=30, disturbed=25)
    assert findings(kernel_s, bound_s, whole_s, noise=too_busy) == []


def test_an_interval_across_a_threshold_gives_no_finding():
    def codes(kernel, between):
        times = ArtifactKernelTimes((KernelTime(kernel, 0.85, BoundBy.COPY),), between, exactly(0.0))
        return [item.code for item in time_findings("r", [dataclasses.replace(PART, times=times)])]

    assert codes(exactly(0.2), exactly(0.8)) == ["launch-bound"]
    assert codes(Figure(0.2, 0.1, 0.9), exactly(0.8)) == []
    assert codes(exactly(0.2), Figure(0.8, 0.1, 0.9)) == []
    assert codes(exactly(0.9), exactly(0.1)) == ["kernel-bound"]
    assert codes(Figure(0.9, 0.8, 1.1), exactly(0.1)) == []
    assert codes(Figure(0.2, why="too few rounds (3)"), exactly(0.8)) == []


def test_a_region_without_kernels_launches_none():
    times = ArtifactKernelTimes((), exactly(1e-5), exactly(0.0), noise=QUIET)
    assert list(time_findings("r", [dataclasses.replace(PART, code=ArtifactCode("x"), times=times)])) == []


@pytest.mark.parametrize(
    ("bound_by", "needs", "remedy"),
    [
        (BoundBy.COPY, "90.0 µs to move their bytes (90%)", "Move fewer bytes"),
        (BoundBy.MATRIX, "90.0 µs for their matrix products (90%)", "Compute less"),
    ],
)
def test_code_at_its_bound_has_a_remedy(bound_by, needs, remedy):
    (item,) = findings(95e-6, 90e-6, 100e-6, bound_by)
    assert f"Of the 100 µs (100 µs to 100 µs) of region 'r', its kernels need at least {needs}" in item.message
    assert item.remedy.startswith(remedy)


def test_recomputed_op_is_found_by_its_remedy():
    kept = ArtifactCode("y", (Kernel("k", KernelKind.REDUCTION, loop_ops={"erf": 1, "add": 3}),))
    again = recomputed_in_kernels("r", PART, kept)
    assert "computes erf 3 times instead of 1 per element" in again.message, "cheap ops do not count"
    assert recomputed_in_kernels("r", PART, PART.code) is None


def test_remedy_must_not_be_slower_anywhere():
    faster, slower, same = (
        timing("remedy", 1.0, None, verdict=verdict) for verdict in (Verdict.FASTER, Verdict.SLOWER, Verdict.SAME)
    )
    assert is_faster_and_never_slower([faster])
    assert is_faster_and_never_slower([faster, same])
    for lost in ([same], [faster, slower], [faster, None]):
        assert not is_faster_and_never_slower(lost)


def other_findings(ex, budget_s=0.4):
    """Return the findings besides ``region-time``, which is always there."""
    time, *others = ex.diagnose("r", budget_s)
    assert time.code == "region-time"
    return others


@pytest.fixture
def one_thread():
    """Use one thread: on busy cores, threads of a team wait for each other, and times mean nothing."""
    with torch_threads(1):
        yield


@pytest.mark.slow
@pytest.mark.compiles
@pytest.mark.usefixtures("one_thread")
def test_recomputed_erf_is_found_with_a_measured_remedy():
    ex = compiled_ex(gelu_norm, torch.randn(512, 768))
    (item,) = [one for one in ex.diagnose("r", 4.0) if one.code == "op-recomputed"]
    assert "erf 3 times instead of 1" in item.message
    assert [line.text for line in item.where] == ["return F.layer_norm(F.gelu(x), (x.shape[-1],))"]
    assert "realize_opcount_threshold" in item.remedy
    assert "measured" in item.remedy
    assert item in ex.diagnostics
    ex.configure("r", {"realize_opcount_threshold": 3}, direction="forward")
    assert item not in ex.diagnostics
    ex.compile()
    assert not [one for one in ex.diagnose("r", 1.0) if one.code == "op-recomputed"]


@pytest.mark.compiles
def test_a_finding_is_about_the_measured_code(monkeypatch):
    ex = compiled_ex(rx.region("r")(lambda x: (x * 2).sin()), torch.randn(8))
    simulate_times(monkeypatch, kernel_s=1e-6, bound_s=None, between_s=9e-6)
    assert ex.diagnose("r", 0.4, run=rx.Run(cancelled=lambda: True)) == []
    (item,) = other_findings(ex)
    assert item.code == "launch-bound"
    assert "spends 90% of its 10.0 µs (10.0 µs to 10.0 µs) outside its 1 kernel" in item.message, (
        "it waits for its launches"
    )
    assert item.where
    plan = ex.plan
    assert item in ex.diagnostics
    ex.mark("later", ops="aten.sin*")
    assert ex.plan["r"] == plan["r"]
    assert item not in ex.diagnostics, "it lost an op to a later region"
    ex.plan = plan
    assert item in ex.diagnostics
    ex.disable("r")
    assert item not in ex.diagnostics
    ex.plan = plan
    with torch._inductor.config.patch(epilogue_fusion=False):
        assert item not in ex.diagnostics
    assert item in ex.diagnostics


@pytest.mark.compiles
def test_each_equal_layer_counts(monkeypatch):
    def layers(x, *weights):
        for weight in weights:
            with rx.region("r"):
                y = x.sin()
            x = y @ weight
        with rx.region("r"):
            return x.sin().sum(0)

    ex = compiled_ex(layers, *(torch.randn(64, 64) for _ in range(4)))
    assert len(set(ex.partitions.artifact)) == 2
    simulate_times(monkeypatch, kernel_s=1e-6, bound_s=None, between_s=9e-6)
    (item,) = other_findings(ex)
    assert "spends 90% of its 40.0 µs (40.0 µs to 40.0 µs) outside its 4 kernels" in item.message
    with pytest.warns(UserWarning, match="traced again"):
        ex.compiled(torch.randn(32, 64), *(torch.randn(64, 64) for _ in range(3)))
    ex.compile()
    assert other_findings(ex) == [item], "one call runs one of the traces"


@pytest.fixture
def unfused_kernels(monkeypatch):
    """Return an exploration of four kernels that were not fused, each as fast as its bound allows."""

    def four_loops(x):
        with rx.region("r", max_fusion_size=1):
            y = x + 1
            return y, y * 2, y - 3, y * 0.5

    simulate_times(monkeypatch, kernel_s=1e-3, bound_s=1e-3, between_s=0.0)
    return compiled_ex(four_loops, torch.randn(1 << 12))


def codes_found(ex):
    return [item.code for item in other_findings(ex, 0.2)]


def fake_race(verdict):
    """Return a fake race, in which each remedy ends with this verdict."""

    def race(_workpiece, _args, _now, candidates, *_):
        return {name: timing(name, 1.0, 1.5, speedup=Figure(1.5, 1.4, 1.6), verdict=verdict) for name in candidates}

    return Mock(side_effect=race)


@pytest.mark.compiles
def test_a_faster_remedy_replaces_the_kernel_bound_finding(unfused_kernels, monkeypatch):
    (part,) = unfused_kernels.code("r")
    assert len(part.code.refused) == 6, "each of four loops with each other"
    assert {one.shared_bytes for one in part.code.refused} == {4 << 12}
    assert (
        unfused_kernels.code("r").kernels.not_fused_with.item()
        == "another loop of this kernel: exceeds max fusion (16.0 KiB)"
    )
    assert "not fused with" in str(unfused_kernels.code("r"))
    monkeypatch.setattr(diagnose, "race", fake_race(Verdict.SAME))
    assert codes_found(unfused_kernels) == ["kernel-bound"]
    monkeypatch.setattr(diagnose, "race", fake_race(Verdict.FASTER))
    (item,) = other_findings(unfused_kernels, 0.2)
    assert item.code == "fusion-refused"
    for text in ("exceeds max fusion", "16.0 KiB", "5 more pairs"):
        assert text in item.message
    assert "'max_fusion_size': 512" in item.remedy
    assert "1.50× (1.40–1.60) as fast" in item.remedy
    assert {line.text for line in item.where} == {"y = x + 1", "return y, y * 2, y - 3, y * 0.5"}


@pytest.mark.slow
@pytest.mark.compiles
@pytest.mark.usefixtures("one_thread")
def test_a_refused_fusion_is_found_with_a_measured_remedy():
    """Nothing is simulated: in one loop ``x`` is read once instead of eight times."""

    def statistics(x):
        with rx.region("r", max_fusion_size=1):
            y = x + 1
            return [(y * scale).abs().amax(0) for scale in range(2, 10)]

    ex = compiled_ex(statistics, torch.randn(1 << 10, 1 << 10))
    (item,) = [one for one in ex.diagnose("r", 8.0) if one.code == "fusion-refused"]
    assert "exceeds max fusion" in item.message
    assert "27 more pairs" in item.message
    assert "'max_fusion_size': 512" in item.remedy
    assert "measured" in item.remedy
    ex.configure("r", {"max_fusion_size": 512}, direction="forward")
    assert item not in ex.diagnostics
    ex.compile()
    assert not [one for one in ex.diagnose("r", 0.5) if one.code == "fusion-refused"]


@pytest.mark.compiles
@pytest.mark.parametrize("wrong", [False, True])
def test_a_remedy_with_wrong_results_is_not_recommended(wrong, unfused_kernels, monkeypatch):
    twin = Program.twin

    def wrong_twin(program, switch, config):
        artifact = twin(program, switch, config)
        return dataclasses.replace(artifact, call=lambda args: [2 * result for result in artifact.call(args)])

    def faster(_rounds, numerics):
        timings = fake_race(Verdict.FASTER)(None, None, None, numerics)
        return [replace(one, numerics=numerics[name]) for name, one in timings.items()]

    if wrong:
        monkeypatch.setattr(Program, "twin", wrong_twin)
    monkeypatch.setattr(alone, "timings_of", faster)
    (item,) = other_findings(unfused_kernels, 0.2)
    assert ("1.50× (1.40–1.60) as fast as now; numerics: ok." in item.remedy) is not wrong
    assert item.code == ("kernel-bound" if wrong else "fusion-refused")


@pytest.mark.compiles
def test_remedy_needs_a_quiet_machine(unfused_kernels, monkeypatch):
    seconds_of = {alone.NOW: 3e-3, "max_fusion_size=512": 2e-3}
    samples = {name: {Phase.FORWARD: (seconds,) * 40} for name, seconds in seconds_of.items()}
    monkeypatch.setattr(timings, "clock_for", clock_for := Mock(return_value=CpuClock()))
    for disturbed, code in ((80, "kernel-bound"), (10, "fusion-refused")):
        rounds = RoundsResult(
            alone.NOW, 5.0, samples, {}, {}, 100, 1, 5.0, StopReason.BUDGET, noise=Noise(100, disturbed)
        )
        monkeypatch.setattr(timings, "run_rounds", Mock(return_value=rounds))
        assert codes_found(unfused_kernels) == [code]
    assert [call.args for call in clock_for.call_args_list] == [(unfused_kernels.session.environment.device,)] * 2


@pytest.mark.compiles
def test_the_budget_goes_only_to_remedies_that_change_code(unfused_kernels, monkeypatch):
    monkeypatch.setattr(diagnose, "race", race := fake_race(Verdict.SAME))
    unfused_kernels.diagnose("r", 0.4)
    ((_workpiece, _args, _now, candidates, _twin, share_s, _context),) = (call.args for call in race.call_args_list)
    assert list(candidates.values()) == [{"max_fusion_size": 512}]
    assert share_s == 0.2


@pytest.mark.compiles
def test_inputs_are_recorded_in_one_run(monkeypatch):
    def three_kinds(x):
        for scale in (2.0, 3.0, 4.0):
            with rx.region("r", max_fusion_size=1):
                left = x + scale
                right = left * scale
            x = left @ right
        return x

    def finding(region, part, _after):
        return DiagnosticCode.FUSION_REFUSED.finding("simulated", region=region, graph=part.partition.graph)

    def race_and_look(_workpiece, args, _now, candidates, *_):
        inputs.append(weakref.ref(args[0]))
        held.append([one() is not None for one in inputs])
        raced_configs.append(list(candidates))
        return {}

    ex, inputs, held, raced_configs, runs = compiled_ex(three_kinds, torch.randn(8, 8)), [], [], [], []
    insights, capture, run_call = ex.live.insights, ex.live.capture, ex.live.capture.run
    parts = ex.code("r").partitions
    monkeypatch.setattr(capture, "run", lambda *args, **kwargs: runs.append("run") or run_call(*args, **kwargs))
    measure_kernel_times(insights, "r", 0.1, Run())
    assert len(insights.kernel_times) == 3
    assert runs == ["run"]

    monkeypatch.setattr(diagnose, "remedies", lambda _: [({"max_fusion_size": size}, finding) for size in (64, 512)])
    monkeypatch.setattr(diagnose, "race", race_and_look)
    diagnose.diagnose(insights, ex.session.environment, "r", parts, 0.1, Run())
    assert raced_configs == [["max_fusion_size=64", "max_fusion_size=512"]] * 3
    assert held == [[True], [True, True], [True, False, True]], "the first is the user's own tensor"
    assert runs == ["run"] * 2

    results = BenchmarkResults()
    monkeypatch.setattr(partitions, "_measure_dispatch", lambda *_: None)
    context = MeasureContext.of(Run(), ex.session.environment)
    partitions.benchmark_partitions(ex.live.variants, 0.1, context, results)
    assert [one.runs for one in results.partition_timings] == [1] * 3
    assert runs == ["run"] * 3


@pytest.mark.compiles
def test_an_interrupt_while_a_remedy_is_timed_ends_the_diagnosis(unfused_kernels):
    seen = []
    threads = InterruptedWhen(lambda: "measuring remedies for r" in seen)
    with pytest.raises(KeyboardInterrupt):
        unfused_kernels.diagnose("r", 0.4, run=rx.Run(progress=lambda doing, _: seen.append(doing), threads=threads))
    assert not unfused_kernels.diagnostics
    assert not unfused_kernels.results.kernel_times("r").empty, "the measured times are kept"


@pytest.mark.compiles
def test_refused_side_by_side_fusion_is_recorded_with_its_reason():
    def many(x):
        y = x + 1
        return [y * (number + 1.5) for number in range(20)]

    ex = compiled_ex(rx.region("r")(many), torch.randn(1 << 12))
    (part,) = ex.code("r")
    assert "cpp.max_horizontal_fusion_size=16" in part.code.refused[0].reason
    _, (config, find) = remedies([part])
    assert config == {"cpp.max_horizontal_fusion_size": 512}
    (kept,) = ex.code("r", config=config)
    assert find("r", part, kept.code) is not None
    assert find("r", part, part.code) is None


@pytest.mark.slow
@pytest.mark.compiles
@pytest.mark.parametrize("code", ["op-recomputed", "fusion-refused", "kernel-bound", "launch-bound", "region-time"])
def test_the_program_of_the_page_shows_its_code(code, tmp_path, monkeypatch):
    if code in ("kernel-bound", "region-time"):
        simulate_times(monkeypatch, kernel_s=1e-3, bound_s=1e-3, between_s=0.0)
    elif code != "launch-bound":  # a launch of eight elements takes longer than its kernel anywhere
        monkeypatch.setattr(diagnose, "race", fake_race(Verdict.FASTER))
    ex = diagnostics_programs.run_page_program(diagnostics_programs.measured_programs()[code], tmp_path)
    (item,) = [one for one in ex.diagnostics if one.code == code]
    assert item.message
    assert item.upstream
    assert item.remedy
    assert item.where
    assert f"*{item.severity}" in diagnostics_programs.page_sections()[code]
