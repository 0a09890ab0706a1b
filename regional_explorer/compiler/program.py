"""The captured call, cut along a plan, with a switch at every partition."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regional_explorer.capture.live_graph import Frame, LiveGraph
from regional_explorer.capture.trace import Capture
from regional_explorer.compiler.artifacts.artifact import Artifact, ArtifactStore
from regional_explorer.compiler.artifacts.fingerprint import artifact_key, surroundings
from regional_explorer.compiler.recompile_warning import warn_of_trace
from regional_explorer.compiler.switch import Switch
from regional_explorer.record.graph import Graph
from regional_explorer.record.region import Direction, Plan, Region, config_of
from regional_explorer.regions.cutting.cut import Piece, cut_graph, propose_cut
from regional_explorer.regions.cutting.partition_ids import PartitionNumbering
from regional_explorer.regions.select import Assignment, assign
from regional_explorer.torch_api import BoxedCall, boxed, compile_lock


@dataclass
class _Cut:
    live: LiveGraph
    run: BoxedCall
    switches: list[Switch]


@dataclass
class Program:
    """What runs: every live graph with its partitions cut out, and the artifacts they may be switched to.

    ``capture`` stays untouched by plans: a new plan only cuts again, and only when regions changed their nodes. Cutting
    waits until somebody looks, so that many edits in a row cost one cut.
    ``tried`` has the configs that each piece was compiled under, by fingerprint and artifact.
    ``compiling`` is held by the one thread that compiles what is stale.
    ``_recorded`` are the surroundings that layouts were last recorded in, nothing before.
    """

    capture: Capture
    plan: Plan
    store: ArtifactStore = field(default_factory=ArtifactStore)
    assignment: Assignment = field(default_factory=lambda: Assignment({}))
    tried: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)
    compiling: threading.RLock = field(default_factory=threading.RLock)
    _made: list[_Cut] | None = None
    _numbering: PartitionNumbering = field(default_factory=PartitionNumbering)
    _cyclic: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    _selected: bool = True
    _recorded: str = ""
    _recording: bool = False

    def __post_init__(self) -> None:
        """Cut what is there, and whatever later calls make Dynamo trace."""
        self.capture.on_graph = self._add
        self.cut(self.plan)

    def apply(self, plan: Plan) -> None:
        """Go over to ``plan``; graphs are cut again only if it moves nodes between regions.

        Raises:
            SelectorError: a selector is malformed; all stays as it was.
        """
        before = self.plan
        moved = before.cut is not plan.cut or len(before.regions) != len(plan.regions)
        if moved or not all(map(Region.same_nodes, before.regions, plan.regions)):
            self.cut(plan)
        else:
            self.plan = plan
            self.settle()

    def cut(self, plan: Plan) -> None:
        """Let the graphs be cut along ``plan`` when next looked at. Nothing is traced, and artifacts are kept."""
        self.assignment, self.plan = assign(self.capture.graphs, plan), plan
        self._recorded = ""
        self._made = None
        for live in self.capture.live:
            live.implementation = live.eager

    @property
    def _cuts(self) -> list[_Cut]:
        if self._made is None:
            # New nodes take over what a trace in another thread is at (fx.traceback.current_meta is one for all).
            with compile_lock():
                graphs = self.capture.graphs
                self._cyclic, self._numbering = [], PartitionNumbering()
                self._made = [self._cut(live, graphs) for live in self.capture.live]
            self.select_regional(on=self._selected)
        return self._made

    @property
    def cyclic(self) -> list[tuple[str, frozenset[str]]]:
        """The regions that feed each other both ways, by graph; some of them had to be split."""
        return self._cyclic if self._cuts else []

    def _add(self, frame: Frame, live: LiveGraph) -> None:
        """Cut a graph that a later call brought; its partitions run eagerly until the next compile."""
        graphs = self.capture.graphs
        if frame not in self.capture.frames:
            graphs += [*frame.dynamo, *frame.records]
        self.assignment = assign(graphs, self.plan)
        if all(cut.live is not live for cut in self._cuts):
            self._cuts.append(self._cut(live, graphs))
        switches = next(cut.switches for cut in self._cuts if cut.live is live)
        for switch in switches:
            switch.record()
        if switches and not self._recording:
            warn_of_trace(frame, f"{len(switches)} new {live.kind} partition{'s' if len(switches) > 1 else ''}")
        self.select_regional(on=self._selected)

    def _cut(self, live: LiveGraph, graphs: Sequence[Graph]) -> _Cut:
        switches: list[Switch] = []

        def call_for(piece: Piece) -> BoxedCall:
            switches.append(Switch(piece, self._numbering.number(piece.claim, piece.graph_id)))
            return switches[-1].as_function()

        records = {graph.id: graph.by_name() for graph in graphs}
        order = [region.name for region in self.plan.regions]
        with self.capture.generated.collected():
            proposed = propose_cut(live.gm, live.id, records, self.assignment, order, self.plan.cut)
            self._cyclic += proposed.cyclic()
            made = cut_graph(proposed, call_for)
            # What has no partition runs as captured, so that there is nothing to pay for.
            return _Cut(live, boxed(made.gm) if switches else live.eager, switches)

    def select_regional(self, *, on: bool) -> None:
        """Run the cut graphs, or with ``on=False`` the graphs as captured: that is ``aot_eager``."""
        self._selected = on
        for cut in self._cuts:
            cut.live.implementation = cut.run if on else cut.live.eager

    @property
    def switches(self) -> list[Switch]:
        """The switches of all partitions, graph by graph."""
        return [switch for cut in self._cuts for switch in cut.switches]

    # ----------------------------------------------------------------------------------------------------- compiling

    def record_layouts(self) -> None:
        """Run the call once, eagerly, so that every partition it comes by knows what flows through it.

        Again where what surrounds it has changed: Dynamo guards on the number of threads and the like and traces anew,
        and it is those graphs that have to be compiled then.
        """
        here = surroundings()
        if self._recorded == here or not self.switches:
            return
        selected = self._selected
        for switch in self.switches:
            switch.record()
        self._recording = True
        try:
            self.select_regional(on=True)
            with self.capture.call.kept():
                outputs = self.capture.call.forward(self.capture.run)
                if self.capture.call.grad:
                    self.capture.call.backward(outputs)
            for switch in self.switches:
                if switch.inputs is None and switch.failure is None:
                    switch.assume()
            self._recorded = here
        finally:
            self._recording = False
            self.settle()
            self.select_regional(on=selected)

    def keys(self) -> dict[Switch, str]:
        """Return the keys of the artifacts that partitions ask for here and now.

        A partition of a disabled region asks for none, nor does one whose layouts are not known yet.
        """
        here = surroundings()
        enabled = {region.name for region in self.plan.regions if region.enabled}
        return {
            switch: artifact_key(switch.fingerprint(), self.config_for(switch), here)
            for switch in self.switches
            if switch.inputs is not None and switch.piece.claim.region in enabled
        }

    def config_for(self, switch: Switch) -> dict[str, Any]:
        """Return the config that the plan asks for at a partition."""
        piece = switch.piece
        return config_of(self.plan[piece.claim.region], Direction.of_graph(piece.graph_id))

    def settle(self) -> None:
        """Switch every partition to what the plan asks for, as far as it has been compiled; compiles nothing."""
        keys = self.keys()
        for switch in self.switches:
            artifact = self.store.artifacts.get(keys.get(switch, ""))
            if switch.inputs is None and switch.failure is None:
                # A graph that a call on other shapes brought: its next call tells what flows through it.
                switch.record()
            elif artifact is None:
                switch.use_eager()
            elif switch.artifact is not artifact and switch.refused is not artifact:
                switch.use(artifact)

    def stale(self) -> dict[str, Switch]:
        """Return the artifacts still to compile, by key, each with the first partition that asks for it."""
        self.record_layouts()
        keys = self.keys()
        wanted: dict[str, Switch] = {}
        for switch in self.switches:
            key = keys.get(switch)
            failed = key in self.store.failures and key not in self.store.retried
            if key is not None and key not in self.store.artifacts and not failed:
                wanted.setdefault(key, switch)
        return wanted

    @contextlib.contextmanager
    def drawing_as_eager(self) -> Iterator[None]:
        """A block in which compiled pieces draw the random numbers that eager draws, so that results can be compared.

        Inductor has a generator of its own; a twin of each piece that draws is compiled under ``fallback_random``.

        Raises:
            RegionCompileError: a twin does not compile.
        """
        try:
            for switch in self.switches:
                if switch.artifact is not None and switch.draws:
                    switch.use(self.twin(switch, {"fallback_random": True}))
            yield
        finally:
            self.settle()

    def twin(self, switch: Switch, config: Mapping[str, Any]) -> Artifact:
        """Return the artifact of a partition under ``config`` on top of its region's, compiled where it has none yet.

        Raises:
            RegionCompileError: it does not compile.
        """
        assert switch.inputs is not None  # noqa: S101 - whoever has an artifact has had its layouts recorded
        requested = {**self.config_for(switch), **config}
        key = artifact_key(switch.fingerprint(), requested, surroundings())
        return self.store.artifacts.get(key) or self.store.compile(key, switch.piece, switch.inputs, requested)

    def revision(self) -> tuple[Any, ...]:
        """Return a value that is another one whenever the record of this program would be."""
        switches = [(switch.inputs, switch.refusal) for switch in self.switches]
        store = (*self.store.artifacts, "", *self.store.failures)
        return self.plan, surroundings(), len(self.capture.graphs), store, switches

    def close(self) -> None:
        """Let go of the artifacts and of everything live. The record stays."""
        self._made = []
        self.capture.close()
        self.store.generated.release()
        self.store = ArtifactStore()
