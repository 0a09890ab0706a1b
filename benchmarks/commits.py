"""The rows of ``make bench`` in two checkouts, in turn: ``python -m benchmarks.commits OLD [NEW] --rounds 5``.

Each round runs each row once in a process of its own per checkout, old and new in turn, with fewer repeats than
``make bench`` takes; the figures are medians over the rounds. A row that one of the two does not have is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PRINT_ROWS = """
import json
from benchmarks import drawing, engine, first
drawing.LIMIT_S = 1.0
for row in {rows}:
    print("ROW " + json.dumps({figures}), flush=True)
"""
RATIO = "[f'{row.what}, beside {row.against}', row.ratio, row.goal]"
PICTURE = "[row.graph, row.kernel_s + row.page_s, 3.0 if '10,000' in row.graph else 1.0]"
FRAMES = "[f'{row.graph}, seconds for 50 frames', 50 / min(row.near_fps, row.whole_fps), 1.0]"
ROWS = {
    "edit": ("engine.edit_rows(12, 0.6, 5)", RATIO),
    "edit48": ("engine.edit_rows(48, 0.35, 1)", RATIO),
    "cold": ("engine.cold_rows(repeats=1)", RATIO),
    "distinct": ("engine.distinct_rows(repeats=1)", RATIO),
    "capture": ("engine.capture_rows(3)", RATIO),
    "call": ("engine.call_rows(5.0)", RATIO),
    "import": ("engine.import_rows(2)", RATIO),
    "first": ("first.rows(warm=False, repeats=1)", RATIO),
    "first-warm": ("first.rows(warm=True, repeats=1)", RATIO),
    "drawing": ("drawing.rows()", f"({PICTURE}, {FRAMES})"),
}
"""What makes each row in a checkout, and how its name, its figure and its goal are read."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What one row gave in one round: a ratio, or seconds where a row is beside nothing; lower is better."""

    name: str
    figure: float
    goal: float


def figures(checkout: Path, row: str) -> list[Figure]:
    """Measure one row in ``checkout``.

    Raises:
        RuntimeError: the row does not run there.
    """
    made, read = ROWS[row]
    done = subprocess.run(
        [sys.executable, "-c", PRINT_ROWS.format(rows=made, figures=read)],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{row} does not run in {checkout}:\n{done.stderr[-2000:]}")
    found = [json.loads(line.removeprefix("ROW ")) for line in done.stdout.splitlines() if line.startswith("ROW ")]
    return [Figure(*one) for line in found for one in (line if isinstance(line[0], list) else [line])]


def measure(old: Path, new: Path, rows: Iterable[str], rounds: int) -> None:
    """Print each row as soon as its rounds are done."""
    print("| what | goal | old | new | rounds old | rounds new | |\n|---|---|---|---|---|---|---|", flush=True)
    for row in rows:
        found: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
        goals: dict[str, float] = {}
        for _ in range(rounds):
            for side, checkout in enumerate((old, new)):
                for one in figures(checkout, row):
                    found[one.name][side].append(one.figure)
                    goals[one.name] = one.goal
        for name, (before, after) in found.items():
            if before and after:
                print(line(name, goals[name], before, after), flush=True)


def line(name: str, goal: float, before: list[float], after: list[float]) -> str:
    """Return one row of the Markdown table: medians, all rounds, and whether a goal that was met is met still."""
    old, new = statistics.median(before), statistics.median(after)
    verdict = "met" if new <= goal else "missed before as well" if old > goal else "MISSED"
    each = (", ".join(f"{figure:.3g}" for figure in side) for side in (before, after))
    return f"| {name} | ≤ {goal:g} | {old:.3g} | {new:.3g} | {' | '.join(each)} | {verdict} |"


def main() -> None:
    """Compare two checkouts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commits", description="make bench in two checkouts")
    parser.add_argument("old", type=Path, help="a checkout of the commit before")
    parser.add_argument("new", type=Path, nargs="?", default=ROOT, help="another; this one by default")
    parser.add_argument("--rounds", type=int, default=5, help="five by default")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="all by default")
    chosen = parser.parse_args()
    measure(chosen.old.resolve(), chosen.new.resolve(), chosen.rows, chosen.rounds)


if __name__ == "__main__":
    main()
