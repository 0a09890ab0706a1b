"""Who calls a body that several calls share: Dynamo traces it once and knows the modules of the first of them alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from regional_explorer.record.graph import ModuleCall

Chain = tuple[ModuleCall, ...]
"""The module calls around an op, outermost first."""


def with_callers(chain: Chain, callers: Sequence[Chain]) -> Chain:
    """Return the modules of an op in a body, each with the paths it has for the body's other callers as aliases.

    ``callers`` are the modules of the ops that call the body. One of them leads to ``chain``; where another is as deep,
    ``layers.0.act`` in the body of ``layers.0`` is ``layers.1.act`` too when ``layers.1`` calls.
    """
    traced = next((caller for caller in callers if caller and chain[: len(caller)] == caller), ())
    others = [caller for caller in callers if len(caller) == len(traced) and caller != traced]
    if not traced or not others:
        return chain
    return tuple(_with_aliases(call, depth, traced, others) for depth, call in enumerate(chain))


def _with_aliases(call: ModuleCall, depth: int, traced: Chain, others: Sequence[Chain]) -> ModuleCall:
    above, below = traced[min(depth, len(traced) - 1)], ""
    if depth >= len(traced):
        if not call.path.startswith(f"{above.path}."):
            return call  # a module from elsewhere, which all callers share
        below = call.path.removeprefix(above.path)
    twins = [caller[min(depth, len(caller) - 1)] for caller in others]
    paths = [f"{path}{below}" for twin in twins for path in (twin.path, *twin.aliases)]
    return replace(call, aliases=tuple(dict.fromkeys(p for p in (*call.aliases, *paths) if p != call.path)))
