"""Which patterns of Inductor's passes matched: in the trace, in each region, and in plain ``torch.compile``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from regional_explorer.record.benchmark import CompileCost, VariantName
from regional_explorer.record.partition import Partition, State
from regional_explorer.record.session import Session


@dataclass(frozen=True)
class PatternMatches:
    """How often one pattern matched; None if unknown."""

    name: str
    """The name of the function in Inductor that makes the pattern, or that replaces its matches."""
    trace: int
    """The count in the passes that ran when the call was traced."""
    regions: Mapping[str, int | None]
    """The count in each region, over all its partitions."""
    full: int | None
    """The count in the whole call under plain ``torch.compile``."""

    @property
    def is_lost(self) -> bool:
        """Whether it matched only in plain ``torch.compile``; False if that or a region's count is unknown."""
        return bool(self.full) and not self.trace and all(matches == 0 for matches in self.regions.values())


def pattern_match_counts(session: Session) -> list[PatternMatches]:
    """Return the patterns that matched anywhere, the most frequent first, idle patterns last."""
    trace = _sum_of(graph.patterns for graph in session.graphs) or Counter()
    regions, cost = region_patterns(session), full_compile(session)
    full = None if cost is None else cost.patterns
    found = sum(map(Counter, filter(None, (trace, *regions.values(), full))), Counter[str]())
    rows = (
        PatternMatches(
            name,
            trace[name],
            {region: None if matches is None else matches[name] for region, matches in regions.items()},
            None if full is None else full.get(name, 0),
        )
        for name, _ in found.most_common()
    )
    return sorted(rows, key=lambda row: is_idle(row.name))


def is_idle(name: str) -> bool:
    """Return whether a pattern only removes ops that compute nothing."""
    return name.startswith(("pointless_convert", "pointless_permute", "pointless_view"))


def region_patterns(session: Session) -> dict[str, Counter[str] | None]:
    """Return how often each pattern matched in each region; None if unknown."""
    return {
        region.name: _sum_of(_matches_of(session, part) for part in session.partitions if part.region == region.name)
        for region in session.plan.regions
    }


def full_compile(session: Session) -> CompileCost | None:
    """Return the cost of the compile by plain ``torch.compile``; None if the call was not compiled by it."""
    return next((cost for cost in session.variant_costs if cost.what == VariantName.FULL), None)


def _matches_of(session: Session, partition: Partition) -> Mapping[str, int] | None:
    if (artifact := session.artifact_of(partition)) is not None:
        return artifact.patterns
    return None if partition.state is State.STALE else {}


def _sum_of(matches: Iterable[Mapping[str, int] | None]) -> Counter[str] | None:
    """Return the sum; None if a part is None."""
    parts = list(matches)
    known = [Counter(part) for part in parts if part is not None]
    return sum(known, Counter[str]()) if len(known) == len(parts) else None
