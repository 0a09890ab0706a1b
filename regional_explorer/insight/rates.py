"""What this machine can do at best: copy bytes, multiply matrices.

Measured here, and kept for the process.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from functools import cache

import torch

ENOUGH_S = 0.02
FEWEST, MOST = 5, 200
SMALLEST_COPY = 1 << 14
LARGEST_COPY = 1 << 28


def copy_s(moved: int) -> float:
    """Return the seconds in which as many bytes can be read and written as a kernel moves.

    What fits into a cache is copied faster than what does not, so each size has a rate of its own: that of the next
    larger power of two.
    """
    size = min(max(SMALLEST_COPY, 1 << math.ceil(math.log2(max(2, moved)))), LARGEST_COPY)
    return moved / _copy_rate(size, torch.get_num_threads())


@cache
def _copy_rate(moved: int, _threads: int) -> float:
    """Return the bytes per second, read and written together, of a copy that moves ``moved`` bytes."""
    source = torch.ones(moved // 8)
    # A fresh target, as the results of a kernel are: memory that the system has just given costs more to write.
    return moved / _best_s(lambda target: target.copy_(source), lambda: torch.empty_like(source))


def matrix_s(operations: int, dtype: torch.dtype) -> float:
    """Return the seconds in which a matrix product of so many operations can be done."""
    return operations / _matrix_rate(dtype, torch.get_num_threads())


@cache
def _matrix_rate(dtype: torch.dtype, _threads: int) -> float:
    """Return the operations per second of the best of some square products: the larger one need not be the faster."""
    rates = []
    for size in (256, 512, 1024):
        one, other = (torch.ones(size, size, dtype=dtype) for _ in range(2))
        out = torch.empty_like(one)
        seconds = _best_s(lambda out, one=one, other=other: torch.mm(one, other, out=out), lambda out=out: out)  # type: ignore[misc]
        rates.append(2 * size**3 / seconds)
    return max(rates)


def _best_s(call: Callable[[torch.Tensor], object], fresh: Callable[[], torch.Tensor]) -> float:
    """Return the lower quartile of the times of ``call``, after one that does not count.

    What it writes to comes from ``fresh``, which is not timed.
    """
    with torch.no_grad():
        call(fresh())
        times: list[float] = []
        while len(times) < FEWEST or (sum(times) < ENOUGH_S and len(times) < MOST):
            target = fresh()
            started = time.perf_counter()
            call(target)
            times.append(time.perf_counter() - started)
            del target
    return statistics.quantiles(times, n=4)[0]
