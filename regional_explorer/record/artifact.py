"""A compiled partition: its compile, cache results, code, kernels and their times."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from regional_explorer.record import Count, Quantity, Record, Seconds
from regional_explorer.record.figure import QUIET, Figure, Noise
from regional_explorer.record.graph import Node


class KernelKind(StrEnum):
    """The kind of a kernel: ``TEMPLATE`` is a matrix product by Inductor's own code, ``EXTERN`` by a library.

    ``FALLBACK`` calls eager's kernel, because Inductor has no code of its own for the op.
    """

    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    TEMPLATE = "template"
    EXTERN = "extern call"
    FALLBACK = "fallback"

    @property
    def is_call(self) -> bool:
        """Whether the generated code calls a function of torch instead of a kernel of its own."""
        return self in (KernelKind.EXTERN, KernelKind.FALLBACK)


class GpuResources(Record, frozen=True):
    """The GPU resources of a Triton kernel."""

    registers: Count | None
    """Registers per thread."""
    spilled_bytes: Count | None
    """Bytes per thread in slow memory, because registers ran out."""
    shared_bytes: Count
    """Shared memory of a block."""
    occupancy: Quantity | None
    """The share of a multiprocessor's threads that can be resident at once."""
    launch: str
    """The first of its launch configs, to which these figures belong."""
    configs: Count
    """How many launch configs it has."""
    assembly: str = ""
    """PTX or AMD's assembly."""


class Kernel(Record, frozen=True):
    """One launch of a kernel, in the order they run. Figures are None where they are unknown."""

    name: str
    """Its name in the generated code."""
    kind: KernelKind
    ops: tuple[str, ...] = ()
    """The aten ops fused into it, after Inductor's own passes."""
    nodes: tuple[Count, ...] = ()
    """The positions in ``Partition.nodes`` that Inductor records for this kernel."""
    inferred: tuple[Count, ...] = ()
    """The positions of nodes that Inductor records for no kernel, and that nodes of this kernel read."""
    bytes_read: Count | None = None
    """A lower bound of the bytes that it reads: each buffer moves once."""
    bytes_written: Count | None = None
    """A lower bound of the bytes that it writes."""
    operations: Count | None = None
    """The arithmetic operations: of the loop body per element, ``exp`` as one; of a matrix product 2·m·n·k."""
    loop_ops: Mapping[str, Count] = {}
    """How often each kind of arithmetic stands in the loop body."""
    defined: tuple[int, int] | None = None
    """The first and last line of its definition in the code, counted from 1."""
    called: Count | None = None
    """The line of this launch."""
    dtype: str | None = None
    """The dtype of a matrix product's operands; ``tf32`` on a GPU that may round float32 to it."""
    gpu: GpuResources | None = None
    """The resources of a Triton kernel that was compiled for a GPU."""
    origins: tuple[str, ...] = ()
    """The nodes of ``ArtifactCode.after_passes`` that it computes."""
    reads_from: tuple[Count, ...] = ()
    """The positions of the kernels whose results it reads."""

    @property
    def bytes_moved(self) -> int | None:
        """Bytes read and written together."""
        if self.bytes_read is None or self.bytes_written is None:
            return None
        return self.bytes_read + self.bytes_written


class RefusedFusion(Record, frozen=True):
    """Two loops that Inductor did not fuse although they share data."""

    first: Count
    """The position of the first loop's kernel in ``ArtifactCode.kernels``."""
    second: Count
    """The position of the second loop's kernel: the same one where a C++ function holds both loops."""
    reason: str
    """Inductor's reason."""
    shared_bytes: Count
    """How many bytes they share."""


class LoweredGraph(Record, frozen=True):
    """A graph into which Inductor transforms a partition before it generates code."""

    nodes: tuple[Node, ...]
    """Its nodes in order."""
    sources: Mapping[str, tuple[Count, ...]] = {}
    """The positions of the nodes that each node comes from, by its name."""
    inferred: Mapping[str, tuple[Count, ...]] = {}
    """The positions of nodes that must be part of a node although Inductor does not record them."""


