"""Lowers a partition without compiling it: kernels, their facts, graphs after the passes."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
import torch._inductor.config as inductor_config
from msgspec.structs import replace
from torch import fx
from torch._inductor import debug, dependencies, ir, scheduler
from torch._inductor.codecache import PyCodeCache
from torch._inductor.codegen import cpp, triton, wrapper_fxir
from torch._inductor.fx_utils import count_flops_fx
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V

from regional_explorer.record.artifact import ArtifactCode, Kernel, KernelKind, LoweredGraph, RefusedFusion
from regional_explorer.record.graph import Node
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import Preparation
from regional_explorer.torch_api.compile_lock import compile_lock
from regional_explorer.torch_api.compile_notes import counting_patterns, recording_warnings
from regional_explorer.torch_api.graphs import computes_nothing
from regional_explorer.torch_api.inductor import write_code

if TYPE_CHECKING:
    from torch._subclasses import FakeTensorMode


POSITION = "regional_explorer_position"
"""The key in ``meta["custom"]``, which AOTAutograd propagates, for the position of a node in its partition."""


@dataclass(frozen=True)
class Structure:
    """The nodes of a partition by position: inputs, readers, equal nodes (``twins``), and ``views``."""

    inputs: Mapping[int, tuple[int, ...]]
    readers: Mapping[int, tuple[int, ...]]
    twins: Mapping[int, tuple[int, ...]]
    views: tuple[int, ...]

    @classmethod
    def of(cls, gm: fx.GraphModule, positions: Mapping[str, int]) -> Structure:
        """Return the structure of ``gm``, and write the position of each node into its metadata."""
        placed = {node: positions[node.name] for node in gm.graph.nodes if node.name in positions}
        for node, position in placed.items():
            node.meta["custom"] = {**(node.meta.get("custom") or {}), POSITION: position}
        equal = grouped(((node.target, repr((node.args, node.kwargs))), position) for node, position in placed.items())
        return cls(
            {
                position: tuple(placed[arg] for arg in node.all_input_nodes if arg in placed)
                for node, position in placed.items()
            },
            {
                position: tuple(placed[user] for user in node.users if user in placed)
                for node, position in placed.items()
            },
            {member: tuple(group) for group in equal.values() if len(group) > 1 for member in group},
            tuple(sorted(position for node, position in placed.items() if computes_nothing(node))),
        )

    def inferred_nodes(self, named: Sequence[set[int]]) -> list[set[int]]:
        """Return for each kernel the nodes that it must compute although no kernel names them.

        The replacement of a pattern names only some of its nodes (``mm`` and ``add`` become an ``addmm`` that names
        ``add``), and only one of several equal nodes is computed. Any other node is computed in the kernels that read
        it or, at the end of a partition, in the kernels that compute its inputs.
        """
        kernels = {
            node: set(indices)
            for node, indices in grouped((node, index) for index, nodes in enumerate(named) for node in nodes).items()
        }
        named_nodes = set(kernels)
        ordered = sorted(self.inputs)
        downstream = [(node, (*self.twins.get(node, ()), *self.readers[node])) for node in reversed(ordered)]
        upstream = [(node, self.inputs[node]) for node in ordered]
        for node, neighbours in downstream + upstream:
            if node not in kernels and (of_neighbours := [kernels[near] for near in neighbours if near in kernels]):
                kernels[node] = set().union(*of_neighbours)
        inferred = grouped(
            (index, node) for node in kernels.keys() - named_nodes - set(self.views) for index in kernels[node]
        )
        return [set(inferred.get(index, ())) for index in range(len(named))]


def positions_of(origins: Iterable[fx.Node]) -> set[int]:
    """Return the positions of the partition's nodes that ``origins`` descend from."""
    positions = ((origin.meta.get("custom") or {}).get(POSITION) for origin in origins)
    return {position for position in positions if position is not None}


def positions_downstream(origins: Iterable[fx.Node]) -> set[int]:
    """Return the positions of the nearest users of nodes that Inductor inserted, such as those that draw seeds."""
    frontier = list(origins)
    while frontier and not (positions := positions_of(frontier)):
        frontier = list(dict.fromkeys(user for node in frontier for user in node.users))
    return positions if frontier else set()


