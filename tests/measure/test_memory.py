"""Peaks of memory."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from regional_explorer.measure import memory
from regional_explorer.measure.memory import LEAST_RESIDENT, ResidentGauge, gauge_for, peak

MIB = 1 << 20
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


class FakeGauge:
    """Sees the peaks it is told to."""

    how = "allocator"
    least_bytes = 0

    def __init__(self, *peaks: int) -> None:
        self._peaks: Iterator[int] = iter(peaks)

    def peak_of(self, work: Callable[[], object]) -> int:
        work()
        return next(self._peaks)


def test_a_peak_is_the_median_of_calls_and_their_spread_cannot_be_told() -> None:
    calls: list[int] = []
    found = peak("regional", lambda: calls.append(1), FakeGauge(100, 140, 110))
    assert (found.variant, found.peak_bytes, found.least_bytes, found.how) == ("regional", 110, 40, "allocator")
    assert len(calls) == memory.MEASURED_CALLS


def allocate() -> None:
    torch.ones(64 * MIB // 4)


@linux
def test_a_tensor_that_lives_for_a_moment_is_seen() -> None:
    gauge = gauge_for("cpu")
    assert isinstance(gauge, ResidentGauge)
    found = peak("eager", allocate, gauge)
    assert 60 * MIB < found.peak_bytes < 80 * MIB
    assert found.how.startswith("resident set")
    assert found.least_bytes >= LEAST_RESIDENT


@linux
def test_without_a_reset_it_is_sampled_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    gauge = ResidentGauge(lambda: False)
    assert gauge.how == "resident set, sampled"

    status_bytes, sampled = memory._status_bytes, threading.Semaphore(0)

    def sample(key: str) -> int:
        found = status_bytes(key)
        sampled.release()
        return found

    monkeypatch.setattr(memory, "_status_bytes", sample)

    # Held until the sampler has run: a moment alone it may well miss.
    def hold() -> None:
        held = torch.ones(64 * MIB // 4)
        while sampled.acquire(blocking=False):
            pass
        for _ in range(2):  # the first may have been read before
            assert sampled.acquire(timeout=60)
        del held

    assert gauge.peak_of(hold) > 60 * MIB


def test_where_nothing_reads_it_there_is_no_gauge(tmp_path: Path) -> None:
    assert gauge_for("cpu", proc=tmp_path) is None
