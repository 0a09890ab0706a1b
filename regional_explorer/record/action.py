"""Actions: the calls on an exploration ``ex`` that a remedy consists of, and their Python."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from regional_explorer.record import Record
from regional_explorer.record.figure import Figure
from regional_explorer.record.plan import DEFAULT, Selector, SelectorKind, Tracing


class ActionKind(StrEnum):
    """The method of an exploration that an action calls, by name.

    ``CUT`` changes how the plan's regions become partitions, ``LOOK`` shows a table.
    """

    MARK = "mark"
    UNMARK = "unmark"
    CARVE = "carve"
    MERGE = "merge"
    CONFIGURE = "configure"
    DISABLE = "disable"
    ENABLE = "enable"
    CUT = "cut"
    RETRACE = "retrace"
    COMPILE = "compile"
    BENCHMARK = "benchmark"
    PROFILE = "profile"
    TUNE = "tune"
    KERNEL_TIMES = "kernel_times"
    DIAGNOSE = "diagnose"
    SAVE_PLAN = "save_plan"
    TO_SOURCE = "to_source"
    LOOK = "look"


EDITS = frozenset(
    {
        *(ActionKind.MARK, ActionKind.UNMARK, ActionKind.CARVE, ActionKind.MERGE, ActionKind.CONFIGURE),
        *(ActionKind.DISABLE, ActionKind.ENABLE, ActionKind.CUT, ActionKind.RETRACE),
    }
)
"""The actions that change the plan; afterwards the figures at hand are those of an earlier plan."""


class EffectBasis(StrEnum):
    """How the effect of an action is known: by a try, from other figures, or by a rule of thumb."""

    MEASURED = "measured"
    ESTIMATED = "estimated"
    GUESSED = "guessed"


class Action(Record, frozen=True):
    """One call of a method of an exploration, as ``ex.configure('mlp', {'max_fusion_size': 8})``."""

    kind: ActionKind
    """The method that is called."""
    of: tuple[str, ...] = ()
    """The names of its regions, or the path of a file."""
    selector: Selector | None = None
    """The selector of a new region."""
    config: Mapping[str, Any] = {}
    """The config keys that it sets."""
    unset: tuple[str, ...] = ()
    """The config keys that it removes."""
    tracing: Tracing | None = None
    """How it traces the call."""
    options: Mapping[str, Any] = {}
    """Other keyword arguments."""
    needs: str = ""
    """The argument that the user fills in; empty if the action can run as it is."""
    basis: EffectBasis = EffectBasis.GUESSED
    """How its effect is known."""
    gain_s: Figure | None = None
    """The seconds that it saves in each call of the function; None if unknown."""
    assumes: str = ""
    """The assumption under which it saves ``gain_s``."""

    @property
    def is_edit(self) -> bool:
        """Whether it changes the plan or the trace."""
        return self.kind in EDITS

    @property
    def positional(self) -> tuple[str, ...]:
        """The positional arguments of the call; a selector that others narrow is among them."""
        selector = self.selector
        if selector is None or not selector.is_combined:
            return self.of
        return *self.of, str(replace(selector, only=()))

    @property
    def keywords(self) -> dict[str, Any]:
        """The keyword arguments of the call; the keys of a config are together in ``config``."""
        config = {**self.config, **dict.fromkeys(self.unset, DEFAULT)}
        picked = {} if self.selector is None else selector_keywords(self.selector)
        configures = self.kind is ActionKind.CONFIGURE and not self.needs
        traces = {} if self.tracing is None else {"tracing": self.tracing}
        return {**({"config": config} if configures else {}), **picked, **traces, **self.options}

    def __str__(self) -> str:
        """Return the call as Python, with ``…`` for what the user fills in."""
        keywords = self.keywords
        if self.kind is ActionKind.LOOK:
            return f"ex.{keywords['table']}"
        if self.kind is ActionKind.CUT:
            cut = "".join(f"{name}={value!r}, " for name, value in keywords.items())
            return f"ex.plan = rx.Plan(ex.plan.regions, {cut}tracing=ex.plan.tracing)"
        arguments = [*map(repr, self.positional)]
        if self.kind is ActionKind.CONFIGURE:
            arguments.append("{…}" if self.needs else _dict_text(keywords.pop("config")))
        elif self.needs:
            arguments.append("…")
        arguments += [f"{name}={_value_text(value)}" for name, value in keywords.items()]
        return f"ex.{self.kind}({', '.join(arguments)})"


def _dict_text(config: Mapping[str, Any]) -> str:
    return f"{{{', '.join(f'{key!r}: {_value_text(value)}' for key, value in config.items())}}}"


def _value_text(value: Any) -> str:
    return "rx.DEFAULT" if value is DEFAULT else f"{'rx.' if isinstance(value, Tracing) else ''}{value!r}"


def selector_keywords(selector: Selector) -> dict[str, Any]:
    """Return the keyword arguments of ``ex.mark`` that make a selector; a mark in the source is given by its nodes.

    A selector that others narrow is written as text, except for ``only``.
    """
    if selector.kind is SelectorKind.ANNOTATION:
        return {"nodes": list(selector.only)}
    patterns, kind = selector.patterns, selector.kind
    if kind is SelectorKind.SUBGRAPH:
        # The name of the function matches in other captures, too.
        patterns, kind = tuple(dict.fromkeys(pattern.partition(":")[0] for pattern in patterns)), SelectorKind.SUBGRAPHS
    keywords: dict[str, Any] = {}
    if not selector.is_combined:
        keywords[str(kind)] = patterns[0] if len(patterns) == 1 else list(patterns)
    if selector.innermost and not selector.is_combined:
        keywords["innermost"] = True
    if selector.only:
        keywords["only"] = list(selector.only)
    return keywords


def mark_action(region: str, selector: Selector) -> Action:
    """Return the action that marks a region by a selector."""
    return Action(ActionKind.MARK, (region,), selector)


def mark_nodes_action(region: str, *nodes: str) -> Action:
    """Return the action that adds nodes to a region."""
    return mark_action(region, Selector(SelectorKind.NODES, nodes))


def carve_action(region: str, selector: Selector) -> Action:
    """Return the action that carves the ops that a selector picks out of a region."""
    return Action(ActionKind.CARVE, (region,), selector)


def merge_action(*regions: str, config: Mapping[str, Any] | None = None) -> Action:
    """Return the action that makes one region of several."""
    return Action(ActionKind.MERGE, regions, options={"config": dict(config)} if config else {})


def unmark_action(region: str) -> Action:
    """Return the action that removes a region."""
    return Action(ActionKind.UNMARK, (region,))


def disable_action(region: str) -> Action:
    """Return the action that leaves a region to eager."""
    return Action(ActionKind.DISABLE, (region,))


def configure_action(
    region: str,
    config: Mapping[str, Any] | None = None,
    direction: str | None = None,
    *,
    unset: tuple[str, ...] = (),
    basis: EffectBasis = EffectBasis.GUESSED,
) -> Action:
    """Return the action that changes a region's config; without ``config`` the user fills it in."""
    return Action(
        ActionKind.CONFIGURE,
        (region,),
        config=config or {},
        unset=unset,
        options={"direction": str(direction)} if direction else {},
        needs="config" if config is None else "",
        basis=basis,
    )


def show_table_action(table: str) -> Action:
    """Return the action that shows a table of the results."""
    return Action(ActionKind.LOOK, options={"table": table})


ALONE = "the call keeps what the region gains alone"
"""The assumption of a gain that was measured on a region by itself."""

BENCHMARK = Action(ActionKind.BENCHMARK)
COMPILE = Action(ActionKind.COMPILE)
TUNE = Action(ActionKind.TUNE)
RETRACE = Action(ActionKind.RETRACE)
TO_SOURCE = Action(ActionKind.TO_SOURCE)
