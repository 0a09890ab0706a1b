"""Why Inductor compiled again: the differences from the most similar earlier compile of this process."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from msgspec.structs import replace
from torch import fx

from regional_explorer.record.artifact import ArtifactCompile, CacheAnswer, KeyChange
from regional_explorer.torch_api.graphs import bodies, is_operator
from regional_explorer.torch_api.torch_config import Settings, config_entries

MOST_KNOWN = 200
MOST_KNOWN_BYTES = 4 * 2**20
"""Beyond these limits the oldest compiles are forgotten. 200 compiles of 3,000 ops each take 2.5 MiB."""

LEAST_SHARED_OPS = 0.5
"""Two compiles are compared if they share at least this part of their ops."""

LONGEST_TEXT = 80
"""Longer texts are shown as a hash."""


@dataclass(frozen=True)
class CompileContent:
    """The content that determines a compile's code: ``parts`` by name, and the ``ops`` of its graph in order, as text.

    Configs at their default are left out.
    """

    parts: Mapping[str, str] = field(default_factory=dict)
    ops: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, gm: fx.GraphModule, inputs: Sequence[Any], config: Mapping[str, Any], settings: Settings
    ) -> CompileContent:
        """Return the content of a compile of ``gm`` for these fakes under ``config`` on top of ``settings``."""
        entries, inductor = config_entries(), {**settings.inductor, **config}
        values = {
            **{f"inductor config {key}": value for key, value in inductor.items() if value != entries[key].default},
            **{f"functorch config {key}": value for key, value in settings.functorch.items()},
            **settings.knobs,
            **settings.underneath,
        }
        texts = {f"input {index}": _input_text(value) for index, value in enumerate(inputs)}
        return cls({**texts, **{name: _text_or_hash(value) for name, value in values.items()}}, tuple(_op_texts(gm)))

    @cached_property
    def op_counts(self) -> Counter[str]:
        """How often each op occurs."""
        return Counter(self.ops)

    @cached_property
    def target_counts(self) -> Counter[str]:
        """How often each target of an op occurs, whatever its arguments."""
        return Counter(op.partition("(")[0] for op in self.ops)

    def distance(self, other: CompileContent) -> int | None:
        """Return how many parts and ops differ; None if the graphs have little in common."""
        changed_parts = sum(self.parts.get(part) != other.parts.get(part) for part in {*self.parts, *other.parts})
        if self.ops == other.ops:
            return changed_parts
        most = max(len(self.ops), len(other.ops))
        if (self.target_counts & other.target_counts).total() < LEAST_SHARED_OPS * most:
            return None
        return changed_parts + most - (self.op_counts & other.op_counts).total()


def _text_or_hash(value: Any) -> str:
    """Return the ``repr`` of a value, or of a custom pass's uuid; its hash if it is long or has an address."""
    uuid = getattr(value, "uuid", None)
    text = repr(uuid() if callable(uuid) else value)
    return (
        text if len(text) <= LONGEST_TEXT and " at 0x" not in text else hashlib.sha256(text.encode()).hexdigest()[:12]
    )


def _input_text(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return str(value)
    description = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if value.layout is not torch.strided:
        return f"{description} {value.layout}"
    return f"{description} strides {list(value.stride())} on {value.device}"


def _op_texts(gm: fx.GraphModule) -> Iterator[str]:
    for node in gm.graph.nodes:
        arguments = ", ".join([*map(str, node.args), *(f"{key}={value}" for key, value in node.kwargs.items())])
        if node.op == "output":
            yield f"return({arguments})"
        elif node.op not in ("placeholder", "get_attr"):
            target = node.target
            name = str(target) if is_operator(target) else str(getattr(target, "__name__", target))
            yield f"{name}({arguments})"
    for owner, body in bodies(gm):
        yield from (f"{owner}: {op}" for op in _op_texts(body))


@dataclass
class KnownCompiles:
    """The names of the last compiles' artifacts, by their content: parts and ops, both compressed."""

    artifacts: dict[tuple[bytes, bytes], str] = field(default_factory=dict)

    def compared(self, artifact: str, record: ArtifactCompile, content: CompileContent) -> ArtifactCompile:
        """Return the record of a compile with its changes from the nearest known compile, and remember the compile."""
        if record.answer not in (CacheAnswer.HIT, CacheAnswer.MISS):
            return record
        key = _compressed(content.parts), _compressed(content.ops)
        earlier = self.artifacts.pop(key, None)
        nearest = self._nearest(content, key[1]) if earlier is None else (earlier, content)
        self.artifacts[key] = artifact
        while len(self.artifacts) > MOST_KNOWN or self._bytes() > MOST_KNOWN_BYTES:
            del self.artifacts[next(iter(self.artifacts))]
        if nearest is None:
            return record
        name, content_before = nearest
        return replace(record, nearest=name, changes=tuple(changes_of_key(content_before, content)))

    def _nearest(self, content: CompileContent, same_ops: bytes) -> tuple[str, CompileContent] | None:
        """Return the artifact and content of the known compile with the fewest changes, the latest if several have."""
        nearest, least = None, None
        for (parts, ops), artifact in reversed(self.artifacts.items()):
            earlier = CompileContent(
                _decompressed(parts), content.ops if ops == same_ops else tuple(_decompressed(ops))
            )
            distance = earlier.distance(content)
            if distance is not None and (least is None or distance < least):
                nearest, least = (artifact, earlier), distance
        return nearest

    def _bytes(self) -> int:
        return sum(len(parts) + len(ops) for parts, ops in self.artifacts)


def _compressed(value: Mapping[str, str] | Sequence[str]) -> bytes:
    return zlib.compress(json.dumps(value).encode())


def _decompressed(content: bytes) -> Any:
    return json.loads(zlib.decompress(content))


KNOWN_COMPILES = KnownCompiles()
"""The compiles of this process: Inductor's caches are not per exploration either."""


def changes_of_key(before: CompileContent, after: CompileContent) -> Iterator[KeyChange]:
    """Yield what differs, ops first."""
    yield from _op_changes(before, after)
    for part in dict.fromkeys([*before.parts, *after.parts]):
        value_before, value_after = (content.parts.get(part, _default_text(part)) for content in (before, after))
        if value_before != value_after:
            yield KeyChange(part, value_before, value_after)


def _default_text(part: str) -> str:
    """Return the value of a missing part: for a config, its default."""
    kind, _, name = part.partition(" config ")
    entry = config_entries().get(name) if kind == "inductor" else None
    return "" if entry is None else repr(entry.default)


def _op_changes(before: CompileContent, after: CompileContent) -> Iterator[KeyChange]:
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
