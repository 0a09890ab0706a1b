"""The options of the backend and of ``rx.compile``, such as plan, artifacts and strict, checked; loads the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from regional_explorer.capture.call_arguments import check_partitioner
from regional_explorer.compiler.artifacts.folder import folder_at
from regional_explorer.compiler.config.validate import check_plan, without_unknown_configs
from regional_explorer.errors import InvalidArgumentError, did_you_mean
from regional_explorer.errors.arguments import check_argument, check_flag, shown_value
from regional_explorer.record.codec import load_plan_file
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.plan import Plan
from regional_explorer.record.plan_file import Explored


@dataclass(frozen=True)
class LoadedPlan:
    """A plan and how it was explored; ``unknown`` are diagnostics of configs that the running torch does not accept.

    Without a ``plan`` the regions are those marked in the source. ``artifacts`` are the SHA-256 of its artifacts.
    """

    plan: Plan | None
    partitioner: str
    explored: Explored | None = None
    unknown: tuple[Diagnostic, ...] = ()
    artifacts: tuple[str, ...] = ()


@dataclass(frozen=True)
class BackendOptions:
    """The options of ``rx.compile``, and of ``torch.compile(..., options=...)`` with this backend.

    Without a ``plan`` the regions are those marked in the source. With ``strict``, a difference from the plan is an
    error instead of a warning; with ``"environment"`` another torch, device or number of threads is one, too. The
    ``partitioner`` is by default that of the exploration a saved plan comes from. ``artifacts`` is a directory that
    compiled partitions are loaded from and saved in; of a plan that lists its artifacts only those are loaded, and none
    from a directory that others may write, unless ``trust_artifacts``. With ``ranges`` a profiler shows the regions.
    """

    plan: Plan | str | Path | None = None
    strict: bool | str = False
    partitioner: str | None = None
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
        if self.partitioner is not None:
            check_partitioner(self.partitioner)
        check_flag("trust_artifacts", self.trust_artifacts)
        check_flag("ranges", self.ranges)
        if self.artifacts is not None:
            folder_at(self.artifacts, is_trusted=self.trust_artifacts)

    def load(self) -> LoadedPlan:
        """Return the plan to run.

        Raises:
            PlanError: the file cannot be read.
            UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError: a config of an rx.Plan is invalid.
        """
        if isinstance(self.plan, (str, Path)):
            file = load_plan_file(self.plan)
            plan, unknown = without_unknown_configs(file.plan)
            partitioner = file.explored.partitioner if file.explored else "default"
            return LoadedPlan(plan, self.partitioner or partitioner, file.explored, tuple(unknown), file.artifacts)
        if self.plan is not None:
            check_plan(self.plan)
        return LoadedPlan(self.plan, self.partitioner or "default")
