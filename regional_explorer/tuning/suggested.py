"""Measures suggested regions: what each saves in the whole call, compiled, beside the trace run eagerly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError

from msgspec.structs import replace

from regional_explorer.errors import NoCompilerError, in_a_line
from regional_explorer.record.plan import Plan, Region
from regional_explorer.record.tuning import Suggestion, best_first
from regional_explorer.tuning.budget import Spending
from regional_explorer.tuning.live_bench import LiveBench

NO_BUDGET = "the budget was spent before"
CANCELLED = "it was cancelled before"
INTERRUPTED = "it was interrupted before"


def measure_suggestions(
    bench: LiveBench, suggested: Sequence[Suggestion], budget_s: float, keep: Callable[[Sequence[Suggestion]], object]
) -> None:
    """Measure what each suggestion would gain; cancelled, interrupted or not, ``keep`` gets all at the end.

    The best come first, then those that were not measured. A suggestion measured before is measured last, and keeps
    its figures if it is not reached. Nothing is marked, and the plan at hand stays. All have the same time to be
    measured; pieces of equal code are compiled once.

    Raises:
        NoCompilerError: there is no C++ compiler.
        KeyboardInterrupt: it was interrupted.
    """
    time, why_not = Spending(bench, budget_s, lambda: ""), NO_BUDGET
    todo, found = sorted(suggested, key=lambda one: one.gain_s is not None), list[Suggestion]()
    try:
        with time.step("compiling", "starting the toolchain"):
            bench.start()
        timing_s = budget_s / (2 * max(1, len(todo)))
        for one in todo:
            found.append(_measured_suggestion(bench, time, one, timing_s))
    except CancelledError:
        why_not = CANCELLED
    except KeyboardInterrupt:
        why_not = INTERRUPTED
        raise
    except Exception as error:
        why_not = in_a_line(error)
        raise
    finally:
        keep(best_first([*found, *(_not_reached(one, why_not) for one in todo[len(found) :])]))


def _not_reached(one: Suggestion, why_not: str) -> Suggestion:
    return one if one.gain_s is not None else replace(one, why_not=why_not)


def _measured_suggestion(bench: LiveBench, time: Spending, one: Suggestion, timing_s: float) -> Suggestion:
    if time.now() >= time.end_s:
        return _not_reached(one, NO_BUDGET)
    one = replace(one, gain_s=None, compile_s=None, why_not="")
    plan = Plan((Region(one.name, one.selectors),), tracing=bench.at_hand.tracing)
    try:
        with time.step("tracing", f"cutting {one.name}"):
            prepared = bench.prepare(plan)
        with time.step("compiling", f"compiling {one.name}"):
            (built,) = bench.compile([prepared], time.reporting(bench.context.run))
        if built is None or built.failure:
            time.stop_if_cancelled()
            return replace(one, why_not=built.failure if built else NO_BUDGET)
        with time.step("checking", f"checking numerics: {one.name}"):
            wrong = bench.check(prepared).wrong
        if wrong:
            return replace(one, why_not=wrong)
        with time.step("timing", f"timing {one.name}", timed=True):
            gain_s = bench.gain_s(prepared, timing_s)
    except (CancelledError, NoCompilerError):
        raise
    except Exception as error:  # noqa: BLE001 - compiled code may raise anything; the other suggestions go on
        return replace(one, why_not=in_a_line(error))
    return replace(one, gain_s=gain_s if gain_s.bounds else None, compile_s=built.seconds, why_not=gain_s.why)
