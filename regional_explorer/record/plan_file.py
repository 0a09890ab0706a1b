"""The contents of a saved plan: the plan, its artifacts, and the call, machine and results it was explored with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from regional_explorer.errors import count
from regional_explorer.record import Count, Ratio, Record
from regional_explorer.record.action import BENCHMARK
from regional_explorer.record.benchmark import NumericsVerdict, VariantName, Verdict
from regional_explorer.record.diagnostic import Advice, Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.environment import Environment
from regional_explorer.record.partition import Partition
from regional_explorer.record.plan import AS_UPSTREAM, CutRule, Direction, Plan, Region, Tracing
from regional_explorer.record.session import Session

PLAN_FORMAT = 4
"""Version of the JSON layout of a plan's file. Version 3 had the partitioner beside the call that was explored."""


class CallModes(Record, frozen=True):
    """The dtypes, autocast and grad mode of a call."""

    dtypes: tuple[str, ...]
    """The dtypes of its inputs and parameters."""
    autocast: str = ""
    """For example ``"cpu: bfloat16"``; empty without autocast."""
    grad: bool = False
    """Whether it has a backward."""


class ExplorationRecord(Record, frozen=True):
    """The call and the machine that a plan was explored on, and its measurements there."""

    call: str
    """The name of the function."""
    environment: Environment
    """The torch, Python and machine."""
    grad: bool
    """Whether gradients were taken."""
    partitions: Mapping[str, Mapping[str, Count]] = {}
    """The number of partitions of each region, by direction: ``partitions["mlp"]["forward"]``."""
    speedup: Ratio | None = None
    """The speedup over eager; None if the plan was not measured."""
    speedup_low: Ratio | None = None
    """The lower end of its interval."""
    speedup_high: Ratio | None = None
    """The upper end of its interval."""
    verdict: Verdict | None = None
    """The verdict against eager."""
    numerics: NumericsVerdict | None = None
    """Whether the results are right; None if unknown."""
    modes: CallModes | None = None
    """The modes of the call."""
    slower: Mapping[str, str] = {}
    """The variants that the plan is slower than, with how much: ``19 % slower than eager (18–21)``"""
    wrong: str = ""
    """How far off wrong results are, in words."""

    @classmethod
    def of(cls, session: Session, modes: CallModes | None = None) -> ExplorationRecord:
        """Return the record of a session's plan."""
        timed = None if session.is_outdated else session.whole_timings.get(VariantName.REGIONAL)
        speedup = timed and timed.speedup
        return cls(
            session.title,
            session.environment,
            session.grad,
            count_partitions(session.partitions, session.late_graphs),
            speedup=speedup and speedup.value,
            speedup_low=speedup and speedup.low,
            speedup_high=speedup and speedup.high,
            verdict=timed and timed.verdict,
            numerics=session.plan_numerics,
            modes=modes,
        )


class PlanFile(Record, frozen=True):
    """The contents of a plan's file."""

    regions: tuple[Region, ...] = ()
    """The regions in order."""
    cut: CutRule = CutRule.INSTANCES
    """How nodes of regions become partitions."""
    tracing: Tracing = AS_UPSTREAM
    """How the call is traced."""
    explored: ExplorationRecord | None = None
    """The call and machine that the plan was explored on; None if unknown."""
    artifacts: tuple[str, ...] = ()
    """The SHA-256 of the artifacts that were saved before the plan."""

    def __post_init__(self) -> None:
        """Check the types of the fields."""
        _ = self.plan

    @property
    def plan(self) -> Plan:
        """The plan."""
        return Plan(self.regions, self.cut, self.tracing)


def count_partitions(partitions: Sequence[Partition], late_graphs: Collection[str] = ()) -> dict[str, dict[str, int]]:
    """Return the number of partitions of each region in one call, by direction, leaving out ``late_graphs``."""
    counts = Counter(
        (part.region, str(Direction.of_graph(part.graph))) for part in partitions if part.graph not in late_graphs
    )
    by_region: dict[str, dict[str, int]] = {}
    for (region, direction), number in sorted(counts.items()):
        by_region.setdefault(region, {})[direction] = number
    return by_region


