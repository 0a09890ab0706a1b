"""``regional-explorer check``: whether a saved plan holds for a call (regions, compile, numerics) and what it gains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regional_explorer.errors.texts import listing
from regional_explorer.export.session_changes import CONFIDENCE
from regional_explorer.record.diagnostic import DiagnosticCode, Severity
from regional_explorer.record.partition import State
from regional_explorer.record.session import Session
from regional_explorer.record.statistics import MIN_FLOOR, median_and_iqr, paired_ratios, rank_interval, verdict_of
from regional_explorer.record.timing import LEAST_SAMPLES, NumericsVerdict, Verdict
from regional_explorer.record.variant_name import VariantName
from regional_explorer.render.style.formats import bounds

if TYPE_CHECKING:
    from regional_explorer.compiler.run_context import ProgressCallback

AGAINST: Mapping[str, tuple[VariantName, ...]] = {
    "eager": (VariantName.EAGER,),
    "torch.compile": (VariantName.EAGER, VariantName.FULL),
}
"""What a plan must not be slower than, by the value of ``--against``."""

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
class PlanSpeed:
    """How fast the whole call is under the plan: the speedup ``against`` something else, with its interval.

    ``verdict`` is that of the samples, or says why there is none.
    """

    against: str
    verdict: str
    speedup: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def is_slower(self) -> bool:
        """Whether the plan is certainly slower."""
        return self.verdict == Verdict.SLOWER

    def __str__(self) -> str:
        """Return one line."""
        figure = "" if self.speedup is None else f"{self.speedup:.2f}× ({bounds(self.low, self.high)}), "
        return f"against {self.against}: {figure}{self.verdict}"


@dataclass(frozen=True)
class PlanCheck:
    """The result: how many partitions are compiled, the numerics verdict, the speeds, and the problems."""

    partitions: int
    compiled: int
    numerics: str
    speeds: tuple[PlanSpeed, ...]
    problems: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the plan holds."""
        return not self.problems

    @property
    def slower_than(self) -> tuple[str, ...]:
        """What the plan is certainly slower than."""
        return tuple(speed.against for speed in self.speeds if speed.is_slower)

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {"holds": self.holds, "slower_than": self.slower_than, **asdict(self)}

    def __str__(self) -> str:
        """Return one line for each thing checked, and one per problem."""
        slower = f", but is slower than {' and '.join(self.slower_than)}" if self.holds and self.slower_than else ""
        return "\n".join(
            [
                f"The plan {'holds' if self.holds else 'does not hold'}{slower}.",
                f"compiled: {self.compiled} of {self.partitions} partitions",
                f"numerics: {self.numerics}",
                *map(str, self.speeds),
                *self.problems,
            ]
        )


def check_saved_plan(
    plan: Path,
    call: tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]],
    *,
    grad: bool | None,
    dynamic: bool | None,
    against: str,
    budget_s: float,
    progress: ProgressCallback,
) -> PlanCheck:
    """Explore a call (function, arguments) under a saved plan, compile it, check the numerics and measure it.

    Raises:
        RegionalExplorerError: as ``rx.explore`` and ``ex.benchmark``.
    """
    from regional_explorer.exploration.explore import explore
    from regional_explorer.record.codec import load_plan_file

    fn, args, kwargs = call
    explored = load_plan_file(plan).explored
    partitioner = explored.partitioner if explored else "default"
    exploration = explore(fn, tuple(args), kwargs, grad=grad, dynamic=dynamic, plan=plan, partitioner=partitioner)
    with closing(exploration):
        variants = (*AGAINST[against], VariantName.REGIONAL)
        exploration.benchmark(variants, budget_s, regions=False, progress=progress)
        return plan_check(exploration.session, against)


def plan_check(session: Session, against: str) -> PlanCheck:
    """Return what a session that was measured says of its plan."""
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
        problems.append(f"The numerics check failed: {listing(tensors) or 'a result differs'}.")
    enabled = [partition for partition in session.partitions if session.plan[partition.region].enabled]
    compiled = sum(partition.state in {State.COMPILED, State.MEASURED} for partition in enabled)
    speeds = tuple(plan_speed(session, variant) for variant in AGAINST[against])
    return PlanCheck(len(enabled), compiled, str(verdict), speeds, tuple(problems))


def plan_speed(session: Session, variant: VariantName) -> PlanSpeed:
    """Return how fast the whole call is under the plan, against a variant of the same rounds."""
    against = "torch.compile" if variant is VariantName.FULL else str(variant)
    regional, other = session.whole_timings.get(VariantName.REGIONAL), session.whole_timings.get(variant)
    if regional is None or other is None:
        return PlanSpeed(against, "not measured")
    if NumericsVerdict.FAILED in (regional.numerics, other.numerics):
        return PlanSpeed(against, "not comparable: a numerics check failed")
    if variant is VariantName.EAGER:
        timing = regional
        return PlanSpeed(against, str(timing.verdict), timing.speedup, timing.speedup_low, timing.speedup_high)
    ratios = paired_ratios(other.samples_s, regional.samples_s)
    interval = rank_interval(ratios, session.conditions.confidence if session.conditions else CONFIDENCE)
    if interval is None or len(ratios) < LEAST_SAMPLES:
        return PlanSpeed(against, str(Verdict.UNKNOWN))
    middle, _ = median_and_iqr(ratios)
    return PlanSpeed(against, str(verdict_of(ratios, CONFIDENCE, MIN_FLOOR)), middle, *interval)
