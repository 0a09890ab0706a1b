"""The peak memory of a call, read from the CUDA allocator or from Linux's high-water mark of the resident set."""

from __future__ import annotations

import ctypes
import math
import re
import time
from collections.abc import Callable
from pathlib import Path

import torch

from regional_explorer.measure.clock import CpuClock, TimedCall
from regional_explorer.measure.variants import Variants
from regional_explorer.record.benchmark import LEAST_SAMPLES, MemoryPeak
from regional_explorer.record.statistics import median_figure

LEAST_RESIDENT = 1 << 20
"""The system counts pages in batches, one per processor: smaller peaks of a resident set cannot be resolved."""

_PROC_SELF = Path("/proc/self")


class AllocatorGauge:
    """The statistics of the CUDA caching allocator: exact, and of this process only."""

    how = "allocator"
    least_bytes = 0

    def __init__(self, device: str) -> None:
        """Read ``device``, such as ``cuda:0``."""
        self._device = torch.device(device)

    def peak_of(self, work: Callable[[], object]) -> int:
        """Run ``work`` and return the peak of allocated memory."""
        torch.cuda.synchronize(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        before_bytes = torch.cuda.memory_allocated(self._device)
        work()
        torch.cuda.synchronize(self._device)
        return max(0, torch.cuda.max_memory_allocated(self._device) - before_bytes)


class ResidentGauge:
    """The high-water mark of the resident set, which Linux resets on request."""

    how = "resident set"
    least_bytes = LEAST_RESIDENT

    def peak_of(self, work: Callable[[], object]) -> int:
        """Run ``work`` and return the peak of resident memory."""
        # Memory that stays resident from earlier calls would hide a peak: let the C library return free memory first.
        if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
            trim(0)
        before_bytes = _status_bytes("VmRSS")
        _reset_high_water()
        work()
        return max(0, _status_bytes("VmHWM") - before_bytes)


Gauge = AllocatorGauge | ResidentGauge
"""Reads the peak of memory during a call, in bytes above the memory before the call."""


def gauge_for(device: str, reset: Callable[[], bool] | None = None) -> Gauge | None:
    """Return the gauge for ``device``; None for a CPU whose system does not ``reset`` the high-water mark."""
    if device.startswith("cuda"):
        return AllocatorGauge(device.partition(" ")[0])
    return ResidentGauge() if (reset or _reset_high_water)() else None


def memory_peak(variants: Variants, timed_call: TimedCall, gauge: Gauge, limit_s: float) -> MemoryPeak:
    """Return the peak memory of a variant, from as many calls as an interval needs, unless they take too long."""
    with variants.program.selected(), variants.call.restoring():
        timed_call.select()
        return measure_peak(timed_call.name, lambda: timed_call.stamps_of_call(CpuClock()), gauge, limit_s)


def measure_peak(variant: str, work: Callable[[], object], gauge: Gauge, limit_s: float = math.inf) -> MemoryPeak:
    """Return the median peak over as many calls as an interval needs, or over the calls that fit into ``limit_s``."""
    began_s, peaks = time.perf_counter(), [gauge.peak_of(work)]
    while len(peaks) < LEAST_SAMPLES:
        spent_s = time.perf_counter() - began_s
        if spent_s + spent_s / len(peaks) > limit_s:
            break
        peaks.append(gauge.peak_of(work))
    why = f"a call takes too long for {LEAST_SAMPLES} of them" if len(peaks) < LEAST_SAMPLES else ""
    return MemoryPeak(variant, median_figure(peaks, why), gauge.how, gauge.least_bytes)


def _reset_high_water() -> bool:
    try:
        (_PROC_SELF / "clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _status_bytes(key: str) -> int:
    kilobytes = re.search(rf"^{key}:\s*(\d+)", (_PROC_SELF / "status").read_text(), re.MULTILINE)
    return int(kilobytes[1]) * 1024 if kilobytes else 0
