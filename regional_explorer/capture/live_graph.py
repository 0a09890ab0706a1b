"""The live graphs that AOTAutograd runs, how each of them is run, boxed or repaired, and their Dynamo frames."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import fx

from regional_explorer.capture.call import closed
from regional_explorer.capture.convert import ModuleNames, record_graphs
from regional_explorer.capture.repair import RepairRun, repair_alike
from regional_explorer.capture.source_lines import Outdated, as_loaded
from regional_explorer.record.graph import FailedOp, Graph, GraphKind, Node, Role
from regional_explorer.torch_api import BoxedCall, Folded, boxed

GRAPH_INPUTS = frozenset({Role.INPUT, Role.PARAMETER, Role.BUFFER})


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
        self.implementation: BoxedCall = self._run_noting_failure
        self.failed_ops: list[FailedOp] | None = None
        self.failed_targets: set[Any] = set()
        self.raised = False

    def _run_noting_failure(self, args: list[Any]) -> Any:
        """Run as captured, and note whether this graph raised, rather than torch while tracing."""
        try:
            return self.eager(args)
        except Exception:
            self.raised = True
            raise

    def repair(self, record: Graph) -> None:
        """Make the next run go op by op and repair the ops that fail."""
        repair_run = RepairRun(self.gm, record)
        self.raised, self.failed_ops, self.failed_targets = False, repair_run.failed, repair_run.targets

        def run(args: list[Any]) -> Any:
            result = repair_run.boxed_run(args)
            self.run_as_captured(self.failed_targets)
            return result

        self.implementation = run

    def run_as_captured(self, failed: Collection[Any] = ()) -> None:
        """Make calls run ``gm``, in which ops like those that ``failed`` in any graph are repaired first."""
        if failed:
            repair_alike(self.gm, failed)
            self.eager = boxed(self.gm)
        self.implementation = self.eager

    def as_boxed(self) -> BoxedCall:
        """Return the function to pass to AOTAutograd."""

        def call(args: list[Any]) -> Any:
            return self.implementation(args)

        call._boxed_call = True  # type: ignore[attr-defined]  # how AOTAutograd recognizes boxed functions
        return call

    def close(self, instead: BoxedCall = closed) -> None:
        """Free the graph and the code that runs it; the user's autograd graphs may still hold the function.

        Calls run ``instead`` from now on.
        """
        self.gm = _NO_GRAPH
        self.eager = self.implementation = instead


@dataclass
class Frame:
    """One Dynamo graph: its record, and the live graphs AOTAutograd made from it.

    ``late`` frames came from calls after the capture, on other shapes or in another grad mode; ``reason`` is the guard
    that failed. ``folded`` are the ops that were replaced by equal ones. ``autocast`` is what it was traced under,
    ``outdated`` are the lines without a known text.
    """

    index: int
    dynamo: list[Graph]
    late: bool
    live: list[LiveGraph] = field(default_factory=list)
    records: list[Graph] = field(default_factory=list)
    reason: str = ""
    folded: list[Folded] = field(default_factory=list)
    autocast: str = ""
    outdated: Outdated = field(default_factory=dict)

    @property
    def origins(self) -> Mapping[int, Node]:
        """The nodes of Dynamo's graph and its bodies by origin."""
        return {node.origin: node for graph in self.dynamo for node in graph.nodes if node.origin is not None}

    @property
    def inputs(self) -> Sequence[Node]:
        """The inputs of Dynamo's graph."""
        return [node for node in self.dynamo[0].nodes if node.role in GRAPH_INPUTS]

    def record(self, names: ModuleNames) -> None:
        """Update the records from the live graphs as they are now."""
        self.records = [graph for live in self.live for graph in self.record_of(live, names)]

    def record_of(self, live: LiveGraph, names: ModuleNames) -> list[Graph]:
        """Return the records of a live graph and its bodies; ``names`` are the module paths by ``id(module)``."""
        return self.as_loaded(
            record_graphs(
                live.gm, live.id, live.kind, self.index, names=names, origins=self.origins, inputs=self.inputs
            )
        )

    def as_loaded(self, graphs: list[Graph]) -> list[Graph]:
        """Return the records without the text of ``outdated`` lines."""
        if not self.outdated:
            return graphs
        return [replace(graph, nodes=tuple(map(self._node_as_loaded, graph.nodes))) for graph in graphs]

    def _node_as_loaded(self, node: Node) -> Node:
        return replace(node, stack=tuple(as_loaded(line, self.outdated) for line in node.stack))
