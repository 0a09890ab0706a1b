"""Records of Inductor's kernels: kind, ops, accesses of buffers, the least bytes moved, and number of operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._inductor import dependencies, ir
from torch._inductor.fx_utils import count_flops_fx
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V

from regional_explorer.record.grouping import grouped
from regional_explorer.record.kernels import Kernel, KernelKind
from regional_explorer.torch_api.kernel_nodes import computes_nothing

NO_ARITHMETIC = frozenset(
    (
        *("load", "store", "store_reduction", "partial_accumulate", "constant", "index_expr", "indirect_indexing"),
        *("check_bounds", "device_assert_async", "to_dtype", "to_dtype_bitcast", "identity", "getitem", "output"),
    )
)
"""The ops in the body of a loop that are not arithmetic."""


@dataclass
class Launch:
    """One launch of a kernel: its name, and the scheduler's nodes it is made of or the IR node of an extern call."""

    name: str
    graph: Any
    nodes: list[Any] = field(default_factory=list)
    extern: Any = None


def kernel_of_launch(launch: Launch, nodes: Sequence[int], inferred: Sequence[int]) -> Kernel:
    """Return the record of a kernel that computes the nodes at these positions."""
    # A figure that cannot be computed is left out, so that it does not hide the rest of a region's code.
    with V.set_graph_handler(launch.graph):
        return Kernel(
            name=launch.name,
            kind=_kernel_kind(launch),
            ops=_op_names(sorted(origins_of(launch))),
            nodes=tuple(nodes),
            inferred=tuple(inferred),
            bytes_read=known(lambda: sum(least_bytes(_memory_reads(launch)).values())),
            bytes_written=known(lambda: sum(least_bytes(_memory_writes(launch)).values())),
            operations=known(lambda: _operation_count(launch)),
            loop_ops=dict(sorted(sum(map(_body_ops, launch.nodes), Counter[str]()).items())),
            dtype=_product_dtype(launch),
            origins=tuple(node.name for node in sorted(origins_of(launch))),
        )


def known(figure: Callable[[], int | None]) -> int | None:
    """Return a figure as an int, or None if it cannot be computed."""
    try:
        value = figure()
    except Exception:  # noqa: BLE001 - sizes that are known only at run time, and IR without such figures
        return None
    return None if value is None else int(value)


def _op_names(origins: Sequence[fx.Node]) -> tuple[str, ...]:
    """Return the ops that compute something; if there are none, those that copy."""
    ops = [node for node in origins if node.op == "call_function"]
    return tuple(dict.fromkeys(map(_op_name, [op for op in ops if not computes_nothing(op)] or ops)))


def _op_name(node: fx.Node) -> str:
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name.partition("::")[2]
    return str(getattr(target, "__name__", target))


def _kernel_kind(launch: Launch) -> KernelKind:
    if launch.extern is not None:
        return KernelKind.EXTERN
    if any(node.is_template() for node in launch.nodes):
        return KernelKind.TEMPLATE
    return KernelKind.REDUCTION if any(node.is_reduction() for node in launch.nodes) else KernelKind.POINTWISE


def origins_of(launch: Launch) -> set[fx.Node]:
    """Return the nodes of Inductor's own graph that a kernel computes."""
    if launch.extern is not None:
        origin_node = launch.extern.origin_node
        return {origin_node} if origin_node is not None else set(launch.extern.origins)
    return {origin for node in launch.nodes if node.node is not None for origin in node.node.origins}


Accesses = dict[str, list[Any]]
"""The dependencies of a kernel by the name of the buffer they read or write."""


def dependencies_of(launch: Launch, kind: str) -> Accesses:
    """Return what a kernel ``reads`` or ``writes``, including buffers that stay inside the kernel."""
    per_node = [launch.extern.get_read_writes()] if launch.extern is not None else [n.read_writes for n in launch.nodes]
    deps = (dep for read_writes in per_node for dep in getattr(read_writes, kind))
    return grouped((dep.name, dep) for dep in deps if not isinstance(dep, dependencies.WeakDep))


