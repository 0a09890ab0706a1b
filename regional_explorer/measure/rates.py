"""The only place that measures rates of a device: how fast it copies, reads, writes and multiplies."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, partial
from typing import Any

import torch

from regional_explorer.measure.clock import clock_for
from regional_explorer.record.figure import Figure
from regional_explorer.record.profile import Bandwidth

STEPS = tuple(1 << power for power in range(14, 29))
"""The bytes that are moved to find a rate; memory that fits into a cache moves faster."""
LARGE_MOVE = 1 << 22
"""From this many bytes on, the start of a move hardly counts; for fewer bytes, larger steps are measured too."""
CALLS = 3
"""The number of times that a burst does each work."""
PRODUCT_SIZES = (64, 128, 256, 512, 1024)
"""The largest product need not be the fastest; in a dtype without CPU instructions it takes many seconds."""
BURST_SHARE = 1 / 6
"""The time of one burst, as a share of the budget of the rounds between which it runs; there are up to six bursts."""
RATE_SPREAD = 1.25
"""Rates vary: a kernel up to this factor faster than its bound is at its limit; a faster one has no known bound."""

Work = Mapping[tuple[str, int], int]
"""The bytes to ``copy``, ``read`` and ``write``, by kind and step; or the operations of a dtype, at step 0."""


def traffic_work(read: int, written: int) -> Work:
    """Return the work of moving bytes: the smaller amount is copied, the rest only read or only written."""
    step = max((step for step in STEPS if step <= read + written), default=STEPS[0])
    amounts = (("copy", 2 * min(read, written)), ("read", read - written), ("write", written - read))
    return {(kind, step): amount for kind, amount in amounts if amount > 0}


def product_work(operations: int, dtype: str) -> Work:
    """Return the work of a matrix product with operands of ``dtype``, such as ``float32``."""
    return {(dtype, 0): operations}


class Rates:
    """The fastest rates at which ``device`` was seen to work: they bound the time of some work from below.

    ``fastest`` has bytes or operations per second by kind and step. A rate only ever rises: measure in bursts, spread
    over the time in which the bounded work is measured. Steps that take too long have no rate: the rate of the largest
    step below stands for them.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self.fastest: dict[tuple[str, int], float] = {}

    def measure(self, works: Collection[Work], limit_s: float) -> None:
        """Measure once more the rates that the bounds of ``works`` need, in memory in use, with small steps first.

        A step that would take longer than what is left of ``limit_s`` is left out, and so are larger steps.
        """
        keys = {key for work in works for key in work}
        largest = max((step for _, step in keys), default=0)
        dtypes = sorted({kind for kind, step in keys if not step})
        share_s = limit_s / max(1, len(dtypes) + bool(largest))
        if largest:
            steps = [step for step in STEPS if step <= max(largest, LARGE_MOVE)]
            _measure_until(((step, partial(self._move, step)) for step in steps), share_s)
        for dtype in dtypes:
            _measure_until(((size**3, partial(self._multiply, dtype, size)) for size in PRODUCT_SIZES), share_s)

    def _multiply(self, dtype: str, size: int) -> float:
        left, right, out = (torch.ones(size, size, dtype=getattr(torch, dtype), device=self._device) for _ in range(3))
        return self._measure_rate(dtype, 0, 2 * size**3, partial(torch.mm, left, right, out=out))

    def _move(self, step: int) -> float:
        memory = torch.ones(step // 4, dtype=torch.float32, device=self._device)
        target, source = memory.chunk(2)
        total = torch.empty((), dtype=torch.float32, device=self._device)
        return (
            self._measure_rate("copy", step, step, lambda: target.copy_(source))
            + self._measure_rate("read", step, step, lambda: torch.sum(memory, 0, out=total))
            + self._measure_rate("write", step, step, lambda: memory.fill_(1.0))
        )

    def _measure_rate(self, kind: str, step: int, amount: int, call: Callable[[], object]) -> float:
        """Record the best rate of ``call``; return the seconds that the measurement took at this rate."""
        fastest_s = min(_seconds(self._device, call, CALLS))
        self.fastest[kind, step] = max(amount / fastest_s, self.fastest.get((kind, step), 0.0))
        return fastest_s * (CALLS + 1)

    def seconds(self, work: Work) -> float:
        """Return the least seconds that ``work`` needs, by the rates measured so far."""
        return sum(amount / self._rate(*key) for key, amount in work.items())

    def bound_s(self, work: Work, fastest_s: float) -> float | None:
        """Return the least seconds that a kernel needs for ``work``, which it once did in ``fastest_s``.

        If it was faster than the rates, they rise. None if it was so much faster that the rates or its known work
        cannot be right.
        """
        bound_s = self.seconds(work)
        if bound_s <= fastest_s:
            return bound_s
        if bound_s > RATE_SPREAD * fastest_s:
            return None
        for key in work:
            self.fastest[key] = self._rate(*key) * bound_s / fastest_s
        return fastest_s

    def largest_copy_rate(self) -> Bandwidth:
        """Return the rate of the largest copies that were measured."""
        step = max(step for kind, step in self.fastest if kind == "copy")
        rate = self.fastest["copy", step]
        how = f"the fastest copy of {step >> 11:,} KiB to memory in use, reads and writes counted"
        return Bandwidth(Figure(rate, why="the fastest seen"), how)

    def _rate(self, kind: str, step: int) -> float:
        """Return the fastest rate of a step and of larger steps: where starting takes long, larger steps are faster.

        A read or a write alone is at least as fast as a copy. A step that was not reached has the rate of the largest
        step that was reached.
        """
        kinds = (kind, "copy") if step else (kind,)
        rates = {key: rate for key, rate in self.fastest.items() if key[0] in kinds}
        reached = min(step, max(measured for _, measured in rates))
        return max(rate for (_, measured), rate in rates.items() if measured >= reached)


def _measure_until(steps: Iterable[tuple[int, Callable[[], float]]], limit_s: float) -> None:
    """Measure steps, each given with its work, until the next would end after ``limit_s``; always measure the first."""
    began_s, next_s, last_work = time.perf_counter(), 0.0, 0
    for work, measure in steps:
        next_s *= work / max(1, last_work)
        if time.perf_counter() - began_s + next_s > limit_s and last_work:
            return
        next_s, last_work = measure(), work


def rates_of(device: str) -> Rates:
    """Return the rates of a device under the current number of threads and float32 matmul precision."""
    return _rates(device.partition(" ")[0], torch.get_num_threads(), torch.get_float32_matmul_precision())


@cache
def _rates(device: str, _threads: int, _precision: str) -> Rates:
    return Rates(device)


def _seconds(device: str, call: Callable[[], object], calls: int) -> list[float]:
    """Return the seconds of ``calls`` calls, after a call that is not timed."""
    clock = clock_for(device)
    stamps: list[tuple[Any, Any]] = []
    with torch.no_grad():
        call()
        for _ in range(calls):
            clock.flush()
            begin = clock.stamp()
            result = call()
            stamps.append((begin, clock.stamp()))
            del result
        clock.synchronize()
    return [max(clock.seconds(begin, end), 1e-9) for begin, end in stamps]