class ArtifactCode(Record, frozen=True):
    """The generated code of one artifact. Its kernels are found by lowering the partition once more."""

    text: str
    kernels: tuple[Kernel, ...] = ()
    """Its kernels, in the order of their launches."""
    views: tuple[Count, ...] = ()
    """The positions in ``Partition.nodes`` of nodes that compute nothing, such as ``view`` and ``getitem``."""
    refused: tuple[RefusedFusion, ...] = ()
    """The fusions that Inductor refused."""
    problem: str | None = None
    """Why there are no kernels: the lowering failed, or gave other code than was compiled."""
    seconds: Seconds = 0.0
    """How long the lowering took."""
    target: str = ""
    """The GPU that the code is for, empty for the device of the call."""
    after_passes: LoweredGraph | None = None
    """The graph after Inductor's passes; its sources are positions in ``Partition.nodes``."""
    output: LoweredGraph | None = None
    """Inductor's output as a graph, for Triton code; its sources are positions of kernels."""
    output_problem: str = ""
    """Why there is no ``output``."""
    warnings: tuple[str, ...] = ()
    """Inductor's warnings during the lowering."""
    patterns: Mapping[str, Count] | None = None
    """How often each pattern of Inductor's passes matched; None if that is not known."""

    @property
    def language(self) -> str:
        """``Triton`` or ``C++``."""
        return "Triton" if "async_compile.triton(" in self.text else "C++"


BENCHMARK_START = re.compile(r"def (get_args|benchmark_compiled_module)\(|if __name__ ==")
"""Matches the start of Inductor's own benchmark, which follows the generated code."""


_CONSTANT_ID = re.compile(r"^(\w+ = None  # .*) -?[0-9a-f]+$")
"""Matches the line of a constant, which ends with a hash of this process's tensor."""


def normalized(code: str) -> list[str]:
    """Return the lines of generated code without comments and includes, which contain numbers of graphs, and paths.

    Inductor's own benchmark is left out: it has the sizes of the call that wrote the code, which other calls may load.
    """
    stripped, in_benchmark = [], False
    for line in code.splitlines():
        text = line.lstrip()
        if text and text == line:
            in_benchmark = BENCHMARK_START.match(line) is not None
        if text and not in_benchmark and (not text.startswith("#") or text.startswith("#pragma")):
            stripped.append(_CONSTANT_ID.sub(r"\1", line))
    return stripped


class BoundBy(StrEnum):
    """The work that bounds a kernel's time from below: copying the bytes it moves, or a matrix product of its size."""

    COPY = "copy"
    MATRIX = "matrix product"


class KernelTime(Record, frozen=True):
    """The time of one launch of a kernel."""

    seconds: Figure
    """The measured time."""
    bound_s: Seconds | None = None
    """The least time that its work needs; None if unknown, and then no time counts as wasted."""
    bound_by: BoundBy | None = None
    """What sets the bound."""

    @property
    def valid_bound_s(self) -> float | None:
        """``bound_s``; None if the measured time is below it, as it may be in a file."""
        return None if self.bound_s is None or self.bound_s > self.seconds.value else self.bound_s

    @property
    def wasted_s(self) -> float | None:
        """The time above the bound."""
        return None if self.valid_bound_s is None else self.seconds.value - self.valid_bound_s


class ArtifactKernelTimes(Record, frozen=True):
    """The times of the kernels of one artifact."""

    kernels: tuple[KernelTime | None, ...] = ()
    """One entry per kernel of ``ArtifactCode.kernels``, None where it was not timed."""
    between: Figure = Figure(0.0)
    """The time between the kernels: allocations, checks and launches."""
    around: Figure = Figure(0.0)
    """The time of the wrapper that calls the generated code, from the same rounds."""
    whole: Figure = Figure(0.0)
    """The time of the call without clocks."""
    with_clocks: Figure = Figure(1.0)
    """The factor by which clocks slow the call."""
    problem: str | None = None
    """Why there are no times."""
    noise: Noise = QUIET
    """What else the machine did."""

    @property
    def unknown(self) -> str:
        """Why it is not known how long the kernels take; empty if each has an interval."""
        figures = [self.between, self.around, *(kernel.seconds for kernel in self.kernels if kernel is not None)]
        busy = "the machine was too busy" if self.noise.is_too_much else ""
        unbounded = (figure.why or "no interval" for figure in figures if figure.bounds is None)
        return self.problem or busy or next(unbounded, "")

    @property
    def is_measurable(self) -> bool:
        """Whether the kernels can be timed: if there are no times all the same, another measurement may have them."""
        return self.problem is None or self.noise.rounds > 0

    @property
    def kernels_s(self) -> float:
        """The times of all kernels together."""
        return sum(kernel.seconds.value for kernel in self.kernels if kernel is not None)

    @property
    def parts_s(self) -> float:
        """The time of the kernels, between them and around them; shares refer to this sum, so they add up to 100 %."""
        return self.kernels_s + self.between.value + self.around.value


