"""Groups items: those with equal keys, or the connected components of an undirected graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items by their key; keys and items are in the order in which they come."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def connected(items: Sequence[K], links: Iterable[tuple[K, K]]) -> list[list[K]]:
    """Return the connected components of ``items`` under ``links``, each in the order of ``items``."""
    root = {item: item for item in items}

    def find(item: K) -> K:
        while root[item] is not item:
            root[item] = root[root[item]]
            item = root[item]
        return item

    for one, other in links:
        root[find(one)] = find(other)
    return list(grouped(items, find).values())
