"""The passes and backends of regions: functions of the user's, described for records and found again from there."""

from __future__ import annotations

import functools
import hashlib
import importlib
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from msgspec.structs import replace

from regional_explorer.errors import InvalidArgumentError, PlanError, did_you_mean, shown_value
from regional_explorer.record.plan import DEFAULT, Direction, Plan, Treatment, UserFunction
from regional_explorer.torch_api.backends import registered_backend, registered_backends

_FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""The functions that were described in this process, by their digests."""

Function = Callable[..., Any]


@dataclass(frozen=True)
class Pass:
    """A pass for the pieces of one direction: ``ex.configure("mlp", passes=[rx.Pass(fuse, on="backward")])``.

    Args:
        function: takes the ``torch.fx.GraphModule`` of a piece, and changes it in place or returns another one.
        on: ``"forward"`` or ``"backward"``; None for both.
    """

    function: Function
    on: Direction | str | None = None


def with_treatment(treatment: Treatment, passes: Any, backend: Any) -> Treatment:
    """Return a treatment with the ``passes=`` and ``backend=`` of ``ex.configure``; None leaves a part as it is.

    Raises:
        InvalidArgumentError: a pass or the backend is no function, or no backend has that name.
    """
    if passes is not None:
        treatment = replace(treatment, passes=() if passes is DEFAULT else tuple(_passes(passes)))
    if backend is not None:
        treatment = replace(treatment, backend=None if backend is DEFAULT else _backend(backend))
    return treatment


def _passes(passes: Any) -> Iterator[UserFunction]:
    if isinstance(passes, (str, Mapping)) or not isinstance(passes, Iterable):
        raise InvalidArgumentError(f"passes={shown_value(passes)}: give a list of functions, such as passes=[fuse].")
    for item in passes:
        given = item if isinstance(item, Pass) else Pass(item)
        if isinstance(item, UserFunction):
            yield item
        elif not callable(given.function) or given.on not in (None, *Direction):
            raise InvalidArgumentError(
                f'{shown_value(item)} is no pass: give a function of a GraphModule, or rx.Pass(fn, on="forward").'
            )
        else:
            yield described(given.function, Direction(given.on) if given.on else None)


def _backend(backend: Any) -> UserFunction:
    if isinstance(backend, UserFunction):
        return backend
    if isinstance(backend, str):
        names = registered_backends()
        if backend not in names:
            raise InvalidArgumentError(
                f"No backend is called {shown_value(backend)}.{did_you_mean(backend, names)} "
                f"Backends: {', '.join(names)}."
            )
        return replace(described(registered_backend(backend), name=backend), name=backend, path=backend)
    if not callable(backend):
        raise InvalidArgumentError(
            f"backend={shown_value(backend)}: give a name, or a function of a GraphModule and its example inputs."
        )
    return described(backend)


def described(function: Function, direction: Direction | None = None, name: str = "") -> UserFunction:
    """Return the record of a function, by which ``function_of`` finds it again; a backend may have a ``name``."""
    own_name: str = getattr(function, "__qualname__", type(function).__qualname__)
    try:
        digest = hashlib.sha256(f"{name}{_text(function, {})}".encode()).hexdigest()[:20]
    except Exception as problem:
        raise InvalidArgumentError(
            f"{shown_value(function)} cannot be told from a changed one: {type(problem).__name__}: {problem}."
        ) from problem
    _FUNCTIONS[digest] = function
    return UserFunction(own_name.rpartition("<locals>.")[2], digest, _path_of(function), direction)


def _path_of(function: Function) -> str:
    """Return ``module:name`` if another process can import a function from there; a cell and a script it cannot."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    found: Any = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is function and module != "__main__" else ""


