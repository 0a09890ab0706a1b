"""Validates requested configs, from the source or from edits, against the catalogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regional_explorer.compiler.config import check_value
from regional_explorer.diagnostics.configs import global_config
from regional_explorer.errors import (
    InvalidConfigKeyError,
    InvalidConfigValueError,
    PlanError,
    RegionalExplorerError,
    shown_value,
)
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.graph import Graph
from regional_explorer.record.plan import DEFAULT, Direction, Plan, config_of, with_config
from regional_explorer.regions.source_marks import source_regions


def source_plan(graphs: Sequence[Graph]) -> tuple[Plan, list[Diagnostic]]:
    """Return the plan of the regions marked in the source, and a diagnostic per config key of theirs that is global.

    Raises:
        UnknownConfigKeyError, InvalidConfigValueError: a mark holds a config that torch does not have.
    """
    regions, diagnostics = [], []
    for source_region in source_regions(graphs):
        region = source_region
        for direction, requested in source_region.configs:
            config = {}
            for key, value in requested.items():
                try:
                    config[key] = check_value(key, value)
                except InvalidConfigKeyError as error:
                    diagnostics.append(global_config(source_region, key, str(error), graphs))
                except RegionalExplorerError as error:
                    raise type(error)(f"Region {source_region.name!r}, marked in the source: {error}") from error
            region = with_config(region, config, direction)
        regions.append(region)
    return Plan(tuple(regions)), diagnostics


def configured(plan: Plan, name: str, changes: Mapping[str, Any], direction: Direction | str | None = None) -> Plan:
    """Return the plan with ``changes`` merged into a region's config; the value ``DEFAULT`` removes a key.

    ``direction`` is ``"forward"`` or ``"backward"``; with None both configs change.

    Raises:
        UnknownRegionError, UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError.
    """
    chosen = checked_direction(direction)
    region = plan[name]
    if not isinstance(changes, Mapping):
        raise InvalidConfigValueError(
            f"A config is a dict, such as {{'max_fusion_size': 8}}; got {shown_value(changes)}."
        )
    for key, value in changes.items():
        check_value(key, value)
    for side in Direction if chosen is None else (chosen,):
        merged = {**config_of(region, side), **changes}
        region = with_config(region, {key: value for key, value in merged.items() if value is not DEFAULT}, side)
    return plan.replaced({name}, region)


def checked_direction(direction: Direction | str | None) -> Direction | None:
    """Return ``direction`` as a ``Direction``; None stands for both.

    Raises:
        InvalidConfigValueError: it is not a direction.
    """
    if direction is None or (isinstance(direction, str) and direction in tuple(Direction)):
        return None if direction is None else Direction(direction)
    raise InvalidConfigValueError(
        f'direction={shown_value(direction)}: a config is for the "forward" or the "backward"; '
        "leave direction out for both."
    )


def check_plan(plan: Plan) -> None:
    """Raise what ``configured`` raises for any config of a plan; PlanError if it is not a plan."""
    if not isinstance(plan, Plan):
        raise PlanError(
            f"A plan is an rx.Plan, such as ex.plan or ex.draft().plan; got {shown_value(plan)}. "
            "Give a saved plan by its path: rx.explore(fn, args, plan='plan.json')."
        )
    for region in plan.regions:
        for _, config in region.configs:
            for key, value in config.items():
                check_value(key, value)


def without_unknown_configs(plan: Plan) -> tuple[Plan, list[Diagnostic]]:
    """Return the plan without the configs that the running torch does not accept, and a diagnostic for each of them.

    A saved plan may come from another torch.
    """
    diagnostics = []
    for region in plan.regions:
        for direction, config in region.configs:
            valid_config = {}
            for key, value in config.items():
                try:
                    valid_config[key] = check_value(key, value)
                except RegionalExplorerError as error:
                    diagnostics.append(_unknown_config(region.name, direction, key, error))
            if len(valid_config) < len(config):
                plan = plan.configured(region.name, valid_config, direction)
    return plan, diagnostics


def _unknown_config(region: str, direction: Direction | None, key: str, error: RegionalExplorerError) -> Diagnostic:
    argument = "" if direction is None else f', direction="{direction}"'
    return DiagnosticCode.CONFIG_UNKNOWN.found(
        f"{key!r} in the saved plan was not applied to region {region!r}: {error}",
        region=region,
        remedy=f"Set what this torch has instead, ex.configure({region!r}, {{…}}{argument}), and save the plan.",
    )
