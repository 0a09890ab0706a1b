"""Groups items, by a key or into the connected components of a graph, and keeps values by what they were made of."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, given pairs of a key and a value; both keep their order."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def connected_components(items: Sequence[K], links: Iterable[tuple[K, K]]) -> list[list[K]]:
    """Return the connected components of ``items``, in the order of ``items``; links to other items are ignored."""
    root = {item: item for item in items}

    def find(item: K) -> K:
        while root[item] is not item:
            root[item] = root[root[item]]
            item = root[item]
        return item

    for first, second in links:
        if first in root and second in root:
            root[find(first)] = find(second)
    return list(grouped((find(item), item) for item in items).values())


class Kept(Generic[V]):
    """What was last made of a source, as a tuple of records; it is made again only of another source."""

    def __init__(self) -> None:
        self._last: tuple[object, V] | None = None

    def known(self, source: object) -> V | None:
        """Return what was last made, if it was made of an equal ``source``; else None."""
        return self._last[1] if self._last is not None and self._last[0] == source else None

    def of(self, source: object, make: Callable[[], V]) -> V:
        """Return what was last made, if it was made of an equal ``source``; else make it."""
        if self._last is None or self._last[0] != source:
            self._last = source, make()
        return self._last[1]
