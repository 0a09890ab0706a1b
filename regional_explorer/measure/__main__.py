"""Tests the benchmark itself: how often it reports a difference for pairs of functions whose true difference is known.

A pair is a function against itself, or against itself with a known part of its own work added. So the true difference
is exact, whatever the speed of the machine.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

import torch

from regional_explorer.errors import MeasureError
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.rounds import check_budget, run_rounds
from regional_explorer.record.benchmark import Phase, Verdict
from regional_explorer.record.grouping import grouped

PIECES = 100
"""The number of equal pieces of work in one call; a slowdown of 3 % is three more pieces."""


Outcome = tuple[float, str, Verdict]
"""The slowdown of a pair, the method that compared it, and the verdict on the second function against the first."""


def works() -> list[Callable[[], object]]:
    """Return pieces of CPU work of different kinds: of the interpreter, of memory and of arithmetic."""
    generator = torch.Generator().manual_seed(0)
    small, wide, square = (torch.randn(shape, generator=generator) for shape in ((16,), (8192,), (64, 64)))
    return [lambda: small + small, lambda: torch.tanh(wide), lambda: square @ square]


def repeated(piece: Callable[[], object], steps: int) -> Callable[[], None]:
    """Return a function that does a piece of work ``steps`` times."""

    def call() -> None:
        for _ in range(steps):
            piece()

    return call


def by_rounds(first: Callable[[], object], second: Callable[[], object], budget_s: float, seed: int) -> Verdict:
    """Compare two functions by this package's interleaved rounds."""
    result = run_rounds([TimedCall("eager", first), TimedCall("other", second)], budget_s, seed=seed)
    result.stopped.raise_interrupt()
    return result.verdict("other", Phase.FORWARD)


BY_ROUNDS: Mapping[str, Callable[..., Verdict]] = MappingProxyType({"rounds": by_rounds})


def trials(
    pairs: int, planted: float, budget_s: float, threads: int, methods: Mapping[str, Callable[..., Verdict]] = BY_ROUNDS
) -> Iterator[Outcome]:
    """Yield the verdict of each of the ``methods`` on each of ``pairs`` pairs; all methods get the same functions.

    A method is given both functions, the seconds and a seed.
    """
    pieces = works()
    with torch.no_grad(), torch_threads(threads):
        for pair in range(pairs):
            piece = pieces[pair % len(pieces)]
            first, second = repeated(piece, PIECES), repeated(piece, round(PIECES * (1.0 + planted)))
            for name, compare in methods.items():
                yield planted, name, compare(first, second, budget_s, pair)


def table(outcomes: Iterable[Outcome]) -> str:
    """Return a table with a line per slowdown and method: how many pairs were called different, or slower if they were.

    The last column counts the verdicts on the other pairs.
    """
    lines = [f"{'planted':>8}  {'method':<22}  {'called different':>16}  {'rate':>6}  others"]
    groups = grouped(((planted, method), verdict) for planted, method, verdict in outcomes)
    for (planted, method), verdicts in sorted(groups.items()):
        counts = Counter(verdicts)
        called = counts.pop(Verdict.SLOWER, 0) + (0 if planted else counts.pop(Verdict.FASTER, 0))
        others = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
        share = called / len(verdicts)
        lines.append(f"{planted:>8.0%}  {method:<22}  {f'{called} of {len(verdicts)}':>16}  {share:>6.1%}  {others}")
    return "\n".join(lines)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Context manager: torch uses ``count`` threads."""
    threads_before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(threads_before)


PLANTED_SLOWDOWNS = (0.0, 0.03)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the self-test; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m regional_explorer.measure",
        description="Measure pairs of equal functions, and pairs in which one does 3 % more work; print how "
        "often each pair was reported as different.",
    )
    parser.add_argument("--self-test", action="store_true", required=True, help="run the pairs")
    parser.add_argument("--pairs", type=int, default=40, help="pairs of each kind (default: 40)")
    parser.add_argument("--budget", type=float, default=2.0, help="seconds for each pair (default: 2)")
    # One thread: this tests measuring, not threads.
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default: 1)")
    options = parser.parse_args(arguments)
    for name in ("pairs", "threads"):
        if getattr(options, name) < 1:
            parser.error(f"--{name}: give a number of at least 1")
    try:
        check_budget(options.budget)
    except MeasureError as error:
        parser.error(f"--budget: {error}")
    outcomes = []
    try:
        for planted in PLANTED_SLOWDOWNS:
            for outcome in trials(options.pairs, planted, options.budget, options.threads):
                outcomes.append(outcome)
                _print_progress(f"\r{len(outcomes)} of {options.pairs * len(PLANTED_SLOWDOWNS)} pairs")
    except KeyboardInterrupt:
        _print_progress("\ninterrupted: the rates are those of the pairs so far")
    _print_progress("\n")
    print(table(outcomes))  # noqa: T201 - what the command is for
    return 0


def _print_progress(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)  # noqa: T201 - progress, apart from the result


if __name__ == "__main__":
    sys.exit(main())
