"""Runs work while live functions of the user have the code of an edited source text, to trace the edit."""

from __future__ import annotations

import ast
import gc
import inspect
import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping
from itertools import chain, repeat, zip_longest
from types import CodeType, FunctionType
from typing import TypeVar

import torch
from torch.fx.traceback import annotate

from regional_explorer.capture.user_lines import codes_below

REGION_NAMES = ("rx.region", "regional_explorer.region", "region")
"""The names of ``rx.region`` in the source."""

T = TypeVar("T")


def run_under_changed_source(texts: Mapping[str, tuple[str, str]], work: Callable[[], T]) -> T:
    """Run ``work`` while functions have the code of a changed source text, as with IPython's autoreload.

    Other threads get the same results from these functions: marks in the changed text have an effect only where Dynamo
    traces. ``texts`` has the text of files before and after, by path; both have the same functions, in the same order.
    """
    codes = {}
    for path, (before, after) in texts.items():
        old, new = (
            _function_codes(ast.parse(before), path),
            _function_codes(_with_limited_marks(ast.parse(after)), path),
        )
        codes.update({_key(code): changed for code, changed in zip(old, new, strict=True) if _differ(code, changed)})
    changes = [
        (function, code)
        for function in _functions(codes)
        if (code := codes.get(_key(function.__code__)) or _without_mark(function, texts)) is not None
        and code.co_freevars == function.__code__.co_freevars
    ]
    functions = [function for function, _ in changes]
    spaces = [function.__globals__ for function in functions if "torch" not in function.__globals__]
    exchanged = chain(
        map(setattr, functions, repeat("__code__"), [code for _, code in changes]),
        map(dict.setdefault, spaces, repeat("torch"), repeat(torch)),
    )
    put_back = chain(
        map(setattr, functions, repeat("__code__"), [function.__code__ for function in functions]),
        map(dict.pop, spaces, repeat("torch"), repeat(None)),
    )
    try:
        deque(exchanged, 0)
        return work()
    finally:
        deque(put_back, 0)  # runs in C, where no interrupt comes in between: no function stays changed


def _functions(wanted: Collection[tuple[str, int, str]]) -> list[FunctionType]:
    """Return the live functions; if one of ``wanted`` is missing, search those that ``gc.freeze`` set aside.

    ``gc.get_objects`` leaves them out, and finding them takes seconds.
    """
    objects = gc.get_objects()
    functions = [item for item in objects if type(item) is FunctionType]
    if not gc.get_freeze_count() or {_key(item.__code__) for item in functions}.issuperset(wanted):
        return functions
    objects.append(sys.modules)
    known_ids = set(map(id, objects))
    for holder in objects:  # the list grows in the loop
        referents = {id(item): item for item in gc.get_referents(holder) if gc.is_tracked(item)}
        objects += (item for key, item in referents.items() if key not in known_ids)
        known_ids.update(referents)
    return [item for item in objects if type(item) is FunctionType]


def _key(code: CodeType) -> tuple[str, int, str]:
    return code.co_filename, code.co_firstlineno, code.co_name


def _function_codes(tree: ast.Module, path: str) -> list[CodeType]:
    """Return the code of all functions with a name, in their order in the source."""
    codes = codes_below(compile(tree, path, "exec", dont_inherit=True))
    named = [code for code in codes if code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")]
    return sorted(named, key=lambda code: code.co_firstlineno)


def _differ(code: CodeType, other: CodeType) -> bool:
    """Return whether two code objects differ in more than line numbers."""
    if (code.co_code, code.co_names, code.co_varnames) != (other.co_code, other.co_names, other.co_varnames):
        return True
    return any(
        _differ(left, right) if isinstance(left, CodeType) and isinstance(right, CodeType) else left != right
        for left, right in zip_longest(code.co_consts, other.co_consts)
    )


# ------------------------------------------------------------------------------------------------------------ the marks


def _with_limited_marks(tree: ast.Module) -> ast.Module:
    """Limit the marks that ``ex.to_source`` writes to where Dynamo traces, and turn decorators into blocks.

    Marks in eager code change state that all threads share (``torch.fx.traceback.current_meta``, torch 2.13).
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            for item in node.items:
                if ast.unparse(item.context_expr).startswith("torch.fx.traceback.annotate("):
                    item.context_expr = _only_where_traced(item.context_expr)
        elif isinstance(node, ast.FunctionDef):
            marks = [mark for decorator in node.decorator_list if (mark := _mark_as_manager(decorator)) is not None]
            if marks:
                node.body = [ast.With([ast.withitem(mark) for mark in marks], node.body)]
                node.decorator_list = [item for item in node.decorator_list if _mark_as_manager(item) is None]
    return ast.fix_missing_locations(tree)


def _mark_as_manager(decorator: ast.expr) -> ast.expr | None:
    """Return the context manager that marks like ``decorator``; None if ``decorator`` is no mark."""
    if not isinstance(decorator, ast.Call):
        return None
    name = ast.unparse(decorator.func)
    if name.rpartition(".")[2] == "annotate_fn":
        manager = ast.parse("torch.fx.traceback.annotate", mode="eval").body
        return _only_where_traced(ast.Call(manager, decorator.args, decorator.keywords))
    return _only_where_traced(decorator) if name in REGION_NAMES else None


def _only_where_traced(manager: ast.expr) -> ast.expr:
    test = ast.parse("torch.compiler.is_dynamo_compiling()", mode="eval").body
    nothing = ast.parse("__import__('contextlib').nullcontext()", mode="eval").body
    return ast.IfExp(test, manager, nothing)


def _without_mark(function: FunctionType, files: Collection[str]) -> CodeType | None:
    """Return code with which a decorated function of ``files`` only calls the original; None for other functions.

    A live function keeps the decorators it was defined with, whatever the changed text has.
    """
    code = function.__code__
    variables = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    marks = code.co_qualname == "annotate_fn.<locals>.decorator.<locals>.wrapper" or (
        code.co_qualname == "ContextDecorator.__call__.<locals>.inner"
        and getattr(variables["self"].cell_contents, "func", None) is inspect.unwrap(annotate)
    )
    if not marks or inspect.unwrap(function).__code__.co_filename not in files:
        return None
    names, (args, kwargs) = ", ".join(code.co_freevars), code.co_varnames[:2]
    text = f"def outer({names}):\n def inner(*{args}, **{kwargs}):\n  return func(*{args}, **{kwargs})\n  ({names})"
    return next(inner for inner in codes_below(compile(text, code.co_filename, "exec")) if inner.co_name == "inner")
