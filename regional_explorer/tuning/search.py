"""Searches for the fastest plan of a call: tries plan after plan, then compares the best with the references."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from typing import Any, Generic

from msgspec.structs import replace

from regional_explorer.errors import MeasureError, error_line
from regional_explorer.measure.rounds import FIRST_CALLS, StopReason
from regional_explorer.measure.timings import conditions_of, timings_of
from regional_explorer.record.benchmark import Conditions, Timing, Verdict
from regional_explorer.record.figure import Figure
from regional_explorer.record.statistics import MIN_FLOOR
from regional_explorer.record.tuning import (
    AT_HAND,
    EAGER,
    TORCH_COMPILE,
    Outcome,
    SuggestionKind,
    Try,
    Tuning,
)
from regional_explorer.tables.tuning import search_sentences
from regional_explorer.tuning.bench import Bench, P
from regional_explorer.tuning.budget import Limits
from regional_explorer.tuning.ledger import Ledger
from regional_explorer.tuning.space import Candidate, other_plans, suggested_plan, tracings_to_try
from regional_explorer.tuning.stages import Stages, surely_behind
from regional_explorer.tuning.tries import FINAL_SHARE, FINALISTS, Tries

SHORTER_SHARE = 0.5
"""The largest share of the budget for plans on a shorter call."""
FLOOR_SHARE = 0.03
"""The largest share of the budget for measuring products of the call that no process has measured on this machine."""
CARRY_COSTS = 0.8
"""The cost of the first plan that is carried from the shorter call to the call, in compiles of ``torch.compile``.

