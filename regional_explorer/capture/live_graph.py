"""The live graphs that AOTAutograd runs, the state of each, and the repair of ops whose strides differ."""

from __future__ import annotations

import re
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

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
            if target not in _VIEW_OPS and all(
                _strides(self.env[source]) == _strides(source.meta.get("val")) for source in n.all_input_nodes
            ):
                raise
            for copy in _repair(n):
                self.env[copy] = super().run_node(copy)
                self.user_to_last_uses.setdefault(n, []).append(copy)
            self.failed.append(FailedOp(self._record.id, n.name, str(target), (str(error).splitlines() or [""])[0]))
            self.targets.add(target)
        return super().run_node(n)


def repair_alike(gm: fx.GraphModule, targets: Collection[Any]) -> None:
    """Repair ops like those that failed in another graph or another run, whose operators are ``targets``."""
    to_repair = {*targets, *(_SILENTLY_WRONG[target] for target in targets if target in _SILENTLY_WRONG)}
    for node in list(gm.graph.nodes):
        if node.target in to_repair:
            _repair(node)


def _strides(value: Any) -> tuple[int, ...]:
    """Return the strides of a tensor (of a fake one, as traced), or nothing for other values."""
    strided = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return tuple(map(size_hint, value.stride())) if strided else ()


def _repair(node: fx.Node) -> list[fx.Node]:
    """Make ``node`` a reshape, or read contiguous copies of its inputs; return the new nodes, with its metadata."""
    if node.target in _VIEW_OPS:
        node.target = torch.ops.aten.reshape.default
        return []
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


class GraphState(Enum):
    """What the next call of a live graph does."""

    REPAIRING = "run the graph op by op, and repair the ops that fail on strides"
    UNSETTLED = "ask the program which state to enter; without a program, run the graph as captured"
    CAPTURED = "run the graph as captured"
    COMPILING = "compile the partitions, then run the cut graph; if it fails, repair it; the calls after it are cut"
    CUT = "run the cut graph, in which each switch runs its partition as its own mode says"
    REPLACED = "run what was put in place of the graph, by a measurement or to check the plan after the call"
    REFUSED = "raise: the graph is closed, or against the plan"


class GraphProgram(Protocol):
    """Decides what live graphs run, in an exploration and in production."""

    def add_graph(self, frame: Frame, live: LiveGraph) -> None:
        """Take in a graph that a call has traced since the program was made."""

    def settle(self, live: LiveGraph) -> None:
        """Let an unsettled graph enter the state that its next calls run in."""


class LiveGraph:
    """One graph that AOTAutograd runs: it calls ``call``, which does what ``state`` says.

    ``gm`` stays as captured, except for ``failed_ops``, which raised when it first ran and were repaired; ``eager``
    runs ``gm``. The program is referenced weakly, because Dynamo holds the graph: a program that the graph held would
    never be freed.
    """

    def __init__(self, graph_id: str, kind: GraphKind, gm: fx.GraphModule) -> None:
        self.id = graph_id
        self.kind = kind
        self.gm = gm
        self.eager: BoxedCall = boxed(gm)
        self.state = GraphState.CAPTURED
        self._run: BoxedCall = self.eager
        self._program: Callable[[], GraphProgram | None] = lambda: None
        self.failed_ops: list[FailedOp] = []
        self.failed_targets: set[Any] = set()

    @declare_boxed
    def call(self, args: list[Any]) -> Any:
        """Run the graph on one argument list, which is emptied."""
        return (self.settled() if self.state is GraphState.UNSETTLED else self._run)(args)

    def settled(self) -> BoxedCall:
        """Return what calls run; if that is not settled, the program decides it now."""
        # There is no program yet, or none any more: a backward of the user's may outlive the exploration.
        if self.state is GraphState.UNSETTLED and (program := self._program()) is not None:
            program.settle(self)
        return self._run

    def enter(self, state: GraphState, run: BoxedCall) -> None:
        """Let calls run ``run`` from now on; a refused graph stays refused."""
        if self.state is not GraphState.REFUSED:
            self._run, self.state = run, state

    def unsettle(self, program: GraphProgram | None = None) -> None:
        """Let the next call ask the program what to run: ``program``, or the one that it has asked before."""
        if program is not None:
            self._program = weakref.ref(program)
        self.enter(GraphState.UNSETTLED, self.eager)

    def start_repairing(self, record: Graph) -> None:
        """Run the next calls op by op, and repair the ops that fail; ``stop_repairing`` ends this."""
        repair_run = RepairRun(self.gm, record)
        self.failed_ops, self.failed_targets = repair_run.failed, repair_run.targets
        self.enter(GraphState.REPAIRING, repair_run.boxed_run)

    def stop_repairing(self, failed: Collection[Any]) -> None:
        """Repair the ops of ``gm`` that are like those that ``failed`` in any graph; later calls are unsettled."""
        if failed:
            repair_alike(self.gm, failed)
            self.eager = boxed(self.gm)
        # A lazy module writes its code when it is first needed: write it here, where its file is noted, so that it is
        # freed.
        _ = self.gm.code
        self.unsettle()

    def close(self, instead: BoxedCall) -> None:
        """Free the graph and the code that runs it; the user's autograd graphs may still hold the function.

        Calls run ``instead`` from now on.
        """
        self.gm, self.eager = _NO_GRAPH, instead
        self._run, self.state = instead, GraphState.REFUSED


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
