"""Converts values of the user's program to plain JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regional_explorer.record.decode import DEEPEST, LARGEST


def json_safe(value: Any, depth: int = 0) -> Any:
    """Return ``value`` as plain JSON, with the ``repr`` of whatever JSON does not have or reading would refuse."""
    if isinstance(value, (Mapping, list, tuple)) and depth < DEEPEST:
        if isinstance(value, Mapping):
            return {str(key): json_safe(item, depth + 1) for key, item in value.items()}
        return [json_safe(item, depth + 1) for item in value]
    if value is None or isinstance(value, (bool, float, str)) or (isinstance(value, int) and abs(value) < LARGEST):
        return value
    return repr(value)
