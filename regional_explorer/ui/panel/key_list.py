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

MAX_LISTED = 40
_NO_DOC = "Not documented in torch"


def key_list(query: str, device: str, taken: Container[str], *, busy: bool = False) -> list[Node]:
    """Return the keys whose name, type or doc contain all words of ``query``, each with its description.

    Without a query these are the keys worth trying first on ``device``; ``taken`` are in the config already.
    """
    found = _found(query, device)
    items = [_item(key, device, taken=key.key in taken, busy=busy) for key in found[:MAX_LISTED]]
    every = len(catalogue())
    scope = f"{count(len(found), 'key')} of {every}" if query.strip() else f"Worth trying first, of {every} keys"
    more = "; only the first are listed" if len(found) > MAX_LISTED else ""
    heading = node("div", scope + more, class_="rx-quiet", role="status")
    if items:
        return [heading, node("ul", *items, class_="rx-keys", tabindex="0", aria_label="Config keys")]
    return alert(_unknown(query))


def key_facts(entry: ConfigKey) -> str:
    """Return a key's type or choices and its default, as text."""
    takes = f"one of {', '.join(map(repr, entry.choices))}" if entry.choices else entry.type_name
    return f"{clean(takes)}, default {clean(repr(entry.default))}"


def no_effect(reason: str) -> Node:
    """Return the warning that a key has no effect on this device."""
    return node("div", toned(f"No effect here: {reason}.", "warn"))


def _unknown(query: str) -> str:
    try:
        check_key(query.strip())
    except RegionalExplorerError as error:
        return str(error)
    return ""


def _found(query: str, device: str) -> list[ConfigKey]:
    known = catalogue()
    words = query.lower().split()
    first = [known[key] for key in COMMON.get(device, COMMON["cuda"]) if key in known]
    if not words:
        return first
    rest = sorted((entry for entry in known.values() if entry not in first), key=lambda entry: entry.key)

    def rank(entry: ConfigKey) -> tuple[bool, ...]:
        key = entry.key.lower()
        named = all(word in key for word in words)
        return not named, entry.refused is not None, key != query.strip().lower(), not key.startswith(words[0])

    matching = [one for one in (*first, *rest) if all(word in _text(one) for word in words)]
    return sorted(matching, key=rank)


def _text(entry: ConfigKey) -> str:
    return f"{entry.key} {entry.type_name} {entry.doc}".lower()


def _item(entry: ConfigKey, device: str, *, taken: bool, busy: bool) -> Node:
    inert = inert_reason(entry.key, device)
    facts = key_facts(entry)
    why = []
    if entry.refused:
        why = [node("div", toned(f"Cannot be set for one region: {entry.refused}.", "bad"))]
    elif inert:
        why = [no_effect(inert)]
    else:
        facts += f" · can matter on {device}"
    add = button(
        "in use" if taken else "Add",
        "add",
        entry.key,
        disabled=taken or busy or entry.refused is not None,
        aria_label=f"Add {entry.key}",
        title=f"Add {entry.key} to the config",
    )
    head = node("div", node("code", entry.key), node("span", facts, class_="rx-quiet"), add)
    return node("li", head, node("div", entry.doc or _NO_DOC, class_="rx-doc" if entry.doc else "rx-quiet"), *why)
