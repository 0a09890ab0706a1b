"""Partitions measured alone: recorded inputs, equal ones once, sums, and withheld speedups."""

from dataclasses import replace
from enum import Enum
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import regional_explorer as rx
from regional_explorer.errors import MeasureError
from regional_explorer.exploration.measurements import MEASURED_AGAIN
from regional_explorer.measure import benchmark
from regional_explorer.measure.alone import copied_tensors, record_inputs
from regional_explorer.measure.partitions import benchmark_partitions
from regional_explorer.measure.reference import check_partition
from regional_explorer.measure.timings import MeasureContext
from regional_explorer.measure.tolerances import RoundingRun
from regional_explorer.record.benchmark import Numerics, NumericsVerdict, Phase, VariantName, Verdict
from regional_explorer.record.figure import QUIET, Noise
from regional_explorer.tables.benchmark import timings_table
from regional_explorer.torch_api.graphs import inductor_keeps_random_order
from tests.shared import programs
from tests.shared.checks import change_code, codes, only, version_of
from tests.shared.fakes import FakeClock, InterruptedWhen, TickingClock, timed_by
from tests.shared.work import torch_threads

pytestmark = pytest.mark.compiles

DELAY_S = 0.005


@pytest.fixture
def stack():
    """Three equal layers of 30 µs in each direction, half of that if compiled, and 20 µs around them."""
    clock = FakeClock()

    def spend_and_clone(x: torch.Tensor, microseconds: int) -> torch.Tensor:
        clock.spend(microseconds * 1e-6)
        return x.clone()

    def setup_context(ctx, inputs, output):
        ctx.microseconds = inputs[1]

    spend = torch.library.custom_op("regional_explorer_tests::spend", mutates_args=())(spend_and_clone)
    spend.register_fake(lambda x, microseconds: torch.empty_like(x))
    spend.register_autograd(lambda ctx, grad: (spend(grad, ctx.microseconds), None), setup_context=setup_context)

    class Layer(programs.Layer):
        def forward(self, x):
            return spend(super().forward(x), 30)

    class Stack(programs.Stack):
        def forward(self, x):
            return super().forward(spend(x, 20))

    model = Stack()
    model.layers = torch.nn.ModuleList(Layer() for _ in range(3))
    ex = rx.explore(model, (torch.randn(4, 16, requires_grad=True),)).mark("layers", modules="layers.*")
    ex.compile()
    change_code(ex, clock.twice_as_fast)
    return ex, clock


@pytest.fixture
def two_regions():
    """Return an exploration of two regions, compiled."""
    ex = rx.explore(programs.neighbours, programs.pair(grad=False))
    ex.compile()
    return ex


def test_distinct_partitions_are_measured_once_and_parts_add_up(stack):
    ex, clock = stack
    before = torch.get_rng_state()
    with timed_by(clock):
        ex.benchmark(variants=("aot_eager", "regional"), budget_s=0.03)
    assert torch.equal(torch.get_rng_state(), before)

    alone = ex.partitions
    assert (alone.eager_us > 0).all()
    assert (alone.compiled_us > 0).all()
    assert set(alone.numerics) == {"ok"}
    distinct = len({part.artifact for part in ex.session.partitions})
    assert distinct <= alone.measured_as.isna().sum() < len(alone)
    shared = alone[alone.measured_as.notna()].iloc[0]
    sampled = alone.set_index("partition").loc[shared.measured_as]
    assert (shared.eager_us, shared.samples) == (sampled.eager_us, sampled.samples)
    for timing in ex.session.partition_timings:
        assert bool(timing.eager.samples_s) is bool(timing.compiled.samples_s) is (timing.measured_as is None)

    for table in (ex.timings, ex.numerics, ex.compile_costs, ex.regions, ex.reconciliation, alone):
        assert not any(isinstance(value, Enum) for value in table.to_numpy().flat), "plain text, to copy anywhere"
    (region,) = ex.regions.itertuples()
    assert region.eager_us == pytest.approx((alone.eager_us * alone.runs).sum())
    assert region.compile_s == pytest.approx(ex.session.compile_s)
    assert region.compile_s <= ex.partitions.compile_s.sum()
    assert set(ex.region_numerics.partition) == set(alone[alone.measured_as.isna()].partition)

    takes_us = {"forward": 30.0, "backward": 30.0, "step": 60.0}
    assert set(ex.reconciliation.phase) == set(takes_us)
    for phase, rows in ex.reconciliation.groupby("phase"):
        layer_us = takes_us[phase]
        around_us = layer_us * 20 / 30
        expected = {
            "eager": 3 * layer_us + around_us,
            "AOT wrapper": 0.0,
            "aot_eager": 3 * layer_us + around_us,
            "dispatch of the cut graph": 0.0,
            "layers": -1.5 * layer_us,
            "rest": 0.0,
            "regional": 1.5 * layer_us + around_us,
        }
        assert rows.part.tolist() == list(expected)
        assert rows.time_us.tolist() == pytest.approx(list(expected.values()), abs=1e-3)
        total = rows[rows.total].set_index("part").time_us
        medians = ex.timings[ex.timings.phase == phase].set_index("variant").median_us
        assert total.to_dict() == medians[list(total.index)].to_dict()
    assert set(ex.timings[ex.timings.peak_bytes.notna()].variant) == {"eager", "aot_eager", "regional"}

    ex.configure("layers", {"size_asserts": False}).compile()  # other code of the same kernels
    assert ex.regions.eager_us.isna().all(), "figures of artifacts that no longer run"


