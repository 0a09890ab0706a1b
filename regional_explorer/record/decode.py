"""Decodes JSON to records by their type annotations (unions, tuples, enums); an error names the place of a value."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from regional_explorer.errors import RegionalExplorerError

T = TypeVar("T")

DEEPEST = 32
"""The most levels of nesting in a value of the user's, such as an annotation."""
LARGEST = 2**63
"""Integers must be smaller than this: all sizes, counts and lines are."""
MOST_CHARACTERS = 60
"""The most characters of a wrong value that an error message shows."""

MOST_CHOICES = 8
"""The most allowed values that an error message lists."""


class MalformedError(ValueError):
    """A value does not match its record; the text begins with its place, such as ``graphs[0].nodes``."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}" if place else problem)


def from_json(kind: type[T], value: Any) -> T:
    """Read a record of type ``kind``.

    Raises:
        MalformedError: the value does not match the type annotations of ``kind``.
    """
    record: T = _read_any(kind, value, "")
    return record


def _read_any(kind: Any, value: Any, place: str) -> Any:
    if isinstance(value, dict) and kind in (float, Any) and _is_special_float(value):
        return float(value["float"])
    if kind is Any:
        return _plain_value(value, place)
    if dataclasses.is_dataclass(kind):
        return _read_record(kind, value, place)
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _read_union(typing.get_args(kind), value, place)
    if origin is tuple:
        return _read_tuple(typing.get_args(kind), value, place)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        inner = typing.get_args(kind)[1]
        return {key: _read_any(inner, item, _place_of(place, key)) for key, item in _expect(dict, value, place).items()}
    if issubclass(kind, Enum):
        return _read_choice(kind, value, place)
    return _read_scalar(kind, value, place)


def _is_special_float(value: dict[str, Any]) -> bool:
    """Return whether ``value`` is a NaN or infinity as ``to_json`` writes it: JSON has no literal for them."""
    return value.keys() == {"float"} and value["float"] in ("nan", "inf", "-inf")


def _read_scalar(kind: type, value: Any, place: str) -> Any:
    # True is an int to Python, but not in a file.
    accepted = (int, float) if kind is float else (kind,)
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise MalformedError(place, f"expected {_TYPE_NAMES.get(kind, kind.__name__)}, found {shown(value)}")
    _plain_value(value, place)
    return float(value) if isinstance(value, int) and kind is float else value


_RENAMED_CHOICES = {("State", "fresh"): "compiled"}
"""Values that earlier files have under another name."""


def _read_choice(kind: type[Enum], value: Any, place: str) -> Enum:
    if isinstance(value, str):
        value = _RENAMED_CHOICES.get((kind.__name__, value), value)
    for choice in kind:
        if value == choice.value:
            return choice
    choices = [repr(choice.value) for choice in kind]
    more = f" and {len(choices) - MOST_CHOICES} more" if len(choices) > MOST_CHOICES else ""
    raise MalformedError(place, f"expected one of {', '.join(choices[:MOST_CHOICES])}{more}, found {shown(value)}")


def _read_tuple(kinds: tuple[Any, ...], value: Any, place: str) -> tuple[Any, ...]:
    items = _expect(list, value, place)
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(items)
    if len(kinds) != len(items):
        raise MalformedError(place, f"expected {len(kinds)} items, found {len(items)}")
    return tuple(
        _read_any(kind, item, f"{place}[{index}]") for index, (kind, item) in enumerate(zip(kinds, items, strict=True))
    )


_RENAMED_FIELDS = {("Partition", "config_asked"): "config_requested", ("SubgraphOptions", "kept"): "followed"}
"""Fields that earlier files have under another name."""


def _read_record(kind: Any, value: Any, place: str) -> Any:
    saved = _expect(dict, value, place)
    raw: dict[str, Any] = {_RENAMED_FIELDS.get((kind.__name__, name)) or name: item for name, item in saved.items()}
    hints = _type_hints(kind)
    if unknown := raw.keys() - hints.keys():
        raise MalformedError(place, f"a {kind.__name__} has no field {shown(min(unknown))}")
    if missing := [name for name in _required_fields(kind) if name not in raw]:
        raise MalformedError(place, f"the {kind.__name__} lacks {', '.join(map(repr, missing))}")
    fields = {name: _read_any(hints[name], item, _place_of(place, name)) for name, item in raw.items()}
    try:
        return kind(**fields)
    except RegionalExplorerError as error:  # raised by the record itself
        raise MalformedError(place, str(error).rstrip(".")) from error


@functools.cache
def _type_hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


@functools.cache
def _required_fields(kind: Any) -> tuple[str, ...]:
    missing = dataclasses.MISSING
    fields = dataclasses.fields(kind)
    return tuple(field.name for field in fields if field.default is missing and field.default_factory is missing)


def _read_union(kinds: tuple[Any, ...], value: Any, place: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    for kind in kinds[:-1]:
        try:
            return _read_any(kind, value, place)
        except MalformedError:
            continue
    return _read_any(kinds[-1], value, place)


def _plain_value(value: Any, place: str, depth: int = 0) -> Any:
    """Return a user's value as plain Python, checked for nesting that is too deep and for numbers beyond 64 bits."""
    if depth > DEEPEST:
        raise MalformedError(place, f"more than {DEEPEST} levels deep")
    if isinstance(value, int) and not -LARGEST <= value < LARGEST:
        raise MalformedError(place, "a number beyond 64 bits")
    if isinstance(value, dict):
        if _is_special_float(value):
            return float(value["float"])
        return {key: _plain_value(item, place, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain_value(item, place, depth + 1) for item in value]
    return value


def _expect(kind: type[T], value: Any, place: str) -> T:
    if not isinstance(value, kind):
        raise MalformedError(place, f"expected {_TYPE_NAMES[kind]}, found {shown(value)}")
    return value


_TYPE_NAMES: dict[type, str] = {
    dict: "an object",
    list: "a list",
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def _place_of(place: str, key: str) -> str:
    name = key if key.isidentifier() else f"[{shown(key)}]"
    return name if not place else f"{place}{name}" if name.startswith("[") else f"{place}.{name}"


def shown(value: Any) -> str:
    """Return a value of a file, shortened to one line for an error message."""
    if isinstance(value, (dict, list)):
        return _TYPE_NAMES[type(value)]
    if isinstance(value, int) and abs(value) >= LARGEST:
        return "a number beyond 64 bits"
    text = ascii(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
