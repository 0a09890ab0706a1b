"""A plan: regions, what each selects, and its config; and how the call is traced."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Any

from msgspec.structs import force_setattr, replace

from regional_explorer.errors import (
    InvalidArgumentError,
    PlanError,
    SelectorError,
    UnknownRegionError,
    check_argument,
    check_flag,
    did_you_mean,
    shown_value,
    user_facing,
    user_facing_methods,
)
from regional_explorer.record import Record
from regional_explorer.record.graph import GraphKind

LONGEST_PATTERN = 1_000
"""Longer patterns are rejected: they would take minutes to match, and nobody writes such long patterns."""


class SelectorKind(StrEnum):
    """The kind of a selector's matches: modules, lines, ops, nodes, or marks in the source.

    ``ANNOTATION`` and ``SUBGRAPH`` are for marks in the source: blocks, and ``nested_compile_region`` with options.
    """

    ANNOTATION = "annotation"
    SUBGRAPH = "subgraph"
    MODULES = "modules"
    LINES = "lines"
    OPS = "ops"
    NODES = "nodes"
    SUBGRAPHS = "subgraphs"


IN_SOURCE: Mapping[SelectorKind, str] = {SelectorKind.ANNOTATION: "source", SelectorKind.SUBGRAPH: "subgraph"}
"""The kinds of selectors for marks in the source, with the word that texts show for them."""

_WRITTEN_KINDS = [str(kind) for kind in SelectorKind if kind not in IN_SOURCE]
_INNERMOST = " (innermost)"
_FURTHER = re.compile(r"(?:^|\s+)([-&])(?=\w+:)")


class Selector(Record, frozen=True):
    """A rule that picks nodes: ``Selector(SelectorKind.MODULES, ("layers.*.attn",))``."""

    kind: SelectorKind
    """The kind of its patterns."""
    patterns: tuple[str, ...]
    """The patterns; the selector picks everything that any of them matches."""
    innermost: bool = False
    """Whether a line selector picks only the ops of its lines, without the ops of functions called there."""
    only: tuple[str, ...] = ()
    """Narrows the selector to these nodes, as ``graph:name``; instances stay. A part of a split region uses it."""
    within: tuple[Selector, ...] = ()
    """Narrows the selector to ops that each of these picks too; ops that it separates become instances of their own."""
    without: tuple[Selector, ...] = ()
    """Narrows the selector to ops that none of these picks; ops that it separates become instances of their own."""

    @classmethod
    def parse(cls, text: str) -> Selector:
        """Return the selector that a person writes as ``modules:layers.*.mlp -ops:aten.div*``, mlps without these ops.

        ``ops:gelu &modules:layers.0`` picks the gelus in this module, ``-ops:aten.div*`` alone picks everything but
        these ops. Commas separate several patterns.

        Raises:
            SelectorError: the text does not have that form, or names no kind.
        """
        if not isinstance(text, str):
            raise SelectorError(f"{shown_value(text)} is no selector: write one as 'modules:layers.*.mlp'.")
        first, *others = _FURTHER.split(text.strip())
        further = [(sign, cls._parse_one(part)) for sign, part in zip(others[::2], others[1::2], strict=True)]
        picked = cls(SelectorKind.OPS, ("*",)) if further and not first else cls._parse_one(first)
        within, without = (tuple(selector for sign, selector in further if sign == mark) for mark in "&-")
        return replace(picked, within=within, without=without)

    @classmethod
    def _parse_one(cls, text: str) -> Selector:
        kind, _, patterns = text.removesuffix(_INNERMOST).partition(":")
        kind, texts = kind.strip(), tuple(pattern.strip() for pattern in patterns.split(",") if pattern.strip())
        if not texts or kind not in _WRITTEN_KINDS:
            hint = "" if kind in _WRITTEN_KINDS else did_you_mean(kind, _WRITTEN_KINDS)
            raise SelectorError(
                f"{text!r} is no selector: write KIND:PATTERN, such as modules:layers.*.mlp, or -ops:aten.div* for all "
                f"but these.{hint} Kinds: {', '.join(_WRITTEN_KINDS)}."
            )
        return cls(SelectorKind(kind), texts, innermost=text.endswith(_INNERMOST))

    @user_facing
    def __post_init__(self) -> None:
        """Check the fields: a selector without patterns picks nothing.

        Raises:
            SelectorError: the kind does not exist, the patterns are not texts, or too long, or a mark in the source
                is combined with others.
        """
        kinds = [str(kind) for kind in SelectorKind]
        if not isinstance(self.kind, str) or self.kind not in kinds:
            raise SelectorError(
                f"No selector is of the kind {shown_value(self.kind)}.{did_you_mean(self.kind, kinds)} "
                f"Kinds: {', '.join(kinds)}."
            )
        force_setattr(self, "kind", SelectorKind(self.kind))
        for name in ("patterns", "only"):
            force_setattr(self, name, _checked_texts(name, getattr(self, name)))
        check_flag("innermost", self.innermost)
        longest = max(self.patterns, key=len, default="")
        if len(longest) > LONGEST_PATTERN and self.kind is not SelectorKind.ANNOTATION:
            raise SelectorError(
                f"{self.kind}={longest[:40] + '…'!r} has {len(longest)} characters; at most {LONGEST_PATTERN} are "
                "allowed. Give a list of patterns instead of one long text."
            )
        if not self.patterns:
            raise SelectorError(f"A selector by {self.kind} needs at least one pattern.")
        for name in ("within", "without"):
            force_setattr(self, name, checked_items(f"selectors of {name}=", getattr(self, name), Selector))
        others = (*self.within, *self.without)
        if others and any(selector.kind in IN_SOURCE for selector in (self, *others)):
            raise SelectorError("A mark in the source cannot be combined with other selectors: change the mark.")
        if any(selector.only or selector.is_combined for selector in others):
            raise SelectorError("A selector in within= or without= cannot have only=, within= or without= itself.")

    @property
    def is_combined(self) -> bool:
        """Whether other selectors narrow it."""
        return bool(self.within or self.without)

    @property
    def by_name(self) -> bool:
        """Whether it picks nodes by name, which may have other names in another trace."""
        own = self.kind is SelectorKind.NODES or bool(self.only)
        return own or any(selector.by_name for selector in (*self.within, *self.without))

    def __str__(self) -> str:
        """Return for example ``modules:layers.*.attn``; ``source`` or ``subgraph`` for marks in the source."""
        text = IN_SOURCE.get(self.kind) or f"{self.kind}:{','.join(self.patterns)}"
        narrowed = f"{text}{_INNERMOST if self.innermost else ''}{' (a part)' if self.only else ''}"
        everything = self.kind is SelectorKind.OPS and self.patterns == ("*",) and not self.only
        further = [f"&{selector}" for selector in self.within] + [f"-{selector}" for selector in self.without]
        return " ".join(further if everything and further else [narrowed, *further])


def _checked_texts(name: str, texts: object) -> tuple[str, ...]:
    checked = tuple(texts) if isinstance(texts, Iterable) and not isinstance(texts, str) else None
    if checked is None or not all(isinstance(text, str) and text for text in checked):
        raise SelectorError(f"{name}={shown_value(texts)}: give a tuple of strings, such as ('layers.*.mlp',).")
    return checked


class Default(Enum):
    """The type of ``DEFAULT``."""

    DEFAULT = "default"

    def __repr__(self) -> str:
        """Return ``DEFAULT``."""
        return "DEFAULT"


DEFAULT = Default.DEFAULT
"""As the value of a config key: removes the key from the region's config, so that Inductor's default holds."""


class Direction(StrEnum):
    """The direction of the graphs that a config is for.

    An inference graph counts as forward, and forward ops that the backward recomputes count as backward.
    """

    FORWARD = "forward"
    BACKWARD = "backward"

    @classmethod
    def of_graph(cls, graph_id: str) -> Direction:
        """Return the direction of a graph by its id: ``0/backward``, or ``0/backward/body`` of a higher-order op."""
        return cls.BACKWARD if graph_id.split("/")[1:2] == [cls.BACKWARD] else cls.FORWARD


class UserFunction(Record, frozen=True):
    """A function that a plan names: a pass or a backend. The function itself is in no record."""

    name: str
    """Its name, or that of a backend as ``torch._dynamo.list_backends`` has it."""
    digest: str = ""
    """A hash of its code, defaults and closure; artifacts that were made with it have it in their key."""
    path: str = ""
    """How another process finds it: ``"module:function"``, or the name of a backend; empty if none can."""
    direction: Direction | None = None
    """The direction of the graphs that a pass is for; None for both."""

    def __str__(self) -> str:
        """Return for example ``fuse (forward)``."""
        return f"{self.name} ({self.direction})" if self.direction else self.name


class Treatment(Record, frozen=True):
    """How pieces of a region become code, apart from the config: by which passes, and by which compiler."""

    passes: tuple[UserFunction, ...] = ()
    """The passes that run on a piece before it is compiled, in this order."""
    backend: UserFunction | None = None
    """What compiles a piece instead of Inductor."""

    @property
    def functions(self) -> tuple[UserFunction, ...]:
        """All functions that it names."""
        return self.passes if self.backend is None else (*self.passes, self.backend)

    @property
    def texts(self) -> list[str]:
        """Its parts as texts: ``["pass fuse", "pass drop (backward)", "backend eager"]``."""
        return [*(f"pass {each}" for each in self.passes), *([f"backend {self.backend}"] if self.backend else [])]

    @property
    def digests(self) -> list[tuple[str, str]]:
        """Its parts as texts, each with its digest, as the key and the label of an artifact have them."""
        return [(text, each.digest) for text, each in zip(self.texts, self.functions, strict=True)]

    def of(self, direction: Direction) -> Treatment:
        """Return the treatment of pieces of one direction."""
        return replace(self, passes=tuple(each for each in self.passes if each.direction in (None, direction)))


INDUCTOR = Treatment()
"""The treatment of a region by default: Inductor compiles it as it is. Files leave it out by its identity."""


class Region(Record, frozen=True):
    """What the user marked: a name, the selectors that pick its nodes, the requested config and the treatment."""

    name: str
    selectors: tuple[Selector, ...]
    config: Mapping[str, Any] = {}
    """Values by dotted Inductor config key, for both directions unless there is a ``backward_config``; keys set to
    ``DEFAULT`` are left out."""
    enabled: bool = True
    """A disabled region stays in the plan and runs eagerly."""
    joined: bool = False
    """Whether it was merged from several regions: ops of different selectors that feed each other are one instance."""
    carved: tuple[Selector, ...] = ()
    """The selectors of its ops that run eagerly."""
    backward_config: Mapping[str, Any] | None = None
    """The config of the backward; None if ``config`` is for both directions."""
    treatment: Treatment = INDUCTOR
    """Its passes and its backend."""

    @property
    def configs(self) -> tuple[tuple[Direction | None, Mapping[str, Any]], ...]:
        """The configs, each with its direction; None for a config of both directions."""
        if self.backward_config is None:
            return ((None, self.config),)
        return ((Direction.FORWARD, self.config), (Direction.BACKWARD, self.backward_config))

    @user_facing
    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            PlanError: the name is not a text, a selector is not a Selector, or the config is not a dict.
        """
        require_name(self.name)
        for name in ("selectors", "carved"):
            force_setattr(self, name, checked_items(f"{name} of region {self.name!r}", getattr(self, name), Selector))
        check_flag("enabled", self.enabled)
        check_flag("joined", self.joined)
        check_argument("treatment", self.treatment, Treatment, "a treatment, as ex.configure makes it", PlanError)
        if self.treatment == INDUCTOR:
            force_setattr(self, "treatment", INDUCTOR)
        for _, config in self.configs:
            if not isinstance(config, Mapping) or not all(isinstance(key, str) for key in config):
                raise PlanError(
                    f"The config of region {self.name!r} is a dict, such as {{'max_fusion_size': 8}}; "
                    f"got {shown_value(config)}."
                )
        for direction, config in self.configs:
            if any(value is DEFAULT for value in config.values()):
                name = "backward_config" if direction is Direction.BACKWARD else "config"
                force_setattr(self, name, {key: value for key, value in config.items() if value is not DEFAULT})

    @property
    def selection(self) -> str:
        """The selectors as text, for example ``modules:norm + modules:mlp, but ops:aten.gelu*``."""
        picked = (" + " if self.joined else ", ").join(map(str, self.selectors))
        return f"{picked}, but {', '.join(map(str, self.carved))}" if self.carved else picked

    def patterns(self, kind: SelectorKind) -> list[str]:
        """Return the patterns of its selectors of one kind."""
        return [pattern for selector in self.selectors if selector.kind is kind for pattern in selector.patterns]

    def same_nodes(self, other: Region) -> bool:
        """Return whether two regions pick the same nodes and instances, under the same name."""
        return replace(self.as_marked, enabled=True) == replace(other.as_marked, enabled=True)

    @property
    def as_marked(self) -> Region:
        """The region with Inductor's defaults, and without passes and backend."""
        return replace(self, config={}, backward_config=None, treatment=INDUCTOR)


