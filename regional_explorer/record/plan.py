"""The plan: the ordered regions, how they are cut into partitions, and edits that return a new plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from regional_explorer.errors import PlanError, UnknownRegionError, did_you_mean
from regional_explorer.errors.arguments import check_argument, shown_value
from regional_explorer.record.region import Direction, Region, checked_items, require_name, with_config


class Cut(StrEnum):
    """How regions become partitions.

    ``INSTANCES``: one per instance, with the sums of gradients that belong to it. ``MARKED``: one per instance, of
    marked ops only; sums of gradients run eagerly, as in upstream. ``UPSTREAM``: merged as upstream does.
    """

    INSTANCES = "instances"
    MARKED = "marked"
    UPSTREAM = "upstream"


@dataclass(frozen=True, slots=True)
class Plan:
    """The ordered regions. If two regions select a node, the later one gets it. Every edit returns a new plan."""

    regions: tuple[Region, ...] = ()
    cut: Cut = Cut.INSTANCES

    def __post_init__(self) -> None:
        """Check the fields; names are unique.

        Raises:
            PlanError: an item is not a region, two regions have the same name, or the cut does not exist.
        """
        object.__setattr__(self, "regions", checked_items("regions of a plan", self.regions, Region))
        duplicates = [name for name, count in Counter(region.name for region in self.regions).items() if count > 1]
        if duplicates:
            raise PlanError(f"Two regions are called {duplicates[0]!r}: give each a name of its own.")
        cuts = [str(cut) for cut in Cut]
        if not isinstance(self.cut, str) or self.cut not in cuts:
            raise PlanError(f"cut={shown_value(self.cut)}: give {' or '.join(map(repr, cuts))}.")
        object.__setattr__(self, "cut", Cut(self.cut))

    def __getitem__(self, name: str) -> Region:
        """Return the region called ``name``.

        Raises:
            UnknownRegionError: there is none; the message lists similar names.
        """
        for region in self.regions:
            if region.name == name:
                return region
        names = [region.name for region in self.regions]
        listed = f" Regions: {', '.join(names)}." if names else " There is no region yet."
        raise UnknownRegionError(f"No region is called {shown_value(name)}.{did_you_mean(name, names)}{listed}")

    def __contains__(self, name: object) -> bool:
        """Return whether a region is called ``name``."""
        return any(region.name == name for region in self.regions)

    @property
    def numbers(self) -> Mapping[str, int]:
        """The number of each region by name: its place, colour and letter."""
        return {region.name: number for number, region in enumerate(self.regions)}

    def added(self, region: Region) -> Plan:
        """Return the plan with ``region`` at its end, replacing one of the same name."""
        check_argument("region", region, Region, "an rx.Region", PlanError)
        other_regions = tuple(other for other in self.regions if other.name != region.name)
        return replace(self, regions=(*other_regions, region))

    def removed(self, name: str) -> Plan:
        """Return the plan without the region called ``name``."""
        gone = self[name]
        return replace(self, regions=tuple(region for region in self.regions if region is not gone))

    def replaced(self, names: Collection[str], *regions: Region) -> Plan:
        """Return the plan with ``regions`` in place of the first of those called ``names``, without the others.

        Raises:
            PlanError: another region has the name of one of them, or ``names`` is empty.
        """
        check_argument("names", names, (tuple, list, set, frozenset, Mapping), "the names as a list", PlanError)
        old_regions = {name: self[name] for name in names}
        if not old_regions:
            raise PlanError("Give the names of the regions to replace.")
        kept_regions = [region for region in self.regions if region.name not in old_regions]
        for region in regions:
            check_argument("region", region, Region, "an rx.Region", PlanError)
            if any(region.name == other.name for other in kept_regions):
                raise PlanError(f"A region called {region.name!r} exists already: give another name.")
        position = next(index for index, region in enumerate(self.regions) if region.name in old_regions)
        return replace(self, regions=(*kept_regions[:position], *regions, *kept_regions[position:]))

    def changed(self, name: str, /, **fields: Any) -> Plan:
        """Return the plan with ``fields`` of the region called ``name`` replaced."""
        old = self[name]
        if unknown := sorted(fields.keys() - old.__dataclass_fields__.keys()):
            raise PlanError(f"A region has no {unknown[0]!r}.{did_you_mean(unknown[0], old.__dataclass_fields__)}")
        new_name = fields.get("name", name)
        if new_name != name:
            require_name(new_name)
            if new_name in self:
                raise PlanError(f"Cannot rename {name!r} to {new_name!r}: a region of that name exists already.")
        return self._with_region(old, replace(old, **fields))

    def configured(self, name: str, config: Mapping[str, Any], direction: Direction | None = None) -> Plan:
        """Return the plan with ``config`` as that of the region called ``name``, for one direction or for both."""
        return self._with_region(self[name], with_config(self[name], config, direction))

    def _with_region(self, old: Region, new: Region) -> Plan:
        return replace(self, regions=tuple(new if region is old else region for region in self.regions))
