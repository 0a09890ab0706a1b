"""The config editor of one region: a field per key, keys to add, presets, and the config as Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regional_explorer.compiler.config.catalogue import ConfigKey, catalogue, inert_reason
from regional_explorer.record.presets import PRESETS
from regional_explorer.record.region import Direction, Region, config_of
from regional_explorer.render.report.plan_source import configure_calls
from regional_explorer.render.style.element import Node, node, verbatim
from regional_explorer.render.style.untrusted import SHORT, clean, clean_page
from regional_explorer.ui.panel.controls import alert, button, choice, copy_python_button, field
from regional_explorer.ui.panel.key_list import key_facts, key_list, no_effect
from regional_explorer.ui.state import InvalidInput, Setting

BOTH_WAYS = "both"
DIRECTION_OPTIONS = (
    (BOTH_WAYS, "forward and backward"),
    (str(Direction.FORWARD), "forward"),
    (str(Direction.BACKWARD), "backward"),
)


def config_editor(
    *,
    region: Region | None,
    direction: Direction | None = None,
    invalid: Mapping[Setting, InvalidInput] | None = None,
    query: str = "",
    device: str = "",
    grad: bool = False,
    busy: bool = False,
) -> list[Node]:
    """Return the fields of a region's config, and the list of keys to add.

    Args:
        region: the region.
        direction: whose config is shown; None if one config applies to forward and backward.
        invalid: invalid texts of fields, with their errors.
        query: which keys to list.
        device: type of the device.
        grad: whether there is a backward graph.
        busy: whether a job is running.
    """
    if region is None:
        return [node("p", "Select a region: its config is shown here.", class_="rx-quiet")]
    config = config_of(region, direction or Direction.FORWARD)
    fields = [
        _key_field(key, value, (invalid or {}).get((region.name, direction, key)), device=device, busy=busy)
        for key, value in config.items()
    ]
    config_elements = [
        node("h4", f"Config of {clean(region.name)}"),
        *([choice("Config of", "direction", DIRECTION_OPTIONS, direction or BOTH_WAYS, disabled=busy)] if grad else []),
        *(fields or [node("span", "No keys set: Inductor's defaults apply.", class_="rx-quiet")]),
        choice("Apply a preset", "preset", (("", ""), *((name, name) for name in PRESETS)), "", disabled=busy),
        *_python_code(region),
    ]
    search = field(
        "Add a key", "key query", query, placeholder="search name, type or text", data_live=True, class_="rx-key-search"
    )
    return [node("div", *config_elements), node("div", search, *key_list(query, device, tuple(config), busy=busy))]


def first_value(entry: ConfigKey) -> Any:
    """Return the initial value of a key that is added: the opposite of the default for a bool, else the default."""
    return not entry.default if isinstance(entry.default, bool) else entry.default


def _key_field(key: str, value: Any, invalid: InvalidInput | None, *, device: str, busy: bool) -> Node:
    entry = catalogue()[key]
    inert = inert_reason(key, device)
    facts = node("div", node("span", key_facts(entry), class_="rx-quiet"), *([no_effect(inert)] if inert else []))
    remove = button("×", "unset", key, title=f"Remove {key} from the config", disabled=busy, class_="rxt-small")
    return node(
        "div",
        node("label", node("span", key), _value_input(entry, value, invalid, busy=busy)),
        facts,
        remove,
        *alert(invalid.error if invalid else ""),
        class_="rx-field",
    )


def _value_input(entry: ConfigKey, value: Any, invalid: InvalidInput | None, *, busy: bool) -> Node:
    attrs: dict[str, Any] = {
        "data_do": "set",
        "data_of": entry.key,
        "title": entry.doc or entry.key,
        "disabled": busy,
        "class_": "rx-wrong" if invalid else None,
    }
    if entry.choices and value in entry.choices:
        options = (node("option", name, value=name, selected=name == str(value)) for name in map(str, entry.choices))
        return node("select", *options, **attrs)
    if entry.type_name == "True or False" and isinstance(value, bool):
        return node("input", type="checkbox", checked=value, **attrs)
    text = invalid.text if invalid else value if isinstance(value, str) else repr(value)
    if entry.type_name in {"an int", "a number"} and isinstance(value, (int, float)):
        return node("input", type="number", step="1" if entry.type_name == "an int" else "any", value=text, **attrs)
    return node("input", type="text", value=text, placeholder=entry.type_name[: 2 * SHORT], **attrs)


def _python_code(region: Region) -> list[Node]:
    """Return the configs as Python code with a copy button."""
    text = "\n".join(configure_calls(region))
    if not text:
        return []
    return [node("div", verbatim("code", clean_page(text)), copy_python_button(text), class_="rx-python")]