NO_ARITHMETIC = frozenset(
    (
        *("load", "store", "store_reduction", "partial_accumulate", "constant", "index_expr", "indirect_indexing"),
        *("check_bounds", "device_assert_async", "to_dtype", "to_dtype_bitcast", "identity", "getitem", "output"),
    )
)
"""The ops in the body of a loop that are not arithmetic."""


@dataclass
class Launch:
    """One launch of a kernel: its name, and the scheduler's nodes in it, or the IR node of an extern call."""

    name: str
    graph: Any
    nodes: list[Any] = field(default_factory=list)
    extern: Any = None


def kernel_of_launch(launch: Launch, nodes: set[int], inferred: set[int], reads_from: tuple[int, ...]) -> Kernel:
    """Return the record of a kernel, given the positions of its nodes and of the kernels whose results it reads."""
    # A figure that cannot be computed is left out, so that it does not hide the rest of a region's code.
    with V.set_graph_handler(launch.graph):
        return Kernel(
            name=launch.name,
            kind=_kernel_kind(launch),
            ops=_op_names(sorted(origins_of(launch))),
            nodes=tuple(sorted(nodes)),
            inferred=tuple(sorted(inferred)),
            reads_from=reads_from,
            bytes_read=int_or_none(lambda: sum(_read_bytes(launch).values())),
            bytes_written=int_or_none(lambda: sum(least_bytes(_memory_writes(launch)).values())),
            operations=int_or_none(lambda: _operation_count(launch)),
            loop_ops=dict(sorted(sum(map(_body_ops, launch.nodes), Counter[str]()).items())),
            dtype=_product_dtype(launch),
            origins=tuple(node.name for node in sorted(origins_of(launch))),
        )


def int_or_none(figure: Callable[[], int | None]) -> int | None:
    """Return a figure as an int, or None if it cannot be computed."""
    try:
        value = figure()
    except Exception:  # noqa: BLE001 - sizes that are known only at run time, and IR without such figures
        return None
    return None if value is None else int(value)


def _op_names(origins: Sequence[fx.Node]) -> tuple[str, ...]:
    """Return the ops that compute something; if there are none, the ops that copy."""
    ops = [node for node in origins if node.op == "call_function"]
    return tuple(dict.fromkeys(map(_op_name, [op for op in ops if not computes_nothing(op)] or ops)))


def _op_name(node: fx.Node) -> str:
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name.partition("::")[2]
    return str(getattr(target, "__name__", target))


def _kernel_kind(launch: Launch) -> KernelKind:
    if launch.extern is not None:
        return KernelKind.FALLBACK if _is_fallback(launch) else KernelKind.EXTERN
    if any(node.is_template() for node in launch.nodes):
        return KernelKind.TEMPLATE
    return KernelKind.REDUCTION if any(node.is_reduction() for node in launch.nodes) else KernelKind.POINTWISE


def _is_fallback(launch: Launch) -> bool:
    """Return whether an extern call is an op without Inductor code of its own, and not a library's matrix product.

    Inductor's classes for such ops have it in their names: ``FallbackKernel``, ``ScatterFallback``, ….
    """
    op = getattr(launch.extern, "op_overload", None)
    name = op._schema.name.partition("::")[2] if isinstance(op, torch._ops.OpOverload) else launch.name
    is_product = name in PRODUCTS or "attention" in name
    return not is_product and any("Fallback" in cls.__name__ for cls in type(launch.extern).__mro__)


def origins_of(launch: Launch) -> set[fx.Node]:
    """Return the nodes of Inductor's own graph that a kernel computes."""
    if launch.extern is not None:
        origin_node = launch.extern.origin_node
        return {origin_node} if origin_node is not None else set(launch.extern.origins)
    return {origin for node in launch.nodes if node.node is not None for origin in node.node.origins}


Accesses = dict[str, list[Any]]
"""The dependencies of a kernel by the name of the buffer they read or write."""


