"""The Dynamo backend that runs a plan, with its program and its options."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakKeyDictionary

import torch
from msgspec.structs import replace

from regional_explorer.capture.live_graph import Frame, GraphState, LiveGraph
from regional_explorer.capture.reachable import module_names, reach
from regional_explorer.capture.restore import TorchRandomState
from regional_explorer.capture.trace import TracedGraphs
from regional_explorer.compiler.artifact import Artifact, ArtifactStore
from regional_explorer.compiler.artifact_folder import folder_at
from regional_explorer.compiler.compilation import compile_stale
from regional_explorer.compiler.partition_records import environment_of, evidence_of, failed_passes, partitions
from regional_explorer.compiler.program import CutProgram, LiveCut, recompile_limit_diagnostic, stacklevel_of_caller
from regional_explorer.compiler.region_config import check_plan, source_plan, without_unknown_configs
from regional_explorer.compiler.switch import Switch
from regional_explorer.diagnostics.regions import check_empty, check_failed
from regional_explorer.errors import (
    CaptureError,
    InvalidArgumentError,
    NoCompilerError,
    PlanError,
    check_argument,
    check_flag,
    did_you_mean,
    shown_value,
)
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.files import load_plan_file
from regional_explorer.record.graph import Graph, GraphKind
from regional_explorer.record.plan import AS_UPSTREAM, Direction, Plan, Tracing, checked_tracing
from regional_explorer.record.plan_file import (
    ExplorationRecord,
    environment_difference,
    mode_differences,
    partition_differences,
    wrong_when_explored,
)
from regional_explorer.regions.order import written_inputs
from regional_explorer.torch_api.dynamo import (
    backend_of,
    calling_wrapper,
    code_of,
    named_backend,
    run_at_end_of_calls,
    traced_call,
    uncompiled,
)
from regional_explorer.torch_api.graphs import BoxedCall, only_computes
from regional_explorer.torch_api.inductor import NO_COMPILER
from regional_explorer.torch_api.releasing import has_given_up
from regional_explorer.torch_api.torch_config import settings_text

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
    the marks in the source, and grows with the graphs. ``_compiling`` is held by the one thread that compiles. With
    ``ranges`` each call of a partition is a range of torch's profiler. ``compiles`` has the compile of each graph that
    has run, by its id.
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
        """Return the function that the cut graph calls for a partition; ``ranges`` put it in a profiler range."""
        call = switch.call
        if not self.ranges:
            return call
        name = f"{switch.piece.claim.region} ({Direction.of_graph(switch.piece.graph_id)})"

        def in_range(args: list[Any]) -> Any:
            with torch.profiler.record_function(name):
                return call(args)

        return in_range

    def on_new_graph(self, frame: Frame, cut: LiveCut) -> None:  # noqa: ARG002 - an exploration tells of the frame
        """Compile the partitions of a graph in its first run; refuse a training call under frozen weights."""
        if self.capture.tracing.frozen and cut.live.kind is not GraphKind.INFERENCE:
            refuse(cut.live, TRAINS_FROZEN)
        else:
            self._compile_when_first_run(cut)

    def _compile_when_first_run(self, cut: LiveCut) -> None:
        cut.state, cut.run = GraphState.COMPILING, functools.partial(self._first_run, cut)
        settings = functools.cache(settings_text)  # the settings when the graph first runs
        for switch in cut.switches:
            switch.on_eager = functools.partial(self._report_eager, switch)
            switch.on_stale = self._report_stale
            switch.choose(functools.partial(self._artifact_for_layouts, cut, switch, settings))

    def keys(self, settings: str | None = None) -> dict[Switch, str]:
        """Return the keys of the artifacts of partitions that have run.

        A partition keeps the key of its first run: if a global setting that matters changes, Dynamo traces again.
        """
        return {switch: self._first_keys.setdefault(switch, key) for switch, key in super().keys(settings).items()}

    def _first_run(self, cut: LiveCut, args: list[Any]) -> Any:
        """Compile the partitions of a graph and run it; repair it if it fails as torch traced it."""
        live, args_copy, random_state = cut.live, list(args), TorchRandomState()
        run_cut = self.build(cut)
        self._compile_ahead(cut, args)
        try:
            results = run_cut(args)
        except RuntimeError as error:
            if not _can_be_repaired(live.gm):
                raise
            random_state.restore()
            try:
                results = self.capture.run_repaired(live, list(args_copy))
            except CaptureError:
                raise error from None
            self._compile_when_first_run(self.cut_again(live))
            if not live.failed_ops or not _may_run_again(live.gm):
                return results
            random_state.restore()
            return live.call(args_copy)
        cut.state, cut.run = GraphState.CUT, run_cut
        live.enter(cut.state, run_cut)
        # With nothing to compile, there is no cost yet.
        self.compiles.setdefault(live.id, GraphCompile(live.id, time.time(), seconds=0.0, artifacts=0))
        self._list_saved_artifacts(live)
        return results

    def _compile_ahead(self, cut: LiveCut, args: Sequence[Any]) -> None:
        """Compile partitions for the layouts of the trace, before they run: their kernels are built side by side.

        ``args`` are those of the graph, with the weights.

        Only the first call of a partition knows the real layouts, which sometimes differ. If there are saved artifacts,
        nothing is compiled ahead: they probably include the artifacts for the real layouts.
        """
        folder = self.store.folder
        if folder is None or not folder.has_artifacts:
            values = {node.name: value for node, value in zip(cut.live.gm.graph.nodes, args, strict=False)}
            for switch in cut.switches:
                switch.assume_if_unreached(values)
            self._compile_and_report(cut, cut.switches)

    def _artifact_for_layouts(self, cut: LiveCut, switch: Switch, settings: Callable[[], str]) -> Artifact | None:
        """Return the artifact for the layouts that a partition has recorded; compile it unless it exists."""
        key = self.key_of(switch, settings())
        self._first_keys.pop(switch, None)
        if key is None:
            return None
        self._first_keys[switch] = key
        if key not in self.store.artifacts:
            self._compile_and_report(cut, [switch])
            if cut.state is GraphState.CUT:  # the partition is in a branch that no earlier run took
                self._list_saved_artifacts(cut.live)
        return self.store.artifacts.get(key)

    def _compile_and_report(self, cut: LiveCut, switches: Sequence[Switch]) -> None:
        with _raising_again(cut.live):
            with self._compiling, TorchRandomState(), self._recording_cost(cut.live.id):
                try:
                    compile_stale(self)
                except NoCompilerError as error:
                    self.store.failures |= dict.fromkeys(self.stale(), str(error))
                finally:
                    self._report_artifacts()
            self._report_failures(switches)

    @contextlib.contextmanager
    def _recording_cost(self, graph: str) -> Iterator[None]:
        before = self.compiles.get(graph, GraphCompile(graph, time.time(), seconds=0.0, artifacts=0))
        artifacts, start = len(self.store.artifacts), time.perf_counter()
        try:
            yield
        finally:
            seconds, made = time.perf_counter() - start, len(self.store.artifacts) - artifacts
            self.compiles[graph] = GraphCompile(graph, before.began, before.seconds + seconds, before.artifacts + made)

    def _list_saved_artifacts(self, live: LiveGraph) -> None:
        """Let other processes see the artifacts of a graph, now that all are saved."""
        if self.store.folder is not None:
            with self._compiling:
                self.store.folder.write_manifest()
            with _raising_again(live):
                self._report_artifacts()

    def _report_artifacts(self) -> None:
        """Report which saved artifacts did not fit, were damaged, or could not be written."""
        while self.store.folder is not None and self.store.folder.findings:
            self.report(self.store.folder.findings.pop(0))

    def _report_failures(self, switches: Sequence[Switch]) -> None:
        keys, artifacts = self.keys(), self.store.artifacts.items()
        failures = {*self.store.failures, *(key for key, made in artifacts if any(run.problem for run in made.passes))}
        if not any(switch.failure or keys.get(switch) in failures for switch in switches):
            return
        graphs = {switch.piece.graph_id for switch in switches}
        records = [record for record in partitions(self) if record.graph in graphs]
        for diagnostic in failed_passes(self, records):
            self.report(diagnostic)
        failed = [record for record in records if record.error is not None]
        if any(record.error == NO_COMPILER for record in failed):
            title = "Partitions without an artifact run eagerly"
            self.report(DiagnosticCode.NO_COMPILER.finding(title, f": {NO_COMPILER}"))
        others = [record for record in failed if record.error != NO_COMPILER]
        for diagnostic in check_failed(evidence_of(self, others)):
            self.report(diagnostic)

    def _report_stale(self, switch: Switch, why: str) -> None:
        self._first_keys.pop(switch, None)  # that key belongs to the former weights
        self._report_eager(switch, f"{why}. Freeze them again by another rx.compile")

    def _report_eager(self, switch: Switch, why: str) -> None:
        region, graph, nodes = switch.piece.claim.region, switch.piece.graph_id, switch.piece.nodes
        title = f"A partition of region {region!r} runs eagerly in graph {graph}"
        found = DiagnosticCode.REGION_FAILED.finding(
            title, f": {why}.", region=region, graph=graph, at=nodes, upstream=""
        )
        self.report(found)


TRAINS_FROZEN = (
    "The plan freezes weights, which is for inference, and the call takes gradients. Call it under torch.no_grad(), or "
    "compile it with frozen=False."
)


@contextlib.contextmanager
def _raising_again(*graphs: LiveGraph) -> Iterator[None]:
    """Context manager: let later calls of these graphs raise the block's PlanError, without tracing again."""
    try:
        yield
    except PlanError as error:
        for live in graphs:
            refuse(live, str(error))
        raise


