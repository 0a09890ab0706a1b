"""The captured graphs cut into the partitions of a plan; recorded inputs, later traces."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch

from regional_explorer.capture.live_graph import Frame, GraphState, LiveGraph, is_size_guard
from regional_explorer.capture.trace import Capture, TracedGraphs
from regional_explorer.compiler.artifact import KNOWN_COMPILES, Artifact, ArtifactStore
from regional_explorer.compiler.switch import REFUSED_INPUTS, Learned, Switch, SwitchMode
from regional_explorer.compiler.workpiece import WantedArtifact
from regional_explorer.errors import RegionCompileError, count
from regional_explorer.record.action import COMPILE, RETRACE
from regional_explorer.record.benchmark import CompileCost
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity, in_sentences
from regional_explorer.record.graph import Graph, GraphKind, Node, Role
from regional_explorer.record.grouping import Kept, grouped
from regional_explorer.record.partition import Partition, State
from regional_explorer.record.plan import Direction, Plan, Selector, Treatment, config_of
from regional_explorer.regions.cut import CutGraph, PartitionNumbering, Piece, PieceContent, built, cut_graph, pieces_of
from regional_explorer.regions.instances import Instance
from regional_explorer.regions.select import Assignment, assign
from regional_explorer.torch_api.compile_lock import compile_lock
from regional_explorer.torch_api.graphs import BoxedCall, can_share_dynamic_trace
from regional_explorer.torch_api.releasing import has_given_up
from regional_explorer.torch_api.torch_config import settings_text


@dataclass
class LiveCut:
    """A live graph cut along a plan, with the switches of its partitions.

    ``state`` is the one that calls run it in, by ``run``; None until calls are to run it through the switches, so that
    an edit of the plan does not wait for that function.
    """

    live: LiveGraph
    cut: CutGraph
    switches: list[Switch]
    state: GraphState = GraphState.CUT
    run: BoxedCall | None = None


@dataclass
class CutProgram:
    """Every live graph with its partitions cut out, and the artifacts that the partitions can be switched to.

    A new plan never traces again: it cuts the graphs of ``capture`` again, and only if regions changed their nodes. The
    cut is made when it is first used, so that many edits in a row cost one cut. Unchanged pieces of the last cut are
    used again. The live graphs ask ``main``, the first program of a capture, what to run: the cut graphs of its
    ``selected_program``, itself or one beside it, or, with None, the graphs as captured. All share the store. Graphs
    that are traced later are cut for ``main`` alone.
    ``checked`` has what checks of the cut found, ``tried_configs`` the configs that each piece was compiled under, by
    fingerprint and artifact.
    """

    capture: TracedGraphs
    plan: Plan
    store: ArtifactStore = field(default_factory=ArtifactStore)
    assignment: Assignment = field(default_factory=lambda: Assignment({}))
    tried_configs: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)
    main: Self | None = None
    selected_program: CutProgram | None = field(default=None, init=False, repr=False, compare=False)
    checked: Kept[list[Diagnostic]] = field(default_factory=Kept, init=False, repr=False, compare=False)
    _frames: list[Frame] = field(default_factory=list)
    _made: dict[LiveGraph, LiveCut] | None = None
    _pieces: dict[PieceContent, Piece] = field(default_factory=dict)
    _picked: dict[Selector, Mapping[int, Instance]] = field(default_factory=dict)
    _cyclic: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    _numbering: PartitionNumbering = field(default_factory=PartitionNumbering)

    def __post_init__(self) -> None:
        """Cut the captured graphs, and let graphs that Dynamo traces in later calls be cut too."""
        if self.main is None:
            self.capture.program = self
            self.selected_program = self
        self.cut(self.plan)

    def apply(self, plan: Plan) -> None:
        """Replace the plan; graphs are cut again only if it moves nodes between regions.

        Raises:
            SelectorError: a selector is malformed; nothing has changed.
        """
        if self.plan.cuts_the_same(plan):
            self.plan = plan
            self.apply_artifacts()
        else:
            self.cut(plan)

    def cut(self, plan: Plan, new: Frame | None = None) -> None:
        """Cut the graphs, and those of a ``new`` frame, along ``plan`` at the next use.

        Nothing is traced, and artifacts are kept.
        """
        self._assign(self.capture.current_frames(new), plan)
        if self._made is not None:
            self._pieces = {switch.piece.content: switch.piece for switch in self.switches}
        self._made = None
        self.capture.unsettle(self.main or self)

    def _assign(self, frames: list[Frame], plan: Plan) -> None:
        """Assign the ops of ``frames`` to the regions of ``plan``; a malformed selector changes nothing."""
        if [frame.index for frame in self._frames] != [frame.index for frame in frames]:
            self._picked.clear()  # there are other graphs to pick from
        pending = [graph for frame in frames for graph in frame.pending]
        self.assignment = assign(_graphs_of(frames), plan, self._picked, pending)
        self._frames, self.plan = frames, plan

    @property
    def _graphs(self) -> list[Graph]:
        return _graphs_of(self._frames)

    def follow_trace(self) -> None:
        """Cut again if calls run other frames than those that were cut: settings or modes have changed."""
        if [frame.index for frame in self._frames] != [frame.index for frame in self.capture.current_frames()]:
            self.cut(self.plan)

    @property
    def cuts(self) -> dict[LiveGraph, LiveCut]:
        """The graphs cut along the plan; it cuts them if an edit has changed the cut."""
        if self._made is None:
            # One thread cuts at a time: code that another thread generates meanwhile would be recorded as this
            # program's.
            with compile_lock():
                if self._made is None:  # another thread may have cut them while this one waited
                    self._cyclic, self._numbering = [], PartitionNumbering()
                    self._made = {live: self._cut_live_graph(live) for frame in self._frames for live in frame.live}
                    self._pieces = {}
                    self.adopt_learned()
        return self._made

    def settle(self, live: LiveGraph) -> None:
        """Let a graph run as the selected program cut it, or as captured; graphs are cut after an edit of the plan."""
        program = self.selected_program
        if program is None:
            live.enter(GraphState.CAPTURED, live.eager)
            return
        if live not in (self._made or ()):
            self.follow_trace()
        cut = program.cuts.get(live) or self.cuts.get(live)
        if cut is None:
            return  # It is of another state of settings and modes: it runs as captured, and asks again.
        if not cut.switches:
            live.enter(GraphState.CAPTURED, live.eager)
            return
        cut.run = cut.run or self.build(cut)
        live.enter(cut.state, cut.run)

    def build(self, cut: LiveCut) -> BoxedCall:
        """Return the function that runs a graph through the switches of its partitions."""
        # Without the lock: this may run on a thread of autograd, while the thread that waits for it holds the lock.
        with self.capture.generated.collecting():
            return built(cut.cut, {switch.piece: self.function_of(switch) for switch in cut.switches})

    @property
    def cyclic(self) -> list[tuple[str, frozenset[str]]]:
        """The regions that feed each other in both directions, by graph; some instances had to be split."""
        return self._cyclic if self.cuts else []

    def add_graph(self, frame: Frame, live: LiveGraph) -> None:
        """Cut a graph that a later call traced, and call ``on_new_graph``."""
        frames, cut_before = self.capture.current_frames(frame), {each.index for each in self._frames}
        self._picked.clear()  # the graph may be a new one of a known frame
        if cut_before <= {each.index for each in frames}:
            self._assign(frames, self.plan_for(_graphs_of(frames)))
        else:  # it replaces frames
            self.cut(self.plan, frame)
        if live not in self.cuts:
            self.cuts[live] = self._cut_live_graph(live)
        live.unsettle(self)
        self.on_new_graph(frame, self.cuts[live])

    def plan_for(self, graphs: Sequence[Graph]) -> Plan:  # noqa: ARG002 - production reads the marks of these graphs
        """Return the plan for ``graphs``."""
        return self.plan

    def adopt_learned(self) -> None:
        """Give the partitions of a new cut what equal partitions of earlier cuts have learned."""

    def on_new_graph(self, frame: Frame, cut: LiveCut) -> None:
        """Prepare the first run of a graph that a later call traced."""
        raise NotImplementedError

    def _cut_live_graph(self, live: LiveGraph) -> LiveCut:
        records = {graph.id: graph.by_name for graph in self._graphs}
        order = [region.name for region in self.plan.regions]
        cut = cut_graph(live.gm, live.id, records, self.assignment, order, self.plan.cut)
        self._cyclic += [(graph.id, regions) for graph in cut.graphs() for regions in graph.cyclic]
        with self.capture.generated.collecting():
            switches = [
                Switch(
                    piece,
                    self._numbering.number(piece.claim, piece.graph_id),
                    records.get(piece.graph_id),
                    # A body is called by the graph around it; a backward gets what hooks may have changed.
                    are_inputs_guarded=piece.graph_id == live.id and live.kind is not GraphKind.BACKWARD,
                )
                for piece in pieces_of(cut, self._pieces, self.capture.tracing.prepared(live.kind))
            ]
        return LiveCut(live, cut, switches)

    def function_of(self, switch: Switch) -> BoxedCall:
        """Return the function that the cut graph calls for a partition."""
        return switch.call

    def cut_again(self, live: LiveGraph) -> LiveCut:
        """Cut a graph again after a repair."""
        with compile_lock():
            self._numbering.restart_graphs()
            self.cuts[live] = self._cut_live_graph(live)
            self._cyclic = list(dict.fromkeys(self._cyclic))
        return self.cuts[live]

    def select_regional(self, *, on: bool) -> None:
        """Run the cut graphs, or with ``on=False`` the graphs as captured, which is the variant ``aot_eager``."""
        (self.main or self).select(self if on else None)

    def select(self, program: CutProgram | None) -> None:
        """Run the cut graphs of ``program``, of this one or one beside it, or with None the graphs as captured."""
        self.selected_program = program
        self.capture.unsettle()
        for live in list((program or self).cuts):
            live.settled()  # now: no call that is timed waits for it

    @contextlib.contextmanager
    def selected(self) -> Iterator[None]:
        """Context manager: let calls run the cut graphs of this program, and those of the main program afterwards."""
        main = self.main or self
        before = main.selected_program
        self.select_regional(on=True)
        try:
            yield
        finally:
            main.select(before)

    @property
    def switches(self) -> list[Switch]:
        """The switches of all partitions, graph by graph."""
        return [switch for cut in list(self.cuts.values()) for switch in cut.switches]

    # ----------------------------------------------------------------------------------------------------- compiling

    def keys(self, settings: str | None = None) -> dict[Switch, str]:
        """Return the key of the artifact that each partition needs under ``settings``, by default the current ones.

        Partitions of disabled regions, and those whose layouts are not known yet, need none.
        """
        settings = settings_text() if settings is None else settings
        keys = {switch: self.key_of(switch, settings) for switch in self.switches}
        return {switch: key for switch, key in keys.items() if key is not None}

    def key_of(self, switch: Switch, settings: str) -> str | None:
        """Return the key of the artifact that a partition needs under ``settings``; None if it needs no artifact."""
        if switch.workpiece is None or not self.plan[switch.piece.claim.region].enabled:
            return None
        return self.wanted_under(switch, self.config_for(switch), settings).key

    def config_for(self, switch: Switch) -> dict[str, Any]:
        """Return the config that the plan requests for a partition."""
        piece = switch.piece
        return config_of(self.plan[piece.claim.region], Direction.of_graph(piece.graph_id))

    def treatment_for(self, switch: Switch) -> Treatment:
        """Return the treatment that the plan requests for a partition."""
        treatment = self.plan[switch.piece.claim.region].treatment
        return treatment.of(Direction.of_graph(switch.piece.graph_id)) if treatment.passes else treatment

    def apply_artifacts(self) -> None:
        """Switch every partition to its artifact under the plan if the artifact exists, else to eager code."""
        keys = self.keys()
        for switch in self.switches:
            artifact = self.store.artifacts.get(keys.get(switch, ""))
            if switch.mode is SwitchMode.CHOOSING:
                continue
            if switch.workpiece is None and switch.failure is None:
                # A call on other shapes traced this graph: its layouts are recorded in its next call.
                switch.record()
            elif artifact is None or switch.refused is artifact:
                switch.use_eager()
            elif switch.artifact is not artifact:
                switch.use(artifact)
        if self.main is not None:  # the main program may lack artifacts that were compiled here
            self.main.apply_artifacts()

    def wanted(self, key: str, switch: Switch) -> WantedArtifact:
        """Return the ingredients of the artifact that a partition needs under the plan; its key is ``key``."""
        return WantedArtifact(key, switch.known_workpiece, self.config_for(switch), self.treatment_for(switch))

    def wanted_under(self, switch: Switch, config: Mapping[str, Any], settings: str) -> WantedArtifact:
        """Return the ingredients of the artifact of a partition under another config than that of the plan."""
        return switch.known_workpiece.wanted(config, settings, self.treatment_for(switch))

    def stale(self, *, everything: bool = False) -> dict[str, Switch]:
        """Return, by key, the first switch that needs each artifact still to compile.

        ``everything`` includes artifacts that exist.
        """
        to_compile: dict[str, Switch] = {}
        for switch, key in self.keys().items():
            failed = key in self.store.failures and key not in self.store.retried
            if (everything or key not in self.store.artifacts) and not failed:
                to_compile.setdefault(key, switch)
        return to_compile

    def close(self) -> None:
        """Free the artifacts and all live objects. The record stays."""
        self._made, self._pieces = {}, {}
        if self.main is not None:
            return
        self.capture.close()
        self.store.generated.release()
        self.store = ArtifactStore()


_CACHE_ENTRY = re.compile(r"^\d+/\d+: ")
_OBSERVED_VALUES = re.compile(r"[.,]? *\b(expected|actual)\b.*| == .*?(?= +#|$)")


def _graphs_of(frames: Sequence[Frame]) -> list[Graph]:
    return [graph for frame in frames for graph in frame.graphs]


def frame_inputs(frame: Frame) -> str:
    """Return the dtypes and shapes of the first few inputs of a frame, as text."""
    nodes = [node for node in frame.dynamo[0].nodes if node.role is Role.INPUT]
    return ", ".join(str(value) for node in nodes[:4] for value in node.values) or "no tensor as input"


def stacklevel_of_caller() -> int:
    """Return the stacklevel of the user's line: the first outside torch, this package and the stdlib."""
    inner = tuple(
        f"{Path(file).parent}{os.sep}" for file in (torch.__file__, Path(__file__).parent, contextlib.__file__)
    )
    files = [frame.filename for frame in inspect.stack(0)]
    generated = "<eval_with_key>"  # the code of an fx graph
    return next((level for level, file in enumerate(files) if not file.startswith((*inner, generated))), 1)


