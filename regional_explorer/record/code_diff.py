"""Compares the generated code of a partition under two configs, kernel by kernel."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from regional_explorer.record.kernels import ArtifactCode, Kernel, normalized

_KERNEL_NAME = re.compile(r"\b(?:cpp|triton_(?:poi|red|per|tem|mm|for))_\w+|\bkernel\b")


def code_hash(code: str) -> str:
    """Return a hash of generated code that ignores comments, blank lines and the names of kernels."""
    names: dict[str, str] = {}
    text = "\n".join(normalized(code))
    plain = _KERNEL_NAME.sub(lambda match: names.setdefault(match[0], f"kernel_{len(names)}"), text)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class KernelPair:
    """A kernel before and after; None where it has no counterpart. ``same`` says that its code is equal."""

    before: Kernel | None
    after: Kernel | None
    same: bool

    @property
    def word(self) -> str:
        """``same``, ``changed``, ``new`` or ``gone``."""
        if self.before is None:
            return "new"
        if self.after is None:
            return "gone"
        return "same" if self.same else "changed"


@dataclass(frozen=True)
class CodeDiff:
    """The code of one partition before and after, with the kernels matched by the nodes they compute."""

    partition: str
    before: ArtifactCode
    after: ArtifactCode

    @cached_property
    def same(self) -> bool:
        """Whether the code is the same apart from comments and kernel names; False if one side has no code."""
        return bool(self.before.text and self.after.text) and code_hash(self.before.text) == code_hash(self.after.text)

    @cached_property
    def kernels(self) -> tuple[KernelPair, ...]:
        """The kernels of both sides, in the order of ``after``; those that are gone come last."""
        return tuple(_kernel_pairs(self.before, self.after))

    @property
    def unified(self) -> str:
        """The differences as a unified diff, without comments; empty where the code is the same."""
        if self.same:
            return ""
        before, after = normalized(self.before.text), normalized(self.after.text)
        return "\n".join(difflib.unified_diff(before, after, "before", "after", lineterm=""))

    @property
    def problem(self) -> str | None:
        """Why one side has no code, or no kernels to match; None where both have."""
        return self.before.problem or self.after.problem

    @property
    def counted(self) -> str:
        """The number of kernels of each kind: ``2 same, 1 changed``."""
        counts = Counter(pair.word for pair in self.kernels)
        return ", ".join(f"{counts[word]} {word}" for word in ("same", "changed", "new", "gone") if counts[word])


def _kernel_pairs(before: ArtifactCode, after: ArtifactCode) -> Iterator[KernelPair]:
    unmatched = list(before.kernels)
    bodies = {id(kernel): _kernel_body(before, kernel) for kernel in unmatched}
    for kernel in after.kernels:
        body = _kernel_body(after, kernel)
        if (other := _counterpart(kernel, body, unmatched, bodies)) is not None:
            unmatched.remove(other)
        yield KernelPair(other, kernel, other is not None and bodies[id(other)] == body)
    for kernel in unmatched:
        yield KernelPair(kernel, None, same=False)


def _counterpart(kernel: Kernel, body: str, unmatched: Sequence[Kernel], bodies: dict[int, str]) -> Kernel | None:
    """Return the kernel with the same code, or else the one that shares most nodes."""
    nodes = {*kernel.nodes, *kernel.inferred}

    def likeness(other: Kernel) -> tuple[bool, float]:
        other_nodes = {*other.nodes, *other.inferred}
        return bodies[id(other)] == body, len(nodes & other_nodes) / max(1, len(nodes | other_nodes))

    best = max(unmatched, key=likeness, default=None)
    return best if best is not None and any(likeness(best)) else None


def _kernel_body(code: ArtifactCode, kernel: Kernel) -> str:
    if kernel.defined is None:
        return f"{kernel.name} {kernel.bytes_read} {kernel.bytes_written}"
    first, last = kernel.defined
    return code_hash("\n".join(code.text.splitlines()[first - 1 : last]))
