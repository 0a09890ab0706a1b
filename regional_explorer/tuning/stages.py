"""The stages of a search on one call: ways of tracing, C++ wrappers, configs, and configs for each region."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from concurrent.futures import CancelledError
from typing import Generic

from regional_explorer.errors import NoCompilerError, error_line
from regional_explorer.record.benchmark import Verdict
from regional_explorer.record.plan import Plan, UserFunction, config_texts
from regional_explorer.record.statistics import MIN_FLOOR
from regional_explorer.record.tuning import AT_HAND, Outcome, PieceRace, SearchStage, Try
from regional_explorer.tuning.bench import Bench, P, RaceResult, TimedPiece
from regional_explorer.tuning.budget import Limits
from regional_explorer.tuning.space import (
    WRAPPER,
    Candidate,
    Root,
    best_changes,
    candidate_of,
    in_words,
    is_whole,
    keys_for,
    likeliest_candidates,
    neighbours,
    tracings_to_try,
    whole_graph_candidate,
    with_changes,
    with_configs_of,
    with_pass,
    without_cpp_wrapper,
)
from regional_explorer.tuning.tries import Tries

PIECES_SHARE = 0.08
"""The largest share of the budget for races of single pieces."""
COMPILED = (Outcome.MEASURED, Outcome.SLOWER, Outcome.SAME_CODE)
"""The outcomes of plans whose pieces can be raced."""
WRAPPED_WITHIN = 0.1
"""A C++ wrapper is tried on a tracing that, without it, is slower than the best by at most this fraction."""


WRAPPED_STAGES = (SearchStage.TRACING, SearchStage.PASSES)
"""The stages whose plans are tried with a C++ wrapper."""


class Stages(Generic[P]):
    """What a search tries on one call, in which order, without plans whose titles are in ``elsewhere``.

    ``pieces`` are the races of single pieces.
    """

    def __init__(self, bench: Bench[P], limits: Limits, tries: Tries[P]) -> None:
        self.tries = tries
        self.pieces: list[PieceRace] = []
        self.elsewhere: Container[str] = ()
        self._bench, self._limits, self._time = bench, limits, tries.time

    def try_likeliest(self) -> None:
        """Try the plans that are mostly the best, and the plan at hand: a short budget is spent on these."""
        first, *others = likeliest_candidates(grad=self._bench.grad)
        passes = self._limits.passes
        treated = [with_pass(first, one) for one in passes]
        self.try_all([first, *treated, *self._plan_at_hand()])
        if self.tries.best in [one.title for one in treated]:
            others = [with_pass(other, one) for one in passes for other in others]
        self.try_all(others)

    def try_tracings(self) -> None:
        """Try the whole graph under the ways of tracing, the best of them with C++ wrappers, then the configs."""
        self.try_all(
            [whole_graph_candidate(SearchStage.TRACING, tracing) for tracing in tracings_to_try(grad=self._bench.grad)]
        )
        if (best := self.tries.best) is not None:
            base = self.tries.candidates[best]
            self.try_all([with_pass(base, one) for one in self._limits.passes if not _has_pass(base.plan, one)])
        self._try_wrappers()
        self._try_keys()

    def try_all(self, candidates: Iterable[Candidate], beside: str | None = None) -> None:
        """Try candidates that were not tried elsewhere; they race the plan ``beside``, the best by default."""
        self.tries.try_all([one for one in candidates if one.title not in self.elsewhere], beside)

    def _plan_at_hand(self) -> list[Candidate]:
        """Return the plan at hand if it has regions and is not tried anyway; else nothing."""
        at_hand = self._bench.at_hand
        is_another = at_hand.regions and not is_whole(at_hand)
        return [candidate_of(SearchStage.REFERENCE, Root(AT_HAND, at_hand))] if is_another else []

    def _try_wrappers(self) -> None:
        """Try C++ wrappers on the tracings that are not much slower than the best, the fastest first."""
        traced = [tried for tried in self.tries if tried.stage in WRAPPED_STAGES and tried.score is not None]
        traced.sort(key=lambda tried: -(tried.score or 0.0))
        wrapped = []
        for tried in traced:
            with_wrapper = candidate_of(SearchStage.WRAPPER, self.tries.candidates[tried.title].root, WRAPPER)
            behind = surely_behind(tried, traced[0])
            if behind <= WRAPPED_WITHIN:
                wrapped.append(with_wrapper)
            else:
                self.tries.leave_out(
                    with_wrapper, f"too slow without the C++ wrapper: at least {behind:.0%} slower than the best"
                )
        self.try_all(wrapped)

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
        changed = list(neighbours(base, self._limits.keys))
        untried = [plan for plan in changed if plan.title not in self.tries]
        self.try_all(untried, beside=base.title)
        better = [plan for plan in changed if plan.title != best.title and self._is_better(plan.title, base)]
        if len(better) > 1 or (better and best != base):
            self.try_all([with_configs_of(best, better)])
        return any(plan.title in self.tries.tried for plan in untried)

    def _is_better(self, title: str, base: Candidate) -> bool:
        if title not in self.tries:
            return False
        tried, score = self.tries[title], self.tries[base.title].score or 0.0
        return tried.can_be_chosen and (tried.score or 0.0) > score * (1.0 + MIN_FLOOR)

    # ------------------------------------------------------------------------------------------------ keys per region

    def try_pieces(self) -> None:
        """Race the pieces of the best plan alone, and try the winners together; if that is the best, try the keys."""
        if self._has_better_pieces():
            self._try_keys()

    def _has_better_pieces(self) -> bool:
        """Return whether the configs that won the races of the pieces make a better plan together.

        The pieces are compiled already under each config that was tried on the best plan.
        """
        best = self.tries.best
        if best is None or not self.tries.make_ready(best):
            return False
        base = self.tries.candidates[best]
        new = [change for change in keys_for(base, self._limits.keys) if not change.items() <= base.config.items()]
        changed = {
            ", ".join(config_texts(change)): (change, neighbour)
            for change, neighbour in zip(new, neighbours(base, new), strict=True)
            if neighbour.title in self.tries and self.tries[neighbour.title].outcome in COMPILED
        }
        if not changed or self._time.now() + self._time.share_s(PIECES_SHARE) > self.tries.deadline():
            return False
        with self._time.step("tracing", "cutting the pieces of the best plan"):
            others = {change: self._bench.prepare(neighbour.plan) for change, (_, neighbour) in changed.items()}
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
        with self._time.step("timing", "timing the pieces of the best plan", timed=True):
            pieces = self._bench.pieces(self.tries.ready[best], self._time.share_s(PIECES_SHARE / 4.0))
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
            budget_s = self._time.share_s(PIECES_SHARE) * piece.seconds_per_call / all_s
            try:
                with self._time.step("timing", f"racing the pieces of the best plan: {piece.partition}", timed=True):
                    results = self._bench.race_piece(piece, others, budget_s)
            except (CancelledError, NoCompilerError):
                raise
            except Exception as error:  # noqa: BLE001 - compiled code may raise anything
                self.pieces.append(PieceRace(piece.partition, why_not=error_line(error)))
                results = {}
            else:
                self.pieces.append(_piece_race(piece.partition, results))
            raced.append((piece, results))
        return raced


def _has_pass(plan: Plan, one: UserFunction) -> bool:
    return any(one in region.treatment.passes for region in plan.regions)


def _piece_race(partition: str, results: Mapping[str, RaceResult]) -> PieceRace:
    """Return a race of a piece with its winner."""
    faster = {change: raced for change, raced in results.items() if raced.verdict is Verdict.FASTER}
    best = max(faster, key=lambda change: faster[change].speedup.value, default="")
    return PieceRace(partition, best, faster[best].speedup if best else None)


def surely_behind(tried: Try, best: Try, least: float = 0.0) -> float:
    """Return the fraction by which a try is at least slower than the best, and than a call whose score is ``least``.

    It is 0 if an interval is missing.
    """
    speed, best_speed = tried.over_full or tried.speedup, best.over_full or best.speedup
    if speed is None or best_speed is None or speed.high is None or best_speed.low is None:
        return 0.0
    return max(0.0, 1.0 - speed.high / max(best_speed.low, least))
