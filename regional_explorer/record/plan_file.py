"""The contents of a saved plan: the plan, its artifacts, and the call, machine and results it was explored with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from regional_explorer.errors.texts import count
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.partition import Partition
from regional_explorer.record.plan import Cut, Plan
from regional_explorer.record.region import Direction, Region
from regional_explorer.record.session import Environment, Session
from regional_explorer.record.timing import Verdict
from regional_explorer.record.variant_name import VariantName

PLAN_FORMAT = 3
"""Version of the JSON layout of a plan's file. Version 1 had only the plan, version 2 no artifacts."""

DIRECTION_NAMES = tuple(map(str, Direction))


@dataclass(frozen=True, slots=True)
class Explored:
    """The call and machine that a plan was explored on, and its figures as ``regional``, None if not measured.

    ``partitions`` has how many partitions each region gave, by direction: ``partitions["mlp"]["forward"]``.
    """

    call: str
    environment: Environment
    grad: bool
    partitioner: str = "default"
    partitions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    verdict: Verdict | None = None
    numerics: str | None = None

    @classmethod
    def of(cls, session: Session, partitioner: str, late_graphs: Collection[str] = ()) -> Explored:
        """Return the record of a session's plan; ``late_graphs`` are those of calls after the captured one."""
        timed = None if session.is_outdated else session.whole_timings.get(VariantName.REGIONAL)
        return cls(
            session.title,
            session.environment,
            session.grad,
            partitioner,
            count_partitions(session.partitions, late_graphs),
            *((timed.speedup, timed.speedup_low, timed.speedup_high, timed.verdict, timed.numerics) if timed else ()),
        )


@dataclass(frozen=True, slots=True)
class PlanFile:
    """The contents of a plan's file; ``artifacts`` are the SHA-256 of the artifacts that were saved before it."""

    regions: tuple[Region, ...] = ()
    cut: Cut = Cut.INSTANCES
    explored: Explored | None = None
    artifacts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the types of the fields."""
        _ = self.plan

    @property
    def plan(self) -> Plan:
        """The plan."""
        return Plan(self.regions, self.cut)


def count_partitions(partitions: Sequence[Partition], late_graphs: Collection[str] = ()) -> dict[str, dict[str, int]]:
    """Return how many partitions each region gave in one call, by direction; those of ``late_graphs`` do not count."""
    counts = Counter(
        (part.region, str(Direction.of_graph(part.graph))) for part in partitions if part.graph not in late_graphs
    )
    by_region: dict[str, dict[str, int]] = {}
    for (region, direction), number in sorted(counts.items()):
        by_region.setdefault(region, {})[direction] = number
    return by_region


def differences_from(
    explored: Explored, here: Environment, partitions: Sequence[Partition], late_graphs: Collection[str] = ()
) -> list[Diagnostic]:
    """Return a ``plan-differs`` per region whose partition count has changed, and one if the machine has.

    Directions that have not been traced here are left out.
    """
    counts = count_partitions(partitions, late_graphs)
    traced = {direction for by_direction in counts.values() for direction in by_direction}
    diagnostics = []
    for region, counts_before in explored.partitions.items():
        counts_here = counts.get(region, {})
        for direction in DIRECTION_NAMES:
            before, now = counts_before.get(direction, 0), counts_here.get(direction, 0)
            if direction in traced and before != now:
                diagnostics.append(_partitions_diagnostic(region, direction, before, now))
    if changed := _environment_differences(explored.environment, here):
        diagnostics.append(
            Diagnostic(
                DiagnosticCode.PLAN_DIFFERS,
                f"The plan was explored elsewhere: {'; '.join(changed)}. Its measurements may not hold here.",
                Severity.INFO,
                upstream="no warning.",
                remedy="Measure the plan here with ex.benchmark(), and save it again.",
            )
        )
    return diagnostics


def _partitions_diagnostic(region: str, direction: str, before: int, now: int) -> Diagnostic:
    return Diagnostic(
        DiagnosticCode.PLAN_DIFFERS,
        f"Region {region!r} gave {count(before, 'partition')} in the {direction} when the plan was "
        f"saved, and {now} here: the program, torch or the call has changed.",
        region=region,
        upstream="no warning.",
        remedy="Look at the graph with rx.explore(fn, args, plan=path), and save the plan again if it is right.",
    )


def _environment_differences(before: Environment, here: Environment) -> list[str]:
    return [
        f"{name} {old}, here {new}"
        for name in ("torch", "device", "threads")
        if (old := getattr(before, name)) != (new := getattr(here, name))
    ]
