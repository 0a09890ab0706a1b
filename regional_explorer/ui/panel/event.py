"""An event that the panel's page sends, and the kinds of events: what handles one, and which ones are handled."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from regional_explorer.record.codec import plan_line
from regional_explorer.record.session import Session
from regional_explorer.ui.control import Control


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the page: its name, what it is about, the value of an input, and the modifier keys held."""

    do: str
    of: str = ""
    value: object = None
    shift: bool = False
    ctrl: bool = False

    @property
    def text(self) -> str:
        """The text of an input; empty for a checkbox or a button."""
        return self.value if isinstance(self.value, str) else ""


Handler = Callable[[Control, Event], Sequence[str] | None]
"""Changes the state or the plan of the control, or starts a job; may return nodes, which the panel then shows."""


def as_sent(_control: Control, of: str) -> str:
    """Return ``of`` itself: nothing depends on it."""
    return of


def among(names: Container[str]) -> Callable[[Control, str], str | None]:
    """Return a function that returns what an event is about, None unless it is one of ``names``."""
    return lambda _control, of: of if of in names else None


def anything(_value: object) -> bool:
    """Return True: a button sends no value."""
    return True


def is_text(value: object) -> bool:
    """Return whether a value is that of a text field."""
    return isinstance(value, str)


def is_switch(value: object) -> bool:
    """Return whether a value is that of a checkbox."""
    return isinstance(value, bool)


def is_choice(names: Container[str]) -> Callable[[object], bool]:
    """Return a function that returns whether a value is one of a menu with ``names``."""
    return lambda value: isinstance(value, str) and value in names


def always(_control: Control) -> bool:
    """Return True."""
    return True


@dataclass(frozen=True, slots=True)
class EventKind:
    """One kind of event.

    A page may show an earlier state, or send what no page of ours does. So an event is ignored, before anything
    changes, if ``about`` returns None for its ``of``, because there is no such region, column or row, or no more; if
    ``value`` does not accept what was typed or chosen; or if it does not apply ``when`` it comes. ``handle`` gets the
    event with what ``about`` returned as its ``of``.
    """

    handle: Handler
    about: Callable[[Control, str], str | None] = as_sent
    value: Callable[[object], bool] = anything
    when: Callable[[Control], bool] = always


def run_key(run: Session) -> str:
    """Return what a page sends to name a measured plan, whose number changes when the oldest is dropped."""
    return hashlib.sha256(f"{run.shapes} {plan_line(run.plan)}".encode()).hexdigest()[:16]
