"""The searchable list of config keys; the keys worth trying come first."""

from __future__ import annotations

from collections.abc import Container

from regional_explorer.compiler.config.catalogue import COMMON, ConfigKey, catalogue, check_key, inert_reason
from regional_explorer.errors import RegionalExplorerError
from regional_explorer.errors.texts import count
from regional_explorer.render.style.element import Node, node
from regional_explorer.render.style.tones import toned
from regional_explorer.render.style.untrusted import clean
from regional_explorer.ui.panel.controls import alert, button

MAX_KEYS = 40
_NO_DOC = "Not documented in torch"


def key_list(query: str, device: str, config_keys: Container[str], *, busy: bool = False) -> list[Node]:
    """Return the keys whose name, type or doc contain all words of ``query``, each with its description.

    Without a query these are the keys worth trying first on ``device``; ``config_keys`` are in the config already.
    """
    entries = _matching_keys(query, device)
    items = [_key_item(entry, device, in_config=entry.key in config_keys, busy=busy) for entry in entries[:MAX_KEYS]]
    total = len(catalogue())
    scope = (
        f"{count(len(entries), 'key')} of {total}"
        if query.strip()
        else f"{count(len(entries), 'key')} worth trying first, of {total}"
    )
    more = "; only the first are listed" if len(entries) > MAX_KEYS else ""
    heading = node("div", scope + more, class_="rx-quiet", role="status")
    if items:
        return [heading, node("ul", *items, class_="rx-keys", tabindex="0", aria_label="Config keys")]
    return alert(_unknown_key_error(query))


def key_facts(entry: ConfigKey) -> str:
    """Return a key's type or choices and its default, as text."""
    allowed = f"one of {', '.join(map(repr, entry.choices))}" if entry.choices else entry.type_name
    return f"{clean(allowed)}, default {clean(repr(entry.default))}"


def no_effect(reason: str) -> Node:
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
    others = sorted((entry for entry in entries.values() if entry not in common), key=lambda entry: entry.key)

    def rank(entry: ConfigKey) -> tuple[bool, ...]:
        key = entry.key.lower()
        in_name = all(word in key for word in words)
        return not in_name, entry.refused is not None, key != query.strip().lower(), not key.startswith(words[0])

    matching = [entry for entry in (*common, *others) if all(word in _searched_text(entry) for word in words)]
    return sorted(matching, key=rank)


def _searched_text(entry: ConfigKey) -> str:
    return f"{entry.key} {entry.type_name} {entry.doc}".lower()


def _key_item(entry: ConfigKey, device: str, *, in_config: bool, busy: bool) -> Node:
    inert = inert_reason(entry.key, device)
    facts = key_facts(entry)
    reasons = []
    if entry.refused:
        reasons = [node("div", toned(f"Cannot be set for one region: {entry.refused}.", "bad"))]
    elif inert:
        reasons = [no_effect(inert)]
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
    return node("li", head, node("div", entry.doc or _NO_DOC, class_="rx-doc" if entry.doc else "rx-quiet"), *reasons)
