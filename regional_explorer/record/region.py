"""Regions, selectors and the plan; partitions and their states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import Any

from regional_explorer.errors import PlanError, SelectorError, UnknownRegionError, did_you_mean
from regional_explorer.errors.arguments import check_argument, check_flag, shown_value


class Default(Enum):
    """The type of ``DEFAULT``."""

    DEFAULT = "default"

    def __repr__(self) -> str:
        """Return ``DEFAULT``."""
        return "DEFAULT"


DEFAULT = Default.DEFAULT
"""As the value of a config key: take the key out of the region's config, back to Inductor's own default."""


class Direction(StrEnum):
    """Which of a frame's graphs a config is for.

    An inference graph counts as forward, and what the backward repeats of the forward as backward.
    """

    FORWARD = "forward"
    BACKWARD = "backward"

    @classmethod
    def of_graph(cls, graph_id: str) -> Direction:
        """Return the direction of a graph by its id: ``0/backward``, or ``0/backward/body`` of a higher-order op."""
        return cls.BACKWARD if graph_id.split("/")[1:2] == [cls.BACKWARD] else cls.FORWARD


LONGEST_PATTERN = 1_000
"""A longer text is no pattern that somebody wrote, and would take minutes to match."""


class SelectorKind(StrEnum):
    """What a selector matches: modules, lines, ops, nodes, or marks in the source.

    ``ANNOTATION`` and ``SUBGRAPH`` stand for marks made in the source: blocks, and ``nested_compile_region`` with
    options.
    """

    ANNOTATION = "annotation"
    SUBGRAPH = "subgraph"
    MODULES = "modules"
    LINES = "lines"
    OPS = "ops"
    NODES = "nodes"
    SUBGRAPHS = "subgraphs"


@dataclass(frozen=True, slots=True)
class Selector:
    """A rule that picks nodes: ``Selector(SelectorKind.MODULES, ("layers.*.attn",))``.

    ``innermost`` narrows a line selector to ops whose own line it is, leaving out those of functions called there.
    ``only`` narrows any selector to these nodes, as ``graph:name``, without another view of what one instance is: so
    are the parts of a region that was split.
    """

    kind: SelectorKind
    patterns: tuple[str, ...]
    innermost: bool = False
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the fields: a selector without patterns picks nothing.

        Raises:
            SelectorError: there is no such kind, or the patterns are no texts or too long.
        """
        kinds = [str(kind) for kind in SelectorKind]
        if not isinstance(self.kind, str) or self.kind not in kinds:
            raise SelectorError(
                f"No selector is of the kind {shown_value(self.kind)}.{did_you_mean(self.kind, kinds)} "
                f"Kinds: {', '.join(kinds)}."
            )
        object.__setattr__(self, "kind", SelectorKind(self.kind))
        for name in ("patterns", "only"):
            object.__setattr__(self, name, _texts(name, getattr(self, name)))
        check_flag("innermost", self.innermost)
        longest = max(self.patterns, key=len, default="")
        if len(longest) > LONGEST_PATTERN and self.kind is not SelectorKind.ANNOTATION:
            raise SelectorError(
                f"{self.kind}={longest[:40] + '…'!r} has {len(longest)} characters; at most {LONGEST_PATTERN} are "
                "allowed. Give a list of patterns instead of one long text."
            )
        if not self.patterns:
            raise SelectorError(f"A selector by {self.kind} needs a pattern at least.")

    def __str__(self) -> str:
        """Return for example ``modules:layers.*.attn``, or ``source`` and ``subgraph`` for marks made there."""
        in_source = {SelectorKind.ANNOTATION: "source", SelectorKind.SUBGRAPH: "subgraph"}
        text = in_source.get(self.kind) or f"{self.kind}:{','.join(self.patterns)}"
        return f"{text} (a part)" if self.only else text


