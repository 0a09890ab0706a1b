"""The summary of each region for every table and text: state, counts of ops and partitions, timing, compile time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from regional_explorer.record.diagnostic import Diagnostic, Severity
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.partition import Partition, State
from regional_explorer.record.region import Region
from regional_explorer.record.region_timing import RegionTiming, whole_region_timings
from regional_explorer.record.session import Session
from regional_explorer.record.timing import NumericsVerdict


@dataclass(frozen=True, slots=True)
class RegionSummary:
    """One region: what was requested (``region``), its partitions and state, and its figures.

    ``number`` is its index in the plan. ``state`` is that of its worst partition; ``note`` explains it further.
    ``compile_cold_s`` and ``compile_warm_s`` are None if it has no artifact of its own of that kind. ``timing`` is that
    of the whole call, None if the region was not measured in its current state.
    """

    number: int
    region: Region
    state: State
    note: str
    ops_forward: int
    ops_backward: int
    partitions: tuple[Partition, ...]
    compile_cold_s: float | None
    compile_warm_s: float | None
    timing: RegionTiming | None
    diagnostics: tuple[Diagnostic, ...]

    @property
    def artifacts(self) -> int:
        """How many artifacts its partitions run."""
        return len({part.artifact for part in self.partitions} - {None})

    @property
    def compile_s(self) -> float | None:
        """Seconds that its own artifacts took to compile, cold and warm."""
        return _total_s((self.compile_cold_s, self.compile_warm_s))

    @property
    def numerics(self) -> NumericsVerdict | None:
        """The worst verdict of the numerics checks of its partitions; None if there was no check."""
        return self.timing.numerics if self.timing else None

    @property
    def worst(self) -> Severity | None:
        """The severity of its worst diagnostic."""
        return max((diagnostic.severity for diagnostic in self.diagnostics), key=list(Severity).index, default=None)


def region_summaries(session: Session) -> tuple[RegionSummary, ...]:
    """Return one summary per region, in the order of the plan."""
    timings = whole_region_timings(session)
    return tuple(
        _region_summary(session, number, region, timings.get(region.name))
        for number, region in enumerate(session.plan.regions)
    )


def _region_summary(session: Session, number: int, region: Region, timing: RegionTiming | None) -> RegionSummary:
    members = session.members.get(region.name, {})
    ops = Counter[GraphKind]()
    for graph in session.graphs:
        ops[graph.kind] += len(members.get(graph.id, ()))
    forward, backward = ops[GraphKind.FORWARD] + ops[GraphKind.INFERENCE], ops[GraphKind.BACKWARD]
    partitions = tuple(part for part in session.partitions if part.region == region.name)
    counts = Counter(part.state for part in partitions)
    state = next((state for state in State if state in counts), State.EAGER if forward + backward else State.EMPTY)
    return RegionSummary(
        number=number,
        region=region,
        state=state,
        note=_state_note(region, state, counts),
        ops_forward=forward,
        ops_backward=backward,
        partitions=partitions,
        compile_cold_s=_total_s(part.compile_s for part in partitions if part.cache != "warm"),
        compile_warm_s=_total_s(part.compile_s for part in partitions if part.cache == "warm"),
        timing=timing,
        diagnostics=tuple(diagnostic for diagnostic in session.diagnostics if diagnostic.region == region.name),
    )


def _state_note(region: Region, state: State, counts: Mapping[State, int]) -> str:
    if not region.enabled:
        return "disabled"
    if len(counts) > 1:
        return ", ".join(f"{counts[part_state]} {part_state}" for part_state in State if part_state in counts)
    return "none of its ops could be cut out" if state is State.EAGER and not counts else ""


def _total_s(times_s: Iterable[float | None]) -> float | None:
    known = [time_s for time_s in times_s if time_s is not None]
    return sum(known) if known else None