def test_measuring_more_adds_rounds_of_the_same_code_and_settings(two_regions, monkeypatch):
    ex, variants = two_regions, ("aot_eager", "regional")

    def measure_and_count(names=variants, *, more=True):
        """Measure; return the number of benchmarks that the samples come from."""
        ex.benchmark(names, budget_s=0.3, more=more)
        return ex.session.conditions.benchmarks

    with timed_by(TickingClock()):
        assert measure_and_count() == 1
        first = ex.session
        with monkeypatch.context() as patch:
            for step in ("check_numerics", "_read_memory"):
                patch.setattr(f"regional_explorer.measure.benchmark.{step}", None)
            patch.setattr("regional_explorer.exploration.measurements.benchmark_partitions", None)
            assert measure_and_count() == 2, "nothing but rounds"
        second = ex.session
        for before, now in zip(first.timings, second.timings, strict=True):
            assert now.samples_s[: len(before.samples_s)] == before.samples_s
            assert len(now.samples_s) > len(before.samples_s)
            assert now.numerics is before.numerics
        for kept in ("numerics", "partition_timings", "partition_numerics", "memory", "variant_costs"):
            assert getattr(second, kept) == getattr(first, kept)
        assert second.conditions.noise_beside == first.conditions.noise_beside
        assert {row.part for row in second.reconciliation} == {row.part for row in first.reconciliation}
        assert second.conditions.rounds == len(second.timings[0].samples_s)
        assert second.conditions.budget_s == 0.6
        assert "in 2 benchmarks" in timings_table(second).notes()[0]
        assert len(ex.runs) == 1
        assert measure_and_count() == 3
        assert measure_and_count(None) == 4, "by default the variants that were measured"
        assert measure_and_count(more=False) == 1
        with pytest.raises(MeasureError, match="No rounds can be added: the benchmark before compared other variants"):
            measure_and_count(("regional",))
        threads = torch.get_num_threads()
        with (
            torch_threads(threads + 1),
            pytest.raises(MeasureError, match=rf"now there is {threads + 1} threads \(measured with {threads}\)"),
        ):
            measure_and_count()
        assert ex.session.conditions.benchmarks == 1, "its figures stay"
        ex.disable("first")
        assert measure_and_count(("regional",)) == 1, "another plan"
        ex.enable("first")
        assert ex.session.conditions.benchmarks == 1


def test_a_benchmark_on_a_busy_machine_does_not_replace_one_with_a_verdict(two_regions, monkeypatch):
    ex, variants = two_regions, ("aot_eager", "regional")

    def measure(*, others):
        """Measure beside other work, which disturbs all rounds but one in ten."""

        def used_rounds(watch, rounds, earlier=QUIET):
            disturbed = rounds - rounds // 10 if others else 0
            return np.ones(rounds, dtype=np.bool_), Noise(rounds, disturbed, others=others, cores=2)

        monkeypatch.setattr("regional_explorer.measure.machine.Watch.used_rounds", used_rounds)
        ex.benchmark(variants, budget_s=0.3)
        return ex.session

    with timed_by(TickingClock()):
        assert any(row.verdict is Verdict.BUSY for row in measure(others=1.5).timings), "there is no earlier figure"
        quiet = measure(others=0.0)
        busy = measure(others=1.5)
        assert not any(row.verdict.is_unsure for row in quiet.timings)
        assert busy.timings == quiet.timings
        assert MEASURED_AGAIN in busy.noise.sentence
        assert MEASURED_AGAIN not in measure(others=0.0).noise.sentence


