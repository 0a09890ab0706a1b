"""Adds the module paths of all callers to ops of a shared body: Dynamo records those of the first call only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regional_explorer.record.graph import Chain, ModuleCall, traced_from


@dataclass(frozen=True, slots=True)
class BodyContext:
    """Where a body is used.

    ``parent`` is the graph and the node that holds it, ``callers`` are the modules around each op that calls it.
    """

    parent: tuple[str, str]
    callers: Sequence[Chain]


def with_callers(chain: Chain, callers: Sequence[Chain]) -> Chain:
    """Return the modules of an op in a body; aliases are the paths that each has under the body's other callers.

    ``callers`` are the modules of the ops that call the body: ``layers.0.act`` in the body of ``layers.0`` is
    ``layers.1.act`` too if ``layers.1`` calls it.
    """
    traced = traced_from(chain, callers)
    if not traced:
        return chain
    other_calls = [caller[-1] for caller in callers if caller and caller[-1].path != traced[-1].path]
    return tuple(
        _with_aliases(call, traced[-1], other_calls) if depth >= len(traced) - 1 else call
        for depth, call in enumerate(chain)
    )


def _with_aliases(call: ModuleCall, traced: ModuleCall, other_calls: Sequence[ModuleCall]) -> ModuleCall:
    if call.path != traced.path and not call.path.startswith(f"{traced.path}."):
        return call  # a module outside of the first caller, which all callers share
    suffix = call.path.removeprefix(traced.path)
    paths = [f"{path}{suffix}" for other in other_calls for path in (other.path, *other.aliases)]
    return replace(call, aliases=tuple(dict.fromkeys(alias for alias in (*call.aliases, *paths) if alias != call.path)))
