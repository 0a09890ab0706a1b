"""Finds the scopes of each op in the user's program: modules, functions and line, outermost first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice, pairwise, takewhile

from regional_explorer.record.graph import Graph, Node, SourceLine
from regional_explorer.render.picture.drawn import drawn, sources

MOST_LEVELS = 100
"""Modules or functions nested deeper are left out: nobody opens as many folds, and folds are built recursively."""


class ScopeKind(StrEnum):
    """The kind of a scope: one call of a module, one call of a function, a line, or a piece of a region."""

    MODULE = "module"
    FUNCTION = "function"
    LINE = "line"
    PIECE = "piece"


@dataclass(frozen=True, slots=True)
class Scope:
    """A module, function, line or piece that contains ops.

    ``name`` is the path of the module, the name of the function, the text of the line, or the id of the piece;
    ``about`` the module's class, the line that calls the function, or where the line is. ``run`` numbers the times that
    the program returns to a function or line, as in a loop.
    """

    kind: ScopeKind
    name: str
    about: str = ""
    run: int = 0


Chain = tuple[Scope, ...]
"""The scopes of an op, outermost first."""


def scopes(graph: Graph) -> dict[str, Chain]:
    """Return the scopes of each op that is drawn, in the order they run.

    A sum of gradients, which AOTAutograd adds without a module, gets the scopes that all its inputs share.
    """
    node_sources = sources(graph)
    ops = [node for node in graph.nodes if drawn(node)]
    wrapper_depth = _wrapper_depth([node.stack for node in ops if node.stack])
    chains: dict[str, Chain] = {}
    for node in ops:
        common = _common_scopes(chains.get(name, ()) for name in node_sources[node.name])
        is_sum = node.origin is None and not node.modules
        chains[node.name] = (is_sum and common) or tuple(_node_chain(node, wrapper_depth))
    return _with_runs(chains)


def _wrapper_depth(stacks: Sequence[Sequence[SourceLine]]) -> int:
    """Return how many of the outermost lines are the same in all stacks: wrappers around the whole program."""
    least = min((len(stack) - 1 for stack in stacks), default=0)
    return next((depth for depth in range(least) if len({(s[depth].file, s[depth].line) for s in stacks}) > 1), least)


def _node_chain(node: Node, wrapper_depth: int) -> Iterator[Scope]:
    modules = [call for call in node.modules if call.path][:MOST_LEVELS]
    for call in modules:
        call_number = f" (call {call.call + 1})" if call.call else ""
        yield Scope(ScopeKind.MODULE, call.path + call_number, call.class_name)
    if not modules:
        yield from islice(_function_scopes(node.stack[wrapper_depth:]), MOST_LEVELS)
    if (line := node.source) is not None:
        yield Scope(ScopeKind.LINE, line.text.strip() or line.numbered, line.numbered)


def _function_scopes(stack: Sequence[SourceLine]) -> Iterator[Scope]:
    """Yield the functions that were called on the way to an op, without the one that was captured."""
    for caller, line in pairwise(stack):
        # A comprehension has a frame of its own, on the line that contains it.
        if (caller.file, caller.line) != (line.file, line.line):
            yield Scope(ScopeKind.FUNCTION, line.scope or line.function, str(caller))


def _common_scopes(chains: Iterable[Chain]) -> Chain:
    first, *rest = [*chains] or [()]
    return first[: min((shared(first, other) for other in rest), default=len(first))]


def shared(chain: Chain, other: Chain) -> int:
    """Return how many of their outermost scopes two chains share."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(chain, other, strict=False)))


def _with_runs(chains: Mapping[str, Chain]) -> dict[str, Chain]:
    """Return the chains with ``run`` set for functions and lines; a module call is one scope wherever its ops are."""
    numbered: dict[str, Chain] = {}
    last_chain: Chain = ()
    last_numbered: Chain = ()
    runs: dict[Scope, int] = {}
    for name, chain in chains.items():
        depth = shared(last_chain, chain)
        current = list(last_numbered[:depth])
        for scope in chain[depth:]:
            if scope.kind is ScopeKind.MODULE:
                current.append(scope)
            else:
                runs[scope] = runs.get(scope, 0) + 1
                current.append(replace(scope, run=runs[scope]))
        last_chain, last_numbered = chain, tuple(current)
        numbered[name] = last_numbered
    return numbered
