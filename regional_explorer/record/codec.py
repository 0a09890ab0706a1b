"""Records to JSON and back, by their type annotations; never pickle."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from regional_explorer.errors import PlanError, RegionalExplorerError, SessionError
from regional_explorer.record.region import Plan
from regional_explorer.record.session import FORMAT, Session

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """Return a record as plain JSON values; fields at their default are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_json(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if getattr(value, field.name) != _default(field)
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return repr(value)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def from_json(kind: type[T], value: Any) -> T:
    """Read a record of type ``kind``.

    Raises:
        TypeError, ValueError, KeyError: the value is not of that shape.
    """
    read: T = _read(kind, value)
    return read


def _read(kind: Any, value: Any) -> Any:
    if isinstance(value, dict) and kind in (float, Any) and set(value) == {"float"} and isinstance(value["float"], str):
        return float(value["float"])
    if kind is Any:
        return value
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _read_record(kind, value)
    if origin in (typing.Union, types.UnionType):
        return _read_union(typing.get_args(kind), value)
    if origin is tuple:
        item, *rest = typing.get_args(kind)
        if rest and rest[0] is not Ellipsis:
            return tuple(_read(part, element) for part, element in zip((item, *rest), value, strict=True))
        return tuple(_read(item, element) for element in value)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        inner = typing.get_args(kind)[1]
        return {key: _read(inner, item) for key, item in value.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if isinstance(kind, type) and not isinstance(value, kind) and not (kind is float and isinstance(value, int)):
        raise TypeError(f"expected {kind.__name__}, found {value!r}")
    return float(value) if kind is float else value


def _read_record(kind: Any, value: Any) -> Any:
    if not isinstance(value, dict):
        raise TypeError(f"expected an object for {kind.__name__}, found {type(value).__name__}")
    hints = _hints(kind)
    unknown = set(value) - set(hints)
    if unknown:
        raise ValueError(f"{kind.__name__} has no field {min(unknown)!r}")
    return kind(**{name: _read(hints[name], item) for name, item in value.items()})


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _read_union(kinds: tuple[Any, ...], value: Any) -> Any:
    if value is None and type(None) in kinds:
        return None
    for kind in kinds:
        if kind is not type(None):
            try:
                return _read(kind, value)
            except (TypeError, ValueError):
                continue
    raise TypeError(f"{value!r} is none of {', '.join(map(str, kinds))}")


def dump_session(session: Session) -> str:
    """Return a session as JSON text."""
    return json.dumps({"format": FORMAT, "kind": "session", **to_json(session)}, separators=(",", ":"))


def load_session(path: str | Path) -> Session:
    """Read a saved session; torch is not needed.

    Raises:
        SessionError: the file cannot be read, is no session, or is of a newer format.
    """
    return _load(path, "session", Session, SessionError)


def dump_plan(plan: Plan) -> str:
    """Return a plan as readable JSON text."""
    return json.dumps({"format": FORMAT, "kind": "plan", **to_json(plan)}, indent=2)


def load_plan(path: str | Path) -> Plan:
    """Read a saved plan.

    Raises:
        PlanError: the file cannot be read, is no plan, or is of a newer format.
    """
    return _load(path, "plan", Plan, PlanError)


def _load(path: str | Path, what: str, kind: type[T], error: type[RegionalExplorerError]) -> T:
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        raise error(f"Cannot read {path}: {problem.strerror or problem}.") from problem
    except ValueError as problem:
        raise error(f"{path} is not JSON: {problem}.") from problem
    if not isinstance(found, dict) or found.pop("kind", None) != what:
        raise error(f"{path} holds no {what}; ex.save() and ex.save_plan() write such files.")
    version = found.pop("format", 0)
    if not isinstance(version, int) or version > FORMAT:
        raise error(f"{path} was written by a newer version (format {version}, this one reads {FORMAT}).")
    try:
        return from_json(kind, found)
    except (TypeError, ValueError, KeyError) as problem:
        raise error(f"{path} is damaged: {problem}.") from problem
