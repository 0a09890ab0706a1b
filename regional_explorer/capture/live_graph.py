"""The live graphs that AOTAutograd runs: replaceable, boxed, repaired where strides differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from msgspec.structs import replace
from torch import fx

from regional_explorer.capture.convert import GraphRecorder, ModuleNames
from regional_explorer.capture.user_lines import Outdated, at_line
from regional_explorer.errors import CaptureError, RefusalCode
from regional_explorer.record.graph import FailedOp, Graph, GraphKind, Node, Role
from regional_explorer.torch_api.dynamo import FoldedOp
from regional_explorer.torch_api.graphs import BoxedCall, SizeGuards, boxed, declare_boxed, size_hint

_VIEW_OPS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)  # noqa: SLF001 - an operator's name

_CONTIGUOUS: dict[str, Any] = {"memory_format": torch.contiguous_format}

_SILENTLY_WRONG = {
    torch.ops.aten.native_group_norm.default: torch.ops.aten.native_group_norm_backward.default,
}
"""For an operator that refuses an input's strides, the operator that silently reads them wrong (torch 2.13)."""


class RepairRun(fx.Interpreter):
    """Runs a graph op by op; an op that fails on the strides of an input gets a copy of that input.

    AOTAutograd decides by the strides of fake tensors whether ``reshape`` is a ``view``, and in which order group norm
    reads its input; some kernels return other strides: ``native_dropout_backward``, for example (torch 2.13,
    ``docs/upstream.md``). A view becomes a ``reshape``, which copies if it must; any other op that reads an input with
    other strides than in the trace gets contiguous inputs, as in eager. ``targets`` are the operators that failed.

    Raises:
        CaptureError: an op fails for another reason.
    """

    def __init__(self, gm: fx.GraphModule, record: Graph) -> None:
        super().__init__(gm)
        self.extra_traceback = False
        self.failed: list[FailedOp] = []
        self.targets: set[Any] = set()
        self._record = record

    def run_node(self, n: fx.Node) -> Any:
        """Run one op, and repair it if it fails on the strides of its input."""
        try:
            return self._run_or_repair(n)
        except Exception as error:
            message = (str(error).splitlines() or [""])[0]
            where = at_line(self._record.by_name[n.name].source)
            raise CaptureError(
                RefusalCode.GRAPH_FAILED,
                f"torch traced the call, but the graph it made fails when it runs: {n.name} ({n.target}) raises "
                f"{type(error).__name__}{where}: {message} Eager runs the same call. Explore the part of the call "
                "that does not need this line.",
            ) from error

    def _run_or_repair(self, n: fx.Node) -> Any:
        try:
            return super().run_node(n)
        except RuntimeError as error:
            target = n.target
            if not self._repair(n):
                raise
            self.failed.append(FailedOp(self._record.id, n.name, str(target), (str(error).splitlines() or [""])[0]))
            self.targets.add(target)
        return super().run_node(n)

    def _repair(self, n: fx.Node) -> bool:
        """Copy the inputs whose strides differ from the trace; return whether there are any."""
        if n.target in _VIEW_OPS:
            n.target = torch.ops.aten.reshape.default
            return True
        if all(_strides(self.env[source]) == _strides(source.meta.get("val")) for source in n.all_input_nodes):
            return False
        for copy in _copies_for(n):
            self.env[copy] = super().run_node(copy)
            self.user_to_last_uses.setdefault(n, []).append(copy)
        return True


def repair_alike(gm: fx.GraphModule, targets: Collection[Any]) -> None:
    """Repair ops like those that failed in another graph or another run, whose operators are ``targets``."""
    to_repair = {*targets, *(_SILENTLY_WRONG[target] for target in targets if target in _SILENTLY_WRONG)}
    for node in list(gm.graph.nodes):
        if node.target in to_repair and node.target in _VIEW_OPS:
            node.target = torch.ops.aten.reshape.default
        elif node.target in to_repair:
            _copies_for(node)


def _strides(value: Any) -> tuple[int, ...]:
    """Return the strides of a tensor (of a fake one, as traced), or nothing for other values."""
    strided = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return tuple(map(size_hint, value.stride())) if strided else ()


def _copies_for(node: fx.Node) -> list[fx.Node]:
    """Make ``node`` read contiguous copies of its inputs, and return the new nodes, which get its metadata."""
    copies = []
    for source in node.all_input_nodes:
        if len(_strides(source.meta.get("val"))) <= 1 or source.kwargs == _CONTIGUOUS:
            continue
        with node.graph.inserting_before(node):
            copies.append(node.graph.call_function(torch.ops.aten.clone.default, (source,), _CONTIGUOUS))
        copies[-1].meta = {**node.meta, "val": source.meta["val"].clone(**_CONTIGUOUS)}
        node.replace_input_with(source, copies[-1])
    return copies


_NO_GRAPH = fx.GraphModule({}, fx.Graph())


