"""The regions of a plan: the table, and the open config editor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ipywidgets as widgets

from regional_explorer.record.region_summary import RegionSummary, region_summaries
from regional_explorer.record.session import Session
from regional_explorer.render.style.untrusted import sendable
from regional_explorer.ui.control import Control
from regional_explorer.ui.panel.config_box import ConfigBox
from regional_explorer.ui.panel.region_table import ordered, region_tree
from regional_explorer.ui.views.element_tree import ElementTree
from regional_explorer.ui.views.widget_tree import close_tree, keep_message_order


class RegionList:
    """The table of regions, with the config editor of the opened region below."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._session: Session | None = None
        self.summaries: tuple[RegionSummary, ...] = ()
        self.tree_widget = ElementTree(self._on_message)
        self.config: ConfigBox | None = None
        self.box = widgets.VBox([self.tree_widget])
        self.box.add_class("rx-regions")

    def show(self, control: Control) -> None:
        """Show the regions of the session and the state of the panel."""
        if control.session is not self._session:
            self._session = control.session
            self.summaries = region_summaries(control.session)
        self.tree_widget.tree = region_tree(self.summaries, control.state)
        self.box.layout.display = "" if self.summaries else "none"
        self._show_config(control)

    def _show_config(self, control: Control) -> None:
        # Made when opened: the list of keys is long.
        opened = control.state.opened
        if self.config is not None and self.config.name != opened:
            self.box.children = (self.tree_widget,)
            close_tree(self.config.box)
            self.config = None
        if opened is not None:
            if self.config is None:
                self.config = ConfigBox(control, opened)
                keep_message_order(self.config.box)
                self.box.children = (self.tree_widget, self.config.box)
            self.config.show(control.state, control.state.plan[opened])

    def _on_message(self, message: Mapping[str, Any]) -> None:
        with self._control.showing_errors():
            if message["do"] == "sort":
                self._control.change(self._control.state.sorted_by(message["of"]))
                return
            name = next((one.region.name for one in self.summaries if sendable(one.region.name) == message["of"]), None)
            if name is None:  # pressed before the page received that the region was removed
                return
            match message["do"]:
                case "switch":
                    change = self._control.exploration.enable if message["value"] else self._control.exploration.disable
                    self._control.edit(lambda _: change(name))
                case "remove":
                    self._control.edit(lambda ex: ex.unmark(name))
                case "open":
                    self._control.change(self._control.state.with_config_toggled(name))
                case "pick":
                    self._pick(name, message)

    def _pick(self, name: str, message: Mapping[str, Any]) -> None:
        state = self._control.state
        if message.get("shift"):
            shown = [one.region.name for one in ordered(self.summaries, state.sort)]
            self._control.change(state.with_range_selected(name, shown))
        elif message.get("ctrl"):
            self._control.change(state.with_row_toggled(name))
        else:
            self._control.change(state.with_rows_selected([name]))