def config_of(region: Region, direction: Direction) -> dict[str, Any]:
    """Return the config of a region's partitions in graphs of one direction."""
    config = region.backward_config if direction is Direction.BACKWARD else None
    return dict(region.config if config is None else config)


def config_texts(config: Mapping[str, Any]) -> list[str]:
    """Return a config as texts, one for each key: ``max_fusion_size=16``."""
    return [f"{key}={value!r}" for key, value in config.items()]


def configs_text(region: Region) -> str:
    """Return a region's config as text; ``forward …; backward …`` if its backward has its own config."""
    return "; ".join(
        f"{f'{direction} ' if direction else ''}{dict(config) or 'no config'}" for direction, config in region.configs
    )


def with_config(region: Region, config: Mapping[str, Any], direction: Direction | None = None) -> Region:
    """Return the region with ``config`` for one direction, or for both if ``direction`` is None."""
    forward = config if direction is not Direction.BACKWARD else config_of(region, Direction.FORWARD)
    backward = config if direction is not Direction.FORWARD else config_of(region, Direction.BACKWARD)
    return replace(region, config=forward, backward_config=None if backward == forward else backward)


def is_name(name: str) -> bool:
    """Return whether ``name`` can be the name of a region: one line that texts and terminals show unchanged."""
    return bool(name.strip()) and name.isprintable()  # ``rx.region`` needs methods that Dynamo can evaluate


