"""Exploration: the façade and the only orchestrator. It delegates; it does not compute."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch

from regional_explorer.capture.call import Call
from regional_explorer.capture.trace import Capture
from regional_explorer.compiler.catalogue import check_value
from regional_explorer.compiler.program import CompileStep, Program
from regional_explorer.compiler.variants import VariantName, Variants
from regional_explorer.compiler.warm import warm_toolchain
from regional_explorer.errors import (
    CaptureError,
    ClosedError,
    InvalidConfigKeyError,
    MeasureError,
    NoCompilerError,
    RegionalExplorerError,
    did_you_mean,
)
from regional_explorer.export import frames
from regional_explorer.export.save import save
from regional_explorer.export.source import plan_source
from regional_explorer.insight.code import RegionCode, partition_code
from regional_explorer.measure.benchmark import Outcome, benchmark
from regional_explorer.measure.effort import Effort
from regional_explorer.record.codec import dump_plan, load_plan
from regional_explorer.record.diagnostic import Diagnostic, Severity
from regional_explorer.record.region import DEFAULT, Plan, Region, Selector, SelectorKind
from regional_explorer.record.session import Environment, Session
from regional_explorer.record.timing import CompileCost
from regional_explorer.regions.checks import check_breaks, check_partitions, check_source_configs, global_config
from regional_explorer.regions.select import members, picks, require_match, source_regions
from regional_explorer.render.html import session_html
from regional_explorer.render.svg import session_svg
from regional_explorer.render.text import session_text
from regional_explorer.torch_api import require_supported_torch

if TYPE_CHECKING:
    import graphviz
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
    return Exploration(fn, args, kwargs, grad=grad, dynamic=dynamic, plan=plan, partitioner=partitioner)


class Exploration:
    """One call, traced once: its graphs, regions, artifacts and measurements. Made by ``explore``."""

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        grad: bool | None = None,
        dynamic: bool | None = None,
        plan: Plan | str | Path | None = None,
        partitioner: str = "default",
    ) -> None:
        require_supported_torch()
        if not callable(fn):
            raise CaptureError(f"{fn!r} is not callable. Give the function or module, and its arguments apart.")
        if not isinstance(args, (tuple, list)):
            raise CaptureError(f"args is {type(args).__name__}: give a tuple, such as rx.explore(fn, (x, y)).")
        loaded = load_plan(plan) if isinstance(plan, (str, Path)) else plan
        self.title = getattr(fn, "__qualname__", type(fn).__name__).replace("<locals>.", "")
        self._call: Call | None = Call(fn, args, kwargs, grad=grad)
        self._capture = Capture(self._call, dynamic=dynamic, partitioner=partitioner)
        self._first_frames = len(self._capture.frames)
        self._source_diagnostics: list[Diagnostic] = check_source_configs(self._capture.graphs)
        self._program = Program(self._capture, loaded if loaded is not None else self._source_plan())
        self._variants = Variants(self._call, self._program, dynamic)
        self._outcome = Outcome()
        self._measured: Plan | None = None
        self._toolchain: CompileCost | None = None
        self._environment = _environment(self._capture)

    # ---------------------------------------------------------------------------------------------------------- plan

    def _source_plan(self) -> Plan:
        regions = []
        for region in source_regions(self._capture.graphs):
            config = {}
            for key, value in region.config.items():
                try:
                    config[key] = check_value(key, value)
                except InvalidConfigKeyError as error:
                    self._source_diagnostics.append(global_config(region, key, str(error), self._capture.graphs))
                except RegionalExplorerError as error:
                    raise type(error)(f"Region {region.name!r}, marked in the source: {error}") from error
            regions.append(replace(region, config=config))
        return Plan(tuple(regions))

    @property
    def plan(self) -> Plan:
        """The regions with their selectors and configs."""
        return self._program.plan

    @plan.setter
    def plan(self, plan: Plan) -> None:
        self._alive()
        for region in plan.regions:
            for key, value in region.config.items():
                check_value(key, value)
        self._program.apply(plan)

    def mark(
        self,
        name: str,
        *,
        modules: str | Sequence[str] | None = None,
        lines: str | Sequence[str] | None = None,
        ops: str | Sequence[str] | None = None,
        nodes: str | Sequence[str] | None = None,
        innermost: bool = False,
        each: bool = False,
    ) -> Self:
        """Mark a region without touching the source. Nothing is traced again.

        Args:
            name: its name; an existing region gets these nodes in addition.
            modules: globs over module paths as ``named_modules()`` gives them; ``*`` stays within one level.
            lines: ``function:3-7``, counted from its ``def``, or ``file.py:10-20``.
            ops: globs over operators, such as ``aten.gelu*``.
            nodes: names of nodes, of any graph, or ``0/forward:mul_1``.
            innermost: of ``lines``, leave out ops of functions that are called there.
            each: one region per module call that matches, named ``name[path]``, instead of one with many instances.

        Raises:
            SelectorError: no selector is given, one is malformed, or one matches nothing.
        """
        selectors = _selectors({"modules": modules, "lines": lines, "ops": ops, "nodes": nodes}, innermost=innermost)
        region = Region(name, selectors)
        require_match(region, self._capture.graphs)
        if each:
            return self._mark_each(name, selectors)
        if name in self.plan:
            known = self.plan[name]
            added = tuple(selector for selector in selectors if selector not in known.selectors)
            self.plan = self.plan.changed(name, selectors=known.selectors + added)
        else:
            self.plan = self.plan.added(region)
        return self

    def _mark_each(self, name: str, selectors: Sequence[Selector]) -> Self:
        paths = {
            instance[0]: None
            for selector in selectors
            for instance in picks(selector, self._capture.graphs).values()
            if instance is not None
        }
        plan = self.plan
        for path in paths:
            plan = plan.added(Region(f"{name}[{path}]", (Selector(SelectorKind.MODULES, (path,)),)))
        self.plan = plan
        return self

    def unmark(self, name: str) -> Self:
        """Take a region out of the plan."""
        self.plan = self.plan.removed(name)
        return self

    def rename(self, name: str, new_name: str) -> Self:
        """Give a region another name; what was compiled stays."""
        self.plan = self.plan.changed(name, name=new_name)
        return self

    def disable(self, name: str) -> Self:
        """Let a region run eagerly; its artifacts are kept."""
        self.plan = self.plan.changed(name, enabled=False)
        return self

    def enable(self, name: str) -> Self:
        """Let a region run compiled again."""
        self.plan = self.plan.changed(name, enabled=True)
        return self

    def configure(self, name: str, config: Mapping[str, Any]) -> Self:
        """Merge ``config`` into a region's; the value ``DEFAULT`` takes a key out.

        Raises:
            UnknownRegionError, UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError.
        """
        merged = dict(self.plan[name].config)
        for key, value in config.items():
            if check_value(key, value) is DEFAULT:
                merged.pop(key, None)
            else:
                merged[key] = value
        self.plan = self.plan.changed(name, config=merged)
        return self

    def reset(self, name: str) -> Self:
        """Take a region's config back to Inductor's own."""
        self.plan = self.plan.changed(name, config={})
        return self

    # ------------------------------------------------------------------------------------------------------- compile

    def compile(self, *, cancelled: Callable[[], bool] = lambda: False, tell: Tell = _silent) -> pd.DataFrame:
        """Compile the partitions that are stale and nothing else; return what was compiled and what it cost.

        A region that does not compile is told in ``diagnostics`` and runs eagerly; the rest go on. An interrupt keeps
        what is compiled.

        Raises:
            NoCompilerError: there is no C++ compiler.
        """
        self._alive()
        before = {part.artifact for part in self._program.partitions()}
        wanted = self._program.stale()
        if wanted and self._toolchain is None:
            tell("warming up the toolchain", 0.0)
            seconds = warm_toolchain(self._environment.device.partition(":")[0].partition(" ")[0])
            self._toolchain = CompileCost("toolchain (once per process)", seconds, "cold")
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
        measured = self.plan
        try:
            assert self._call is not None  # noqa: S101 - alive
            benchmark(
                self._call,
                self._program,
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
        partitions = self._program.partitions()
        conditions = self._outcome.conditions
        if conditions is not None and self._measured != self.plan:
            conditions = replace(conditions, outdated=True)
        costs = [CompileCost(part.id, part.compile_s, part.cache or "") for part in partitions if part.compile_s]
        return Session(
            title=self.title,
            environment=self._environment,
            grad=self._grad,
            graphs=tuple(graphs),
            breaks=self._capture.breaks,
            plan=self.plan,
            members=members(graphs, self._program.assignment),
            partitions=partitions,
            timings=self._outcome.timings,
            conditions=conditions,
            numerics=self._outcome.numerics,
            compile_costs=(*([self._toolchain] if self._toolchain else []), *costs, *self._outcome.costs),
            diagnostics=tuple(self.diagnostics),
        )

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """What differs between asked and done, and what else a user should know."""
        return [
            *self._source_diagnostics,
            *check_breaks(self._capture.breaks),
            *self._program.late_diagnostics(),
            *check_partitions(self._program.partitions()),
            *self._outcome.diagnostics,
        ]

    @property
    def regions(self) -> pd.DataFrame:
        """One row per region."""
        return frames.regions_frame(self.session)

    @property
    def partitions(self) -> pd.DataFrame:
        """One row per partition, config asked beside config applied."""
        return frames.partitions_frame(self.session)

    @property
    def timings(self) -> pd.DataFrame:
        """One row per variant and phase."""
        return frames.timings_frame(self.session)

    @property
    def numerics(self) -> pd.DataFrame:
        """One row per variant and output or gradient."""
        return frames.numerics_frame(self.session)

    @property
    def compile_costs(self) -> pd.DataFrame:
        """What was compiled and what it cost, cold and warm told apart."""
        return frames.compiles_frame(self.session)

    def code(self, name: str) -> RegionCode:
        """Return the generated code of a region, with its kernels and the lines it comes from."""
        region = self.plan[name]
        graphs = {graph.id: graph.by_name() for graph in self._capture.graphs}
        artifacts = self._program.store.artifacts
        return RegionCode(
            region.name,
            tuple(
                partition_code(part.id, artifacts[part.artifact].code, part.nodes, graphs[part.graph])
                for part in self._program.partitions()
                if part.region == name and part.artifact in artifacts
            ),
        )

    def to_source(self) -> str:
        """Return the plan as Python text to paste."""
        return plan_source(self.plan)

    def graph(self, graph_id: str | None = None) -> graphviz.Digraph:
        """Return the graphs, or the one called ``graph_id``, drawn with regions as coloured clusters."""
        from regional_explorer.render.digraph import digraph  # noqa: PLC0415 - graphviz is needed to draw only

        return digraph(self.session, graph_id)

    def save(self, path: str | Path) -> Path:
        """Write everything to a ``.json``, ``.html``, ``.svg`` or ``.csv`` file."""
        return save(self.session, path)

    def save_plan(self, path: str | Path) -> Path:
        """Write the plan to a JSON file, for ``explore(..., plan=path)``."""
        target = Path(path)
        target.write_text(dump_plan(self.plan), encoding="utf-8")
        return target

    def show(self, **options: Any) -> None:
        """Open the interactive explorer in the notebook."""
        from regional_explorer.ui.view import show  # noqa: PLC0415 - the one import up: widgets are needed here only

        show(self, **options)

    def close(self) -> None:
        """Free arguments, traces and artifacts. The session stays readable; nothing can be run any longer."""
        if self._call is not None:
            self._frozen_grad = self._call.grad
            self._call.close()
            self._call = None
            self._program.close()

    @property
    def _grad(self) -> bool:
        return self._call.grad if self._call is not None else self._frozen_grad

    def _alive(self) -> None:
        if self._call is None:
            raise ClosedError(f"The exploration of {self.title} was closed. Make a new one with rx.explore(...).")

    def __repr__(self) -> str:
        """Return the session as plain text."""
        return session_text(self.session)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return plain text and HTML, for whatever shows it."""
        session = self.session
        return {
            "text/plain": session_text(session),
            "text/html": session_html(session, picture=session_svg(session)),
        }


