"""Regions: their selectors, configs and carved ops; the direction a config is for; DEFAULT, which removes a key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import Any

from regional_explorer.errors import PlanError
from regional_explorer.errors.arguments import check_flag, shown_value
from regional_explorer.record.selector import Selector


class Default(Enum):
    """The type of ``DEFAULT``."""

    DEFAULT = "default"

    def __repr__(self) -> str:
        """Return ``DEFAULT``."""
        return "DEFAULT"


DEFAULT = Default.DEFAULT
"""As the value of a config key: removes the key from the region's config, so that Inductor's default holds."""


class Direction(StrEnum):
    """The direction of a graph: which of a frame's graphs a config is for.

    An inference graph counts as forward, and forward ops that the backward recomputes count as backward.
    """

    FORWARD = "forward"
    BACKWARD = "backward"

    @classmethod
    def of_graph(cls, graph_id: str) -> Direction:
        """Return the direction of a graph by its id: ``0/backward``, or ``0/backward/body`` of a higher-order op."""
        return cls.BACKWARD if graph_id.split("/")[1:2] == [cls.BACKWARD] else cls.FORWARD


@dataclass(frozen=True, slots=True)
class Region:
    """What the user marked: a name, the selectors that pick its nodes, and the requested config.

    ``config`` maps dotted Inductor config keys to values, for both directions; if there is a ``backward_config``, only
    for the forward. A disabled region stays in the plan and runs eagerly. A ``joined`` region was merged from several:
    ops that different selectors pick are one instance if they feed each other directly. ``carved`` picks its ops that
    run eagerly.
    """

    name: str
    selectors: tuple[Selector, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    enabled: bool = True
    joined: bool = False
    carved: tuple[Selector, ...] = ()
    backward_config: Mapping[str, Any] | None = None

    @property
    def configs(self) -> tuple[tuple[Direction | None, Mapping[str, Any]], ...]:
        """The configs, each with its direction, which is None for a config that holds for both."""
        if self.backward_config is None:
            return ((None, self.config),)
        return ((Direction.FORWARD, self.config), (Direction.BACKWARD, self.backward_config))

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            PlanError: the name is not a text, a selector is not a Selector, or the config is not a dict.
        """
        require_name(self.name)
        for name in ("selectors", "carved"):
            object.__setattr__(
                self, name, checked_items(f"{name} of region {self.name!r}", getattr(self, name), Selector)
            )
        check_flag("enabled", self.enabled)
        check_flag("joined", self.joined)
        for _, config in self.configs:
            if not isinstance(config, Mapping) or not all(isinstance(key, str) for key in config):
                raise PlanError(
                    f"The config of region {self.name!r} is a dict, such as {{'max_fusion_size': 8}}; "
                    f"got {shown_value(config)}."
                )

    @property
    def selection(self) -> str:
        """The selectors as text, for example ``modules:norm + modules:mlp, but ops:aten.gelu*``."""
        picked = (" + " if self.joined else ", ").join(map(str, self.selectors))
        return f"{picked}, but {', '.join(map(str, self.carved))}" if self.carved else picked

    def same_nodes(self, other: Region) -> bool:
        """Return whether both pick the same nodes and instances, under the same name."""
        return replace(with_config(self, {}), enabled=True) == replace(with_config(other, {}), enabled=True)


def config_of(region: Region, direction: Direction) -> dict[str, Any]:
    """Return the config that a region's partitions in graphs of one direction are compiled under.

    Keys set to ``DEFAULT`` are left to Inductor.
    """
    config = region.backward_config if direction is Direction.BACKWARD else None
    return {key: value for key, value in (region.config if config is None else config).items() if value is not DEFAULT}


def config_texts(config: Mapping[str, Any]) -> list[str]:
    """Return a config as texts, one for each key: ``max_fusion_size=16``."""
    return [f"{key}={value!r}" for key, value in config.items()]


def configs_text(region: Region) -> str:
    """Return a region's config as text, or both where its backward has one of its own: ``forward …; backward …``."""
    return "; ".join(
        f"{f'{direction} ' if direction else ''}{dict(config) or 'no config'}" for direction, config in region.configs
    )


def with_config(region: Region, config: Mapping[str, Any], direction: Direction | None = None) -> Region:
    """Return the region with ``config`` for one direction, or for both with None."""
    forward = config if direction is not Direction.BACKWARD else config_of(region, Direction.FORWARD)
    backward = config if direction is not Direction.FORWARD else config_of(region, Direction.BACKWARD)
    return replace(region, config=forward, backward_config=None if backward == forward else backward)


def is_name(name: str) -> bool:
    """Return whether ``name`` can be the name of a region: texts and terminals show it on one line, as it is."""
    return bool(name.strip()) and name.isprintable()  # methods that Dynamo evaluates, for ``rx.region``


def require_name(name: object) -> None:
    """Raise PlanError unless ``name`` is a valid name of a region."""
    if not isinstance(name, str) or not is_name(name):
        raise PlanError(
            "A region's name must be a non-blank string without line breaks and control characters, such as 'mlp'; "
            f"got {shown_value(name)}."
        )


def checked_items(what: str, items: object, kind: type) -> tuple[Any, ...]:
    """Return ``items`` as a tuple; raise PlanError unless all are instances of ``kind``."""
    checked = tuple(items) if isinstance(items, Iterable) and not isinstance(items, (str, Mapping)) else None
    if checked is None or not all(isinstance(item, kind) for item in checked):
        raise PlanError(f"The {what} are a tuple of rx.{kind.__name__}; got {shown_value(items)}.")
    return checked
