"""``ex.retrace``: traces the call of an exploration again, with static, dynamic or automatic shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from regional_explorer.compiler.run_context import ProgressCallback, RunContext, never_cancelled, no_progress
from regional_explorer.errors.arguments import check_flag
from regional_explorer.errors.texts import listing
from regional_explorer.exploration.live import Live, LiveOwner
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.region import Region
from regional_explorer.record.selector import SelectorKind
from regional_explorer.regions.select import members

MOST_NAMED_OPS = 6
"""How many ops a message names."""

Owner = TypeVar("Owner", bound=LiveOwner)


def retrace(  # noqa: D417 - the exploration is the ``self`` of the method
    exploration: Owner,
    /,
    *,
    dynamic: bool | None = None,
    cancelled: Callable[[], bool] = never_cancelled,
    progress: ProgressCallback = no_progress,
) -> Owner:
    """Trace the call again with other shapes, under the same plan.

    ``runs`` and ``history`` keep what was measured; an artifact that the new graphs need too is not compiled again.
    Nodes may have other names now: a region that was marked by names and gets other ops is reported as
    ``plan-differs``, one that gets none as ``region-empty``. Functions that ``compiled`` gave before raise ClosedError.

    Args:
        dynamic: as in ``torch.compile``: False for static shapes, True for dynamic, None for automatic.
        cancelled: called before and after the trace; if it returns True the exploration stays as it is.
        progress: called with the current task and the fraction done.

    Raises:
        InvalidArgumentError: an argument has the wrong type.
        CaptureError: the call cannot be traced like that; the exploration stays as it is.
        ClosedError: the exploration is closed.
        BusyError: another thread, such as a job of the panel, measures.
    """
    check_flag("dynamic", dynamic, optional=True)
    run = RunContext.checked(cancelled, progress)
    with exploration.live.exclusive_use.compiling(run) as may_begin:
        earlier = exploration.live
        earlier.require_open()
        if not may_begin or run.cancelled():
            return exploration
        run.progress("tracing the call again", 0.0)
        retraced = earlier.traced_again(dynamic=dynamic)
        if run.cancelled():
            retraced.free_trace()
            return exploration
        with earlier.exclusive_use.editing():
            retraced.program.apply(earlier.program.plan)  # another thread may have edited it
            retraced.other_ops = tuple(_changed_regions(earlier, retraced))
            exploration.live = retraced
            retraced.take_over(earlier)
    return exploration


def _changed_regions(earlier: Live, retraced: Live) -> list[tuple[Region, Diagnostic]]:
    """Return a ``plan-differs`` for each region marked by names of nodes that are other ops in the new trace."""
    pairs = []
    for region in retraced.program.plan.regions:
        by_name = any(rule.kind is SelectorKind.NODES or rule.only for rule in (*region.selectors, *region.carved))
        old_ops, new_ops = (_op_counts(live, region.name) for live in (earlier, retraced))
        if by_name and new_ops and old_ops != new_ops:
            message = (
                f"Region {region.name!r} was marked by the names of nodes, and these are other ops since the call was "
                f"traced again: {_listed_ops(new_ops)} instead of {_listed_ops(old_ops)}."
            )
            remedy = "Look at the graph and mark the ops again; ex.retrace with the earlier shapes brings them back."
            pairs.append((region, Diagnostic(DiagnosticCode.PLAN_DIFFERS, message, region=region.name, remedy=remedy)))
    return pairs


def _op_counts(live: Live, region: str) -> Counter[str]:
    """Return the operators of a region's nodes, by how many there are, in the graphs of Dynamo."""
    graphs = live.capture.graphs
    node_names = members(graphs, live.program.assignment).get(region, {})
    return Counter(
        node.target
        for graph in graphs
        if graph.kind is GraphKind.DYNAMO
        for node in graph.ops
        if node.name in node_names.get(graph.id, ())
    )


def _listed_ops(ops: Counter[str]) -> str:
    return listing(list(ops.elements()), MOST_NAMED_OPS) if ops else "none"
