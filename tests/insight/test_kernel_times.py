"""The times of single kernels: from a build of their own, beside their bounds, and never mixed into other timings."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import regional_explorer as rx
from regional_explorer.compiler.run import Run
from regional_explorer.insight import kernel_times
from regional_explorer.insight.kernel_times import (
    FEWEST_ROUNDS,
    ClockNotes,
    RoundTimes,
    measure_kernel_times,
    timed_code,
    timed_rounds,
    times_of_rounds,
)
from regional_explorer.measure import rates
from regional_explorer.measure.rates import traffic_s
from regional_explorer.record.artifact import ArtifactCode, ArtifactKernelTimes, BoundBy, Kernel, KernelKind, KernelTime

pytestmark = pytest.mark.compiles


def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with rx.region("r"):
        y = torch.sin(x) * 2
        return (y @ w).softmax(-1)


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(512, 512, requires_grad=True), torch.randn(512, 512)


def explored() -> rx.Exploration:
    return rx.explore(block, inputs())


def test_each_kernel_is_timed_beside_its_bound_most_wasted_first() -> None:
    ex = explored()
    ex.compile()
    found = ex.kernel_times("r", 0.2)
    forward = found[found.partition.str.contains("forward")]
    kernels = forward[forward.number.notna()]
    assert sorted(kernels.number) == [1, 2, 3]
    assert (kernels.time_us > 0).all()
    bound_by = dict(zip(kernels.kind, kernels.bound_by, strict=True))
    assert {bound_by["pointwise"], bound_by["reduction"]} == {"copy"}
    assert bound_by["extern call"] in ("matrix product", "copy"), "on a busy machine, copying may take longer"
    wasted = found.wasted_us.dropna()
    assert list(wasted) == sorted(wasted, reverse=True)
    measured = forward[forward.kernel != "not accounted for"]  # which is below zero where clocks cost more than that
    assert (measured.share.dropna() >= 0).all()
    assert list(forward.kernel[forward.number.isna()])[:2] == ["between kernels", "around the generated code"]
    (times,) = [one for one in ex.session.kernel_times if one.artifact == ex.partitions.artifact[0]]
    assert times.between_s > 0
    assert (forward.kernel == "not accounted for").sum() == (not times.adds_up)


@pytest.mark.parametrize("with_clocks", [0.5, 1.0])
def test_what_does_not_add_up_is_said(with_clocks: float) -> None:
    ex = explored()
    ex.compile()
    ex.kernel_times("r", 0.1)
    for key, times in ex.live.insights.kernel_times.items():
        whole_s = 2 * (times.kernels_s + times.between_s + times.around_s)
        ex.live.insights.kernel_times[key] = dataclasses.replace(times, whole_s=whole_s, with_clocks=with_clocks)
    ex.live.insights.revision += 1
    found = ex.results.kernel_times("r")
    assert list(found[found.kernel == "not accounted for"].share) == [pytest.approx(0.5)] * 2
    assert found.groupby("partition").share.sum().tolist() == [pytest.approx(1.0)] * 2


def test_a_disturbed_machine_gives_no_times_below_zero() -> None:
    undisturbed = RoundTimes(whole_s=1e-3, generated_s=9e-4, clocked_s=1e-3, kernels_s=8e-4)
    paused_in_generated = dataclasses.replace(undisturbed, generated_s=8e-3)
    times = times_of_rounds("key", (), [undisturbed, *[paused_in_generated] * 4], build_s=1.0)
    assert times.around_s == 0.0
    assert times.with_clocks == pytest.approx(1.0)
    assert times_of_rounds("key", (), [undisturbed] * 5, build_s=1.0).with_clocks == pytest.approx(1.1)


def test_each_of_the_three_calls_comes_first_as_often() -> None:
    """What is in the caches from the call before shall not be to the good of one of them alone."""
    order: list[str] = []
    whole, clocked, generated = (functools.partial(order.append, name) for name in ("whole", "clocked", "generated"))
    rounds = timed_rounds(whole, clocked, generated, lambda: None, ClockNotes(), 0.0, Run())
    assert len(rounds) == FEWEST_ROUNDS
    in_rounds = [order[start : start + 3] for start in range(0, len(order), 3)]
    assert all(sorted(names) == ["clocked", "generated", "whole"] for names in in_rounds)
    assert [names[0] for names in in_rounds] == ["clocked", "generated", "whole"] * 2


def test_code_with_clocks_that_computes_something_else_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    ex = explored()
    ex.compile()
    monkeypatch.setattr(kernel_times, "timed_code", lambda code: re.sub(r"\bsin\b", "cos", timed_code(code)))
    found = ex.kernel_times("r", 0.1)
    forward = found[found.partition.str.contains("forward")]
    assert list(forward.problem) == ["the code with clocks gives other results"]


def test_timings_never_come_from_the_build_with_clocks() -> None:
    ex = explored()
    ex.benchmark(("eager", "regional"), 0.1)
    before = ex.session
    artifacts = dict(ex.live.program.store.artifacts)
    running = [switch.artifact for switch in ex.live.program.switches]
    ex.kernel_times("r", 0.1)
    after = ex.session
    assert after.kernel_times
    assert (after.timings, after.partition_timings, after.reconciliation) == (
        before.timings,
        before.partition_timings,
        before.reconciliation,
    )
    assert after.compile_costs == before.compile_costs
    assert ex.live.program.store.artifacts == artifacts
    assert [switch.artifact for switch in ex.live.program.switches] == running
    assert "_regional_explorer_clock" not in "".join(code.text for code in after.codes)


def test_the_build_with_clocks_says_what_it_cost() -> None:
    ex = explored()
    ex.compile()
    ex.kernel_times("r", 0.1)
    assert all(found.build_s > 0 and found.rounds >= 5 for found in ex.session.kernel_times)


def test_results_of_the_call_are_as_before() -> None:
    x, w = inputs()
    ex = rx.explore(block, (x, w))
    ex.compile()
    before = x.detach().clone()
    ex.kernel_times("r", 0.1)
    torch.testing.assert_close(x.detach(), before)
    torch.testing.assert_close(ex.compiled(x, w), block(x, w))


def test_cancelled_nothing_is_kept_half_done() -> None:
    ex = explored()
    ex.compile()
    assert ex.kernel_times("r", 5.0, run=rx.Run(cancelled=lambda: True)).empty
    assert ex.session.kernel_times == ()


def test_saved_and_loaded_the_times_are_there(tmp_path: Any) -> None:
    ex = explored()
    ex.compile()
    found = ex.kernel_times("r", 0.1)
    loaded = rx.load(ex.save(tmp_path / "x.json")).kernel_times("r")
    assert loaded.to_string() == found.to_string()


def test_code_that_cannot_be_timed_says_why() -> None:
    ex = explored()
    ex.compile()
    ex.code("r")
    for key, code in ex.live.insights.codes.items():
        ex.live.insights.codes[key] = ArtifactCode(key, "raise RuntimeError('planted')\n" + code.text, code.kernels)
    found = ex.kernel_times("r", 0.1)
    assert all("planted" in problem for problem in found.problem)


def test_kernels_on_another_device_are_refused_and_not_timed_by_the_clock_of_the_host() -> None:
    ex = explored()
    ex.compile()
    ex.code("r")
    for switch in ex.live.program.switches:
        switch.outputs = tuple(dataclasses.replace(layout, device="cuda:0") for layout in switch.outputs)
    measure_kernel_times(ex.live.insights, "r", 0.1, Run())
    for times in ex.live.insights.kernel_times.values():
        assert times.problem == (
            "kernels on cuda are not timed: ex.benchmark() times the region, torch.profiler its kernels"
        )


def test_a_clock_stands_around_each_launch_and_nothing_else_changes() -> None:
    code = ArtifactCode(
        "a",
        "def call(args):\n    a = 1\n    k0(a)\n    extern_kernels.mm(a,\n        a)\n",
        (Kernel("k0", KernelKind.POINTWISE, called=3), Kernel("extern_kernels.mm", KernelKind.EXTERN, called=4)),
    )
    lines = timed_code(code).splitlines()
    assert [line.strip() for line in lines if "_regional_explorer" in line or "k0" in line] == [
        "_t = _regional_explorer_clock()",
        "k0(a)",
        "_regional_explorer_note(0, _regional_explorer_clock() - _t)",
    ]


def test_wasted_is_what_lies_beyond_the_bound_and_unknown_without_one() -> None:
    assert KernelTime(3.0, 0.1, 1.0, BoundBy.COPY).wasted_s == 2.0
    assert KernelTime(1.0, 0.1, 3.0, BoundBy.COPY).wasted_s == 0.0
    assert KernelTime(1.0, 0.1).wasted_s is None
    assert ArtifactKernelTimes("a", (KernelTime(1.0, 0.0), None), whole_s=3.0).kernels_s == 1.0


def test_more_bytes_take_longer_and_reading_takes_no_longer_than_copying(monkeypatch: pytest.MonkeyPatch) -> None:
    def best_s(_call: object, fresh: Callable[[], torch.Tensor]) -> float:
        """Copy 10 GB a second; a sum, which has one result, takes long to start."""
        elements = fresh().numel()
        return 8 * elements / 1e10 if elements > 1 else 1.0

    monkeypatch.setattr(rates, "_best_s", best_s)
    for rate in ("_copy_rate", "_read_rate"):  # what this process has measured already does not count here
        monkeypatch.setattr(rates, rate, getattr(rates, rate).__wrapped__)
    assert traffic_s(1 << 25, 1 << 25) > traffic_s(1 << 19, 1 << 19) > 0
    assert 0 < traffic_s(1 << 26, 0) <= traffic_s(1 << 25, 1 << 25)
    assert traffic_s(0, 1 << 20) == traffic_s(1 << 19, 1 << 19), "fresh memory is as slow to fill as to copy to"
