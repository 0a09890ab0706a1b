"""Describes in words how plans differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regional_explorer.record.plan import Plan


def differences(plans: Sequence[Plan]) -> list[list[str]]:
    """Return a list of texts for each plan: its properties that the other plans do not all share."""
    described = [dict(_facts(plan)) for plan in plans]
    common = (
        {key for key in described[0] if all(facts.get(key) == described[0][key] for facts in described)}
        if described
        else set()
    )
    return [[text for key, text in facts.items() if key not in common] for facts in described]


def _facts(plan: Plan) -> Iterator[tuple[tuple[str, ...], str]]:
    if not plan.regions:
        yield ("",), "no region"
    for region in plan.regions:
        yield (region.name, ""), f"{region.name} = {region.selection}"
        if not region.enabled:
            yield (region.name, "", "off"), f"{region.name} off"
        for direction, config in region.configs:
            name = region.name if direction is None else f"{region.name}.{direction}"
            for key, value in config.items():
                yield (name, key), f"{name}: {key}={value!r}"
