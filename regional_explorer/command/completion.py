"""Tab completion after ``%regional_compile``: options, kinds of selectors, module paths, config keys and values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from regional_explorer.command.options import KINDS, OPTIONS
from regional_explorer.record.graph import over_layers
from regional_explorer.record.region import Direction
from regional_explorer.record.variant_name import VariantName

MOST_PATHS = 400
"""The most module paths that are offered."""


def completions(names: Mapping[str, Any], before: str, line: str) -> list[str]:
    """Return the completions at the cursor, the likeliest first.

    Args:
        names: the user's variables.
        before: the line up to the cursor.
        line: the whole line; a module called in it gives the paths.
    """
    words = before.split()
    word = "" if before.endswith((" ", "\t")) else words[-1]
    previous = words[-1 if not word else -2] if len(words) > bool(word) else ""
    if previous in {"-c", "--config"}:
        return _setting_words(names, before, word)
    if previous == "--variants":
        return [str(name) for name in VariantName]
    if previous in {"-r", "--region"}:
        return _mark_words(names, line, word)
    if word.startswith("-") or not word:
        return [name for option in OPTIONS for name in option.names]
    return []


def _mark_words(names: Mapping[str, Any], line: str, word: str) -> list[str]:
    _, equals, selector = word.partition("=")
    kind, colon, _ = selector.partition(":")
    if colon:
        return _module_paths(names, line) if kind == "modules" else []
    return [f"{one}:" for one in KINDS] if equals else []


def _module_paths(names: Mapping[str, Any], line: str) -> list[str]:
    """Return the paths below the modules named in ``line``, or else below all; globs over equal modules come first."""
    from torch import nn

    modules = {
        name: value for name, value in names.items() if not name.startswith("_") and isinstance(value, nn.Module)
    }
    named = [modules[name] for name in dict.fromkeys(re.findall(r"\w+", line)) if name in modules]
    paths = {path: module for root in named or modules.values() for path, module in root.named_modules() if path}
    globs = Counter((over_layers(path), type(module)) for path, module in paths.items())
    equal = [glob for (glob, _), times in globs.items() if times > 1]
    return list(dict.fromkeys([*equal, *paths]))[:MOST_PATHS]


def _setting_words(names: Mapping[str, Any], before: str, word: str) -> list[str]:
    position, equals, _ = word.partition("=")
    _, colon, key = position.rpartition(":")
    if equals:
        return list(_values(key)) if colon else []
    if not colon:
        named = re.findall(r"(?:-r|--region)[= ]?([^\s=]+)=", before)
        plans = [getattr(value, "plan", None) for name, value in names.items() if not name.startswith("_")]
        known = [found.name for plan in plans for found in getattr(plan, "regions", ())]
        regions = dict.fromkeys([*named, *known])
        return [*(f"{name}:" for name in regions), *(f"{name}.{one}:" for one in Direction for name in regions)]
    from regional_explorer.compiler.config.catalogue import catalogue

    return [f"{name}=" for name, entry in catalogue().items() if entry.refused is None]


def _values(key: str) -> Iterator[str]:
    """Yield the values that a config key takes: its choices, or for a bool the value that is not its default first."""
    from regional_explorer.compiler.config.catalogue import catalogue

    entry = catalogue().get(key)
    if entry is None:
        return
    if entry.choices:
        yield from map(str, entry.choices)
    elif isinstance(entry.default, bool):
        yield from (str(not entry.default), str(entry.default))
    else:
        yield str(entry.default)