def test_a_slow_eager_piece_shows_up_as_a_gain(two_regions):
    ex, clock = two_regions, TickingClock()
    second = next(switch for switch in ex.live.program.switches if switch.piece.claim.region == "second")
    eager = second.piece.eager
    second.piece.eager = lambda *args: clock.spend(DELAY_S) or eager(*args)
    with timed_by(clock):
        ex.benchmark(variants=("regional",), budget_s=0.5)
    eager_us = ex.regions.set_index("region").eager_us
    assert eager_us["second"] == pytest.approx(DELAY_S * 1e6 + 1000)
    assert eager_us["first"] == pytest.approx(1000)
    assert "region-worth" not in codes(ex), "the whole call is not faster"


def test_disabled_region_is_measured_eagerly(two_regions):
    ex = two_regions.disable("first")
    ex.benchmark(variants=("regional",), budget_s=0.1, regions=False)
    assert ex.partitions.eager_us.isna().all()
    assert ex.reconciliation.empty
    ex.benchmark(variants=("regional",), budget_s=1.0)
    row = ex.regions.set_index("region").loc["first"]
    assert row.eager_us > 0
    assert row[["compiled_us", "speedup", "pays_off_after_calls"]].isna().all()


def wrong_artifact(artifact, **changes):
    """Return the artifact with results that are off by a hundredth."""
    return replace(artifact, call=lambda args: tuple(value * 1.01 for value in artifact.call(args)), **changes)


def test_wrong_code_gets_no_speedup_and_no_cure(two_regions):
    ex, program, twins = two_regions, two_regions.live.program, []
    switch = program.switches[0]
    key, wrong = switch.artifact.key, wrong_artifact(switch.artifact)
    program.store.artifacts[key] = wrong
    program.twin = lambda _switch, config: twins.append(dict(config)) or wrong
    program.apply_artifacts()
    with timed_by(TickingClock()):
        ex.benchmark(variants=("regional",), budget_s=0.5)
    rows = ex.regions.set_index("region")
    assert rows.numerics["first"] == "failed"
    assert rows.worst_tensor["first"] in switch.piece.outputs
    assert rows.speedup.isna()["first"]
    assert rows.speedup.notna()["second"]
    found = only(ex, "region-numerics")
    assert "ex.disable('first')" in found.remedy
    assert {"emulate_precision_casts": True} in twins
    ex.disable("first")
    assert "region-numerics" not in codes(ex), "the code no longer runs"


def test_refused_inputs_are_reported_not_timed(two_regions):
    ex, program = two_regions, two_regions.live.program
    switch = program.switches[0]
    artifact = switch.artifact
    program.store.artifacts[artifact.key] = replace(artifact, call=Mock(side_effect=RuntimeError("injected")))
    program.apply_artifacts()
    context = MeasureContext.of(rx.Run(), ex.session.environment)
    benchmark_partitions(ex.live.variants, 0.2, context, results := benchmark.BenchmarkResults())
    compiled = {timing.partition: timing.compiled for timing in results.partition_timings}
    assert [timing is None for timing in compiled.values()] == [True, False]
    assert "first" in next(iter(compiled))
    assert {row.partition for row in results.partition_numerics} == {program.switches[1].partition.name}
    assert "injected" in switch.refusal
    assert ex.partitions.state.tolist() == ["failed", "compiled"]


def test_a_config_that_corrects_results_is_found():
    """A twin that refuses the inputs is no cure, though the eager piece in its place gives eager's results."""
    ex = rx.explore(lambda x, y: F.gelu(x * y) * x + y, programs.pair(grad=False)).mark("r", ops="*")
    ex.compile()
    (switch,) = ex.live.program.switches
    right = switch.artifact
    wrong = wrong_artifact(right, key="wrong")
    refusing = replace(wrong, key="refusing", call=Mock(side_effect=RuntimeError))
    for twin, cure in ((right, {"emulate_precision_casts": True}), (refusing, None)):
        (recorded,) = record_inputs(ex.live.program, [[switch]])
        twins = Mock(side_effect=lambda config, twin=twin: twin if "emulate_precision_casts" in config else wrong)
        check = check_partition(switch.known_workpiece, recorded.args, wrong, twins)
        assert (check.verdict, check.cure) == ("failed", cure)
        assert switch.artifact is right, "a check changes nothing that calls run"


