"""Editing a plan by name: mark, rename, switch on and off, configure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

from regional_explorer.compiler.asked import configured
from regional_explorer.record.graph import Graph
from regional_explorer.record.region import Plan
from regional_explorer.regions.edit import Patterns, marked, selectors


class PlanEditing(ABC):
    """The edits of whoever owns a ``plan``. Each makes a new plan, and tracing is never needed."""

    plan: Plan

    @property
    @abstractmethod
    def _graphs(self) -> Sequence[Graph]:
        """The record of the graphs that selectors look at."""

    def mark(
        self,
        name: str,
        *,
        modules: Patterns = None,
        lines: Patterns = None,
        ops: Patterns = None,
        nodes: Patterns = None,
        innermost: bool = False,
        each: bool = False,
    ) -> Self:
        """Mark a region without touching the source. Nothing is traced again.

        Args:
            name: its name; an existing region gets these nodes in addition.
            modules: globs over module paths as ``named_modules()`` gives them; ``*`` stays within one level.
            lines: ``function:3-7``, counted from its ``def``, or ``file.py:10-20``.
            ops: globs over operators, such as ``aten.gelu*``.
            nodes: names of nodes, of any graph, or ``0/forward:mul_1``.
            innermost: of ``lines``, leave out ops of functions that are called there.
            each: one region per module call that matches, named ``name[path]``, instead of one with many instances.

        Raises:
            SelectorError: no selector is given, one is malformed, or one matches nothing.
        """
        given = {"modules": modules, "lines": lines, "ops": ops, "nodes": nodes}
        chosen = selectors(given, innermost=innermost)
        self.plan = marked(self.plan, self._graphs, name, chosen, each=each)
        return self

    def unmark(self, name: str) -> Self:
        """Take a region out of the plan."""
        self.plan = self.plan.removed(name)
        return self

    def rename(self, name: str, new_name: str) -> Self:
        """Give a region another name; what was compiled stays."""
        self.plan = self.plan.changed(name, name=new_name)
        return self

    def disable(self, name: str) -> Self:
        """Let a region run eagerly; its artifacts are kept."""
        self.plan = self.plan.changed(name, enabled=False)
        return self

    def enable(self, name: str) -> Self:
        """Let a region run compiled again."""
        self.plan = self.plan.changed(name, enabled=True)
        return self

    def configure(self, name: str, config: Mapping[str, Any]) -> Self:
        """Merge ``config`` into a region's; the value ``DEFAULT`` takes a key out.

        Raises:
            UnknownRegionError, UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError.
        """
        self.plan = configured(self.plan, name, config)
        return self

    def reset(self, name: str) -> Self:
        """Take a region's config back to Inductor's own."""
        self.plan = self.plan.changed(name, config={})
        return self
