"""Measures the peak memory of one call of a variant: by CUDA's allocator, or by the high-water mark in /proc."""

from __future__ import annotations

import ctypes
import re
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from regional_explorer.record.timing import MemoryPeak

MEASURED_CALLS = 3
LEAST_RESIDENT = 1 << 20
"""The system counts pages in batches, one per processor: smaller peaks of a resident set cannot be resolved."""

_SAMPLE_INTERVAL_S = 2e-4
_PROC_SELF = Path("/proc/self")


class Gauge(Protocol):
    """Reads the peak of memory during a block, in bytes above what was held before it."""

    how: str
    least_bytes: int

    def peak_of(self, work: Callable[[], object]) -> int:
        """Run ``work`` and return its peak."""


class AllocatorGauge:
    """The statistics of the CUDA caching allocator: exact, and of this process only."""

    how = "allocator"
    least_bytes = 0

    def __init__(self, device: str) -> None:
        """Read ``device``, such as ``cuda:0``."""
        import torch

        self._cuda = torch.cuda
        self._device = torch.device(device)

    def peak_of(self, work: Callable[[], object]) -> int:
        """Run ``work`` and return the peak of what was allocated."""
        self._cuda.synchronize(self._device)
        self._cuda.reset_peak_memory_stats(self._device)
        before_bytes = self._cuda.memory_allocated(self._device)
        work()
        self._cuda.synchronize(self._device)
        return max(0, self._cuda.max_memory_allocated(self._device) - before_bytes)


class ResidentGauge:
    """The high-water mark of the resident set, which Linux resets on request; samples of it if it cannot be reset."""

    least_bytes = LEAST_RESIDENT

    def __init__(self, reset: Callable[[], bool] | None = None) -> None:
        """Find out whether the high-water mark can be reset here; ``reset`` does so and returns whether it could."""
        self._reset = reset or _reset_high_water
        self._can_reset = self._reset()
        self.how = "resident set" if self._can_reset else "resident set, sampled"

    def peak_of(self, work: Callable[[], object]) -> int:
        """Run ``work`` and return the peak of what was resident."""
        _return_free_memory()
        before_bytes = _status_bytes("VmRSS")
        if self._can_reset and self._reset():
            work()
            return max(0, _status_bytes("VmHWM") - before_bytes)
        with _sampling_resident_set() as samples:
            work()
        return max(0, max(samples, default=before_bytes) - before_bytes)


def gauge_for(device: str, proc: Path = _PROC_SELF) -> Gauge | None:
    """Return the gauge for ``device``, or None if there is none: a CPU without ``proc``, as outside of Linux."""
    if device.startswith("cuda"):
        return AllocatorGauge(device.partition(" ")[0])
    return ResidentGauge() if (proc / "statm").exists() else None


def peak(variant: str, work: Callable[[], object], gauge: Gauge) -> MemoryPeak:
    """Return the median peak of a few calls; differences smaller than their spread cannot be resolved either."""
    peaks: Sequence[int] = [gauge.peak_of(work) for _ in range(MEASURED_CALLS)]
    least_bytes = max(gauge.least_bytes, max(peaks) - min(peaks))
    return MemoryPeak(variant, int(statistics.median(peaks)), gauge.how, least_bytes)


def _return_free_memory() -> None:
    """Make the C library return free memory to the system: what stays resident from earlier calls would hide a peak."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _reset_high_water() -> bool:
    try:
        (_PROC_SELF / "clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _status_bytes(key: str) -> int:
    kilobytes = re.search(rf"^{key}:\s*(\d+)", (_PROC_SELF / "status").read_text(), re.MULTILINE)
    return int(kilobytes[1]) * 1024 if kilobytes else 0


@contextmanager
def _sampling_resident_set() -> Iterator[list[int]]:
    """Context manager: another thread samples the resident set during the block."""
    samples: list[int] = []
    done = threading.Event()

    def sample() -> None:
        while not done.is_set():
            samples.append(_status_bytes("VmRSS"))
            time.sleep(_SAMPLE_INTERVAL_S)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()
