"""The cache keys of this process's compiles: why Inductor compiled again, by the nearest known key and its changes."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from regional_explorer.record.compiles import ArtifactCompile, KeyChange
from regional_explorer.torch_api import CacheKey, config_entries

MOST_KEYS = 200
LONGEST_HASH = 12
KINSHIP = 0.5
"""Keys are compared if at least this share of their ops is the same."""


@dataclass
class KnownKeys:
    """The keys of the last compiles, each with the resulting artifact."""

    keys: deque[tuple[str, CacheKey]] = field(default_factory=lambda: deque(maxlen=MOST_KEYS))

    def compared(self, made: ArtifactCompile, key: CacheKey | None) -> ArtifactCompile:
        """Return the record of a compile with the differences from the nearest known key, and remember its key."""
        if key is None:
            return made
        alike = [
            (distance, artifact, known)
            for artifact, known in self.keys
            if (distance := _distance(known, key)) is not None
        ]
        self.keys.append((made.artifact, key))
        if not alike:
            return made
        # Of several equally near ones, the last.
        _, nearest, known = min(reversed(alike), key=lambda found: found[0])
        return replace(made, nearest=nearest, changes=tuple(changes(known, key)))


KNOWN = KnownKeys()
"""The keys of this process: Inductor's caches are not per exploration either."""


def _distance(one: CacheKey, other: CacheKey) -> int | None:
    """Return how many parts and ops differ; None if the graphs have little in common."""
    if one.whole == other.whole:
        return 0
    ops, others = Counter(one.ops), Counter(other.ops)
    shared, most = (ops & others).total(), max(ops.total(), others.total())
    targets = (_targets(one) & _targets(other)).total()
    if most and max(shared, targets) < KINSHIP * most:
        return None
    parts = sum(one.parts.get(part) != other.parts.get(part) for part in {*one.parts, *other.parts})
    return 1 + parts + most - shared


def _targets(key: CacheKey) -> Counter[str]:
    return Counter(op.partition("(")[0] for op in key.ops)


def changes(before: CacheKey, after: CacheKey) -> Iterator[KeyChange]:
    """Yield the parts that differ, ops first."""
    if before.whole == after.whole:
        return
    found = [*_op_changes(before, after)]
    for part in dict.fromkeys([*before.parts, *after.parts]):
        one, other = (key.parts.get(part, _default(part)) for key in (before, after))
        if one != other:
            found.append(KeyChange(part, one, other))
    yield from found or [KeyChange("a part that is not known", before.whole[:LONGEST_HASH], after.whole[:LONGEST_HASH])]


def _default(part: str) -> str:
    """Return the value of a part that is not in a key: for a config, its default."""
    kind, _, name = part.partition(" config ")
    known = config_entries().get(name) if kind == "inductor" else None
    return "" if known is None else repr(known.default)


def _op_changes(before: CacheKey, after: CacheKey) -> Iterator[KeyChange]:
    if len(before.ops) == len(after.ops):
        for index, (one, other) in enumerate(zip(before.ops, after.ops, strict=True)):
            if one != other:
                yield KeyChange(f"op {index}", one, other)
        return
    fewer, more = _targets(before) - _targets(after), _targets(after) - _targets(before)
    yield KeyChange("ops", _counted(len(before.ops), fewer), _counted(len(after.ops), more))


def _counted(total: int, own: Counter[str]) -> str:
    named = ", ".join(f"{count} × {op}" if count > 1 else op for op, count in own.items())
    return f"{total}, with {named}" if named else str(total)
