"""The code that Inductor generated for a partition: kernels, GPU resources, refused fusions, lowered graphs."""

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
    """The GPU resources of a Triton kernel under ``launch``, the first of its ``configs`` launch configs.

    ``registers`` are per thread; so are ``spilled_bytes``, which are in slow memory because registers ran out.
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

    ``ops`` are the aten ops fused into it, after Inductor's own passes. ``nodes`` are the positions in
    ``Partition.nodes`` that Inductor records for this kernel; ``inferred`` those of nodes that it records nowhere,
    whose readers are in this kernel. The bytes are a lower bound: each buffer moves once. ``operations`` counts the
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
    """Two loops that Inductor did not fuse although they share data: its reason, and how many bytes they share.

    ``first`` and ``second`` are the positions of their kernels in ``ArtifactCode.kernels``: the same one where a C++
    function holds both loops.
    """

    first: int
    second: int
    reason: str
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    """A graph into which Inductor transforms a partition before it generates code.

    ``sources`` are the positions of what each node comes from, by its name; ``inferred`` those of what must be part of
    it although Inductor does not record it.
    """

    nodes: tuple[Node, ...]
    sources: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inferred: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ArtifactCode:
    """The generated code of one artifact.

    ``views`` are positions in ``Partition.nodes`` of nodes that compute nothing, such as ``view`` and ``getitem``.
    The kernels are found by lowering the partition once more, which took ``seconds``; ``same_code`` says whether that
    gave the code that was compiled. If not, or if ``problem`` says why lowering failed, there are no kernels.
    ``target`` is the GPU that the code is for, empty for the device of the call.

    ``after_passes`` is the graph after Inductor's passes; its sources are positions in ``Partition.nodes``. ``output``
    is Inductor's output as a graph; its sources are positions of kernels. Only Triton code has one; for other code
    ``output_problem`` says why not.
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
    """Return the lines of generated code without comments, which have the number of the graph and the file name."""
    return [line for line in code.splitlines() if line.strip() and not line.lstrip().startswith("#")]
