"""How often measuring is wrong: equal functions called different, and slow-downs of 3 % found.

Goals: at most 2 % of equal pairs called different over 200 pairs, and at most a quarter of what torch.utils.benchmark
calls so; at least 90 % of the slow-downs found over 100 pairs of 5 s each. Takes half an hour; ``--quick`` a tenth.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch
from torch.utils.benchmark import Timer

from regional_explorer.measure.__main__ import BY_ROUNDS, Rate, rates, table, trials
from regional_explorer.record.timing import Verdict

BUDGET_S = 5.0
EQUAL_PAIRS = 200
SLOWED_PAIRS = 100
PLANTED = 0.03
THREADS = 1


def by_timer(first: Callable[[], object], second: Callable[[], object], budget_s: float, _seed: int = 0) -> Verdict:
    """Compare two functions with ``torch.utils.benchmark``, in the same time: different if the IQRs are disjoint."""
    quartiles = []
    for function in (first, second):
        timer = Timer("function()", globals={"function": function}, num_threads=torch.get_num_threads())
        times = timer.blocked_autorange(min_run_time=budget_s / 2.0).times
        quartiles.append(np.quantile(times, (0.25, 0.75)))
    (first_low, first_high), (second_low, second_high) = quartiles
    if second_low > first_high:
        return Verdict.SLOWER
    return Verdict.FASTER if second_high < first_low else Verdict.SAME


METHODS = {**BY_ROUNDS, "torch.utils.benchmark": by_timer}


def rows(part: float = 1.0) -> list[Rate]:
    """Return the rates of both ways of measuring, over ``part`` of the pairs."""
    seen = [*trials(round(EQUAL_PAIRS * part), 0.0, BUDGET_S, THREADS, METHODS)]
    seen += trials(round(SLOWED_PAIRS * part), PLANTED, BUDGET_S, THREADS, METHODS)
    return rates(seen)


def main() -> None:
    """Print the rates as a table."""
    parser = argparse.ArgumentParser(description="How often measuring is wrong.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the pairs")
    print(table(rows(0.1 if parser.parse_args().quick else 1.0)))


if __name__ == "__main__":
    main()
