"""The config of one region: a field per key, the search for another key, presets, and the same as Python."""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from regional_explorer.compiler.catalogue import COMMON, PRESETS, catalogue, check_key, inert_reason
from regional_explorer.errors import RegionalExplorerError
from regional_explorer.record.region import Region
from regional_explorer.render.untrusted import markup
from regional_explorer.ui.control import Control
from regional_explorer.ui.fields import Field, close_tree, first_value
from regional_explorer.ui.sheet import Sheet, Tree, node
from regional_explorer.ui.state import PanelState


class ConfigBox:
    """The config of one region: a field per key, and the search for another key."""

    def __init__(self, control: Control, name: str) -> None:
        self._control = control
        self.name = name
        self._device = control.session.environment.device.partition(":")[0].partition(" ")[0]
        self.fields: dict[str, Field] = {}
        self._title = widgets.HTML(f"<h4>Config of {markup(name)}</h4>")
        self._fields = widgets.VBox()
        self.python = Sheet(lambda _: None)
        self.search = widgets.Combobox(
            description="Add a key", placeholder="type to search", options=_keys(self._device), ensure_option=False
        )
        self.search.style.description_width = "15em"
        self.search.add_class("rx-input")
        self.search.observe(lambda _: self._tell_key(), names="value")
        self.adder = widgets.Button(description="Add", tooltip="Add this key to the config")
        self.adder.on_click(lambda _: self._add())
        self.preset = widgets.Dropdown(options=["", *PRESETS], description="or a preset")
        self.preset.observe(lambda _: self._take_preset(), names="value")
        self.about = widgets.HTML()
        self.about.add_class("rx-about")
        adding = widgets.Box([self.search, self.adder, self.preset])
        adding.add_class("rx-adding")
        self.box = widgets.VBox([self._title, self._fields, adding, self.about, self.python])
        self.box.add_class("rx-config")

    def show(self, state: PanelState, region: Region) -> None:
        """Show the fields of ``region``."""
        for key in [key for key in self.fields if key not in region.config]:
            close_tree(self.fields.pop(key).box)
        for key, value in region.config.items():
            if key not in self.fields:
                self.fields[key] = self._field(key, value)
            self.fields[key].show(value, state.drafts.get((region.name, key)), busy=state.busy)
        shown = tuple(self.fields[key].box for key in region.config)
        if self._fields.children != shown:
            self._fields.children = shown
        self.python.tree = _as_python(region)
        self.search.disabled = self.adder.disabled = self.preset.disabled = state.busy

    def _field(self, key: str, value: Any) -> Field:
        def take(text: str, read: Any) -> None:
            with self._control.guarded():
                self._control.set_config(self.name, key, text, read)

        def drop() -> None:
            with self._control.guarded():
                self._control.drop_config(self.name, key)

        return Field(catalogue()[key], value, take, drop, inert=inert_reason(key, self._device))

    def _tell_key(self) -> None:
        key = self.search.value.strip()
        known = catalogue().get(key)
        if known is None:
            self.about.value = ""
            return
        refused = f"cannot be set for one region: {known.refused}." if known.refused else ""
        inert = inert_reason(key, self._device) or ""
        facts = f"{known.type_name}, default {known.default!r}"
        self.about.value = (
            f"<code>{markup(key)}</code> {markup(facts)}<br>{markup(known.doc, 600)}"
            + (f'<br><span class="rx-bad">✗ {markup(refused)}</span>' if refused else "")
            + (f'<br><span class="rx-warn">! No effect here: {markup(inert)}.</span>' if inert else "")
        )

    def _add(self) -> None:
        key = self.search.value.strip()
        with self._control.guarded():
            if not key:
                self.about.value = "Type the name of a key, or choose one from the list."
                return
            try:
                entry = check_key(key)
                self._control.add_config(self.name, {key: first_value(entry)})
            except RegionalExplorerError as error:
                self.about.value = f'<span class="rx-bad" role="alert">✗ {markup(error)}</span>'
                return
            self.search.value = ""

    def _take_preset(self) -> None:
        name, self.preset.value = self.preset.value, ""
        if name:
            with self._control.guarded():
                values = PRESETS[name]
                self._control.edit(lambda ex: ex.configure(self.name, values) if values else ex.reset(self.name))


def _keys(device: str) -> list[str]:
    """Return every key that can be set for one region, those most worth trying first."""
    common = list(COMMON.get(device, COMMON["cuda"]))
    rest = sorted(key for key, entry in catalogue().items() if entry.refused is None and key not in common)
    return [key for key in common if key in catalogue()] + rest


def _as_python(region: Region) -> list[Tree]:
    """Return the config as a line of Python to read and to copy."""
    if not region.config:
        return []
    text = f"ex.configure({region.name!r}, {dict(region.config)!r})"
    button = node("button", "Copy as Python", type="button", data_do="copy", data_of=text)
    return [node("div", node("code", text), button, class_="rx-python")]