def require_name(name: object) -> None:
    """Raise PlanError unless ``name`` is a valid name of a region."""
    if not isinstance(name, str) or not is_name(name):
        raise PlanError(
            "A region's name must be a non-blank string without line breaks and control characters, such as 'mlp'; "
            f"got {shown_value(name)}."
        )


def checked_items(noun: str, items: object, kind: type) -> tuple[Any, ...]:
    """Return ``items`` as a tuple; raise PlanError unless all are instances of ``kind``."""
    checked = tuple(items) if isinstance(items, Iterable) and not isinstance(items, (str, Mapping)) else None
    if checked is None or not all(isinstance(item, kind) for item in checked):
        raise PlanError(f"The {noun} are a tuple of rx.{kind.__name__}; got {shown_value(items)}.")
    return checked


def the_region(plan: Plan, name: str | None) -> Region:
    """Return the region called ``name``; without a name, the only region.

    Raises:
        UnknownRegionError: no region has that name; or without a name, there is not exactly one region.
    """
    if name is None and len(plan.regions) == 1:
        return plan.regions[0]
    if name is None and plan.regions:
        raise UnknownRegionError(f"Which region? {', '.join(region.name for region in plan.regions)}")
    if name is None:
        raise UnknownRegionError("There is no region yet: mark one, as in ex.mark('mlp', modules='layers.*.mlp').")
    return plan[name]


