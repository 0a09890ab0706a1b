"""Clocks, a call to time, and one sample of it."""

from __future__ import annotations

import gc
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, TypeVar

import torch

from regional_explorer.errors import MeasureError
from regional_explorer.record.benchmark import Phase

Moment = TypeVar("Moment")

Turn = Callable[[], AbstractContextManager[None]]
"""Gives a context manager for a part of the timed work: it enters the state of the call, and restores the user's."""


class Clock(ABC, Generic[Moment]):
    """Records stamps during a sample, and returns the seconds between them afterwards.

    A device runs asynchronously, so the time between two stamps is known only after ``synchronize``.
    """

    def now(self) -> float:
        """Return seconds of wall time, for budgets."""
        return time.perf_counter()

    def flush(self) -> None:
        """Bring caches into the state that every timed call starts from; called before its first stamp."""

    @abstractmethod
    def stamp(self) -> Moment:
        """Record a stamp in the device's stream of work, without waiting for it."""

    def synchronize(self) -> None:
        """Wait until all stamps have been reached."""

    @abstractmethod
    def seconds(self, begin: Moment, end: Moment) -> float:
        """Return the seconds between two stamps that have been reached."""


class CpuClock(Clock[float]):
    """The host's monotonic clock; code has run when it returns. Caches stay warm between calls, as in a user's loop."""

    def stamp(self) -> float:
        """Return the time, in seconds."""
        return time.perf_counter()

    def seconds(self, begin: float, end: float) -> float:
        """Return the seconds between two stamps."""
        return end - begin


class CudaClock(Clock[torch.cuda.Event]):
    """Events on the current stream; overwrites the L2 cache between calls.

    Nothing waits for the device within a sample: if the host is faster than the device, the figures are the device's
    time only; if it is slower, they include the launches that the device waited for.
    """

    def __init__(self, device: str = "cuda") -> None:
        """Make a clock for ``device``, such as ``cuda:0``."""
        self.device = torch.device(device)
        # Twice the size of the cache, so that no cache line of the last call remains.
        scratch_bytes = 2 * torch.cuda.get_device_properties(self.device).L2_cache_size
        with torch.inference_mode(mode=False):  # a call outside of inference mode cannot write to a tensor made in it
            self._scratch = torch.empty(scratch_bytes, dtype=torch.int8, device=self.device)

    def flush(self) -> None:
        """Overwrite the L2 cache, in the order of the stream."""
        self._scratch.zero_()

    def stamp(self) -> torch.cuda.Event:
        """Record an event on the stream that is current now."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self.device)

    def seconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """Return the seconds between two events."""
        return float(begin.elapsed_time(end)) / 1e3


def clock_for(device: str) -> Clock[Any]:
    """Return the clock for work on ``device``: ``cpu``, ``cuda``, ``cuda:1``, optionally followed by the GPU's name.

    Raises:
        MeasureError: it is a device of another type; a clock of the host would not wait for its work.
    """
    if device.startswith("cuda"):
        return CudaClock(device.partition(" ")[0])
    if device != "cpu":
        raise MeasureError(f"Work on {device} cannot be timed: only CPUs and CUDA devices are supported.")
    return CpuClock()


_OVERHEAD_STAMPS = 200


def overhead_s(clock: Clock[Any]) -> float:
    """Return the seconds that a stamp takes: the time between two stamps with nothing in between."""
    stamps: list[Any] = []

    def stamp() -> None:
        stamps.append(clock.stamp())

    for _ in range(_OVERHEAD_STAMPS):
        stamp()
    clock.synchronize()
    return statistics.median(clock.seconds(begin, end) for begin, end in pairwise(stamps))


def do_nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class TimedCall:
    """One variant as a set of callables.

    ``forward`` makes the call and returns its outputs; ``backward`` takes those and returns gradients, and is None if
    no gradient is taken. ``before`` restores what a call changes (random state, buffers) and runs before every call;
    ``select`` makes this variant the live implementation and runs before every sample; neither is timed. ``parts``
    takes the number of a call in its sample and the stamps around its phases, and returns the seconds of its parts.
    """

    name: str
    forward: Callable[[], object]
    backward: Callable[[Any], object] | None = None
    before: Callable[[], None] = do_nothing
    select: Callable[[], None] = do_nothing
    parts: Callable[[int, Sequence[Any]], Mapping[Any, float]] | None = None

    def sample(self, clock: Clock[Any], calls: int) -> Mapping[Any, float]:
        """Run ``calls`` calls; return the median seconds of each phase, and the parts of the call with the median time.

        Because of the median, another process that takes the core during one call does not change the sample. On busy
        machines this halves the spread between samples, in the same time.
        """
        self.select()
        with gc_paused():
            stamps_by_call = [self.stamps_of_call(clock) for _ in range(calls)]
            clock.synchronize()
        spans = [
            (
                clock.seconds(stamps[0], stamps[1]),
                clock.seconds(stamps[-2], stamps[-1]),
                clock.seconds(stamps[0], stamps[-1]),
            )
            for stamps in stamps_by_call
        ]
        medians = dict(zip(Phase, map(statistics.median, zip(*spans, strict=True)), strict=True))
        phases = {phase: medians[phase] for phase in (Phase if self.backward is not None else (Phase.FORWARD,))}
        if self.parts is None:
            return phases
        typical = sorted(range(calls), key=lambda call: spans[call][-1])[(calls - 1) // 2]
        return {**phases, **self.parts(typical, stamps_by_call[typical])}

    def stamps_of_call(self, clock: Clock[Moment]) -> Sequence[Moment]:
        """Make one call; return the stamps before it, after its forward, and after its backward if it has one.

        The outputs and gradients live until the last stamp: freeing them is not part of the call.
        """
        self.before()
        clock.flush()
        stamps = [clock.stamp()]
        outputs = self.forward()
        stamps.append(clock.stamp())
        if self.backward is not None:
            gradients = self.backward(outputs)
            stamps.append(clock.stamp())
            del gradients
        del outputs
        return stamps


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