class CacheResult(StrEnum):
    """The result of looking up an artifact in Inductor's cache; with ``BYPASS`` and ``OFF`` there was no look-up.

    ``SHIPPED`` artifacts came from a folder of artifacts, without a look-up.
    """

    HIT = "hit"
    MISS = "miss"
    BYPASS = "bypass"
    OFF = "off"
    SHIPPED = "shipped"


class CompilePhase(StrEnum):
    """The phases of a compile. ``OTHER`` is the time that belongs to no other phase."""

    CACHE = "cache"
    TRACING = "tracing and passes"
    LOWERING = "lowering"
    SCHEDULING = "scheduling"
    CODE = "code generation"
    BUILD = "C++ or Triton"
    LOAD = "load"
    OTHER = "other"


class KeyChange(Record, frozen=True):
    """A difference between two compiles in a part that the code depends on."""

    part: str
    """The part that differs."""
    before: str
    """Its value in the earlier compile; empty if missing there."""
    after: str
    """Its value in the later compile; empty if missing there."""

    def __str__(self) -> str:
        """Return for example ``inductor config max_fusion_size: 64 → 8``."""
        return f"{self.part}: {self.before or 'nothing'} → {self.after or 'nothing'}"


class ArtifactCompile(Record, frozen=True):
    """The one compile that made an artifact, in whichever process."""

    seconds: Seconds
    """How long it took."""
    answer: CacheResult
    """What the look-up in the cache gave."""
    reason: str = ""
    """Why the cache was bypassed or off, or what explains the result of the look-up."""
    nearest: str | None = None
    """The artifact with the most similar graph, config and settings that this process compiled before."""
    changes: tuple[KeyChange, ...] = ()
    """The differences from ``nearest``."""
    phases: Mapping[str, Seconds] = {}
    """The seconds of each phase; they add up to ``seconds``."""
    pre_grad_passes: str = ""
    """When Inductor's pre-grad passes run."""
    pre_grad_s: Seconds = 0.0
    """The seconds of the pre-grad passes in this compile."""
    cold: bool = False
    """Whether empty caches were requested."""
    overlapped_s: Seconds = 0.0
    """The seconds in which other artifacts were compiled too."""
    warnings: tuple[str, ...] = ()
    """Inductor's warnings; none are known for code from a cache, which is not lowered."""
    patterns: Mapping[str, Count] | None = None
    """How often each pattern of Inductor's passes matched; None if unknown, as for code from a cache."""

    @property
    def waited_s(self) -> float:
        """Its share of the seconds in which it and the compiles beside it ran; the shares add up to the time waited."""
        return self.seconds - self.overlapped_s

    @property
    def why(self) -> str:
        """Why the cache had or lacked the artifact, as far as known."""
        if self.cold:
            return "compiled with empty caches, as requested"
        unchanged = (
            "nothing like it was compiled in this process before"
            if self.nearest is None
            else "compiled before from the same graph, config and settings, but the cache entry is gone or was for "
            "something else"
        )
        missed = "; ".join(map(str, self.changes)) or unchanged if self.answer is CacheResult.MISS else ""
        return ". ".join(filter(None, (self.reason, missed)))

    @property
    def cache(self) -> str:
        """``warm`` if it came from the cache, ``shipped`` if from a folder of artifacts, else ``cold``."""
        return {CacheResult.HIT: "warm", CacheResult.SHIPPED: "shipped"}.get(self.answer, "cold")


