"""The input field of one config key, by its type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from regional_explorer.compiler.config.catalogue import ConfigKey, check_value, parse_value
from regional_explorer.errors import InvalidConfigValueError
from regional_explorer.render.style.untrusted import markup
from regional_explorer.ui.panel.key_list import key_facts
from regional_explorer.ui.state import Refused

LARGEST = 2**31 - 1

Take = Callable[[str, Callable[[str], Any]], None]
"""Told what was typed, and how to read it."""


class Field:
    """A labelled input for one key, its type and default beside it, a button that takes it out, below what is wrong.

    ``inert`` tells why the key changes nothing on this device.
    """

    def __init__(
        self, entry: ConfigKey, value: Any, take: Take, drop: Callable[[], None], *, inert: str | None = None
    ) -> None:
        self.key = entry.key
        self._entry = entry
        self._showing = False
        self.input = _input(entry, value)
        self.input.add_class("rx-input")
        self.input.observe(lambda _: self._changed(take), names="value")
        warning = f'<br><span class="rx-warn">! No effect here: {markup(inert)}.</span>' if inert else ""
        self._facts = widgets.HTML(f'<span class="rx-quiet">{markup(key_facts(entry), 90)}</span>{warning}')
        self._drop = widgets.Button(description="×", tooltip=f"Take {entry.key} out of the config")
        self._drop.add_class("rx-small")
        self._drop.on_click(lambda _: drop())
        self.error = widgets.HTML()
        self.error.add_class("rx-error-line")
        self.box = widgets.Box([self.input, self._facts, self._drop, self.error])
        self.box.add_class("rx-field")
        self.show(value, None, busy=False)

    def show(self, value: Any, refused: Refused | None, *, busy: bool) -> None:
        """Show ``value``, or what was typed and is wrong."""
        self._showing = True
        try:
            if refused is None:
                self.input.value = _shown(value, self.input)
            self.error.value = f'<span role="alert">✗ {markup(refused.error)}</span>' if refused else ""
            self.error.layout.display = "" if refused else "none"
            self.input.disabled = self._drop.disabled = busy
            (self.input.add_class if refused else self.input.remove_class)("rx-wrong")
        finally:
            self._showing = False

    def _changed(self, take: Take) -> None:
        if not self._showing:
            value = self.input.value
            take(str(value), lambda text: _read(self._entry, value if not isinstance(value, str) else text))


def first_value(entry: ConfigKey) -> Any:
    """Return the value a key gets when it is added: a switch the other way round, else the default."""
    return not entry.default if isinstance(entry.default, bool) else entry.default


def _input(entry: ConfigKey, value: Any) -> Any:
    common = {"description": entry.key, "tooltip": entry.doc or entry.key, "style": {"description_width": "15em"}}
    if not _plain(entry, value):
        return widgets.Text(continuous_update=False, placeholder=entry.type_name[:60], **common)
    if entry.choices:
        return widgets.Dropdown(options=[(str(choice), choice) for choice in entry.choices], value=value, **common)
    if entry.type_name == "True or False":
        return widgets.Checkbox(value=value, indent=False, **common)
    if entry.type_name == "an int":
        return widgets.BoundedIntText(value=value, min=-LARGEST, max=LARGEST, **common)
    return widgets.FloatText(value=value, **common)


def _plain(entry: ConfigKey, value: Any) -> bool:
    """Tell whether a widget of the key's own type can hold ``value``; a text field holds any."""
    if entry.choices:
        return value in entry.choices
    if entry.type_name == "True or False":
        return isinstance(value, bool)
    if entry.type_name == "an int":
        return isinstance(value, int) and abs(value) <= LARGEST
    return entry.type_name == "a number" and isinstance(value, (int, float))


def _shown(value: Any, widget: Any) -> Any:
    if not isinstance(widget, widgets.Text):
        return value
    return value if isinstance(value, str) else repr(value)


def _read(entry: ConfigKey, value: Any) -> Any:
    """Read what was typed; where a literal of another type is meant as text, it is text."""
    if not isinstance(value, str) or entry.choices:
        return check_value(entry.key, value)
    try:
        return parse_value(entry.key, value)
    except InvalidConfigValueError as error:
        try:
            return check_value(entry.key, value)
        except InvalidConfigValueError:
            raise error from None
