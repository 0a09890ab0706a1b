"""``ex.roofline()``: the method that compares the plan with full Inductor, with bitwise trials on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from regional_explorer.compiler.run_context import (
    SAME_THREAD,
    Executor,
    ProgressCallback,
    RunContext,
    never_cancelled,
    no_progress,
)
from regional_explorer.errors.arguments import check_flag
from regional_explorer.exploration.live import Live
from regional_explorer.insight.roofline_result import Roofline
from regional_explorer.insight.whole_graphs import (
    TRIALS,
    bitwise_trials,
    full_graphs,
    op_differences,
    reached,
    region_reaches,
)
from regional_explorer.measure.bandwidth import copy_bandwidth
from regional_explorer.record.region_code import partition_codes
from regional_explorer.record.roofline import BitwiseTrial, FullGraph, Launches, borders, eager_ops, roundings
from regional_explorer.record.session import Session


class Rooflines:
    """Compares the plan of an exploration with full Inductor."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def roofline(
        self,
        *,
        bitwise: bool = True,
        cancelled: Callable[[], bool] = never_cancelled,
        progress: ProgressCallback = no_progress,
        executor: Executor = SAME_THREAD,
    ) -> Roofline:
        """Return how much of full Inductor's gain the plan reaches, and where the rest is lost.

        It has each region's part of full's gain; the bytes that move between regions and eager ops, and how many of
        them full Inductor avoids by fusion, according to the code that it generates for the whole graphs; and how the
        results of full differ from those of eager: by op, and bitwise.

        Args:
            bitwise: whether to compile the whole call again under configs that may make full bitwise equal to eager.
            cancelled: called between steps; if it returns True the remaining steps are left out, and ``problems`` says
                so.
            progress: called with the current task and the fraction done.
            executor: runs timed and untimed work on the right threads.

        Raises:
            MeasureError: the plan was not measured with ``regional`` and ``full``: call ``ex.benchmark()`` first.
            ClosedError: the exploration is closed.
            BusyError: another thread, such as a job of the panel, measures.
        """
        check_flag("bitwise", bitwise)
        run = RunContext.checked(cancelled, progress, executor)
        with self._live.exclusive_use.measuring("roofline", run) as may_begin:
            self._live.require_open()
            reach = reached(self._live.session)
            if not may_begin:  # nothing is run while another thread compiles, whatever ``cancelled`` says by now
                run = replace(run, cancelled=lambda: True)
            run.progress("writing the code of the whole graphs", 0.0)
            whole_graphs = executor.run_untimed(lambda: full_graphs(self._live.program, run.cancelled))
            for region in self._live.session.plan.regions:
                executor.run_untimed(lambda name=region.name: self._live.codes.read(name, run))  # type: ignore[misc]
            session, bandwidth, ops = self._live.session, None, None
            trials: tuple[BitwiseTrial, ...] = ()
            if not run.cancelled():
                run.progress("measuring the copy bandwidth", 0.4)
                bandwidth = executor.run_timed(lambda: copy_bandwidth(self._live.environment.device))
            if not run.cancelled():
                run.progress("comparing ops with their decompositions", 0.5)
                ops = executor.run_untimed(lambda: op_differences(self._live.variants))
            if bitwise and not run.cancelled():
                trials = executor.run_untimed(lambda: bitwise_trials(self._live.variants, TRIALS, run))
        full = {graph_id: graph for graph_id, graph in whole_graphs.items() if graph.code.problem is None}
        problems = [
            f"The graph {graph_id} is left out: {graph.code.problem}."
            for graph_id, graph in whole_graphs.items()
            if graph_id not in full
        ]
        if run.cancelled():
            problems.append("Cancelled: what was not determined by then is left out.")
        return Roofline(
            reach=reach,
            regions=region_reaches(session, reach[-1]),
            borders=borders(session, full),
            launches=_launches(session, full) if full else None,
            roundings=roundings(session, full),
            ops=ops,
            trials=trials,
            bandwidth=bandwidth,
            problems=tuple(problems),
        )


def _launches(session: Session, full: Mapping[str, FullGraph]) -> Launches:
    codes = list(partition_codes(session))
    has_all_codes = len(codes) == sum(part.artifact is not None for part in session.partitions)
    return Launches(
        eager_ops(session, full),
        sum(len(part.kernels) for part in codes) if has_all_codes else None,
        sum(len(graph.code.kernels) for graph in full.values()),
    )
