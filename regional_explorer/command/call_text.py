"""Parses the text of a call, and splits a cell into the call and the source before it."""

from __future__ import annotations

import ast
import builtins
import io
import tokenize
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from regional_explorer.command.options import CommandError, option_after
from regional_explorer.errors import did_you_mean, shown_value

EXAMPLE = "model(x)"

_COLLECTOR = "regional_explorer collects the call"  # not an identifier, so it cannot be a name of the user's


@dataclass(frozen=True, slots=True)
class CallText:
    """One call expression. ``quiet`` is True if it ends in a semicolon, which suppresses output."""

    text: str
    call: ast.Call
    quiet: bool

    def evaluate(
        self, names: dict[str, Any], local: Mapping[str, Any] | None = None
    ) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Evaluate and return the function, the positional and the keyword arguments, without making the call.

        Raises:
            CommandError: a name in it does not exist, evaluating a part of it raises, or it calls a built-in.
        """
        # The call with ``_collect_call`` as its function, so that Python itself handles stars, keywords and order.
        collecting = ast.Call(ast.Name(_COLLECTOR, ast.Load()), [self.call.func, *self.call.args], self.call.keywords)
        tree = ast.fix_missing_locations(ast.Expression(ast.copy_location(collecting, self.call)))
        try:
            fn, args, kwargs = eval(  # noqa: S307 - the user's own expression, in their own namespace
                compile(tree, "<call>", "eval"), names, {**(local or {}), _COLLECTOR: _collect_call}
            )
        except NameError as error:
            known_names = {*names, *(local or {}), *vars(builtins)}
            raise CommandError(f"{str(error).rstrip('.')}.{did_you_mean(error.name or '', known_names)}") from error
        except Exception as error:
            raise CommandError(
                f"Evaluating {self.text} raised {type(error).__name__} before the call: {error}"
            ) from error
        if getattr(fn, "__module__", None) == "builtins":
            raise CommandError(
                f"{self.text} calls Python's own {fn.__name__}, in which there is nothing to compile. Give the call of "
                f"your function alone: {EXAMPLE}"
            )
        return fn, args, kwargs


def _collect_call(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    return fn, args, kwargs


def read_call(text: str) -> CallText:
    """Parse the text of one call.

    Raises:
        CommandError: it is not one call expression, or options follow it.
    """
    text = text.strip()
    if not text:
        raise CommandError(f"The call is missing. Example: {EXAMPLE}")
    try:
        body = ast.parse(text).body
    except SyntaxError as error:
        _check_no_options_after(text)
        raise CommandError(f"{shown_value(text)} is not Python: {error.msg}. Give one call: {EXAMPLE}") from error
    except (ValueError, RecursionError, MemoryError) as error:  # a null character, or brackets without end
        raise CommandError(f"{shown_value(text)} cannot be read as Python. Give one call: {EXAMPLE}") from error
    match body:
        case [ast.Expr(value=ast.Call() as call)]:
            return CallText(ast.get_source_segment(text, call) or text, call, _ends_in_semicolon(text))
    _check_no_options_after(text)
    raise CommandError(f"{shown_value(text)} is not one call. Give a function with its arguments: {EXAMPLE}")


def split_cell(cell: str) -> tuple[str, str]:
    """Split a cell into the source before its last expression, and that expression.

    Raises:
        CommandError: the last statement is not a call.
        SyntaxError: the cell is not Python.
    """
    body = ast.parse(cell).body
    if not body or not isinstance(body[-1], ast.Expr) or not isinstance(body[-1].value, ast.Call):
        last_lines = (ast.get_source_segment(cell, body[-1]) or "").splitlines()[:1] if body else []
        actual = f"; here the last line is {last_lines[0]!r}" if last_lines else ", but the cell has no statement"
        raise CommandError(f"The last line of the cell must be the call{actual}. Example: model(x)")
    last_statement = body[-1]
    lines = cell.encode().splitlines(keepends=True)
    row, column = last_statement.lineno - 1, last_statement.col_offset
    before = b"".join(lines[:row]) + lines[row][:column]
    after = lines[row][column:] + b"".join(lines[row + 1 :])
    return before.decode(), after.decode()


def _check_no_options_after(text: str) -> None:
    if (name := option_after(text)) is not None:
        call = text.partition(f" {name}")[0].strip()
        raise CommandError(f"Options go before the call: {name} … {call}")


def _ends_in_semicolon(text: str) -> bool:
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER}
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in skipped]
    return bool(tokens) and tokens[-1].string == ";"
