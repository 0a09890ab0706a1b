"""The config that each region of a plan gets in each direction, by races of its pieces alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from regional_explorer.record.benchmark import Verdict
from regional_explorer.record.figure import Figure
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import Direction, Plan, config_of, config_texts, with_config
from regional_explorer.record.statistics import MIN_FLOOR


class TimedPiece(NamedTuple):
    """A kind of partition of a plan, with equal code on equal layouts; ``what`` identifies it for the bench."""

    partition: str
    region: str
    direction: Direction
    runs: int
    seconds: float
    what: Any = None

    @property
    def in_a_call(self) -> float:
        """The seconds that a call spends in partitions of this kind, by the time of one alone."""
        return self.runs * self.seconds


class Raced(NamedTuple):
    """A piece's speedup by another config, the median over rounds of the time before ÷ after, and the verdict."""

    speedup: Figure
    verdict: Verdict


Place = tuple[str, Direction]
"""A region in one direction, which has a config of its own in a plan."""


def best_changes(raced: Sequence[tuple[TimedPiece, Mapping[str, Raced]]]) -> dict[Place, str]:
    """Return the config change for each region and direction, if one makes its pieces faster.

    A region may have several kinds of pieces, and they share its config: it gets the change under which all of them,
    each as often as a call runs it, take the least time together. One of them has to be faster beyond doubt, and none
    may be wrong under it.
    """
    return {
        place: best
        for place, pieces in grouped(((one.region, one.direction), (one, results)) for one, results in raced).items()
        if (best := _best_change(pieces))
    }


def _best_change(pieces: Sequence[tuple[TimedPiece, Mapping[str, Raced]]]) -> str:
    now_s = sum(one.in_a_call for one, _ in pieces)
    known = [change for change in pieces[0][1] if all(change in results for _, results in pieces)]
    faster = [change for change in known if any(results[change].verdict is Verdict.FASTER for _, results in pieces)]
    then_s = {
        change: sum(one.in_a_call / results[change].speedup.value for one, results in pieces) for change in faster
    }
    best = min(then_s, key=then_s.__getitem__, default="")
    return best if best and then_s[best] < now_s * (1.0 - MIN_FLOOR) else ""


def with_changes(plan: Plan, changes: Mapping[Place, Mapping[str, Any]]) -> Plan:
    """Return the plan with ``changes`` on top of regions' own configs, each in one direction."""
    regions = []
    for region in plan.regions:
        for (name, direction), change in changes.items():
            if name == region.name:
                region = with_config(region, {**config_of(region, direction), **change}, direction)  # noqa: PLW2901
        regions.append(region)
    return replace(plan, regions=tuple(regions))


def in_words(changes: Mapping[Place, Mapping[str, Any]]) -> str:
    """Return for example ``attention backward max_fusion_size=16; mlp forward cpp.simdlen=256``."""
    return "; ".join(
        f"{name} {direction} {', '.join(config_texts(change))}" for (name, direction), change in changes.items()
    )