@dataclass(frozen=True, slots=True)
class Region:
    """What the user marked: a name, the selectors that pick its nodes, and the requested config.

    ``config`` maps dotted Inductor config keys to values, for both directions; where there is a ``backward_config``,
    for the forward alone. A disabled region stays in the plan and runs eagerly. In a ``joined`` region, one that was
    merged of several, what different selectors pick is one instance where it feeds each other directly. ``carved``
    picks those of its ops that run eagerly.
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
        """The configs, each with its direction; one alone, with None, where it holds for both."""
        if self.backward_config is None:
            return ((None, self.config),)
        return ((Direction.FORWARD, self.config), (Direction.BACKWARD, self.backward_config))

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            PlanError: the name is no text, the selectors are none, or the config is no dict.
        """
        require_name(self.name)
        for name in ("selectors", "carved"):
            object.__setattr__(self, name, _items(f"{name} of region {self.name!r}", getattr(self, name), Selector))
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
        """Return whether the two pick the same nodes in the same pieces, under one name."""
        return replace(with_config(self, {}), enabled=True) == replace(with_config(other, {}), enabled=True)


def config_of(region: Region, direction: Direction) -> dict[str, Any]:
    """Return the config that a region's partitions in graphs of one direction are compiled under.

    Keys set to ``DEFAULT`` are left to Inductor.
    """
    own = region.backward_config if direction is Direction.BACKWARD else None
    return {key: value for key, value in (region.config if own is None else own).items() if value is not DEFAULT}


def with_config(region: Region, config: Mapping[str, Any], direction: Direction | None = None) -> Region:
    """Return the region with ``config`` for one direction, or for both with None."""
    forward = config if direction is not Direction.BACKWARD else config_of(region, Direction.FORWARD)
    backward = config if direction is not Direction.FORWARD else config_of(region, Direction.BACKWARD)
    return replace(region, config=forward, backward_config=None if backward == forward else backward)


def require_name(name: object) -> None:
    """Raise PlanError unless ``name`` can be a region's."""
    if not isinstance(name, str) or not name.strip():
        raise PlanError(f"A region's name is a text of one character at least, such as 'mlp'; got {shown_value(name)}.")


def _items(what: str, items: object, kind: type) -> tuple[Any, ...]:
    """Return ``items`` as a tuple once all are of ``kind``."""
    found = tuple(items) if isinstance(items, Iterable) and not isinstance(items, (str, Mapping)) else None
    if found is None or not all(isinstance(item, kind) for item in found):
        raise PlanError(f"The {what} are a tuple of rx.{kind.__name__}; got {shown_value(items)}.")
    return found


def _texts(name: str, texts: object) -> tuple[str, ...]:
    found = tuple(texts) if isinstance(texts, Iterable) and not isinstance(texts, str) else None
    if found is None or not all(isinstance(text, str) and text for text in found):
        raise SelectorError(f"{name}={shown_value(texts)}: give a tuple of texts, such as ('layers.*.mlp',).")
    return found


class Cut(StrEnum):
    """How regions become partitions.

    ``INSTANCES``: one per instance, with the sums of gradients that belong to it. ``MARKED``: one per instance, of
    marked ops alone; sums of gradients run eagerly, as upstream has it. ``UPSTREAM``: merged as upstream does.
    """

    INSTANCES = "instances"
    MARKED = "marked"
    UPSTREAM = "upstream"