def test_a_piece_with_random_ops_is_checked_on_a_twin():
    ex = rx.explore(programs.dropout_between_blocks, programs.pair())
    ex.compile()
    before = torch.get_rng_state()
    program = ex.live.program
    random_switch = next(switch for switch in program.switches if switch.piece.is_random)
    (recorded,) = record_inputs(program, [[random_switch]])
    restore, outputs = random_switch.known_workpiece.restorer(recorded.args), []
    for _ in range(2):
        restore()
        outputs.append(random_switch.piece.eager(list(recorded.args))[0])
    assert torch.equal(*outputs)
    torch.set_rng_state(before)
    check = check_partition(
        random_switch.known_workpiece, recorded.args, random_switch.artifact, partial(program.twin, random_switch)
    )
    assert check.verdict == "ok"
    assert all("fallback_random" in row.note for row in check.rows)
    assert torch.equal(torch.get_rng_state(), before)


def test_recorded_inputs_are_not_copied():
    x, y = programs.pair(grad=False)
    ex = rx.explore(lambda a, b: a * b + 1, (x.T, y)).mark("r", ops="*")
    (switch,) = ex.live.program.switches
    (recorded,) = record_inputs(ex.live.program, [[switch]])
    assert {arg.data_ptr() for arg in recorded.args} == {x.data_ptr(), y.data_ptr()}
    assert x.T.stride() in {arg.stride() for arg in recorded.args}
    assert recorded.runs == {switch: 1}


def test_copied_views_of_one_storage_still_share_a_storage():
    base, known = torch.arange(12.0), {}
    whole, part, number = copied_tensors((base.view(3, 4).T, base[4:8], 3), known)
    assert torch.equal(whole, base.view(3, 4).T)
    assert (whole.stride(), part.storage_offset(), number) == ((1, 4), 4, 3)
    assert whole.untyped_storage().data_ptr() == part.untyped_storage().data_ptr() != base.data_ptr()
    (again,) = copied_tensors((base[:2],), known)
    assert again.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr(), "one copy of all that share it"
    base.data.zero_()
    (zeros,) = copied_tensors((base[4:8],), known)
    assert torch.equal(zeros, torch.zeros(4)), "a storage that was written since is copied again"
    assert torch.equal(part, torch.arange(4.0, 8.0))


def test_python_between_graphs_may_write_recorded_inputs():
    def f(x):
        with rx.region("r"):
            a = x.sin()
            b = a.cos()
        print("a graph break")
        a.zero_()
        with rx.region("s"):
            return b + a.exp()

    ex = rx.explore(f, (torch.ones(4),))
    last = next(switch for switch in ex.live.program.switches if switch.piece.claim.region == "s")
    (recorded,) = record_inputs(ex.live.program, [[last]])
    assert any(torch.equal(arg, torch.zeros(4)) for arg in recorded.args)
    x = torch.ones(4)
    ex.benchmark(variants=("regional",), budget_s=0.2)
    assert torch.equal(x, torch.ones(4))
    assert set(ex.regions.dropna(subset="eager_us").region) == {"r", "s"}


def test_buffers_and_version_counters_are_unchanged():
    norm = torch.nn.BatchNorm1d(4)
    mean = norm.running_mean.clone()
    ex = rx.explore(norm, (torch.randn(8, 4),)).mark("norm", ops="aten.*norm*")
    version = version_of(norm.running_mean)
    ex.benchmark(variants=("regional",), budget_s=0.2)
    assert torch.equal(norm.running_mean, mean)
    assert version_of(norm.running_mean) == version
    assert {timing.eager.phase for timing in ex.session.partition_timings} == {Phase.FORWARD, Phase.BACKWARD}


def test_autocast_casts_are_timed_and_nothing_is_retraced():
    with torch.autocast("cpu", torch.bfloat16):
        ex = rx.explore(torch.nn.Linear(4, 4), (torch.randn(2, 4),)).mark("r", ops="*")
        eager, frames = ex.live.variants.get(VariantName.EAGER), len(ex.live.capture.frames)
        casts = []
        for _ in range(3):
            eager.before()
            with torch.profiler.profile() as profile:
                eager.forward()
            casts.append(sum(event.count for event in profile.key_averages() if event.key == "aten::_to_copy"))
        ex.benchmark(variants=("regional",), budget_s=0.1)
    assert casts[0] == casts[1] == casts[2] >= 2  # of the input, and of the weights
    assert len(ex.live.capture.frames) == frames
    assert set(ex.regions.numerics) == {"ok"}


def cond_of_two_branches(x):
    return torch.cond(x.sum() > 0, lambda a: a.sin() * 2 + 1, lambda a: a.cos() - 1, (x,))


