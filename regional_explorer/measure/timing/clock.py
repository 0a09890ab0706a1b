"""Clocks: the host's clock for CPU work, events for CUDA work."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import torch

Moment = TypeVar("Moment")


class Clock(Protocol[Moment]):
    """Records marks during a sample, and returns the seconds between them afterwards.

    A device runs asynchronously, so the time between two marks is known only after ``synchronize``.
    """

    def now(self) -> float:
        """Return seconds of wall time, for budgets."""
        return time.perf_counter()

    def flush(self) -> None:
        """Bring caches into the state that every timed call starts from; called before its first mark."""

    def mark(self) -> Moment:
        """Record a mark in the device's stream of work, without waiting for it."""

    def synchronize(self) -> None:
        """Wait until all marks have been reached."""

    def seconds(self, begin: Moment, end: Moment) -> float:
        """Return the seconds between two marks that have been reached."""


class CpuClock(Clock[float]):
    """The host's monotonic clock. Caches stay warm between calls, as in a user's loop."""

    def flush(self) -> None:
        """Do nothing."""

    def mark(self) -> float:
        """Return the time, in seconds."""
        return time.perf_counter()

    def synchronize(self) -> None:
        """Do nothing: host code has run when it returns."""

    def seconds(self, begin: float, end: float) -> float:
        """Return the seconds between two marks."""
        return end - begin


class CudaClock(Clock["torch.cuda.Event"]):
    """Events on the current stream; overwrites the L2 cache between calls.

    Nothing waits for the device within a sample: if the host is faster than the device, the figures are the device's
    time only; if it is slower, they include the launches that the device waited for.
    """

    def __init__(self, device: str = "cuda") -> None:
        """Make a clock for ``device``, such as ``cuda:0``."""
        import torch

        self._cuda = torch.cuda
        self._device = torch.device(device)
        # Twice the size of the cache, so that no cache line of the last call remains.
        scratch_bytes = 2 * torch.cuda.get_device_properties(self._device).L2_cache_size
        self._scratch = torch.empty(scratch_bytes, dtype=torch.int8, device=self._device)

    def flush(self) -> None:
        """Overwrite the L2 cache, in the order of the stream."""
        self._scratch.zero_()

    def mark(self) -> torch.cuda.Event:
        """Record an event on the stream that is current now."""
        event = self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream(self._device))
        return event

    def synchronize(self) -> None:
        """Wait for the device."""
        self._cuda.synchronize(self._device)

    def seconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """Return the seconds between two events."""
        return float(begin.elapsed_time(end)) / 1e3


def clock_for(device: str) -> Clock[Any]:
    """Return the clock for work on ``device``: ``cpu``, ``cuda``, ``cuda:1``, optionally followed by the GPU's name."""
    return CudaClock(device.partition(" ")[0]) if device.startswith("cuda") else CpuClock()
