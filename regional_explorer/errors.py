"""The exceptions, the checks of arguments, and the words of messages: what went wrong, where, and what to do."""

from __future__ import annotations

import difflib
import functools
import importlib.util
import itertools
import os
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import FrameType, FunctionType, TracebackType
from typing import Any, TypeVar

__all__ = [
    "ArtifactError",
    "BusyError",
    "CacheDirectoryError",
    "CaptureError",
    "ClosedError",
    "CompileEnvironmentError",
    "InvalidArgumentError",
    "InvalidConfigKeyError",
    "InvalidConfigValueError",
    "MeasureError",
    "MissingPackageError",
    "NoCompilerError",
    "NotCompiledError",
    "PlanError",
    "RegionAssertionError",
    "RegionCompileError",
    "RegionalExplorerError",
    "ReproError",
    "SelectorError",
    "SessionError",
    "SourcePatchError",
    "UnknownConfigKeyError",
    "UnknownRegionError",
    "UnsupportedTorchError",
]
"""The exceptions, which ``rx`` has too."""


class RegionalExplorerError(Exception):
    """Base of every error this package raises on purpose."""


class InvalidArgumentError(RegionalExplorerError, ValueError):
    """An argument has a wrong type or an invalid value; the text says what to pass."""


class UnsupportedTorchError(RegionalExplorerError):
    """The installed torch is too old, or lacks a part that this package depends on."""


class RefusalCode(StrEnum):
    """Why a call cannot be explored; ``docs/diagnostics.md`` has a section for each."""

    CALL_RAISES = "call-raises"
    CALL_TRAINS = "call-trains"
    CALL_UNFINISHED = "call-unfinished"
    CALL_ATTACHES = "call-attaches"
    CALL_CONTINUES = "call-continues"
    NO_GRADIENT = "no-gradient"
    TRACE_FAILED = "trace-failed"
    GRAPH_FAILED = "graph-failed"
    NOTHING_CAPTURED = "nothing-captured"