def _warn_of_stale(switch: Switch, why: str) -> None:
    region = switch.piece.claim.region
    warnings.warn(
        f"Region {region!r} runs eagerly until the next ex.compile(): {why}.", stacklevel=stacklevel_of_caller()
    )


def recompile_diagnostics(program: Program, partitions: Sequence[Partition]) -> list[Diagnostic]:
    """Return one ``recompiled`` diagnostic per region and failed guard, without a region for graphs without regions.

    The first one is about Dynamo's limit, if it has been reached.
    """
    grouped_traces = grouped(
        ((region, _failed_guards(frame.reason)), (frame, node))
        for frame in program.capture.current_frames()
        if frame.late
        for region, node in _regions_in_frame(program, frame).items()
    )
    stale = [partition for partition in partitions if partition.state is State.STALE]
    frames = program.capture.frames
    at_limit = grouped_traces and not program.capture.closed and has_given_up(program.capture.run, wait=False)
    return [
        *([recompile_limit_diagnostic(frames)] if at_limit else []),
        *(_recompiled_diagnostic(region, traces, stale, frames) for (region, _), traces in grouped_traces.items()),
    ]


def recompile_limit_diagnostic(frames: Sequence[Frame]) -> Diagnostic:
    """Return a ``recompiled`` diagnostic: Dynamo reached its recompile limit for the call, after ``frames``."""
    fails = "torch._dynamo.config.fail_on_recompile_limit_hit = True makes such a call an error."
    return DiagnosticCode.RECOMPILED.finding(
        "Dynamo has traced the call as often as torch._dynamo.config.recompile_limit allows",
        ": a call that needs yet another trace runs as plain Python, without any region.",
        remedy=" ".join(filter(None, (dynamic_remedy(frames[-1], frames), fails))),
        severity=Severity.WARNING,
        upstream="",
    )


