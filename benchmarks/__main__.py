"""``make bench`` or ``python -m benchmarks [ROW …]``: ours beside what one would use instead, in one run, as ratios."""

from __future__ import annotations

import argparse
import platform
import statistics

import torch

from benchmarks import clicks, drawing, kernels, measuring, memory, profile
from benchmarks.engine import ROWS
from benchmarks.row import Row
from regional_explorer.measure.__main__ import table


def line(row: Row) -> str:
    """Return a row of the Markdown table."""
    ours, theirs = statistics.median(row.ours), statistics.median(row.theirs)
    between = "" if row.interval is None else f" ({row.interval[0]:.2f}–{row.interval[1]:.2f})"
    ratio = f"{row.ratio:.2f}{between}"
    return f"| {row.what} | {row.against} | {ours:.3g} s | {theirs:.3g} s | {ratio} | ≤ {row.goal:g} | {row.result} |"


def main() -> None:
    """Print the table, a row as soon as it is measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [*ROWS, "measuring", "drawing", "memory", "profile", "kernels"]
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"some of {', '.join(names)}; all when left out")
    chosen = parser.parse_args().rows or names
    if unknown := [name for name in chosen if name not in names]:
        parser.error(f"no row is called {unknown[0]!r}; there are {', '.join(names)}")
    print(f"torch {torch.__version__}, {platform.machine()}, {torch.get_num_threads()} threads\n", flush=True)
    print("| what | against | ours | theirs | ratio (95 % interval) | goal | |", flush=True)
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in chosen:
        if name in ROWS:
            print("\n".join(map(line, ROWS[name]())), flush=True)
    if "measuring" in chosen:
        print(f"\n{table(measuring.rows())}", flush=True)
    if "drawing" in chosen:
        print(f"\n{drawing.table(drawing.rows())}\n\n{clicks.table(clicks.rows())}", flush=True)
    if "memory" in chosen:
        print(f"\n{memory.table(memory.rows())}", flush=True)
    if "profile" in chosen:
        print(f"\n{profile.HEADER}", flush=True)
        for row in profile.rows():
            print(row, flush=True)
    if "kernels" in chosen:
        print(f"\n{kernels.HEADER}", flush=True)
        for compared in kernels.rows():
            print(compared, flush=True)


if __name__ == "__main__":
    main()