def refuse(live: LiveGraph, message: str) -> None:
    """Let all calls of a graph raise PlanError."""

    def raise_plan_error(_args: list[Any]) -> NoReturn:
        raise PlanError(message)

    live.enter(GraphState.REFUSED, raise_plan_error)


def _can_be_repaired(gm: fx.GraphModule) -> bool:
    """Return whether a graph whose run raised may run again: it wrote nothing before the error.

    AOTAutograd copies what a call writes in place at the end of the graph, after every op that may raise.
    """
    return only_computes(gm) and all(node.target is torch.ops.aten.copy_.default for node in _writing_nodes(gm))


def _may_run_again(gm: fx.GraphModule) -> bool:
    """Return whether a second run of a graph on the same inputs gives the same results, and has no other effect."""
    return only_computes(gm) and not any(_writing_nodes(gm))


def _writing_nodes(gm: fx.GraphModule) -> Iterator[fx.Node]:
    return filter(written_inputs, gm.graph.nodes)


@dataclass(frozen=True)
class BackendOptions:
    """The options of ``rx.compile``, and of ``torch.compile(..., options=...)`` with this backend.

    Without a ``plan`` the regions are those marked in the source. With ``strict``, a difference from the plan is an
    error instead of a warning; with ``"environment"`` another torch, device or number of threads is one, too. Calls are
    traced as the plan says unless ``tracing`` is given. ``artifacts`` is a directory that compiled partitions are
    loaded from and saved in; if the plan lists its artifacts, only those are loaded, and nothing from a directory that
    others may write to, unless ``trust_artifacts``. With ``ranges`` a profiler shows the regions.
    """

    plan: Plan | str | Path | None = None
    strict: bool | str = False
    tracing: Tracing | None = None
    artifacts: str | Path | None = None
    trust_artifacts: bool = False
    ranges: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> BackendOptions:
        """Return the options of a dict, as ``torch.compile`` takes them.

        Raises:
            InvalidArgumentError: there is no such option, or its value is of the wrong type.
        """
        known_names = [field.name for field in fields(cls)]
        for name in options or {}:
            if name not in known_names:
                raise InvalidArgumentError(
                    f"The backend 'regional_explorer' has no option {name!r}.{did_you_mean(name, known_names)} "
                    f"Options: {', '.join(known_names)}."
                )
        return cls(**(options or {}))

    def __post_init__(self) -> None:
        """Check the values."""
        check_argument(
            "plan", self.plan, (Plan, str, Path, type(None)), "the path of a saved plan, an rx.Plan, or None"
        )
        if not isinstance(self.strict, bool) and self.strict != "environment":
            raise InvalidArgumentError(f"strict={shown_value(self.strict)}: give True, False or 'environment'.")
        checked_tracing(self.tracing, AS_UPSTREAM)
        check_flag("trust_artifacts", self.trust_artifacts)
        check_flag("ranges", self.ranges)


