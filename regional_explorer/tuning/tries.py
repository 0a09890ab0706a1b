"""Tries plans: traces, compiles, checks and races them, a batch at a time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any, Generic

from msgspec.structs import replace

from regional_explorer.errors import NoCompilerError, count, error_line
from regional_explorer.measure.alone import surely_slower
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.rounds import RoundsResult
from regional_explorer.measure.timings import measure_rounds
from regional_explorer.record.benchmark import MemoryPeak, NumericsVerdict, Phase
from regional_explorer.record.tuning import (
    AT_HAND,
    EAGER,
    TORCH_COMPILE,
    NumericsRequirement,
    Outcome,
    SearchStage,
    Try,
    Tuning,
)
from regional_explorer.style.formats import duration, size, times
from regional_explorer.tuning.bench import Bench, P
from regional_explorer.tuning.budget import Limits, Spending
from regional_explorer.tuning.ledger import Ledger, LedgerEntry
from regional_explorer.tuning.space import Candidate

FINAL_SHARE = 0.2
"""The share of the budget that is kept for the final comparison."""
RACE_SHARE = 0.06
"""The largest share of the budget that a race takes.

A race takes no longer than its plans took to compile, or a third of this share if that is longer.
"""
SHORTER_RACE_SHARE = 0.0125
"""The share of the budget for a race on the shorter call, which needs far less time for as many rounds."""
MEMORY_SHARE = 0.01
"""The largest share of the budget for measuring the memory of one plan."""
BATCH = 3
"""The number of plans that are compiled side by side, then raced. It is small so that a cancelled search has results.

The first plan is compiled alone: it shows what the others will cost.
"""
FINALISTS = 3

NOTHING_LEFT = 0.02
"""The share of a call that a plan may take beyond the call's floor when no further plan is tried."""
AT_FLOOR = "the best is at the floor of the call"

NOT_BITWISE = "its results are right, but not equal to eager's to the bit"
BUDGET = "the budget was too short"


