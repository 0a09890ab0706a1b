"""Reads and writes sessions and plans as JSON with a format version, plans on one line too; pickle is never used."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from regional_explorer.errors import PlanError, RegionalExplorerError, SessionError
from regional_explorer.errors.arguments import shown_value
from regional_explorer.record.decode import MalformedError, from_json, shown
from regional_explorer.record.plan import Plan
from regional_explorer.record.plan_content import with_measured_states
from regional_explorer.record.plan_file import PLAN_FORMAT, Explored, PlanFile
from regional_explorer.record.references import check_references
from regional_explorer.record.region import DEFAULT
from regional_explorer.record.session import FORMAT, Session

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """Return a record as plain JSON values; fields at their default are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_json(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if getattr(value, field.name) != _field_default(field)
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items() if item is not DEFAULT}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return repr(value)


def _field_default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def dump_session(session: Session) -> str:
    """Return a session as JSON text."""
    return json.dumps({"format": FORMAT, "kind": "session", **to_json(session)}, separators=(",", ":"))


def load_session(path: str | Path) -> Session:
    """Read a saved session, or the text of one; torch is not needed.

    Raises:
        SessionError: the file cannot be read, is not a session, or has a newer format.
    """
    return with_measured_states(_load_record(path, "session", Session, SessionError, check_references, FORMAT))


def dump_plan(plan: Plan, explored: Explored | None = None, artifacts: tuple[str, ...] = ()) -> str:
    """Return a plan as readable JSON text, with what it was explored on and the SHA-256 of its artifacts."""
    saved = to_json(PlanFile(plan.regions, plan.cut, explored, artifacts))
    return json.dumps({"format": PLAN_FORMAT, "kind": "plan", **saved}, indent=2) + "\n"


def plan_line(plan: Plan) -> str:
    """Return a plan as JSON on one line, without spaces or quotes inside its texts, to be one command-line argument."""
    text = json.dumps({"format": PLAN_FORMAT, "kind": "plan", **to_json(plan)}, separators=(",", ":"))
    escaped = re.sub(r"\\(.)", lambda match: r"\u0022" if match[1] == '"' else match[0], text)
    return escaped.replace("'", r"\u0027").replace(" ", r"\u0020")


def is_json_text(record: object) -> bool:
    """Return whether ``record`` is the text of a JSON object, not the path of a file."""
    return isinstance(record, str) and record.lstrip().startswith("{")


def load_plan(path: str | Path) -> Plan:
    """Read a saved plan, or the text of one.

    Raises:
        PlanError: the file cannot be read, is not a plan, or has a newer format.
    """
    return load_plan_file(path).plan


def load_plan_file(path: str | Path) -> PlanFile:
    """Read a saved plan with what it was explored on.

    Raises:
        PlanError: the file cannot be read, is not a plan, or has a newer format.
    """
    return _load_record(path, "plan", PlanFile, PlanError, lambda _plan: None, PLAN_FORMAT)


def _load_record(
    path: str | Path,
    what: str,
    kind: type[T],
    error: type[RegionalExplorerError],
    check: Callable[[T], None],
    newest: int,
) -> T:
    values = _read_json(path, error)
    path = "The text" if is_json_text(path) else path
    if not isinstance(values, dict) or values.pop("kind", None) != what:
        raise error(
            f"{path} is not a saved {what}. rx.load opens a saved session; rx.explore(fn, args, plan=path) and "
            "rx.compile(fn, path) take a saved plan."
        )
    version = values.pop("format", newest)
    if type(version) is not int or version < 1:
        raise error(f"{path} is damaged: format: expected {newest}, found {shown(version)}.")
    if version > newest:
        raise error(
            f"{path} was written by a newer version (format {shown(version)}, this one reads {newest}). "
            "Upgrade regional_explorer, or save the file again with this version."
        )
    try:
        record = from_json(kind, values)
        check(record)
    except MalformedError as problem:
        raise error(f"{path} is damaged: {problem}.") from problem
    return record


def _read_json(path: str | Path, error: type[RegionalExplorerError]) -> Any:
    """Return the JSON values in the file at ``path``, or in ``path`` itself if that is a JSON object as text."""
    if not isinstance(path, (str, Path)):
        raise error(f"Give the path of a file, such as 'x.json'; got {shown_value(path)}.")
    try:
        content = str(path).encode() if is_json_text(path) else Path(path).read_bytes()
    except (OSError, ValueError) as problem:  # a ValueError: not a valid file name
        raise error(f"Cannot read {path}: {getattr(problem, 'strerror', None) or problem}.") from problem
    try:
        return json.loads(content.decode(), parse_constant=_refuse_constant)
    except RecursionError as problem:
        raise error(f"{path} is damaged: its values are nested too deeply.") from problem
    except ValueError as problem:
        name = "The text" if is_json_text(path) else path
        hint = "" if is_json_text(path) or Path(path).suffix == ".json" else " Only files saved as .json are read back."
        raise error(f"{name} is not JSON: {problem}.{hint}") from problem


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"it has no literal {word}")
