"""What is known of a compiled partition: its compile, cache answers, code, kernels and their times."""

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

from regional_explorer.record.figure import QUIET, Figure, Noise
from regional_explorer.record.graph import Node
from regional_explorer.record.record import Count, Quantity, Record, Seconds


class KernelKind(StrEnum):
    """What a kernel does: ``TEMPLATE`` is a matrix product that Inductor wrote itself, ``EXTERN`` one of a library.

    ``FALLBACK`` calls the kernel that eager runs, because Inductor has no code of its own for the op.
    """

    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    TEMPLATE = "template"
    EXTERN = "extern call"
    FALLBACK = "fallback"

    @property
    def is_call(self) -> bool:
        """Whether the generated code calls a function of torch, instead of a kernel that it defines."""
        return self in (KernelKind.EXTERN, KernelKind.FALLBACK)


class GpuResources(Record, frozen=True):
    """The GPU resources of a Triton kernel under ``launch``, the first of its ``configs`` launch configs.

    ``registers`` are per thread; so are ``spilled_bytes``, which are in slow memory because registers ran out.
    ``occupancy`` is the share of a multiprocessor's threads that can be resident at once. ``assembly`` is PTX or AMD's.
    """

    registers: Count | None
    spilled_bytes: Count | None
    shared_bytes: Count
    occupancy: Quantity | None
    launch: str
    configs: Count
    assembly: str = ""


class Kernel(Record, frozen=True):
    """One launch of a kernel, in the order they run.

    ``ops`` are the aten ops fused into it, after Inductor's own passes. ``nodes`` are the positions in
    ``Partition.nodes`` that Inductor records for this kernel; ``inferred`` those of nodes that it records nowhere,
    whose readers are in this kernel. The bytes are a lower bound: each buffer moves once. ``operations`` counts the
    arithmetic of the loop body once per element, ``exp`` as one; of a matrix product 2·m·n·k. Figures are None where
    they are unknown. ``loop_ops`` counts the arithmetic of the loop body by name. ``defined`` are the first and last
    line of its definition in the code, ``called`` is the line of this launch; lines count from 1. ``dtype`` is that of
    the operands of a matrix product, for a GPU ``tf32`` where float32 may be rounded to it. ``gpu`` is there for a
    Triton kernel that was compiled for a GPU. ``origins`` are the nodes of ``ArtifactCode.after_passes`` that it
    computes, ``reads_from`` positions of the kernels whose results it reads.
    """

    name: str
    kind: KernelKind
    ops: tuple[str, ...] = ()
    nodes: tuple[Count, ...] = ()
    inferred: tuple[Count, ...] = ()
    bytes_read: Count | None = None
    bytes_written: Count | None = None
    operations: Count | None = None
    loop_ops: Mapping[str, Count] = {}
    defined: tuple[int, int] | None = None
    called: Count | None = None
    dtype: str | None = None
    gpu: GpuResources | None = None
    origins: tuple[str, ...] = ()
    reads_from: tuple[Count, ...] = ()

    @property
    def bytes_moved(self) -> int | None:
        """Bytes read and written together."""
        if self.bytes_read is None or self.bytes_written is None:
            return None
        return self.bytes_read + self.bytes_written


class RefusedFusion(Record, frozen=True):
    """Two loops that Inductor did not fuse although they share data: its reason, and how many bytes they share.

    ``first`` and ``second`` are the positions of their kernels in ``ArtifactCode.kernels``: the same one where a C++
    function holds both loops.
    """

    first: Count
    second: Count
    reason: str
    shared_bytes: Count


class LoweredGraph(Record, frozen=True):
    """A graph into which Inductor transforms a partition before it generates code.

    ``sources`` are the positions of what each node comes from, by its name; ``inferred`` those of what must be part of
    it although Inductor does not record it.
    """

    nodes: tuple[Node, ...]
    sources: Mapping[str, tuple[Count, ...]] = {}
    inferred: Mapping[str, tuple[Count, ...]] = {}


