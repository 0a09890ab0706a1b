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
    candidate_of,
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
"""The number of plans that are compiled side by side, then raced. It is small so that a cancelled search has results.

The first plan is compiled alone: it shows what the others will cost.
"""
FINALISTS = 3
PIECES_SHARE = 0.08
"""The largest share of the budget for races of single pieces."""
COMPILED = (Outcome.MEASURED, Outcome.SLOWER, Outcome.SAME_CODE)
"""The outcomes of plans whose pieces can be raced."""
WRAPPED_WITHIN = 0.1
"""A C++ wrapper is tried on a tracing that, without it, is slower than the best by at most this fraction."""


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
    rounds: int = 0
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
        """Return the plan at hand if it has regions and is not tried anyway; else nothing."""
        at_hand = self.bench.at_hand
        is_another = at_hand.regions and not is_whole(at_hand)
        return [candidate_of(SearchStage.REFERENCE, Root(AT_HAND, at_hand))] if is_another else []

    def _try_wrappers(self) -> None:
        """Try C++ wrappers on the tracings that are not much slower than the best, the fastest first."""
        traced = [
            tried for tried in self.tries.values() if tried.stage is SearchStage.TRACING and tried.score is not None
        ]
        traced.sort(key=lambda tried: -(tried.score or 0.0))
        wrapped = []
        for tried in traced:
            assert tried.plan is not None  # noqa: S101 - only the references have none
            with_wrapper = whole_graph_candidate(SearchStage.WRAPPER, tried.plan.tracing, WRAPPER)
            behind = _surely_behind(tried, traced[0])
            if behind <= WRAPPED_WITHIN:
                wrapped.append(with_wrapper)
            else:
                self._leave_out(with_wrapper, f"without the wrapper it is at least {behind:.0%} slower than the best")
        self._try(wrapped)

    def _try_keys(self) -> None:
        """Try every config on the best plan, then the best configs together, until nothing gets better.

        The first time, the configs are tried without a C++ wrapper, which takes longer to compile: a config that helps
        without it mostly helps with it, too.
        """
        best = self._best()
        if best is not None and WRAPPER.items() <= self.candidates[best].config.items():
            bare = without_cpp_wrapper(self.candidates[best])
            if bare.title in self.tries and self.tries[bare.title].score is not None:
                self._try_keys_on(bare, self.candidates[best])
        while (best := self._best()) is not None and self._try_keys_on(self.candidates[best], self.candidates[best]):
            pass

    def _try_keys_on(self, base: Candidate, best: Candidate) -> bool:
        """Try every config on ``base``, and the best configs together on ``best``; return whether a try was new."""
        changed = list(neighbours(base, self.limits.keys))
        untried = [plan for plan in changed if plan.title not in self.tries]
        self._try(untried, beside=base.title)
        better = [plan for plan in changed if plan.title != best.title and self._is_better(plan.title, base)]
        if len(better) > 1 or (better and best != base):
            self._try([with_configs_of(best, better)])
        return any(self.tries[plan.title].outcome is not Outcome.NOT_TRIED for plan in untried)

    def _try_others(self) -> None:
        """Try the plan at hand under other tracings, and suggested regions under the best tracing."""
        if (best := self._best()) is not None:
            tracing = self.candidates[best].plan.tracing
            self._try(other_plans(self.bench.at_hand, self.bench.suggested, ways(grad=self.bench.grad), tracing))

    # ------------------------------------------------------------------------------------------------ keys per region

    def _try_pieces(self) -> bool:
        """Race the pieces of the best plan alone, and try the winners together; return whether that plan is the best.

        The pieces are compiled already under each config that was tried on the best plan.
        """
        best = self._best()
        if best is None or not self._make_ready(best):
            return False
        base = self.candidates[best]
        new = [change for change in self.limits.keys if not change.items() <= base.config.items()]
        changed = {
            ", ".join(config_texts(change)): (change, neighbour)
            for change, neighbour in zip(new, neighbours(base, new), strict=True)
            if neighbour.title in self.tries and self.tries[neighbour.title].outcome in COMPILED
        }
        if not changed or self.time.now() + self.time.share_s(PIECES_SHARE) > self._deadline():
            return False
        with self.time.step("tracing", "cutting the pieces of the best plan"):
            others = {change: self.bench.prepare(neighbour.plan) for change, (_, neighbour) in changed.items()}
        raced = self._race_pieces(best, others)
        changes = {place: changed[change][0] for place, change in best_changes(raced).items()}
        if not changes:
            return False
        plan = with_changes(base.plan, changes)
        together_again = candidate_of(SearchStage.PIECES, Root(f"{best}; {in_words(changes)}", plan))
        self._try([together_again])
        return self._best() == together_again.title

    def _race_pieces(self, best: str, others: Mapping[str, P]) -> list[tuple[TimedPiece, Mapping[str, Raced]]]:
        """Race each kind of piece of a plan that matters; pieces that take most of the time get most of the budget."""
        with self.time.step("timing", "timing the pieces of the best plan", timed=True):
            pieces = self.bench.pieces(self.ready[best], self.time.share_s(PIECES_SHARE / 4.0))
        time_s, least_s = self.tries[best].time_s, 0.0
        if time_s is not None:
            least_s = MIN_FLOOR * time_s.value
        all_s = sum(piece.seconds_per_call for piece in pieces if piece.seconds_per_call >= least_s)
        raced = []
        for piece in sorted(pieces, key=lambda piece: -piece.seconds_per_call):
            race = PieceRace(piece.partition, piece.region, piece.direction, piece.runs, piece.seconds)
            if piece.seconds_per_call < least_s:
                why_not = f"if it took no time at all, a call would be faster by less than {MIN_FLOOR:.1%}"
                self.pieces.append(replace(race, why_not=why_not))
                continue
            budget_s = self.time.share_s(PIECES_SHARE) * piece.seconds_per_call / all_s
            try:
                with self.time.step("timing", f"racing the pieces of the best plan: {piece.partition}", timed=True):
                    results = self.bench.race_piece(piece, others, budget_s)
            except (CancelledError, NoCompilerError):
                raise
            except Exception as error:  # noqa: BLE001 - compiled code may raise anything
                self.pieces.append(replace(race, why_not=in_a_line(error)))
                results = {}
            else:
                self.pieces.append(self._piece_race(race, results))
            raced.append((piece, results))
        return raced

    @staticmethod
    def _piece_race(race: PieceRace, results: Mapping[str, Raced]) -> PieceRace:
        """Return a race of a piece with its winner."""
        faster = {change: raced for change, raced in results.items() if raced.verdict is Verdict.FASTER}
        best = max(faster, key=lambda change: faster[change].speedup.value, default="")
        codes = len({id(raced) for raced in results.values() if raced.verdict is not Verdict.BASELINE})
        return replace(race, codes=codes, best=best, gain=faster[best].speedup if best else None)

    def _is_better(self, title: str, base: Candidate) -> bool:
        tried, score = self.tries[title], self.tries[base.title].score or 0.0
        return tried.can_be_chosen and (tried.score or 0.0) > score * (1.0 + MIN_FLOOR)

    # ----------------------------------------------------------------------------------------------------- one batch

    def _try(self, candidates: Iterable[Candidate], beside: str | None = None) -> None:
        """Compile, check and race candidates in batches, as far as the budget goes.

        They race the plan ``beside``, the best by default.
        """
        batch: dict[str, tuple[Candidate, P]] = {}
        began_s = self.time.now()
        for candidate in candidates:
            if candidate.title in self.tries:
                continue
            self.candidates[candidate.title] = candidate
            if not self._has_time(candidate, [other for other, _ in batch.values()]):
                needs = f"it would take about {duration(self.time.cost_s(candidate))} to compile and time"
                self._leave_out(candidate, f"the budget is spent: {needs}")
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
            return self.time.now() < self._deadline()  # without a single plan there is nothing to compare
        return self.time.now() + sum(map(self.time.cost_s, (candidate, *batched))) <= self._deadline()

    def _try_batch(self, batch: Mapping[str, tuple[Candidate, P]], began_s: float, beside: str | None) -> None:
        """Compile, check and race plans; their cost since ``began_s`` is the estimate for later plans."""
        compiled = self._compile(batch)
        compile_s = self.time.now() - began_s
        right = [title for title in compiled if self._is_right(title)]
        for title in right:
            self._read_memory(title)
        if self.time.now() < self._deadline():  # otherwise only the final comparison times them
            self._race(right, compile_s, beside)
        for candidate, _ in batch.values():
            self.time.note_cost(candidate, (self.time.now() - began_s) / len(batch))
        self.keep(self.tuning())

    def _prepare(self, candidate: Candidate) -> P | None:
        """Trace and cut a candidate; None if that fails, or if the result is already known."""
        try:
            with self.time.step("tracing", f"tracing: {candidate.title}"):
                prepared = self.bench.prepare(candidate.plan)
        except (CancelledError, NoCompilerError):
            raise
        except Exception as error:  # noqa: BLE001 - torch may raise anything in other ways of tracing
            self.tries[candidate.title] = candidate.tried(Outcome.FAILED, in_a_line(error))
            return None
        if (other := self.prepared_keys.setdefault(prepared.key, candidate.title)) != candidate.title:
            self._note_same(candidate, other)
            return None
        entry = self.ledger.entries.get(prepared.key)
        if entry is not None and self._remember(candidate, entry, prepared.kept_bytes):
            return None
        return prepared

    def _remember(self, candidate: Candidate, entry: LedgerEntry, kept_bytes: int | None) -> bool:
        """Take over the result of an earlier search; return whether the candidate needs no try any more."""
        tried = candidate.tried(entry.outcome, entry.why, kept_bytes=kept_bytes, remembered=True)
        if entry.outcome is Outcome.SAME_CODE and entry.code not in self.titles_by_code:
            return False
        if entry.code and (other := self.titles_by_code.setdefault(entry.code, candidate.title)) != candidate.title:
            self._note_same(candidate, other)
            return True
        if entry.outcome in (Outcome.MEASURED, Outcome.SLOWER):
            if self.limits.numbers is Numbers.BITWISE and not entry.bitwise:
                tried = replace(tried, outcome=Outcome.WRONG, why=NOT_BITWISE)
            elif entry.over_full is None or entry.over_full.bounds is None or TORCH_COMPILE not in self.references:
                return False  # a result without an interval is not relied on
            else:
                tried = replace(tried, over_full=entry.over_full, compile_s=entry.compile_s)
        self.tries[candidate.title] = tried
        return True

    def _compile(self, batch: Mapping[str, tuple[Candidate, P]]) -> list[str]:
        """Compile candidates side by side; return the titles of candidates with code of their own."""
        run, new, deadline_s = self.bench.context.run, list[str](), self._deadline()
        limited = dataclasses.replace(run, cancelled=lambda: run.cancelled() or self.time.now() > deadline_s)
        with self.time.step("compiling", f"compiling {count(len(batch), 'plan')}"):
            results = self.bench.compile([prepared for _, prepared in batch.values()], self.time.reporting(limited))
        self.time.stop_if_cancelled()
        for (candidate, prepared), built in zip(batch.values(), results, strict=True):
            if built is None:
                self._leave_out(candidate, "the budget was spent before it was compiled")
                continue
            costs: dict[str, Any] = {
                "compile_s": built.seconds,
                "kept_bytes": prepared.kept_bytes,
                "launches": built.launches,
            }
            if built.failure:
                self.tries[candidate.title] = candidate.tried(Outcome.FAILED, built.failure, **costs)
                if not built.may_succeed_later:
                    self._write(prepared.key, candidate.title)
            elif (other := self.titles_by_code.setdefault(built.code, candidate.title)) != candidate.title:
                self._note_same(candidate, other)
                self._write(prepared.key, candidate.title, built.code)
            else:
                self.tries[candidate.title] = candidate.tried(Outcome.MEASURED, **costs)
                self.ready[candidate.title] = prepared
                new.append(candidate.title)
                if self.limits.max_compile_s is not None and built.seconds > self.limits.max_compile_s:
                    self._note(candidate.title, why=f"it took {duration(built.seconds)} to compile")
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
        # A pruned plan may have been slower only than a plan that has failed since.
        repeated = [title for title in titles if failed and title in result.pruned and title in self.ready]
        for title in (*others, *titles):
            if title not in self.ready or title in repeated:
                continue
            self._note_times(title, result)
            if self.tries[title].score is None:
                self._drop(title, Outcome.FAILED, f"it could not be compared with {self._baseline}", remember=False)
            elif title in titles:
                self._note(title, outcome=Outcome.SLOWER if title in result.pruned else Outcome.MEASURED)
                self._write(self.ready[title].key, title, self._code_of(title))
        self._stop_if(result)
        self._race(repeated, compile_s, beside)

    def _drop_failed(self, titles: Sequence[str], result: RoundsResult) -> list[str]:
        """Drop and return the plans that raised in their rounds, or did not run their own code."""
        whys = {title: result.dropped.get(title) or self.bench.trouble(self.ready[title]) for title in titles}
        failed = [title for title, why in whys.items() if why]
        for title in failed:
            self._drop(title, Outcome.FAILED, whys[title])
        return failed

    def _slower(self, result: RoundsResult) -> list[str]:
        """Return the plans of a race that are slower than its best plan that can be chosen."""
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
        if self.limits.max_memory is not None:  # else the limit is eager's peak in a call, which includes no weights
            needed, allowed = needed + constant_bytes, "allowed"
        if self.most_bytes is not None and needed > self.most_bytes:
            constants = f", {size(constant_bytes)} for frozen weights included" if constant_bytes else ""
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
        self.rounds, self.noise, self.floor = result.rounds, result.noise, result.floor(self._phase)
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
        """Return the seconds that the first calls of the final comparison leave for its rounds."""
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
        except Exception as error:  # noqa: BLE001 - as in the first try
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
        plans = [tried for tried in self.tries.values() if tried.plan and tried.can_be_chosen and tried.score]
        return [tried.title for tried in sorted(plans, key=lambda tried: -(tried.score or 0.0))]

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

    def _note_same(self, candidate: Candidate, other: str) -> None:
        self.tries[candidate.title] = candidate.tried(Outcome.SAME_CODE, f"the same code as: {other}", same_as=other)

    def _leave_out(self, candidate: Candidate, why: str) -> None:
        self.tries[candidate.title] = candidate.tried(Outcome.NOT_TRIED, why)

    def _drop(self, title: str, outcome: Outcome, why: str, *, remember: bool = True) -> None:
        """Take a plan out of the search."""
        prepared = self.ready.pop(title, None)
        self._note(title, outcome=outcome, why=why)
        if remember and prepared is not None:
            self._write(prepared.key, title)

    def _write(self, key: str, title: str, code: str = "") -> None:
        tried = self.tries[title]
        self.ledger.add(
            LedgerEntry(
                key,
                title,
                tried.outcome,
                "" if tried.outcome in (Outcome.MEASURED, Outcome.SLOWER) else tried.why,
                code,
                tried.over_full,
                tried.compile_s,
                self.bitwise.get(title, False),
            )
        )

    def _code_of(self, title: str) -> str:
        return next((code for code, other in self.titles_by_code.items() if other == title), "")

    def _free_losers(self) -> None:
        """Free the traces of plans out of the race; the best plans and the plan at hand stay."""
        titles = {*self._titles_fastest_first()[: FINALISTS + 1], *self._unraced(), AT_HAND}
        self.ready = {title: prepared for title, prepared in self.ready.items() if title in titles}
        plans = [self.tries[title].plan for title in self.ready]
        self.bench.free([plan.tracing for plan in plans if plan is not None])

    @property
    def _has_compared(self) -> bool:
        """Whether a plan was timed beside the references."""
        return any(tried.plan is not None and tried.score is not None for tried in self.tries.values())

    def _deadline(self) -> float:
        """Return the time at which the final comparison has to begin; the first plan may take half of its time."""
        return self.time.began_s + self.time.share_s(1.0 - FINAL_SHARE * (1.0 if self._has_compared else 0.5))

    def _so_far(self) -> str:
        """Return the results so far, for the progress line."""
        best, number = self._best(), sum(tried.outcome is not Outcome.NOT_TRIED for tried in self.tries.values())
        if best is None or (score := self.tries[best].score) is None:
            return ""
        return f"best so far {times(score)} as fast as {self._baseline}, {number} tried; "

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
            self.rounds,
            self.noise,
            self.floor,
        )


def _surely_behind(tried: Try, best: Try) -> float:
    """Return the fraction by which a try is at least slower than the best; 0 if an interval is missing."""
    speed, best_speed = tried.over_full or tried.speedup, best.over_full or best.speedup
    if speed is None or best_speed is None or speed.high is None or best_speed.low is None:
        return 0.0
    return max(0.0, 1.0 - speed.high / best_speed.low)


NOT_BITWISE = "its results are not those of eager to the bit"
NOT_COMPARED = "its results were not compared with those of eager to the bit"
