"""Stores benchmark outcomes by the content of plan and partitions, so that edits, undo and renames keep them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regional_explorer.measure.benchmark import Outcome
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition
from regional_explorer.record.plan_content import PartitionContent, PlanContent, partition_content, plan_content
from regional_explorer.record.timing import Numerics, PartitionTiming, Reconciled

MAX_PLANS = 50
"""The number of measured plans that are kept."""


@dataclass(frozen=True, slots=True)
class MeasuredPartition:
    """The figures of one partition alone; ``sampled`` is the run and the partition that the samples are of."""

    timing: PartitionTiming
    numerics: tuple[Numerics, ...]
    cure: Mapping[str, Any] | None
    sampled: tuple[int, PartitionContent]


@dataclass(frozen=True, slots=True)
class MeasuredPlan:
    """One benchmark: the ``partitions`` it ran with, and its results for the call and for each partition."""

    partitions: tuple[Partition, ...]
    outcome: Outcome
    alone: Mapping[PartitionContent, MeasuredPartition]


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """The figures of the partitions of one plan, by their current names; ``cures`` is by partition id."""

    timings: tuple[PartitionTiming, ...]
    numerics: tuple[Numerics, ...]
    cures: Mapping[str, Mapping[str, Any] | None]


class Measurements:
    """The benchmarks of one exploration: ``last`` is the newest, ``of(partitions)`` that of a given plan."""

    def __init__(self) -> None:
        self.last: MeasuredPlan | None = None
        self._plans: dict[PlanContent, MeasuredPlan] = {}
        self._alone: dict[PartitionContent, MeasuredPartition] = {}
        self._runs = 0

    def add(self, partitions: Sequence[Partition], outcome: Outcome) -> None:
        """Store the results of a benchmark, replacing those of an earlier one of the same plan."""
        self._runs += 1
        self.last = MeasuredPlan(tuple(partitions), outcome, _measured_by_content(self._runs, partitions, outcome))
        self._alone.update(self.last.alone)
        content = plan_content(partitions)
        self._plans.pop(content, None)
        self._plans[content] = self.last
        if len(self._plans) > MAX_PLANS:
            del self._plans[next(iter(self._plans))]

    def reconcile(self, rows: tuple[Reconciled, ...]) -> None:
        """Add to the last benchmark how the regions add up to the whole."""
        assert self.last is not None  # noqa: S101 - called after ``add``
        self.last = replace(self.last, outcome=replace(self.last.outcome, reconciliation=rows))
        self._plans[plan_content(self.last.partitions)] = self.last

    def of(self, partitions: Iterable[Partition]) -> MeasuredPlan | None:
        """Return the last benchmark of the plan of these partitions."""
        return self._plans.get(plan_content(partitions))

    def figures(self, partitions: Sequence[Partition]) -> PartitionFigures:
        """Return the figures of every partition with measured content, from this plan or else from any other."""
        measured_plan = self.of(partitions)
        measured = self._alone if measured_plan is None else {**self._alone, **measured_plan.alone}
        pairs = [(part, measured[content]) for part in partitions if (content := partition_content(part)) in measured]
        # Partitions with equal content refer to the one that was sampled, or if that is gone, to the first of them.
        names = {figures.sampled: part.id for part, figures in reversed(pairs)}
        names |= {figures.sampled: part.id for part, figures in pairs if figures.sampled[1] == partition_content(part)}
        timings, numerics, cures = [], [], {}
        for part, figures in pairs:
            name = names[figures.sampled]
            sampled_as = None if name == part.id else name
            current = replace(figures.timing, partition=part.id, region=part.region, artifact=part.artifact)
            timings.append(replace(current, measured_as=sampled_as))
            if sampled_as is None:
                numerics += [replace(row, partition=part.id) for row in figures.numerics]
                cures[part.id] = figures.cure
        return PartitionFigures(tuple(timings), tuple(numerics), cures)


def _measured_by_content(
    run: int, partitions: Iterable[Partition], outcome: Outcome
) -> dict[PartitionContent, MeasuredPartition]:
    contents = {part.id: partition_content(part) for part in partitions}
    results = outcome.partition_results
    numerics = grouped((row.partition, row) for row in results.numerics)
    measured = {}
    for timing in results.timings:
        name = timing.measured_as or timing.partition
        if timing.partition in contents and name in contents:
            measured[contents[timing.partition]] = MeasuredPartition(
                timing, tuple(numerics.get(name, ())), results.cures.get(name), sampled=(run, contents[name])
            )
    return measured
