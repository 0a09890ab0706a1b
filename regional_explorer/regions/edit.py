"""Marking regions by rule: each edit takes a plan and gives a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regional_explorer.errors import SelectorError
from regional_explorer.record.graph import Graph
from regional_explorer.record.region import Plan, Region, Selector, SelectorKind
from regional_explorer.regions.select import picks, require_match

Patterns = str | Sequence[str] | None


def selectors(given: Mapping[str, Patterns], *, innermost: bool = False) -> tuple[Selector, ...]:
    """Return selectors for keyword arguments such as ``{"modules": "layers.*.attn"}``; None stands for not given.

    Raises:
        SelectorError: nothing is given, or a pattern is no text.
    """
    found = []
    for kind, patterns in given.items():
        if patterns is None:
            continue
        texts = (patterns,) if isinstance(patterns, str) else tuple(patterns)
        if not texts or not all(isinstance(text, str) and text for text in texts):
            raise SelectorError(f"{kind}={patterns!r}: give a pattern, or a list of patterns.")
        found.append(Selector(SelectorKind(kind), texts, innermost and kind == SelectorKind.LINES))
    if not found:
        raise SelectorError("Say what to mark: modules=, lines=, ops= or nodes=.")
    return tuple(found)


def marked(plan: Plan, graphs: Sequence[Graph], name: str, chosen: tuple[Selector, ...], *, each: bool = False) -> Plan:
    """Return the plan with the nodes that ``chosen`` picks marked as ``name``.

    A region of that name gets them in addition. With ``each``, every module call that matches becomes a region of its
    own, ``name[path]``.

    Raises:
        SelectorError: a selector matches nothing.
    """
    require_match(Region(name, chosen), graphs)
    if each:
        for path in _paths(chosen, graphs):
            plan = plan.added(Region(f"{name}[{path}]", (Selector(SelectorKind.MODULES, (path,)),)))
        return plan
    if name not in plan:
        return plan.added(Region(name, chosen))
    known = plan[name].selectors
    return plan.changed(name, selectors=(*known, *(selector for selector in chosen if selector not in known)))


def _paths(chosen: Sequence[Selector], graphs: Sequence[Graph]) -> list[str]:
    instances = [instance for selector in chosen for instance in picks(selector, graphs).values()]
    paths = list(dict.fromkeys(instance[0] for instance in instances if instance is not None))
    if not paths:
        raise SelectorError("each=True makes one region per module: give modules=.")
    return paths