def partition_differences(
    explored: ExplorationRecord, partitions: Sequence[Partition], late_graphs: Collection[str] = ()
) -> list[Diagnostic]:
    """Return a ``plan-differs`` per region whose partition count has changed.

    Directions that have not been traced here are left out.
    """
    counts = count_partitions(partitions, late_graphs)
    traced = {direction for by_direction in counts.values() for direction in by_direction}
    diagnostics = []
    for region, counts_before in explored.partitions.items():
        counts_here = counts.get(region, {})
        for direction in map(str, Direction):
            before, now = counts_before.get(direction, 0), counts_here.get(direction, 0)
            if direction in traced and before != now:
                title = (
                    f"Region {region!r} gave {count(before, 'partition')} in the {direction} when the plan was saved, "
                    f"and {now} here"
                )
                details = ": the program, torch or the call has changed."
                remedy = (
                    "Look at the graph with rx.explore(fn, args, plan=path), and save the plan again if it is right."
                )
                diagnostics.append(DiagnosticCode.PLAN_DIFFERS.finding(title, details, region=region, remedy=remedy))
    return diagnostics


def environment_difference(explored: ExplorationRecord, here: Environment) -> list[Diagnostic]:
    """Return a ``plan-differs`` of severity info if the plan was explored on another machine."""
    changed = [
        f"{name} {before}, here {now}"
        for name in ("torch", "device", "threads")
        if (before := getattr(explored.environment, name)) != (now := getattr(here, name))
    ]
    if not changed:
        return []
    return [
        DiagnosticCode.PLAN_DIFFERS.finding(
            "The plan was explored elsewhere",
            f": {'; '.join(changed)}. Its measurements may not hold here.",
            remedy=("Measure the plan here with ", BENCHMARK, ", and save it again."),
            severity=Severity.INFO,
        )
    ]


def plan_slower_diagnostic(title: str, details: str, against: str, remedy: str | Advice) -> Diagnostic:
    """Return a ``plan-slower``: a warning if slower than eager, an info if slower than ``torch.compile``."""
    severity = Severity.WARNING if against == VariantName.EAGER else Severity.INFO
    return DiagnosticCode.PLAN_SLOWER.finding(title, details, severity=severity, remedy=remedy)


def slower_when_explored(explored: ExplorationRecord) -> list[Diagnostic]:
    """Return a ``plan-slower`` each for eager and plain ``torch.compile``, if the plan was measured to be slower."""
    return [
        plan_slower_diagnostic(
            f"When it was explored, the plan was {slower}",
            ".",
            against,
            "Explore and measure the plan again: the diagnostics say what helps.",
        )
        for against, slower in explored.slower.items()
    ]


def wrong_when_explored(explored: ExplorationRecord) -> list[Diagnostic]:
    """Return a ``variant-wrong`` if the plan's results were wrong, or could not be distinguished from wrong ones."""
    if explored.numerics is None or not explored.numerics.withholds_speedup:
        return []
    failed = explored.numerics is NumericsVerdict.FAILED
    fact = (
        "the results of the plan were wrong" if failed else "it was unknown whether the results of the plan are right"
    )
    details = f": {explored.wrong}." if explored.wrong else "."
    return [
        DiagnosticCode.VARIANT_WRONG.finding(
            f"When it was explored, {fact}",
            details,
            severity=None if failed else Severity.WARNING,
            remedy=(
                "Measure it here with ",
                BENCHMARK,
                ", whose diagnostics say what helps. Then save the plan again.",
            ),
            upstream="",
        )
    ]


def mode_differences(explored: ExplorationRecord, calls: Iterable[CallModes]) -> list[Diagnostic]:
    """Return a ``plan-differs`` for each mode of the calls (dtype, autocast, grad) that was not explored.

    A call without gradients is of severity info: a training program evaluates, too.
    """
    before = explored.modes
    if before is None:
        return []
    differences: dict[str, Severity] = {}
    for call in calls:
        if call.autocast != before.autocast:
            differences[f"{_autocast_text(before)}, and a call here runs {_autocast_text(call)}"] = Severity.WARNING
        if others := sorted(set(call.dtypes) - set(before.dtypes)):
            text = f"on inputs of {', '.join(before.dtypes)}, and a call here has some of {', '.join(others)}"
            differences[text] = Severity.WARNING
        if call.grad and not before.grad:
            differences["without gradients, and a call here has a backward"] = Severity.WARNING
        if before.grad and not call.grad:
            differences["with gradients, and a call here runs without"] = Severity.INFO
    return [
        DiagnosticCode.PLAN_DIFFERS.finding(
            f"The plan was explored {text}",
            ": its numerics and its figures are of that call.",
            remedy="Explore the call as it runs here, and save that plan; each kind of call may have its own plan.",
            severity=severity,
        )
        for text, severity in differences.items()
    ]


def _autocast_text(call: CallModes) -> str:
    return f"under autocast ({call.autocast})" if call.autocast else "without autocast"
