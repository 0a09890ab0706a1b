"""Searches for the fastest plan of a call: tries plan after plan, then compares the best with the references."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any, Generic

from msgspec.structs import replace

from regional_explorer.errors import NoCompilerError, count, in_a_line
from regional_explorer.measure.alone import surely_slower
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.rounds import FIRST_CALLS, RoundsResult, Stop
from regional_explorer.measure.timings import measure_rounds
from regional_explorer.record.benchmark import Phase, Verdict
from regional_explorer.record.figure import QUIET, Figure, Noise
from regional_explorer.record.plan import config_texts
from regional_explorer.record.statistics import MIN_FLOOR
from regional_explorer.record.tuning import (
    AT_HAND,
    EAGER,
    TORCH_COMPILE,
    Numbers,
    Outcome,
    PieceRace,
    SearchStage,
    Try,
    Tuning,
)
from regional_explorer.style.formats import duration, size, times
from regional_explorer.tables.tuning import answer
from regional_explorer.tuning.bench import Bench, P, Raced, TimedPiece
from regional_explorer.tuning.budget import Limits, Spending
from regional_explorer.tuning.ledger import Ledger, LedgerEntry
from regional_explorer.tuning.space import (
    WRAPPER,
    Candidate,
    Root,
    best_changes,
    candidate,
    in_words,
    is_whole,
    likeliest_candidates,
    neighbours,
    other_plans,
    ways,
    whole_graph_candidate,
    with_changes,
    with_configs_of,
    without_cpp_wrapper,
)

FINAL_SHARE = 0.2
"""The share of the budget that is kept for the final comparison."""
RACE_SHARE = 0.06
"""The largest share of the budget that a race takes.

A race takes no longer than its plans took to compile, or a third of this share if that is longer.
"""
MEMORY_SHARE = 0.01
"""The largest share of the budget for measuring the memory of one plan."""
BATCH = 3
"""The number of plans that are compiled side by side, then raced; so a cancelled search soon has results.