def cond_of_unbacked_size(x):
    return torch.cond(x.sum() > 0, lambda a: a.sum(0), lambda a: (a.cos() * 2).sum(0), (x.nonzero().float(),))


@pytest.mark.parametrize(
    ("function", "ops", "runs"),
    [
        (cond_of_two_branches, ["aten.sin*", "aten.mul*", "aten.cos*"], [0, 1]),
        (cond_of_unbacked_size, ["aten.mul*", "aten.cos*"], [0]),
    ],
)
def test_branch_not_taken_is_reported_not_timed(function, ops, runs):
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        ex = rx.explore(function, (torch.ones(4),), grad=False).mark("r", ops=ops)
        ex.benchmark(variants=("regional",), budget_s=0.2)
    assert sorted(ex.partitions.runs) == runs


def test_cancel_keeps_results(two_regions):
    ex, steps = two_regions, []

    def benchmark_until(text):
        run = rx.Run(lambda: any(text in doing for doing, _ in steps), lambda *step: steps.append(step))
        ex.benchmark(variants=("regional",), budget_s=0.4, run=run)

    benchmark_until("alone (2 of")
    assert len(ex.timings) == 2
    assert ex.partitions.eager_us.notna().sum() == 1
    fractions = [fraction for _, fraction in steps]
    assert fractions == sorted(fractions), "a bar never goes back"
    measured, alone = ex.timings, ex.partitions
    steps.clear()
    benchmark_until("numerics")
    assert any("numerics" in doing for doing, _ in steps)
    assert ex.timings.equals(measured)
    assert ex.partitions.equals(alone)
    assert ex.compiled(*programs.pair(grad=False)) is not None


@pytest.mark.parametrize(
    ("at", "budget_s", "measured"),
    [("round", 10.0, 0), ("alone: warming up", 0.4, 0), ("dispatch", 0.4, 2)],  # on a busy machine 0.4 s is one round
)
def test_interrupt_keeps_results_and_is_raised(two_regions, at, budget_s, measured):
    ex, tasks = two_regions, []
    threads = InterruptedWhen(lambda: tasks and at in tasks[-1])
    run = rx.Run(progress=lambda doing, _: tasks.append(doing), threads=threads)
    with pytest.raises(KeyboardInterrupt):
        ex.benchmark(("regional",), budget_s, run=run)
    assert at in tasks[-1], "no step comes after it"
    assert len(ex.timings) == 2
    assert ex.partitions.eager_us.notna().sum() == measured
    assert ex.compiled(*programs.pair(grad=False)) is not None


def test_regional_without_regions_is_not_timed():
    ex = rx.explore(programs.textbook, programs.pair(grad=False), plan=rx.Plan())
    timings = ex.benchmark(variants=("eager", "aot_eager", "regional"), budget_s=0.1)
    assert set(timings.variant) == {"eager", "aot_eager"}
    assert set(ex.benchmark(variants=("eager", "regional"), budget_s=0.1).variant) == {"eager", "regional"}


@pytest.mark.parametrize(("as_eager", "verdict"), [(False, "not comparable"), (True, "failed")])
def test_wrong_results_of_random_ops_fail_with_equal_numbers(as_eager, verdict, monkeypatch):
    """The twin of ``full`` has eager's random numbers, unless this torch may reorder them; ``upstream`` has no twin."""
    monkeypatch.setattr(
        benchmark, "compare_results", lambda name, *_: (Numerics(name, "output", verdict=NumericsVerdict.FAILED),)
    )
    with torch._inductor.config.patch(fallback_random=as_eager):
        ex = rx.explore(programs.dropout_between_blocks, programs.pair(grad=False))
        ex.benchmark(("full", "upstream"), budget_s=0.1, regions=False)
    of_full = "failed" if as_eager or inductor_keeps_random_order() else "not comparable"
    assert dict(zip(ex.numerics.variant, ex.numerics.verdict, strict=True)) == {"full": of_full, "upstream": verdict}


def test_rounding_is_not_examined_for_other_random_numbers(monkeypatch):
    monkeypatch.setattr(RoundingRun, "run_node", lambda *_: pytest.fail("rounding was examined"))
    ex = rx.explore(programs.dropout_between_blocks, programs.pair(grad=False))
    ex.benchmark(("full",), budget_s=0.1, regions=False)
    (row,) = ex.numerics.itertuples()
    assert (row.variant, row.verdict) == ("full", "ok")
    assert row.note == "checked on a twin compiled with fallback_random"