class ArtifactCode(Record, frozen=True):
    """The generated code of one artifact.

    ``views`` are positions in ``Partition.nodes`` of nodes that compute nothing, such as ``view`` and ``getitem``.
    The kernels are found by lowering the partition once more, which took ``seconds``; ``problem`` says why there are
    none, if that failed or gave other code than was compiled.
    ``target`` is the GPU that the code is for, empty for the device of the call. ``warnings`` is what Inductor warned
    of meanwhile.

    ``after_passes`` is the graph after Inductor's passes; its sources are positions in ``Partition.nodes``. ``output``
    is Inductor's output as a graph; its sources are positions of kernels. Only Triton code has one; for other code
    ``output_problem`` says why not.
    """

    text: str
    kernels: tuple[Kernel, ...] = ()
    views: tuple[Count, ...] = ()
    refused: tuple[RefusedFusion, ...] = ()
    problem: str | None = None
    seconds: Seconds = 0.0
    target: str = ""
    after_passes: LoweredGraph | None = None
    output: LoweredGraph | None = None
    output_problem: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def language(self) -> str:
        """``Triton`` or ``C++``."""
        return "Triton" if "async_compile.triton(" in self.text else "C++"


BENCHMARK_START = re.compile(r"def (get_args|benchmark_compiled_module)\(|if __name__ ==")
"""Matches where a function of Inductor's own benchmark begins, which stands behind generated code."""


_CONSTANT_ID = re.compile(r"^(\w+ = None  # .*) -?[0-9a-f]+$")
"""The line of a constant, which ends with a hash of the tensor that this process has for it."""


def normalized(code: str) -> list[str]:
    """Return the lines of generated code without comments and includes, which have numbers of graphs and paths.

    Inductor's own benchmark is left out: it has the sizes of the call that wrote the code; others find it in a cache.
    """
    kept, in_benchmark = [], False
    for line in code.splitlines():
        text = line.lstrip()
        if text and text == line:
            in_benchmark = BENCHMARK_START.match(line) is not None
        if text and not in_benchmark and (not text.startswith("#") or text.startswith("#pragma")):
            kept.append(_CONSTANT_ID.sub(r"\1", line))
    return kept


class BoundBy(StrEnum):
    """What the lower bound of a kernel is: copying the bytes it moves, or a matrix product of its size."""

    COPY = "copy"
    MATRIX = "matrix product"


class KernelTime(Record, frozen=True):
    """One launch of a kernel: its time in seconds, and its bound.

    ``bound_s`` is None where no bound is known; then no time counts as wasted. ``least_s`` is what is shown of it.
    """

    seconds: Figure
    bound_s: Seconds | None = None
    bound_by: BoundBy | None = None

    @property
    def least_s(self) -> float | None:
        """The bound; None without one, or if the kernel is faster, whatever a file says."""
        return None if self.bound_s is None or self.bound_s > self.seconds.value else self.bound_s

    @property
    def wasted_s(self) -> float | None:
        """The time beyond the bound."""
        return None if self.least_s is None else self.seconds.value - self.least_s


class ArtifactKernelTimes(Record, frozen=True):
    """The times of the kernels of one artifact, in the order of ``ArtifactCode.kernels``, None where one was not timed.

    ``between`` is the time between the kernels in the generated code with clocks: allocations, checks, and launches.
    ``around`` is the time of the wrapper that calls the generated code, from the same rounds. ``whole`` is the time of
    the call without clocks, ``with_clocks`` how many times as long it takes with them. ``build_s`` is the time of the
    build with clocks, ``rounds`` counts those that are used. ``problem`` says why there are no times.
    """

    kernels: tuple[KernelTime | None, ...] = ()
    between: Figure = Figure(0.0)
    around: Figure = Figure(0.0)
    whole: Figure = Figure(0.0)
    with_clocks: Figure = Figure(1.0)
    rounds: Count = 0
    build_s: Seconds = 0.0
    problem: str | None = None
    noise: Noise = QUIET

    @property
    def kernels_s(self) -> float:
        """The times of all kernels together."""
        return sum(kernel.seconds.value for kernel in self.kernels if kernel is not None)

    @property
    def parts_s(self) -> float:
        """The kernels, the time between and that around them: what shares are of, so that they add up to all of it."""
        return self.kernels_s + self.between.value + self.around.value


class CacheAnswer(StrEnum):
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
    """A part of what a compile depends on that differs from that of another one; what one of them lacks is empty."""

    part: str
    before: str
    after: str

    def __str__(self) -> str:
        """Return for example ``inductor config max_fusion_size: 64 → 8``."""
        return f"{self.part}: {self.before or 'nothing'} → {self.after or 'nothing'}"


