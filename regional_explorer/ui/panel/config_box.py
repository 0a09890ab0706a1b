"""The config editor of one region: a field per key, keys to add, presets, and the config as Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ipywidgets as widgets

from regional_explorer.compiler.config.catalogue import PRESETS, catalogue, check_key, inert_reason
from regional_explorer.export.plan_source import configure_calls
from regional_explorer.record.region import Direction, Region, config_of
from regional_explorer.render.style.untrusted import markup
from regional_explorer.ui.control import Control
from regional_explorer.ui.panel.fields import Field, first_value
from regional_explorer.ui.panel.key_list import key_tree
from regional_explorer.ui.state import PanelState, Setting
from regional_explorer.ui.views.element_tree import ElementTree, Tree, node
from regional_explorer.ui.views.widget_tree import close_tree, keep_message_order

DIRECTIONS = (("forward and backward", None), ("forward", Direction.FORWARD), ("backward", Direction.BACKWARD))


class ConfigBox:
    """The config of one region: a field per key, and the list of keys to add.

    ``direction`` is that of the config being edited, or None if one config applies to both.
    """

    def __init__(self, control: Control, name: str) -> None:
        self._control = control
        self.name = name
        self.direction: Direction | None = None
        self._device = control.session.environment.device_type
        self.fields: dict[str, Field] = {}
        self._listed_for: tuple[Any, ...] = ()
        self._title = widgets.HTML(f"<h4>Config of {markup(name)}</h4>")
        self._empty = widgets.HTML("<span class='rx-quiet'>No keys set: Inductor's defaults apply.</span>")
        self._fields = widgets.VBox()
        self.directions = widgets.Dropdown(options=DIRECTIONS, description="Config of")
        self.directions.observe(lambda _: self._on_direction(), names="value")
        self.directions.style.description_width = "15em"
        self.directions.add_class("rx-input")
        self.directions.layout.display = "" if control.session.grad else "none"
        self._showing = False
        self.preset = widgets.Dropdown(options=["", *PRESETS], description="Apply a preset")
        self.preset.observe(lambda _: self._apply_preset(), names="value")
        self.preset.style.description_width = "15em"
        self.preset.add_class("rx-input")
        self.python = ElementTree(lambda _: None)
        self.search = widgets.Text(description="Add a key", placeholder="search name, type or text")
        self.search.add_class("rx-key-search")
        self.search.observe(lambda _: self._list_keys(), names="value")
        self.keys = ElementTree(self._on_message)
        mine = widgets.VBox([self._title, self.directions, self._empty, self._fields, self.preset, self.python])
        others = widgets.VBox([self.search, self.keys])
        self.box = widgets.Box([mine, others])
        self.box.add_class("rx-config")

    def show(self, state: PanelState, region: Region) -> None:
        """Show the fields of ``region``."""
        if self.direction is None and region.backward_config is not None:
            self._close_fields()
            self.direction = Direction.FORWARD
        config = config_of(region, self.direction or Direction.FORWARD)
        for key in [key for key in self.fields if key not in config]:
            close_tree(self.fields.pop(key).box)
        for key, value in config.items():
            if key not in self.fields:
                self.fields[key] = self._field(key, value)
            self.fields[key].show(value, state.invalid_inputs.get(self._setting(key)), busy=state.busy)
        shown = tuple(self.fields[key].box for key in config)
        if self._fields.children != shown:
            self._fields.children = shown
            keep_message_order(self._fields)
        self._empty.layout.display = "none" if shown else ""
        self.python.tree = _as_python(region)
        self._showing = True
        self.directions.value = self.direction
        self._showing = False
        self.preset.disabled = self.directions.disabled = state.busy
        self._list_keys()

    def _setting(self, key: str) -> Setting:
        return self.name, self.direction, key

    def _close_fields(self) -> None:
        """Close all fields: a key may need another widget for its value in the other direction."""
        for key in list(self.fields):
            close_tree(self.fields.pop(key).box)

    def _on_direction(self) -> None:
        """Show the config of the chosen direction; choosing both copies the forward's config to the backward."""
        if self._showing:
            return
        with self._control.showing_errors():
            self._close_fields()
            self.direction = self.directions.value
            region = self._control.state.plan[self.name]
            if self.direction is None and region.backward_config is not None:
                config = config_of(region, Direction.FORWARD)
                self._control.edit(lambda ex: ex.reset(self.name).configure(self.name, config))
            self.show(self._control.state, self._control.state.plan[self.name])

    def _field(self, key: str, value: Any) -> Field:
        def on_input(text: str, read: Any) -> None:
            with self._control.showing_errors():
                self._control.set_config(self._setting(key), text, read)

        def on_remove() -> None:
            with self._control.showing_errors():
                self._control.remove_config(self._setting(key))

        return Field(catalogue()[key], value, on_input, on_remove, inert=inert_reason(key, self._device))

    def _list_keys(self) -> None:
        state = self._control.state
        taken: tuple[str, ...] = ()
        if self.name in state.plan:
            taken = tuple(config_of(state.plan[self.name], self.direction or Direction.FORWARD))
        wanted = self.search.value, self._device, taken, state.busy
        if wanted != self._listed_for:  # rebuilding an unchanged list would take time from a running benchmark
            self._listed_for = wanted
            self.keys.tree = key_tree(self.search.value, self._device, taken, busy=state.busy)

    def _on_message(self, message: Mapping[str, Any]) -> None:
        with self._control.showing_errors():
            if message["do"] == "add":
                entry = check_key(message["of"])
                self._edit({entry.key: first_value(entry)})

    def _apply_preset(self) -> None:
        name, self.preset.value = self.preset.value, ""
        if name:
            with self._control.showing_errors():
                self._edit(PRESETS[name])

    def _edit(self, values: Mapping[str, Any]) -> None:
        """Merge ``values`` into the config shown, or reset it to Inductor's defaults if empty."""
        name, direction = self.name, self.direction
        self._control.edit(
            lambda ex: (
                ex.configure(name, values, direction=direction) if values else ex.reset(name, direction=direction)
            )
        )


def _as_python(region: Region) -> list[Tree]:
    """Return the configs as Python code with a copy button."""
    text = "\n".join(configure_calls(region))
    if not text:
        return []
    button = node("button", "Copy as Python", type="button", data_do="copy", data_of=text)
    return [node("div", node("code", text), button, class_="rx-python")]
