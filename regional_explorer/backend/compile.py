"""``rx.compile``: checks its arguments and compiles a function or module under a plan, outside of a notebook."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from regional_explorer.backend.backend_options import BackendOptions
from regional_explorer.backend.planned_backend import PlannedBackend
from regional_explorer.errors.arguments import check_callable, check_flag
from regional_explorer.record.plan import Plan
from regional_explorer.torch_api import compile_isolated


def compile(  # noqa: A001, PLR0913 - named like torch.compile; options by keyword
    fn: Callable[..., Any],
    plan: Plan | str | Path | None = None,
    *,
    strict: bool | str = False,
    partitioner: str | None = None,
    artifacts: str | Path | None = None,
    trust_artifacts: bool = False,
    ranges: bool = False,
    dynamic: bool | None = None,
    fullgraph: bool = False,
) -> Callable[..., Any]:
    """Return ``fn`` compiled under a plan: each region by Inductor under its own config, the rest eager.

    It is ``torch.compile`` with a backend that cuts the plan's regions out of each graph. The regions of a graph are
    compiled when it first runs, and give its results already; the backward has a first run of its own.

    Args:
        fn: the function or module.
        plan: a plan, or the path of one saved with ``ex.save_plan``; without it the regions marked in the source.
        strict: raise PlanError if a call differs from the plan, instead of warning once and running that part eagerly.
            With ``"environment"`` also if torch, the device or the number of threads is not that of the exploration.
        partitioner: as in ``rx.explore``; by default that of the exploration a saved plan comes from.
        artifacts: a directory of compiled partitions, as ``ex.save_artifacts`` writes it. What fits is loaded instead
            of compiled; what does not is reported, compiled, and saved there. Artifacts are code: name no directory
            whose code you would not run. If the plan lists its artifacts, only those are loaded.
        trust_artifacts: load whatever fits, even if the plan does not list it or others may write the directory.
        ranges: make each call of a partition a ``torch.profiler.record_function`` range, named ``mlp (forward)``; off,
            it costs nothing.
        dynamic: as in ``torch.compile``.
        fullgraph: as in ``torch.compile``.

    Raises:
        InvalidArgumentError: an argument has the wrong type.
        ArtifactError: ``artifacts`` is not a directory, or one that others may write.
        PlanError: the plan's file cannot be read; when called, with ``strict``: the call differs from it.
        UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError: a config of an rx.Plan is invalid.
    """
    check_callable("fn", fn, "the function or module itself: rx.compile(fn, plan='plan.json')")
    check_flag("dynamic", dynamic, optional=True)
    check_flag("fullgraph", fullgraph)
    backend = PlannedBackend(BackendOptions(plan, strict, partitioner, artifacts, trust_artifacts, ranges))
    return compile_isolated(fn, backend, dynamic=dynamic, fullgraph=fullgraph)
