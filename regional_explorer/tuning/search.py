"""Searches for the fastest plan of a call: tries plan after plan, then compares the best with the references."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Generic

from regional_explorer.errors import NoCompilerError, error_line
from regional_explorer.measure.rounds import FIRST_CALLS, StopReason
from regional_explorer.record.benchmark import Verdict
from regional_explorer.record.figure import QUIET, Figure
from regional_explorer.record.plan import config_texts
from regional_explorer.record.statistics import MIN_FLOOR
from regional_explorer.record.tuning import AT_HAND, EAGER, Outcome, PieceRace, SearchStage, Try, Tuning
from regional_explorer.tables.tuning import search_sentences
from regional_explorer.tuning.bench import Bench, P, RaceResult, TimedPiece
from regional_explorer.tuning.budget import Limits
from regional_explorer.tuning.ledger import Ledger
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
    tracings_to_try,
    whole_graph_candidate,
    with_changes,
    with_configs_of,
    without_cpp_wrapper,
)
from regional_explorer.tuning.tries import FINAL_SHARE, FINALISTS, Tries

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
    """What a search tries, in which order, and the result of its final comparison."""

    def __init__(self, bench: Bench[P], limits: Limits, ledger: Ledger, keep: Callable[[Tuning], object]) -> None:
        """Start the clock."""
        self.bench = bench
        self.limits = limits
        self.tries = Tries(bench, limits, ledger, lambda: keep(self.tuning()))
        self.time = self.tries.time
        self.pieces: list[PieceRace] = []
        self.answer = self.rival = ""
        self.gain: Figure | None = None
        self.stopped: str = StopReason.PRECISE
        self.noise, self.floor = QUIET, 0.0

    def go(self) -> None:
        """Try what the budget allows, and compare the best."""
        self.tries.measure_references()
        first, *others = likeliest_candidates(grad=self.bench.grad)
        self.tries.try_all([first, *self._plan_at_hand(), *others])
        self.tries.try_all(
            [whole_graph_candidate(SearchStage.TRACING, tracing) for tracing in tracings_to_try(grad=self.bench.grad)]
        )
        self._try_wrappers()
        self._try_keys()
        self._try_others()
        if self._try_pieces():
            self._try_keys()
        self._compare_finalists()

    def _plan_at_hand(self) -> list[Candidate]:
        """Return the plan at hand if it has regions and is not tried anyway; else nothing."""
        at_hand = self.bench.at_hand
        is_another = at_hand.regions and not is_whole(at_hand)
        return [candidate_of(SearchStage.REFERENCE, Root(AT_HAND, at_hand))] if is_another else []

    def _try_wrappers(self) -> None:
        """Try C++ wrappers on the tracings that are not much slower than the best, the fastest first."""
        traced = [tried for tried in self.tries if tried.stage is SearchStage.TRACING and tried.score is not None]
        traced.sort(key=lambda tried: -(tried.score or 0.0))
        wrapped = []
        for tried in traced:
            assert tried.plan is not None  # noqa: S101 - only the references have none
            with_wrapper = whole_graph_candidate(SearchStage.WRAPPER, tried.plan.tracing, WRAPPER)
            behind = _surely_behind(tried, traced[0])
            if behind <= WRAPPED_WITHIN:
                wrapped.append(with_wrapper)
            else:
                self.tries.leave_out(
                    with_wrapper, f"too slow without the C++ wrapper: at least {behind:.0%} slower than the best"
                )
        self.tries.try_all(wrapped)

    def _try_keys(self) -> None:
        """Try every config on the best plan, then the best configs together, until nothing gets better.

        The first time, the configs are tried without a C++ wrapper, which takes longer to compile: a config that helps
        without it mostly helps with it, too.
        """
        best = self.tries.best
        if best is not None and WRAPPER.items() <= self.tries.candidates[best].config.items():
            bare = without_cpp_wrapper(self.tries.candidates[best])
            if bare.title in self.tries and self.tries[bare.title].score is not None:
                self._try_keys_on(bare, self.tries.candidates[best])
        while (best := self.tries.best) is not None:
            base = self.tries.candidates[best]
            if not self._try_keys_on(base, base):
                return

    def _try_keys_on(self, base: Candidate, best: Candidate) -> bool:
        """Try every config on ``base``, and the best configs together on ``best``; return whether a try was new."""
        changed = list(neighbours(base, self.limits.keys))
        untried = [plan for plan in changed if plan.title not in self.tries]
        self.tries.try_all(untried, beside=base.title)
        better = [plan for plan in changed if plan.title != best.title and self._is_better(plan.title, base)]
        if len(better) > 1 or (better and best != base):
            self.tries.try_all([with_configs_of(best, better)])
        return any(self.tries[plan.title].outcome is not Outcome.NOT_TRIED for plan in untried)

    def _is_better(self, title: str, base: Candidate) -> bool:
        tried, score = self.tries[title], self.tries[base.title].score or 0.0
        return tried.can_be_chosen and (tried.score or 0.0) > score * (1.0 + MIN_FLOOR)

    def _try_others(self) -> None:
        """Try the plan at hand under other tracings, and suggested regions under the best tracing."""
        if (best := self.tries.best) is not None:
            tracing = self.tries.candidates[best].plan.tracing
            self.tries.try_all(
                other_plans(self.bench.at_hand, self.bench.suggested, tracings_to_try(grad=self.bench.grad), tracing)
            )

    # ------------------------------------------------------------------------------------------------ keys per region

    def _try_pieces(self) -> bool:
        """Race the pieces of the best plan alone, and try the winners together; return whether that plan is the best.

        The pieces are compiled already under each config that was tried on the best plan.
        """
        best = self.tries.best
        if best is None or not self.tries.make_ready(best):
            return False
        base = self.tries.candidates[best]
        new = [change for change in self.limits.keys if not change.items() <= base.config.items()]
        changed = {
            ", ".join(config_texts(change)): (change, neighbour)
            for change, neighbour in zip(new, neighbours(base, new), strict=True)
            if neighbour.title in self.tries and self.tries[neighbour.title].outcome in COMPILED
        }
        if not changed or self.time.now() + self.time.share_s(PIECES_SHARE) > self.tries.deadline():
            return False
        with self.time.step("tracing", "cutting the pieces of the best plan"):
            others = {change: self.bench.prepare(neighbour.plan) for change, (_, neighbour) in changed.items()}
        raced = self._race_pieces(best, others)
        changes = {place: changed[change][0] for place, change in best_changes(raced).items()}
        if not changes:
            return False
        plan = with_changes(base.plan, changes)
        together_again = candidate_of(SearchStage.PIECES, Root(f"{best}; {in_words(changes)}", plan))
        self.tries.try_all([together_again])
        return self.tries.best == together_again.title

    def _race_pieces(self, best: str, others: Mapping[str, P]) -> list[tuple[TimedPiece, Mapping[str, RaceResult]]]:
        """Race each kind of piece of a plan that matters; pieces that take most of the time get most of the budget."""
        with self.time.step("timing", "timing the pieces of the best plan", timed=True):
            pieces = self.bench.pieces(self.tries.ready[best], self.time.share_s(PIECES_SHARE / 4.0))
        time_s, least_s = self.tries[best].time_s, 0.0
        if time_s is not None:
            least_s = MIN_FLOOR * time_s.value
        all_s = sum(piece.seconds_per_call for piece in pieces if piece.seconds_per_call >= least_s)
        raced = []
        for piece in sorted(pieces, key=lambda piece: -piece.seconds_per_call):
            if piece.seconds_per_call < least_s:
                why_not = f"if it took no time at all, a call would be faster by less than {MIN_FLOOR:.1%}"
                self.pieces.append(PieceRace(piece.partition, why_not=why_not))
                continue
            budget_s = self.time.share_s(PIECES_SHARE) * piece.seconds_per_call / all_s
            try:
                with self.time.step("timing", f"racing the pieces of the best plan: {piece.partition}", timed=True):
                    results = self.bench.race_piece(piece, others, budget_s)
            except (CancelledError, NoCompilerError):
                raise
            except Exception as error:  # noqa: BLE001 - compiled code may raise anything
                self.pieces.append(PieceRace(piece.partition, why_not=error_line(error)))
                results = {}
            else:
                self.pieces.append(_piece_race(piece.partition, results))
            raced.append((piece, results))
        return raced

    # -------------------------------------------------------------------------------------------- the final comparison

    def _compare_finalists(self) -> None:
        """Time the best plans, eager, ``torch.compile`` and the plan at hand in one run, which gives the result."""
        finalists = self._finalists()
        at_hand = [AT_HAND] if AT_HAND in self.tries.ready else []
        compared = [*self.tries.references, *at_hand, *finalists]
        result = self.tries.measure(compared, self._final_s(compared), "the final comparison")
        self.tries.drop_failed(compared, result)
        right = self.tries.references.keys() | self.tries.ready.keys()
        measured = [title for title in compared if title in right and self.tries.phase in result.samples.get(title, {})]
        for title in measured:
            self.tries.record_times(title, result, final=True)
        self.noise, self.floor = result.noise, result.floor(self.tries.phase)
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
            self.bench.keep(self.tries.ready[best])

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
        may_win = [title for title in ranked if _surely_behind(self.tries[title], self.tries[ranked[0]], 1.0) == 0.0]
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
            tuple(self.tries),
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


def _piece_race(partition: str, results: Mapping[str, RaceResult]) -> PieceRace:
    """Return a race of a piece with its winner."""
    faster = {change: raced for change, raced in results.items() if raced.verdict is Verdict.FASTER}
    best = max(faster, key=lambda change: faster[change].speedup.value, default="")
    return PieceRace(partition, best, faster[best].speedup if best else None)


def _surely_behind(tried: Try, best: Try, least: float = 0.0) -> float:
    """Return the fraction by which a try is at least slower than the best, and than a call whose score is ``least``.

    It is 0 if an interval is missing.
    """
    speed, best_speed = tried.over_full or tried.speedup, best.over_full or best.speedup
    if speed is None or best_speed is None or speed.high is None or best_speed.low is None:
        return 0.0
    return max(0.0, 1.0 - speed.high / max(best_speed.low, least))
