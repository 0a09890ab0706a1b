"""``regional-explorer check``: whether a saved plan still holds for a call: regions, compile and numerics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regional_explorer.record.diagnostic import DiagnosticCode, Severity
from regional_explorer.record.partition import State
from regional_explorer.record.timing import NumericsVerdict
from regional_explorer.record.variant_name import VariantName

if TYPE_CHECKING:
    from regional_explorer.compiler.run_context import ProgressCallback

NUMERICS_BUDGET_S = 0.05
"""Only the numerics check is of interest; the few rounds after it are ignored."""

BROKEN_PLAN_CODES = frozenset(
    {
        DiagnosticCode.REGION_EMPTY,
        DiagnosticCode.REGION_LOST,
        DiagnosticCode.REGION_FAILED,
        DiagnosticCode.CONFIG_UNKNOWN,
        DiagnosticCode.PLAN_DIFFERS,
        DiagnosticCode.NO_COMPILER,
    }
)
"""The diagnostics that, as a warning or an error, mean that a plan does not hold."""


@dataclass(frozen=True)
class PlanCheck:
    """The result: how many partitions are compiled, the numerics verdict, and the problems."""

    partitions: int
    compiled: int
    numerics: str
    problems: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the plan holds."""
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {"holds": self.holds, **asdict(self)}

    def __str__(self) -> str:
        """Return one line for each thing checked, and one per problem."""
        return "\n".join(
            [
                f"The plan {'holds' if self.holds else 'does not hold'}.",
                f"compiled: {self.compiled} of {self.partitions} partitions",
                f"numerics: {self.numerics}",
                *self.problems,
            ]
        )


def check_saved_plan(
    plan: Path,
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    grad: bool | None,
    dynamic: bool | None,
    progress: ProgressCallback,
) -> PlanCheck:
    """Explore the call under a saved plan, compile it and check the numerics.

    Raises:
        RegionalExplorerError: as ``rx.explore`` and ``ex.benchmark``.
    """
    from regional_explorer.exploration.explore import explore
    from regional_explorer.record.codec import load_plan_file

    explored = load_plan_file(plan).explored
    partitioner = explored.partitioner if explored else "default"
    exploration = explore(fn, tuple(args), kwargs, grad=grad, dynamic=dynamic, plan=plan, partitioner=partitioner)
    with closing(exploration):
        exploration.benchmark(
            (VariantName.EAGER, VariantName.REGIONAL), NUMERICS_BUDGET_S, regions=False, progress=progress
        )
        session = exploration.session
    problems = [
        str(diagnostic)
        for diagnostic in session.diagnostics
        if diagnostic.code in BROKEN_PLAN_CODES and diagnostic.severity is not Severity.INFO
    ]
    verdicts = (timing.numerics for timing in session.timings if timing.variant == VariantName.REGIONAL)
    verdict = next(verdicts, NumericsVerdict.NOT_CHECKED)
    if verdict is NumericsVerdict.FAILED:
        rows = (row for row in session.numerics if row.variant == VariantName.REGIONAL)
        tensors = [row.tensor for row in rows if row.verdict is NumericsVerdict.FAILED]
        problems.append(f"The numerics check failed: {', '.join(tensors[:4])}.")
    enabled = [partition for partition in session.partitions if session.plan[partition.region].enabled]
    compiled = sum(partition.state is State.COMPILED for partition in enabled)
    return PlanCheck(len(enabled), compiled, str(verdict), tuple(problems))
