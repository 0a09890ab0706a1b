"""The code that Inductor generated for a partition, and the kernels in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from regional_explorer.record.graph import Node


class KernelKind(StrEnum):
    """What a kernel does: ``EXTERN`` calls a library, ``TEMPLATE`` is a matrix product that Inductor wrote itself."""

    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    TEMPLATE = "template"
    EXTERN = "extern call"


@dataclass(frozen=True, slots=True)
class GpuResources:
    """What a Triton kernel takes of a GPU under the first of its ``configs`` launch configs, which is ``launch``.

    ``registers`` are per thread; so are ``spilled_bytes``, which lie in slow memory for want of registers.
    ``occupancy`` is the share of a multiprocessor's threads that can be resident at once. ``assembly`` is PTX or AMD's.
    """

    registers: int | None
    spilled_bytes: int | None
    shared_bytes: int
    occupancy: float | None
    launch: str
    configs: int
    assembly: str = ""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch of a kernel, in the order they run.

    ``ops`` are the aten ops fused into it, after Inductor's own passes. ``nodes`` are positions in ``Partition.nodes``:
    Inductor says that they came into this kernel; ``inferred`` are positions of nodes it says nothing about, whose
    readers are in this kernel. The bytes are the least that can move: each buffer once. ``operations`` counts the
    arithmetic of the loop body once per element, ``exp`` as one; of a matrix product 2·m·n·k. Figures are None where
    they are unknown. ``loop_ops`` counts the arithmetic of the loop body by name. ``defined`` are the first and last
    line of its definition in the code, ``called`` is the line of this launch; lines count from 1. ``dtype`` is that of
    the result of an extern call or a matrix product, for a GPU ``tf32`` where float32 may be rounded to it. ``gpu`` is
    there for a Triton kernel that was compiled for a GPU. ``origins`` are the nodes of ``ArtifactCode.after_passes``
    that it computes, ``reads_from`` positions of the kernels whose results it reads.
    """

    name: str
    kind: KernelKind
    ops: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()
    inferred: tuple[int, ...] = ()
    bytes_read: int | None = None
    bytes_written: int | None = None
    operations: int | None = None
    loop_ops: Mapping[str, int] = field(default_factory=dict)
    defined: tuple[int, int] | None = None
    called: int | None = None
    dtype: str | None = None
    gpu: GpuResources | None = None
    origins: tuple[str, ...] = ()
    reads_from: tuple[int, ...] = ()

    @property
    def bytes_moved(self) -> int | None:
        """Bytes read and written together."""
        if self.bytes_read is None or self.bytes_written is None:
            return None
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True, slots=True)
class RefusedFusion:
    """Two loops that Inductor did not fuse although they touch the same data, its reason, and how many bytes that is.

    ``first`` and ``second`` are the positions of their kernels in ``ArtifactCode.kernels``: the same one where a C++
    function holds both loops.
    """

    first: int
    second: int
    reason: str
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    """A graph that Inductor makes of a partition on the way to its code.

    ``sources`` are positions of what each node comes from, by its name; ``inferred`` are positions of what must have
    gone into it though Inductor does not say so.
    """

    nodes: tuple[Node, ...]
    sources: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inferred: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ArtifactCode:
    """The generated code of one artifact.

    ``views`` are positions in ``Partition.nodes`` of nodes that compute nothing, such as ``view`` and ``getitem``.
    The kernels come of lowering the partition once more, which took ``seconds``; ``same_code`` says whether that gave
    the code that was compiled. ``target`` is the GPU that it is for, nothing for the device at hand. If not,
    or if ``problem`` says why lowering failed, there are no kernels.

    ``after_passes`` is the graph that Inductor's passes leave, its sources are positions in ``Partition.nodes``.
    ``output`` is what Inductor makes of it as a graph, its sources are positions of kernels; Triton code alone has one,
    and ``output_problem`` says why another has none.
    """

    artifact: str
    text: str
    kernels: tuple[Kernel, ...] = ()
    views: tuple[int, ...] = ()
    refused: tuple[RefusedFusion, ...] = ()
    same_code: bool = True
    problem: str | None = None
    seconds: float = 0.0
    target: str = ""
    after_passes: LoweredGraph | None = None
    output: LoweredGraph | None = None
    output_problem: str = ""

    @property
    def language(self) -> str:
        """``Triton`` or ``C++``."""
        return "Triton" if "async_compile.triton(" in self.text else "C++"


def normalized(code: str) -> list[str]:
    """Return the lines of generated code without comments, which number the graph and name the file it is kept in."""
    return [line for line in code.splitlines() if line.strip() and not line.lstrip().startswith("#")]