NOTHING_MARKED = DiagnosticCode.REGION_EMPTY.finding(
    "There is no region",
    ": the plan is missing or empty, and no op in the graphs of the first call is marked. All of it runs eagerly.",
    remedy="Give a plan, or mark ops in the source with rx.region; a graph break in a marked block loses its mark.",
    upstream="",
)


NOTHING_TRACED = DiagnosticCode.REGION_EMPTY.finding(
    "No region is in any graph",
    ": Dynamo traced nothing of the first call, which ran as plain Python.",
    remedy="With fullgraph=True torch says why it traces nothing.",
    upstream="",
)

CHANGE_THE_PLAN = (
    "Explore the call under this plan, with rx.explore(fn, args, plan=…): it says which change of the plan or of the "
    "source helps. Then save the plan again."
)


def worded_for_production(diagnostic: Diagnostic) -> Diagnostic:
    """Return a diagnostic worded for production, without ``ex`` and without a comparison with upstream."""
    return replace(diagnostic, upstream="", advice=(CHANGE_THE_PLAN,) if diagnostic.actions else diagnostic.advice)


def subject_of(diagnostic: Diagnostic) -> tuple[str, str | None, str]:
    """Return the subject of a diagnostic; diagnostics with the same subject are reported once."""
    return diagnostic.code, diagnostic.region, diagnostic.message if diagnostic.region is None else ""


