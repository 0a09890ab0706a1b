"""The graphs of a compiled function, cut along its plan; compiled when they first run, or eager without a compiler."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from regional_explorer.capture.live_graph import Frame
from regional_explorer.capture.restore.random_state import RandomState
from regional_explorer.compiler.artifacts.artifact import Artifact
from regional_explorer.compiler.artifacts.fingerprint import surroundings
from regional_explorer.compiler.compilation import compile_stale
from regional_explorer.compiler.config.validate import source_plan
from regional_explorer.compiler.cut_program import CutProgram, SwitchedGraph
from regional_explorer.compiler.partition_records import compile_failures, partitions
from regional_explorer.compiler.switch import Switch
from regional_explorer.errors import CaptureError, NoCompilerError, RegionalExplorerError
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.graph import Graph
from regional_explorer.record.plan import Plan
from regional_explorer.record.region import Direction
from regional_explorer.regions.cutting.dependencies import written_inputs
from regional_explorer.torch_api import NO_COMPILER, BoxedCall, only_computes

if TYPE_CHECKING:
    from torch import fx


@dataclass(frozen=True)
class GraphCompile:
    """The compile of a graph's partitions: when it began, in seconds since the epoch, and how long calls waited for it.

    ``artifacts`` is how many were compiled or loaded for it; the others were there already.
    """

    graph: str
    began: float
    seconds: float
    artifacts: int


@dataclass
class PlannedProgram(CutProgram):
    """The cut graphs of a compiled function.

    ``report`` is called with a diagnostic of whatever does not run as planned. With ``from_source`` the plan is made of
    the marks in the source, and grows with the graphs. ``_compiling`` is held by the one thread that compiles.
    With ``ranges`` each call of a partition is a range of torch's profiler.
    ``compiles`` has the compile of each graph that has run, by its id.
    """

    report: Callable[[Diagnostic], None] = lambda _diagnostic: None
    from_source: bool = False
    ranges: bool = False
    source_diagnostics: Sequence[Diagnostic] = ()
    compiles: dict[str, GraphCompile] = field(default_factory=dict)
    _first_keys: WeakKeyDictionary[Switch, str] = field(default_factory=WeakKeyDictionary)
    _compiling: threading.RLock = field(default_factory=threading.RLock)

    def plan_for(self, graphs: Sequence[Graph]) -> Plan:
        """Return the plan, or the regions marked in the source of these graphs."""
        if self.from_source:
            plan, self.source_diagnostics = source_plan(graphs)
            return plan
        return self.plan

    def function_of(self, switch: Switch) -> BoxedCall:
        """Return what the cut graph calls for a partition: with ``ranges``, in a range named by its region."""
        call = switch.as_function()
        if not self.ranges:
            return call
        name = f"{switch.piece.claim.region} ({Direction.of_graph(switch.piece.graph_id)})"

        def in_range(args: list[Any]) -> Any:
            with torch.profiler.record_function(name):
                return call(args)

        return in_range

    def on_new_graph(self, frame: Frame, cut: SwitchedGraph) -> None:
        """Compile the partitions of a graph in its first run."""
        self._compile_when_first_run(cut)
        cut.live.implementation = self._compiling_first_run(frame, cut) if cut.switches else cut.run

    def _compile_when_first_run(self, cut: SwitchedGraph) -> None:
        settings = functools.cache(surroundings)  # as they are when the graph first runs
        for switch in cut.switches:
            switch.on_eager = functools.partial(self._report_eager, switch)
            switch.choose(functools.partial(self._artifact_for_layouts, cut, switch, settings))

    def keys(self) -> dict[Switch, str]:
        """Return the keys of the artifacts of partitions that have run.

        A partition keeps the key of its first run: if a global setting that matters changes, Dynamo traces again.
        """
        return {switch: self._first_keys.setdefault(switch, key) for switch, key in super().keys().items()}

    def _compiling_first_run(self, frame: Frame, cut: SwitchedGraph) -> BoxedCall:
        def first_run(args: list[Any]) -> Any:
            args_copy, random_state = list(args), RandomState()
            self._compile_ahead(cut)
            try:
                results = cut.run(args)
            except RegionalExplorerError:
                raise
            except Exception as error:  # noqa: BLE001 - raised again, unless the graph can be repaired
                random_state.restore()
                try:
                    results = self._run_repaired(frame, cut, list(args_copy), error)
                finally:
                    cut.live.implementation = first_run
                if not cut.live.failed_ops or not _may_run_again(cut.live.gm):
                    return results
                random_state.restore()
                return first_run(args_copy)
            cut.has_run = True
            self._list_saved_artifacts()
            cut.live.implementation = cut.run
            return results

        return first_run

    def _compile_ahead(self, cut: SwitchedGraph) -> None:
        """Compile partitions for the layouts of the trace, before they run: several at a time, if there are the cores.

        The first call of a partition knows the real layouts, which sometimes differ. Where there are saved artifacts
        nothing is compiled ahead, as those of the real layouts are probably among them.
        """
        folder = self.store.folder
        if folder is None or not folder.has_artifacts:
            for switch in cut.switches:
                switch.assume_if_unreached()
            self._compile_and_report(cut, cut.switches)

    def _artifact_for_layouts(self, cut: SwitchedGraph, switch: Switch, settings: Callable[[], str]) -> Artifact | None:
        """Return the artifact for the layouts that a partition has recorded; compile it unless it exists."""
        key = self.key_of(switch, settings())
        self._first_keys.pop(switch, None)
        if key is None:
            return None
        self._first_keys[switch] = key
        if key not in self.store.artifacts:
            self._compile_and_report(cut, [switch])
            if cut.has_run:  # in a branch that no earlier run took
                self._list_saved_artifacts()
        return self.store.artifacts.get(key)

    def _run_repaired(self, frame: Frame, cut: SwitchedGraph, args: list[Any], error: Exception) -> Any:
        """Repair a graph that fails as torch traced it, by copies of tensors; run it and cut it again."""
        cut.live.repair(next(record for record in frame.records if record.id == cut.live.id))
        try:
            results = cut.live.implementation(args)
        except CaptureError:
            cut.live.failed_ops = None
            raise error from None
        frame.record(self.capture.names)
        self.cut_again(cut)
        self._compile_when_first_run(cut)
        return results

    def _compile_and_report(self, cut: SwitchedGraph, switches: Sequence[Switch]) -> None:
        with self._compiling, RandomState(), self._noting_cost(cut.live.id):
            try:
                for _ in compile_stale(self):
                    pass
            except NoCompilerError as error:
                self.store.failures |= dict.fromkeys(self.stale(), str(error))
            finally:
                self._report_artifacts()
        self._report_failures(switches)

    @contextlib.contextmanager
    def _noting_cost(self, graph: str) -> Iterator[None]:
        before, known = self.compiles.get(graph), len(self.store.artifacts)
        began, start = time.time(), time.perf_counter()
        try:
            yield
        finally:
            seconds, artifacts = time.perf_counter() - start, len(self.store.artifacts) - known
            if before is not None:
                began, seconds, artifacts = before.began, before.seconds + seconds, before.artifacts + artifacts
            self.compiles[graph] = GraphCompile(graph, began, seconds, artifacts)

    def _list_saved_artifacts(self) -> None:
        """Let other processes see the artifacts of a graph, now that all are saved."""
        if self.store.folder is not None:
            with self._compiling:
                self.store.folder.finish()
            self._report_artifacts()

    def _report_artifacts(self) -> None:
        """Report which saved artifacts did not fit, were damaged, or could not be written."""
        while self.store.folder is not None and self.store.folder.findings:
            self.report(self.store.folder.findings.pop(0))

    def _report_failures(self, switches: Sequence[Switch]) -> None:
        keys = self.keys()
        if not any(switch.failure or keys.get(switch) in self.store.failures for switch in switches):
            return
        graphs = {switch.piece.graph_id for switch in switches}
        failed = [record for record in partitions(self) if record.error is not None and record.graph in graphs]
        if any(record.error == NO_COMPILER for record in failed):
            message = f"What is not compiled yet runs eagerly: {NO_COMPILER}"
            self.report(Diagnostic(DiagnosticCode.NO_COMPILER, message, Severity.ERROR))
        for diagnostic in compile_failures(self, [record for record in failed if record.error != NO_COMPILER]):
            self.report(diagnostic)

    def _report_eager(self, switch: Switch, why: str) -> None:
        region, graph, nodes = switch.piece.claim.region, switch.piece.graph_id, switch.piece.nodes
        message = f"A partition of region {region!r} runs eagerly in graph {graph}: {why}."
        self.report(
            Diagnostic(DiagnosticCode.REGION_FAILED, message, Severity.ERROR, region=region, graph=graph, nodes=nodes)
        )


def _may_run_again(gm: fx.GraphModule) -> bool:
    """Return whether a second run of a graph on the same inputs gives the same results, and has no other effect."""
    return only_computes(gm) and not any(map(written_inputs, gm.graph.nodes))
