"""``ex.mark``, ``ex.configure`` and the other edits of a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from regional_explorer.compiler.region_config import checked_direction, configured
from regional_explorer.compiler.treatment import Pass, with_treatment
from regional_explorer.errors import SelectorError, check_argument, check_flag, user_facing_methods
from regional_explorer.record.configs import preset
from regional_explorer.record.graph import Graph, GraphBreak
from regional_explorer.record.plan import Default, Direction, Plan, Selector
from regional_explorer.regions.edit import Patterns, carved, marked, merged, selectors, split, uncarved


@user_facing_methods
class Edits:
    """The edits of a plan, for an exploration and for a draft."""

    def _edit_plan(self, change: Callable[[Draft], Plan]) -> Self:
        """Replace the plan with the result of ``change`` for a draft of it."""
        raise NotImplementedError

    def mark(  # noqa: PLR0913 - one keyword for each kind of selector
        self,
        name: str,
        *selector: str | Selector,
        modules: Patterns = None,
        lines: Patterns = None,
        ops: Patterns = None,
        nodes: Patterns = None,
        subgraphs: Patterns = None,
        innermost: bool = False,
        only: Patterns = None,
        each: bool = False,
    ) -> Self:
        """Mark a region without changing the source or tracing again.

        Args:
            name: the name of the region; if the plan has it, these nodes are added to it.
            *selector: selectors as tables show them: ``"modules:layers.*.mlp -ops:aten.div*"`` is these modules without
                these ops, ``"-ops:aten.div*"`` everything but these ops, ``"ops:gelu &modules:layers.0"`` these ops in
                this module.
            modules: globs over module paths as ``named_modules()`` gives them; ``*`` stays within one level of the
                path, ``**`` does not: ``*ffn`` matches ``ffn``, ``**ffn`` also ``layers.0.ffn``. The root has no path.
            lines: ``function:3-7``, counted from its ``def``, ``file.py:10-20``, or ``10-20`` if only one file has ops
                there.
            ops: globs over operators, such as ``aten.gelu*``, or over their short names: ``gelu``. A pattern picks ops
                of the backward only if it matches no op of the forward.
            nodes: names of nodes in any graph, or ``0/forward:mul_1`` for a node of one graph.
            subgraphs: globs over the functions that ``nested_compile_region`` marks, such as ``Block.forward`` or
                ``Block``; ``*`` for all. This marks the body, for all calls that share it.
            innermost: with ``lines``, leave out ops of functions that are called there.
            only: restrict the selected nodes to these names; instances stay the same.
            each: make a region of each module that matches, named ``name[path]``, instead of one region with many
                instances.

        Raises:
            SelectorError: no selector is given, a selector is malformed or matches nothing, or nodes share a name.
        """
        check_flag("innermost", innermost)
        check_flag("each", each)
        patterns = {"modules": modules, "lines": lines, "ops": ops, "nodes": nodes, "subgraphs": subgraphs}
        chosen = selectors(patterns, selector, innermost=innermost, only=only)
        return self._edit_plan(
            lambda draft: marked(draft.plan, draft.graphs, name, chosen, each=each, breaks=draft.breaks)
        )

    def unmark(self, name: str) -> Self:
        """Remove a region from the plan."""
        return self._edit_plan(lambda draft: draft.plan.removed(name))

    def rename(self, name: str, new_name: str) -> Self:
        """Rename a region; its artifacts are kept."""
        return self._edit_plan(lambda draft: draft.plan.changed(name, name=new_name))

    def merge(self, *names: str, name: str | None = None, config: Mapping[str, Any] | None = None) -> Self:
        """Merge several regions into one. Their instances become one where they feed each other directly.

        For example, two consecutive modules become one partition in each layer that has them.

        Args:
            *names: the regions; the merged region takes the place of the first in the plan.
            name: the name of the merged region; by default the first region's.
            config: its config, for forward and backward; required if the configs of the regions differ.

        Raises:
            UnknownRegionError, PlanError: there are fewer than two regions, their configs differ, or the name is taken.
            UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError.
        """

        def change(draft: Draft) -> Plan:
            plan = draft.plan
            if config is not None:
                for region_name in names:
                    plan = plan.configured(region_name, {})
            plan = merged(plan, draft.graphs, names, name)
            return plan if config is None else configured(plan, name or names[0], config)

        return self._edit_plan(change)

    def split(self, name: str, at: str | None = None) -> Self:
        """Split a region into ``name.1``, ``name.2``, …, each with its config.

        Args:
            name: the region.
            at: the first node of the second part, of any graph, such as ``mul_1`` or ``0/forward:mul_1``; all equal
                instances are cut in the same place. By default every instance becomes a region.

        Raises:
            UnknownRegionError, SelectorError: ``at`` is not a node of the region.
            PlanError: there is nothing to split.
        """
        check_argument(
            "at", at, (str, type(None)), "the name of a node, such as 'mul_1' or '0/forward:mul_1'", SelectorError
        )
        return self._edit_plan(lambda draft: split(draft.plan, draft.graphs, name, at))

    def carve(
        self,
        name: str,
        *selector: str | Selector,
        modules: Patterns = None,
        lines: Patterns = None,
        ops: Patterns = None,
        nodes: Patterns = None,
    ) -> Self:
        """Run some ops of a region eagerly, as ``annotate({"fallback_to_eager": True})`` does in the source.

        This includes all nodes that an op was traced to, also in the backward. The selectors are those of ``mark``;
        nodes outside the region are ignored.

        Raises:
            UnknownRegionError, SelectorError: a selector matches nothing of the region.
            PlanError: nothing would be left of the region.
        """
        chosen = selectors({"modules": modules, "lines": lines, "ops": ops, "nodes": nodes}, selector)
        return self._edit_plan(lambda draft: carved(draft.plan, draft.graphs, name, chosen))

    def uncarve(
        self,
        name: str,
        *selector: str | Selector,
        modules: Patterns = None,
        lines: Patterns = None,
        ops: Patterns = None,
        nodes: Patterns = None,
    ) -> Self:
        """Return carved ops to a region: the ops that the selectors pick, or all if there is no selector.

        Raises:
            UnknownRegionError, SelectorError: a selector matches no carved op.
            PlanError: the plan carves nothing out of this region.
        """
        by_kind = {"modules": modules, "lines": lines, "ops": ops, "nodes": nodes}
        given = selector or any(patterns is not None for patterns in by_kind.values())
        chosen = selectors(by_kind, selector) if given else ()
        return self._edit_plan(lambda draft: uncarved(draft.plan, draft.graphs, name, chosen))

    def disable(self, name: str) -> Self:
        """Run a region eagerly; its artifacts are kept."""
        return self._edit_plan(lambda draft: draft.plan.changed(name, enabled=False))

    def enable(self, name: str) -> Self:
        """Undo ``disable``: run a region compiled."""
        return self._edit_plan(lambda draft: draft.plan.changed(name, enabled=True))

    def configure(
        self,
        /,
        name: str,
        config: Mapping[str, Any] | str = MappingProxyType({}),
        *,
        direction: Direction | str | None = None,
        passes: Sequence[Callable[..., Any] | Pass] | Default | None = None,
        backend: str | Callable[..., Any] | Default | None = None,
        **keys: Any,
    ) -> Self:
        """Merge ``config`` into a region's config, and set its passes and its backend; ``DEFAULT`` removes each.

        ``ex.configure("mlp", max_fusion_size=8)`` is ``ex.configure("mlp", {"max_fusion_size": 8})``. Presets are
        ``"default"`` (back to Inductor's defaults), ``"max-autotune, no cudagraphs"``, ``"eager numerics"``, ``"no
        fusion"``, ``"NaN asserts"`` and ``"size asserts"``. With asserts a failing call raises
        ``RegionAssertionError``, which names the region, the node and the source line.

        Args:
            name: the region.
            config: Inductor config keys, dotted, and their values, or the name of a preset.
            keys: more config keys, as keyword arguments.
            direction: ``"forward"`` or ``"backward"`` to configure only the region's partitions in those graphs; by
                default both.
            passes: functions of a ``torch.fx.GraphModule`` that run on each piece before it is compiled, in this order;
                ``rx.Pass(fn, on="backward")`` for one direction. They replace the region's passes.
            backend: what compiles the region instead of Inductor: a name of ``torch._dynamo.list_backends``, such as
                ``"eager"``, or a function of a GraphModule and example inputs.

        Raises:
            UnknownRegionError, UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError.
            InvalidArgumentError: a pass or the backend is no function, or no backend has that name.
        """

        def change(draft: Draft) -> Plan:
            plan, changes = draft.plan, config
            if isinstance(changes, str):
                changes = preset(changes)
                if not changes:  # "default"
                    plan = plan.configured(name, {}, checked_direction(direction))
            merged_changes: Any = {**changes, **keys} if isinstance(changes, Mapping) else changes
            plan = configured(plan, name, merged_changes, direction)
            if passes is None and backend is None:
                return plan
            return plan.changed(name, treatment=with_treatment(plan[name].treatment, passes, backend))

        return self._edit_plan(change)

    def reset(self, name: str, *, direction: Direction | str | None = None) -> Self:
        """Reset a region's config to Inductor's defaults, for one direction or for both; passes and backend stay."""
        return self._edit_plan(lambda draft: draft.plan.configured(name, {}, checked_direction(direction)))


@dataclass
class Draft(Edits):
    """An editable copy of a plan; editing it traces, cuts and compiles nothing.

    ``ex.preview(ex.draft().mark("mlp", modules="*.mlp").plan)`` previews an edit; ``ex.plan = draft.plan``
    applies it.
    """

    plan: Plan
    graphs: Sequence[Graph]
    breaks: Sequence[GraphBreak]

    def _edit_plan(self, change: Callable[[Draft], Plan]) -> Self:
        self.plan = change(self)
        return self