class LiveGraph:
    """One graph that AOTAutograd runs, through an implementation that can be replaced.

    ``gm`` stays as captured, except for ``failed_ops``, which raised when it first ran and were repaired; ``eager``
    runs ``gm``. ``implementation`` is what calls run now.
    """

    def __init__(self, graph_id: str, kind: GraphKind, gm: fx.GraphModule) -> None:
        self.id = graph_id
        self.kind = kind
        self.gm = gm
        self.eager: BoxedCall = boxed(gm)
        self.implementation: BoxedCall = self.eager
        self.failed_ops: list[FailedOp] = []
        self.failed_targets: set[Any] = set()

    def start_repairing(self, record: Graph) -> None:
        """Run the next calls op by op, and repair the ops that fail; ``stop_repairing`` ends this."""
        repair_run = RepairRun(self.gm, record)
        self.failed_ops, self.failed_targets = repair_run.failed, repair_run.targets
        self.implementation = repair_run.boxed_run

    def stop_repairing(self, failed: Collection[Any]) -> None:
        """Repair the ops of ``gm`` that are like those that ``failed`` in any graph; later calls run ``gm``."""
        if failed:
            repair_alike(self.gm, failed)
            self.eager = boxed(self.gm)
        # A lazy module writes its code when it is first needed: write it here, where its file is noted, so that it is
        # freed.
        _ = self.gm.code
        self.implementation = self.eager

    def as_boxed(self) -> BoxedCall:
        """Return the function to pass to AOTAutograd."""

        def call(args: list[Any]) -> Any:
            return self.implementation(args)

        return declare_boxed(call)

    def close(self, instead: BoxedCall) -> None:
        """Free the graph and the code that runs it; the user's autograd graphs may still hold the function.

        Calls run ``instead`` from now on.
        """
        self.gm = _NO_GRAPH
        self.eager = self.implementation = instead


def is_size_guard(reason: str) -> bool:
    """Return whether the guard that failed is one on the sizes of a tensor."""
    return _SIZE_GUARD.search(reason) is not None


_SIZE_GUARD = re.compile(r"size mismatch|\.(size|stride)\(\)\[")


@dataclass
class Frame:
    """One Dynamo graph: its record, and the live graphs AOTAutograd made from it.

    ``late`` frames came from calls after the capture, on other shapes or in another grad mode. ``reason`` is the guard
    that failed; ``forgotten`` says that no guard failed, but Dynamo forgot an equal trace. ``folded`` are the ops that
    were replaced by equal ones. ``autocast`` is the autocast of the trace, ``outdated`` are the lines without a known
    text. ``pending`` is the record of the backward until AOTAutograd hands the backward over. ``size_guards`` say which
    sizes the frame serves. Frames of equal ``call`` serve the same call; ``state`` are the settings and the modes of
    the modules that a frame was traced under.
    """

    index: int
    dynamo: list[Graph]
    late: bool
    live: list[LiveGraph] = field(default_factory=list)
    records: list[Graph] = field(default_factory=list)
    reason: str = ""
    forgotten: bool = False
    folded: list[FoldedOp] = field(default_factory=list)
    autocast: str = ""
    state: tuple[Any, ...] = ()
    call: tuple[Any, ...] = ()
    outdated: Outdated = field(default_factory=dict)
    pending: list[Graph] = field(default_factory=list)
    size_guards: SizeGuards = field(default_factory=lambda: SizeGuards({}, {}))

    @property
    def retrace_clause(self) -> str:
        """A clause about why Dynamo traced this frame again, or an empty text."""
        if self.forgotten:
            return ", since torch._dynamo.reset() made Dynamo forget the earlier trace"
        return f", since a guard failed: {self.reason.strip().rstrip('. ')}" if self.reason else ""

    @property
    def graphs(self) -> list[Graph]:
        """The records of Dynamo's graph and AOTAutograd's."""
        return [*self.dynamo, *self.records]

    @property
    def origins(self) -> Mapping[int, Node]:
        """The nodes of Dynamo's graph and its bodies by origin."""
        return {node.origin: node for graph in self.dynamo for node in graph.nodes if node.origin is not None}

    def add_patterns(self, matched: Mapping[str, int]) -> None:
        """Record how often each pattern of the joint-graph passes matched."""
        graph = self.dynamo[0]
        self.dynamo[0] = replace(graph, patterns=dict(Counter(graph.patterns) + Counter(matched)))

    @property
    def inputs(self) -> Sequence[Node]:
        """The inputs of Dynamo's graph."""
        return [node for node in self.dynamo[0].nodes if node.role in (Role.INPUT, Role.PARAMETER, Role.BUFFER)]

    def record(self, names: ModuleNames) -> None:
        """Update the records from the live graphs as they are now."""
        self.records = [graph for live in self.live for graph in self.record_of(live.kind, live.gm, names)]

    def record_of(self, kind: GraphKind, gm: fx.GraphModule, names: ModuleNames) -> list[Graph]:
        """Return the records of a graph and its bodies; ``names`` are the module paths by ``id(module)``."""
        recorder = GraphRecorder(kind, self.index, names, self.origins, self.inputs, self.outdated)
        return recorder.record(gm, self.id_of(kind))

    def id_of(self, kind: GraphKind) -> str:
        """Return the id of the frame's graph of this kind."""
        return f"{self.index}/{kind}"