def dependencies_of(launch: Launch, kind: str) -> Accesses:
    """Return the dependencies that a kernel ``reads`` or ``writes``, including buffers that stay inside the kernel."""
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
    """Return the names of the buffers that a kernel accesses; empty if unknown."""
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


def _read_bytes(launch: Launch) -> dict[str, int]:
    """Return the least bytes read per buffer; an extern call may get a part of a buffer."""
    read = least_bytes(_memory_reads(launch))
    if launch.extern is not None:
        views = grouped((view.get_name(), view) for view in launch.extern.inputs if view.get_name() in read)
        for name, of_buffer in views.items():
            read[name] = min(read[name], sum(_size_hint(v.get_numel()) * v.get_dtype().itemsize for v in of_buffer))
    return read


def least_bytes(accesses: Accesses) -> dict[str, int]:
    """Return the least bytes moved per buffer: the bytes that the loops touch, at most the size of the buffer."""
    return {
        name: min(sum(map(_touched_bytes, set(deps))), dependencies.StarDep(name).numbytes_hint())
        for name, deps in accesses.items()
    }


def _touched_bytes(dep: Any) -> int:
    """Return the bytes of the elements in all iterations; for an indirect index, Inductor counts the whole buffer."""
    if isinstance(dep, dependencies.MemoryDep) and dep.is_indirect():
        return _size_hint(sympy_product(dep.size)) * V.graph.get_dtype(dep.name).itemsize
    return int(dep.numbytes_hint())


PRODUCTS = frozenset(("mm", "addmm", "bmm", "baddbmm"))
"""Ops that need all counted operations; a convolution may need fewer (Winograd), causal attention half."""


def _product_dtype(launch: Launch) -> str | None:
    """Return the dtype of the operands of a matrix product; None for other kernels, or if they differ."""
    products = [launch.extern] if launch.extern is not None else [n.node for n in launch.nodes if n.is_template()]
    ops = {name.rpartition("::")[2] for name in _op_names(sorted(origins_of(launch)))}
    if not products or not ops & PRODUCTS:
        return None
    dtypes = {operand.get_dtype() for operand in products[0].inputs}
    return str(dtypes.pop()).removeprefix("torch.") if len(dtypes) == 1 else None


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
    # torch 2.13 renamed the method.
    hint = getattr(sizevars, "optimization_hint", None) or sizevars.size_hint
    return int(hint(size, fallback=0))


TRITON_KERNEL = re.compile(r"^(\w+) = async_compile\.triton\('(\w+)', '''\n(.*?)'''", re.DOTALL | re.MULTILINE)
"""Matches the definition of a kernel in generated code: its name, the function's name, and its source."""


NodesOf = Callable[[fx.GraphModule], tuple[Node, ...]]
"""Returns the records of the nodes of a graph."""


def _graph_after_passes(lowering: Any, structure: Structure, nodes_of: NodesOf) -> LoweredGraph:
    """Return the graph that is lowered; each node has the positions of the nodes that it comes from."""
    ops = [node for node in lowering.module.graph.nodes if node.op not in ("placeholder", "output", "get_attr")]
    named = [positions_of([node]) for node in ops]
    return LoweredGraph(
        nodes_of(lowering.module),
        {node.name: tuple(sorted(positions)) for node, positions in zip(ops, named, strict=True) if positions},
        {
            node.name: tuple(sorted(more))
            for node, more in zip(ops, structure.inferred_nodes(named), strict=True)
            if more
        },
    )


def _output_graph(lowering: Any, launches: Sequence[Launch], nodes_of: NodesOf) -> tuple[LoweredGraph | None, str]:
    """Return the graph that ``fx_wrapper`` would make of Triton code, from the lines of Inductor's wrapper code.

    A node that calls a kernel has its name as target. Nothing is compiled or tuned: each kernel has the first of its
    launch configs. If there is no such graph, the text says why.
    """
    wrapper = lowering.wrapper_code
    converter = _Converter(
        # Lines of plain text are streams and assertions.
        lines=[line for line in wrapper.lines if not isinstance(line, str)],
        prologue="",
        graph_inputs=wrapper.get_graph_inputs(),
        graph_outputs=wrapper.get_graph_outputs(),
        subgms={},
        is_subgraph=False,
    )
    converter.launches = launches
    try:
        # The converter's own tuning would run the kernels.
        with inductor_config.patch({"triton.autotune_at_compile_time": False}):
            gm = converter.generate()
    except Exception as error:  # noqa: BLE001 - it supports only some kinds of lines; the code does not need it
        return None, f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"
    names = {node: launches[kernel].name for node, kernel in converter.called.items()}
    nodes = tuple(replace(node, target=names.get(node.name, node.target)) for node in nodes_of(gm))
    return LoweredGraph(nodes, {node: (kernel,) for node, kernel in converter.called.items()}), ""


