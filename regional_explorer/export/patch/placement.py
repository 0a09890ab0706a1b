"""Places the marks of a plan: which span of the source each region's ops fill, and which regions no mark expresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import libcst as cst

from regional_explorer.export.patch.new_marks import NewMark, Placement, reused_mark
from regional_explorer.export.patch.predicted_plan import OriginClaims, annotation_keys, predicted_plan
from regional_explorer.export.patch.refusals import why_unwritable
from regional_explorer.export.patch.sites import Sites
from regional_explorer.export.patch.source_file import Statement
from regional_explorer.export.patch.spans import StatementRange, WholeFunction, is_loop
from regional_explorer.record.graph import Graph, GraphBreak, GraphKind
from regional_explorer.record.grouping import grouped
from regional_explorer.record.json_safe import json_safe
from regional_explorer.record.partition import Partition
from regional_explorer.record.plan import Plan
from regional_explorer.record.region import Direction, Region, config_of
from regional_explorer.record.selector import SelectorKind
from regional_explorer.regions.instances import Instance
from regional_explorer.regions.select import Assignment, assign
from regional_explorer.regions.source_marks import annotated_config, annotation_key, annotation_name

PreviewPartitions = Callable[[Plan], Sequence[Partition]]
"""Returns the partitions that a plan would give."""


@dataclass(frozen=True)
class _RegionOps:
    """The ops of one region: its own, those carved out by the plan, and all that a mark around them may contain."""

    own: AbstractSet[int]
    carved: AbstractSet[int]
    allowed: AbstractSet[int]


def place(graphs: Sequence[Graph], breaks: Sequence[GraphBreak], plan: Plan, preview: PreviewPartitions) -> Placement:
    """Return where the marks of ``plan`` go, such that exploring the marked source gives the same partitions."""
    assignment = assign(graphs, plan)
    claims = {
        node.origin: (claim.region, claim.instance)
        for graph in graphs
        if graph.kind is GraphKind.DYNAMO
        for node in graph.ops
        if node.origin is not None and (claim := assignment.claim(graph.id, node, with_carved=True)) is not None
    }
    annotated = {
        node.origin
        for graph in graphs
        if graph.kind is GraphKind.DYNAMO
        for node in graph.ops
        if node.annotated and node.origin is not None
    }
    sites = Sites(graphs, breaks, sorted(annotated.union(claims)))
    return _Placer(graphs, plan, preview, assignment, claims, sites).place()


class _Placer:
    def __init__(
        self,
        graphs: Sequence[Graph],
        plan: Plan,
        preview: PreviewPartitions,
        assignment: Assignment,
        claims: OriginClaims,
        sites: Sites,
    ) -> None:
        self.graphs, self.plan, self.preview, self.claims = graphs, plan, preview, claims
        self.placement = Placement(sites)
        self.sites = sites
        self.ops = {region.name: self._region_ops(region, assignment) for region in plan.regions}

    def _region_ops(self, region: Region, assignment: Assignment) -> _RegionOps:
        region_origins = {origin for origin, (name, _) in self.claims.items() if name == region.name}
        carved = region_origins & assignment.carved
        carved_in_source = {origin for origin in region_origins if self.sites.ops[origin].carved}
        taken_over = {
            origin for (loser, _), origins in assignment.overruled.items() if loser == region.name for origin in origins
        }
        return _RegionOps(region_origins - carved - carved_in_source, carved, region_origins | taken_over)

    def place(self) -> Placement:
        """Choose for each region the first of its candidates with which the marked source gives its partitions."""
        candidates = {region.name: self._mark_candidates(region) for region in self.plan.regions}
        chosen = {name: next(options) for name, options in candidates.items()}
        expected = self._partition_contents(self.preview(self.plan), {})
        while True:
            self._store_choice(chosen)
            predicted, names = predicted_plan(self.graphs, self.plan, self.claims, self.placement)
            resulting = self._partition_contents(self.preview(predicted), names)
            wrong = [
                name
                for name, marks in chosen.items()
                if isinstance(marks, list) and resulting.get(name) != expected.get(name)
            ]
            if not wrong:
                return self.placement
            for name in wrong:
                chosen[name] = next(candidates[name])

    def _store_choice(self, chosen: Mapping[str, list[NewMark] | str | None]) -> None:
        """Store what was chosen: marks, None for a region that stays as it is, or why there is no mark."""
        placement = self.placement
        placement.marks = [mark for marks in chosen.values() if isinstance(marks, list) for mark in marks]
        placement.kept = {name: self.plan[name] for name, marks in chosen.items() if marks is None}
        placement.refused = {name: reason for name, reason in chosen.items() if isinstance(reason, str)}
        kept_keys = {key for name in (*placement.kept, *placement.refused) for key in annotation_keys(self.plan[name])}
        reused = {id(mark) for new_mark in placement.marks if (mark := reused_mark(new_mark)) is not None}
        placement.obsolete = [
            mark
            for site, origins in self.sites.origins.items()
            if origins
            and (mark := site.mark) is not None
            and mark.value is not None
            and annotation_key(json_safe(mark.value)) not in kept_keys
            and id(mark) not in reused
        ]
        placement.staying = {}
        for origin, node in self.sites.ops.items():
            around = [(site, frame.file) for frame in self.sites.frames[origin] for site in frame.around if site.mark]
            if node.annotated and annotation_key(node.annotation) not in kept_keys and around:
                site, file = around[-1]
                if site.mark is not None and site.mark.value is None:
                    placement.staying[site] = file

    # -------------------------------------------------------------------------------------------- one region: its marks

    def _mark_candidates(self, region: Region) -> Iterator[list[NewMark] | str | None]:
        """Yield ways to write a region, the simplest first, and finally why there is none."""
        if (reason := self._why_no_annotation(region)) is not None:
            yield reason
            return
        if self._is_in_source(region):
            yield None
            return
        ops = self.ops[region.name]
        spans = self.sites.cover(ops.own, ops.allowed, through=ops.carved)
        if spans is None:
            yield why_unwritable(region, ops.own, self.sites, self.claims)
            return
        if any((mark := reused_mark(NewMark(span, region))) is not None and mark.value is None for span in spans):
            yield "its mark in the source is computed, not written out: change it there"
            return
        other_torch = None
        by_loop_index = (self._marks_by_loop_index(region, innermost=innermost) for innermost in (False, True))
        for marks in ([NewMark(span, region) for span in spans], self._marks_by_number(region), *by_loop_index):
            if marks is None or (carving := self._carving_marks(region, marks)) is None:
                continue
            if (reason := self._why_no_torch([*marks, *carving])) is not None:
                other_torch = reason
            else:
                yield [*marks, *carving]
        yield other_torch or "marks in the source would give other partitions: they join what feeds each other directly"

    def _why_no_torch(self, marks: Sequence[NewMark]) -> str | None:
        """Return why marks inside functions cannot use the name ``torch``, or None if they can."""
        for mark in marks:
            function = mark.span.function
            file = next(file for file in self.sites.files.values() if function in file.functions)
            if (
                not isinstance(mark.span, WholeFunction)
                and reused_mark(mark) is None
                and file.has_other_torch(function)
            ):
                return f"the name torch means something else in {function.scope}"
        return None

    def _why_no_annotation(self, region: Region) -> str | None:
        if region.backward_config is not None:
            return "its backward has a config of its own, and an annotation holds for both directions"
        if not region.enabled:
            return "it is disabled"
        if any(selector.kind is SelectorKind.SUBGRAPH for selector in region.selectors):
            return "it is marked by nested_compile_region(options=…)"
        if not self.ops[region.name].own:
            return "it has no op in this trace"
        return None

    def _is_in_source(self, region: Region) -> bool:
        """Return whether the marks in the source already express all of the region."""
        if region.carved or any(sel.kind is not SelectorKind.ANNOTATION or sel.only for sel in region.selectors):
            return False
        return all(
            (name := annotation_name(annotation := self.sites.ops[origin].annotation)) in (None, region.name)
            and (name is not None or region.name.startswith("default"))
            and annotated_config(annotation) == config_of(region, Direction.FORWARD)
            for origin in self.ops[region.name].own
        )

    def _marks_by_number(self, region: Region) -> list[NewMark] | None:
        """Return marks that give each instance its own number, if each has its own statements."""
        ops, instances = self.ops[region.name], self._instance_origins(region)
        marks = []
        for number, origins in enumerate(instances.values()):
            spans = self.sites.cover(origins, origins | (ops.allowed - ops.own), through=ops.carved)
            if spans is None:
                return None
            marks += [NewMark(span, region, (number,)) for span in spans]
        return marks if len(instances) > 1 else None

    def _marks_by_loop_index(self, region: Region, *, innermost: bool) -> list[NewMark] | None:
        """Return marks in loops whose index distinguishes the instances."""
        ops = self.ops[region.name]
        spans = self.sites.cover(ops.own, ops.allowed, through=ops.carved, in_loops=True, innermost=innermost)
        if spans is None or len(self._instance_origins(region)) < 2:  # noqa: PLR2004 - there is nothing to distinguish
            return None
        block_instances, by_number = [], []
        blocks = [span for span in spans if isinstance(span, StatementRange)]  # no other is in a loop
        for block in blocks:
            origins = self.sites.ops_of(block) & ops.own
            loops = [loop for loop in block.statements[0].around if isinstance(loop.node, (cst.For, cst.While))]
            if not all(map(is_loop, loops)) or not self.sites.runs_once(block):
                return None
            # Whether the record shows which iteration of the one loop around the block each op comes from.
            known_iteration = all(self.sites.iteration(block.function, origin) is not None for origin in origins)
            by_number.append(known_iteration and len(_loops_around(block)) == 1)
            block_instances.append({self.claims[origin][1] for origin in origins})
        same = all(instances == block_instances[0] for instances in block_instances)
        if not same and sum(map(len, block_instances)) > len(set().union(*block_instances)):
            return None
        return [
            NewMark(block, region, (*(() if same else (number,)), *_loops_around(block)), by_number=by_number[number])
            for number, block in enumerate(blocks)
        ]

    def _instance_origins(self, region: Region) -> dict[Instance, set[int]]:
        by_instance = grouped((self.claims[origin][1], origin) for origin in sorted(self.ops[region.name].own))
        return {instance: set(origins) for instance, origins in by_instance.items()}

    def _carving_marks(self, region: Region, marks: Sequence[NewMark]) -> list[NewMark] | None:
        """Return marks that leave the carved ops inside ``marks`` to eager; None if they cannot be marked."""
        marked_origins = set().union(*(self.sites.ops_of(mark.span) for mark in marks))
        carved = self.ops[region.name].carved & marked_origins
        spans = self.sites.cover(carved, carved)
        return None if spans is None else [NewMark(span, region, carve=True) for span in spans]

    def _partition_contents(self, partitions: Sequence[Partition], names: Mapping[str, str]) -> dict[str, set[Any]]:
        contents: dict[str, set[Any]] = {}
        for partition in partitions:
            content = partition.graph, partition.nodes, repr(sorted(partition.config_requested.items()))
            contents.setdefault(names.get(partition.region, partition.region), set()).add(content)
        return contents


def _loops_around(block: StatementRange) -> tuple[Statement, ...]:
    """Return the loops around a block in its function, outermost first."""
    return tuple(statement for statement in reversed(list(block.statements[0].around)) if is_loop(statement))
