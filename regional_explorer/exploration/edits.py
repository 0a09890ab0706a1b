"""``ex.mark``, ``ex.configure`` and the other edits of a plan."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from regional_explorer.compiler.config.validate import checked_direction, configured
from regional_explorer.errors import SelectorError
from regional_explorer.errors.arguments import check_argument, check_flag
from regional_explorer.record.graph import Graph
from regional_explorer.record.region import Direction, Plan
from regional_explorer.regions.edit import Patterns, carved, marked, merged, selectors, uncarved
from regional_explorer.regions.split import split

P = ParamSpec("P")


@dataclass
class Draft:
    """A plan to try edits on; nothing is traced, cut or compiled.

    ``ex.preview(ex.draft().mark("mlp", modules="*.mlp").plan)`` shows what a plan would give; ``ex.plan = draft.plan``
    applies it.
    """

    plan: Plan
    graphs: Sequence[Graph]

    def mark(  # noqa: PLR0913 - one keyword for each kind of selector
        self,
        name: str,
        *,
        modules: Patterns = None,
        lines: Patterns = None,
        ops: Patterns = None,
        nodes: Patterns = None,
        subgraphs: Patterns = None,
        innermost: bool = False,
        only: Patterns = None,
        each: bool = False,
    ) -> Self:
        """Mark a region without touching the source. Nothing is traced again.

        Args:
            name: its name; an existing region gets these nodes in addition.
            modules: globs over module paths as ``named_modules()`` gives them; ``*`` stays within one level.
            lines: ``function:3-7``, counted from its ``def``, or ``file.py:10-20``.
            ops: globs over operators, such as ``aten.gelu*``.
            nodes: names of nodes, of any graph, or ``0/forward:mul_1``.
            subgraphs: globs over the functions that ``nested_compile_region`` marks, such as ``Block.forward`` or
                ``Block``; ``*`` for all. What is marked is the body, for all calls that share it.
            innermost: of ``lines``, leave out ops of functions that are called there.
            only: of what the others pick, take the nodes of these names alone; instances stay what they are.
            each: one region per module call that matches, named ``name[path]``, instead of one with many instances.

        Raises:
            SelectorError: no selector is given, one is malformed, or one matches nothing.
        """
        check_flag("innermost", innermost)
        check_flag("each", each)
        given = {"modules": modules, "lines": lines, "ops": ops, "nodes": nodes, "subgraphs": subgraphs}
        chosen = selectors(given, innermost=innermost, only=only)
        self.plan = marked(self.plan, self.graphs, name, chosen, each=each)
        return self

    def unmark(self, name: str) -> Self:
        """Take a region out of the plan."""
        self.plan = self.plan.removed(name)
        return self

    def rename(self, name: str, new_name: str) -> Self:
        """Give a region another name; what was compiled stays."""
        self.plan = self.plan.changed(name, name=new_name)
        return self

    def merge(self, *names: str, name: str | None = None, config: Mapping[str, Any] | None = None) -> Self:
        """Make one region of several. What they have is one instance where it feeds each other directly.

        So two modules that follow each other become one compiled piece; in each layer, if each has them.

        Args:
            *names: the regions; the merged one stands where the first of them in the plan stood.
            name: what it is called; as the first named when left out.
            config: its config, for forward and backward; needed where those of the regions differ.

        Raises:
            UnknownRegionError, PlanError: fewer than two regions, configs that differ, or a name that is taken.
            UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError.
        """
        plan = self.plan
        if config is not None:
            for other in names:
                plan = plan.configured(other, {})
        plan = merged(plan, self.graphs, names, name)
        self.plan = plan if config is None else configured(plan, name or names[0], config)
        return self

    def split(self, name: str, at: str | None = None) -> Self:
        """Make several regions of one: ``name.1``, ``name.2``, …, each under its config.

        Args:
            name: the region.
            at: the node, of any graph, that the second part begins with, such as ``mul_1`` or ``0/forward:mul_1``; all
                equal instances are cut in the same place. When left out, every instance becomes a region.

        Raises:
            UnknownRegionError, SelectorError: ``at`` is no node of the region.
            PlanError: there is nothing to cut.
        """
        check_argument(
            "at", at, (str, type(None)), "the name of a node, such as 'mul_1' or '0/forward:mul_1'", SelectorError
        )
        self.plan = split(self.plan, self.graphs, name, at)
        return self

    def carve(
        self,
        name: str,
        *,
        modules: Patterns = None,
        lines: Patterns = None,
        ops: Patterns = None,
        nodes: Patterns = None,
    ) -> Self:
        """Let single ops of a region run eagerly, as ``annotate({"fallback_to_eager": True})`` does in the source.

        An op is one of the program: all nodes it was traced to go along, those of its backward too. The selectors are
        those of ``mark``; of what they pick, the region's own ops count.

        Raises:
            UnknownRegionError, SelectorError: a selector matches nothing of the region.
            PlanError: nothing would be left of it.
        """
        given = {"modules": modules, "lines": lines, "ops": ops, "nodes": nodes}
        self.plan = carved(self.plan, self.graphs, name, selectors(given))
        return self

    def uncarve(
        self,
        name: str,
        *,
        modules: Patterns = None,
        lines: Patterns = None,
        ops: Patterns = None,
        nodes: Patterns = None,
    ) -> Self:
        """Take carved ops back into a region: those that the selectors pick, or all of them without one.

        Raises:
            UnknownRegionError, SelectorError: a selector matches no carved op.
            PlanError: the plan carves nothing out of this region.
        """
        given = {"modules": modules, "lines": lines, "ops": ops, "nodes": nodes}
        chosen = selectors(given) if any(patterns is not None for patterns in given.values()) else ()
        self.plan = uncarved(self.plan, self.graphs, name, chosen)
        return self

    def disable(self, name: str) -> Self:
        """Let a region run eagerly; its artifacts are kept."""
        self.plan = self.plan.changed(name, enabled=False)
        return self

    def enable(self, name: str) -> Self:
        """Let a region run compiled again."""
        self.plan = self.plan.changed(name, enabled=True)
        return self

    def configure(self, name: str, config: Mapping[str, Any], *, direction: Direction | str | None = None) -> Self:
        """Merge ``config`` into a region's; the value ``DEFAULT`` takes a key out.

        Args:
            name: the region.
            config: Inductor config keys, dotted, and their values.
            direction: ``"forward"`` or ``"backward"`` to set it for the region's partitions in those graphs alone;
                for both when left out.

        Raises:
            UnknownRegionError, UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError.
        """
        self.plan = configured(self.plan, name, config, direction)
        return self

    def reset(self, name: str, *, direction: Direction | str | None = None) -> Self:
        """Take a region's config back to Inductor's own, for one direction or for both."""
        self.plan = self.plan.configured(name, {}, checked_direction(direction))
        return self


class HasDraft(Protocol):
    """What owns a plan and gives a draft of it."""

    plan: Plan

    def draft(self) -> Draft:
        """Return a copy of the plan to try edits on."""


Owner = TypeVar("Owner", bound=HasDraft)


def edit_of_plan(edit: Callable[Concatenate[Draft, P], Draft]) -> Callable[Concatenate[Owner, P], Owner]:
    """Return the method that makes an edit of a draft, and applies the plan it gives to its owner."""

    @functools.wraps(edit)
    def method(owner: Owner, /, *args: P.args, **kwargs: P.kwargs) -> Owner:
        owner.plan = edit(owner.draft(), *args, **kwargs).plan
        return owner

    return method
