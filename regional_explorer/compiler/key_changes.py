"""The cache keys of this process's compiles: why Inductor compiled again, by the nearest known key and its changes."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from regional_explorer.record.artifact import ArtifactCompile, KeyChange
from regional_explorer.torch_api.config import config_entries
from regional_explorer.torch_api.inductor import CacheKey

MOST_KNOWN_KEYS = 200
MOST_KNOWN_BYTES = 4 * 2**20
"""Beyond these the oldest are forgotten: keys stay as long as the process. 200 of 3,000 ops each take 2.5 MiB."""

HASH_CHARS = 12
LEAST_SHARED_OPS = 0.5
"""Keys are compared if at least this share of their ops is the same."""


@dataclass
class KnownKeys:
    """The keys of the last compiles by torch's hash: each one's artifact, parts and ops, the latter two compressed."""

    keys: dict[str, tuple[str, bytes, bytes]] = field(default_factory=dict)

    def compared(self, made: ArtifactCompile, key: CacheKey | None) -> ArtifactCompile:
        """Return the record of a compile with the differences from the nearest known key, and remember its key."""
        if key is None:
            return made
        same = self.keys.pop(key.whole, None)
        nearest = (same[0], key) if same is not None else self._nearest(key)
        self.keys[key.whole] = made.artifact, _compressed(key.parts), _compressed(key.ops)
        while len(self.keys) > MOST_KNOWN_KEYS or self._bytes() > MOST_KNOWN_BYTES:
            del self.keys[next(iter(self.keys))]
        if nearest is None:
            return made
        artifact, known_key = nearest
        return replace(made, nearest=artifact, changes=tuple(changes(known_key, key)))

    def _nearest(self, key: CacheKey) -> tuple[str, CacheKey] | None:
        """Return the known key with the fewest changes and its artifact; of several equally near ones the last."""
        nearest, least, same_ops = None, None, _compressed(key.ops)
        for whole, (artifact, parts, ops) in reversed(self.keys.items()):
            known_key = CacheKey(whole, _decompressed(parts), key.ops if ops == same_ops else tuple(_decompressed(ops)))
            distance = _key_distance(known_key, key)
            if distance is not None and (least is None or distance < least):
                nearest, least = (artifact, known_key), distance
        return nearest

    def _bytes(self) -> int:
        return sum(len(parts) + len(ops) for _, parts, ops in self.keys.values())


def _compressed(value: Mapping[str, str] | Sequence[str]) -> bytes:
    return zlib.compress(json.dumps(value).encode())


def _decompressed(content: bytes) -> Any:
    return json.loads(zlib.decompress(content))


KNOWN_KEYS = KnownKeys()
"""The keys of this process: Inductor's caches are not per exploration either."""


def _key_distance(known_key: CacheKey, key: CacheKey) -> int | None:
    """Return how many parts and ops differ; None if the graphs have little in common."""
    changed_parts = sum(known_key.parts.get(part) != key.parts.get(part) for part in {*known_key.parts, *key.parts})
    if known_key.ops == key.ops:
        return 1 + changed_parts
    most = max(len(known_key.ops), len(key.ops))
    if (known_key.target_counts & key.target_counts).total() < LEAST_SHARED_OPS * most:
        return None
    return 1 + changed_parts + most - (known_key.op_counts & key.op_counts).total()


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
