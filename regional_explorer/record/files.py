"""Writes, reads and checks sessions and plans as JSON; writes files completely or not at all."""

from __future__ import annotations

import gc
import json
import math
import os
import re
import secrets
import stat
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from regional_explorer.errors import PlanError, RegionalExplorerError, SessionError, sendable, shown_value
from regional_explorer.record import LARGEST_INTEGER, Record
from regional_explorer.record.artifact import ArtifactCode
from regional_explorer.record.graph import Graph, Node
from regional_explorer.record.plan import Plan
from regional_explorer.record.plan_file import PLAN_FORMAT, ExplorationRecord, PlanFile
from regional_explorer.record.session import FORMAT, Session

T = TypeVar("T")

DEEPEST = 32
"""The maximum nesting of a value of the user's, such as an annotation."""
MOST_CHARACTERS = 60
"""The maximum number of characters of a name in an error message."""
LONGEST_PROBLEM = 240
"""The maximum number of characters of an error message about the contents of a file."""
SPECIAL_FLOATS = ("nan", "inf", "-inf")
"""The floats without a JSON literal; they are written as ``{"float": "nan"}``."""


class MalformedError(ValueError):
    """A value does not match its record; the text begins with its place, such as ``graphs[0].nodes``."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}" if place else problem)


def from_json(kind: type[T], value: Any) -> T:
    """Return the record of type ``kind`` that plain JSON values describe.

    Raises:
        MalformedError: the values do not match the fields of ``kind``.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        problem = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in problem.replace("`", "'"))
        if len(problem) > LONGEST_PROBLEM:
            problem = f"{problem[: LONGEST_PROBLEM - 1]}…"
        raise MalformedError(place.strip(".`"), problem.rstrip(".")) from error
    except UnicodeEncodeError as error:  # a lone surrogate in place of another type than text
        raise MalformedError("", str(error)) from error


def to_json(record: Record) -> Any:
    """Return a record as plain JSON values; fields at their default are left out."""
    return _finite(msgspec.to_builtins(record, str_keys=True, enc_hook=_plain))


def _plain(value: Any) -> Any:
    """Return a value that msgspec cannot write: the text of torch's version, numpy's float64, or a ``repr``."""
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    return dict(value) if isinstance(value, Mapping) else repr(value)


