"""``make bench`` or ``python -m benchmarks [ROW …]``: ours beside the alternative, in one run, as ratios."""

from __future__ import annotations

import argparse
import inspect
import math
import platform
import statistics
import sys
import warnings
from collections.abc import Callable, Iterable

import torch

from benchmarks import engine, expected, insight, measuring, models, notebook, page, production, search, traced, tuning
from benchmarks.row import Row, cells, heads

ROWS: dict[str, Callable[..., Iterable[Row | str]]] = {
    "edit": lambda: engine.edit_rows(12, 0.6, repeats=7),
    "expected": expected.expected_rows,
    "edit48": lambda: engine.edit_rows(48, 0.35, repeats=3),
    "cold": engine.cold_rows,
    "distinct": engine.distinct_rows,
    "capture": engine.capture_rows,
    "insight": insight.look_rows,
    "whole": models.whole_rows,
    "traced": traced.traced_rows,
    "calls": traced.call_rows,
    "tuning": tuning.tuning_rows,
    "floor": tuning.floor_rows,
    "bitwise": tuning.bitwise_rows,
    "inference": tuning.inference_rows,
    "exhaustive": search.exhaustive_rows,
    "plan-time": search.search_cost_rows,
    "predicted": search.predicted_rows,
    "shorter": search.shorter_rows,
    "steps": production.step_rows,
    "production-start": production.start_rows,
    "import": engine.import_rows,
    "first": lambda: notebook.first_rows(warm=False),
    "first-warm": lambda: notebook.first_rows(warm=True),
    "opening": notebook.opening_rows,
    "self-test": measuring.self_test,
    "measuring": measuring.errors,
    "measuring-busy": measuring.busy_errors,
    "drawing": page.drawing_rows,
    "clicks": page.click_rows,
    "edits": page.edit_rows,
    "memory": measuring.memory_rows,
    "profile": measuring.profile_rows,
    "kernels": insight.kernel_rows,
    "sums": models.sum_rows,
    "links": insight.links,
    "findings": insight.findings,
    "gpu-code": insight.gpu_code,
    "compare-apart": measuring.compare_apart,
}
"""Rows, or lines of text, by the name that ``make bench ROWS=…`` takes."""

ASKED = (
    *("traced", "tuning", "floor", "bitwise", "inference", "exhaustive", "plan-time", "predicted", "shorter"),
    *("expected", "sums", "links", "findings", "gpu-code", "compare-apart", "self-test"),
)
"""Rows that run only when they are named."""


def line(row: Row) -> str:
    """Return a row of the Markdown table."""
    ours, theirs = (f"{statistics.median(side):.3g} {row.unit}" for side in (row.ours, row.theirs))
    between = "" if row.interval is None else f" ({row.interval[0]:.2f}–{row.interval[1]:.2f})"
    goal = f"{row.least:g} to {row.goal:g}" if row.least else f"≤ {row.goal:g}"
    goal, result = ("none", "") if math.isinf(row.goal) else (goal, row.result)
    return cells(row.what, row.against, ours, theirs, f"{row.ratio:.2f}{between}", goal, result)


def main() -> int:
    """Print the table, a row as soon as it is measured; return 1 if one could not be measured, else 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = f"some of {', '.join(ROWS)}; by default all but {', '.join(ASKED)}"
    parser.add_argument("rows", nargs="*", metavar="ROW", help=names)
    parser.add_argument("--models", nargs="+", metavar="MODEL", help="some models, for rows that have several")
    arguments = parser.parse_args()
    chosen = arguments.rows or [name for name in ROWS if name not in ASKED]
    options = {"models": arguments.models} if arguments.models else {}
    for name in chosen:
        if name not in ROWS:
            parser.error(f"no row is called {name!r}; the rows are {', '.join(ROWS)}")
        if options and "models" not in inspect.signature(ROWS[name]).parameters:
            parser.error(f"--models: the row {name} does not measure several models")
    warnings.simplefilter("ignore")
    print(f"torch {torch.__version__}, {platform.machine()}, {torch.get_num_threads()} threads", flush=True)
    in_rows, failed = False, False
    for name in chosen:
        try:
            for row in ROWS[name](**options):
                if isinstance(row, Row) and not in_rows:
                    print(heads("what", "against", "ours", "theirs", "ratio (95 % interval)", "goal", ""), flush=True)
                in_rows = isinstance(row, Row)
                print(line(row) if isinstance(row, Row) else row, flush=True)
        except Exception as error:  # noqa: BLE001 - such as without Chromium: the rows after it are measured anyway
            in_rows, failed = False, True
            print(f"\n{name}: {type(error).__name__}: {error}\n", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
