"""Connected components of an undirected graph."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def connected(items: Sequence[T], links: Iterable[tuple[T, T]]) -> list[list[T]]:
    """Return the connected components of ``items`` under ``links``, each in the order of ``items``."""
    root = {item: item for item in items}

    def find(item: T) -> T:
        while root[item] is not item:
            root[item] = root[root[item]]
            item = root[item]
        return item

    for one, other in links:
        root[find(one)] = find(other)
    groups: dict[T, list[T]] = {}
    for item in items:
        groups.setdefault(find(item), []).append(item)
    return list(groups.values())
