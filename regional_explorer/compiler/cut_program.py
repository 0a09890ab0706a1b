"""The captured graphs, cut into the partitions of a plan; each partition is called through a switch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regional_explorer.capture.live_graph import Frame, LiveGraph
from regional_explorer.capture.traced_graphs import TracedGraphs
from regional_explorer.compiler.artifacts.artifact import ArtifactStore
from regional_explorer.compiler.artifacts.fingerprint import artifact_key, surroundings
from regional_explorer.compiler.switch import Switch
from regional_explorer.record.graph import Graph
from regional_explorer.record.plan import Plan
from regional_explorer.record.region import Direction, Region, config_of
from regional_explorer.record.selector import Selector
from regional_explorer.regions.cutting.cut import Piece, PieceContent, cut_graph, pieces_of, propose_cut
from regional_explorer.regions.cutting.partition_ids import PartitionNumbering
from regional_explorer.regions.instances import Instance
from regional_explorer.regions.select import Assignment, assign
from regional_explorer.torch_api import BoxedCall, boxed, compile_lock


@dataclass
class SwitchedGraph:
    """A live graph, the switches of its partitions, and the function that runs it with calls of them.

    ``build`` returns that function; it is built in its first run, so that an edit of the plan need not wait for it.
    ``has_run`` says, in production, whether the first run is over.
    """

    live: LiveGraph
    switches: list[Switch]
    build: Callable[[], BoxedCall]
    has_run: bool = False

    def run(self, args: list[Any]) -> Any:
        """Run the cut graph; later calls go to it directly."""
        built = self.build()
        if self.live.implementation == self.run:
            self.live.implementation = built
        self.build = lambda: built
        return built(args)


@dataclass
class CutProgram:
    """Every live graph with its partitions cut out, and the artifacts that the partitions can be switched to.

    A new plan never traces again: it cuts the graphs of ``capture`` again, and only if regions changed their nodes. The
    cut is made when it is first used, so that many edits in a row cost one cut; the pieces of the last one are used
    again where they are the same.
    ``tried`` has the configs that each piece was compiled under, by fingerprint and artifact.
    """

    capture: TracedGraphs
    plan: Plan
    store: ArtifactStore = field(default_factory=ArtifactStore)
    assignment: Assignment = field(default_factory=lambda: Assignment({}))
    tried: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)
    _made: list[SwitchedGraph] | None = None
    _pieces: dict[PieceContent, Piece] = field(default_factory=dict)
    _picked: dict[Selector, Mapping[int, Instance]] = field(default_factory=dict)
    _cyclic: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    _selected: bool = True
    _numbering: PartitionNumbering = field(default_factory=PartitionNumbering)

    def __post_init__(self) -> None:
        """Cut the graphs that exist, and those that later calls make Dynamo trace."""
        self.capture.on_graph = self._add_live_graph
        self.cut(self.plan)

    def apply(self, plan: Plan) -> None:
        """Replace the plan; graphs are cut again only if it moves nodes between regions.

        Raises:
            SelectorError: a selector is malformed; nothing has changed.
        """
        before = self.plan
        moved = before.cut is not plan.cut or len(before.regions) != len(plan.regions)
        if moved or not all(map(Region.same_nodes, before.regions, plan.regions)):
            self.cut(plan)
        else:
            self.plan = plan
            self.apply_artifacts()

    def cut(self, plan: Plan) -> None:
        """Cut the graphs along ``plan`` at the next use. Nothing is traced, and artifacts are kept."""
        self.assignment, self.plan = assign(self.capture.graphs, plan, self._picked), plan
        if self._made is not None:
            self._pieces = {switch.piece.content: switch.piece for cut in self._made for switch in cut.switches}
        self._made = None
        for live in self.capture.live:
            live.implementation = live.eager

    @property
    def _switched_graphs(self) -> list[SwitchedGraph]:
        if self._made is None:
            # One thread cuts at a time. What another one generated meanwhile would be taken for this program's code.
            with compile_lock():
                if self._made is None:  # another thread may have cut them while this one waited
                    graphs = self.capture.graphs
                    self._cyclic, self._numbering = [], PartitionNumbering()
                    self._made = [self._cut_live_graph(live, graphs, self._pieces) for live in self.capture.live]
                    self._pieces = {}
                    self.adopt_facts()
                    self.select_regional(on=self._selected)
        return self._made

    @property
    def cyclic(self) -> list[tuple[str, frozenset[str]]]:
        """The regions that feed each other in both directions, by graph; some of them had to be split."""
        return self._cyclic if self._switched_graphs else []

    def _add_live_graph(self, frame: Frame, live: LiveGraph) -> None:
        """Cut a graph that a later call traced, and call ``on_new_graph``."""
        graphs = self.capture.graphs
        if frame not in self.capture.frames:
            graphs += [*frame.dynamo, *frame.records]
        self._picked.clear()  # there are more graphs to pick from
        self.plan = self.plan_for(graphs)
        self.assignment = assign(graphs, self.plan, self._picked)
        if all(cut.live is not live for cut in self._switched_graphs):
            self._switched_graphs.append(self._cut_live_graph(live, graphs))
        self.on_new_graph(frame, next(cut for cut in self._switched_graphs if cut.live is live))

    def plan_for(self, graphs: Sequence[Graph]) -> Plan:
        """Return the plan for these graphs."""
        del graphs
        return self.plan

    def adopt_facts(self) -> None:
        """Copy what is known about equal partitions of earlier cuts to those of a new cut."""

    def on_new_graph(self, frame: Frame, cut: SwitchedGraph) -> None:
        """Set how a graph that a later call traced runs, first and from then on."""
        raise NotImplementedError

    def _cut_live_graph(
        self, live: LiveGraph, graphs: Sequence[Graph], known_pieces: Mapping[PieceContent, Piece] | None = None
    ) -> SwitchedGraph:
        records = {graph.id: graph.by_name() for graph in graphs}
        order = [region.name for region in self.plan.regions]
        proposed = propose_cut(live.gm, live.id, records, self.assignment, order, self.plan.cut)
        self._cyclic += proposed.cyclic()
        with self.capture.generated.collected():
            pieces = pieces_of(proposed, known_pieces)
            switches = [
                Switch(piece, self._numbering.number(piece.claim, piece.graph_id), records.get(piece.graph_id))
                for piece in pieces
            ]

        def build() -> BoxedCall:
            # Without the lock: this may run on a thread of autograd, while the thread that waits for it holds the lock.
            with self.capture.generated.collected():
                return boxed(cut_graph(proposed, {switch.piece: self.function_of(switch) for switch in switches}))

        # A graph without partitions runs as captured, without overhead.
        return SwitchedGraph(live, switches, build if switches else lambda: live.eager)

    def function_of(self, switch: Switch) -> BoxedCall:
        """Return the function that the cut graph calls for a partition."""
        return switch.as_function()

    def cut_again(self, cut: SwitchedGraph) -> None:
        """Cut a graph again that was repaired after it was cut."""
        with compile_lock():
            new_cut = self._cut_live_graph(cut.live, self.capture.graphs)
        cut.build, cut.switches = new_cut.build, new_cut.switches

    def select_regional(self, *, on: bool) -> None:
        """Run the cut graphs, or with ``on=False`` the graphs as captured, which is the variant ``aot_eager``."""
        self._selected = on
        for cut in self._switched_graphs:
            cut.live.implementation = cut.run if on else cut.live.eager

    @property
    def switches(self) -> list[Switch]:
        """The switches of all partitions, graph by graph."""
        return [switch for cut in self._switched_graphs for switch in cut.switches]

    # ----------------------------------------------------------------------------------------------------- compiling

    def keys(self) -> dict[Switch, str]:
        """Return the key of the artifact that each partition needs under the current settings.

        Partitions of disabled regions, and those whose layouts are not known yet, need none.
        """
        settings = surroundings()
        keys = {switch: self.key_of(switch, settings) for switch in self.switches}
        return {switch: key for switch, key in keys.items() if key is not None}

    def key_of(self, switch: Switch, settings: str) -> str | None:
        """Return the key of the artifact that a partition needs under these ``settings``, None if it needs none."""
        if switch.inputs is None or not self.plan[switch.piece.claim.region].enabled:
            return None
        return artifact_key(switch.fingerprint(), self.config_for(switch), settings)

    def config_for(self, switch: Switch) -> dict[str, Any]:
        """Return the config that the plan requests for a partition."""
        piece = switch.piece
        return config_of(self.plan[piece.claim.region], Direction.of_graph(piece.graph_id))

    def apply_artifacts(self) -> None:
        """Switch every partition to its artifact under the plan if that has been compiled, else to eager code."""
        keys = self.keys()
        for switch in self.switches:
            artifact = self.store.artifacts.get(keys.get(switch, ""))
            if switch.chooses:
                continue
            if switch.inputs is None and switch.failure is None:
                # A graph that a call on other shapes traced: its layouts are recorded in its next call.
                switch.record()
            elif artifact is None:
                switch.use_eager()
            elif switch.artifact is not artifact and switch.refused is not artifact:
                switch.use(artifact)

    def stale(self, *, everything: bool = False) -> dict[str, Switch]:
        """Return the artifacts still to compile, by key, each with the first partition that needs it.

        With ``everything`` artifacts that exist are included.
        """
        keys = self.keys()
        to_compile: dict[str, Switch] = {}
        for switch in self.switches:
            key = keys.get(switch)
            failed = key in self.store.failures and key not in self.store.retried
            if key is not None and (everything or key not in self.store.artifacts) and not failed:
                to_compile.setdefault(key, switch)
        return to_compile

    def close(self) -> None:
        """Free the artifacts and all live objects. The record stays."""
        self._made, self._pieces = [], {}
        self.capture.close()
        self.store.generated.release()
        self.store = ArtifactStore()
