"""Times what a call spends outside its captured graphs: before, between and after those of forward and backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from regional_explorer.measure.timing.clock import Clock

_FORWARD_SPANS = (
    "before the first graph: the module's call, Dynamo's guards, AOTAutograd's wrappers",
    "between graphs: Python that was not traced",
    "after the last forward graph: AOTAutograd's wrappers",
)
_BACKWARD_SPANS = (
    "before the first backward graph: autograd's engine",
    "between backward graphs: autograd's engine",
    "after the last backward graph: autograd's engine",
)

Span = tuple[Any, Any]
"""Two marks of a clock."""


def around(clock: Clock[Any], phases: Sequence[Any], runs: Sequence[Span]) -> Iterator[tuple[str, float]]:
    """Yield the name and the seconds of each span of one call outside its graphs.

    Args:
        clock: the clock of the marks, synchronized.
        phases: marks before the call, after its forward, and after its backward if it has one.
        runs: the first and the last mark of each run of a graph, in any order.
    """
    call_begin = phases[0]
    ordered_runs = sorted(runs, key=lambda run: clock.seconds(call_begin, run[0]))
    for span_names, (start, end) in zip((_FORWARD_SPANS, _BACKWARD_SPANS), pairwise(phases), strict=False):
        start_s, end_s = clock.seconds(call_begin, start), clock.seconds(call_begin, end)
        phase_runs = [run for run in ordered_runs if start_s <= clock.seconds(call_begin, run[0]) < end_s]
        ends = [start, *(last for _, last in phase_runs)]
        begins = [*(first for first, _ in phase_runs), end]
        for index, (last, first) in enumerate(zip(ends, begins, strict=True)):
            name = span_names[0] if index == 0 else span_names[2] if index == len(phase_runs) else span_names[1]
            yield name, clock.seconds(last, first)
