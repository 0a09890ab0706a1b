"""Pairs of functions whose true difference is known, and how often a method of measuring reports a difference.

A pair is a function against itself, or against itself with a known part of its own work added. So the true difference
is exact, whatever the speed of the machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

import torch

from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.rounds import run_rounds
from regional_explorer.record.benchmark import Phase, Verdict
from regional_explorer.record.grouping import grouped
from tests.shared.work import torch_threads

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
    pairs: int, slowdown: float, budget_s: float, methods: Mapping[str, Callable[..., Verdict]] = BY_ROUNDS
) -> Iterator[Outcome]:
    """Yield the verdict of each of the ``methods`` on each of ``pairs`` pairs; all methods get the same functions.

    A method is given both functions, the seconds and a seed. One thread runs them: this tests measuring, not threads.
    """
    pieces = works()
    with torch.no_grad(), torch_threads(1):
        for pair in range(pairs):
            piece = pieces[pair % len(pieces)]
            first, second = repeated(piece, PIECES), repeated(piece, round(PIECES * (1.0 + slowdown)))
            for name, compare in methods.items():
                yield slowdown, name, compare(first, second, budget_s, pair)


def table(outcomes: Iterable[Outcome]) -> str:
    """Return a table with a line per slowdown and method: how many pairs were called different, or slower if they were.

    The last column counts the verdicts on the other pairs.
    """
    lines = [f"{'slowdown':>8}  {'method':<22}  {'called different':>16}  {'rate':>6}  others"]
    groups = grouped(((slowdown, method), verdict) for slowdown, method, verdict in outcomes)
    for (slowdown, method), verdicts in sorted(groups.items()):
        counts = Counter(verdicts)
        called = counts.pop(Verdict.SLOWER, 0) + (0 if slowdown else counts.pop(Verdict.FASTER, 0))
        others = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
        share = called / len(verdicts)
        lines.append(f"{slowdown:>8.0%}  {method:<22}  {f'{called} of {len(verdicts)}':>16}  {share:>6.1%}  {others}")
    return "\n".join(lines)
