"""The graphs that Inductor makes of a partition: after its passes, and its output as a graph of kernel calls."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch._inductor.config as inductor_config
from torch import fx
from torch._inductor.codegen import wrapper_fxir

from regional_explorer.torch_api.kernel_facts import Launch
from regional_explorer.torch_api.kernel_nodes import Structure, positions_of

TRITON_KERNEL = re.compile(r"^(\w+) = async_compile\.triton\('(\w+)', '''\n(.*?)'''", re.DOTALL | re.MULTILINE)
"""Matches the definition of a kernel in generated code: its name, the function's name, and its source."""


@dataclass(frozen=True)
class AfterPasses:
    """The graph after Inductor's passes; see ``record.kernels.LoweredGraph``."""

    gm: fx.GraphModule
    sources: Mapping[str, tuple[int, ...]]
    inferred: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Output:
    """Inductor's output as a graph: allocations, kernel calls and extern calls.

    ``kernels`` has the position of the kernel that a node calls, by its name. Without ``gm``, ``problem`` says why.
    """

    gm: fx.GraphModule | None
    kernels: Mapping[str, int]
    problem: str = ""


def after_passes(lowering: Any, structure: Structure) -> AfterPasses:
    """Return the graph that ``lowering`` reads, with the positions of the nodes that each of its nodes comes from."""
    gm: fx.GraphModule = lowering.module
    ops = [node for node in gm.graph.nodes if node.op not in ("placeholder", "output", "get_attr")]
    named = [positions_of([node]) for node in ops]
    return AfterPasses(
        gm,
        {node.name: tuple(sorted(positions)) for node, positions in zip(ops, named, strict=True) if positions},
        {node.name: tuple(sorted(more)) for node, more in zip(ops, structure.inferred(named), strict=True) if more},
    )


def output_graph(lowering: Any, launches: Sequence[Launch]) -> Output:
    """Return the graph that ``fx_wrapper`` would make of Triton code, from the lines of Inductor's wrapper code.

    Nothing is compiled or tuned: each kernel has the first of its launch configs.
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
            return Output(converter.generate(), converter.called)
    except Exception as error:  # noqa: BLE001 - it supports only some kinds of lines; the code does not need it
        return Output(None, {}, f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}")


class _Converter(wrapper_fxir.FxConverter):
    """Inductor's own converter, extended to record the kernel of each call and to compile none."""

    launches: Sequence[Launch] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.called: dict[str, int] = {}
        self._launch_counts: dict[str, int] = defaultdict(int)

    def _import_kernel(self, code: str, kernel_name: str) -> Any:
        from torch._inductor.codecache import PyCodeCache

        del kernel_name
        ((_, function, source),) = TRITON_KERNEL.findall(code)
        kernel = getattr(PyCodeCache.load(source), function)
        kernel.compile_results = [SimpleNamespace(config=kernel.configs[0])]
        return kernel

    def _generate_triton_call(self, line: Any) -> None:
        super()._generate_triton_call(line)
        indices = [index for index, launch in enumerate(self.launches) if launch.name == line.kernel_name]
        turn = self._launch_counts[line.kernel_name]
        self._launch_counts[line.kernel_name] += 1
        if turn < len(indices):
            self._note_kernel(indices[turn])

    def _generate_extern_kernel_common(self, kernel: Any, out_ir_node: Any) -> None:
        super()._generate_extern_kernel_common(kernel, out_ir_node)
        self._note_extern(kernel)

    def _generate_fallback_call(self, ir_node: Any, args: Any = None, kwargs: Any = None) -> None:
        super()._generate_fallback_call(ir_node, args, kwargs)
        self._note_extern(ir_node)

    def _note_extern(self, ir_node: Any) -> None:
        for index, launch in enumerate(self.launches):
            if launch.extern is ir_node:
                self._note_kernel(index)

    def _note_kernel(self, kernel: int) -> None:
        """Record that the newest node calls ``kernel``."""
        self.called[next(iter(reversed(self.gm.graph.nodes))).name] = kernel
