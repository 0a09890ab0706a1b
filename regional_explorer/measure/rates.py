"""Rates of this machine: copies, reads, matrix products."""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable
from functools import cache

import numpy as np
import torch

from regional_explorer.errors import count
from regional_explorer.measure.clock import CpuClock, clock_for
from regional_explorer.record.profile import Bandwidth
from regional_explorer.record.statistics import bootstrap_interval, median_and_iqr

COPIED_BYTES = 128 << 20
"""The bytes that one copy reads, and writes: more than caches hold."""

COPIES = 15
_WARM_UP_COPIES = 2


def copy_bandwidth(device: str) -> Bandwidth:
    """Return how many bytes ``device`` moves in a second in ``dst.copy_(src)``, counting reads and writes.

    ``dst`` is a new tensor each time, as the results of ops are: on a CPU, writing newly allocated memory takes longer
    than writing memory in use. Measured once per process, device and number of threads: the median of ``COPIES``
    copies of ``COPIED_BYTES`` each.
    """
    return _measured_bandwidth(device.partition(" ")[0], torch.get_num_threads())


@functools.cache
def _measured_bandwidth(device: str, threads: int) -> Bandwidth:
    clock = clock_for(device)
    source = torch.ones(COPIED_BYTES, dtype=torch.uint8, device=device)
    marks = []
    for _ in range(_WARM_UP_COPIES + COPIES):
        target = torch.empty_like(source)
        clock.flush()
        begin = clock.mark()
        target.copy_(source)
        marks.append((begin, clock.mark()))
        del target
    clock.synchronize()
    moved_bytes = 2 * COPIED_BYTES
    rates = [moved_bytes / max(clock.seconds(begin, end), 1e-9) for begin, end in marks[_WARM_UP_COPIES:]]
    median, _ = median_and_iqr(rates)
    low, high = bootstrap_interval(np.array(rates), 0.99, 0) or (median, median)
    host_note = f", {count(threads, 'thread')}" if isinstance(clock, CpuClock) else ""
    how = f"median of {COPIES} copies of {COPIED_BYTES >> 20} MiB to fresh memory, reads and writes counted{host_note}"
    return Bandwidth(median, low, high, how)


ENOUGH_TIMING_S = 0.02
FEWEST_TIMES, MOST_TIMES = 5, 200
SMALLEST_COPY = 1 << 14
LARGEST_COPY = 1 << 28


def traffic_s(read: int, written: int) -> float:
    """Return the seconds that this CPU needs at least to read and write so many bytes.

    As much as is written is copied; what is read beyond that is only read, which is faster. Data that fits into a cache
    moves faster, so the rates depend on the size, rounded up to a power of two.
    """
    moved = read + written
    size = min(max(SMALLEST_COPY, 1 << math.ceil(math.log2(max(2, moved)))), LARGEST_COPY)
    only_read = max(0, read - written)
    threads = torch.get_num_threads()
    return (moved - only_read) / _copy_rate(size, threads) + (only_read and only_read / _read_rate(size, threads))


@cache
def _copy_rate(moved: int, _threads: int) -> float:
    """Return the bytes per second, read and written together, of a copy that moves ``moved`` bytes."""
    source = torch.ones(moved // 8)
    # A fresh target, like the results of a kernel: newly allocated memory is slower to write.
    return moved / _best_s(lambda target: target.copy_(source), lambda: torch.empty_like(source))


@cache
def _read_rate(size: int, threads: int) -> float:
    """Return the bytes per second of a sum over ``size`` bytes, or of a copy where starting the sum takes longer."""
    source = torch.ones(size // 4)
    return max(
        size / _best_s(lambda out: torch.sum(source, 0, out=out), lambda: torch.ones(())), _copy_rate(size, threads)
    )


def matrix_s(operations: int, dtype: torch.dtype) -> float:
    """Return the seconds that this CPU needs at least for a matrix product of so many operations."""
    return operations / _matrix_rate(dtype, torch.get_num_threads())


@cache
def _matrix_rate(dtype: torch.dtype, _threads: int) -> float:
    """Return the operations per second of the fastest of some square products: the largest need not be the fastest."""
    rates = []
    for size in (256, 512, 1024):
        left, right = (torch.ones(size, size, dtype=dtype) for _ in range(2))
        out = torch.empty_like(left)
        seconds = _best_s(lambda out, left=left, right=right: torch.mm(left, right, out=out), lambda out=out: out)  # type: ignore[misc]
        rates.append(2 * size**3 / seconds)
    return max(rates)


def _best_s(call: Callable[[torch.Tensor], object], fresh: Callable[[], torch.Tensor]) -> float:
    """Return the lower quartile of the times of ``call``, after a warm-up.

    Its output tensor comes from ``fresh``, which is not timed.
    """
    with torch.no_grad():
        call(fresh())
        times: list[float] = []
        while len(times) < FEWEST_TIMES or (sum(times) < ENOUGH_TIMING_S and len(times) < MOST_TIMES):
            target = fresh()
            started = time.perf_counter()
            call(target)
            times.append(time.perf_counter() - started)
            del target
    return statistics.quantiles(times, n=4)[0]
