"""What a search may spend, and what a plan has to keep to."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from regional_explorer.compiler.region_config import catalogue, check_value
from regional_explorer.errors import InvalidArgumentError, did_you_mean, shown_value
from regional_explorer.measure.rounds import check_budget
from regional_explorer.record.configs import to_be_faster
from regional_explorer.record.tuning import Numbers


@dataclass(frozen=True)
class Limits:
    """The budget of a search, and the limits that a plan has to keep."""

    budget_s: float
    numbers: Numbers = Numbers.CLOSE
    max_memory: int | None = None
    """The maximum bytes of a plan's peak memory; None stands for eager's peak."""

    max_compile_s: float | None = None
    keys: Sequence[Mapping[str, Any]] = ()
    """The configs to try on the best plan, the likeliest first."""


def checked_limits(
    budget_s: object,
    numerics: object,
    max_memory: object,
    max_compile_s: object,
    keys: object,
    device_type: str,
) -> Limits:
    """Return the checked limits; without ``keys``, all configs that may make code for the device faster are tried.

    Raises:
        MeasureError, InvalidArgumentError: one is invalid.
        UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError: a config is invalid.
    """
    if not isinstance(numerics, str) or numerics not in tuple(Numbers):
        raise InvalidArgumentError(
            f"numerics={shown_value(numerics)}: give {' or '.join(repr(str(one)) for one in Numbers)}."
            f"{did_you_mean(numerics, map(str, Numbers))}"
        )
    memory = _checked_number("max_memory", max_memory, "bytes, such as 2**30")
    compile_s = _checked_number("max_compile_s", max_compile_s, "seconds, such as 60")
    return Limits(
        check_budget(budget_s),  # type: ignore[arg-type]  # which checks the type, too
        Numbers(numerics),
        None if memory is None else int(memory),
        compile_s,
        tuple(_known(to_be_faster(device_type)) if keys is None else _checked_keys(keys)),
    )


def _checked_number(name: str, value: object, meaning: str) -> float | None:
    if value is None:
        return None
    with contextlib.suppress(OverflowError, ValueError):  # too large, or a signalling NaN
        if isinstance(value, Real) and not isinstance(value, bool) and 0.0 <= float(value) < math.inf:
            return float(value)
    raise InvalidArgumentError(f"{name}={shown_value(value)}: give a number of {meaning}.")


def _known(configs: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    """Return the configs whose keys the running torch has."""
    return [config for config in configs if catalogue().keys() >= config.keys()]


def _checked_keys(keys: object) -> Iterable[Mapping[str, Any]]:
    configs = list(keys) if isinstance(keys, Iterable) and not isinstance(keys, (str, Mapping)) else None
    if configs is None or not all(isinstance(config, Mapping) and config for config in configs):
        raise InvalidArgumentError(
            f"keys={shown_value(keys)}: give a list of configs, such as [{{'max_fusion_size': 8}}]."
        )
    for config in configs:
        for key, value in config.items():
            check_value(key, value)
    return configs
