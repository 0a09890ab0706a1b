"""What the panel shows, as a frozen record; every change is a pure function that returns a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from regional_explorer.record.region import Plan

MOST_UNDONE = 100

Place = tuple[str, str]
"""A region's name and a config key."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What was typed into a field and could not be taken, with the reason."""

    text: str
    error: str


@dataclass(frozen=True, slots=True)
class Job:
    """Work under way. ``here`` tells that a cell does it, so that only an interrupt of the kernel can end it."""

    name: str
    doing: str = ""
    fraction: float = 0.0
    cancelling: bool = False
    here: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as it is shown: one line or a few, and what to look into behind it."""

    text: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class PanelState:
    """Everything the panel shows but the session itself."""

    plan: Plan
    past: tuple[Plan, ...] = ()
    future: tuple[Plan, ...] = ()
    selected: str | None = None
    drafts: Mapping[Place, Draft] = field(default_factory=dict)
    job: Job | None = None
    problem: Problem | None = None
    note: str = ""

    @property
    def busy(self) -> bool:
        """Whether work is under way."""
        return self.job is not None

    # ---------------------------------------------------------------------------------------------------------- plan

    def edited(self, plan: Plan) -> Self:
        """Go over to ``plan``; the one before can be had back."""
        if plan == self.plan:
            return self
        return self._at(plan, (*self.past, self.plan)[-MOST_UNDONE:], ())

    def undone(self) -> Self:
        """Go back to the plan before."""
        if not self.past:
            return self
        return self._at(self.past[-1], self.past[:-1], (self.plan, *self.future))

    def redone(self) -> Self:
        """Go forward to the plan that was left by ``undone``."""
        if not self.future:
            return self
        return self._at(self.future[0], (*self.past, self.plan), self.future[1:])

    def _at(self, plan: Plan, past: tuple[Plan, ...], future: tuple[Plan, ...]) -> Self:
        # A field that has a value again, or has gone, has no wrong text any longer.
        kept = {
            place: draft
            for place, draft in self.drafts.items()
            if place[0] in plan and place[0] in self.plan and _asked(plan, place) == _asked(self.plan, place)
        }
        selected = self.selected if self.selected is not None and self.selected in plan else None
        return replace(self, plan=plan, past=past, future=future, drafts=kept, selected=selected, problem=None, note="")

    # -------------------------------------------------------------------------------------------------------- fields

    def chosen(self, name: str | None) -> Self:
        """Open the config of the region called ``name``; that of an open one is closed."""
        return replace(self, selected=None if name == self.selected else name)

    def refused(self, place: Place, text: str, error: str) -> Self:
        """Keep what was typed at ``place``, and why it cannot be taken."""
        return replace(self, drafts={**self.drafts, place: Draft(text, error)})

    def cleared(self, place: Place) -> Self:
        """Forget what was wrong at ``place``."""
        return replace(self, drafts={other: draft for other, draft in self.drafts.items() if other != place})

    # ---------------------------------------------------------------------------------------------------------- work

    def started(self, name: str, *, here: bool = False) -> Self:
        """Begin a job; what went wrong before is no longer shown."""
        return replace(self, job=Job(name, here=here), problem=None, note="")

    def told(self, doing: str, fraction: float) -> Self:
        """Note how far the job is."""
        if self.job is None:
            return self
        return replace(self, job=replace(self.job, doing=doing, fraction=min(1.0, max(0.0, fraction))))

    def cancelling(self) -> Self:
        """Note that the job was told to end."""
        return self if self.job is None else replace(self, job=replace(self.job, cancelling=True))

    def ended(self, note: str = "", problem: Problem | None = None) -> Self:
        """End the job."""
        return replace(self, job=None, note=note, problem=problem)

    def failed(self, problem: Problem | None) -> Self:
        """Show a problem, or with None no longer."""
        return replace(self, problem=problem)


def _asked(plan: Plan, place: Place) -> object:
    name, key = place
    return plan[name].config.get(key, "\0absent")
