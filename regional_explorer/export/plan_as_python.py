"""A plan as Python calls and blocks to paste."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from regional_explorer.record.plan import DEFAULT, Cut, Direction, Plan, Region, Selector, SelectorKind


def plan_source(plan: Plan, names: Collection[str] | None = None) -> str:
    """Return Python code that recreates the plan: blocks for regions marked in the source, calls for others.

    With ``names``, only these regions. A part of a region that is marked in the source cannot be written as a block: it
    is marked by its nodes.
    """
    if not plan.regions:
        return "# No region yet.\n"
    parts = [_region_source(region) for region in plan.regions if names is None or region.name in names]
    if names is None and plan.cut is not Cut.INSTANCES:
        parts.append(f"ex.plan = rx.Plan(ex.plan.regions, cut={str(plan.cut)!r}, tracing=ex.plan.tracing)\n")
    if names is None and (options := plan.tracing.options):
        arguments = ", ".join(f"{name}={value!r}" for name, value in options.items())
        parts.insert(0, f"ex.retrace({arguments})\n")
    return "\n".join(parts)


def _region_source(region: Region) -> str:
    name = region.name
    blocks = [selector for selector in region.selectors if _is_block(selector)]
    marks = [selector for selector in region.selectors if not _is_block(selector)]
    lines = [f"# Region {name!r}{'' if region.enabled else ', disabled'}"]
    if region.patterns(SelectorKind.SUBGRAPH):
        lines.append("# In the source it is a nested_compile_region(options=…); other options than configs stay there.")
    if blocks:
        lines += [f"with rx.region({region_arguments(name, region.config)}):", "    ...  # the marked lines"]
    is_merged = region.joined and len(region.selectors) > 1
    lines += list(_merge_calls(region, marks)) if is_merged else [_mark_call(name, selector) for selector in marks]
    lines += [f"ex.carve({name!r}, {_selector_arguments(selector)})" for selector in region.carved]
    if not blocks and not is_merged:
        lines += configure_calls(region)
    elif region.backward_config is not None:
        call = "rx.region" if blocks else "ex.merge"
        lines.append(
            f"# {call} takes one config, for forward and backward alike; this one is set for the backward alone:"
        )
        lines.append(_configure_call(name, region.backward_config, Direction.BACKWARD, region.config))
    if not region.enabled:
        lines.append(f"ex.disable({name!r})")
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
    unset = [key for key in before or () if key not in config]
    items = [*(f"{key!r}: {value!r}" for key, value in changed.items()), *(f"{key!r}: rx.DEFAULT" for key in unset)]
    return f"ex.configure({name!r}, {{{', '.join(items)}}}{f', direction={str(direction)!r}' if direction else ''})"


def _is_block(selector: Selector) -> bool:
    return selector.kind is SelectorKind.ANNOTATION and not selector.only


def _merge_calls(region: Region, marks: Sequence[Selector]) -> Iterator[str]:
    """Yield the calls that recreate a merged region: one mark per selector, then a merge."""
    names = [region.name]
    if len(marks) == len(region.selectors):
        yield _mark_call(region.name, marks[0])
        marks = marks[1:]
    for number, selector in enumerate(marks, start=2):
        names.append(f"{region.name}+{number}")
        yield _mark_call(names[-1], selector)
    config = f", config={dict(region.config)!r}" if region.config else ""
    if len(names) > 1:
        yield f"ex.merge({', '.join(map(repr, names))}{config})"


def region_arguments(name: str, config: Mapping[str, Any], text: Callable[[Any], str] = repr) -> str:
    """Return the arguments of ``rx.region`` as source, each value as ``text`` writes it."""
    plain = [f"{key}={text(value)}" for key, value in config.items() if key.isidentifier()]
    dotted = {key: value for key, value in config.items() if not key.isidentifier()}
    return ", ".join([text(name), *plain, *([f"**{text(dotted)}"] if dotted else [])])


def _mark_call(name: str, selector: Selector) -> str:
    return f"ex.mark({name!r}, {_selector_arguments(selector)})"


def _selector_arguments(selector: Selector) -> str:
    if selector.kind is SelectorKind.ANNOTATION:
        return f"nodes={list(selector.only)!r}"
    patterns, kind = selector.patterns, selector.kind
    if kind is SelectorKind.SUBGRAPH:
        # By the name of the function, which also matches in other captures.
        patterns, kind = tuple(dict.fromkeys(pattern.partition(":")[0] for pattern in patterns)), SelectorKind.SUBGRAPHS
    argument = patterns[0] if len(patterns) == 1 else list(patterns)
    only = f", only={list(selector.only)!r}" if selector.only else ""
    if selector.is_combined:
        return f"{str(replace(selector, only=()))!r}{only}"
    return f"{kind}={argument!r}" + (", innermost=True" if selector.innermost else "") + only
