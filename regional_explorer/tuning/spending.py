"""Where the time of a search goes: the time per task, the cost of a plan, and the rest of the budget."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from regional_explorer.compiler.run import Run
from regional_explorer.record.tuning import SearchStage
from regional_explorer.tuning.bench import Bench
from regional_explorer.tuning.space import WRAPPER, Candidate

WRAPPER_COSTS = 2.5
"""The assumed factor by which a C++ wrapper lengthens a compile, until one was seen."""


class Spending:
    """The clock of a search with a budget: it reports each step, runs it, and charges its time to a task.

    ``so_far`` returns the beginning of each report; ``first_cost_s`` is what a plan costs until one was compiled.
    """

    def __init__(self, bench: Bench[Any], budget_s: float, so_far: Callable[[], str]) -> None:
        self._bench, self.budget_s, self._so_far = bench, budget_s, so_far
        self.began_s = self.now()
        self.spent_on: dict[str, float] = {}
        self.first_cost_s = 0.0
        self._costs: dict[tuple[bool, bool], list[float]] = {}

    def now(self) -> float:
        """Return the time of the bench's clock."""
        return self._bench.context.clock.now()

    def share_s(self, share: float) -> float:
        """Return the seconds of a share of the budget."""
        return share * self.budget_s

    @property
    def spent_s(self) -> float:
        """The seconds since the beginning."""
        return self.now() - self.began_s

    @property
    def end_s(self) -> float:
        """The time at which the budget is spent."""
        return self.began_s + self.budget_s

    # ---------------------------------------------------------------------------------------------------------- steps

    @contextmanager
    def step(self, what: str, doing: str, *, timed: bool = False) -> Iterator[None]:
        """Context manager: run a step whose time is charged to ``what``; report it first.

        Raises:
            CancelledError: the search was cancelled before.
        """
        self.stop_if_cancelled()
        self._report(self._bench.context.run, doing)
        began_s = self.now()
        try:
            with self._bench.step(timed=timed):
                yield
        finally:
            self.spent_on[what] = self.spent_on.get(what, 0.0) + self.now() - began_s

    def reporting(self, run: Run, doing: str = "") -> Run:
        """Return the run that reports as part of the search."""
        return dataclasses.replace(
            run,
            progress=lambda text, _: self._report(run, ": ".join(filter(None, (doing, text)))),
            estimate=lambda _: None,
        )

    def stop_if_cancelled(self) -> None:
        """Raise CancelledError if the search was cancelled."""
        if self._bench.context.run.cancelled():
            raise CancelledError

    def _report(self, run: Run, doing: str) -> None:
        run.estimate(max(0.0, self.budget_s - self.spent_s))
        run.progress(f"{self._so_far()}{doing}", min(1.0, self.spent_s / self.budget_s))

    # ---------------------------------------------------------------------------------------------------------- costs

    def note_cost(self, one: Candidate, seconds: float) -> None:
        """Remember the cost of a plan: of tracing, compiling, checking and timing it."""
        self._costs.setdefault(_cost_kind(one), []).append(seconds)

    def cost_s(self, one: Candidate) -> float:
        """Return the expected cost of a plan in seconds, from the plans most like it."""
        wrapped, has_keys = _cost_kind(one)
        alike = ((wrapped, has_keys), (wrapped, not has_keys), (not wrapped, has_keys), (not wrapped, not has_keys))
        known = next((kind for kind in alike if kind in self._costs), (False, False))
        costs = self._costs.get(known, [self.first_cost_s])
        return sum(costs) / len(costs) * (WRAPPER_COSTS if wrapped and not known[0] else 1.0)


def _cost_kind(one: Candidate) -> tuple[bool, bool]:
    """Return whether C++ calls the kernels of a candidate, and whether only its config is new.

    Such kernels are built longer, and of such a config most kernels are built already.
    """
    wrapped = any(WRAPPER.items() <= config.items() for region in one.plan.regions for _, config in region.configs)
    return wrapped, one.stage in (SearchStage.KEYS, SearchStage.TOGETHER)
