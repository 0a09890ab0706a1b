"""Times every op of a captured graph by taking a moment of the clock between the steps of the graph's code."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from torch import fx

from regional_explorer.measure.timing.clock import Clock
from regional_explorer.torch_api import boxed

_OVERHEAD_MARKS = 200


class OpTimer:
    """Runs the code of ``gm`` with a mark before its first op and after every op.

    The time of an op is that from one mark to the next, so the ops add up to the time of the graph. It includes what
    the code does around the op: calling it from Python, and freeing values after their last use.
    """

    def __init__(self, gm: fx.GraphModule, clock: Clock[Any]) -> None:
        self._clock = clock
        self._marks: list[Any] = []
        marks, take_mark = self._marks, clock.mark

        def mark() -> None:
            marks.append(take_mark())

        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        self._op_names: list[str] = []
        for node in gm.graph.nodes:
            if not self._op_names and node.op == "call_function":
                graph.call_function(mark)
            copies[node] = graph.node_copy(node, copies.__getitem__)
            if node.op == "call_function":
                graph.call_function(mark)
                self._op_names.append(node.name)
        self.run = boxed(fx.GraphModule(gm, graph, class_name="Timed"))
        """Runs the graph on a list of arguments, which it empties."""

    def clear(self) -> None:
        """Discard the marks."""
        self._marks.clear()

    def runs(self) -> Iterator[tuple[Any, Any]]:
        """Yield the first and the last mark of each run."""
        return ((marks[0], marks[-1]) for marks in self._marks_of_runs())

    def spans(self) -> Iterator[tuple[str, float]]:
        """Yield name and seconds of each op that ran, in order, once the clock is synchronized."""
        for marks in self._marks_of_runs():
            for name, (begin, end) in zip(self._op_names, pairwise(marks), strict=True):
                yield name, self._clock.seconds(begin, end)

    def _marks_of_runs(self) -> Iterator[list[Any]]:
        per_run = len(self._op_names) + 1
        return (self._marks[start : start + per_run] for start in range(0, len(self._marks) - per_run + 1, per_run))


def overhead_s(clock: Clock[Any]) -> float:
    """Return the seconds that a mark takes: those between two marks with nothing in between."""
    marks: list[Any] = []

    def mark() -> None:
        marks.append(clock.mark())

    for _ in range(_OVERHEAD_MARKS):
        mark()
    clock.synchronize()
    return statistics.median(clock.seconds(begin, end) for begin, end in pairwise(marks))
