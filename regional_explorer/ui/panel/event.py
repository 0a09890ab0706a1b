"""An event that the panel's page sends, and the type of its handlers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from regional_explorer.ui.control import Control


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the page: its name, what it is about, the value of an input, and the modifier keys held."""

    do: str
    of: str = ""
    value: str | bool | None = None
    shift: bool = False
    ctrl: bool = False

    @property
    def text(self) -> str:
        """The text of an input; empty for a checkbox or a button."""
        return self.value if isinstance(self.value, str) else ""


Handler = Callable[[Control, Event], object]
"""Handles one kind of event: changes the state or the plan of the control, or starts a job."""