class ArtifactCompile(Record, frozen=True):
    """The one compile that made an artifact, in whichever process.

    ``reason`` says why the cache was bypassed or off, or explains its answer. ``nearest`` is the artifact with the most
    similar graph, config and settings among those that this process compiled before; ``changes`` are what differs.
    ``phases`` adds up to ``seconds``; in ``overlapped_s`` of them others were compiled too. ``pre_grad_passes`` says
    when those passes run, ``pre_grad_s`` how long they took here. ``cold`` says that the compile was requested with
    empty caches. ``warnings`` is what Inductor warned of: not known of code that came from a cache, as nothing is
    lowered then.
    """

    seconds: Seconds
    answer: CacheAnswer
    reason: str = ""
    nearest: str | None = None
    changes: tuple[KeyChange, ...] = ()
    phases: Mapping[str, Seconds] = {}
    pre_grad_passes: str = ""
    pre_grad_s: Seconds = 0.0
    cold: bool = False
    overlapped_s: Seconds = 0.0
    warnings: tuple[str, ...] = ()

    @property
    def waited_s(self) -> float:
        """Its part of the seconds that were waited for it and those compiled beside it: sums of these cost as much."""
        return self.seconds - self.overlapped_s

    @property
    def why(self) -> str:
        """Why the cache had the artifact or not, as far as is known."""
        if self.cold:
            return "compiled with empty caches, as requested"
        unchanged = (
            "nothing like it was compiled in this process before"
            if self.nearest is None
            else "compiled before from the same graph, config and settings, but the cache entry is gone or was for "
            "something else"
        )
        missed = "; ".join(map(str, self.changes)) or unchanged if self.answer is CacheAnswer.MISS else ""
        return ". ".join(filter(None, (self.reason, missed)))

    @property
    def cache(self) -> str:
        """``warm`` if it came from the cache, ``shipped`` if from a folder of artifacts, else ``cold``."""
        return {CacheAnswer.HIT: "warm", CacheAnswer.SHIPPED: "shipped"}.get(self.answer, "cold")


class ArtifactRecord(Record, frozen=True):
    """What is known of one artifact: ``config`` as it was read inside the compile, code and times if requested."""

    compile: ArtifactCompile
    config: Mapping[str, Any] | None = None
    code: ArtifactCode | None = None
    kernel_times: ArtifactKernelTimes | None = None


_KERNEL_NAME = re.compile(r"\b(?:cpp|triton_(?:poi|red|per|tem|mm|for))_\w+|\bkernel\b")


def code_hash(code: str, build: str = "") -> str:
    """Return a hash of generated code that ignores comments, blank lines and the names of kernels.

    ``build`` is what else the compiled code depends on: the command that compiles it.
    """
    names: dict[str, str] = {}
    text = "\n".join(normalized(code))
    plain = _KERNEL_NAME.sub(lambda match: names.setdefault(match[0], f"kernel_{len(names)}"), text)
    return hashlib.sha256((plain + build).encode()).hexdigest()[:16]


_LAUNCH = re.compile(r"^\s*(?:cpp|triton)_\w+(?:\.run)?\(", re.MULTILINE)


def launches_in(code: str) -> int:
    """Return how many launches of generated kernels are written in generated code; library calls are none."""
    return len(_LAUNCH.findall(code))


class KernelPair(Record, frozen=True):
    """A kernel before and after, None where it has no counterpart.

    ``word`` is ``same`` (its code is equal), ``changed``, ``new`` or ``gone``.
    """

    before: Kernel | None
    after: Kernel | None
    word: str


@dataclass(frozen=True)
class CodeDiff:
    """The code of one partition before and after, with the kernels matched by the nodes they compute."""

    partition: str
    before: ArtifactCode
    after: ArtifactCode

    @property
    def complete(self) -> bool:
        """Whether both sides have code."""
        return bool(self.before.text and self.after.text)

    @cached_property
    def same(self) -> bool:
        """Whether the code is the same apart from comments and kernel names; False if one side has no code."""
        return self.complete and code_hash(self.before.text) == code_hash(self.after.text)

    @cached_property
    def kernels(self) -> tuple[KernelPair, ...]:
        """The kernels of both sides, in the order of ``after``; those that are gone come last."""
        return tuple(_kernel_pairs(self.before, self.after))

    @property
    def unified(self) -> str:
        """The differences as a unified diff, without comments; empty where nothing differs or one side has no code."""
        if self.same or not self.complete:
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
        yield KernelPair(other, kernel, "new" if other is None else "same" if bodies[id(other)] == body else "changed")
    for kernel in unmatched:
        yield KernelPair(kernel, None, "gone")


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