class _Converter(wrapper_fxir.FxConverter):
    """Inductor's own converter, extended to record the kernel of each call and to compile none."""

    launches: Sequence[Launch] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.called: dict[str, int] = {}

    def _import_kernel(self, code: str, kernel_name: str) -> Any:
        del kernel_name
        ((_, function, source),) = TRITON_KERNEL.findall(code)
        kernel = getattr(PyCodeCache.load(source), function)
        kernel.compile_results = [SimpleNamespace(config=kernel.configs[0])]
        return kernel

    def _generate_triton_call(self, line: Any) -> None:
        super()._generate_triton_call(line)
        called = set(self.called.values())
        for index, launch in enumerate(self.launches):
            if launch.name == line.kernel_name and index not in called:
                self._record_kernel(index)
                break

    def _generate_extern_kernel_common(self, kernel: Any, out_ir_node: Any) -> None:
        super()._generate_extern_kernel_common(kernel, out_ir_node)
        self._record_extern(kernel)

    def _generate_fallback_call(self, ir_node: Any, args: Any = None, kwargs: Any = None) -> None:
        super()._generate_fallback_call(ir_node, args, kwargs)
        self._record_extern(ir_node)

    def _record_extern(self, ir_node: Any) -> None:
        for index, launch in enumerate(self.launches):
            if launch.extern is ir_node:
                self._record_kernel(index)

    def _record_kernel(self, kernel: int) -> None:
        """Record that the newest node calls ``kernel``."""
        self.called[next(iter(reversed(self.gm.graph.nodes))).name] = kernel


BUILDERS_OF_KERNELS = (cpp, triton, debug)
"""The modules that import the function by which Inductor reports a kernel's nodes; others import it when used."""


def lower_piece(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    mode: FakeTensorMode,
    config: Mapping[str, Any],
    positions: Mapping[str, int],
    nodes_of: NodesOf,
    prepared: Preparation | None = None,
) -> ArtifactCode:
    """Return the code that Inductor generates for ``gm``; ``positions`` has the position of each node by name.

    The kernels do not know their lines in the code. ``write_code`` says what it raises.
    """
    structure = Structure.of(gm, positions)
    launches: list[Launch] = []
    refusals: dict[tuple[str, str], str] = {}
    results: list[ArtifactCode] = []

    def at_code(code: str) -> None:
        results.append(_artifact_code(code, launches, refusals, structure, nodes_of))

    with (
        compile_lock(),
        recording_warnings() as warned,
        counting_patterns() as matched,
        _recording_launches(launches, refusals),
    ):
        write_code(gm, inputs, mode, config, prepared, at_code)
    return replace(results[0] if results else ArtifactCode(""), warnings=tuple(warned), patterns=dict(matched))


