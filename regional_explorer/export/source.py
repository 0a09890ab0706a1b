"""A plan as Python text to paste."""

from __future__ import annotations

from regional_explorer.record.region import Plan, Region, Selector, SelectorKind


def plan_source(plan: Plan) -> str:
    """Return Python that makes this plan again: blocks for regions marked in the source, calls for all others."""
    if not plan.regions:
        return "# No region yet.\n"
    return "\n".join(_region_source(region) for region in plan.regions)


def _region_source(region: Region) -> str:
    marks = [selector for selector in region.selectors if selector.kind is not SelectorKind.ANNOTATION]
    lines = [f"# Region {region.name!r}{'' if region.enabled else ', disabled'}"]
    if len(marks) < len(region.selectors):
        arguments = ", ".join([repr(region.name), *_keywords(region)])
        lines += [f"with rx.region({arguments}):", "    ...  # the marked lines"]
    lines += [f"ex.mark({region.name!r}, {_selector_source(selector)})" for selector in marks]
    if marks and region.config:
        lines.append(f"ex.configure({region.name!r}, {dict(region.config)!r})")
    if not region.enabled:
        lines.append(f"ex.disable({region.name!r})")
    return "\n".join(lines) + "\n"


def _keywords(region: Region) -> list[str]:
    plain = [f"{key}={value!r}" for key, value in region.config.items() if key.isidentifier()]
    dotted = {key: value for key, value in region.config.items() if not key.isidentifier()}
    return [*plain, *([f"**{dotted!r}"] if dotted else [])]


def _selector_source(selector: Selector) -> str:
    patterns = selector.patterns[0] if len(selector.patterns) == 1 else list(selector.patterns)
    return f"{selector.kind}={patterns!r}" + (", innermost=True" if selector.innermost else "")