def _regions_in_frame(program: CutProgram, frame: Frame) -> dict[str | None, Node | None]:
    """Return the regions in a frame, each with the first of its ops."""
    first_ops: dict[str | None, Node | None] = {}
    for graph in frame.dynamo:
        for node in graph.ops:
            if (claim := program.assignment.claim(graph.id, node.name)) is not None:
                first_ops.setdefault(claim.region, node)
    return first_ops or {None: next(iter(frame.dynamo[0].ops), None)}


def _failed_guards(reason: str) -> frozenset[str]:
    """Return the guards that failed, without the sizes, values and cache entries that differ from call to call."""
    lines = (_CACHE_ENTRY.sub("", line.strip()) for line in reason.splitlines())
    return frozenset(_OBSERVED_VALUES.sub("", line).strip() for line in lines if line)


def _recompiled_diagnostic(
    region: str | None, traces: list[tuple[Frame, Node | None]], stale: Sequence[Partition], all_frames: Sequence[Frame]
) -> Diagnostic:
    frames = [frame for frame, _ in traces]
    traced = "the call" if region is None else f"region {region!r}"
    inputs, graphs = frame_inputs(frames[-1]), ", ".join(str(frame.index) for frame in frames)
    if len(frames) == 1:
        text = f"A later call made Dynamo trace {traced} again (graph {graphs}: {inputs})"
    else:
        text = f"Later calls made Dynamo trace {traced} again {len(frames)} times (graphs {graphs}; the last: {inputs})"
    late = {graph.id for frame in frames for graph in frame.records}
    eager = sum(partition.region == region and partition.graph in late for partition in stale)
    runs_eagerly = ("Until the next ", COMPILE, f", {count(eager, 'new partition')} will run eagerly.") if eager else ""
    drops_it = (RETRACE, " drops the earlier trace, which no call runs any more.") if frames[-1].forgotten else ""
    return DiagnosticCode.RECOMPILED.finding(
        text,
        f"{frames[-1].retrace_clause}.",
        region=region,
        graph=frames[0].dynamo[0].id,
        where=(node for _, node in traces),
        remedy=in_sentences(runs_eagerly, drops_it, dynamic_remedy(frames[-1], all_frames)),
    )


