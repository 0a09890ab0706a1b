"""A call to time: its forward, its backward, and the sample that the clock takes of both phases."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from regional_explorer.measure.timing.clock import Clock
from regional_explorer.record.timing import Phase


def do_nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class TimedCall:
    """One variant as a set of callables, so that measuring does not depend on torch.

    ``forward`` makes the call and returns its outputs; ``backward`` takes those and returns gradients, and is None if
    no gradient is taken. ``before`` restores what a call changes (random state, buffers) and runs before every call;
    ``select`` makes this variant the live implementation and runs before every sample; neither is timed.
    """

    name: str
    forward: Callable[[], object]
    backward: Callable[[Any], object] | None = None
    before: Callable[[], None] = do_nothing
    select: Callable[[], None] = do_nothing

    def sample(self, clock: Clock[Any], calls: int) -> Mapping[Phase, float]:
        """Run ``calls`` calls and return the median seconds per phase.

        Because of the median, another process that takes the core during one call does not change the sample. On busy
        machines this halves the spread between samples, in the same time.
        """
        self.select()
        with gc_paused():
            marks = [self._marked_call(clock) for _ in range(calls)]
            clock.synchronize()
        spans = [(clock.seconds(t0, t1), clock.seconds(t1, t2), clock.seconds(t0, t2)) for t0, t1, t2 in marks]
        forward, backward, step = (float(column) for column in np.median(np.array(spans), axis=0))
        if self.backward is None:
            return {Phase.FORWARD: forward}
        return {Phase.FORWARD: forward, Phase.BACKWARD: backward, Phase.STEP: step}

    def _marked_call(self, clock: Clock[Any]) -> tuple[Any, Any, Any]:
        """Make one call and return the marks before it, after forward and after backward.

        The outputs and gradients live until the last mark: freeing them is not part of the call.
        """
        self.before()
        clock.flush()
        begin = clock.mark()
        outputs = self.forward()
        after_forward = clock.mark()
        if self.backward is None:
            return begin, after_forward, after_forward
        gradients = self.backward(outputs)
        end = clock.mark()
        del outputs, gradients
        return begin, after_forward, end


@contextmanager
def gc_paused() -> Iterator[None]:
    """Context manager: disable Python's garbage collector, and restore it afterwards.

    Only the youngest generation is collected first: a full collection takes longer than most samples.
    """
    was_enabled = gc.isenabled()
    gc.collect(0)
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