class CaptureError(RegionalExplorerError):
    """The call could not be captured: a stable ``code``, and a text with the reason and, where known, the line."""

    def __init__(self, code: RefusalCode, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        """Return code and text, as diagnostics show theirs."""
        return f"[{self.code}] {self.message}"


class UnknownRegionError(RegionalExplorerError):
    """The plan has no region of this name; near matches are listed."""


class SelectorError(RegionalExplorerError, ValueError):
    """A selector is malformed or matches nothing; near matches are listed."""


class UnknownConfigKeyError(RegionalExplorerError):
    """The running torch has no Inductor config of this name; near matches are listed."""


class InvalidConfigKeyError(RegionalExplorerError):
    """The Inductor config exists, but cannot be set for one region."""


class InvalidConfigValueError(RegionalExplorerError):
    """The value does not fit the type or the allowed values of the Inductor config."""


class NotCompiledError(RegionalExplorerError):
    """The requested information exists only for compiled code, and the region has none."""


class RegionCompileError(RegionalExplorerError):
    """Inductor could not compile a region; the region keeps running eagerly."""


class RegionAssertionError(RegionalExplorerError, AssertionError):
    """An assert in the compiled code of a region failed; the text names the region, the node and the source line."""


class CompileEnvironmentError(RegionCompileError):
    """The machine kept a region from being compiled (disk, memory, a directory); the next compile tries again."""


class CacheDirectoryError(RegionalExplorerError):
    """Inductor's cache directory cannot be used; without it, torch cannot import its compilers."""


class NoCompilerError(RegionCompileError):
    """There is no working C++ compiler, which Inductor needs for CPU code."""


class MeasureError(RegionalExplorerError):
    """A measurement cannot be made."""


class PlanError(RegionalExplorerError, ValueError):
    """A plan is malformed, or its file cannot be read."""


class ArtifactError(RegionalExplorerError):
    """Artifacts cannot be written to a directory, or it is not safe to load them from it."""


class SourcePatchError(RegionalExplorerError):
    """A plan cannot be written into the source: a file is not tracked by git, not clean, or cannot be written."""


class ReproError(RegionalExplorerError):
    """A partition cannot be written as a self-contained script; the text names the reason."""


class SessionError(RegionalExplorerError):
    """A saved session is malformed, or its file cannot be read or written."""


class NoVerdictError(SessionError):
    """The samples of a saved session allow no verdict: there are too few, or the machine was too busy."""


class MissingPackageError(RegionalExplorerError, ImportError):
    """A package of the notebook extra is not installed; the text names the pip command."""


class BusyError(RegionalExplorerError):
    """A measurement or a job of the panel is using the exploration; nothing else can use it meanwhile."""


class ClosedError(RegionalExplorerError):
    """The exploration was closed: its arguments and artifacts are freed."""


# ---------------------------------------------------------------------------------------------------------- tracebacks

FULL_TRACEBACKS = "REGIONAL_EXPLORER_FULL_TRACEBACKS"
"""The environment variable that makes errors keep the frames of this package."""

_PACKAGE = __name__.partition(".")[0]

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


def user_facing(function: F) -> F:
    """Return ``function`` wrapped: errors of this package leave it without the package's own frames.

    The traceback of any other exception stays as it is, and so does that of a call by this package itself.
    """

    @functools.wraps(function)
    def called_by_user(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except RegionalExplorerError as error:
            if not is_own_frame(sys._getframe(1)) and FULL_TRACEBACKS not in os.environ:  # noqa: SLF001
                _remove_own_frames(error)
            raise  # alone, it does not add this frame again

    return called_by_user  # type: ignore[return-value]


def user_facing_methods(owner: C) -> C:
    """Return the class with all of its public methods and properties ``user_facing``."""
    for name, member in list(vars(owner).items()):
        if name.startswith("_") and name not in ("__init__", "__getitem__"):
            continue
        if isinstance(member, FunctionType):
            setattr(owner, name, user_facing(member))
        elif isinstance(member, property):
            accessors: list[Any] = [part and user_facing(part) for part in (member.fget, member.fset, member.fdel)]
            setattr(owner, name, property(accessors[0], accessors[1], accessors[2], member.__doc__))
    return owner


def is_own_frame(frame: FrameType) -> bool:
    """Return whether a frame runs code of this package."""
    return str(frame.f_globals.get("__package__")).partition(".")[0] == _PACKAGE


def _remove_own_frames(error: BaseException) -> None:
    """Remove the frames of this package from the tracebacks of an error and of its cause.

    A cause without any other frame is not shown; it stays the error's context.
    """
    error.__traceback__ = _foreign_frames(error.__traceback__)
    cause = error.__cause__
    if cause is not None:
        _remove_own_frames(cause)
        if cause.__traceback__ is None:
            error.__context__, error.__cause__ = cause, None  # an assignment, even of None, hides the context


def _foreign_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of this package, and without those that it called in the standard library.

    None if no frame is left.
    """
    entries: list[TracebackType] = []
    below_own = True
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__")).partition(".")[0]
        below_own = is_own_frame(traceback.tb_frame) or (below_own and module in sys.stdlib_module_names)
        if not below_own:
            entries.append(traceback)
        traceback = traceback.tb_next
    foreign: TracebackType | None = None
    for entry in reversed(entries):
        foreign = TracebackType(foreign, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return foreign


# --------------------------------------------------------------------------------------------------- words of messages

LONGEST_COMPARED_NAME = 500
"""Longer names get no suggestions: they are no typing errors, and comparing them with each name would take minutes."""


def did_you_mean(word: object, names: Iterable[str]) -> str:
    """Return `` Did you mean 'a' or 'b'?`` for the names nearest to ``word``, or an empty string."""
    if not isinstance(word, str) or len(word) > LONGEST_COMPARED_NAME:
        return ""
    matches = difflib.get_close_matches(word, list(dict.fromkeys(names)))
    return f" Did you mean {' or '.join(map(repr, matches))}?" if matches else ""


MAX_SHOWN_CHARS = 80
"""The maximum number of characters shown of a value."""


def shown_value(value: object) -> str:
    """Return the ``repr`` of a value on one short line, or its type if ``repr`` raises."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 - the user's own __repr__ may raise anything
        text = f"<{type(value).__name__}>"
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[: MAX_SHOWN_CHARS - 1]}…"


def check_argument(
    name: str,
    value: object,
    expected_type: type | tuple[type, ...],
    what_to_give: str,
    error: type[RegionalExplorerError] = InvalidArgumentError,
) -> None:
    """Raise ``error`` unless ``value`` is an ``expected_type``; ``what_to_give`` says in words what to pass."""
    if not isinstance(value, expected_type):
        raise error(f"{name}={shown_value(value)}: give {what_to_give}.")


def check_flag(name: str, value: object, *, optional: bool = False) -> None:
    """Raise InvalidArgumentError unless ``value`` is True or False, or None where that is ``optional``."""
    if not isinstance(value, bool) and not (optional and value is None):
        raise InvalidArgumentError(
            f"{name}={shown_value(value)}: give True{', False or None' if optional else ' or False'}."
        )


def check_callable(name: str, value: object, what_to_give: str) -> None:
    """Raise InvalidArgumentError unless ``value`` can be called."""
    if not callable(value):
        raise InvalidArgumentError(f"{name}={shown_value(value)} is not callable: give {what_to_give}.")


def require_notebook(feature: str, packages: Sequence[str] = ("IPython", "ipywidgets", "anywidget")) -> None:
    """Raise MissingPackageError, with the pip command, if a package that ``feature`` needs is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPackageError(
            f"{feature} needs a package that is not installed: {', '.join(missing)}. Install it: pip install "
            f"{' '.join(missing)}. Tables, ex.save() and everything else work without it."
        )


def error_line(error: Exception) -> str:
    """Return the first line of an error's text, after the name of its class unless this package defines it."""
    text = (str(error).splitlines() or [""])[0]
    return text if isinstance(error, RegionalExplorerError) else f"{type(error).__name__}: {text}"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 op`` or ``1,200 ops``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listing(texts: Iterable[str], most: int = 4, *, joint: str = ", ") -> str:
    """Return the first ``most`` texts and the number of the others: ``a, b, … (3 more)``."""
    items = list(texts)
    more = f"{joint}… ({len(items) - most} more)" if len(items) > most else ""
    return joint.join(items[:most]) + more


def fresh_names(base: str, used: Container[str]) -> Iterator[str]:
    """Return an iterator over ``base``, ``base_2``, ``base_3`` and so on, without the names in ``used``."""
    names = itertools.chain([base], (f"{base}_{number}" for number in itertools.count(2)))
    return (name for name in names if name not in used)


def sendable(text: str) -> str:
    """Return ``text`` with lone surrogates escaped, which JSON and UTF-8 cannot encode; otherwise unchanged."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


# -------------------------------------------------------------------- rx.explore with its arguments in the wrong places


EXPLORE_OPTIONS = ("grad", "dynamic", "plan", "tracing")
"""The keywords of ``rx.explore`` besides the arguments of the call."""


def misplaced_arguments(
    args: Any, kwargs: Any, more: Sequence[Any], unknown: Mapping[str, Any]
) -> InvalidArgumentError:
    """Return the error of a call whose arguments are not in a tuple, or whose keyword arguments are not in a dict.

    Args:
        args: the value in the place of the tuple.
        kwargs: the value in the place of the dict.
        more: the arguments after these two.
        unknown: the keyword arguments that are no options.
    """
    problems = [f"rx.explore has no option {name!r}.{did_you_mean(name, EXPLORE_OPTIONS)}" for name in unknown]
    if not isinstance(args, (tuple, list)):
        problems.append(f"args={shown_value(args)}: give a tuple.")
    elif not isinstance(kwargs, (Mapping, type(None))):
        problems.append(f"kwargs={shown_value(kwargs)}: give a dict.")
    elif more:
        problems.append(f"There are {2 + len(more)} arguments after the function.")
    name = next(iter(unknown), "name")
    return InvalidArgumentError(
        f"{' '.join(problems)} The arguments of the call go in a tuple, keyword arguments in a dict: "
        f"rx.explore(fn, (x, y)) for fn(x, y), rx.explore(fn, (x,), {{{name!r}: …}}) for fn(x, {name}=…)."
    )
