"""Moves a submodule's call out of an expression into a statement of its own, so that a ``with`` can surround it.

``annotate_fn`` around the called function would read better, but Dynamo breaks the graph when it traces that (2.13,
2.15).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import libcst as cst

from regional_explorer.errors.texts import fresh_names

EVALUATED_ONCE = (
    *(cst.Return, cst.Expr, cst.Assign, cst.AnnAssign, cst.AugAssign),
    *(cst.Call, cst.Arg, cst.Attribute, cst.Subscript, cst.BinaryOperation, cst.UnaryOperation),
    *(cst.Tuple, cst.List, cst.Element),
)
"""Syntax that evaluates all its parts once, from left to right; a condition or a comprehension does not."""


def can_be_hoisted(statement: cst.CSTNode, call: cst.Call) -> bool:
    """Return whether a call can run before the rest of its statement: only names are evaluated before it."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) > 1:
        return False
    path = _path_to(statement.body[0], call)
    if path is None or not all(isinstance(holder, EVALUATED_ONCE) for holder in path[:-1]):
        return False
    return all(
        _is_trivial(part) for holder, inner in itertools.pairwise(path) for part in _evaluated_before(holder, inner)
    )


def _path_to(node: cst.CSTNode, target: cst.CSTNode) -> list[cst.CSTNode] | None:
    if node is target:
        return [node]
    for child in node.children:
        if (below := _path_to(child, target)) is not None:
            return [node, *below]
    return None


def _evaluated_before(holder: cst.CSTNode, inner: cst.CSTNode) -> Iterable[cst.CSTNode]:
    """Return the parts of an expression that are evaluated before one of its parts."""
    if isinstance(holder, (cst.Assign, cst.AnnAssign)):
        return ()  # the value comes first
    return itertools.takewhile(lambda child: child is not inner, holder.children)


def _is_trivial(node: cst.CSTNode) -> bool:
    """Return whether an expression computes nothing: a name, a number, an attribute of ``self`` or of a module."""
    computing = (cst.Call, cst.BinaryOperation, cst.UnaryOperation, cst.Comparison, cst.Subscript, cst.Await, cst.Yield)
    if isinstance(node, computing):
        return False
    if isinstance(node, cst.Attribute):
        base: Any = node
        while isinstance(base, cst.Attribute):
            base = base.value
        return isinstance(base, cst.Name) and base.value in ("self", "torch", "nn", "F")  # x.T is an op
    return all(_is_trivial(child) for child in node.children)


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
        if _is_trivial(argument.value):
            arguments.append(argument)
            continue
        name = cst.Name(next(fresh))
        inputs.append(_assignment(name, argument.value))
        arguments.append(argument.with_changes(value=name))
    return Hoisted(inputs, _assignment(output, call.with_changes(args=arguments)), output)


def _assignment(name: cst.Name, value: cst.BaseExpression) -> cst.SimpleStatementLine:
    bare = value.with_changes(lpar=[], rpar=[])  # parentheses of an expression that no longer needs them
    spans_lines = bool(value.lpar) and "\n" in cst.Module([]).code_for_node(value)
    keep_parens = isinstance(value, cst.GeneratorExp) or spans_lines
    return cst.SimpleStatementLine([cst.Assign([cst.AssignTarget(name)], value if keep_parens else bare)])
