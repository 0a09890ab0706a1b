"""Describes in words how plans differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regional_explorer.record.plan import Plan
from regional_explorer.record.region import config_texts


def differences(plans: Sequence[Plan]) -> list[list[str]]:
    """Return a list of texts for each plan: its properties that the other plans do not all share."""
    plan_texts = [list(_plan_texts(plan)) for plan in plans]
    return [[text for text in texts if not all(text in other for other in plan_texts)] for texts in plan_texts]


def _plan_texts(plan: Plan) -> Iterator[str]:
    if not plan.regions:
        yield "no region"
    for region in plan.regions:
        yield f"{region.name} = {region.selection}"
        if not region.enabled:
            yield f"{region.name} off"
        for direction, config in region.configs:
            name = region.name if direction is None else f"{region.name}.{direction}"
            yield from (f"{name}: {text}" for text in config_texts(config))