The first is compiled alone: it shows what the others will cost.
"""
FINALISTS = 3
PIECES_SHARE = 0.08
"""The largest share of the budget for races of single pieces."""
COMPILED = (Outcome.MEASURED, Outcome.SLOWER, Outcome.SAME_CODE)
"""The outcomes of plans whose pieces can be raced."""
WRAPPED_WITHIN = 0.1
"""A tracing gets a C++ wrapper if without it it is slower than the best by at most this fraction."""


def keep_nothing(_so_far: Tuning) -> None:
    """Ignore a record."""


def tune(bench: Bench[P], limits: Limits, ledger: Ledger, keep: Callable[[Tuning], object] = keep_nothing) -> Tuning:
    """Search for the fastest plan; return all tries with the answer. ``keep`` is called with the record so far.

    Cancelled or interrupted, it returns what it has, and ``stopped`` says so.

    Raises:
        NoCompilerError: there is no C++ compiler.
        MeasureError: nothing can be measured.
        Exception: what nobody expected; it says what had been found, which ``keep`` has.
    """
    search = _Search(bench, limits, ledger, keep)
    try:
        search.go()
    except CancelledError:
        search.stopped = Stop.CANCELLED
    except KeyboardInterrupt:
        search.stopped = Stop.INTERRUPTED
    except Exception as error:
        search.stopped = in_a_line(error)
        so_far = search.tuning()
        keep(so_far)
        error.add_note(f"{answer(so_far)} ex.tuning has the tries so far.")
        raise
    return search.tuning()


@dataclass
class _Search(Generic[P]):
    """The state of a search: its tries by title, and the prepared plans that can be run now."""

    bench: Bench[P]
    limits: Limits
    ledger: Ledger
    keep: Callable[[Tuning], object] = keep_nothing
    tries: dict[str, Try] = field(default_factory=dict)
    candidates: dict[str, Candidate] = field(default_factory=dict)
    ready: dict[str, P] = field(default_factory=dict)
    prepared_keys: dict[str, str] = field(default_factory=dict)
    titles_by_code: dict[str, str] = field(default_factory=dict)
    bitwise: dict[str, bool] = field(default_factory=dict)
    references: dict[str, TimedCall] = field(default_factory=dict)
    pieces: list[PieceRace] = field(default_factory=list)
    most_bytes: float | None = None
    answer: str = ""
    rival: str = ""
    gain: Figure | None = None
    stopped: str = Stop.PRECISE
    noise: Noise = QUIET
    floor: float = 0.0

    def __post_init__(self) -> None:
        """Start the clock."""
        self.time = Spending(self.bench, self.limits.budget_s, self._so_far)

    # -------------------------------------------------------------------------------------------------- the search

    def go(self) -> None:
        """Try what the budget allows, and compare the best."""
        self._measure_references()
        first, *others = likeliest_candidates(grad=self.bench.grad)
        self._try([first, *self._at_hand(), *others])
        self._try([whole_graph_candidate(SearchStage.TRACING, way) for way in ways(grad=self.bench.grad)])
        self._try_wrappers()
        self._try_keys()
        self._try_others()
        if self._try_pieces():
            self._try_keys()
        self._compare_finalists()

    def _measure_references(self) -> None:
        bench = self.bench
        with self.time.step("compiling", "starting the toolchain"):
            bench.start()
        self.references[EAGER] = bench.eager()
        self.tries[EAGER] = Try(EAGER, SearchStage.REFERENCE, Outcome.MEASURED)
        with self.time.step("memory", f"reading the memory of {EAGER}"):
            peak = bench.peak_memory(self.references[EAGER], self.time.share_s(MEMORY_SHARE))
        self._note(EAGER, peak_bytes=None if peak is None else peak.peak_bytes)
        self.most_bytes = self.limits.max_memory
        if self.most_bytes is None and peak is not None:
            high = peak.peak_bytes.high
            self.most_bytes = max(peak.least_bytes, peak.peak_bytes.value if high is None else high)
        began_s = self.time.now()
        try:
            with self.time.step("compiling", f"compiling the call with plain {TORCH_COMPILE}"):
                self.references[TORCH_COMPILE], compile_s = bench.full()
        except (NoCompilerError, CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - Dynamo and Inductor may raise anything; plans are tried all the same
            self.tries[TORCH_COMPILE] = Try(TORCH_COMPILE, SearchStage.REFERENCE, Outcome.FAILED, why=in_a_line(error))
        else:
            why = NOT_COMPARED if self.limits.numbers is Numbers.BITWISE else ""
            compiled = Try(TORCH_COMPILE, SearchStage.REFERENCE, Outcome.MEASURED, why=why, compile_s=compile_s)
            self.tries[TORCH_COMPILE] = compiled
            self.time.first_cost_s = max(compile_s, self.time.now() - began_s)  # it may have been compiled before
            with self.time.step("memory", f"reading the memory of {TORCH_COMPILE}"):
                peak = bench.peak_memory(self.references[TORCH_COMPILE], self.time.share_s(MEMORY_SHARE))
            self._note(TORCH_COMPILE, peak_bytes=None if peak is None else peak.peak_bytes)

    def _at_hand(self) -> list[Candidate]:
        """Return the plan at hand if it has regions and is not tried anyway; else None."""
        at_hand = self.bench.at_hand
        is_another = at_hand.regions and not is_whole(at_hand)
        return [candidate(SearchStage.REFERENCE, Root(AT_HAND, at_hand))] if is_another else []

    def _try_wrappers(self) -> None:
        """Try C++ wrappers on the tracings that are not much slower than the best, the fastest first."""
        found = [one for one in self.tries.values() if one.stage is SearchStage.TRACING and one.score is not None]
        found.sort(key=lambda one: -(one.score or 0.0))
        wrapped = []
        for one in found:
            assert one.plan is not None  # noqa: S101 - only the references have none
            with_wrapper = whole_graph_candidate(SearchStage.WRAPPER, one.plan.tracing, WRAPPER)
            behind = _surely_behind(one, found[0])
            if behind <= WRAPPED_WITHIN:
                wrapped.append(with_wrapper)
            else:
                self._leave_out(with_wrapper, f"without the wrapper it is at least {behind:.0%} slower than the best")
        self._try(wrapped)

    def _try_keys(self) -> None:
        """Try every config on the best plan, then the best configs together, until nothing gets better.

        The first time it is done without a C++ wrapper, which takes longer to compile: what helps then mostly helps
        with the wrapper, too.
        """
        best = self._best()
        if best is not None and WRAPPER.items() <= self.candidates[best].more.items():
            bare = without_cpp_wrapper(self.candidates[best])
            if bare.title in self.tries and self.tries[bare.title].score is not None:
                self._try_keys_on(bare, self.candidates[best])
        while (best := self._best()) is not None and self._try_keys_on(self.candidates[best], self.candidates[best]):
            pass

    def _try_keys_on(self, base: Candidate, best: Candidate) -> bool:
        """Try every config on ``base``, and the best configs together on ``best``; return whether a try was new."""
        changed = list(neighbours(base, self.limits.keys))
        untried = [one for one in changed if one.title not in self.tries]
        self._try(untried, beside=base.title)
        better = [one for one in changed if one.title != best.title and self._is_better(self.tries[one.title], base)]
        if len(better) > 1 or (better and best != base):
            self._try([with_configs_of(best, better)])
        return any(self.tries[one.title].outcome is not Outcome.NOT_TRIED for one in untried)

    def _try_others(self) -> None:
        """Try the plan at hand under other tracings, and suggested regions under the best tracing."""
        if (best := self._best()) is not None:
            tracing = self.candidates[best].plan.tracing
            self._try(other_plans(self.bench.at_hand, self.bench.suggested, ways(grad=self.bench.grad), tracing))

    # ------------------------------------------------------------------------------------------------ keys per region

    def _try_pieces(self) -> bool:
        """Race the pieces of the best plan alone, and try the winners together; return whether that is now best.

        Under each config that was tried on that plan its pieces are compiled already.
        """
        best = self._best()
        if best is None or not self._make_ready(best):
            return False
        base = self.candidates[best]
        new = [change for change in self.limits.keys if not change.items() <= base.more.items()]
        changed = {
            ", ".join(config_texts(change)): (change, one)
            for change, one in zip(new, neighbours(base, new), strict=True)
            if one.title in self.tries and self.tries[one.title].outcome in COMPILED
        }
        if not changed or self.time.now() + self.time.share_s(PIECES_SHARE) > self._deadline():
            return False
        with self.time.step("tracing", "cutting the pieces of the best plan"):
            others = {change: self.bench.prepare(one.plan) for change, (_, one) in changed.items()}
        raced = self._race_pieces(best, others)
        changes = {place: changed[change][0] for place, change in best_changes(raced).items()}
        if not changes:
            return False
        plan = with_changes(base.plan, changes)
        together_again = candidate(SearchStage.PIECES, Root(f"{best}; {in_words(changes)}", plan))
        self._try([together_again])
        return self._best() == together_again.title

    def _race_pieces(self, best: str, others: Mapping[str, P]) -> list[tuple[TimedPiece, Mapping[str, Raced]]]:
        """Race each kind of piece of a plan that matters; pieces that take most of the time get most of the budget."""
        with self.time.step("timing", "timing the pieces of the best plan", timed=True):
            pieces = self.bench.pieces(self.ready[best], self.time.share_s(PIECES_SHARE / 4.0))
        time_s, least_s = self.tries[best].time_s, 0.0
        if time_s is not None:
            least_s = MIN_FLOOR * time_s.value
        all_s = sum(piece.in_a_call for piece in pieces if piece.in_a_call >= least_s)
        raced = []
        for piece in sorted(pieces, key=lambda piece: -piece.in_a_call):
            if piece.in_a_call < least_s:
                why_not = f"if it took no time at all, a call would be faster by less than {MIN_FLOOR:.1%}"
                self.pieces.append(PieceRace(piece.partition, why_not=why_not))
                continue
            budget_s = self.time.share_s(PIECES_SHARE) * piece.in_a_call / all_s
            try:
                with self.time.step("timing", f"racing the pieces of the best plan: {piece.partition}", timed=True):
                    results = self.bench.race_piece(piece, others, budget_s)
            except (CancelledError, NoCompilerError):
                raise
            except Exception as error:  # noqa: BLE001 - compiled code may raise anything
                self.pieces.append(PieceRace(piece.partition, why_not=in_a_line(error)))
                results = {}
            else:
                self.pieces.append(self._piece_race(piece.partition, results))
            raced.append((piece, results))
        return raced

    @staticmethod
    def _piece_race(partition: str, results: Mapping[str, Raced]) -> PieceRace:
        """Return a race of a piece with its winner."""
        faster = {change: one for change, one in results.items() if one.verdict is Verdict.FASTER}
        best = max(faster, key=lambda change: faster[change].speedup.value, default="")
        return PieceRace(partition, best, faster[best].speedup if best else None)

    def _is_better(self, one: Try, base: Candidate) -> bool:
        return one.can_be_chosen and (one.score or 0.0) > (self.tries[base.title].score or 0.0) * (1.0 + MIN_FLOOR)

    # ----------------------------------------------------------------------------------------------------- one batch

    def _try(self, candidates: Iterable[Candidate], beside: str | None = None) -> None:
        """Compile, check and race candidates, some at a time, as far as the budget goes.

        They race the plan ``beside``, the best by default.
        """
        batch: dict[str, tuple[Candidate, P]] = {}
        began_s = self.time.now()
        for one in candidates:
            if one.title in self.tries:
                continue
            self.candidates[one.title] = one
            if not self._has_time(one, [other for other, _ in batch.values()]):
                needs = f"it would take about {duration(self.time.cost_s(one))} to compile and time"
                self._leave_out(one, f"the budget is spent: {needs}")
            elif (prepared := self._prepare(one)) is not None:
                batch[one.title] = one, prepared
            if len(batch) == (BATCH if self._has_compared else 1):
                self._try_batch(batch, began_s, beside)
                batch, began_s = {}, self.time.now()
        if batch:
            self._try_batch(batch, began_s, beside)
        self._free_losers()

    def _has_time(self, one: Candidate, batched: Sequence[Candidate]) -> bool:
        """Return whether the budget allows compiling, checking and timing one more candidate."""
        if not self._has_compared and not batched:
            return self.time.now() < self._deadline()  # without a single plan there is nothing to compare
        return self.time.now() + sum(map(self.time.cost_s, (one, *batched))) <= self._deadline()

    def _try_batch(self, batch: Mapping[str, tuple[Candidate, P]], began_s: float, beside: str | None) -> None:
        """Compile, check and race plans; their cost since ``began_s`` is the estimate for later plans."""
        compiled = self._compile(batch)
        compile_s = self.time.now() - began_s
        right = [title for title in compiled if self._is_right(title)]
        for title in right:
            self._read_memory(title)
        if self.time.now() < self._deadline():  # else only the final comparison times them
            self._race(right, compile_s, beside)
        for one, _ in batch.values():
            self.time.note_cost(one, (self.time.now() - began_s) / len(batch))
        self.keep(self.tuning())

    def _prepare(self, one: Candidate) -> P | None:
        """Trace and cut a candidate; None if that fails, or if the result is already known."""
        try:
            with self.time.step("tracing", f"tracing: {one.title}"):
                prepared = self.bench.prepare(one.plan)
        except (CancelledError, NoCompilerError):
            raise
        except Exception as error:  # noqa: BLE001 - torch may raise anything in other ways of tracing
            self.tries[one.title] = one.tried(Outcome.FAILED, in_a_line(error))
            return None
        if (other := self.prepared_keys.setdefault(prepared.key, one.title)) != one.title:
            self._note_same(one, other)
            return None
        entry = self.ledger.entries.get(prepared.key)
        if entry is not None and self._remember(one, entry, prepared.kept_bytes):
            return None
        return prepared

    def _remember(self, one: Candidate, entry: LedgerEntry, kept_bytes: int | None) -> bool:
        """Take over what an earlier search has found; return whether nothing is left to try."""
        known = one.tried(entry.outcome, entry.why, kept_bytes=kept_bytes, remembered=True)
        if entry.outcome is Outcome.SAME_CODE and entry.code not in self.titles_by_code:
            return False
        if entry.code and (other := self.titles_by_code.setdefault(entry.code, one.title)) != one.title:
            self._note_same(one, other)
            return True
        if entry.outcome in (Outcome.MEASURED, Outcome.SLOWER):
            if self.limits.numbers is Numbers.BITWISE and not entry.bitwise:
                known = replace(known, outcome=Outcome.WRONG, why=NOT_BITWISE)
            elif entry.over_full is None or entry.over_full.bounds is None or TORCH_COMPILE not in self.references:
                return False  # without an interval it is no result to rely on
            else:
                known = replace(known, over_full=entry.over_full, compile_s=entry.compile_s)
        self.tries[one.title] = known
        return True

    def _compile(self, batch: Mapping[str, tuple[Candidate, P]]) -> list[str]:
        """Compile candidates side by side; return the titles of candidates with code of their own."""
        run, new, deadline_s = self.bench.context.run, list[str](), self._deadline()
        limited = dataclasses.replace(run, cancelled=lambda: run.cancelled() or self.time.now() > deadline_s)
        with self.time.step("compiling", f"compiling {count(len(batch), 'plan')}"):
            results = self.bench.compile([made for _, made in batch.values()], self.time.reporting(limited))
        self.time.stop_if_cancelled()
        for (one, made), built in zip(batch.values(), results, strict=True):
            if built is None:
                self._leave_out(one, "the budget was spent before it was compiled")
                continue
            costs: dict[str, Any] = {
                "compile_s": built.seconds,
                "kept_bytes": made.kept_bytes,
                "launches": built.launches,
            }
            if built.failure:
                self.tries[one.title] = one.tried(Outcome.FAILED, built.failure, **costs)
                if not built.may_succeed_later:
                    self._write(made.key, one.title)
            elif (other := self.titles_by_code.setdefault(built.code, one.title)) != one.title:
                self._note_same(one, other)
                self._write(made.key, one.title, built.code)
            else:
                self.tries[one.title], self.ready[one.title] = one.tried(Outcome.MEASURED, **costs), made
                new.append(one.title)
                if self.limits.max_compile_s is not None and built.seconds > self.limits.max_compile_s:
                    self._note(one.title, why=f"it took {duration(built.seconds)} to compile")
        return new

    def _is_right(self, title: str) -> bool:
        """Return whether the results of a plan are as close to eager's as required."""
        try:
            with self.time.step("checking", f"checking numerics: {title}"):
                checked = self.bench.check(self.ready[title])
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - compiled code may raise anything
            self._drop(title, Outcome.FAILED, in_a_line(error))
            return False
        not_bitwise = self.limits.numbers is Numbers.BITWISE and not checked.bitwise
        if checked.wrong:
            self._drop(title, Outcome.WRONG, checked.wrong)
        elif not_bitwise:
            self._drop(title, Outcome.WRONG, NOT_BITWISE, remember=False)
        self.bitwise[title] = checked.bitwise
        return title in self.ready

    def _race(self, titles: Sequence[str], compile_s: float, beside: str | None) -> None:
        """Time new plans against each other, an earlier plan and ``torch.compile``; slower plans leave early."""
        if not titles:
            return
        other = beside or self._best()
        others = [other] if other is not None and other not in titles and self._make_ready(other) else []
        most_s = self.time.share_s(RACE_SHARE)
        result = self._measure(
            [self._baseline, *others, *titles],
            min(max(compile_s, most_s / 3.0), most_s),
            f"racing {count(len(titles), 'plan')}",
            self._slower,
        )
        failed = self._drop_failed((*others, *titles), result)
        again = [title for title in titles if failed and title in result.pruned and title in self.ready]
        for title in (*others, *titles):
            if title not in self.ready or title in again:
                continue
            self._note_times(title, result)
            if self.tries[title].score is None:
                self._drop(title, Outcome.FAILED, f"it could not be compared with {self._baseline}", remember=False)
            elif title in titles:
                self._note(title, outcome=Outcome.SLOWER if title in result.pruned else Outcome.MEASURED)
                self._write(self.ready[title].key, title, self._code_of(title))
        self._stop_if(result)
        self._race(again, compile_s, beside)  # they may have been slower than what has failed since

    def _drop_failed(self, titles: Sequence[str], result: RoundsResult) -> list[str]:
        """Drop and return the plans that raised in their rounds, or did not run their own code."""
        whys = {title: result.dropped.get(title) or self.bench.trouble(self.ready[title]) for title in titles}
        failed = [title for title, why in whys.items() if why]
        for title in failed:
            self._drop(title, Outcome.FAILED, whys[title])
        return failed

    def _slower(self, result: RoundsResult) -> list[str]:
        """Return which plans of a race are slower than the race's best plan that can be chosen."""
        plans = [name for name in result.samples if name not in self.references]
        return surely_slower(result, self._phase, plans, lambda name: self.tries[name].can_be_chosen)

    def _read_memory(self, title: str) -> None:
        call = self.bench.call(self.ready[title], title)
        with self.time.step("memory", f"reading the memory of {title}"):
            peak = self.bench.peak_memory(call, self.time.share_s(MEMORY_SHARE))
        if peak is None:
            return
        needed = peak.peak_bytes.value if peak.peak_bytes.low is None else peak.peak_bytes.low
        constant_bytes, allowed = self.ready[title].constant_bytes, "that eager needs"
        self._note(title, peak_bytes=peak.peak_bytes, constant_bytes=constant_bytes)
        if self.limits.max_memory is not None:  # else the limit is the peak of a call, in which there are no weights
            needed, allowed = needed + constant_bytes, "allowed"
        if self.most_bytes is not None and needed > self.most_bytes:
            constants = f", {size(constant_bytes)} of it its frozen weights" if constant_bytes else ""
            self._note(title, why=f"it needs more memory than the {size(int(self.most_bytes))} {allowed}{constants}")

    # -------------------------------------------------------------------------------------------- the final comparison

    def _compare_finalists(self) -> None:
        """Time the best plans, eager, ``torch.compile`` and the plan at hand in one run, which gives the result."""
        finalists = self._finalists()
        at_hand = [AT_HAND] if AT_HAND in self.ready else []
        compared = [*self.references, *at_hand, *finalists]
        result = self._measure(compared, self._final_s(compared), "the final comparison")
        self._drop_failed((*at_hand, *finalists), result)
        measured = [title for title in result.samples if self._phase in result.samples[title] and title in self.tries]
        for title in measured:
            self._note_times(title, result, final=True)
        self.noise, self.floor = result.noise, result.floor(self._phase)
        can_be_chosen = [title for title in measured if self.tries[title].can_be_chosen]
        rivals = [title for title in can_be_chosen if title in (*self.references, AT_HAND)]
        plans = [title for title in can_be_chosen if title in finalists]
        self._stop_if(result)
        self.stopped = result.stopped

        def speed(title: str) -> float:
            ratio = result.ratio(title, self._phase)
            return 1.0 if ratio is None else ratio.value

        self.rival = self.answer = max(rivals, key=speed, default="")
        best = max(plans, key=speed, default=None)
        if best is not None and result.verdict(best, self._phase, self.rival) is Verdict.FASTER:
            self.answer, self.gain = best, result.ratio(best, self._phase, self.rival)
            self.bench.keep(self.ready[best])

    def _final_s(self, titles: Sequence[str]) -> float:
        """Return the seconds for the rounds of the final comparison, which are left after the first calls."""
        times = [self.tries[title].time_s for title in titles]
        first_calls_s = FIRST_CALLS * sum(time.value for time in times if time is not None)
        left_s = self.time.end_s - self.time.now() - first_calls_s
        return min(self.time.share_s(FINAL_SHARE), max(self.time.share_s(FINAL_SHARE / 4.0), left_s))

    def _finalists(self) -> list[str]:
        """Return the best plans; a plan whose trace was freed is compiled again if the budget allows it."""
        end_s, finalists = self.time.end_s, list[str]()
        for title in (*self._titles_fastest_first(), *self._unraced()):
            if len(finalists) == FINALISTS:
                break
            is_ready = title in self.ready or (self.time.now() < end_s and self._make_ready(title))
            if title != AT_HAND and is_ready:
                finalists.append(title)
        return finalists

    def _make_ready(self, title: str) -> bool:
        """Compile a plan whose trace was freed, or that an earlier search has tried; return whether it can run."""
        if title in self.ready:
            return True
        plan = self.tries[title].plan
        if plan is None:
            return False
        try:
            with self.time.step("tracing", f"tracing again: {title}"):
                prepared = self.bench.prepare(plan)
            with self.time.step("compiling", f"compiling again: {title}"):
                run, end_s = self.bench.context.run, self.time.end_s
                limited = dataclasses.replace(run, cancelled=lambda: run.cancelled() or self.time.now() > end_s)
                built = self.bench.compile([prepared], self.time.reporting(limited))[0]
        except (CancelledError, NoCompilerError):
            raise
        except Exception as error:  # noqa: BLE001 - as when it was tried first
            self._drop(title, Outcome.FAILED, in_a_line(error), remember=False)
            return False
        self.time.stop_if_cancelled()
        if built is None or built.failure:
            self._drop(title, Outcome.FAILED, built.failure if built else "it was not compiled", remember=False)
            return False
        self.ready[title] = prepared
        if not self.tries[title].remembered:
            return True
        if self._is_right(title):
            self._read_memory(title)
        return title in self.ready and self.tries[title].can_be_chosen

    # --------------------------------------------------------------------------------------------------------- helpers

    @property
    def _baseline(self) -> str:
        return TORCH_COMPILE if TORCH_COMPILE in self.references else EAGER

    @property
    def _phase(self) -> Phase:
        return Phase.STEP if self.bench.grad else Phase.FORWARD

    def _titles_fastest_first(self) -> list[str]:
        """Return the titles of the plans that can be chosen, the fastest first."""
        plans = [one for one in self.tries.values() if one.plan is not None and one.can_be_chosen and one.score]
        return [one.title for one in sorted(plans, key=lambda one: -(one.score or 0.0))]

    def _unraced(self) -> list[str]:
        """Return the titles of the plans that were compiled and are right, but had no time for a race."""
        return [title for title in self.ready if self.tries[title].can_be_chosen and self.tries[title].score is None]

    def _best(self) -> str | None:
        return next(iter(self._titles_fastest_first()), None)

    def _measure(
        self,
        titles: Sequence[str],
        budget_s: float,
        doing: str,
        prune: Callable[[RoundsResult], Collection[str]] = lambda _: (),
    ) -> RoundsResult:
        bench = self.bench
        calls = [self.references.get(title) or bench.call(self.ready[title], title) for title in titles]
        context = dataclasses.replace(bench.context, run=self.time.reporting(bench.context.run, doing))
        with self.time.step("timing", doing, timed=True), bench.measuring():
            return measure_rounds(calls, budget_s, context, baseline=self._baseline, prune=prune)

    def _note_times(self, title: str, result: RoundsResult, *, final: bool = False) -> None:
        phase, full = self._phase, TORCH_COMPILE in self.references
        if phase not in result.samples.get(title, {}):
            return  # it left early, and the rounds before that were disturbed
        self._note(
            title,
            time_s=result.time(title, phase),
            speedup=result.ratio(title, phase, EAGER) if final or not full else None,
            over_full=result.ratio(title, phase, TORCH_COMPILE) if full else None,
            final=final,
        )

    def _note(self, title: str, **changes: Any) -> None:
        self.tries[title] = replace(self.tries[title], **changes)

    def _note_same(self, one: Candidate, other: str) -> None:
        self.tries[one.title] = one.tried(Outcome.SAME_CODE, f"the same code as: {other}", same_as=other)

    def _leave_out(self, one: Candidate, why: str) -> None:
        self.tries[one.title] = one.tried(Outcome.NOT_TRIED, why)

    def _drop(self, title: str, outcome: Outcome, why: str, *, remember: bool = True) -> None:
        """Take a plan out of the search."""
        prepared = self.ready.pop(title, None)
        self._note(title, outcome=outcome, why=why)
        if remember and prepared is not None:
            self._write(prepared.key, title)

    def _write(self, key: str, title: str, code: str = "") -> None:
        one = self.tries[title]
        self.ledger.add(
            LedgerEntry(
                key,
                title,
                one.outcome,
                "" if one.outcome in (Outcome.MEASURED, Outcome.SLOWER) else one.why,
                code,
                one.over_full,
                one.compile_s,
                self.bitwise.get(title, False),
            )
        )

    def _code_of(self, title: str) -> str:
        return next((code for code, other in self.titles_by_code.items() if other == title), "")

    def _free_losers(self) -> None:
        """Free the traces of plans out of the race; the best plans and the plan at hand stay."""
        kept = {*self._titles_fastest_first()[: FINALISTS + 1], *self._unraced(), AT_HAND}
        self.ready = {title: prepared for title, prepared in self.ready.items() if title in kept}
        plans = [self.tries[title].plan for title in self.ready]
        self.bench.free([plan.tracing for plan in plans if plan is not None])

    @property
    def _has_compared(self) -> bool:
        """Whether a plan was timed beside the references."""
        return any(one.plan is not None and one.score is not None for one in self.tries.values())

    def _deadline(self) -> float:
        """Return the time at which the final comparison has to begin; the first plan may take half of its time."""
        return self.time.began_s + self.time.share_s(1.0 - FINAL_SHARE * (1.0 if self._has_compared else 0.5))

    def _so_far(self) -> str:
        """Return the results so far, for the progress line."""
        best, tried = self._best(), sum(one.outcome is not Outcome.NOT_TRIED for one in self.tries.values())
        if best is None or (score := self.tries[best].score) is None:
            return ""
        return f"best so far {times(score)} as fast as {self._baseline}, {tried} tried; "

    def _stop_if(self, result: RoundsResult) -> None:
        """End the search if its rounds were interrupted or cancelled; their results are kept."""
        result.stopped.raise_interrupt()
        if result.stopped is Stop.CANCELLED:
            raise CancelledError

    def tuning(self) -> Tuning:
        """Return the record of the search."""
        return Tuning(
            tuple(self.tries.values()),
            self.answer,
            self.rival,
            self.gain,
            self.limits.numbers,
            self.limits.budget_s,
            self.time.spent_s,
            dict(self.time.spent_on),
            tuple(self.pieces),
            str(self.stopped),
            self.noise,
            self.floor,
        )


def _surely_behind(one: Try, best: Try) -> float:
    """Return the fraction by which a try is at least slower than the best; 0 if an interval is missing."""
    ours, theirs = (tried.over_full or tried.speedup for tried in (one, best))
    if ours is None or theirs is None or ours.high is None or theirs.low is None:
        return 0.0
    return max(0.0, 1.0 - ours.high / theirs.low)


NOT_BITWISE = "its results are not those of eager to the bit"
NOT_COMPARED = "its results were not compared with those of eager to the bit"
