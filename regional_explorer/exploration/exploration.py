"""``rx.explore`` and the Exploration it returns."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regional_explorer.capture.call import Call
from regional_explorer.capture.trace import Capture
from regional_explorer.compiler.compilation import CompileStep, compile_stale
from regional_explorer.compiler.config.validate import check_plan, source_plan
from regional_explorer.compiler.processes.warmup import warm_toolchain
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.status import diagnostics, partitions, preview_of
from regional_explorer.compiler.variants import Variants
from regional_explorer.errors import CaptureError, ClosedError
from regional_explorer.exploration.advice import region_findings, still_true
from regional_explorer.exploration.benchmarks import Measuring, silent
from regional_explorer.exploration.edits import PlanEditing
from regional_explorer.exploration.results import SessionView
from regional_explorer.exploration.viewer import open_panel
from regional_explorer.export import frames
from regional_explorer.export.compare import compare_frame
from regional_explorer.export.plan_source import plan_source
from regional_explorer.export.save import save_plan
from regional_explorer.insight.code import RegionCode, partition_code
from regional_explorer.measure.benchmark import ProgressCallback
from regional_explorer.record.codec import load_plan
from regional_explorer.record.diagnostic import Diagnostic, Severity
from regional_explorer.record.graph import Graph
from regional_explorer.record.region import Partition, Plan
from regional_explorer.record.session import Environment, Session
from regional_explorer.record.timing import CompileCost
from regional_explorer.regions.cutting.preview import Preview
from regional_explorer.regions.select import members
from regional_explorer.torch_api import acquired, compile_lock, require_supported_torch

if TYPE_CHECKING:
    import pandas as pd


def explore(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    grad: bool | None = None,
    dynamic: bool | None = None,
    plan: Plan | str | Path | None = None,
    partitioner: str = "default",
) -> Exploration:
    """Trace one call and return it as an Exploration. Nothing is compiled or measured yet.

    The call runs: once in eager mode, once traced, each with gradients if it has any. What it changes in place and the
    random generators are put back afterwards; arguments are held by reference.

    Args:
        fn: the function or module.
        args: its positional arguments, a tuple or list.
        kwargs: its keyword arguments.
        grad: whether to take gradients; None: as the call would, False: run under ``no_grad``.
        dynamic: as in ``torch.compile``.
        plan: a plan, or the path of a saved one, instead of the regions marked in the source.
        partitioner: how AOTAutograd splits forward from backward, ``"default"`` (as upstream's regional path) or
            ``"min_cut"``.

    Raises:
        CaptureError: the call raises, trains by itself, or cannot be traced.
        UnknownConfigKeyError, InvalidConfigValueError: a mark in the source holds a config that torch does not have.
        SelectorError: the plan has a selector that is malformed.
        UnsupportedTorchError: torch is too old.
        PlanError: the plan's file cannot be read.
    """
    require_supported_torch()
    if not callable(fn):
        raise CaptureError(f"{fn!r} is not callable. Give the function or module, and its arguments apart.")
    if not isinstance(args, (tuple, list)):
        raise CaptureError(f"args is {type(args).__name__}: give a tuple, such as rx.explore(fn, (x, y)).")
    loaded = load_plan(plan) if isinstance(plan, (str, Path)) else plan
    title = getattr(fn, "__qualname__", type(fn).__name__).replace("<locals>.", "")
    return Exploration(Call(fn, args, kwargs, grad=grad), title, dynamic=dynamic, plan=loaded, partitioner=partitioner)


class Exploration(SessionView, PlanEditing, Measuring):
    """One call, traced once: its graphs, regions, artifacts and measurements. Made by ``explore``."""

    def __init__(self, call: Call, title: str, *, dynamic: bool | None, plan: Plan | None, partitioner: str) -> None:
        super().__init__()
        self.title = title
        self._call: Call | None = call
        self._grad = call.grad
        self._last: tuple[Partition, ...] = ()
        self._told: list[Diagnostic] = []
        self._capture = Capture(call, dynamic=dynamic, partitioner=partitioner)
        found, self._source_diagnostics = source_plan(self._capture.graphs)
        check_plan(plan or found)
        self._program = Program(self._capture, found if plan is None else plan)
        self._variants = Variants(call, self._program, dynamic=dynamic)
        self._toolchain: CompileCost | None = None
        self._environment = _environment(self._capture)

    # ---------------------------------------------------------------------------------------------------------- plan

    @property
    def plan(self) -> Plan:
        """The regions with their selectors and configs."""
        return self._program.plan

    @plan.setter
    def plan(self, plan: Plan) -> None:
        self._alive()
        check_plan(plan)
        self._program.apply(plan)

    @property
    def _graphs(self) -> Sequence[Graph]:
        return self._capture.graphs

    def preview(self, plan: Plan) -> Preview:
        """Tell which partitions a plan would give and what there would be to say, without going over to it.

        Raises:
            UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError: the plan holds such a config.
        """
        self._alive()
        check_plan(plan)
        return preview_of(self._program, plan)

    # ------------------------------------------------------------------------------------------------------- compile

    def compile(
        self, *, cancelled: Callable[[], bool] = lambda: False, progress: ProgressCallback = silent
    ) -> pd.DataFrame:
        """Compile the partitions that are stale and nothing else; return what was compiled and what it cost.

        A region that does not compile is told in ``diagnostics`` and runs eagerly; the rest go on. An interrupt keeps
        what is compiled. What another thread compiles meanwhile, of this exploration or of anything else, is waited
        for: torch can do one compile at a time in a process.

        Raises:
            NoCompilerError: there is no C++ compiler.
        """
        self._alive()

        def on_wait() -> None:
            progress("waiting for another thread of this process that compiles", 0.0)

        with acquired(self._program.compiling, cancelled, on_wait) as held:
            before = set(self._program.store.artifacts)
            if held and _is_free_to_compile(cancelled, on_wait):
                if self._program.stale():
                    self._warm_up(progress)
                for step in compile_stale(self._program, cancelled, on_wait):
                    progress(_describe(step), step.done / step.total)
        report = frames.partitions_frame(self.session)
        return report[report["compile_s"].notna() & ~report["artifact"].isin(before) | (report["state"] == "failed")]

    def _warm_up(self, progress: ProgressCallback) -> None:
        if self._toolchain is None:
            progress("warming up the toolchain", 0.0)
            self._toolchain = warm_toolchain(self._environment.device_type)

    @property
    def compiled(self) -> Callable[..., Any]:
        """The call's function under the chosen plan, to use right now; what is stale is compiled first.

        On other shapes or dtypes it is traced again under the same plan; new partitions run eagerly until the next
        ``compile()``, which a warning tells.
        """
        self._alive()
        self.compile()
        return self._capture.run

    # ------------------------------------------------------------------------------------------------------- results

    @property
    def session(self) -> Session:
        """The frozen record of everything found so far."""
        graphs = self._capture.graphs
        parts = self._partitions()
        conditions = self._outcome.conditions
        if conditions is not None and self._measured != self.plan:
            conditions = replace(conditions, outdated=True)
        costs = [CompileCost(part.id, part.compile_s, part.cache or "") for part in parts if part.compile_s]
        outcome = self._outcome
        found = Session(
            title=self.title,
            environment=self._environment,
            grad=self._grad,
            graphs=tuple(self._program.assignment.with_carved_marked(graphs)),
            breaks=self._capture.breaks,
            plan=self.plan,
            members=members(graphs, self._program.assignment),
            partitions=parts,
            timings=outcome.timings,
            conditions=conditions,
            numerics=outcome.numerics,
            compile_costs=(*([self._toolchain] if self._toolchain else []), *costs, *outcome.costs),
            partition_timings=tuple(outcome.partition_results.timings),
            partition_numerics=tuple(outcome.partition_results.numerics),
            reconciliation=outcome.reconciliation,
            memory=tuple(outcome.memory),
        )
        return replace(found, diagnostics=tuple(self._diagnose(found)))

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """What differs between asked and done, and what else a user should know; what matters most comes first."""
        return list(self.session.diagnostics)

    def _diagnose(self, session: Session) -> list[Diagnostic]:
        if self._call is None:
            return list(self._told)
        found = [
            *self._source_diagnostics,
            *diagnostics(self._program, session.partitions, self._environment.device_type),
            *self._outcome.diagnostics,
            *still_true(session, self._outcome.partition_results.diagnostics),
            *region_findings(session),
        ]
        return sorted(found, key=lambda item: list(Severity)[::-1].index(item.severity))

    def _partitions(self) -> tuple[Partition, ...]:
        return self._last if self._call is None else partitions(self._program)

    @property
    def history(self) -> pd.DataFrame:
        """One row per plan that was measured: step times, speedup, compile time, and in what they differ."""
        return compare_frame(self.runs)

    def code(self, name: str) -> RegionCode:
        """Return the generated code of a region, with its kernels and the lines it comes from."""
        region = self.plan[name]
        graphs = {graph.id: graph.by_name() for graph in self._capture.graphs}
        artifacts = self._program.store.artifacts
        return RegionCode(
            region.name,
            tuple(
                partition_code(part.id, artifacts[part.artifact].code, part.nodes, graphs[part.graph])
                for part in self._partitions()
                if part.region == name and part.artifact in artifacts
            ),
        )

    def to_source(self) -> str:
        """Return the plan as Python text to paste."""
        return plan_source(self.plan)

    def save_plan(self, path: str | Path) -> Path:
        """Write the plan to a JSON file, for ``explore(..., plan=path)``.

        Raises:
            PlanError: the file cannot be written.
        """
        return save_plan(self.plan, path)

    def show(self, **options: Any) -> None:
        """Open the interactive explorer in the notebook.

        Raises:
            MissingPackageError: the packages of the notebook are not installed.
        """
        open_panel(self, **options)

    def close(self) -> None:
        """Free arguments, traces and artifacts. The session stays readable; nothing can be run any longer."""
        if self._call is not None:
            self._last = self._partitions()
            self._told = self.diagnostics
            self._call.close()
            self._variants.close()
            self._call = None
            self._program.close()

    def _alive(self) -> None:
        if self._call is None:
            raise ClosedError(f"The exploration of {self.title} was closed. Make a new one with rx.explore(...).")


def _environment(capture: Capture) -> Environment:
    devices = {value.device for graph in capture.graphs for node in graph.nodes for value in node.values}  # noqa: PD011 - a node's, not a frame's
    device = next((name for name in sorted(devices) if not name.startswith(("cpu", "meta"))), "cpu")
    shown = f"{device} ({torch.cuda.get_device_name(device)})" if device.startswith("cuda") else device
    return Environment(torch.__version__, platform.python_version(), shown, torch.get_num_threads())


def _is_free_to_compile(cancelled: Callable[[], bool], on_wait: Callable[[], None]) -> bool:
    """Wait until nothing else compiles, and tell whether that came: the call is run next, and may be traced again."""
    with compile_lock(cancelled, on_wait) as held:
        return held


def _describe(step: CompileStep) -> str:
    return f"compiling {step.region}: {step.partition} ({step.done + 1} of {step.total})"