class Tries(Generic[P]):
    """The tries of a search by title, in their order, and the plans that can be run now.

    ``candidates`` are the plans that were tried or left out, ``ready`` those that are compiled and right, with their
    traces, and ``references`` the calls that every plan is compared with; each by title. ``time`` is the clock of the
    search, ``floor_s`` the floor of a call, if it is known. ``after_batch`` is called after each batch.

    With ``before``, the time at which they have to end, they are the tries on the shorter call of the search whose
    clock is ``clock``: no memory is read.
    """

    def __init__(
        self,
        bench: Bench[P],
        limits: Limits,
        ledger: Ledger,
        after_batch: Callable[[], object],
        clock: Spending | None = None,
        before: float = math.inf,
    ) -> None:
        """Start the clock, unless it runs already."""
        self.candidates: dict[str, Candidate] = {}
        self.ready: dict[str, P] = {}
        self.references: dict[str, TimedCall] = {}
        self.floor_s: float | None = None
        self.time = (
            clock.on_another_call(bench, self._so_far) if clock else Spending(bench, limits.budget_s, self._so_far)
        )
        self._before, self._is_shorter = before, clock is not None
        self._bench, self._limits, self._ledger, self._after_batch = bench, limits, ledger, after_batch
        self._by_title: dict[str, Try] = {}
        self._prepared_keys: dict[str, str] = {}
        self._titles_by_code: dict[str, str] = {}
        self._best_shown: Try | None = None
        self._most_bytes: float | None = None

    def __getitem__(self, title: str) -> Try:
        """Return the try of a plan."""
        return self._by_title[title]

    def __contains__(self, title: object) -> bool:
        """Return whether a plan was tried or left out."""
        return title in self._by_title

    def __iter__(self) -> Iterator[Try]:
        """Iterate over the tries."""
        return iter(self._by_title.values())

    def measure_references(self) -> None:
        """Try eager and plain ``torch.compile``, which every plan is compared with, and set the limit of memory.

        Raises:
            NoCompilerError: there is no C++ compiler.
        """
        bench = self._bench
        with self.time.step("compiling", "starting the toolchain"):
            bench.start()
        self.references[EAGER] = bench.eager()
        right = NumericsVerdict.REFERENCE
        self._by_title[EAGER] = Try(EAGER, SearchStage.REFERENCE, Outcome.MEASURED, numerics=right)
        peak = self._peak_memory(EAGER, self.references[EAGER])
        self._update(EAGER, peak_bytes=None if peak is None else peak.peak_bytes)
        self._most_bytes = self._limits.max_memory
        if self._most_bytes is None and peak is not None:
            high = peak.peak_bytes.high
            self._most_bytes = max(peak.least_bytes, peak.peak_bytes.value if high is None else high)
        began_s = self.time.now()
        self._by_title[TORCH_COMPILE] = Try(TORCH_COMPILE, SearchStage.REFERENCE, Outcome.MEASURED)
        try:
            with self.time.step("compiling", f"compiling the call with plain {TORCH_COMPILE}"):
                self.references[TORCH_COMPILE], compile_s = bench.full()
            self._update(TORCH_COMPILE, compile_s=compile_s)
            self.time.first_cost_s = max(compile_s, self.time.now() - began_s)  # it may have been compiled before
            if self._is_right(TORCH_COMPILE):
                peak = self._peak_memory(TORCH_COMPILE, self.references[TORCH_COMPILE])
                self._update(TORCH_COMPILE, peak_bytes=None if peak is None else peak.peak_bytes)
        except (NoCompilerError, CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - Dynamo and Inductor may raise anything; plans are tried all the same
            self._drop(TORCH_COMPILE, Outcome.FAILED, error_line(error))

    @property
    def race_s(self) -> float:
        """The most seconds that a race takes."""
        return self.time.share_s(SHORTER_RACE_SHARE if self._is_shorter else RACE_SHARE)

    # ----------------------------------------------------------------------------------------------------- one batch

    def try_all(self, candidates: Iterable[Candidate], beside: str | None = None) -> None:
        """Compile, check and race candidates in batches, as far as the budget goes.

        They race the plan ``beside``, the best by default.
        """
        batch: dict[str, tuple[Candidate, P]] = {}
        began_s = self.time.now()
        for candidate in candidates:
            if candidate.title in self._by_title:
                continue
            self.candidates[candidate.title] = candidate
            if self.is_at_floor:
                self.leave_out(candidate, AT_FLOOR)
            elif not self._has_time(candidate, [other for other, _ in batch.values()]):
                needs = f"it would take about {duration(self.time.cost_s(candidate))} to compile and time"
                self.leave_out(candidate, f"{BUDGET}: {needs}")
            elif (prepared := self._prepare(candidate)) is not None:
                batch[candidate.title] = candidate, prepared
            if len(batch) == (BATCH if self._has_compared else 1):
                self._try_batch(batch, began_s, beside)
                batch, began_s = {}, self.time.now()
        if batch:
            self._try_batch(batch, began_s, beside)
        self._free_losers()

    def _has_time(self, candidate: Candidate, batched: Sequence[Candidate]) -> bool:
        """Return whether the budget allows compiling, checking and timing one more candidate."""
        if not self._has_compared and not batched:
            return self.time.now() < self.deadline()  # without a single plan there is nothing to compare
        return self.time.now() + sum(map(self.time.cost_s, (candidate, *batched))) <= self.deadline()

    def _try_batch(self, batch: Mapping[str, tuple[Candidate, P]], began_s: float, beside: str | None) -> None:
        """Compile, check and race plans; their cost since ``began_s`` is the estimate for later plans."""
        compiled = self._compile(batch)
        compile_s = self.time.now() - began_s
        right = [title for title in compiled if self._is_right(title)]
        for title in right:
            self._read_memory(title)
        if self.time.now() < self.deadline():  # otherwise only the final comparison times them
            self._race(right, compile_s, beside)
        for candidate, _ in batch.values():
            self.time.record_cost(candidate, (self.time.now() - began_s) / len(batch))
        self._after_batch()

    def _prepare(self, candidate: Candidate) -> P | None:
        """Trace and cut a candidate; None if that fails, or if the result is already known."""
        try:
            with self.time.step("tracing", f"tracing: {candidate.title}"):
                prepared = self._bench.prepare(candidate.plan)
        except (CancelledError, NoCompilerError):
            raise
        except Exception as error:  # noqa: BLE001 - torch may raise anything in other ways of tracing
            self._by_title[candidate.title] = candidate.as_try(Outcome.FAILED, error_line(error))
            return None
        if (other := self._prepared_keys.setdefault(prepared.key, candidate.title)) != candidate.title:
            self._record_same_code(candidate, other)
            return None
        entry = self._ledger.entries.get(prepared.key)
        if entry is not None and self._remember(candidate, entry, prepared.kept_bytes):
            return None
        return prepared

    def _remember(self, candidate: Candidate, entry: LedgerEntry, kept_bytes: int | None) -> bool:
        """Take over the speed of an earlier search; return whether the candidate needs no try any more."""
        if entry.outcome is Outcome.SAME_CODE and entry.code not in self._titles_by_code:
            return False
        if entry.code and (other := self._titles_by_code.setdefault(entry.code, candidate.title)) != candidate.title:
            self._record_same_code(candidate, other)
            return True
        if entry.over_full is None or entry.over_full.bounds is None or TORCH_COMPILE not in self.references:
            return False  # a result without an interval is not relied on
        if self._limits.numbers is NumericsRequirement.BITWISE:
            return False  # most plans are not equal to the bit, and only a check of these values shows which are
        known: dict[str, Any] = {"over_full": entry.over_full, "compile_s": entry.compile_s, "kept_bytes": kept_bytes}
        self._by_title[candidate.title] = candidate.as_try(entry.outcome, remembered=True, **known)
        return True

    def _compile(self, batch: Mapping[str, tuple[Candidate, P]]) -> list[str]:
        """Compile candidates side by side; return the titles of candidates with code of their own."""
        new, run = list[str](), self.time.reporting(until_s=self.deadline())
        with self.time.step("compiling", f"compiling {count(len(batch), 'plan')}"):
            results = self._bench.compile([prepared for _, prepared in batch.values()], run)
        self.time.stop_if_cancelled()
        for (candidate, prepared), built in zip(batch.values(), results, strict=True):
            if built is None:
                self.leave_out(candidate, f"{BUDGET}: it ended during the compile")
                continue
            costs: dict[str, Any] = {
                "compile_s": built.seconds,
                "kept_bytes": prepared.kept_bytes,
                "launches": built.launches,
            }
            if built.failure:
                self._by_title[candidate.title] = candidate.as_try(Outcome.FAILED, built.failure, **costs)
            elif (other := self._titles_by_code.setdefault(built.code, candidate.title)) != candidate.title:
                self._record_same_code(candidate, other)
                self._write(prepared.key, candidate.title, built.code)
            else:
                self._by_title[candidate.title] = candidate.as_try(Outcome.MEASURED, **costs)
                self.ready[candidate.title] = prepared
                new.append(candidate.title)
                if self._limits.max_compile_s is not None and built.seconds > self._limits.max_compile_s:
                    self._update(candidate.title, why=f"it took {duration(built.seconds)} to compile")
        return new

    def _is_right(self, title: str) -> bool:
        """Return whether the results of a plan or of ``torch.compile`` are as close to eager's as required."""
        try:
            with self.time.step("checking", f"checking numerics: {title}"):
                outcome, why, bitwise, numerics = self._bench.check(self.ready.get(title))
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - compiled code may raise anything
            self._drop(title, Outcome.FAILED, error_line(error))
            return False
        if outcome is Outcome.MEASURED and self._limits.numbers is NumericsRequirement.BITWISE and not bitwise:
            outcome, why = Outcome.NOT_BITWISE, NOT_BITWISE
        self._update(title, numerics=numerics)
        if outcome is not Outcome.MEASURED:
            self._drop(title, outcome, why)
        return outcome is Outcome.MEASURED

    def _race(self, titles: Sequence[str], compile_s: float, beside: str | None) -> None:
        """Time new plans against each other, an earlier plan and ``torch.compile``; slower plans leave early."""
        if not titles:
            return
        other = beside or self.best
        others = [other] if other is not None and other not in titles and self.make_ready(other) else []
        most_s = self.race_s
        result = self.measure(
            [self.baseline, *others, *titles],
            min(max(compile_s, most_s / 3.0), most_s),
            f"racing {count(len(titles), 'plan')}",
            self._slower,
        )
        failed = self.drop_failed((result.baseline, *others, *titles), result)
        alone = result.baseline in failed
        # A pruned plan may have been slower only than a plan that has failed since.
        again = titles if alone else result.pruned if failed else ()
        repeated = [title for title in titles if title in again and title in self.ready]
        for title in (*others, *titles):
            if alone or title not in self.ready or title in repeated:
                continue
            self.record_times(title, result)
            if self._by_title[title].score is None:
                self._drop(title, Outcome.FAILED, f"it could not be compared with {self.baseline}")
            elif title in titles:
                self._update(title, outcome=Outcome.SLOWER if title in result.pruned else Outcome.MEASURED)
                self._write(self.ready[title].key, title, self._code_of(title))
        result.stopped.raise_if_ended()
        self._race(repeated, compile_s, beside)

    def drop_failed(self, titles: Sequence[str], result: RoundsResult) -> list[str]:
        """Drop and return the calls that raised in their rounds, or plans that did not run their own code."""
        troubles = {title: self._bench.trouble(self.ready[title]) for title in titles if title in self.ready}
        whys = {title: str(result.dropped.get(title) or troubles.get(title, "")) for title in titles}
        failed = [title for title, why in whys.items() if why and title != EAGER]
        for title in failed:
            self._drop(title, Outcome.FAILED, whys[title])
        return failed

    def _slower(self, result: RoundsResult) -> list[str]:
        """Return the plans of a race that are slower than its best plan that can be chosen."""
        plans = [name for name in result.samples if name not in self.references]
        return surely_slower(result, self.phase, plans, lambda name: self._by_title[name].can_be_chosen)

    def _peak_memory(self, title: str, call: TimedCall) -> MemoryPeak | None:
        if self._is_shorter:
            return None
        with self.time.step("memory", f"reading the memory of {title}"):
            return self._bench.peak_memory(call, self.time.share_s(MEMORY_SHARE))

    def _read_memory(self, title: str) -> None:
        """Read the memory that a plan needs; it cannot be chosen if that is too much."""
        peak = self._peak_memory(title, self._bench.call(self.ready[title], title))
        if peak is None:
            return
        needed = peak.peak_bytes.value if peak.peak_bytes.low is None else peak.peak_bytes.low
        constant_bytes, allowed = self.ready[title].constant_bytes, "that eager needs"
        self._update(title, peak_bytes=peak.peak_bytes, constant_bytes=constant_bytes)
        if self._limits.max_memory is not None:  # else the limit is eager's peak in a call, which includes no weights
            needed, allowed = needed + constant_bytes, "allowed"
        if self._most_bytes is not None and needed > self._most_bytes:
            constants = f", {size(constant_bytes)} for frozen weights included" if constant_bytes else ""
            self._update(title, why=f"it needs more memory than the {size(int(self._most_bytes))} {allowed}{constants}")

    def make_ready(self, title: str) -> bool:
        """Compile a plan whose trace was freed, or that an earlier search has tried; return whether it can run."""
        if title in self.ready:
            return True
        plan = self._by_title[title].plan
        if plan is None:
            return False
        try:
            with self.time.step("tracing", f"tracing again: {title}"):
                prepared = self._bench.prepare(plan)
            with self.time.step("compiling", f"compiling again: {title}"):
                (built,) = self._bench.compile([prepared], self.time.reporting(until_s=self.time.end_s))
        except (CancelledError, NoCompilerError):
            raise
        except Exception as error:  # noqa: BLE001 - as in the first try
            self._drop(title, Outcome.FAILED, error_line(error))
            return False
        self.time.stop_if_cancelled()
        if built is None or built.failure:
            self._drop(title, Outcome.FAILED, built.failure if built else "it was not compiled")
            return False
        self.ready[title] = prepared
        if not self._by_title[title].remembered:
            return True
        if self._is_right(title):
            self._read_memory(title)
        return title in self.ready and self._by_title[title].can_be_chosen

    # --------------------------------------------------------------------------------------------------------- helpers

    @property
    def baseline(self) -> str:
        """The reference in every race: plain ``torch.compile``, or eager if that failed."""
        return TORCH_COMPILE if TORCH_COMPILE in self.references else EAGER

    @property
    def phase(self) -> Phase:
        """The phase that is timed: the step, or the forward of a call without gradients."""
        return Phase.STEP if self._bench.grad else Phase.FORWARD

    def fastest_first(self) -> list[str]:
        """Return the titles of the plans that can be chosen, the fastest first."""
        plans = [tried for tried in self._by_title.values() if tried.plan and tried.can_be_chosen and tried.score]
        return [tried.title for tried in sorted(plans, key=lambda tried: -(tried.score or 0.0))]

    def unraced(self) -> list[str]:
        """Return the titles of the plans that were compiled and are right, but had no time for a race."""
        return [
            title for title in self.ready if self._by_title[title].can_be_chosen and self._by_title[title].score is None
        ]

    @property
    def tried(self) -> set[str]:
        """The titles of the plans that were tried, whatever the outcome."""
        return {tried.title for tried in self if tried.outcome is not Outcome.NOT_TRIED}

    @property
    def best(self) -> str | None:
        """The title of the fastest plan that can be chosen; None without one."""
        return next(iter(self.fastest_first()), None)

    @property
    def is_at_floor(self) -> bool:
        """Whether no plan can be much faster than the best one."""
        best_s = None if self.best is None else self._by_title[self.best].time_s
        if best_s is None or self.floor_s is None:
            return False
        return 0.0 <= 1.0 - self.floor_s / best_s.value <= NOTHING_LEFT

    def measure(
        self,
        titles: Sequence[str],
        budget_s: float,
        doing: str,
        prune: Callable[[RoundsResult], Collection[str]] = lambda _: (),
        baseline: str | None = None,
    ) -> RoundsResult:
        """Time references and ready plans in interleaved rounds; ``prune`` names those that leave after a round."""
        bench = self._bench
        calls = [self.references.get(title) or bench.call(self.ready[title], title) for title in titles]
        context = dataclasses.replace(bench.context, run=self.time.reporting(doing))
        with self.time.step("timing", doing, timed=True), bench.measuring(context) as context:
            return measure_rounds(calls, budget_s, context, baseline=baseline or self.baseline, prune=prune)

    def record_times(self, title: str, result: RoundsResult, *, final: bool = False) -> None:
        """Record the times of a plan or reference, of a race or of the ``final`` comparison."""
        phase, full = self.phase, TORCH_COMPILE in self.references
        if phase not in result.samples.get(title, {}):
            return  # it left early, and the rounds before that were disturbed
        after_s = self._by_title[title].after_s
        self._update(
            title,
            after_s=self.time.spent_s if after_s is None else after_s,
            time_s=result.time(title, phase),
            speedup=result.ratio(title, phase, EAGER) if final or not full else None,
            over_full=result.ratio(title, phase, TORCH_COMPILE) if full else None,
            final=final,
        )

    def _update(self, title: str, **changes: Any) -> None:
        self._by_title[title] = replace(self._by_title[title], **changes)

    def _record_same_code(self, candidate: Candidate, other: str) -> None:
        self._by_title[candidate.title] = candidate.as_try(
            Outcome.SAME_CODE, f"the same code as: {other}", same_as=other
        )

    def leave_out(self, candidate: Candidate, why: str) -> None:
        """Record why a candidate is not tried."""
        self._by_title[candidate.title] = candidate.as_try(Outcome.NOT_TRIED, why)

    def _drop(self, title: str, outcome: Outcome, why: str) -> None:
        """Take a plan, or plain ``torch.compile`` with all speeds relative to it, out of the search."""
        self._update(title, outcome=outcome, why=why)
        self.ready.pop(title, None)
        if self.references.pop(title, None) is not None:
            for tried in self:
                self._update(tried.title, over_full=None)

    def _write(self, key: str, title: str, code: str = "") -> None:
        tried = self._by_title[title]
        self._ledger.add(
            LedgerEntry(
                key,
                title,
                tried.outcome,
                code,
                tried.over_full,
                tried.compile_s,
            )
        )

    def _code_of(self, title: str) -> str:
        return next((code for code, other in self._titles_by_code.items() if other == title), "")

    def _free_losers(self) -> None:
        """Free the traces of plans out of the race; the best plans and the plan at hand stay."""
        titles = {*self.fastest_first()[: FINALISTS + 1], *self.unraced(), AT_HAND}
        self.ready = {title: prepared for title, prepared in self.ready.items() if title in titles}
        plans = [self._by_title[title].plan for title in self.ready]
        self._bench.free([plan.tracing for plan in plans if plan is not None])

    @property
    def _has_compared(self) -> bool:
        """Whether a plan was timed beside the references."""
        return any(tried.plan is not None and tried.score is not None for tried in self._by_title.values())

    def deadline(self) -> float:
        """Return the time at which the final comparison has to begin; the first plan may take half of its time."""
        final_s = self.time.share_s(FINAL_SHARE * (1.0 if self._has_compared else 0.5))
        return min(self._before, self.time.end_s - final_s)

    def _so_far(self) -> str:
        """Return the results so far, for the progress line."""
        so_far = Tuning(tuple(self))
        best, before = so_far.best_so_far, self._best_shown
        if best is None or best.score is None:
            return ""
        now, highest, fell = times(best.score), times(before.score) if before and before.score else "", ""
        if before is None or (before.score or 0.0) <= best.score:
            self._best_shown = best
        elif now != highest:
            why = "was timed again" if self._by_title[before.title].can_be_chosen else "had to be dropped"
            fell = f" ({highest} before a plan {why})"
        where = f" on the shorter call ({self._bench.repeats})" if self._is_shorter else ""
        return f"best so far {now} as fast as {self.baseline}{where}{fell}, {count(so_far.tried, 'plan')} tried; "