# ----------------------------------------------------------------------------------------------------- how it is traced


PARTITIONERS = ("default", "min_cut")


class Preparation(Record, frozen=True):
    """How a trace has prepared the graph of a partition for Inductor: its ops are decomposed."""

    kind: GraphKind
    """The kind of the graph."""
    joint_passes: bool
    """Whether the joint-graph passes have run, too."""

    frozen: bool = False
    """Whether its weights are to be constants."""


class Tracing(Record, frozen=True, repr_omit_defaults=True):
    """How a call is traced: how AOTAutograd splits forward from backward, and what the graphs consist of.

    ``rx.Tracing("min_cut", joint_passes=True, decompositions=True)`` is how plain ``torch.compile`` traces.
    """

    partitioner: str = "default"
    """``"default"`` keeps what the backward reads, as upstream's regional path; ``"min_cut"`` recomputes cheap ops."""

    joint_passes: bool = False
    """Whether Inductor's joint-graph passes (attention patterns, constant folding) run before the split."""

    decompositions: bool = False
    """Whether ops are decomposed as Inductor does before autograd; otherwise each partition decomposes its own."""

    frozen: bool = False
    """Whether the weights of an inference are constants of the regions, which Inductor folds and packs."""

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            InvalidArgumentError: there is no such partitioner, an option is not True or False, or ``frozen`` is without
                ``decompositions``.
        """
        if not isinstance(self.partitioner, str) or self.partitioner not in PARTITIONERS:
            raise InvalidArgumentError(
                f"partitioner={shown_value(self.partitioner)}: give {' or '.join(map(repr, PARTITIONERS))}."
                f"{did_you_mean(self.partitioner, PARTITIONERS)}"
            )
        check_flag("joint_passes", self.joint_passes)
        check_flag("decompositions", self.decompositions)
        check_flag("frozen", self.frozen)
        if self.frozen and not self.decompositions:
            raise InvalidArgumentError(
                "frozen=True needs decompositions=True: Inductor folds constants in graphs of decomposed ops."
            )

    def prepared(self, kind: GraphKind) -> Preparation | None:
        """Return how a graph of this kind is prepared for Inductor; None if partitions decompose their own ops."""
        if not self.decompositions:
            return None
        return Preparation(kind, self.joint_passes, frozen=self.frozen and kind is GraphKind.INFERENCE)

    def __str__(self) -> str:
        """Return for example ``min_cut partitioner, joint passes, decompositions (as torch.compile)``."""
        parts = [f"{self.partitioner} partitioner"]
        parts += [
            name.replace("_", " ") for name in ("joint_passes", "decompositions", "frozen") if getattr(self, name)
        ]
        return f"{', '.join(parts)}{' (as torch.compile)' if self == AS_TORCH_COMPILE else ''}"


AS_UPSTREAM = Tracing()
"""How upstream's regional path traces: the default. Files leave it out by its identity."""

