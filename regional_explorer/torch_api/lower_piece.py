"""Lowers a partition with Inductor without compiling it: kernel launches, their loops, and fusions refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn
from unittest import mock

import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch import fx
from torch._inductor import debug, scheduler
from torch._inductor.codegen import cpp, triton
from torch._inductor.virtualized import V

from regional_explorer.record.kernels import Kernel, RefusedFusion
from regional_explorer.torch_api.inductor import run_inductor
from regional_explorer.torch_api.kernel_facts import (
    Launch,
    dependencies_of,
    kernel_of_launch,
    known,
    least_bytes,
    origins_of,
    read_from,
)
from regional_explorer.torch_api.kernel_nodes import Structure, positions_downstream, positions_of
from regional_explorer.torch_api.lock import compile_lock
from regional_explorer.torch_api.lowered_graphs import AfterPasses, Output, after_passes, output_graph

if TYPE_CHECKING:
    from torch._subclasses import FakeTensorMode


BUILDERS_OF_KERNELS = (cpp, triton, debug)
"""The modules that import Inductor's function which reports the nodes of a kernel; others import it when used."""


@dataclass(frozen=True)
class Lowered:
    """The code that Inductor generated for a partition, with its kernels; see ``record.kernels.ArtifactCode``."""

    code: str
    kernels: tuple[Kernel, ...]
    views: tuple[int, ...]
    refused: tuple[RefusedFusion, ...]
    after_passes: AfterPasses | None = None
    output: Output | None = None


class _CodeIsWritten(BaseException):
    """Ends a lowering once the code is written. Not an Exception, because Inductor handles those."""


def lower_piece(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    mode: FakeTensorMode,
    config: Mapping[str, Any],
    positions: Mapping[str, int],
) -> Lowered:
    """Run Inductor over ``gm`` up to the code it writes; ``positions`` has the position of each node by name.

    Nothing is compiled, and no cache of Inductor's is read or written.

    Raises:
        NoCompilerError: there is no working C++ compiler.
        RegionCompileError: Inductor failed; the text is its own, trimmed.
    """
    structure = Structure.of(gm, positions)
    launches: list[Launch] = []
    refusals: dict[tuple[str, str], str] = {}
    results: list[Lowered] = []

    def at_code(code: str) -> NoReturn:
        results.append(_lowered_piece(code, launches, refusals, structure))
        raise _CodeIsWritten

    with (
        compile_lock(),
        _recording_launches(launches, refusals),
        # Results of autotuning come from the cache all the same, because they affect the code.
        inductor_config.patch(fx_graph_cache=False),
        functorch_config.patch(enable_autograd_cache=False),
        contextlib.suppress(_CodeIsWritten),
    ):
        run_inductor(gm, inputs, mode, config, at_code)
    return results[0] if results else Lowered("", (), (), ())


@contextlib.contextmanager
def _recording_launches(launches: list[Launch], refusals: dict[tuple[str, str], str]) -> Iterator[None]:
    """A block that records kernel launches, and why Inductor refused to fuse pairs of scheduler nodes."""

    def note_launch(nodes: Any, name: str, is_extern: bool = False) -> None:  # noqa: FBT001, FBT002 - torch's signature
        scheduler_nodes = [] if is_extern else [node for node in nodes if isinstance(node, scheduler.BaseSchedulerNode)]
        launches.append(Launch(name, V.graph, scheduler_nodes, nodes if is_extern else None))

    def note_refusal(why: Any, reason: str, *args: Any) -> None:
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
            patches.enter_context(mock.patch.object(module, "set_kernel_post_grad_provenance_tracing", note_launch))
        patches.enter_context(mock.patch.object(scheduler.WhyNoFuse, "__call__", note_refusal))
        patches.enter_context(mock.patch.object(cpp.CppScheduling, "can_fuse_horizontal", fuse_side_by_side))
        yield


def _lowered_piece(
    code: str, launches: Sequence[Launch], refusals: Mapping[tuple[str, str], str], structure: Structure
) -> Lowered:
    named = [positions_of(origins_of(launch)) for launch in launches]
    inferred = [
        inferred_nodes if nodes or inferred_nodes else positions_downstream(origins_of(launch))
        for launch, nodes, inferred_nodes in zip(launches, named, structure.inferred(named), strict=True)
    ]
    sources = read_from(launches)
    kernels = tuple(
        replace(kernel_of_launch(launch, sorted(nodes), sorted(inferred_nodes)), reads_from=read)
        for launch, nodes, inferred_nodes, read in zip(launches, named, inferred, sources, strict=True)
    )
    return Lowered(
        code,
        kernels,
        structure.views,
        tuple(_refused_fusions(launches, refusals)),
        after_passes(V.graph, structure),
        output_graph(V.graph, launches) if "async_compile.triton(" in code else None,
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
        shared = known(lambda first=first, second=second: _shared_bytes(first, second))  # type: ignore[misc]
        if shared and -1 not in kernels:
            yield RefusedFusion(min(kernels), max(kernels), reason, shared)


def _shared_bytes(first: Any, second: Any) -> int:
    first_accesses, second_accesses = (
        {**dependencies_of(launch, "reads"), **dependencies_of(launch, "writes")}
        for launch in (Launch("", V.graph, [first]), Launch("", V.graph, [second]))
    )
    return sum(least_bytes({name: deps for name, deps in first_accesses.items() if name in second_accesses}).values())
