"""The error of a call of ``rx.explore`` with its arguments in the wrong places, spelled in the caller's own words."""

from __future__ import annotations

import ast
import itertools
import linecache
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from regional_explorer.errors import InvalidArgumentError, did_you_mean, is_own_frame, shown_value

OPTIONS = ("grad", "dynamic", "plan", "partitioner", "joint_passes", "decompositions", "frozen")
"""The keywords of ``rx.explore`` besides the arguments of the call."""

LONGEST_WORDS = 40
"""Longer expressions of the caller are written as ``…``."""


def misplaced_arguments(
    args: Any, kwargs: Any, more: Sequence[Any], unknown: Mapping[str, Any]
) -> InvalidArgumentError:
    """Return the error of a call whose arguments are not in a tuple, or whose keyword arguments are not in a dict.

    Args:
        args: what stands in the place of the tuple.
        kwargs: what stands in the place of the dict.
        more: what was given behind them.
        unknown: what was given by keywords that are no options.
    """
    problems = [f"rx.explore has no option {name!r}.{did_you_mean(name, OPTIONS)}" for name in unknown]
    if not isinstance(args, (tuple, list)):
        problems.append(f"args={shown_value(args)}: give a tuple.")
    elif not isinstance(kwargs, (Mapping, type(None))):
        problems.append(f"kwargs={shown_value(kwargs)}: give a dict.")
    elif more:
        problems.append(f"There are {2 + len(more)} arguments behind the function.")
    spelled = _spelled([args, kwargs, *more], unknown)
    return InvalidArgumentError(
        f"{' '.join(problems)} The arguments of the call go in a tuple, keyword arguments in a dict: {spelled}."
    )


def _spelled(values: Sequence[Any], unknown: Mapping[str, Any]) -> str:
    """Return the right call for these positional and keyword arguments, in the words of the caller's source."""
    call = _written_call()
    if call is None or not _is_plain(call):
        return f"rx.explore(fn, (x, y){''.join(f', {{{name!r}: …}}' for name in itertools.islice(unknown, 1))})"
    fn, *given = call.args
    in_tuple: list[str] = []
    in_dict = [f'"{item.arg}": {_words(item.value)}' for item in call.keywords if item.arg in unknown]
    own_dict = ""
    for place, (value, expression) in enumerate(zip(values, given, strict=False)):
        words = _words(expression)
        if place == 1 and isinstance(value, Mapping):
            own_dict = words
        elif place == 0 and isinstance(expression, (ast.Tuple, ast.List)):
            in_tuple += map(_words, expression.elts)
        else:
            in_tuple.append(f"*{words}" if place == 0 and isinstance(value, (tuple, list)) else words)
    arguments = f"({', '.join(in_tuple)}{',' if len(in_tuple) == 1 else ''})"
    if own_dict and in_dict:
        in_dict.insert(0, f"**{own_dict}")
    named = [f"{{{', '.join(in_dict)}}}"] if in_dict else [own_dict] if own_dict else []
    options = [f"{item.arg}={_words(item.value)}" for item in call.keywords if item.arg in OPTIONS]
    spelled = f"rx.explore({', '.join([_words(fn), arguments, *named, *options])})"
    if isinstance(values[0], Mapping) and len(given) == 1:
        batch = _words(given[0])
        of_keywords = f"rx.explore({', '.join([_words(fn), '()', batch, *options])})"
        return f"{of_keywords} for {_words(fn)}(**{batch}), {spelled} for {_words(fn)}({batch})"
    return spelled


def _is_plain(call: ast.Call) -> bool:
    """Return whether the places of a call's arguments can be read: none is starred, or given by the name of a place."""
    by_name = {item.arg for item in call.keywords} & {"fn", "args", "kwargs", None}
    return not by_name and not any(isinstance(one, ast.Starred) for one in call.args)


def _words(expression: ast.expr) -> str:
    text = ast.unparse(expression)
    return text if len(text) <= LONGEST_WORDS else "…"


def _written_call() -> ast.Call | None:
    """Return the call of this package that the user's code makes, as it is written; None if its source is not known."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - the documented way to the callers' frames
    while frame is not None and is_own_frame(frame):
        frame = frame.f_back
    if frame is None:
        return None
    position = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals)))
    except (SyntaxError, ValueError, RecursionError):
        return None
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return next(
        (one for one in calls if (one.lineno, one.end_lineno, one.col_offset, one.end_col_offset) == position), None
    )
