"""Rates of this machine: copies, reads, matrix products."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from regional_explorer.errors import count
from regional_explorer.measure.clock import Clock, CpuClock, clock_for
from regional_explorer.record.profile import Bandwidth
from regional_explorer.record.statistics import interval, median_and_iqr

COPIED_BYTES = 128 << 20
"""The bytes that one copy reads, and writes: more than caches hold."""

COPIES = 15
ENOUGH_TIMING_S = 0.02
FEWEST_TIMES, MOST_TIMES = 5, 200
SMALLEST_COPY = 1 << 14
LARGEST_COPY = 1 << 28


def copy_bandwidth(device: str) -> Bandwidth:
    """Return how many bytes ``device`` moves in a second in ``dst.copy_(src)``, counting reads and writes.

    Measured once per process, device and number of threads: the median of ``COPIES`` copies of ``COPIED_BYTES`` each.
    """
    return _measured_bandwidth(device.partition(" ")[0], torch.get_num_threads())


@cache
def _measured_bandwidth(device: str, threads: int) -> Bandwidth:
    clock = clock_for(device)
    call, fresh = _copy(COPIED_BYTES, device)
    rates = [2 * COPIED_BYTES / max(seconds, 1e-9) for seconds in _times(call, fresh, clock, COPIES, COPIES)]
    median, _ = median_and_iqr(rates)
    low, high = interval(np.array(rates), 0.99) or (median, median)
    host_note = f", {count(threads, 'thread')}" if isinstance(clock, CpuClock) else ""
    how = f"median of {COPIES} copies of {COPIED_BYTES >> 20} MiB to fresh memory, reads and writes counted{host_note}"
    return Bandwidth(median, low, high, how)


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
    return moved / _best_s(*_copy(moved // 2, "cpu"))


@cache
def _read_rate(size: int, threads: int) -> float:
    """Return the bytes per second of a sum over ``size`` bytes, or of a copy where starting the sum takes longer."""
    source = torch.ones(size // 4, dtype=torch.float32, device="cpu")
    sum_s = _best_s(lambda out: torch.sum(source, 0, out=out), lambda: source.new_empty(()))
    return max(size / sum_s, _copy_rate(size, threads))


def matrix_s(operations: int, dtype: torch.dtype) -> float:
    """Return the seconds that this CPU needs at least for a matrix product of so many operations."""
    return operations / _matrix_rate(dtype, torch.get_num_threads())


@cache
def _matrix_rate(dtype: torch.dtype, _threads: int) -> float:
    """Return the operations per second of the fastest of some square products: the largest need not be the fastest."""
    rates = []
    for size in (256, 512, 1024):
        left, right, out = (torch.ones(size, size, dtype=dtype, device="cpu") for _ in range(3))
        product = partial(torch.mm, left, right)
        rates.append(2 * size**3 / _best_s(lambda out, product=product: product(out=out), lambda out=out: out))  # type: ignore[misc]
    return max(rates)


Call = Callable[[torch.Tensor], object]
"""Work that writes to the tensor it is given."""


def _copy(size: int, device: str) -> tuple[Call, Callable[[], torch.Tensor]]:
    """Return a copy of ``size`` bytes, and what it is copied to.

    That is a new tensor each time, as the results of ops and kernels are: on a CPU, writing newly allocated memory
    takes longer than writing memory in use.
    """
    source = torch.ones(size // 4, dtype=torch.float32, device=device)
    return lambda target: target.copy_(source), lambda: torch.empty_like(source)


def _best_s(call: Call, fresh: Callable[[], torch.Tensor]) -> float:
    """Return the lower quartile of the times of ``call`` on this CPU."""
    return statistics.quantiles(_times(call, fresh, CpuClock(), FEWEST_TIMES, MOST_TIMES), n=4)[0]


def _times(call: Call, fresh: Callable[[], torch.Tensor], clock: Clock[Any], fewest: int, most: int) -> Sequence[float]:
    """Return the seconds of ``fewest`` calls, or of more while they take less than ``ENOUGH_TIMING_S`` together.

    Each writes to a tensor from ``fresh``, which is not timed.
    """
    marks: list[tuple[Any, Any]] = []
    with torch.no_grad():
        for _ in range(2):
            call(fresh())
        began_s = clock.now()
        while len(marks) < fewest or (len(marks) < most and clock.now() - began_s < ENOUGH_TIMING_S):
            target = fresh()
            clock.flush()
            begin = clock.mark()
            call(target)
            marks.append((begin, clock.mark()))
            del target
        clock.synchronize()
    return [clock.seconds(begin, end) for begin, end in marks]
