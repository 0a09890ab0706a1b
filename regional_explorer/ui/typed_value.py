"""Reads what was typed into the field of a config key."""

from __future__ import annotations

from typing import Any

from regional_explorer.compiler.config.catalogue import check_key, check_value, parse_value
from regional_explorer.errors import InvalidConfigValueError


def read_value(key: str, typed: str | bool) -> Any:  # noqa: FBT001 - the value of a checkbox
    """Return the value typed for a config key; a literal of another type is taken as text if the key accepts text.

    Raises:
        InvalidConfigValueError: the key does not accept it.
    """
    entry = check_key(key)
    if isinstance(typed, bool):
        return check_value(key, typed)
    if entry.choices:
        return check_value(key, next((choice for choice in entry.choices if str(choice) == typed), typed))
    try:
        return parse_value(key, typed)
    except InvalidConfigValueError as error:
        try:
            return check_value(key, typed)
        except InvalidConfigValueError:
            raise error from None
