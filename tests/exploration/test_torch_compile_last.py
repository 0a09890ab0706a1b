"""torch.compile in a comparison: the plan's figures come first, and its time is kept."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest
import torch

import regional_explorer as rx
from regional_explorer.measure.machine import Watch
from regional_explorer.measure.variants import Variants
from regional_explorer.record.benchmark import VariantName
from regional_explorer.record.figure import QUIET
from regional_explorer.record.speeds import plan_speed

FULL, REGIONAL = VariantName.FULL, VariantName.REGIONAL


def act(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x).sin().square().mean()


@pytest.fixture
def ex() -> rx.Exploration:
    exploration = rx.explore(act, (torch.randn(64, requires_grad=True),))
    exploration.mark("act", ops="relu")
    return exploration


def on_another_thread(work: Any) -> list[Any]:
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except CancelledError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found


def test_an_interrupt_while_torch_compile_compiles_keeps_the_figures_of_the_plan(
    ex: rx.Exploration, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Variants, "compile", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ex.benchmark(budget_s=0.2)
    assert REGIONAL in ex.session.whole_timings
    assert FULL not in ex.session.whole_timings
    assert not ex.session.is_outdated
    assert ex.session.partition_timings


def test_all_variants_take_turns_in_the_end(ex: rx.Exploration, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine the plan's figures of the first step stay, if only these have a verdict.
    monkeypatch.setattr(Watch, "used_rounds", lambda _, rounds, __=QUIET: (np.ones(rounds, dtype=np.bool_), QUIET))
    ex.benchmark(budget_s=0.2)
    timings = ex.session.whole_timings
    assert not timings[FULL].earlier
    assert len({len(timing.samples_s) for timing in timings.values()}) == 1
    assert ex.session.partition_timings, "the regions are measured once, in the first step"
    assert ex.session.reconciliation


def test_a_cancelled_comparison_with_torch_compile_leaves_the_figures_as_they_were(ex: rx.Exploration) -> None:
    ex.benchmark(["regional"], 0.2, regions=False)
    before = ex.session.whole_timings
    reports: list[str] = []
    run = rx.Run(progress=lambda doing, _: reports.append(doing), cancelled=lambda: "round" in "".join(reports))
    ex.benchmark(["regional", "full"], 60.0, regions=False, run=run)
    assert ex.session.whole_timings == before


def test_torch_compile_is_not_compiled_again_after_a_retrace(ex: rx.Exploration, monkeypatch: Any) -> None:
    ex.benchmark(budget_s=0.2)
    measured = ex.session.whole_timings[FULL]
    ex.retrace(dynamic=False)
    monkeypatch.setattr(Variants, "compile", lambda *_: pytest.fail("it is compiled again"))
    ex.benchmark(budget_s=0.2)
    kept, plan = ex.session.whole_timings[FULL], ex.session.whole_timings[REGIONAL]
    assert kept.earlier
    assert (kept.samples_s, kept.speedup) == (measured.samples_s, measured.speedup)
    assert ex.session.full_cost is not None
    if plan.speedup and kept.speedup:
        speed = plan_speed(ex.session, FULL)
        assert speed.speedup == plan.speedup.over(kept.speedup)
        assert ("earlier run" in speed.why) is not speed.is_certain
    assert "under torch.compile (of an earlier run)" in " ".join(str(ex.answer).split())


def test_a_time_of_torch_compile_stands_for_its_settings_only(ex: rx.Exploration) -> None:
    ex.benchmark(budget_s=0.2)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        ex.benchmark(["eager", "regional"], budget_s=0.2, regions=False)
        assert FULL not in ex.session.whole_timings
    finally:
        torch.set_num_threads(threads)


def test_a_cancel_ends_the_compile_of_a_thread_at_once(ex: rx.Exploration) -> None:
    (error,) = on_another_thread(lambda: ex.live.variants.compile(FULL, lambda: True))
    assert isinstance(error, CancelledError)
    assert not ex.live.variants.is_full_compiled()
    (compiled,) = on_another_thread(lambda: ex.live.variants.compile(FULL))
    x = torch.randn(64, requires_grad=True)
    torch.testing.assert_close(compiled.function(x), act(x))


def test_the_cost_of_the_plan_includes_its_trace_as_that_of_torch_compile_does(ex: rx.Exploration) -> None:
    assert ex.session.plan_cost is None
    ex.compile(cold=True)
    cost = ex.session.plan_cost
    assert cost is not None
    assert cost.cache == "cold"
    assert cost.seconds == pytest.approx(ex.session.trace_s + ex.session.compile_s)
    assert ex.session.trace_s > 0.0
