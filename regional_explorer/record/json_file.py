"""Sessions and plans as JSON: written, read and checked."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import types
import typing
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from regional_explorer.errors import PlanError, RegionalExplorerError, SessionError, shown_value
from regional_explorer.record.artifact import ArtifactCode
from regional_explorer.record.graph import Graph, Node
from regional_explorer.record.plan import DEFAULT, Plan
from regional_explorer.record.plan_file import PLAN_FORMAT, Explored, PlanFile
from regional_explorer.record.regions import with_measured_states
from regional_explorer.record.session import FORMAT, Session

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


NodeNames = Mapping[str, Collection[str]]
"""The names of the nodes of each graph."""


def check_references(session: Session) -> None:
    """Raise MalformedError for references and figures that would break the display of the session.

    Raises:
        MalformedError: a name occurs twice or refers to nothing, or a figure is impossible.
    """
    nodes = _check_graphs(session.graphs)
    regions = {region.name for region in session.plan.regions}
    _check_unique("partitions", (part.id for part in session.partitions))
    for index, part in enumerate(session.partitions):
        place = f"partitions[{index}]"
        _check_known(f"{place}.region", "region", [part.region], regions)
        _check_nodes(place, nodes, part.graph, part.nodes)
    for region, nodes_by_graph in session.members.items():
        _check_known("members", "region", [region], regions)
        for graph, names in nodes_by_graph.items():
            _check_nodes(f"members[{shown(region)}]", nodes, graph, names)
    for index, diagnostic in enumerate(session.diagnostics):
        if diagnostic.graph is not None:
            _check_nodes(f"diagnostics[{index}]", nodes, diagnostic.graph, diagnostic.nodes)
    _check_codes(session)
    _check_kernel_times(session)
    _check_unique("compiles", (entry.artifact for entry in session.compiles))
    for place, name, value in _figures(session):
        if not _is_possible(name, value):
            raise MalformedError(f"{place}.{name}", f"{shown(value)} is impossible")


def _check_graphs(graphs: Iterable[Graph]) -> NodeNames:
    nodes: dict[str, set[str]] = {}
    for index, graph in enumerate(graphs):
        place = f"graphs[{index}]"
        if graph.id in nodes:
            raise MalformedError(place, f"a second graph is called {shown(graph.id)}")
        if graph.parent is not None:
            _check_nodes(f"{place}.parent", nodes, graph.parent[0], [graph.parent[1]])
        nodes[graph.id] = _check_order(place, graph.nodes)
    return nodes


def _check_order(place: str, nodes: Iterable[Node]) -> set[str]:
    """Check that names are unique, and that inputs come before their readers, so that there is no cycle."""
    seen: set[str] = set()
    for number, node in enumerate(nodes):
        if node.name in seen:
            raise MalformedError(f"{place}.nodes[{number}]", f"a second node is called {shown(node.name)}")
        _check_known(f"{place}.nodes[{number}].inputs", "node before it", node.inputs, seen)
        seen.add(node.name)
    return seen


def _check_codes(session: Session) -> None:
    sizes: dict[str | None, int] = defaultdict(lambda: 1 << 62)
    for part in session.partitions:
        sizes[part.artifact] = min(sizes[part.artifact], len(part.nodes))
    _check_unique("codes", (code.artifact for code in session.codes))
    for index, code in enumerate(session.codes):
        for number, kernel in enumerate(code.kernels):
            _check_positions(
                f"codes[{index}].kernels[{number}]", (*kernel.nodes, *kernel.inferred), sizes[code.artifact]
            )
        _check_positions(f"codes[{index}].views", code.views, sizes[code.artifact])
        _check_lowered(f"codes[{index}]", code, sizes[code.artifact])
        for number, refused in enumerate(code.refused):
            _check_positions(f"codes[{index}].refused[{number}]", (refused.first, refused.second), len(code.kernels))


def _check_lowered(place: str, code: ArtifactCode, size: int) -> None:
    """Check the graphs that Inductor made of a partition of ``size`` nodes."""
    for name, graph, limit in (("after_passes", code.after_passes, size), ("output", code.output, len(code.kernels))):
        if graph is None:
            continue
        names = _check_order(f"{place}.{name}", graph.nodes)
        for sources in (graph.sources, graph.inferred):
            _check_known(f"{place}.{name}", "node", sources, names)
            for positions in sources.values():
                _check_positions(f"{place}.{name}", positions, limit)
    for number, kernel in enumerate(code.kernels):
        _check_positions(f"{place}.kernels[{number}].reads_from", kernel.reads_from, number)


def _check_kernel_times(session: Session) -> None:
    kernels = {code.artifact: len(code.kernels) for code in session.codes}
    _check_unique("kernel_times", (times.artifact for times in session.kernel_times))
    for index, times in enumerate(session.kernel_times):
        _check_known(f"kernel_times[{index}].artifact", "code of an artifact", [times.artifact], kernels)
        if times.kernels and len(times.kernels) != kernels[times.artifact]:
            raise MalformedError(f"kernel_times[{index}]", f"expected {kernels[times.artifact]} kernels")


def _check_positions(place: str, positions: Iterable[int], size: int) -> None:
    for position in positions:
        if not 0 <= position < size:
            raise MalformedError(place, f"there is nothing at position {position}")


def _check_unique(place: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise MalformedError(f"{place}[{index}]", f"a second one is called {shown(name)}")
        seen.add(name)


def _check_known(place: str, what: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise MalformedError(place, f"there is no {what} called {shown(name)}")


def _check_nodes(place: str, nodes: NodeNames, graph: str, names: Iterable[str]) -> None:
    _check_known(place, "graph", [graph], nodes)
    _check_known(place, f"node of {shown(graph)}", names, nodes[graph])


def _figures(session: Session) -> Iterator[tuple[str, str, float]]:
    """Yield place, name and value of every figure that was measured."""
    for field in (
        "timings",
        "partition_timings",
        "reconciliation",
        "compile_costs",
        "memory",
        "partitions",
        "compiles",
        "kernel_times",
        "conditions",
        "profile",
    ):
        yield from _numbers_in("", field, getattr(session, field))
    for index, entry in enumerate(session.compiles):
        yield from ((f"compiles[{index}].phases", phase, seconds) for phase, seconds in entry.phases.items())


def _numbers_in(place: str, name: str, value: Any) -> Iterator[tuple[str, str, float]]:
    """Yield place, name and value of every number in the field ``name`` of what is at ``place``."""
    if is_dataclass(value):
        inside = f"{place}.{name}".lstrip(".")
        for field in fields(value):
            yield from _numbers_in(inside, field.name, getattr(value, field.name))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _numbers_in(place, f"{name}[{index}]" if is_dataclass(item) else name, item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield place, name, value


_SIGNED = frozenset({"seconds", "low_s", "high_s"})
"""Differences between times, which may be negative."""


def _is_possible(name: str, value: float) -> bool:
    return math.isfinite(value) and (value >= 0 or name in _SIGNED) and (value > 0 or not name.startswith("speedup"))


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


def json_safe(value: Any, depth: int = 0) -> Any:
    """Return ``value`` as plain JSON, with the ``repr`` of whatever JSON does not have or reading would refuse."""
    if isinstance(value, (Mapping, list, tuple)) and depth < DEEPEST:
        if isinstance(value, Mapping):
            return {str(key): json_safe(item, depth + 1) for key, item in value.items()}
        return [json_safe(item, depth + 1) for item in value]
    if value is None or isinstance(value, (bool, float, str)) or (isinstance(value, int) and abs(value) < LARGEST):
        return value
    return repr(value)
