"""Where the gain of a plan over ``torch.compile`` comes from: each of its changes is left out in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

import numpy as np
from msgspec.structs import replace

from regional_explorer.errors import MeasureError, NoCompilerError, error_line
from regional_explorer.measure.rounds import figure_of
from regional_explorer.measure.timings import measure_rounds
from regional_explorer.record.benchmark import Phase
from regional_explorer.record.figure import Noise, exactly
from regional_explorer.record.plan import AS_TORCH_COMPILE, Plan, Region, UserFunction, config_texts
from regional_explorer.record.statistics import Floats
from regional_explorer.record.tuning import PLAN_FOUND, TOGETHER, TORCH_COMPILE, GainPart, Outcome
from regional_explorer.tuning.bench import Bench, P
from regional_explorer.tuning.budget import Spending

TIMING_SHARE = 0.4
"""The share of the budget for the rounds."""
_NOTHING = "There is no gain to take apart: "


def without_each_change(plan: Plan) -> dict[str, Plan]:
    """Return the plan without one of its changes, by the change: its way of tracing, a key of a config, a pass."""
    others = {}
    if plan.tracing != AS_TORCH_COMPILE:
        others[str(plan.tracing)] = plan.traced(AS_TORCH_COMPILE)
    configs = [{key: value} for region in plan.regions for _, config in region.configs for key, value in config.items()]
    for text, change in {text: config for config in configs for text in config_texts(config)}.items():
        others[text] = replace(plan, regions=tuple(_without(region, change) for region in plan.regions))
    for one in {one for region in plan.regions for one in region.treatment.passes}:
        others[str(one)] = replace(plan, regions=tuple(_without_pass(region, one) for region in plan.regions))
    return others


def _without_pass(region: Region, one: UserFunction) -> Region:
    passes = tuple(each for each in region.treatment.passes if each != one)
    return replace(region, treatment=replace(region.treatment, passes=passes))


def _without(region: Region, change: Mapping[str, Any]) -> Region:
    def rest(config: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in config.items() if (key, value) not in change.items()}

    backward = region.backward_config
    return replace(region, config=rest(region.config), backward_config=None if backward is None else rest(backward))


def gain_parts(bench: Bench[P], plan: Plan, budget_s: float) -> tuple[GainPart, ...]:
    """Time a call under ``torch.compile``, under a plan, and under the plan without each of its changes, in turns.

    The parts go from the time of ``torch.compile`` over what each change saves to the time of the plan, and add up. A
    change without which the plan fails or is wrong is not named: its gain is part of ``together``.

    Raises:
        MeasureError: the plan or ``torch.compile`` fails or is wrong, or no round was complete.
        CancelledError, KeyboardInterrupt: it was cancelled or interrupted.
    """
    time, phase = Spending(bench, budget_s, str), Phase.STEP if bench.grad else Phase.FORWARD
    prepared: dict[str, P] = {}
    with time.step("compiling", "starting the toolchain"):
        bench.start()
    with time.step("tracing", "leaving out each change of the plan"):
        for title, other in {PLAN_FOUND: plan, **without_each_change(plan)}.items():
            with _unnamed_if_it_fails(title):
                prepared[title] = bench.prepare(other)
    until_s = time.began_s + budget_s * (1.0 - TIMING_SHARE)
    with time.step("compiling", "compiling the plan without each of its changes"):
        built = dict(zip(prepared, bench.compile([*prepared.values()], time.reporting(until_s=until_s)), strict=True))
        with _unnamed_if_it_fails(TORCH_COMPILE):
            full, _ = bench.full()
    time.stop_if_cancelled()
    codes = {title: result.code for title, result in built.items() if result is not None and not result.failure}
    if PLAN_FOUND not in codes:
        raise MeasureError(f"{_NOTHING}{PLAN_FOUND} could not be compiled.")
    inert = [title for title in codes if title != PLAN_FOUND and codes[title] == codes[PLAN_FOUND]]
    timed = [title for title in codes if title not in inert]
    with time.step("checking", "checking numerics"):
        right = [title for title in (TORCH_COMPILE, *timed) if _is_right(bench, title, prepared.get(title))]
    calls = [full, *(bench.call(prepared[title], title) for title in right if title != TORCH_COMPILE)]
    doing = "timing the plan without each of its changes"
    with time.step("timing", doing, timed=True), bench.measuring(bench.context) as context:
        result = measure_rounds(calls, budget_s * TIMING_SHARE, context, baseline=TORCH_COMPILE)
        failed = {*result.dropped, *(title for title in timed if bench.trouble(prepared[title]))}
    result.stopped.raise_if_ended()
    samples = {title: result.samples.get(title, {}).get(phase) for title in right if title not in failed}
    seconds = {title: np.array(values) for title, values in samples.items() if values}
    if not {PLAN_FOUND, TORCH_COMPILE} <= seconds.keys():
        raise MeasureError(f"{_NOTHING}{PLAN_FOUND} and {TORCH_COMPILE} could not be timed together.")
    return tuple(_bars(seconds, inert, result.noise))


@contextmanager
def _unnamed_if_it_fails(title: str) -> Iterator[None]:
    """Context manager: ignore what fails without a change.

    Raises:
        MeasureError: the plan itself fails, or ``torch.compile``.
    """
    try:
        yield
    except (CancelledError, NoCompilerError):
        raise
    except Exception as error:  # torch may raise anything in other ways of tracing
        if title in (PLAN_FOUND, TORCH_COMPILE):
            raise MeasureError(f"{_NOTHING}{title} fails: {error_line(error)}") from error


def _is_right(bench: Bench[P], title: str, prepared: P | None) -> bool:
    """Return whether the results are those of eager; raise MeasureError if they have to be."""
    outcome, why = Outcome.FAILED, ""
    with _unnamed_if_it_fails(title):
        outcome, why, *_ = bench.check(prepared)
    if outcome is not Outcome.MEASURED and title in (PLAN_FOUND, TORCH_COMPILE):
        raise MeasureError(f"{_NOTHING}the results of {title} are not those of eager: {why}.")
    return outcome is Outcome.MEASURED


def _bars(seconds: Mapping[str, Floats], inert: Sequence[str], noise: Noise) -> Iterator[GainPart]:
    """Yield the bars from the seconds of the calls by round."""
    full_s, plan_s = seconds[TORCH_COMPILE], seconds[PLAN_FOUND]
    saved = {title: values - plan_s for title, values in seconds.items() if title not in (TORCH_COMPILE, PLAN_FOUND)}
    full, plan = figure_of(full_s, noise), figure_of(plan_s, noise)
    changes = {title: figure_of(values, noise) for title, values in saved.items()}
    # Medians do not add up: the rest is what makes the bars do so, with an interval that includes it.
    together_s = full.value - plan.value - sum(change.value for change in changes.values())
    together = figure_of(full_s - plan_s - sum(saved.values()), noise)
    if together.bounds is not None:
        low, high = together.bounds
        together = replace(together, low=min(together_s, low), high=max(together_s, high))
    yield GainPart(TORCH_COMPILE, full)
    for title, change in changes.items():
        yield GainPart(title, change, is_change=True)
    for title in inert:
        yield GainPart(title, exactly(0.0), "the code is the same without it", is_change=True)
    yield GainPart(TOGETHER, replace(together, value=together_s), is_change=True)
    yield GainPart(PLAN_FOUND, plan)