def function_of(described_as: UserFunction) -> Function:
    """Return the function that a record names.

    Raises:
        PlanError: it is of another process, and cannot be imported; or it has changed since.
    """
    found = _FUNCTIONS.get(described_as.digest)
    if found is None and not described_as.path:
        raise PlanError(
            f"The plan has {described_as.name!r}, which was defined in a notebook or script of another process: define "
            "it here and give it to ex.configure again."
        )
    if found is None and _resolved(described_as).digest == described_as.digest:
        found = _FUNCTIONS[described_as.digest]
    if found is None:
        raise PlanError(f"{described_as.path} has changed since it was given to the plan: give it again.")
    return found


def _resolved(saved: UserFunction) -> UserFunction:
    """Return the record of the function that is now at the path of a saved one; without a path it must be known."""
    if not saved.path:
        function_of(saved)
        return saved
    module, _, name = saved.path.partition(":")
    try:
        if not name:
            return replace(_backend(module), direction=saved.direction)
        function: Any = importlib.import_module(module)
        for part in name.split("."):
            function = getattr(function, part)
    except InvalidArgumentError as problem:
        raise PlanError(f"The plan has a backend that is not here. {problem}") from None
    except Exception as problem:  # an import runs any code
        raise PlanError(
            f"The plan has {saved.path}, which cannot be imported: {type(problem).__name__}: {problem}."
        ) from problem
    return described(function, saved.direction)


def with_functions(plan: Plan) -> Plan:
    """Return a plan of another process with the functions that it names as they are here.

    Raises:
        PlanError: one of them cannot be found.
    """
    for region in plan.regions:
        passes, backend = region.treatment.passes, region.treatment.backend
        found = Treatment(tuple(map(_resolved, passes)), backend and _resolved(backend))
        plan = plan.changed(region.name, treatment=found)
    return plan


# ------------------------------------------------------------------------------------------------- what a function is


def _text(value: Any, seen: dict[int, str], package: str = "") -> str:
    """Return a text that is equal for equal functions in every process of this Python.

    A function is its compiled code, because a source file may have been edited since it was imported; its defaults,
    its closure, and what it uses of its module. Functions and classes of other packages, and all of torch's, are
    names, unless another function has made them.
    """
    if id(value) in seen:
        return seen[id(value)]
    is_definition = isinstance(value, (FunctionType, type))
    kind = value if is_definition else type(value)
    name, own = f"{kind.__module__}.{kind.__qualname__}", str(kind.__module__).partition(".")[0]
    match value:
        case set() | frozenset():  # their order differs from process to process
            return str(sorted(_text(item, seen, package) for item in value))
        case tuple() | list():
            return f"[{','.join(_text(item, seen, package) for item in value)}]"
        case ModuleType():
            return value.__name__
        case torch.Tensor():  # its repr leaves most of it out
            return f"{name}{hashlib.sha256(pickle.dumps(value.detach())).hexdigest()}"
    parts = _parts(value)
    if parts is None:
        return f"{name}{value!r}"
    if not isinstance(value, (Mapping, CodeType)):
        seen[id(value)] = name
    if is_definition and "<locals>" not in name and (own == "torch" or package not in ("", own)):
        return name
    return f"{name}{_text(parts, seen, own if is_definition else package)}"


def _parts(value: Any) -> Any:
    """Return what a function, a class or another object consists of; None if its ``repr`` says it."""
    match value:
        case FunctionType():
            is_torch = str(value.__module__).startswith("torch.")
            names = {name for code in _codes(value.__code__) for name in code.co_names}
            used = set() if is_torch else names & value.__globals__.keys()
            cells = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
            globals_used = [(name, value.__globals__[name]) for name in sorted(used)]
            return value.__code__, value.__defaults__, value.__kwdefaults__, cells, globals_used
        case type():
            members = vars(value).items()
            return [pair for pair in members if isinstance(pair[1], FunctionType) or not pair[0].startswith("__")]
        case Mapping():
            return list(value.items())
        case CodeType():
            return value.co_code.hex(), value.co_names, value.co_varnames, value.co_consts
        case functools.partial():
            return value.func, value.args, value.keywords
        case MethodType():
            return value.__func__, value.__self__
    return (type(value), getattr(value, "__dict__", {})) if " at 0x" in repr(value) else None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
