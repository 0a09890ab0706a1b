"""Tab completion after ``%regional_compile``: options, kinds of selectors, module paths, config keys and values."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from regional_explorer.command.options import MARK_KINDS, OPTIONS
from regional_explorer.record.benchmark import VariantName
from regional_explorer.record.graph import equal_layers
from regional_explorer.record.plan import Direction, Plan

T = TypeVar("T")

MAX_MODULE_PATHS = 400
"""The most module paths that are offered."""


def completions(variables: Mapping[str, Any], line_before: str, line: str) -> list[str]:
    """Return the completions at the cursor, the likeliest first.

    Args:
        variables: the user's variables.
        line_before: the line up to the cursor.
        line: the whole line; a module called in it gives the paths.
    """
    words = line_before.split()
    word = "" if line_before.endswith((" ", "\t")) else words[-1]
    previous_word = words[-1 if not word else -2] if len(words) > bool(word) else ""
    if previous_word in {"-c", "--config"}:
        return _config_words(variables, line_before, word)
    if previous_word == "--variants":
        return [str(name) for name in VariantName]
    if previous_word in {"-r", "--region"}:
        return _region_words(variables, line, word)
    if word.startswith("-") or not word:
        return [name for option in OPTIONS for name in option.names]
    return []


def _region_words(variables: Mapping[str, Any], line: str, word: str) -> list[str]:
    _, equals, selector = word.partition("=")
    kind, colon, _ = selector.partition(":")
    if colon:
        return _path_words(variables, line) if kind == "modules" else []
    return [f"{name}:" for name in MARK_KINDS] if equals else []


def _path_words(variables: Mapping[str, Any], line: str) -> list[str]:
    """Return the paths below the modules named in ``line``, else below all modules; globs over equal modules first."""
    from torch import nn

    modules = _variables_of(nn.Module, variables)
    roots = [modules[name] for name in dict.fromkeys(re.findall(r"\w+", line)) if name in modules]
    submodules = {path: module for root in roots or modules.values() for path, module in root.named_modules() if path}
    globs = equal_layers({path: type(module) for path, module in submodules.items()})
    return [*(glob for glob in globs if glob not in submodules), *submodules][:MAX_MODULE_PATHS]


def _config_words(variables: Mapping[str, Any], line_before: str, word: str) -> list[str]:
    target, equals, _ = word.partition("=")
    _, colon, key = target.rpartition(":")
    if equals:
        return list(_value_words(key)) if colon else []
    if not colon:
        names_in_line = re.findall(r"(?:-r|--region)[= ]?([^\s=]+)=", line_before)
        names_in_plans = [region.name for plan in _plans(variables) for region in plan.regions]
        names = dict.fromkeys([*names_in_line, *names_in_plans])
        return [*(f"{name}:" for name in names), *(f"{name}.{direction}:" for direction in Direction for name in names)]
    from regional_explorer.compiler.region_config import catalogue

    return [f"{name}=" for name, entry in catalogue().items() if entry.refused is None]


def _plans(variables: Mapping[str, Any]) -> list[Plan]:
    module = sys.modules.get("regional_explorer.exploration.exploration")  # not imported: there is no exploration yet
    explorations = {} if module is None else _variables_of(module.Exploration, variables)
    return [exploration.plan for exploration in explorations.values()]


def _variables_of(kind: type[T], variables: Mapping[str, Any]) -> dict[str, T]:
    """Return the variables of a type; read no attribute of other variables, since the user's properties may raise."""
    return {
        name: value for name, value in variables.items() if not name.startswith("_") and issubclass(type(value), kind)
    }


def _value_words(key: str) -> Iterator[str]:
    """Yield the values that a config key takes: its choices, or for a bool the value that is not its default first."""
    from regional_explorer.compiler.region_config import catalogue

    entry = catalogue().get(key)
    if entry is None:
        return
    if entry.choices:
        yield from map(str, entry.choices)
    elif isinstance(entry.default, bool):
        yield from (str(not entry.default), str(entry.default))
    else:
        yield str(entry.default)