def _environment(capture: Capture) -> Environment:
    devices = {value.device for graph in capture.graphs for node in graph.nodes for value in node.values}
    device = next((name for name in sorted(devices) if not name.startswith(("cpu", "meta"))), "cpu")
    shown = f"{device} ({torch.cuda.get_device_name(device)})" if device.startswith("cuda") else device
    return Environment(torch.__version__, platform.python_version(), shown, torch.get_num_threads())


def _describe(step: CompileStep) -> str:
    return f"compiling {step.region}: {step.partition} ({step.done + 1} of {step.total})"


def _selectors(given: Mapping[str, str | Sequence[str] | None], *, innermost: bool) -> tuple[Selector, ...]:
    found = []
    for kind, patterns in given.items():
        if patterns is not None:
            texts = (patterns,) if isinstance(patterns, str) else tuple(patterns)
            found.append(Selector(SelectorKind(kind), texts, innermost and kind == "lines"))
    return tuple(found)


def _variants(names: Sequence[str]) -> list[VariantName]:
    known = [str(name) for name in VariantName]
    for name in names:
        if name not in known:
            raise MeasureError(f"No variant is called {name!r}.{did_you_mean(name, known)} Variants: {', '.join(known)}.")
    return [name for name in VariantName if name in names or name is VariantName.EAGER]
