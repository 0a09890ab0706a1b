"""Handles the events of the config editor: values, added and removed keys, presets, the direction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regional_explorer.compiler.config.catalogue import catalogue, check_key
from regional_explorer.errors import RegionalExplorerError
from regional_explorer.record.presets import PRESETS
from regional_explorer.record.region import Direction, config_of
from regional_explorer.ui.control import Control
from regional_explorer.ui.panel.config_editor import BOTH_WAYS, DIRECTION_OPTIONS, first_value
from regional_explorer.ui.panel.event import Event, EventKind, is_choice, is_switch, is_text
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


def _known_key(_control: Control, of: str) -> str | None:
    return of if of in catalogue() else None


CONFIG_EVENTS: Mapping[str, EventKind] = {
    "direction": EventKind(_choose_direction, value=is_choice([name for name, _ in DIRECTION_OPTIONS])),
    "set": EventKind(_set_value, _known_key, lambda value: is_text(value) or is_switch(value)),
    "unset": EventKind(lambda control, event: control.remove_config(_event_setting(control, event)), _known_key),
    "preset": EventKind(_apply_preset, value=is_choice(PRESETS)),
    "key query": EventKind(
        lambda control, event: control.update(lambda state: replace(state, key_query=event.text)), value=is_text
    ),
    "add": EventKind(_add_key),  # an unknown key is told with those that resemble it
}
"""Events of the config editor."""
