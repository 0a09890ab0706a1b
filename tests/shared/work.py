"""The number of calls of some work, which unlike its time is the same everywhere; torch's number of threads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch


def calls(work: Callable[[], object]) -> int:
    """Return how many calls ``work`` makes, those of built-in functions included."""
    count = 0

    def count_call(_frame: FrameType, event: str, _function: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Context manager: torch uses ``count`` threads."""
    threads_before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(threads_before)
