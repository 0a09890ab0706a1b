"""``python -m regional_explorer.measure --self-test``: how often benchmarks on this machine are wrong."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from regional_explorer.errors import MeasureError
from regional_explorer.measure.timing.benchmark_options import BenchmarkOptions

PLANTED_SLOWDOWNS = (0.0, 0.03)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the self-test; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m regional_explorer.measure",
        description="Measure pairs of equal functions, and pairs of which one does 3 % more work, and print how "
        "often each pair was reported as different, by this package and by torch.utils.benchmark in the same time.",
    )
    parser.add_argument("--self-test", action="store_true", required=True, help="run the pairs")
    parser.add_argument("--pairs", type=int, default=40, help="pairs of each kind (default: 40)")
    parser.add_argument("--budget", type=float, default=2.0, help="seconds for each pair and method (default: 2)")
    # One thread, as torch.utils.benchmark uses by default: this tests measuring, not threads.
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default: 1)")
    options = parser.parse_args(arguments)
    for name in ("pairs", "threads"):
        if getattr(options, name) < 1:
            parser.error(f"--{name}: give a number of at least 1")
    try:
        BenchmarkOptions(options.budget)
    except MeasureError as error:
        parser.error(f"--budget: {error}")
    return _run_self_test(options.pairs, options.budget, options.threads)


def _run_self_test(pairs: int, budget_s: float, threads: int) -> int:
    from regional_explorer.measure.timing import self_test

    outcomes = []
    try:
        for planted in PLANTED_SLOWDOWNS:
            for outcome in self_test.outcomes(pairs, planted, budget_s, threads):
                outcomes.append(outcome)
                _print_progress(f"\r{len(outcomes) // 2} of {pairs * len(PLANTED_SLOWDOWNS)} pairs")
    except KeyboardInterrupt:
        _print_progress("\ninterrupted: the rates are those of the pairs so far")
    _print_progress("\n")
    print(self_test.table(self_test.rates(outcomes)))  # noqa: T201 - what the command is for
    return 0


def _print_progress(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)  # noqa: T201 - progress, apart from the result


if __name__ == "__main__":
    sys.exit(main())
