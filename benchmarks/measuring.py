"""How often measuring is wrong: equal functions called different, and slow-downs of 3 % found.

Goals: at most 2 % of equal pairs called different over 200 pairs, and at most a quarter of what torch.utils.benchmark
calls so; at least 90 % of the slow-downs found over 100 pairs of 5 s each. Takes half an hour; ``--quick`` a tenth.
"""

from __future__ import annotations

import argparse

from regional_explorer.measure.__main__ import Rate, rates, table, trials

BUDGET_S = 5.0
EQUAL_PAIRS = 200
SLOWED_PAIRS = 100
PLANTED = 0.03
THREADS = 1


def rows(part: float = 1.0) -> list[Rate]:
    """Return the rates of both ways of measuring, over ``part`` of the pairs."""
    seen = [*trials(round(EQUAL_PAIRS * part), 0.0, BUDGET_S, THREADS)]
    seen += trials(round(SLOWED_PAIRS * part), PLANTED, BUDGET_S, THREADS)
    return rates(seen)


def main() -> None:
    """Print the rates as a table."""
    parser = argparse.ArgumentParser(description="How often measuring is wrong.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the pairs")
    print(table(rows(0.1 if parser.parse_args().quick else 1.0)))


if __name__ == "__main__":
    main()
