"""The input field of one config key, by its type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from regional_explorer.compiler.config.catalogue import ConfigKey, check_value, parse_value
from regional_explorer.errors import InvalidConfigValueError
from regional_explorer.render.style.untrusted import markup
from regional_explorer.ui.panel.key_list import key_facts
from regional_explorer.ui.state import InvalidInput

MAX_INT = 2**31 - 1

OnInput = Callable[[str, Callable[[str], Any]], None]
"""Called with the typed text and the function that parses it."""


class Field:
    """A labelled input for one key, with its type and default, a button that removes it, and an error message.

    ``inert`` is the reason why the key has no effect on this device, if it has none.
    """

    def __init__(
        self,
        entry: ConfigKey,
        value: Any,
        on_input: OnInput,
        on_remove: Callable[[], None],
        *,
        inert: str | None = None,
    ) -> None:
        self.key = entry.key
        self._entry = entry
        self._showing = False
        self.input = _input(entry, value)
        self.input.add_class("rx-input")
        self.input.observe(lambda _: self._changed(on_input), names="value")
        warning = f'<br><span class="rx-warn">! No effect here: {markup(inert)}.</span>' if inert else ""
        self._facts = widgets.HTML(f'<span class="rx-quiet">{markup(key_facts(entry), 90)}</span>{warning}')
        self._remove = widgets.Button(description="×", tooltip=f"Remove {entry.key} from the config")
        self._remove.add_class("rx-small")
        self._remove.on_click(lambda _: on_remove())
        self.error = widgets.HTML()
        self.error.add_class("rx-error-line")
        self.box = widgets.Box([self.input, self._facts, self._remove, self.error])
        self.box.add_class("rx-field")
        self.show(value, None, busy=False)

    def show(self, value: Any, invalid: InvalidInput | None, *, busy: bool) -> None:
        """Show ``value``, or the error of an invalid input."""
        self._showing = True
        try:
            if invalid is None:
                self.input.value = _widget_value(value, self.input)
            self.error.value = f'<span role="alert">✗ {markup(invalid.error)}</span>' if invalid else ""
            self.error.layout.display = "" if invalid else "none"
            self.input.disabled = self._remove.disabled = busy
            (self.input.add_class if invalid else self.input.remove_class)("rx-wrong")
        finally:
            self._showing = False

    def _changed(self, on_input: OnInput) -> None:
        if not self._showing:
            value = self.input.value
            on_input(str(value), lambda text: _parse(self._entry, value if not isinstance(value, str) else text))


def first_value(entry: ConfigKey) -> Any:
    """Return the initial value of a key that is added: the opposite of the default for a bool, else the default."""
    return not entry.default if isinstance(entry.default, bool) else entry.default


def _input(entry: ConfigKey, value: Any) -> Any:
    common = {"description": entry.key, "tooltip": entry.doc or entry.key, "style": {"description_width": "15em"}}
    if not _fits_widget(entry, value):
        return widgets.Text(continuous_update=False, placeholder=entry.type_name[:60], **common)
    if entry.choices:
        return widgets.Dropdown(options=[(str(choice), choice) for choice in entry.choices], value=value, **common)
    if entry.type_name == "True or False":
        return widgets.Checkbox(value=value, indent=False, **common)
    if entry.type_name == "an int":
        return widgets.BoundedIntText(value=value, min=-MAX_INT, max=MAX_INT, **common)
    return widgets.FloatText(value=value, **common)


def _fits_widget(entry: ConfigKey, value: Any) -> bool:
    """Return whether the widget for the key's type can show ``value``; if not, a text field is used."""
    if entry.choices:
        return value in entry.choices
    if entry.type_name == "True or False":
        return isinstance(value, bool)
    if entry.type_name == "an int":
        return isinstance(value, int) and abs(value) <= MAX_INT
    return entry.type_name == "a number" and isinstance(value, (int, float))


def _widget_value(value: Any, widget: Any) -> Any:
    if not isinstance(widget, widgets.Text):
        return value
    return value if isinstance(value, str) else repr(value)


def _parse(entry: ConfigKey, value: Any) -> Any:
    """Parse a typed value; a literal of another type is taken as text if the key accepts text."""
    if not isinstance(value, str) or entry.choices:
        return check_value(entry.key, value)
    try:
        return parse_value(entry.key, value)
    except InvalidConfigValueError as error:
        try:
            return check_value(entry.key, value)
        except InvalidConfigValueError:
            raise error from None
