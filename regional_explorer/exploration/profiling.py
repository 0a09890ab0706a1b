"""``ex.profile()``: where the time of the call goes, before anything is marked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from regional_explorer.compiler.run_context import (
    SAME_THREAD,
    Executor,
    ProgressCallback,
    RunContext,
    never_cancelled,
    no_progress,
)
from regional_explorer.compiler.variants import Variants
from regional_explorer.exploration.results import Results, ResultTable
from regional_explorer.measure.profiler import profile
from regional_explorer.record.profile import Profile
from regional_explorer.record.session import Environment

if TYPE_CHECKING:
    import pandas as pd


class Profiling(ABC):
    """An exploration's profile; ``_profile`` is the last one, None before the first."""

    _variants: Variants
    _environment: Environment
    _profile: Profile | None = None

    op_times = ResultTable()

    @property
    @abstractmethod
    def results(self) -> Results:
        """The tables, pictures and texts of all results so far."""

    @abstractmethod
    def _require_open(self) -> None:
        """Raise ClosedError if the exploration was closed."""

    def profile(
        self,
        budget_s: float = 5.0,
        *,
        cancelled: Callable[[], bool] = never_cancelled,
        progress: ProgressCallback = no_progress,
        executor: Executor = SAME_THREAD,
    ) -> pd.DataFrame:
        """Measure the eager time of every op of the captured graphs, and return ``op_times``: where the time goes.

        Forward and backward run op by op, in rounds that take turns with the untouched ``aot_eager``; what timing an op
        costs is measured and taken off. Nothing is compiled, and the plan does not matter.

        Args:
            budget_s: seconds to measure for; at most one round more is spent.
            cancelled: called between rounds; if it returns True the run stops and keeps its results.
            progress: called with what is being done and the fraction done.
            executor: runs timed and untimed work on the right threads.

        Raises:
            MeasureError: the budget is invalid, or the call runs no op of the captured graphs.
        """
        self._require_open()
        run = RunContext.checked(cancelled, progress, executor)
        found = profile(self._variants, budget_s, self._environment.device, run)
        self._profile = found or self._profile
        return self.op_times