def read_from(launches: Sequence[Launch]) -> list[tuple[int, ...]]:
    """Return for each kernel the positions of the earlier kernels whose results it reads."""
    writer: dict[str, int] = {}
    reads = []
    for index, launch in enumerate(launches):
        with V.set_graph_handler(launch.graph):
            reads.append(tuple(sorted({writer[buf] for buf in _buffer_names(_memory_reads, launch) if buf in writer})))
            writer |= dict.fromkeys(_buffer_names(_memory_writes, launch), index)
    return reads


def _buffer_names(accesses: Callable[[Launch], Accesses], launch: Launch) -> list[str]:
    """Return the names of the buffers that a kernel accesses; none if they are not known."""
    try:
        return list(accesses(launch))
    except Exception:  # noqa: BLE001 - IR without dependencies
        return []


def _memory_reads(launch: Launch) -> Accesses:
    """Return the reads of buffers that the kernel does not write itself."""
    written = dependencies_of(launch, "writes")
    return {name: deps for name, deps in dependencies_of(launch, "reads").items() if name not in written}


def _memory_writes(launch: Launch) -> Accesses:
    """Return the writes to memory: a buffer that only this kernel reads may not be stored."""
    if launch.extern is not None:
        names = [*_output_names(launch.extern), *launch.extern.get_mutation_names()]
        return {name: [dependencies.StarDep(name)] for name in names}
    removed = launch.graph.removed_buffers
    return {name: deps for name, deps in dependencies_of(launch, "writes").items() if name not in removed}


def _output_names(extern: Any) -> list[str]:
    if not isinstance(extern.layout, (ir.MultiOutputLayout, ir.NoneLayout)):
        return [extern.get_name()]
    outputs = [buffer for buffer in V.graph.buffers if isinstance(buffer, ir.MultiOutput)]
    return [output.get_name() for output in outputs if any(source is extern for source in output.inputs)]


def least_bytes(accesses: Accesses) -> dict[str, int]:
    """Return the least bytes moved per buffer: what the loops touch, but no more than the size of the buffer."""
    return {
        name: min(sum(dep.numbytes_hint() for dep in set(deps)), dependencies.StarDep(name).numbytes_hint())
        for name, deps in accesses.items()
    }


def _product_dtype(launch: Launch) -> str | None:
    """Return the dtype of the result of a matrix product or another extern call."""
    products = [launch.extern] if launch.extern is not None else [n.node for n in launch.nodes if n.is_template()]
    layout = getattr(products[0], "layout", None) if products else None
    return str(layout.dtype).removeprefix("torch.") if isinstance(layout, ir.Layout) else None


def _body_ops(node: Any) -> Counter[str]:
    body = getattr(node, "_body", None)
    blocks = [] if body is None else [body.root_block, *body.subblocks.values()]
    return Counter(
        str(step.args[3]) if step.target == "reduction" and len(step.args) > 3 else str(step.target)  # noqa: PLR2004
        for block in blocks
        for step in block.graph.nodes
        if step.op == "call_method" and step.target not in NO_ARITHMETIC
    )


def _operation_count(launch: Launch) -> int | None:
    if launch.extern is not None:
        origin = launch.extern.get_origin_node()
        return None if origin is None else count_flops_fx(origin)
    total = 0
    for node in launch.nodes:
        if node.is_template():
            flops = node.estimate_flops()
            if flops is None:
                return None
            total += flops
        elif (body := _body_ops(node)) and hasattr(node, "get_ranges"):
            iterations = sympy_product(size for sizes in node.get_ranges() for size in sizes)
            total += body.total() * _size_hint(iterations)
    return total


def _size_hint(size: Any) -> int:
    sizevars: Any = V.graph.sizevars
    # torch 2.13 renamed it.
    hint = getattr(sizevars, "optimization_hint", None) or sizevars.size_hint
    return int(hint(size, fallback=0))
