"""Events of the page and their kinds: when a kind applies, and what handles it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sized
from dataclasses import dataclass

from regional_explorer.errors import sendable
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

    @property
    def names(self) -> list[str]:
        """The names in a list; empty for any other value."""
        return self.value if isinstance(self.value, list) else []


def one_of(names: Callable[[Control], Iterable[str]]) -> Callable[[Control, str], str | None]:
    """Return a function that returns what an event is about if it is one of ``names`` now, else None."""
    return lambda control, of: of if of in names(control) else None


def numbers_of(rows: Sized) -> Iterable[str]:
    """Return the numbers of rows, as a page sends them."""
    return map(str, range(len(rows)))


def is_text(value: object) -> bool:
    """Return whether a value comes from a text field."""
    return isinstance(value, str)


def is_flag(value: object) -> bool:
    """Return whether a value comes from a checkbox."""
    return isinstance(value, bool)


def are_names(value: object) -> bool:
    """Return whether a value is a list of names."""
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def is_choice(names: Container[str]) -> Callable[[object], bool]:
    """Return a function that returns whether a value is one of a menu's ``names``."""
    return lambda value: isinstance(value, str) and value in names


@dataclass(frozen=True, slots=True)
class EventKind:
    """One kind of event.

    A page may show an earlier state, or send what no page of ours does. So an event is ignored, before anything
    changes, if ``about`` returns None for its ``of``, because there is no such region, column or row, or no more; if
    ``value`` does not accept what was typed or chosen; or if it does not apply ``when`` it comes. ``handle`` gets the
    event with what ``about`` returned as its ``of``.
    """

    handle: Callable[[Control, Event], None]
    about: Callable[[Control, str], str | None] = lambda _control, of: of
    value: Callable[[object], bool] = lambda _value: True
    when: Callable[[Control], bool] = lambda _control: True


def region_of(control: Control, of: str) -> str | None:
    """Return the name of the region whose row sent ``of``."""
    return next((region.name for region in control.state.plan.regions if sendable(region.name) == of), None)
