"""Writes a plan as Python calls and blocks to paste."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from regional_explorer.record.action import Action, ActionKind, carves, configures, disables, marks, merges
from regional_explorer.record.plan import DEFAULT, Cut, Direction, Plan, Region, Selector, SelectorKind
from regional_explorer.style.element import clean


def plan_source(plan: Plan, names: Collection[str] | None = None) -> str:
    """Return Python code that recreates the plan: blocks for regions marked in the source, calls for others.

    With ``names``, only these regions. A part of a region that is marked in the source cannot be written as a block: it
    is marked by its nodes.
    """
    if not plan.regions:
        return "# No region yet.\n"
    parts = [_region_source(region) for region in plan.regions if names is None or region.name in names]
    if names is None and plan.cut is not Cut.INSTANCES:
        parts.append(f"{Action(ActionKind.CUT, options={'cut': str(plan.cut)})}\n")
    if names is None and (options := plan.tracing.options):
        parts.insert(0, f"{Action(ActionKind.RETRACE, options=options)}\n")
    return "\n".join(parts)


def plan_program(plan: Plan, title: str) -> str:
    """Return a program that explores the call ``title`` and makes the plan; the user fills in the call."""
    call = f"ex = rx.explore(fn, args)  # Put the call here that was explored: {clean(title)}."
    return f"import regional_explorer as rx\n\n{call}\n\n{plan_source(plan)}\nex.benchmark()\nprint(ex.answer)\n"


def _region_source(region: Region) -> str:
    name = region.name
    blocks = [selector for selector in region.selectors if _is_block(selector)]
    called = [selector for selector in region.selectors if not _is_block(selector)]
    lines = [f"# Region {name!r}{'' if region.enabled else ', disabled'}"]
    if region.patterns(SelectorKind.SUBGRAPH):
        lines.append("# In the source it is a nested_compile_region(options=…); other options than configs stay there.")
    if blocks:
        lines += [f"with rx.region({region_arguments(name, region.config)}):", "    ...  # the marked lines"]
    is_merged = region.joined and len(region.selectors) > 1
    lines += list(_merge_calls(region, called)) if is_merged else [str(marks(name, selector)) for selector in called]
    lines += [str(carves(name, selector)) for selector in region.carved]
    if not blocks and not is_merged:
        lines += configure_calls(region)
    elif region.backward_config is not None:
        call = "rx.region" if blocks else "ex.merge"
        lines.append(
            f"# {call} takes one config, for forward and backward alike; this one is set for the backward alone:"
        )
        lines.append(_configure_call(name, region.backward_config, Direction.BACKWARD, region.config))
    if not region.enabled:
        lines.append(str(disables(name)))
    return "\n".join(lines) + "\n"


def configure_calls(region: Region) -> Iterator[str]:
    """Yield the ``ex.configure`` calls that set a region's configs."""
    if region.config:
        yield _configure_call(region.name, region.config, None)
    if region.backward_config is not None:
        yield _configure_call(region.name, region.backward_config, Direction.BACKWARD, region.config)


def _configure_call(
    name: str, config: Mapping[str, Any], direction: Direction | None, before: Mapping[str, Any] | None = None
) -> str:
    """Return the ``ex.configure`` call that changes the config from ``before`` to ``config``."""
    changed = {key: value for key, value in config.items() if (before or {}).get(key, DEFAULT) != value}
    unset = tuple(key for key in before or () if key not in config)
    return str(configures(name, changed, direction, unset=unset))


def _is_block(selector: Selector) -> bool:
    return selector.kind is SelectorKind.ANNOTATION and not selector.only


def _merge_calls(region: Region, called: Sequence[Selector]) -> Iterator[str]:
    """Yield the calls that recreate a merged region: one mark per selector, then a merge."""
    names = [region.name]
    if len(called) == len(region.selectors):
        yield str(marks(region.name, called[0]))
        called = called[1:]
    for number, selector in enumerate(called, start=2):
        names.append(f"{region.name}+{number}")
        yield str(marks(names[-1], selector))
    if len(names) > 1:
        yield str(merges(*names, config=region.config))


def region_arguments(name: str, config: Mapping[str, Any], text: Callable[[Any], str] = repr) -> str:
    """Return the arguments of ``rx.region`` as source, each value as ``text`` writes it."""
    plain = [f"{key}={text(value)}" for key, value in config.items() if key.isidentifier()]
    dotted = {key: value for key, value in config.items() if not key.isidentifier()}
    return ", ".join([text(name), *plain, *([f"**{text(dotted)}"] if dotted else [])])