class PassRun(Record, frozen=True):
    """What a pass of the user's did with a piece before it was compiled."""

    name: str
    """The name of the pass."""
    before: str
    """The graph as code before the pass."""
    after: str
    """The graph after it; the graph before it if there is a ``problem``."""
    ops_before: Mapping[str, Count]
    """How often each op occurs before."""
    ops_after: Mapping[str, Count]
    """How often each op occurs after."""
    problem: str = ""
    """Why its result is not used; empty if it is."""

    @property
    def change(self) -> str:
        """The ops that it took away and brought: ``−2 aten.mm, +1 aten.bmm``."""
        names = dict.fromkeys([*self.ops_before, *self.ops_after])
        changes = {name: self.ops_after.get(name, 0) - self.ops_before.get(name, 0) for name in names}
        text = ", ".join(f"{'+' if by > 0 else '−'}{abs(by)} {name}" for name, by in changes.items() if by)
        return text or ("" if self.before == self.after else "the same ops otherwise")


class ArtifactRecord(Record, frozen=True):
    """The known facts about one artifact."""

    compile: ArtifactCompile
    """The compile that made it."""
    config: Mapping[str, Any] | None = None
    """The config as it was read inside the compile."""
    code: ArtifactCode | None = None
    """Its code, if it was requested."""
    kernel_times: ArtifactKernelTimes | None = None
    """The times of its kernels, if they were requested."""
    passes: tuple[PassRun, ...] = ()
    """What the passes of its region did, in order."""

    @property
    def patterns(self) -> Mapping[str, int] | None:
        """How often each pattern matched, counted by the compile or else by a later lowering; None if unknown."""
        matches = self.compile.patterns
        return self.code.patterns if matches is None and self.code is not None else matches


_KERNEL_NAME = re.compile(r"\b(?:cpp|triton_(?:poi|red|per|tem|mm|for))_\w+|\bkernel\b")


def code_hash(code: str, build: str = "") -> str:
    """Return a hash of generated code that ignores comments, blank lines and the names of kernels.

    ``build`` is the command that compiles the code, on which compiled code depends, too.
    """
    names: dict[str, str] = {}
    text = "\n".join(normalized(code))
    plain = _KERNEL_NAME.sub(lambda match: names.setdefault(match[0], f"kernel_{len(names)}"), text)
    return hashlib.sha256((plain + build).encode()).hexdigest()[:16]


_LAUNCH = re.compile(r"^\s*(?:cpp|triton)_\w+(?:\.run)?\(", re.MULTILINE)


def launches_in(code: str) -> int:
    """Return the number of launches of generated kernels in generated code, without library calls."""
    return len(_LAUNCH.findall(code))


class KernelPair(Record, frozen=True):
    """A kernel before and after."""

    before: Kernel | None
    """The kernel before; None if it is new."""
    after: Kernel | None
    """The kernel after; None if it is gone."""
    word: str
    """``same`` if its code is equal, ``changed``, ``new`` or ``gone``."""


@dataclass(frozen=True)
class CodeDiff:
    """The code of one partition before and after, with the kernels matched by the nodes they compute."""

    partition: str
    """The id of the partition."""
    before: ArtifactCode
    after: ArtifactCode

    @property
    def complete(self) -> bool:
        """Whether both sides have code."""
        return bool(self.before.text and self.after.text)

    @cached_property
    def same(self) -> bool:
        """Whether the code is the same except for comments and kernel names; False if one side has no code."""
        return self.complete and code_hash(self.before.text) == code_hash(self.after.text)

    @cached_property
    def kernels(self) -> tuple[KernelPair, ...]:
        """The kernels of both sides, in the order of ``after``; removed kernels come last."""
        return tuple(_kernel_pairs(self.before, self.after))

    @property
    def unified(self) -> str:
        """The differences as a unified diff, without comments; empty if nothing differs or one side has no code."""
        if self.same or not self.complete:
            return ""
        before, after = normalized(self.before.text), normalized(self.after.text)
        return "\n".join(difflib.unified_diff(before, after, "before", "after", lineterm=""))

    @property
    def problem(self) -> str | None:
        """Why one side has no code, or no kernels to match; None if both have."""
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
        yield KernelPair(other, kernel, "new" if other is None else "same" if bodies[id(other)] == body else "changed")
    for kernel in unmatched:
        yield KernelPair(kernel, None, "gone")


def _counterpart(kernel: Kernel, body: str, unmatched: Sequence[Kernel], bodies: dict[int, str]) -> Kernel | None:
    """Return the kernel with the same code, else the kernel that shares most nodes."""
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