def dynamic_remedy(frame: Frame, frames: Sequence[Frame]) -> str:
    """Return a sentence on whether ``dynamic=True`` would have avoided a frame's trace; empty if no size caused it.

    Dynamo traces a size that has changed as dynamic, which shows the sizes that a trace with ``dynamic=True`` serves.
    """
    if not is_size_guard(frame.reason):
        return ""
    all_guards = (other.size_guards for other in frames)
    alike = [guards for guards in all_guards if guards.are_of_the_same_call(frame.size_guards)]
    dynamic = [guards for guards in alike if guards.are_dynamic]
    if not all(can_share_dynamic_trace(alike[0].seen, other.seen) for other in alike):
        return (
            "dynamic=True gives no fewer traces: sizes that are equal in the first call stay equal in its trace, and "
            "sizes 0 and 1 stay fixed."
        )
    if not dynamic:
        return "Whether one trace with dynamic=True would serve these sizes is not known: none had dynamic sizes."
    if not any(all(guards.hold_for(other.seen) for other in alike) for guards in dynamic):
        return (
            "dynamic=True gives no fewer traces: sizes were dynamic already, and the program does something else for "
            "some of them."
        )
    return "With dynamic=True one trace serves all these sizes."


@dataclass
class Program(CutProgram):
    """The cut graphs of a captured call.

    ``_recorded_state`` are the global settings and the modes under which layouts were last recorded, empty before.
    ``_learned`` has what was learned in each state of every piece that was ever cut: a piece that an edit does not
    change, or that undo brings back, stays compiled. ``toolchain`` is the cost of starting the toolchain, which is not
    charged to any region; None before the first compile.
    """

    capture: Capture
    store: ArtifactStore = field(default_factory=lambda: ArtifactStore(known=KNOWN_COMPILES))
    toolchain: CompileCost | None = None
    _recorded_state: tuple[Any, ...] = ()
    _has_unknown_layouts: bool = False
    _learned: dict[tuple[tuple[Any, ...], PieceContent], Learned] = field(default_factory=dict)
    recording: bool = False

    def cut(self, plan: Plan, new: Frame | None = None) -> None:
        """Cut the graphs along ``plan`` at the next use; facts learned about the pieces are kept."""
        self._learned = self.learned
        super().cut(plan, new)

    @property
    def learned(self) -> dict[tuple[tuple[Any, ...], PieceContent], Learned]:
        """What was learned of every piece that was ever cut, by the state of torch and of the modules."""
        switches = self.switches if self._made is not None else ()
        state = self._recorded_state
        return self._learned | {
            (state, switch.piece.content): facts for switch in switches if (facts := switch.learned)
        }

    def learn_from(self, other: Program) -> None:
        """Take over, for the next cut, what another program of the same graphs has learned."""
        self._learned = other.learned | self._learned

    def key_of(self, switch: Switch, settings: str) -> str | None:
        """Return the key of the artifact that a partition needs; None also if its frozen weights have changed."""
        is_current = switch.workpiece is None or switch.workpiece.is_current
        return super().key_of(switch, settings) if is_current else None

    def adopt_learned(self) -> None:
        """Copy learned facts to pieces that were cut before; the next recorded run learns about the other pieces."""
        state = settings_text(), self.capture.state
        for switch in self.switches:
            switch.on_stale = _warn_of_stale
            if learned := self._learned.get((state, switch.piece.content)):
                switch.adopt(learned)
            else:
                self._has_unknown_layouts = True
        self.apply_artifacts()

    def on_new_graph(self, frame: Frame, cut: LiveCut) -> None:
        """Record the partitions of a later call's graph, then run them eagerly, and warn at the call's line."""
        for switch in cut.switches:
            switch.on_stale = _warn_of_stale
            switch.record()
        if cut.switches and not self.recording:
            partitions = count(len(cut.switches), f"new {cut.live.kind} partition")
            warnings.warn(
                f"The call was traced again ({frame_inputs(frame)}){frame.retrace_clause}. "
                f"Eager until the next ex.compile(): {partitions}.",
                stacklevel=stacklevel_of_caller(),
            )
        self._has_unknown_layouts = True  # of the backward, if the call never runs it

    def record_layouts(self) -> None:
        """Run the call once, eagerly, and record the layouts of the inputs and outputs of every partition.

        The run is repeated when global settings or the modes of modules have changed: Dynamo guards on these, and
        traces again; then the new graphs are to be compiled. It is repeated too after an edit of the plan, and always
        if weights are constants, because only a run shows the call's present weights.
        """
        self.follow_trace()
        state = settings_text(), self.capture.state
        if not self.switches:  # this cuts the graphs, which may find pieces of unknown layouts
            return
        if self._recorded_state == state and not self._has_unknown_layouts and not self.capture.tracing.frozen:
            return
        graphs_before = self.cuts
        for switch in self.switches:
            switch.record()
        try:
            with self.selected():
                self._run_announced()
            if self._made is graphs_before:
                for switch in self.switches:
                    switch.assume_if_unreached()
                self._recorded_state, self._has_unknown_layouts = state, False
        finally:
            self.apply_artifacts()
        if self._made is not graphs_before:  # edited meanwhile: the graphs may have run before they were cut again
            self.record_layouts()

    def trace_present_state(self) -> None:
        """Run the call once if its trace is of other settings or modes: Dynamo traces again if it guards on them."""
        if any(frame.state != self.capture.state for frame in self.capture.current_frames()):
            self._run_announced()
            self.follow_trace()

    def _run_announced(self) -> None:
        """Run the call once; that it is traced again is no surprise, and gives no warning."""
        main = self.main or self
        main.recording = True
        try:
            with self.capture.call.restoring():
                self.capture.call.run(self.capture.run)
        finally:
            main.recording = False

    def stale(self, *, everything: bool = False) -> dict[str, Switch]:
        """Record the layouts, then return the artifacts still to compile."""
        self.record_layouts()
        return super().stale(everything=everything)

    def beside(self, plan: Plan) -> Program:
        """Return a program of another plan on the same graphs and artifacts; nothing runs it yet."""
        return replace(self, plan=plan, main=self.main or self, _learned=dict(self._learned))

    @contextlib.contextmanager
    def using_twins(self, switches: Sequence[Switch], config: Mapping[str, Any]) -> Iterator[None]:
        """Context manager: replace the artifacts of ``switches`` by twins, compiled under their config plus ``config``.

        Raises:
            RegionCompileError: a twin does not compile, or refused its inputs.
        """
        replaced = [(switch, switch.artifact) for switch in switches if switch.artifact is not None]
        try:
            for switch, _ in replaced:
                switch.use(self.twin(switch, config))
            yield
            for switch, _ in replaced:
                if switch.artifact is None:  # it refused its inputs: what ran was the eager piece
                    raise RegionCompileError(switch.refusal or REFUSED_INPUTS)
        finally:
            for switch, artifact in replaced:
                switch.use(artifact)

    def twin(self, switch: Switch, config: Mapping[str, Any]) -> Artifact:
        """Return the artifact of a partition under its region's config with ``config`` on top; compile it if needed."""
        merged = {**self.config_for(switch), **config}
        return self.store.artifact(self.wanted_under(switch, merged, settings_text()))

    def revision(self) -> tuple[Any, ...]:
        """Return a value that changes whenever a new record of this program would differ."""
        switches = [switch.revision() for switch in self.switches]
        compiles = [(key, artifact.made) for key, artifact in list(self.store.artifacts.items())]
        store = (*compiles, *self.store.failures, sum(map(len, self.tried_configs.values())))
        return self.plan, settings_text(), [graph.id for graph in self._graphs], store, switches

    def take_over(self, earlier: Program) -> None:
        """Take the artifacts over from the program of an earlier trace, which keeps none."""
        self.store, earlier.store = earlier.store, ArtifactStore()
        self.tried_configs, self.toolchain = earlier.tried_configs, earlier.toolchain

    def close(self) -> None:
        """Free the artifacts and all live objects. The record stays."""
        self._learned.clear()
        super().close()