AS_TORCH_COMPILE = Tracing("min_cut", joint_passes=True, decompositions=True)
"""How plain ``torch.compile`` traces: with every op in one region, its generated code is the same."""

FROZEN = replace(AS_TORCH_COMPILE, frozen=True)
"""Like ``AS_TORCH_COMPILE``, with the weights of an inference as constants."""


def checked_tracing(tracing: Any, otherwise: Tracing) -> Tracing:
    """Return the ``tracing=`` of a public function; ``otherwise`` if it is None.

    Raises:
        InvalidArgumentError: it is no Tracing.
    """
    check_argument("tracing", tracing, (Tracing, type(None)), "an rx.Tracing, such as rx.Tracing('min_cut'), or None")
    return otherwise if tracing is None else tracing


# ------------------------------------------------------------------------------------------------------------- the plan


class CutRule(StrEnum):
    """How regions become partitions.

    ``INSTANCES``: one per instance, with the sums of gradients that belong to it. ``MARKED``: one per instance, of
    marked ops only; sums of gradients run eagerly, as in upstream. ``UPSTREAM``: merged as upstream does.
    """

    INSTANCES = "instances"
    MARKED = "marked"
    UPSTREAM = "upstream"


@user_facing_methods
class Plan(Record, frozen=True):
    """The ordered regions, and how the call is traced. Every edit returns a new plan."""

    regions: tuple[Region, ...] = ()
    """If two regions select a node, the later one gets it."""
    cut: CutRule = CutRule.INSTANCES
    """How nodes of regions become partitions."""
    tracing: Tracing = AS_UPSTREAM
    """How the graphs are traced that the regions are cut out of."""

    @user_facing
    def __post_init__(self) -> None:
        """Check the fields; names are unique.

        Raises:
            PlanError: an item is not a region, two regions have the same name, or the cut does not exist.
            InvalidArgumentError: ``tracing`` is no Tracing.
        """
        force_setattr(self, "regions", checked_items("regions of a plan", self.regions, Region))
        duplicates = [name for name, count in Counter(region.name for region in self.regions).items() if count > 1]
        if duplicates:
            raise PlanError(f"Two regions are called {duplicates[0]!r}: give each a name of its own.")
        cuts = [str(cut) for cut in CutRule]
        if not isinstance(self.cut, str) or self.cut not in cuts:
            raise PlanError(f"cut={shown_value(self.cut)}: give {' or '.join(map(repr, cuts))}.")
        force_setattr(self, "cut", CutRule(self.cut))
        check_argument("tracing", self.tracing, Tracing, "an rx.Tracing")
        if self.tracing == AS_UPSTREAM:
            force_setattr(self, "tracing", AS_UPSTREAM)

    def __getitem__(self, name: str) -> Region:
        """Return the region called ``name``.

        Raises:
            UnknownRegionError: no region has that name; the message lists similar names.
        """
        for region in self.regions:
            if region.name == name:
                return region
        names = [region.name for region in self.regions]
        listed = f" Regions: {', '.join(names)}." if names else " There is no region yet."
        raise UnknownRegionError(f"No region is called {shown_value(name)}.{did_you_mean(name, names)}{listed}")

    def __contains__(self, name: object) -> bool:
        """Return whether a region is called ``name``."""
        return any(region.name == name for region in self.regions)

    @property
    def numbers(self) -> Mapping[str, int]:
        """The number of each region by name: its place, colour and letter."""
        return {region.name: number for number, region in enumerate(self.regions)}

    def cuts_the_same(self, other: Plan) -> bool:
        """Return whether two plans cut the same pieces out of one trace, under whatever configs and treatments."""
        alike = self.cut is other.cut and len(self.regions) == len(other.regions)
        return alike and all(map(Region.same_nodes, self.regions, other.regions))

    def added(self, region: Region) -> Plan:
        """Return the plan with ``region`` at its end, instead of a region of the same name."""
        check_argument("region", region, Region, "an rx.Region", PlanError)
        other_regions = tuple(other for other in self.regions if other.name != region.name)
        return replace(self, regions=(*other_regions, region))

    def traced(self, tracing: Tracing) -> Plan:
        """Return the plan with another tracing."""
        return replace(self, tracing=tracing)

    def removed(self, name: str) -> Plan:
        """Return the plan without the region called ``name``."""
        gone = self[name]
        return replace(self, regions=tuple(region for region in self.regions if region is not gone))

    def replaced(self, names: Collection[str], *regions: Region) -> Plan:
        """Return the plan with ``regions`` instead of the regions called ``names``, at the place of the first of these.

        Raises:
            PlanError: another region has the name of a new one, or ``names`` is empty.
        """
        check_argument("names", names, (tuple, list, set, frozenset, Mapping), "the names as a list", PlanError)
        old_regions = {name: self[name] for name in names}
        if not old_regions:
            raise PlanError("Give the names of the regions to replace.")
        kept_regions = [region for region in self.regions if region.name not in old_regions]
        for region in regions:
            check_argument("region", region, Region, "an rx.Region", PlanError)
            if any(region.name == other.name for other in kept_regions):
                raise PlanError(f"A region called {region.name!r} exists already: give another name.")
        position = next(index for index, region in enumerate(self.regions) if region.name in old_regions)
        return replace(self, regions=(*kept_regions[:position], *regions, *kept_regions[position:]))

    def changed(self, name: str, /, **fields: Any) -> Plan:
        """Return the plan with ``fields`` of the region called ``name`` replaced."""
        old = self[name]
        if unknown := sorted(fields.keys() - set(Region.__struct_fields__)):
            raise PlanError(f"A region has no {unknown[0]!r}.{did_you_mean(unknown[0], Region.__struct_fields__)}")
        new_name = fields.get("name", name)
        if new_name != name:
            require_name(new_name)
            if new_name in self:
                raise PlanError(f"Cannot rename {name!r} to {new_name!r}: a region of that name exists already.")
        return self._with_region(old, replace(old, **fields))

    def configured(self, name: str, config: Mapping[str, Any], direction: Direction | None = None) -> Plan:
        """Return the plan with ``config`` as the config of the region called ``name``, for one direction or both."""
        return self._with_region(self[name], with_config(self[name], config, direction))

    def _with_region(self, old: Region, new: Region) -> Plan:
        return replace(self, regions=tuple(new if region is old else region for region in self.regions))


WHOLE = "whole"
"""The name of the region that has every op."""


def whole_graph(tracing: Tracing, config: Mapping[str, Any] = MappingProxyType({})) -> Plan:
    """Return the plan in which every op is in one region."""
    return Plan((Region(WHOLE, (Selector(SelectorKind.OPS, ("*",)),), dict(sorted(config.items()))),), tracing=tracing)
