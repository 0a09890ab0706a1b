"""Exploration: the façade and the only orchestrator. It delegates; it does not compute."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regional_explorer.capture.call import Call
from regional_explorer.capture.trace import Capture
from regional_explorer.compiler import background
from regional_explorer.compiler.asked import check_plan, source_plan
from regional_explorer.compiler.editing import PlanEditing
from regional_explorer.compiler.program import CompileStep, Program
from regional_explorer.compiler.report import partitions, previewed, told
from regional_explorer.compiler.variants import VariantName, Variants
from regional_explorer.compiler.warm import warm_toolchain
from regional_explorer.errors import (
    CaptureError,
    ClosedError,
    MeasureError,
    NoCompilerError,
    did_you_mean,
)
from regional_explorer.export import frames
from regional_explorer.export.source import plan_source
from regional_explorer.export.view import SessionView
from regional_explorer.insight.code import RegionCode, partition_code
from regional_explorer.measure.benchmark import Outcome, benchmark
from regional_explorer.measure.effort import Effort
from regional_explorer.record.codec import dump_plan, load_plan
from regional_explorer.record.diagnostic import Diagnostic, Severity
from regional_explorer.record.graph import Graph
from regional_explorer.record.region import Partition, Plan
from regional_explorer.record.session import Environment, Session
from regional_explorer.record.timing import CompileCost
from regional_explorer.regions.preview import Preview
from regional_explorer.regions.select import members
from regional_explorer.torch_api import require_supported_torch

if TYPE_CHECKING:
    import pandas as pd

Tell = Callable[[str, float], None]
"""Told what is being done now, and how far it is: a fraction between 0 and 1."""

ALL_VARIANTS = tuple(VariantName)


def _silent(_doing: str, _fraction: float) -> None:
    """Tell nobody."""


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


class Exploration(SessionView, PlanEditing):
    """One call, traced once: its graphs, regions, artifacts and measurements. Made by ``explore``."""

    def __init__(self, call: Call, title: str, *, dynamic: bool | None, plan: Plan | None, partitioner: str) -> None:
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
        self._outcome = Outcome()
        self._measured: Plan | None = None
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
        return previewed(self._program, plan)

    # ------------------------------------------------------------------------------------------------------- compile

    def compile(self, *, cancelled: Callable[[], bool] = lambda: False, tell: Tell = _silent) -> pd.DataFrame:
        """Compile the partitions that are stale and nothing else; return what was compiled and what it cost.

        A region that does not compile is told in ``diagnostics`` and runs eagerly; the rest go on. An interrupt keeps
        what is compiled.

        Raises:
            NoCompilerError: there is no C++ compiler.
        """
        self._alive()
        before = {part.artifact for part in self._partitions()}
        wanted = self._program.stale()
        if wanted and self._toolchain is None:
            tell("warming up the toolchain", 0.0)
            self._toolchain = warm_toolchain(self._environment.device.partition(":")[0].partition(" ")[0])
        for step in self._program.compile(cancelled):
            tell(_describe(step), step.done / step.total)
        report = frames.partitions_frame(self.session)
        return report[report["compile_s"].notna() & ~report["artifact"].isin(before) | (report["state"] == "failed")]

    @property
    def compiled(self) -> Callable[..., Any]:
        """The call's function under the chosen plan, to use right now; what is stale is compiled first.

        On other shapes or dtypes it is traced again under the same plan; new partitions run eagerly until the next
        ``compile()``, which a warning tells.
        """
        self._alive()
        self.compile()
        return self._capture.run

    # ------------------------------------------------------------------------------------------------------- measure

    def benchmark(
        self,
        variants: Sequence[str] = ALL_VARIANTS,
        budget_s: float = 5.0,
        *,
        cancelled: Callable[[], bool] = lambda: False,
        tell: Tell = _silent,
    ) -> pd.DataFrame:
        """Compile what is stale, check the numerics, then measure; return ``timings``.

        Args:
            variants: which of eager, aot_eager, regional and full; eager is always among them.
            budget_s: seconds to measure for, compiling not counted.
            cancelled: asked between compiles and samples; what is done is kept.
            tell: told what is being done.

        Raises:
            MeasureError: the budget or a variant is none, or nothing could be measured.
        """
        self._alive()
        effort = Effort(budget_s=budget_s)
        names = _variants(variants)
        outcome = Outcome()
        if VariantName.REGIONAL in names or VariantName.FULL in names:
            names = self._compile_or_tell(names, outcome, cancelled, tell)
        if cancelled():
            return self.timings
        measured = self.plan
        background.toolchain.wait()
        try:
            benchmark(
                self._variants,
                names,
                effort,
                self._environment,
                outcome,
                cancelled=cancelled,
                tell=tell,
            )
        finally:
            if outcome.timings or outcome.numerics or outcome.diagnostics:
                self._outcome, self._measured = outcome, measured
        return self.timings

    def _compile_or_tell(
        self, names: list[VariantName], outcome: Outcome, cancelled: Callable[[], bool], tell: Tell
    ) -> list[VariantName]:
        try:
            self.compile(cancelled=cancelled, tell=tell)
        except NoCompilerError as error:
            outcome.diagnostics.append(Diagnostic("no-compiler", str(error), Severity.ERROR))
            return [name for name in names if name in (VariantName.EAGER, VariantName.AOT_EAGER)]
        return names

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
        return Session(
            title=self.title,
            environment=self._environment,
            grad=self._grad,
            graphs=tuple(self._program.assignment.told(graphs)),
            breaks=self._capture.breaks,
            plan=self.plan,
            members=members(graphs, self._program.assignment),
            partitions=parts,
            timings=self._outcome.timings,
            conditions=conditions,
            numerics=self._outcome.numerics,
            compile_costs=(*([self._toolchain] if self._toolchain else []), *costs, *self._outcome.costs),
            diagnostics=tuple(self._diagnose(parts)),
        )

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """What differs between asked and done, and what else a user should know; what matters most comes first."""
        return self._diagnose(self._partitions())

    def _diagnose(self, parts: Sequence[Partition]) -> list[Diagnostic]:
        if self._call is None:
            return list(self._told)
        found = [
            *self._source_diagnostics,
            *told(self._program, parts, self._environment.device),
            *self._outcome.diagnostics,
        ]
        return sorted(found, key=lambda item: list(Severity)[::-1].index(item.severity))

    def _partitions(self) -> tuple[Partition, ...]:
        return self._last if self._call is None else partitions(self._program)

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
        """Write the plan to a JSON file, for ``explore(..., plan=path)``."""
        target = Path(path)
        target.write_text(dump_plan(self.plan), encoding="utf-8")
        return target

    def show(self, **options: Any) -> None:
        """Open the interactive explorer in the notebook."""
        from regional_explorer.ui.view import show

        show(self, **options)

    def close(self) -> None:
        """Free arguments, traces and artifacts. The session stays readable; nothing can be run any longer."""
        if self._call is not None:
            self._last = self._partitions()
            self._told = self._diagnose(self._last)
            self._call.close()
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


def _describe(step: CompileStep) -> str:
    return f"compiling {step.region}: {step.partition} ({step.done + 1} of {step.total})"


def _variants(names: Sequence[str]) -> list[VariantName]:
    known = [str(name) for name in VariantName]
    for name in names:
        if name not in known:
            raise MeasureError(
                f"No variant is called {name!r}.{did_you_mean(name, known)} Variants: {', '.join(known)}."
            )
    return [name for name in VariantName if name in names or name is VariantName.EAGER]
