"""Edits of the config of the open region."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regional_explorer.compiler.region_config import catalogue, check_key, parse_value
from regional_explorer.errors import RegionalExplorerError
from regional_explorer.record.configs import PRESETS
from regional_explorer.record.plan import DEFAULT, Direction, config_of
from regional_explorer.ui.config_editor import BOTH_WAYS, DIRECTION_OPTIONS
from regional_explorer.ui.control import Control
from regional_explorer.ui.event import Event, EventKind, is_choice, is_flag, is_text
from regional_explorer.ui.state import InvalidInput, PanelState, Setting


def _opened_config(control: Control) -> tuple[str, Direction | None]:
    """Return the region and the direction whose config is shown."""
    region = control.state.plan[control.state.opened or ""]
    return region.name, control.state.direction_of(region)


def without_error(state: PanelState, setting: Setting) -> PanelState:
    """Return ``state`` without the invalid text of ``setting``."""
    invalid = {other: text for other, text in state.invalid_inputs.items() if other != setting}
    return replace(state, invalid_inputs=invalid)


def show_invalid(control: Control, setting: Setting, invalid: InvalidInput) -> None:
    """Show the invalid text of ``setting``, with its error."""
    control.set(invalid_inputs={**control.state.invalid_inputs, setting: invalid})


def _set_value(control: Control, event: Event) -> None:
    """Set a config value from the typed text; an invalid value is shown with its error at its field."""
    region, direction = _opened_config(control)
    config = config_of(control.state.plan[region], direction or Direction.FORWARD)
    setting, typed = (region, direction, event.of), event.value if isinstance(event.value, bool) else event.text
    try:
        value = parse_value(event.of, typed)
    except RegionalExplorerError as error:
        show_invalid(control, setting, InvalidInput(str(typed), str(error)))
        return
    if event.of not in config and value == catalogue()[event.of].default:  # a field that was added, and left at it
        control.update(lambda state: without_error(state, setting))
        return
    control.edit(
        lambda ex: ex.configure(region, {event.of: value}, direction=direction),
        lambda state, plan: without_error(state.edited(plan), setting),
    )


def _unset_value(control: Control, event: Event) -> None:
    region, direction = _opened_config(control)
    control.edit(
        lambda ex: ex.configure(region, {event.of: DEFAULT}, direction=direction),
        lambda state, plan: without_error(
            replace(state.edited(plan), added_keys=tuple(key for key in state.added_keys if key != event.of)),
            (region, direction, event.of),
        ),
    )


def _choose_direction(control: Control, event: Event) -> None:
    """Show the config of the chosen direction; choosing both copies the forward's config to the backward."""
    region = control.state.plan[control.state.opened or ""]
    direction = None if event.text == BOTH_WAYS else Direction(event.text)
    control.set(direction=direction)
    if direction is None and region.backward_config is not None:
        config = config_of(region, Direction.FORWARD)
        control.edit(lambda ex: ex.reset(region.name).configure(region.name, config))


def _configure_opened(control: Control, values: Mapping[str, Any]) -> None:
    """Merge ``values`` into the config shown, or reset it to Inductor's defaults if empty."""
    name, direction = _opened_config(control)
    control.edit(
        lambda ex: ex.configure(name, values, direction=direction) if values else ex.reset(name, direction=direction)
    )


def _add_key(control: Control, event: Event) -> None:
    """Flip a flag from its default; for other keys, show a field for the value."""
    entry = check_key(event.of)
    if isinstance(entry.default, bool):
        _configure_opened(control, {entry.key: not entry.default})
    else:
        control.update(lambda state: replace(state, added_keys=(*state.added_keys, entry.key)))


def _known_key(_control: Control, of: str) -> str | None:
    return of if of in catalogue() else None


def _is_open(control: Control) -> bool:
    return control.state.opened is not None


CONFIG_EVENTS: Mapping[str, EventKind] = {
    "direction": EventKind(_choose_direction, value=is_choice([name for name, _ in DIRECTION_OPTIONS]), when=_is_open),
    "set": EventKind(_set_value, _known_key, lambda value: is_text(value) or is_flag(value), _is_open),
    "unset": EventKind(_unset_value, _known_key, when=_is_open),
    "preset": EventKind(
        lambda control, event: _configure_opened(control, PRESETS[event.text]), value=is_choice(PRESETS), when=_is_open
    ),
    "key query": EventKind(lambda control, event: control.set(key_query=event.text), value=is_text),
    "add": EventKind(_add_key, when=_is_open),  # an unknown key is told with those that resemble it
}
