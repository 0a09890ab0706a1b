"""Handles the events of the config editor: values, added and removed keys, presets, the direction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regional_explorer.compiler.config.catalogue import check_key
from regional_explorer.errors import RegionalExplorerError
from regional_explorer.record.presets import PRESETS
from regional_explorer.record.region import Direction, config_of
from regional_explorer.ui.control import Control
from regional_explorer.ui.panel.config_editor import BOTH_WAYS, first_value
from regional_explorer.ui.panel.event import Event, Handler
from regional_explorer.ui.state import PanelState, Setting


def _opened_config(state: PanelState) -> tuple[str, Direction | None]:
    """Return the region whose config is shown, and the direction.

    Raises:
        RegionalExplorerError: none is shown any more.
    """
    if state.opened is None:
        raise RegionalExplorerError("No config is open.")
    return state.opened, state.direction_of(state.plan[state.opened])


def _event_setting(control: Control, event: Event) -> Setting:
    return (*_opened_config(control.state), event.of)


def _set_value(control: Control, event: Event) -> None:
    control.set_config(_event_setting(control, event), event.value if isinstance(event.value, bool) else event.text)


def _choose_direction(control: Control, event: Event) -> None:
    """Show the config of the chosen direction; choosing both copies the forward's config to the backward."""
    name, _ = _opened_config(control.state)
    direction = None if event.text == BOTH_WAYS else Direction(event.text)
    region = control.state.plan[name]
    control.update(lambda state: replace(state, direction=direction))
    if direction is None and region.backward_config is not None:
        config = config_of(region, Direction.FORWARD)
        control.edit(lambda ex: ex.reset(name).configure(name, config))


def _apply_preset(control: Control, event: Event) -> None:
    if event.text in PRESETS:
        _configure_opened(control, PRESETS[event.text])


def _add_key(control: Control, event: Event) -> None:
    entry = check_key(event.of)
    _configure_opened(control, {entry.key: first_value(entry)})


def _configure_opened(control: Control, values: Mapping[str, Any]) -> None:
    """Merge ``values`` into the config shown, or reset it to Inductor's defaults if empty."""
    name, direction = _opened_config(control.state)
    control.edit(
        lambda ex: ex.configure(name, values, direction=direction) if values else ex.reset(name, direction=direction)
    )


CONFIG_EVENTS: Mapping[str, Handler] = {
    "direction": _choose_direction,
    "set": _set_value,
    "unset": lambda control, event: control.remove_config(_event_setting(control, event)),
    "preset": _apply_preset,
    "key query": lambda control, event: control.update(lambda state: replace(state, key_query=event.text)),
    "add": _add_key,
}
