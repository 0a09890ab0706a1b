"""The cache keys of this process's compiles: why Inductor compiled again, by the nearest known key and its changes."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from regional_explorer.record.compiles import ArtifactCompile, KeyChange
from regional_explorer.torch_api import CacheKey, config_entries

MOST_KNOWN_KEYS = 200
HASH_CHARS = 12
LEAST_SHARED_OPS = 0.5
"""Keys are compared if at least this share of their ops is the same."""


@dataclass
class KnownKeys:
    """The keys of the last compiles, each with the resulting artifact."""

    keys: deque[tuple[str, CacheKey]] = field(default_factory=lambda: deque(maxlen=MOST_KNOWN_KEYS))

    def compared(self, made: ArtifactCompile, key: CacheKey | None) -> ArtifactCompile:
        """Return the record of a compile with the differences from the nearest known key, and remember its key."""
        if key is None:
            return made
        candidates = [
            (distance, artifact, known_key)
            for artifact, known_key in self.keys
            if (distance := _key_distance(known_key, key)) is not None
        ]
        self.keys.append((made.artifact, key))
        if not candidates:
            return made
        # Of several equally near ones, the last.
        _, nearest, known_key = min(reversed(candidates), key=lambda candidate: candidate[0])
        return replace(made, nearest=nearest, changes=tuple(changes(known_key, key)))


KNOWN_KEYS = KnownKeys()
"""The keys of this process: Inductor's caches are not per exploration either."""


def _key_distance(known_key: CacheKey, key: CacheKey) -> int | None:
    """Return how many parts and ops differ; None if the graphs have little in common."""
    if known_key.whole == key.whole:
        return 0
    shared, most = (known_key.op_counts & key.op_counts).total(), max(len(known_key.ops), len(key.ops))
    shared_targets = (known_key.target_counts & key.target_counts).total()
    if most and max(shared, shared_targets) < LEAST_SHARED_OPS * most:
        return None
    changed_parts = sum(known_key.parts.get(part) != key.parts.get(part) for part in {*known_key.parts, *key.parts})
    return 1 + changed_parts + most - shared


def changes(before: CacheKey, after: CacheKey) -> Iterator[KeyChange]:
    """Yield the parts that differ, ops first."""
    if before.whole == after.whole:
        return
    changed = [*_op_changes(before, after)]
    for part in dict.fromkeys([*before.parts, *after.parts]):
        value_before, value_after = (key.parts.get(part, _default_text(part)) for key in (before, after))
        if value_before != value_after:
            changed.append(KeyChange(part, value_before, value_after))
    yield from changed or [KeyChange("a part that is not known", before.whole[:HASH_CHARS], after.whole[:HASH_CHARS])]


def _default_text(part: str) -> str:
    """Return the value of a part that is not in a key: for a config, its default."""
    kind, _, name = part.partition(" config ")
    entry = config_entries().get(name) if kind == "inductor" else None
    return "" if entry is None else repr(entry.default)


def _op_changes(before: CacheKey, after: CacheKey) -> Iterator[KeyChange]:
    if len(before.ops) == len(after.ops):
        for index, (op_before, op_after) in enumerate(zip(before.ops, after.ops, strict=True)):
            if op_before != op_after:
                yield KeyChange(f"op {index}", op_before, op_after)
        return
    removed, added = before.target_counts - after.target_counts, after.target_counts - before.target_counts
    yield KeyChange("ops", _ops_text(len(before.ops), removed), _ops_text(len(after.ops), added))


def _ops_text(total: int, targets: Counter[str]) -> str:
    named_targets = ", ".join(f"{count} × {op}" if count > 1 else op for op, count in targets.items())
    return f"{total}, with {named_targets}" if named_targets else str(total)