class PlannedBackend:
    """The backend of one ``torch.compile`` under a plan, with its graphs, artifacts and findings.

    Without a plan the regions are those marked in the source; ``explored`` says how a saved plan was explored.
    ``findings`` are the diagnostics so far: each was a warning, or an error with ``strict``.

    Raises:
        PlanError: the file cannot be read, or with ``strict`` says that the plan's results were wrong.
        ArtifactError: ``artifacts`` is not a directory, or others may write to it.
        UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError: a config of an rx.Plan is invalid.
    """

    def __init__(self, options: BackendOptions) -> None:
        self.__name__ = "regional_explorer"  # the name of the backend in torch.compile's logs
        self.options, plan = options, options.plan
        self.explored: ExplorationRecord | None = None
        self.unknown_configs: list[Diagnostic] = []
        listed: Collection[str] = ()
        if isinstance(plan, (str, Path)):
            file = load_plan_file(plan)
            plan, self.unknown_configs = without_unknown_configs(file.plan)
            self.explored, listed = file.explored, file.artifacts
        elif plan is not None:
            check_plan(plan)
        folder, trusted = None, options.trust_artifacts
        if options.artifacts is not None:
            folder = folder_at(options.artifacts, listed=None if trusted else listed or None, is_trusted=trusted)
        tracing = checked_tracing(options.tracing, plan.tracing if plan else AS_UPSTREAM)
        self.traced = TracedGraphs(tracing)
        self.program = PlannedProgram(
            self.traced,
            (plan or Plan()).traced(tracing),
            ArtifactStore(folder=folder),
            report=self.report,
            from_source=plan is None,
            ranges=options.ranges,
        )
        self.findings: list[Diagnostic] = []
        self._checked = False
        self._checked_frames = 0
        self._has_given_up: Callable[[], bool] = lambda: False
        for diagnostic in wrong_when_explored(self.explored) if self.explored is not None else ():
            self.report(diagnostic)

    def __call__(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """Compile a graph of Dynamo's: return the callable to run for it."""
        call = traced_call()
        if call is not None:
            self.traced.names = module_names(reach(call.fn, call.args, call.kwargs).roots)
            call.at_end(self._at_end)
        else:
            self.traced.first_call_ended = True  # nothing says when a call ends
        return self.traced.add_frame(gm, inputs)

    def watch(self, compiled: Callable[..., Any]) -> None:
        """Report a first call that never reaches this backend, and the call after which Dynamo stops tracing."""
        compiled_ref = weakref.ref(compiled)

        def report_untraced(returned: bool) -> None:  # noqa: FBT001 - as torch_api passes it
            if returned and not self.traced.frames:
                self.report(NOTHING_TRACED)
            if returned or self.traced.frames:
                stop()

        stop = run_at_end_of_calls(compiled, report_untraced)
        self._has_given_up = lambda: (alive := compiled_ref()) is not None and has_given_up(alive)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle only the options: as with any ``torch.compile``, a copy is traced again."""
        return PlannedBackend, (self.options,)

    def _at_end(self, succeeded: bool) -> None:  # noqa: FBT001 - as torch_api passes it
        """Check the plan if the call returned; otherwise at the end of the next call, traced or not."""
        self.traced.first_call_ended = True
        if succeeded:
            self._check_plan()
            return
        for frame in self.traced.frames[self._checked_frames :]:
            for live in frame.live:
                live.enter(GraphState.REPLACED, functools.partial(self._run_to_check, live))

    def _run_to_check(self, live: LiveGraph, args: list[Any]) -> Any:
        if (call := traced_call()) is not None:
            call.at_end(self._at_end)
        live.unsettle()
        return live.call(args)

    def _check_plan(self) -> None:
        """Report how the frames that were not checked yet differ from the plan.

        Only the first call decides which parts of the plan were not found. If a difference is an error, every call that
        runs the same graphs raises it: these graphs are not traced again.
        """
        frames, self._checked_frames = self.traced.frames[self._checked_frames :], len(self.traced.frames)
        differences: list[Diagnostic] = []
        if not self._checked:
            self._checked = True
            differences += self._first_call_findings()
        if self.explored is not None:
            differences += mode_differences(self.explored, self.traced.modes_of_calls(frames))
        with _raising_again(*(live for frame in frames for live in frame.live)):
            for diagnostic in differences:
                if diagnostic.severity is not Severity.INFO:
                    self.report(diagnostic)
        if frames and self._has_given_up():
            self.warn(recompile_limit_diagnostic(frames))

    def _first_call_findings(self) -> Iterator[Diagnostic]:
        program, explored = self.program, self.explored
        unmatched = list(check_empty(evidence_of(program)))
        if not program.plan.regions:
            yield NOTHING_MARKED
        yield from (*self.unknown_configs, *program.source_diagnostics, *unmatched)
        if explored is not None:
            empty_regions = {finding.region for finding in unmatched if finding.severity is not Severity.INFO}
            differences = partition_differences(explored, partitions(program), self.traced.late_graphs)
            yield from (finding for finding in differences if finding.region not in empty_regions)
            if self.options.strict == "environment":
                others = environment_difference(explored, environment_of(self.traced.graphs))
                yield from (replace(finding, severity=Severity.WARNING) for finding in others)

    def report(self, diagnostic: Diagnostic) -> None:
        """Warn, once per region and code, that something does not run as planned; without a region, once per text.

        Raises:
            PlanError: the option ``strict`` is set.
        """
        diagnostic = worded_for_production(diagnostic)
        if self.options.strict:
            self._keep(diagnostic)
            raise PlanError(f"{diagnostic} With strict={self.options.strict!r} this is an error.")
        self.warn(diagnostic)

    def warn(self, diagnostic: Diagnostic) -> None:
        """Warn of a diagnostic once, even with ``strict``."""
        if self._keep(diagnostic):
            warnings.warn(f"{diagnostic} rx.status(compiled) says what runs.", stacklevel=stacklevel_of_caller())

    def _keep(self, diagnostic: Diagnostic) -> bool:
        """Keep a diagnostic for the status; return False if it was kept before."""
        if any(subject_of(other) == subject_of(diagnostic) for other in self.findings):
            return False
        self.findings.append(diagnostic)
        return True


@dataclass(frozen=True)
class _NamedBackend:
    """The backend of a compile with ``backend="regional_explorer"``, torch's wrapper for it, and the compiled code."""

    wrapper: weakref.ref[Any]
    code: Callable[[], CodeType | None]
    backend: PlannedBackend


_NAMED_BACKENDS: list[_NamedBackend] = []


def regional_explorer(gm: fx.GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Any:
    """Compile a graph of Dynamo's under the plan in ``options``: the entry point of the backend's name."""
    wrapper = calling_wrapper()
    backend = _find_named(wrapper)
    if backend is None:
        backend = PlannedBackend(BackendOptions.of(options))
        if wrapper is not None:
            code = code_of(call.fn) if (call := traced_call()) is not None else None
            code_ref = weakref.ref(code) if code is not None else lambda: None
            _NAMED_BACKENDS.append(_NamedBackend(weakref.ref(wrapper, _forget_named), code_ref, backend))
    return backend(gm, inputs)


def _forget_named(wrapper_ref: weakref.ref[Any]) -> None:
    _NAMED_BACKENDS[:] = [named for named in _NAMED_BACKENDS if named.wrapper is not wrapper_ref]


def _find_named(wrapper: Any) -> PlannedBackend | None:
    backends = (named.backend for named in _NAMED_BACKENDS if wrapper is not None and named.wrapper() is wrapper)
    return next(backends, None)


def planned_backend_of(compiled: Any) -> PlannedBackend | None:
    """Return our backend behind a result of ``rx.compile`` or ``torch.compile``; None if it has another one."""
    wrapper = backend_of(compiled)
    backend = named_backend(wrapper)
    if backend is regional_explorer:
        code = code_of(uncompiled(compiled))
        # A compile with an equal wrapper runs what Dynamo has for the same code.
        equal = [named for named in _NAMED_BACKENDS if named.wrapper() == wrapper and named.code() is code]
        return _find_named(wrapper) or (equal[-1].backend if equal else None)
    return backend if isinstance(backend, PlannedBackend) else None
