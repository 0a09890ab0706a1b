"""``ex.profile()``: times every op of the call, with progress and a way to cancel."""

from __future__ import annotations

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
from regional_explorer.exploration.live import Live
from regional_explorer.exploration.results import Results
from regional_explorer.measure.profiler import profile
from regional_explorer.measure.timing.rounds_result import Stop

if TYPE_CHECKING:
    import pandas as pd


class Profiling:
    """Profiles the call of an exploration."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def profile(
        self,
        budget_s: float = 5.0,
        *,
        cancelled: Callable[[], bool] = never_cancelled,
        progress: ProgressCallback = no_progress,
        executor: Executor = SAME_THREAD,
    ) -> pd.DataFrame:
        """Measure the eager time of every op of the captured graphs, and return ``op_times``: where the time goes.

        Forward and backward run op by op, in rounds that alternate with an unmodified ``aot_eager``; the cost of timing
        an op is measured and subtracted. Nothing is compiled, and the plan does not matter.

        Args:
            budget_s: seconds to measure, exceeded by one round at most.
            cancelled: called between rounds; if it returns True the run stops and keeps its results, as it does when
                interrupted.
            progress: called with the current task and the fraction done.
            executor: runs timed and untimed work on the right threads.

        Raises:
            MeasureError: the budget is invalid, or the call runs no op of the captured graphs.
            BusyError: another thread, such as a job of the panel, measures.
        """
        live, run = self._live, RunContext.checked(cancelled, progress, executor)
        with live.exclusive_use.measuring("profile", run) as may_begin:
            live.require_open()
            new_profile = profile(live.variants, budget_s, live.environment.device, run) if may_begin else None
            if new_profile is not None:
                live.profile = new_profile
                Stop(new_profile.stopped).raise_interrupt()
        op_times: pd.DataFrame = Results(live.session).op_times
        return op_times
