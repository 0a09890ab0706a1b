"""Suggested regions, with their reasons and how they relate to each other."""

from __future__ import annotations

from enum import StrEnum

from regional_explorer.record.plan import Selector
from regional_explorer.record.record import Count, Quantity, Record


class SuggestionKind(StrEnum):
    """What a suggested region is made of; ``CHAINS`` are ops between matrix products."""

    WHOLE = "whole"
    MODULES = "modules"
    CHAINS = "chains"
    NORMS = "norms"
    LOSS = "loss"


class Suggestion(Record, frozen=True):
    """A region that could be marked, with what is known of it before anything is compiled."""

    name: str
    """The name that the region would get."""
    kind: SuggestionKind
    """What it is made of."""
    selectors: tuple[Selector, ...]
    """What it would pick."""
    why: str
    """Why it may be worth it."""
    ops: Count
    """How many ops of the program it picks."""
    fusable: Count
    """How many of these a compiler can fuse: neither matrix products nor views."""
    instances: Count
    """How many instances it would have."""
    distinct: Count
    """How many instances differ in their ops or shapes: what is to be compiled."""
    share: Quantity | None = None
    """The part of the profiled time that its ops take, with their backward; None without a profile."""
    fusable_share: Quantity | None = None
    """The part that the ops take which can be fused."""
    inside: tuple[str, ...] = ()
    """The suggestions that contain all of it, the smallest first, so the whole last."""
    overlaps: tuple[str, ...] = ()
    """The suggestions that share ops with it while each has ops of its own."""

    @property
    def selection(self) -> str:
        """The selectors as text."""
        return ", ".join(map(str, self.selectors))

    @property
    def relation(self) -> str:
        """How it lies to the others: ``inside layers; overlaps chains``; that the whole contains it is left out."""
        words = (("inside", self.inside[:-1][:1]), ("overlaps", self.overlaps))
        return "; ".join(f"{word} {', '.join(names)}" for word, names in words if names)
