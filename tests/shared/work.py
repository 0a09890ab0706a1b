"""How much work something is: counted, because a time says as much about the machine as about the code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


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
