"""The pane of a region's config: a field for each key, and the list of keys to add."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from regional_explorer.compiler.region_config import COMMON, ConfigKey, catalogue, check_key, inert_reason
from regional_explorer.errors import RegionalExplorerError, count
from regional_explorer.export.to_source import configure_calls
from regional_explorer.record.configs import PRESETS
from regional_explorer.record.partition import keys_of_same_code
from regional_explorer.record.plan import Direction, Region, config_of
from regional_explorer.style.css import toned
from regional_explorer.style.element import SHORT, Node, clean, clean_page, node, verbatim
from regional_explorer.ui.parts import alert, button, choice, copy_python_button, field
from regional_explorer.ui.state import CONFIG, InvalidInput, Shown

MAX_KEYS = 40
_NO_DOC = "Not documented in torch"


def key_list(query: str, device: str, config_keys: Container[str], *, busy: bool = False) -> list[Node]:
    """Return the keys whose name, type or doc contain all words of ``query``, each with its description.

    Without a query these are the keys worth trying first on ``device``. ``config_keys`` are in the config already.
    """
    entries = _matching_keys(query, device)
    items = [_key_item(entry, device, in_config=entry.key in config_keys, busy=busy) for entry in entries[:MAX_KEYS]]
    advised = "" if query.strip() else " worth trying first,"
    more = f"; only the first {MAX_KEYS} are listed" if len(entries) > MAX_KEYS else ""
    scope = f"{count(len(entries), 'key')}{advised} of {len(catalogue())}{more}"
    heading = node("div", scope, class_="rx-quiet", role="status")
    if items:
        return [heading, node("ul", *items, class_="rx-keys", tabindex="0", aria_label="Config keys")]
    return alert(_unknown_key_error(query))


def key_summary(entry: ConfigKey) -> str:
    """Return a key's type or choices and its default, as text."""
    allowed = f"one of {', '.join(map(repr, entry.choices))}" if entry.choices else entry.type_name
    return f"{clean(allowed)}, default {clean(repr(entry.default))}"


def no_effect_warning(reason: str) -> Node:
    """Return the warning that a key has no effect on this device."""
    return node("div", toned(f"No effect here: {reason}.", "warn"))


def _unknown_key_error(query: str) -> str:
    try:
        check_key(query.strip())
    except RegionalExplorerError as error:
        return str(error)
    return ""


def _matching_keys(query: str, device: str) -> list[ConfigKey]:
    entries = catalogue()
    words = query.lower().split()
    common = [entries[key] for key in COMMON.get(device, COMMON["cuda"]) if key in entries]
    if not words:
        return common
    rare = sorted((entry for entry in entries.values() if entry not in common), key=lambda entry: entry.key)

    def rank(entry: ConfigKey) -> tuple[bool, ...]:
        key = entry.key.lower()
        in_name = all(word in key for word in words)
        return not in_name, entry.refused is not None, key != query.strip().lower(), not key.startswith(words[0])

    matching = [entry for entry in (*common, *rare) if all(word in _searched_text(entry) for word in words)]
    return sorted(matching, key=rank)


def _searched_text(entry: ConfigKey) -> str:
    return f"{entry.key} {entry.type_name} {entry.doc}".lower()


def _key_item(entry: ConfigKey, device: str, *, in_config: bool, busy: bool) -> Node:
    inert = inert_reason(entry.key, device)
    facts = key_summary(entry)
    reasons = []
    if entry.refused:
        reasons = [node("div", toned(f"Cannot be set for one region: {entry.refused}.", "bad"))]
    elif inert:
        reasons = [no_effect_warning(inert)]
    else:
        facts += f" · can matter on {device}"
    add_button = button(
        "in use" if in_config else "Add",
        "add",
        entry.key,
        disabled=in_config or busy or entry.refused is not None,
        aria_label=f"Add {entry.key}",
        title=f"Add {entry.key} to the config",
    )
    head = node("div", node("code", entry.key), node("span", facts, class_="rx-quiet"), add_button)
    doc = node("div", entry.doc or _NO_DOC, class_="rx-doc" if entry.doc else "rx-quiet", title=entry.doc or None)
    return node("li", head, doc, *reasons)


BOTH_WAYS = "both"
DIRECTION_OPTIONS = (
    (BOTH_WAYS, "forward and backward"),
    (str(Direction.FORWARD), "forward"),
    (str(Direction.BACKWARD), "backward"),
)


def config_editor(shown: Shown) -> list[Node]:
    """Return the fields of the open region's config, and the list of keys to add."""
    state, region = shown.state, shown.opened
    if not state.shows(CONFIG) or region is None:
        return [node("p", "Select a region: its config is shown here.", class_="rx-quiet")]
    direction, busy, device = state.direction_of(region), state.busy, shown.session.environment.device_type
    config = config_of(region, direction or Direction.FORWARD)
    config = {**{key: catalogue()[key].default for key in state.added_keys}, **config}
    direction_field = choice("Config of", "direction", DIRECTION_OPTIONS, direction or BOTH_WAYS, disabled=busy)
    partitions = [
        part
        for part in shown.session.partitions
        if part.region == region.name and direction in (None, Direction.of_graph(part.graph))
    ]
    same_code = {key: keys for keys in keys_of_same_code(partitions) for key in keys}
    fields = [
        _key_field(
            key,
            value,
            state.invalid_inputs.get((region.name, direction, key)),
            inert=inert_reason(key, device) or _same_code_text(same_code.get(key, ())),
            busy=busy,
        )
        for key, value in config.items()
    ]
    config_elements = [
        node("h4", f"Config of {clean(region.name)}"),
        *([direction_field] if shown.session.grad else []),
        *(fields or [node("span", "No keys set: Inductor's defaults apply.", class_="rx-quiet")]),
        choice("Apply a preset", "preset", (("", ""), *((name, name) for name in PRESETS)), "", disabled=busy),
        *_python_code(region),
    ]
    hint, query = "search name, type or text", state.key_query
    search = field("Add a key", "key query", query, placeholder=hint, data_live=True)
    keys = key_list(query, device, tuple(config), busy=busy)
    return [node("div", *config_elements), node("div", search, *keys)]


def _same_code_text(keys: Sequence[str]) -> str:
    return f"the generated code is the same without {' and '.join(keys)}" if keys else ""


def _key_field(key: str, value: Any, invalid: InvalidInput | None, *, inert: str, busy: bool) -> Node:
    entry = catalogue()[key]
    facts = node(
        "div", node("span", key_summary(entry), class_="rx-quiet"), *([no_effect_warning(inert)] if inert else [])
    )
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
