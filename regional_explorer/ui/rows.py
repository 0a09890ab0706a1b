"""The row of one region, and the config that opens below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ipywidgets as widgets

from regional_explorer.compiler.catalogue import COMMON, PRESETS, catalogue, check_key, inert_reason
from regional_explorer.errors import RegionalExplorerError
from regional_explorer.record.region import Region
from regional_explorer.render.figures import NONE, count
from regional_explorer.render.palette import paint
from regional_explorer.render.table import Cell
from regional_explorer.render.untrusted import SHORT, markup
from regional_explorer.ui.control import Control
from regional_explorer.ui.fields import Field, close_tree, first_value
from regional_explorer.ui.state import PanelState

GLYPHS = {"fresh": "✓", "stale": "↻", "eager": "○", "failed": "✗", "disabled": "○"}
"""Signs beside the words for how a region stands."""

_TONES = {"good": "rx-good", "bad": "rx-bad", "warn": "rx-warn", "quiet": "rx-quiet"}
MOST_CHIPS = 4


class RegionRow:
    """A region: its colour, switch, figures and state; below, when open, its config."""

    def __init__(self, control: Control, region: Region) -> None:
        self.name = region.name
        self._control = control
        self._showing = False
        self._swatch = widgets.HTML()
        self.switch = widgets.Checkbox(value=region.enabled, description=region.name, indent=False)
        self.switch.tooltip = f"Compile {region.name}; when off it runs eagerly"
        self.switch.observe(self._switched, names="value")
        self._facts = widgets.HTML()
        self.opener = widgets.Button(tooltip=f"Show and change the config of {region.name}")
        self.opener.on_click(lambda _: self._open())
        self.remover = widgets.Button(description="×", tooltip=f"Take the region {region.name} out of the plan")
        self.remover.add_class("rx-small")
        self.remover.on_click(lambda _: self._remove())
        self._line = widgets.Box([self._swatch, self.switch, self._facts, self.opener, self.remover])
        self._line.add_class("rx-row")
        self.config: ConfigBox | None = None
        self.box = widgets.VBox([self._line])
        self.box.add_class("rx-region")

    def show(self, state: PanelState, number: int, cells: Mapping[str, Cell]) -> None:
        """Show the region as number ``number`` of the plan; ``cells`` are those of its row in the table of regions."""
        region = state.plan[self.name]
        opened = state.selected == self.name
        self._showing = True
        try:
            self.switch.value = region.enabled
        finally:
            self._showing = False
        self._swatch.value = f'<span class="rx-chip rx-r{number}">{paint(number).letter}</span>'
        self._facts.value = _facts(region, cells)
        self.opener.description = "Close" if opened else f"Config ({len(region.config)})" if region.config else "Config"
        self.switch.disabled = self.remover.disabled = state.busy
        self._show_config(state, region, opened=opened)

    def _show_config(self, state: PanelState, region: Region, *, opened: bool) -> None:
        # Made when opened: the list of keys is long, and a plan may have many regions.
        if opened and self.config is None:
            self.config = ConfigBox(self._control, self.name)
            self.box.children = (self._line, self.config.box)
        elif not opened and self.config is not None:
            self.box.children = (self._line,)
            close_tree(self.config.box)
            self.config = None
        if self.config is not None:
            self.config.show(state, region)

    def _switched(self, _change: Any) -> None:
        if not self._showing:
            on = self.switch.value
            with self._control.guarded():
                self._control.edit(lambda ex: ex.enable(self.name) if on else ex.disable(self.name))

    def _open(self) -> None:
        with self._control.guarded():
            self._control.change(self._control.state.chosen(self.name))

    def _remove(self) -> None:
        with self._control.guarded():
            self._control.edit(lambda ex: ex.unmark(self.name))


class ConfigBox:
    """The config of one region: a field per key, and the search for another key."""

    def __init__(self, control: Control, name: str) -> None:
        self._control = control
        self._name = name
        self._device = control.session.environment.device.partition(":")[0].partition(" ")[0]
        self.fields: dict[str, Field] = {}
        self._fields = widgets.VBox()
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
        self.box = widgets.VBox([self._fields, adding, self.about])
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
        self.search.disabled = self.adder.disabled = self.preset.disabled = state.busy

    def _field(self, key: str, value: Any) -> Field:
        def take(text: str, read: Any) -> None:
            with self._control.guarded():
                self._control.set_config(self._name, key, text, read)

        def drop() -> None:
            with self._control.guarded():
                self._control.drop_config(self._name, key)

        return Field(catalogue()[key], value, take, drop)

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
                self._control.add_config(self._name, {key: first_value(entry)})
            except RegionalExplorerError as error:
                self.about.value = f'<span class="rx-bad" role="alert">✗ {markup(error)}</span>'
                return
            self.search.value = ""

    def _take_preset(self) -> None:
        name, self.preset.value = self.preset.value, ""
        if name:
            with self._control.guarded():
                values = PRESETS[name]
                self._control.edit(lambda ex: ex.configure(self._name, values) if values else ex.reset(self._name))


def _keys(device: str) -> list[str]:
    """Return every key that can be set for one region, those most worth trying first."""
    common = list(COMMON.get(device, COMMON["cuda"]))
    rest = sorted(key for key, entry in catalogue().items() if entry.refused is None and key not in common)
    return [key for key in common if key in catalogue()] + rest


def _facts(region: Region, cells: Mapping[str, Cell]) -> str:
    state = cells["state"]
    words = ", ".join(f"{GLYPHS.get(word, '')} {word}".strip() for word in state.text.split(", "))
    shown = list(region.config.items())
    chips = "".join(
        f'<span class="rx-key">{markup(key, SHORT)}={markup(repr(value), SHORT)}</span>'
        for key, value in shown[:MOST_CHIPS]
    )
    more = f'<span class="rx-quiet">and {len(shown) - MOST_CHIPS} more</span>' if len(shown) > MOST_CHIPS else ""
    forward, backward = cells["ops forward"].text, cells["ops backward"].text
    ops = count(int(forward), "op") if backward == NONE else f"{forward} + {backward} ops"
    partitions = count(int(cells["partitions"].text), "partition")
    return (
        f'<div class="rx-facts"><span class="{_TONES.get(state.tone, "")}">{markup(words)}</span>'
        f'<span title="ops in forward + backward">{markup(ops)}</span><span>{markup(partitions)}</span>'
        f"<span>{chips or '<span class=rx-quiet>default config</span>'}{more}</span></div>"
    )
