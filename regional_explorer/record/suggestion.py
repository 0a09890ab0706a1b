"""Suggested regions, with their reasons and how they relate to each other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum

from msgspec.structs import replace

from regional_explorer.record.figure import Figure
from regional_explorer.record.plan import Selector
from regional_explorer.record.record import Count, Quantity, Record, Seconds


class SuggestionKind(StrEnum):
    """The kind of a suggested region; ``CHAINS`` are ops between matrix products."""

    WHOLE = "whole"
    MODULES = "modules"
    CHAINS = "chains"
    NORMS = "norms"
    LOSS = "loss"


class Suggestion(Record, frozen=True):
    """A region that could be marked, with its facts before anything is compiled."""

    name: str
    """The name that the region would get."""
    kind: SuggestionKind
    """Its kind."""
    selectors: tuple[Selector, ...]
    """The selectors of the region."""
    why: str
    """Why it may be worth it."""
    ops: Count
    """How many ops of the program it picks."""
    fusable: Count
    """How many of these a compiler can fuse: neither matrix products nor views."""
    instances: Count
    """How many instances it would have."""
    distinct: Count
    """The number of instances that differ in ops or shapes and are compiled separately."""
    share: Quantity | None = None
    """The share of the profiled time of its ops, with their backward; None without a profile."""
    fusable_share: Quantity | None = None
    """The share of the profiled time of its fusable ops."""
    inside: tuple[str, ...] = ()
    """The suggestions that contain all of it, the smallest first."""
    overlaps: tuple[str, ...] = ()
    """The suggestions that share ops with it, neither containing the other."""
    gain_s: Figure | None = None
    """The seconds that each call would save, less the cost of the region's borders; None unless measured."""
    compile_s: Seconds | None = None
    """The seconds waited for its compile; None unless it was compiled."""
    why_not: str = ""
    """Why it was not measured although a measurement was requested."""

    @property
    def selection(self) -> str:
        """The selectors as text."""
        return ", ".join(map(str, self.selectors))

    @property
    def brings_nothing(self) -> bool:
        """Whether it was measured, and its gain is not certainly above zero."""
        return self.gain_s is not None and (self.gain_s.bounds or (0.0,))[0] <= 0.0

    @property
    def calls_to_pay_off(self) -> float | None:
        """The number of calls after which its compile pays off, infinite if never; None unless it was measured."""
        if self.gain_s is None or self.compile_s is None:
            return None
        return math.inf if self.brings_nothing else float(math.ceil(self.compile_s / self.gain_s.value))

    @property
    def relation(self) -> str:
        """Its relation to other suggestions: ``inside layers; overlaps chains``; the whole graph is not mentioned."""
        words = (("inside", self.inside[:-1][:1]), ("overlaps", self.overlaps))
        return "; ".join(f"{word} {', '.join(names)}" for word, names in words if names)


def best_first(suggestions: Iterable[Suggestion]) -> list[Suggestion]:
    """Return suggestions by their gain, then those whose gain is not known, as they were."""
    return sorted(suggestions, key=lambda one: -(one.gain_s.value if one.gain_s is not None else -math.inf))


def as_measured(suggestions: Iterable[Suggestion], measured: Sequence[Suggestion]) -> list[Suggestion]:
    """Return suggestions with the figures of those that were ``measured``, the best first."""
    known = {one.selectors: one for one in measured}
    return best_first(
        replace(one, gain_s=of.gain_s, compile_s=of.compile_s, why_not=of.why_not)
        for one in suggestions
        for of in [known.get(one.selectors, one)]
    )