def _finite(value: Any) -> Any:
    """Return plain values, with the floats that have no JSON literal as objects."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_finite(item) for item in value]
    return value


def _special_float(value: dict[str, Any]) -> Any:
    return float(value["float"]) if value.keys() == {"float"} and value["float"] in SPECIAL_FLOATS else value


def name_text(name: str) -> str:
    """Return a name in a file as one short line."""
    text = ascii(name)
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"


NodeNames = Mapping[str, Collection[str]]
"""The names of the nodes of each graph."""


def check_references(session: Session) -> None:
    """Raise MalformedError for references that would break the display of the session.

    Raises:
        MalformedError: a name occurs twice or refers to nothing.
    """
    nodes = _check_graphs(session.graphs)
    regions = {region.name for region in session.plan.regions}
    sizes: dict[str | None, int] = defaultdict(lambda: LARGEST_INTEGER)
    ids: set[str] = set()
    for index, part in enumerate(session.partitions):
        place = f"partitions[{index}]"
        if part.id in ids:
            raise MalformedError(place, f"a second partition is called {name_text(part.id)}")
        ids.add(part.id)
        sizes[part.artifact] = min(sizes[part.artifact], len(part.nodes))
        _check_known(f"{place}.region", "region", [part.region], regions)
        _check_nodes(place, nodes, part.graph, part.nodes)
    for region, nodes_by_graph in session.members.items():
        _check_known("members", "region", [region], regions)
        for graph, names in nodes_by_graph.items():
            _check_nodes(f"members[{name_text(region)}]", nodes, graph, names)
    for index, diagnostic in enumerate(session.diagnostics):
        if diagnostic.graph is not None:
            _check_nodes(f"diagnostics[{index}]", nodes, diagnostic.graph, diagnostic.nodes)
    _check_known("partition_timings", "partition", (timing.partition for timing in session.partition_timings), ids)
    for key, artifact in session.artifacts.items():
        place, code, times = f"artifacts[{name_text(key)}]", artifact.code, artifact.kernel_times
        if code is not None:
            _check_code(f"{place}.code", code, sizes[key])
        if times is not None and times.kernels and (code is None or len(times.kernels) != len(code.kernels)):
            raise MalformedError(f"{place}.kernel_times", "expected a time for each kernel of the code")


def _check_graphs(graphs: Iterable[Graph]) -> NodeNames:
    nodes: dict[str, set[str]] = {}
    for index, graph in enumerate(graphs):
        place = f"graphs[{index}]"
        if graph.id in nodes:
            raise MalformedError(place, f"a second graph is called {name_text(graph.id)}")
        if graph.parent is not None:
            _check_nodes(f"{place}.parent", nodes, graph.parent[0], [graph.parent[1]])
        nodes[graph.id] = _check_order(place, graph.nodes)
    return nodes


def _check_order(place: str, nodes: Iterable[Node]) -> set[str]:
    """Check that names are unique, and that inputs come before their readers, so that there is no cycle."""
    seen: set[str] = set()
    for number, node in enumerate(nodes):
        if node.name in seen:
            raise MalformedError(f"{place}.nodes[{number}]", f"a second node is called {name_text(node.name)}")
        _check_known(f"{place}.nodes[{number}].inputs", "node before it", node.inputs, seen)
        seen.add(node.name)
    return seen


def _check_code(place: str, code: ArtifactCode, size: int) -> None:
    """Check the positions in the code of a partition of ``size`` nodes, and the graphs that Inductor made of it."""
    _check_positions(f"{place}.views", code.views, size)
    for number, kernel in enumerate(code.kernels):
        _check_positions(f"{place}.kernels[{number}]", (*kernel.nodes, *kernel.inferred), size)
        _check_positions(f"{place}.kernels[{number}].reads_from", kernel.reads_from, number)
    for number, refused in enumerate(code.refused):
        _check_positions(f"{place}.refused[{number}]", (refused.first, refused.second), len(code.kernels))
    for name, graph, limit in (("after_passes", code.after_passes, size), ("output", code.output, len(code.kernels))):
        if graph is None:
            continue
        names = _check_order(f"{place}.{name}", graph.nodes)
        for sources in (graph.sources, graph.inferred):
            _check_known(f"{place}.{name}", "node", sources, names)
            for positions in sources.values():
                _check_positions(f"{place}.{name}", positions, limit)


def _check_positions(place: str, positions: Iterable[int], size: int) -> None:
    for position in positions:
        if not 0 <= position < size:
            raise MalformedError(place, f"there is nothing at position {position}")


def _check_known(place: str, noun: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise MalformedError(place, f"there is no {noun} called {name_text(name)}")


def _check_nodes(place: str, nodes: NodeNames, graph: str, names: Iterable[str]) -> None:
    _check_known(place, "graph", [graph], nodes)
    _check_known(place, f"node of {name_text(graph)}", names, nodes[graph])


def dump_session(session: Session) -> str:
    """Return a session as JSON text."""
    return json.dumps({"format": FORMAT, "kind": "session", **to_json(session)}, separators=(",", ":"))


def load_session(path: str | Path) -> Session:
    """Read a saved session, or the text of one; torch is not needed.

    Raises:
        SessionError: the file cannot be read, is not a session, or has another format.
    """
    return _load_record(path, "session", Session, SessionError, check_references, FORMAT)


def dump_plan(plan: Plan, explored: ExplorationRecord | None = None, artifacts: tuple[str, ...] = ()) -> str:
    """Return a plan as readable JSON text, with its exploration and the SHA-256 of its artifacts."""
    saved = to_json(PlanFile(plan.regions, plan.cut, plan.tracing, explored, artifacts))
    return json.dumps({"format": PLAN_FORMAT, "kind": "plan", **saved}, indent=2) + "\n"


def save_plan(
    plan: Plan, path: str | Path, explored: ExplorationRecord | None = None, artifacts: tuple[str, ...] = ()
) -> Path:
    """Write ``plan`` to ``path`` as JSON, with what it was explored on and the SHA-256 of its artifacts.

    Raises:
        PlanError: the file cannot be written, or the plan has a function that no other process can find.
    """
    target = file_path(path, PlanError)
    for region in plan.regions:
        for text, function in zip(region.treatment.texts, region.treatment.functions, strict=True):
            if not function.path:
                raise PlanError(
                    f"The plan cannot be saved with the {text} of region {region.name!r}: it is defined in a notebook "
                    "cell, a script or another function, where no other process finds it. Define it at the top of a "
                    "module, and give it to ex.configure from there."
                )
    write_file(target, dump_plan(plan, explored, artifacts), PlanError)
    return target


def plan_line(plan: Plan) -> str:
    """Return a plan as JSON on one line, without spaces or quotes inside texts, for one command-line argument."""
    text = json.dumps({"format": PLAN_FORMAT, "kind": "plan", **to_json(plan)}, separators=(",", ":"))
    escaped = re.sub(r"\\(.)", lambda match: r"\u0022" if match[1] == '"' else match[0], text)
    return escaped.replace("'", r"\u0027").replace(" ", r"\u0020")


def is_json_text(record: object) -> bool:
    """Return whether ``record`` is the text of a JSON object, not the path of a file."""
    return isinstance(record, str) and record.lstrip().startswith("{")


def load_plan(path: str | Path) -> Plan:
    """Read a saved plan, or the text of one.

    Raises:
        PlanError: the file cannot be read, is not a plan, or has another format.
    """
    return load_plan_file(path).plan


def load_plan_file(path: str | Path) -> PlanFile:
    """Read a saved plan with its exploration.

    Raises:
        PlanError: the file cannot be read, is not a plan, or has another format.
    """
    return _load_record(path, "plan", PlanFile, PlanError, lambda _plan: None, PLAN_FORMAT)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Context manager: pause Python's garbage collector, which would scan everything read so far again and again.

    Reading 6 MB took three times as long with it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@_collector_paused()
def _load_record(
    source: str | Path,
    noun: str,
    kind: type[T],
    error: type[RegionalExplorerError],
    check: Callable[[T], None],
    newest: int,
) -> T:
    path: str | Path = "The text" if is_json_text(source) else file_path(source, error)
    values = _read_json(source, path, error)
    if not isinstance(values, dict) or values.pop("kind", None) != noun:
        raise error(
            f"{path} is not a saved {noun}. rx.load opens a saved session; rx.explore(fn, args, plan=path) and "
            "rx.compile(fn, path) take a saved plan."
        )
    version = values.pop("format", newest)
    if type(version) is not int or version < 1:
        raise error(f"{path} is damaged: its format is {shown_value(version)}, which is no positive integer.")
    if version != newest:
        age, remedy = (
            ("a newer", "Upgrade regional_explorer, or save the file again with this version.")
            if version > newest
            else ("an older", "Explore the call again, and save it.")
        )
        raise error(
            f"{path} was written by {age} version (format {shown_value(version)}, this one reads {newest}). {remedy}"
        )
    try:
        record = from_json(kind, values)
        check(record)
    except MalformedError as problem:
        raise error(f"{path} is damaged: {problem}.") from problem
    return record


def _read_json(source: str | Path, path: str | Path, error: type[RegionalExplorerError]) -> Any:
    """Return the JSON values in the file at ``path``, or in the text ``source``, which errors call ``path``."""
    try:
        content = path.read_bytes() if isinstance(path, Path) else str(source).encode()
    except (OSError, ValueError) as problem:  # a ValueError: not a valid file name
        raise error(f"Cannot read {path}: {getattr(problem, 'strerror', None) or problem}.") from problem
    try:
        return json.loads(content.decode(), object_hook=_special_float, parse_constant=_refuse_constant)
    except RecursionError as problem:
        raise error(f"{path} is damaged: its values are nested too deeply.") from problem
    except ValueError as problem:
        hint = " Only files saved as .json are read back." if isinstance(path, Path) and path.suffix != ".json" else ""
        raise error(f"{path} is not JSON: {problem}.{hint}") from problem


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"it has no literal {word}")


def json_safe(value: Any, depth: int = 0) -> Any:
    """Return ``value`` as plain JSON, with the ``repr`` of whatever JSON does not have or reading would refuse."""
    if isinstance(value, (Mapping, list, tuple)) and depth < DEEPEST:
        if isinstance(value, Mapping):
            return {str(key): json_safe(item, depth + 1) for key, item in value.items()}
        return [json_safe(item, depth + 1) for item in value]
    if (
        value is None
        or isinstance(value, (bool, float, str))
        or (isinstance(value, int) and abs(value) <= LARGEST_INTEGER)
    ):
        return value
    return repr(value)


# ----------------------------------------------------------------------------------- files, written whole or not at all


NEW_FILE = 0o666
"""The permissions of a new file, before the umask."""


@contextmanager
def replacing_file(path: Path, permissions: int | None = None) -> Iterator[BinaryIO]:
    """Open a new file that replaces ``path`` when the block ends; if the block raises, the old file stays.

    Without ``permissions`` the new file has those of the old one, or the usual ones if there is no old file.

    Raises:
        OSError: the file cannot be written.
    """
    if permissions is None:
        with suppress(FileNotFoundError):
            permissions = stat.S_IMODE(path.stat().st_mode)
    temporary = path.parent / f".regional-explorer-{secrets.token_hex(8)}.tmp"
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    descriptor = os.open(temporary, flags, NEW_FILE if permissions is None else permissions)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        if permissions is not None:
            temporary.chmod(permissions)
        temporary.replace(path)
    except BaseException:  # an interrupt too leaves no half-written file behind
        with suppress(OSError):
            temporary.unlink()
        raise


def file_path(path: object, error: type[RegionalExplorerError]) -> Path:
    """Return ``path`` as a Path; raise ``error`` if it is not a path."""
    if not isinstance(path, (str, Path)) or not str(path):
        raise error(f"Give the path of a file, such as 'x.json'; got {shown_value(path)}.")
    return Path(path)


def write_file(target: Path, text: str, error: type[RegionalExplorerError]) -> None:
    """Write ``text`` to ``target`` atomically: the old content stays until the new one is on disk.

    Raises:
        RegionalExplorerError: of class ``error``, if the file cannot be written.
    """
    write_bytes(target, sendable(text).encode(), error)


def write_bytes(target: Path, content: bytes, error: type[RegionalExplorerError]) -> None:
    """Write ``content`` to ``target`` as ``write_file`` does.

    Raises:
        RegionalExplorerError: of class ``error``, if the file cannot be written.
    """
    destination = writable_path(target, error)
    try:
        if destination.exists() and not destination.is_file():
            destination.write_bytes(content)  # a device or a pipe is written to, not replaced
        else:
            with replacing_file(destination) as file:
                file.write(content)
    except OSError as problem:
        raise error(f"Cannot write {target}: {problem.strerror or problem}.") from problem


def writable_path(target: Path, error: type[RegionalExplorerError]) -> Path:
    """Return the resolved path of ``target``, or raise ``error`` if no file can be written there.

    If it is a symbolic link, the file it points to is replaced.
    """
    try:
        destination = Path(os.path.realpath(target))
        if destination.is_dir():
            raise error(f"Cannot write {target}: it is a directory. Give the name of a file in it.")
        if not destination.parent.is_dir():
            raise error(f"Cannot write {target}: there is no directory {destination.parent}. Make it first.")
    except (OSError, ValueError) as problem:  # a ValueError: not a valid file name
        reason = getattr(problem, "strerror", None) or problem
        raise error(f"Cannot write {sendable(str(target))!r}: {reason}.") from problem
    return destination
