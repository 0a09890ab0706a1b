"""How much memory explorations leave behind, beside plain ``torch.compile`` of fresh functions.

Each case runs in a process of its own: some cycles to warm up, then so many more, with the growth of the resident set
after Python's collector and ``malloc_trim``.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

import regional_explorer as rx

CYCLES = 200
GOAL_MIB = 20.0
_WARMUP = 5

SOURCE = """
def step(x, w):
    with rx.region("mlp"):
        y = F.gelu(x @ w)
        z = torch.sin(y) * 2
    return (z + x).square().mean()
"""


@dataclass(frozen=True)
class Growth:
    """The growth of the resident set of one case over ``cycles``, in MiB; ``goal`` is None where none was set."""

    case: str
    cycles: int
    mib: float
    goal: float | None


def rows(cycles: int = CYCLES) -> list[Growth]:
    """Measure every case, each in a process of its own."""
    return [
        Growth(text, cycles, _measured(case, cycles), None if case == "plain" else GOAL_MIB)
        for case, text in CASES.items()
    ]


def table(found: list[Growth]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| case | cycles | growth | per cycle | goal |", "|---|---|---|---|---|"]
    for row in found:
        goal = "" if row.goal is None else f"≤ {row.goal:g} MiB {'met' if row.mib <= row.goal else 'missed'}"
        lines.append(f"| {row.case} | {row.cycles} | {row.mib:.1f} MiB | {row.mib / row.cycles:.3f} MiB | {goal} |")
    return "\n".join(lines)


CASES = {
    "close": "explore, compile, call, `ex.close()`; the same function",
    "drop": "explore, compile, call, `del ex`; the same function",
    "fresh": "explore, compile, call, `ex.close()`; a fresh function each time",
    "plain": "plain `torch.compile` of a fresh function, forward and backward",
}


def _measured(case: str, cycles: int) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", case, str(cycles)],
        cwd=Path(__file__).resolve().parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def main() -> None:
    """Run one case and print the MiB that it grew by."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("cycles", type=int)
    options = parser.parse_args()
    print(f"{_growth_mib(_cycle(options.case), options.cycles):.3f}")


def _growth_mib(cycle: Callable[[], None], cycles: int) -> float:
    for _ in range(_WARMUP):
        cycle()
    before = _resident_mib()
    for _ in range(cycles):
        cycle()
    return _resident_mib() - before


def _cycle(case: str) -> Callable[[], None]:
    x, w = torch.randn(16, 16), torch.randn(16, 16, requires_grad=True)
    same = _step()

    def plain() -> None:
        torch.autograd.grad(torch.compile(_step())(x, w), [w])

    def explored() -> None:
        ex = rx.explore(_step() if case == "fresh" else same, (x, w))
        torch.autograd.grad(ex.compiled(x, w), [w])
        if case != "drop":
            ex.close()

    return plain if case == "plain" else explored


def _step() -> Callable[..., Any]:
    """Return the function, compiled from its source anew: Dynamo keeps what it knows per code object."""
    names: dict[str, Any] = {"rx": rx, "torch": torch, "F": F}
    exec(compile(SOURCE, "<step>", "exec"), names)  # noqa: S102 - the source above
    step: Callable[..., Any] = names["step"]
    return step


def _resident_mib() -> float:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 2**20


if __name__ == "__main__":
    main()