Most of its kernels are built by then.
"""


def keep_nothing(_so_far: Tuning) -> None:
    """Ignore a record."""


def tune(bench: Bench[P], limits: Limits, ledger: Ledger, keep: Callable[[Tuning], object] = keep_nothing) -> Tuning:
    """Search for the fastest plan; return all tries with the answer. ``keep`` is called with the record so far.

    If cancelled or interrupted, it returns the tries so far, and ``stopped`` says so.

    Raises:
        NoCompilerError: there is no C++ compiler.
        MeasureError: nothing can be measured.
        Exception: an unexpected error, with a note on the answer so far; ``keep`` has the tries.
    """
    search = _Search(bench, limits, ledger, keep)
    try:
        search.go()
    except CancelledError:
        search.stopped = StopReason.CANCELLED
    except KeyboardInterrupt:
        search.stopped = StopReason.INTERRUPTED
    except Exception as error:
        search.stopped = error_line(error)
        so_far = search.tuning()
        keep(so_far)
        error.add_note(f"{search_sentences(so_far)} ex.tuning has the tries so far.")
        raise
    return search.tuning()


class _Search(Generic[P]):
    """What a search tries, in which order, and the result of its final comparison.

    ``shorter`` are the stages on a shorter call. What is fast there is tried on the call itself.
    """

    def __init__(self, bench: Bench[P], limits: Limits, ledger: Ledger, keep: Callable[[Tuning], object]) -> None:
        """Start the clock."""
        self.bench = bench
        self.limits = limits
        self.ledger = ledger
        self.after_batch = partial(self._keep, keep)
        self.tries = Tries(bench, limits, ledger, self.after_batch)
        self.time = self.tries.time
        self.stages = Stages(bench, limits, self.tries)
        self.shorter: Stages[P] | None = None
        self.repeats = ""
        self.answer = self.rival = ""
        self.gain: Figure | None = None
        self.stopped: str = StopReason.PRECISE
        self.timings: tuple[Timing, ...] = ()
        self.conditions: Conditions | None = None

    def _keep(self, keep: Callable[[Tuning], object]) -> None:
        keep(self.tuning())

    def go(self) -> None:
        """Try what the budget allows, and compare the best."""
        self.tries.measure_references()
        with self.time.step("timing", "measuring the floor of the call", timed=True):
            self.tries.floor_s = self.bench.floor_s(self.time.share_s(FLOOR_SHARE))
        self._try_shorter()
        self._try_layers()
        self.stages.try_likeliest()
        self.stages.try_tracings()
        self._try_others()
        if not self.tries.is_at_floor:
            self.stages.try_pieces()
        self._compare_finalists()

    def _try_layers(self) -> None:
        """Try the largest modules that repeat as a region: it compiles one of each kind, so it is ready soon."""
        suggested = self.bench.suggested
        layers = [one for one in suggested if one.kind is SuggestionKind.MODULES and one.distinct < one.instances]
        if layers:
            largest, all_ops = max(layers, key=lambda one: one.ops), max(one.ops for one in suggested)
            candidate = suggested_plan(largest, self.bench.at_hand.tracing)
            share = largest.ops / all_ops * largest.distinct / largest.instances
            self.time.expected_s[candidate.title] = share * self.time.first_cost_s + self.tries.race_s
            self.stages.try_all([candidate])

    def _try_others(self) -> None:
        """Try the plan at hand under other tracings, and suggested regions under the best tracing."""
        if (best := self.tries.best) is not None:
            tracing = self.tries.candidates[best].plan.tracing
            self.stages.try_all(
                other_plans(self.bench.at_hand, self.bench.suggested, tracings_to_try(grad=self.bench.grad), tracing)
            )

    # ----------------------------------------------------------------------------------------------- the shorter call

    def _try_shorter(self) -> None:
        """Try all on a shorter call, where that is possible, and then on the call what was fast there."""
        end_s = min(
            self.time.now() + self.time.share_s(SHORTER_SHARE),
            self.tries.deadline() - CARRY_COSTS * self.time.first_cost_s,
        )
        if end_s < self.time.now() + self.time.share_s(SHORTER_SHARE / 4.0):
            return
        with self.time.step("tracing", "looking for repeated modules"):
            bench = self.bench.shorter()
        if bench is None:
            return
        tries = Tries(bench, self.limits, self.ledger, self.after_batch, clock=self.time, before=end_s)
        self.shorter, self.repeats = Stages(bench, self.limits, tries), bench.repeats
        with suppress(MeasureError):  # the user's code may fail there: the call itself is searched all the same
            tries.measure_references()
            self.shorter.try_tracings()
            self.shorter.try_pieces()
        self._expect_costs(tries)
        self.stages.elsewhere = tries.tried
        self.tries.try_all(self._promising(tries))

    def _expect_costs(self, shorter: Tries[P]) -> None:
        """Expect that plans take as many times as long to compile as plain ``torch.compile`` as on the shorter call."""
        full_s = shorter[TORCH_COMPILE].compile_s
        for title in shorter.fastest_first():
            compile_s = shorter[title].compile_s
            if compile_s and full_s:
                self.time.expected_s[title] = self.time.first_cost_s * compile_s / full_s + self.tries.race_s

    def _promising(self, shorter: Tries[P]) -> Iterator[Candidate]:
        """Yield the plans that were fast on the shorter call, as long as one may be the best on the call itself."""
        for title in shorter.fastest_first():
            promised, best = shorter[title].score or 0.0, self.tries.best
            best_score = (self.tries[best].score or 0.0) if best is not None else 0.0
            if promised * (1.0 + self._missed_by(shorter)) >= best_score:
                yield shorter.candidates[title]

    def _missed_by(self, shorter: Tries[P]) -> float:
        """Return by what fraction the shorter call has missed the speed of a plan on the call so far, at most."""
        missed = [
            abs(tried.score / promised - 1.0)
            for tried in self.tries
            if tried.score and tried.title in shorter and (promised := shorter[tried.title].score)
        ]
        return max([MIN_FLOOR, *missed])

    # -------------------------------------------------------------------------------------------- the final comparison

    def _compare_finalists(self) -> None:
        """Time the best plans, eager, ``torch.compile`` and the plan at hand in one run, which gives the result."""
        finalists = self._finalists()
        at_hand = [AT_HAND] if AT_HAND in self.tries.ready else []
        compared = [*self.tries.references, *finalists, *at_hand]
        doing = "the final comparison"
        result = self.tries.measure(compared, self._final_s(compared), doing, baseline=EAGER)
        self.tries.drop_failed(compared, result)
        right = self.tries.references.keys() | self.tries.ready.keys()
        measured = [title for title in compared if title in right and self.tries.phase in result.samples.get(title, {})]
        for title in measured:
            self.tries.record_times(title, result, final=True)
        timings = timings_of(result, {title: self.tries[title].numerics for title in measured})
        self.timings = tuple(one for one in timings if one.phase is self.tries.phase and one.variant in measured)
        self.conditions = conditions_of(result, self.bench.context.environment)
        can_be_chosen = [title for title in measured if self.tries[title].can_be_chosen]
        rivals = [title for title in can_be_chosen if title in (*self.tries.references, AT_HAND)]
        plans = [title for title in can_be_chosen if title in finalists]
        result.stopped.raise_if_ended()
        self.stopped = result.stopped

        def speed(title: str) -> float:
            ratio = result.ratio(title, self.tries.phase, EAGER)
            return 1.0 if ratio is None else ratio.value

        self.rival = self.answer = max(rivals, key=speed, default="")
        best = max(plans, key=speed, default=None)
        if best is not None and result.verdict(best, self.tries.phase, self.rival) is Verdict.FASTER:
            self.answer, self.gain = best, result.ratio(best, self.tries.phase, self.rival)
        self.bench.keep(result, {title: self.tries.ready[title] for title in measured if title in self.tries.ready})

    def _final_s(self, titles: Sequence[str]) -> float:
        """Return the seconds that the first calls of the final comparison leave for its rounds."""
        times = [self.tries[title].time_s for title in titles]
        first_calls_s = FIRST_CALLS * sum(time.value for time in times if time is not None)
        left_s = self.time.end_s - self.time.now() - first_calls_s
        return min(self.time.share_s(FINAL_SHARE), max(self.time.share_s(FINAL_SHARE / 4.0), left_s))

    def _finalists(self) -> list[str]:
        """Return the best plans that may be faster than all others by the races so far.

        A plan whose trace was freed is compiled again if the budget allows it.
        """
        end_s, finalists = self.time.end_s, list[str]()
        ranked = self.tries.fastest_first()
        may_win = [title for title in ranked if surely_behind(self.tries[title], self.tries[ranked[0]], 1.0) == 0.0]
        for title in (*may_win, *self.tries.unraced()):
            if len(finalists) == FINALISTS:
                break
            is_ready = title in self.tries.ready or (self.time.now() < end_s and self.tries.make_ready(title))
            if title != AT_HAND and is_ready:
                finalists.append(title)
        return finalists

    def tuning(self) -> Tuning:
        """Return the record of the search."""
        return Tuning(
            tuple(self.tries) if self.shorter is None else tuple(_with_promises(self.tries, self.shorter.tries)),
            self.answer,
            self.rival,
            self.gain,
            self.limits.numbers,
            self.limits.budget_s,
            self.time.spent_s,
            dict(self.time.spent_on),
            tuple(self.stages.pieces),
            str(self.stopped),
            self.timings,
            self.conditions,
            self.repeats,
        )


def _with_promises(tries: Iterable[Try], shorter: Iterable[Try]) -> Iterator[Try]:
    """Yield the tries on a call with what the shorter one promised, then those on the shorter one alone."""
    on_call = {tried.title: tried for tried in tries}
    on_shorter = {tried.title: tried for tried in shorter if tried.plan is not None}
    for title, tried in {**on_shorter, **on_call}.items():
        promise = on_shorter.get(title, tried)
        changes: dict[str, Any] = {"promised": promise.over_full} if title in on_shorter else {}
        if title not in on_call or (tried.outcome is Outcome.NOT_TRIED and promise.outcome is not Outcome.NOT_TRIED):
            timed = promise.outcome in (Outcome.MEASURED, Outcome.SLOWER)
            changes |= {"outcome": Outcome.SHORTER if timed else promise.outcome, "time_s": None, "compile_s": None}
            changes |= {"speedup": None, "over_full": None, "launches": None, "kept_bytes": None}
        yield replace(tried, **changes)
