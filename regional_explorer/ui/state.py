"""The state of a panel as a frozen record; every change is a pure function that returns a new one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from regional_explorer.record.region import Direction, Plan, config_of

MOST_UNDONE = 100

Setting = tuple[str, Direction | None, str]
"""A region's name, the direction whose config it is, None for both, and a config key."""


@dataclass(frozen=True, slots=True)
class Refused:
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
class Sort:
    """By which column of the regions' table its rows are ordered."""

    column: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class PanelState:
    """Everything the panel shows but the session itself.

    ``picked`` are the regions whose rows are selected, ``opened`` is the one whose config is shown; without ``sort``
    rows are in the order of the plan.
    """

    plan: Plan
    past: tuple[Plan, ...] = ()
    future: tuple[Plan, ...] = ()
    picked: tuple[str, ...] = ()
    opened: str | None = None
    sort: Sort | None = None
    refusals: Mapping[Setting, Refused] = field(default_factory=dict)
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
            setting: refused
            for setting, refused in self.refusals.items()
            if setting[0] in plan and setting[0] in self.plan and _asked(plan, setting) == _asked(self.plan, setting)
        }
        renamed = _renamed(self.plan, plan)
        picked = tuple(name for one in self.picked if (name := renamed.get(one, one)) in plan)
        opened = renamed.get(self.opened or "", self.opened)
        return replace(
            self,
            plan=plan,
            past=past,
            future=future,
            picked=picked,
            opened=opened if opened is not None and opened in plan else None,
            refusals=kept,
            problem=None,
            note="",
        )

    # ---------------------------------------------------------------------------------------------------------- rows

    def picking(self, names: Iterable[str]) -> Self:
        """Select the rows of ``names`` and no others."""
        return replace(self, picked=tuple(dict.fromkeys(names)))

    def toggled(self, name: str) -> Self:
        """Select the row of ``name`` too, or no longer."""
        if name in self.picked:
            return self.picking(other for other in self.picked if other != name)
        return self.picking((*self.picked, name))

    def stretched(self, name: str, order: Sequence[str]) -> Self:
        """Select all rows from the one selected first to that of ``name``; ``order`` is how they are shown."""
        first = self.picked[0] if self.picked and self.picked[0] in order else name
        low, high = sorted((order.index(first), order.index(name)))
        between = order[low : high + 1]
        return self.picking((first, *between))

    def sorted_by(self, column: str) -> Self:
        """Order the rows by ``column``: upwards, the next time downwards, then as in the plan again."""
        if self.sort is None or self.sort.column != column:
            return replace(self, sort=Sort(column))
        return replace(self, sort=None if self.sort.descending else Sort(column, descending=True))

    # -------------------------------------------------------------------------------------------------------- fields

    def opening(self, name: str | None) -> Self:
        """Open the config of the region called ``name``; that of an open one is closed."""
        return replace(self, opened=None if name == self.opened else name)

    def refused(self, setting: Setting, text: str, error: str) -> Self:
        """Keep what was typed at ``setting``, and why it cannot be taken."""
        return replace(self, refusals={**self.refusals, setting: Refused(text, error)})

    def cleared(self, setting: Setting) -> Self:
        """Forget what was wrong at ``setting``."""
        return replace(self, refusals={other: refused for other, refused in self.refusals.items() if other != setting})

    # ---------------------------------------------------------------------------------------------------------- work

    def started(self, name: str, *, here: bool = False) -> Self:
        """Begin a job; what went wrong before is no longer shown."""
        return replace(self, job=Job(name, here=here), problem=None, note="")

    def progressed(self, doing: str, fraction: float) -> Self:
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


def _asked(plan: Plan, setting: Setting) -> object:
    name, direction, key = setting
    return config_of(plan[name], direction or Direction.FORWARD).get(key, "\0absent")


def _renamed(before: Plan, after: Plan) -> dict[str, str]:
    """Return old name and new where exactly one region has another name and all else stayed."""
    pairs = list(zip(before.regions, after.regions, strict=False))
    changed = [(one.name, other.name) for one, other in pairs if one != other]
    if len(before.regions) != len(after.regions) or len(changed) != 1:
        return {}
    return dict(changed) if changed[0][0] not in after else {}