@contextlib.contextmanager
def _recording_launches(launches: list[Launch], refusals: dict[tuple[str, str], str]) -> Iterator[None]:
    """Context manager: record kernel launches, and why Inductor refused to fuse pairs of scheduler nodes."""

    def record_launch(nodes: Any, name: str, is_extern: bool = False) -> None:  # noqa: FBT001, FBT002 - torch's signature
        scheduler_nodes = [] if is_extern else [node for node in nodes if isinstance(node, scheduler.BaseSchedulerNode)]
        launches.append(Launch(name, V.graph, scheduler_nodes, nodes if is_extern else None))

    def record_refusal(why: Any, reason: str, *args: Any) -> None:
        # Inductor decides "no shared data" at one moment; buffers that both touch are counted below.
        if reason != "no shared data":
            refusals.setdefault((why.name1, why.name2), reason % args if args else reason)
        explain(why, reason, *args)

    def fuse_side_by_side(scheduling: Any, node1: Any, node2: Any) -> bool:
        # The one refusal for which Inductor gives no reason.
        fits = may_fuse(scheduling, node1, node2)
        limit = inductor_config.cpp.max_horizontal_fusion_size
        if not fits and len(node1.get_nodes()) + len(node2.get_nodes()) > limit:
            reason = f"more than cpp.max_horizontal_fusion_size={limit} side by side"
            refusals.setdefault((node1.get_name(), node2.get_name()), reason)
        return fits

    may_fuse: Callable[..., bool] = cpp.CppScheduling.can_fuse_horizontal
    explain: Callable[..., None] = scheduler.WhyNoFuse.__call__
    with contextlib.ExitStack() as patches:
        for module in BUILDERS_OF_KERNELS:
            patches.enter_context(mock.patch.object(module, "set_kernel_post_grad_provenance_tracing", record_launch))
        patches.enter_context(mock.patch.object(scheduler.WhyNoFuse, "__call__", record_refusal))
        patches.enter_context(mock.patch.object(cpp.CppScheduling, "can_fuse_horizontal", fuse_side_by_side))
        yield


def _artifact_code(
    code: str,
    launches: Sequence[Launch],
    refusals: Mapping[tuple[str, str], str],
    structure: Structure,
    nodes_of: NodesOf,
) -> ArtifactCode:
    named = [positions_of(origins_of(launch)) for launch in launches]
    inferred = [
        others if nodes or others else positions_downstream(origins_of(launch))
        for launch, nodes, others in zip(launches, named, structure.inferred_nodes(named), strict=True)
    ]
    kernels = tuple(map(kernel_of_launch, launches, named, inferred, read_from(launches)))
    output, problem = _output_graph(V.graph, launches, nodes_of) if "async_compile.triton(" in code else (None, "")
    return ArtifactCode(
        code,
        kernels,
        structure.views,
        tuple(_refused_fusions(launches, refusals)),
        after_passes=_graph_after_passes(V.graph, structure, nodes_of),
        output=output,
        output_problem=problem,
    )


def _refused_fusions(launches: Sequence[Launch], refusals: Mapping[tuple[str, str], str]) -> Iterator[RefusedFusion]:
    """Yield the refused fusions whose two nodes ended up in different loops and share data."""
    kernel_of: dict[str, int] = {}
    loop_of: dict[str, Any] = {}
    for index, launch in enumerate(launches):
        for node in launch.nodes:
            kernel_of.update(dict.fromkeys((node.get_name(), *(inner.get_name() for inner in node.get_nodes())), index))
        if launch.extern is not None:
            kernel_of[launch.extern.get_operation_name()] = index
        for loop in launch.graph.scheduler.nodes:
            # A C++ function may hold several loops.
            loop_of.update(dict.fromkeys((inner.get_name() for inner in loop.get_nodes()), loop))
    reported = set()
    for pair, reason in refusals.items():
        # The name of a fused node consists of the names of its parts: "op0_op1".
        first, second = (loop_of.get(name) or loop_of.get(name.split("_")[0]) for name in pair)
        if first is None or second is None or first is second or frozenset((first, second)) in reported:
            continue
        reported.add(frozenset((first, second)))
        kernels = [kernel_of.get(loop.get_nodes()[0].get_name(), -1) for loop in (first, second)]
        shared = int_or_none(partial(_shared_bytes, first, second))
        if shared and -1 not in kernels:
            yield RefusedFusion(min(kernels), max(kernels), reason, shared)


def _shared_bytes(first: Any, second: Any) -> int:
    first_accesses, second_accesses = (
        {**dependencies_of(launch, "reads"), **dependencies_of(launch, "writes")}
        for launch in (Launch("", V.graph, [first]), Launch("", V.graph, [second]))
    )
    return sum(least_bytes({name: deps for name, deps in first_accesses.items() if name in second_accesses}).values())
