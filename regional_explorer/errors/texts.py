"""Words for messages and tables: a number with its noun, a list cut short, ranges of numbers, new names."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 op`` or ``1,200 ops``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listing(texts: Iterable[str], most: int = 4, *, joint: str = ", ") -> str:
    """Return the first ``most`` texts and the number of the others: ``a, b, … (3 more)``."""
    items = list(texts)
    more = f"{joint}… ({len(items) - most} more)" if len(items) > most else ""
    return joint.join(items[:most]) + more


def number_ranges(numbers: Iterable[int]) -> str:
    """Return ``0–3, 5`` for 0, 1, 2, 3, 5."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return listing([f"{low}–{high}" if high > low else str(low) for low, high in ranges])


def fresh_names(base: str, used: Container[str]) -> Iterator[str]:
    """Return an iterator over ``base``, ``base_2``, ``base_3`` and so on, without the names in ``used``."""
    names = itertools.chain([base], (f"{base}_{number}" for number in itertools.count(2)))
    return (name for name in names if name not in used)


def sendable(text: str) -> str:
    """Return ``text`` with lone surrogates escaped, which JSON and UTF-8 cannot encode; otherwise unchanged."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
