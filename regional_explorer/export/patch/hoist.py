"""Moves a submodule's call out of an expression into a statement of its own, so that a ``with`` can surround it.

``annotate_fn`` around the called function would read better, but Dynamo breaks the graph when it traces that (2.13,
2.15).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import libcst as cst

HOLDERS = (
    *(cst.Return, cst.Expr, cst.Assign, cst.AnnAssign, cst.AugAssign),
    *(cst.Call, cst.Arg, cst.Attribute, cst.Subscript, cst.BinaryOperation, cst.UnaryOperation),
    *(cst.Tuple, cst.List, cst.Element),
)
"""Syntax that evaluates all its parts once, from left to right; a condition or a comprehension does not."""


def can_be_hoisted(statement: cst.CSTNode, call: cst.Call) -> bool:
    """Return whether a call can run before the rest of its statement: only names are evaluated before it."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) > 1:
        return False
    path = _path(statement.body[0], call)
    if path is None or not all(isinstance(holder, HOLDERS) for holder in path[:-1]):
        return False
    return all(
        _is_plain(part) for holder, inner in itertools.pairwise(path) for part in _evaluated_before(holder, inner)
    )


def _path(node: cst.CSTNode, wanted: cst.CSTNode) -> list[cst.CSTNode] | None:
    if node is wanted:
        return [node]
    for child in node.children:
        if (below := _path(child, wanted)) is not None:
            return [node, *below]
    return None


def _evaluated_before(holder: cst.CSTNode, inner: cst.CSTNode) -> Iterable[cst.CSTNode]:
    """Return the parts of an expression that are evaluated before one of its parts."""
    if isinstance(holder, (cst.Assign, cst.AnnAssign)):
        return ()  # the value comes first
    return itertools.takewhile(lambda child: child is not inner, holder.children)


def _is_plain(node: cst.CSTNode) -> bool:
    """Return whether an expression computes nothing: a name, a number, an attribute of ``self`` or of a module."""
    computing = (cst.Call, cst.BinaryOperation, cst.UnaryOperation, cst.Comparison, cst.Subscript, cst.Await, cst.Yield)
    if isinstance(node, computing):
        return False
    if isinstance(node, cst.Attribute):
        first: Any = node
        while isinstance(first, cst.Attribute):
            first = first.value
        return isinstance(first, cst.Name) and first.value in ("self", "torch", "nn", "F")  # x.T is an op
    return all(_is_plain(child) for child in node.children)


@dataclass(frozen=True)
class Hoisted:
    """A call as separate statements: its inputs, then the call; ``name`` is the variable for its result."""

    inputs: list[cst.SimpleStatementLine]
    call: cst.SimpleStatementLine
    name: cst.Name


def hoisted(call: cst.Call, module: str, used: Collection[str]) -> Hoisted:
    """Return ``call`` of the submodule ``module`` as statements, with variable names that are not in ``used``."""
    base = next((part for part in reversed(module.split(".")) if part.isidentifier()), "module")
    output = cst.Name(next(fresh_names(f"{base}_output", used)))
    inputs, arguments = [], []
    fresh = fresh_names(f"{base}_input", used)
    for argument in call.args:
        if _is_plain(argument.value):
            arguments.append(argument)
            continue
        name = cst.Name(next(fresh))
        inputs.append(_assign(name, argument.value))
        arguments.append(argument.with_changes(value=name))
    return Hoisted(inputs, _assign(output, call.with_changes(args=arguments)), output)


def fresh_names(base: str, used: Collection[str]) -> Iterator[str]:
    """Return an iterator over ``base``, ``base_2``, ``base_3`` and so on, without the names in ``used``."""
    names = itertools.chain([base], (f"{base}_{number}" for number in itertools.count(2)))
    return (name for name in names if name not in used)


def _assign(name: cst.Name, value: cst.BaseExpression) -> cst.SimpleStatementLine:
    bare = value.with_changes(lpar=[], rpar=[])  # parentheses of an expression that no longer needs them
    spans_lines = bool(value.lpar) and "\n" in cst.Module([]).code_for_node(value)
    keep = isinstance(value, cst.GeneratorExp) or spans_lines
    return cst.SimpleStatementLine([cst.Assign([cst.AssignTarget(name)], value if keep else bare)])
