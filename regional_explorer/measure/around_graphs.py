"""Times what a call spends outside its captured graphs: before, between and after those of forward and backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from regional_explorer.measure.timing.clock import Clock

_FORWARD = (
    "before the first graph: the module's call, Dynamo's guards, AOTAutograd's wrappers",
    "between graphs: Python that was not traced",
    "after the last forward graph: AOTAutograd's wrappers",
)
_BACKWARD = (
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
    begin = phases[0]
    in_order = sorted(runs, key=lambda run: clock.seconds(begin, run[0]))
    for names, (start, end) in zip((_FORWARD, _BACKWARD), pairwise(phases), strict=False):
        low, high = clock.seconds(begin, start), clock.seconds(begin, end)
        inside = [run for run in in_order if low <= clock.seconds(begin, run[0]) < high]
        ends = [start, *(last for _, last in inside)]
        begins = [*(first for first, _ in inside), end]
        for place, (last, first) in enumerate(zip(ends, begins, strict=True)):
            name = names[0] if place == 0 else names[2] if place == len(inside) else names[1]
            yield name, clock.seconds(last, first)