@dataclass(frozen=True, slots=True)
class Plan:
    """The ordered regions. Where two regions claim a node, the later one has it. Every edit returns a new plan."""

    regions: tuple[Region, ...] = ()
    cut: Cut = Cut.INSTANCES

    def __post_init__(self) -> None:
        """Check the fields; names are unique.

        Raises:
            PlanError: something in it is no region, two regions have one name, or there is no such cut.
        """
        object.__setattr__(self, "regions", _items("regions of a plan", self.regions, Region))
        twice = [name for name, count in Counter(region.name for region in self.regions).items() if count > 1]
        if twice:
            raise PlanError(f"Two regions are called {twice[0]!r}: give each a name of its own.")
        cuts = [str(cut) for cut in Cut]
        if not isinstance(self.cut, str) or self.cut not in cuts:
            raise PlanError(f"cut={shown_value(self.cut)}: give {' or '.join(map(repr, cuts))}.")
        object.__setattr__(self, "cut", Cut(self.cut))

    def __getitem__(self, name: str) -> Region:
        """Return the region called ``name``.

        Raises:
            UnknownRegionError: there is none; the text lists near matches.
        """
        for region in self.regions:
            if region.name == name:
                return region
        known = [region.name for region in self.regions]
        listed = f" Regions: {', '.join(known)}." if known else " There is no region yet."
        raise UnknownRegionError(f"No region is called {shown_value(name)}.{did_you_mean(name, known)}{listed}")

    def __contains__(self, name: object) -> bool:
        """Return whether a region is called ``name``."""
        return any(region.name == name for region in self.regions)

    def added(self, region: Region) -> Plan:
        """Return the plan with ``region`` at its end, in place of one of the same name."""
        check_argument("region", region, Region, "an rx.Region", PlanError)
        others = tuple(other for other in self.regions if other.name != region.name)
        return replace(self, regions=(*others, region))

    def removed(self, name: str) -> Plan:
        """Return the plan without the region called ``name``."""
        gone = self[name]
        return replace(self, regions=tuple(region for region in self.regions if region is not gone))

    def replaced(self, names: Collection[str], *regions: Region) -> Plan:
        """Return the plan with ``regions`` at the place of the first of those called ``names``, the others gone.

        Raises:
            PlanError: another region has the name of one of them, or none has one of ``names``.
        """
        check_argument("names", names, (tuple, list, set, frozenset, Mapping), "the names as a list", PlanError)
        known = {name: self[name] for name in names}
        if not known:
            raise PlanError("Name the regions that are replaced.")
        kept = [region for region in self.regions if region.name not in known]
        for region in regions:
            check_argument("region", region, Region, "an rx.Region", PlanError)
            if any(region.name == other.name for other in kept):
                raise PlanError(f"A region called {region.name!r} exists already: give another name.")
        place = next(index for index, region in enumerate(self.regions) if region.name in known)
        return replace(self, regions=(*kept[:place], *regions, *kept[place:]))

    def changed(self, name: str, /, **fields: Any) -> Plan:
        """Return the plan with ``fields`` of the region called ``name`` replaced."""
        old = self[name]
        if unknown := sorted(fields.keys() - old.__dataclass_fields__.keys()):
            raise PlanError(f"A region has no {unknown[0]!r}.{did_you_mean(unknown[0], old.__dataclass_fields__)}")
        new_name = fields.get("name", name)
        if new_name != name:
            require_name(new_name)
        if new_name != name and new_name in self:
            raise PlanError(f"Cannot rename {name!r} to {new_name!r}: a region of that name exists already.")
        return self._with(old, replace(old, **fields))

    def configured(self, name: str, config: Mapping[str, Any], direction: Direction | None = None) -> Plan:
        """Return the plan with ``config`` as that of the region called ``name``, for one direction or for both."""
        return self._with(self[name], with_config(self[name], config, direction))

    def _with(self, old: Region, new: Region) -> Plan:
        return replace(self, regions=tuple(new if region is old else region for region in self.regions))


class State(StrEnum):
    """The state of a partition or a region; the worst comes first.

    ``STALE`` is to be compiled. ``COMPILED`` has no figures yet, ``MEASURED`` has. ``EAGER`` runs eagerly because it is
    disabled or could not be cut out. ``EMPTY`` is a region that picks no op of the traced graphs.
    """

    FAILED = "failed"
    STALE = "stale"
    EAGER = "eager"
    COMPILED = "compiled"
    MEASURED = "measured"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Partition:
    """What was cut out of one graph for a region, and its state.

    ``nodes`` are names of nodes of the graph ``graph``. ``config_applied`` was read inside the compile and is None
    before one was seen. ``artifact`` is the key of the compiled callable; partitions of equal structure and config
    share one. ``compile_s`` is the time of that compile in seconds, ``cache`` says ``cold`` or ``warm``; both are
    None when the artifact was shared with a partition compiled before. ``code_hash`` is that of the generated code,
    which artifacts of different configs may share.
    """

    id: str
    region: str
    instance: int
    graph: str
    nodes: tuple[str, ...]
    state: State
    config_requested: Mapping[str, Any] = field(default_factory=dict)
    config_applied: Mapping[str, Any] | None = None
    artifact: str | None = None
    shared_with: str | None = None
    compile_s: float | None = None
    cache: str | None = None
    error: str | None = None
    code_hash: str | None = None
