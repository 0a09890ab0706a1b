"""Inductor's and functorch's configs: as the running torch declares them, their current and changed values."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config


@dataclass(frozen=True)
class ConfigEntry:
    """One key of ``torch._inductor.config`` as the running torch declares it."""

    key: str
    value_type: Any
    default: Any


@functools.cache
def config_entries() -> Mapping[str, ConfigEntry]:
    """Return every Inductor config of the running torch, keyed by its dotted name."""
    entries = inductor_config._config.items()  # type: ignore[attr-defined]  # the module replaces itself
    return {key: ConfigEntry(key, entry.value_type, entry.default) for key, entry in entries}


@functools.cache
def config_comments() -> Mapping[str, str]:
    """Return the comment above each config key in torch's source, keyed by dotted name: the only documentation."""
    try:
        source = inspect.getsource(inductor_config)
    except (OSError, TypeError):
        return {}
    lines = source.splitlines()
    comments: dict[str, str] = {}

    def read_comments(body: Sequence[ast.stmt], prefix: str) -> None:
        for statement in body:
            if isinstance(statement, ast.ClassDef):
                read_comments(statement.body, f"{prefix}{statement.name}.")
                continue
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            for target in targets:
                if isinstance(target, ast.Name):
                    comments[prefix + target.id] = _comment_above(lines, statement.lineno - 1)

    read_comments(ast.parse(source).body, "")
    return {key: text for key, text in comments.items() if text}


def _comment_above(lines: Sequence[str], index: int) -> str:
    start = index
    while start > 0 and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    return " ".join(line.strip().lstrip("# ").strip() for line in lines[start:index]).strip()


def read_config(keys: Sequence[str]) -> dict[str, Any]:
    """Return the current values, read from Inductor itself."""
    return _config_values(inductor_config, keys)


def _config_values(module: Any, keys: Sequence[str]) -> dict[str, Any]:
    """Return the values themselves, not copies of them: custom passes are compared by identity."""
    return {key: functools.reduce(getattr, key.split("."), module) for key in keys}


def changed_config() -> dict[str, Any]:
    """Return the Inductor configs that differ from their default in this context, as the cache key sees them."""
    return _non_default_values(inductor_config)


def changed_functorch_config() -> dict[str, Any]:
    """Return the functorch configs, which AOTAutograd reads, that differ from their default in this context."""
    return _non_default_values(functorch_config)


def _non_default_values(module: Any) -> dict[str, Any]:
    copies = sorted(module.get_config_copy().items())
    return _config_values(module, [key for key, value in copies if value != module._config[key].default])


def under_config(config: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """Return a block in which these Inductor configs are set."""
    patched: AbstractContextManager[Any] = inductor_config.patch(dict(config))
    return patched


def set_config(inductor: Mapping[str, Any], functorch: Mapping[str, Any]) -> None:
    """Set configs of both kinds for the rest of this context."""
    for module, values in ((inductor_config, inductor), (functorch_config, functorch)):
        for key, value in values.items():
            setattr(module, key, value)


def caches_are_on() -> bool:
    """Return whether Inductor caches compiles on disk, where another process finds them."""
    return bool(
        inductor_config.fx_graph_cache
        and functorch_config.enable_autograd_cache
        and not inductor_config.force_disable_caches
    )
