"""Decides where the marks of a plan's regions go in the source, and which regions no mark can say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

from regional_explorer.export.patch.refusals import why_unwritable
from regional_explorer.export.patch.sites import Block, Sites, Unit, Whole, is_loop
from regional_explorer.export.patch.source_file import Function, Mark, Statement, parser
from regional_explorer.record.graph import Graph, GraphBreak, GraphKind
from regional_explorer.record.region import Direction, Partition, Plan, Region, Selector, SelectorKind, config_of
from regional_explorer.regions.instances import Instance
from regional_explorer.regions.select import Assignment, assign, node_names
from regional_explorer.regions.source_marks import annotated_config, annotation_key, annotation_name

PreviewPartitions = Callable[[Plan], Sequence[Partition]]
"""Returns the partitions that a plan would give."""


@dataclass(frozen=True)
class Written:
    """One mark to write: what it is around, and the region it stands for; with ``carve`` what it leaves to eager.

    ``instance`` tells this mark's instances from others of the region: numbers, and loops that stand for their index.
    With ``by_number`` the numbers of the modules that are called tell the turns of the loop.
    """

    unit: Unit
    region: Region
    instance: tuple[int | Statement, ...] = ()
    carve: bool = False
    by_number: bool = False


@dataclass
class Placement:
    """The marks to write, the regions that stay as they are marked in the source, and why others cannot be written."""

    sites: Sites
    written: list[Written] = field(default_factory=list)
    kept: dict[str, Region] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    obsolete: list[Mark] = field(default_factory=list)


@dataclass(frozen=True)
class _Ops:
    """The ops of one region: its own, those carved out by the plan, and all that a mark around them may hold."""

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
    return _Placing(graphs, plan, preview, assignment, claims, sites).place()


class _Placing:
    def __init__(
        self,
        graphs: Sequence[Graph],
        plan: Plan,
        preview: PreviewPartitions,
        assignment: Assignment,
        claims: Mapping[int, tuple[str, Instance]],
        sites: Sites,
    ) -> None:
        self.graphs, self.plan, self.preview, self.claims = graphs, plan, preview, claims
        self.found = Placement(sites)
        self.sites = sites
        self.ops = {region.name: self._ops(region, assignment) for region in plan.regions}

    def _ops(self, region: Region, assignment: Assignment) -> _Ops:
        mine = {origin for origin, (name, _) in self.claims.items() if name == region.name}
        carved = mine & assignment.carved
        in_source = {origin for origin in mine if self.sites.ops[origin].carved}
        taken = {
            origin for (loser, _), origins in assignment.overruled.items() if loser == region.name for origin in origins
        }
        return _Ops(mine - carved - in_source, carved, mine | taken)

    def place(self) -> Placement:
        options = {region.name: self._options(region) for region in self.plan.regions}
        chosen = {name: next(found) for name, found in options.items()}
        wanted = self._by_region(self.preview(self.plan), {})
        while True:
            self._take(chosen)
            predicted, names = self._predicted()
            given = self._by_region(self.preview(predicted), names)
            wrong = [
                name
                for name, marks in chosen.items()
                if isinstance(marks, list) and given.get(name) != wanted.get(name)
            ]
            if not wrong:
                return self.found
            for name in wrong:
                chosen[name] = next(options[name])

    def _take(self, chosen: Mapping[str, list[Written] | str | None]) -> None:
        """Write down what was chosen: marks, None for a region that stays as it is, or why there is no mark."""
        found = self.found
        found.written = [mark for marks in chosen.values() if isinstance(marks, list) for mark in marks]
        found.kept = {name: self.plan[name] for name, marks in chosen.items() if marks is None}
        found.refused = {name: reason for name, reason in chosen.items() if isinstance(reason, str)}
        stay = {key for name in (*found.kept, *found.refused) for key in _keys(self.plan[name])}
        reused = {id(mark) for one in found.written if (mark := reused_mark(one)) is not None}
        found.obsolete = [
            mark
            for mark in self._marks()
            if mark.value is not None
            and annotation_key(_as_recorded(mark.value)) not in stay
            and id(mark) not in reused
        ]

    def _marks(self) -> Iterator[Mark]:
        """Yield the marks in the source that ops of this trace ran through."""
        return (unit.mark for unit, held in list(self.sites.held.items()) if held and unit.mark is not None)

    # -------------------------------------------------------------------------------------------- one region: its marks

    def _options(self, region: Region) -> Iterator[list[Written] | str | None]:
        """Yield ways to write a region, the plainest first, and at last why there is none."""
        if (reason := self._beyond_marks(region)) is not None:
            yield reason
            return
        if self._is_written(region):
            yield None
            return
        ops = self.ops[region.name]
        units = self.sites.cover(ops.own, ops.allowed, through=ops.carved)
        if units is None:
            yield why_unwritable(region, ops.own, self.sites, self.claims)
            return
        if any((mark := reused_mark(Written(unit, region))) is not None and mark.value is None for unit in units):
            yield "its mark in the source is computed, not written out: change it there"
            return
        by_loops = (self._by_loops(region, innermost=innermost) for innermost in (False, True))
        for marks in (self._plain(region, units), self._apart(region), *by_loops):
            if marks is not None and (carving := self._carving(region, marks)) is not None:
                yield [*marks, *carving]
        yield "marks in the source would give other partitions: they join what feeds each other directly"

    def _beyond_marks(self, region: Region) -> str | None:
        if region.backward_config is not None:
            return "its backward has a config of its own, and an annotation holds for both directions"
        if not region.enabled:
            return "it is disabled"
        if any(one.kind is SelectorKind.SUBGRAPH for one in region.selectors):
            return "it is marked by nested_compile_region(options=…)"
        if not self.ops[region.name].own:
            return "it has no op in this trace"
        return None

    def _is_written(self, region: Region) -> bool:
        """Tell whether the marks in the source say all of the region already."""
        if region.carved or any(one.kind is not SelectorKind.ANNOTATION or one.only for one in region.selectors):
            return False
        return all(
            (name := annotation_name(annotation := self.sites.ops[origin].annotation)) in (None, region.name)
            and (name is not None or region.name.startswith("default"))
            and annotated_config(annotation) == config_of(region, Direction.FORWARD)
            for origin in self.ops[region.name].own
        )

    def _plain(self, region: Region, units: Sequence[Unit]) -> list[Written]:
        return [Written(unit, region) for unit in units]

    def _apart(self, region: Region) -> list[Written] | None:
        """Return marks that give each instance a number of its own, where each has statements of its own."""
        ops, instances = self.ops[region.name], self._instances(region)
        found = []
        for number, own in enumerate(instances.values()):
            units = self.sites.cover(own, own | (ops.allowed - ops.own), through=ops.carved)
            if units is None:
                return None
            found += [Written(unit, region, (number,)) for unit in units]
        return found if len(instances) > 1 else None

    def _by_loops(self, region: Region, *, innermost: bool) -> list[Written] | None:
        """Return marks in loops whose index tells the instances apart."""
        ops = self.ops[region.name]
        units = self.sites.cover(ops.own, ops.allowed, through=ops.carved, in_loops=True, innermost=innermost)
        if units is None or len(self._instances(region)) < 2:  # noqa: PLR2004 - there is nothing to tell apart
            return None
        groups, numbered = [], []
        blocks = [unit for unit in units if isinstance(unit, Block)]  # nothing else is in a loop
        for unit in blocks:
            held = self.sites.ops_of(unit)
            around = list(unit.statements[0].around)
            turns = (parser().For, parser().While)
            if any(isinstance(one.node, turns) and not is_loop(one) for one in around):
                return None
            if not self.sites.runs_once(unit):
                return None
            numbered.append(self._has_turns(unit, held & ops.own))
            groups.append({self.claims[origin][1] for origin in held & ops.own})
        same = all(group == groups[0] for group in groups)
        if not same and sum(map(len, groups)) > len(set().union(*groups)):
            return None
        return [
            Written(unit, region, (*(() if same else (number,)), *_loops(unit)), by_number=numbered[number])
            for number, unit in enumerate(blocks)
        ]

    def _has_turns(self, unit: Block, own: AbstractSet[int]) -> bool:
        """Tell whether the record shows which turn of its one loop each op of a statement comes from."""
        return len(_loops(unit)) == 1 and all(
            self.sites.turn(unit.suite.function, origin) is not None for origin in own
        )

    def _instances(self, region: Region) -> dict[Instance, set[int]]:
        found: dict[Instance, set[int]] = {}
        for origin in sorted(self.ops[region.name].own):
            found.setdefault(self.claims[origin][1], set()).add(origin)
        return found

    def _carving(self, region: Region, marks: Sequence[Written]) -> list[Written] | None:
        """Return marks that leave to eager what the plan carves out of what ``marks`` hold; None if there are none."""
        held = set().union(*(self.sites.ops_of(mark.unit) for mark in marks))
        carved = self.ops[region.name].carved & held
        units = self.sites.cover(carved, carved)
        return None if units is None else [Written(unit, region, carve=True) for unit in units]

    # ------------------------------------------------------------------------------------------------------- prediction

    def _predicted(self) -> tuple[Plan, dict[str, str]]:
        """Return the plan that exploring the marked source would begin with, and whose instances its regions are."""
        owners = self._marked()
        carved = {origin for origin, (_, _, eager) in owners.items() if eager}
        parts: dict[tuple[str, Any], set[int]] = {}
        for origin in sorted(owners):
            name, instance, _ = owners[origin]
            parts.setdefault((name, instance), set()).add(origin)
        names: dict[str, str] = {}
        regions = [*self.found.kept.values()]
        for number, ((name, _), origins) in enumerate(parts.items()):
            if name not in self.found.kept:
                names[f"{name} {number}"] = name
                regions.append(self._simulated(f"{name} {number}", self.plan[name], origins, carved & origins))
        return replace(self.plan, regions=(*regions, *map(self.plan.__getitem__, self.found.refused))), names

    def _simulated(self, name: str, region: Region, origins: AbstractSet[int], carved: AbstractSet[int]) -> Region:
        nodes = Selector(SelectorKind.NODES, node_names(self.graphs, origins))
        left_out = (Selector(SelectorKind.NODES, node_names(self.graphs, carved)),) if carved else ()
        return Region(name, (nodes,), region.config, carved=left_out)

    def _marked(self) -> dict[int, tuple[str, Any, bool]]:
        """Return by op the region of the innermost mark around it, which instance, and whether it is carved out."""
        marks: dict[Any, list[Written]] = {}
        for mark in self.found.written:
            unit = mark.unit
            places: Sequence[Function | Statement] = (
                unit.statements
                if isinstance(unit, Block)
                else [unit.function if isinstance(unit, Whole) else unit.statement]
            )
            for place in places:
                marks.setdefault(place, []).append(mark)
        for mine in marks.values():
            mine.sort(key=lambda mark: -len(self.sites.ops_of(mark.unit)))
        own = {key: name for name, region in self.found.kept.items() for key in _keys(region)}
        found: dict[int, tuple[str, Any, bool]] = {}
        for origin, node in self.sites.ops.items():
            kept = own.get(annotation_key(node.annotation)) if node.annotated else None
            state = (kept, None, False) if kept is not None else None
            for place in (place for frame in self.sites.frames[origin] for place in frame.around):
                if place.mark is not None and place.mark.value is not None and kept is not None:
                    state = (kept, None, False)
                for mark in marks.get(place, ()):
                    if origin in self.sites.ops_of(mark.unit):
                        state = self._under(mark, origin, state)
            if state is not None:
                found[origin] = state
        return found

    def _under(self, mark: Written, origin: int, outer: Any) -> Any:
        if mark.carve:
            return (*outer[:2], True) if outer is not None else None
        numbers = tuple(part for part in mark.instance if isinstance(part, int))
        turn: object = None
        if mark.by_number and isinstance(mark.unit, Block):
            turn = self.sites.turn(mark.unit.suite.function, origin)
        elif len(numbers) < len(mark.instance):
            turn = self.claims.get(origin, ("", None))[1]
        return mark.region.name, (numbers, turn), False

    def _by_region(self, parts: Sequence[Partition], names: Mapping[str, str]) -> dict[str, set[Any]]:
        found: dict[str, set[Any]] = {}
        for part in parts:
            content = part.graph, part.nodes, repr(sorted(part.config_requested.items()))
            found.setdefault(names.get(part.region, part.region), set()).add(content)
        return found


def _keys(region: Region) -> Iterator[str]:
    """Yield the marks in the source that a region stands for."""
    return (key for one in region.selectors if one.kind is SelectorKind.ANNOTATION for key in one.patterns)


def _loops(unit: Block) -> tuple[Statement, ...]:
    """Return the loops around a unit in its function, outermost first."""
    return tuple(one for one in reversed(list(unit.statements[0].around)) if is_loop(one))


def reused_mark(written: Written) -> Mark | None:
    """Return the mark in the source that stands around just what ``written`` is around, to be changed in place."""
    unit = written.unit
    if written.carve:
        return None
    if isinstance(unit, Whole):
        return unit.function.mark
    if isinstance(unit, Block) and len(unit.statements) == 1:
        return unit.statements[0].mark
    return None


def _as_recorded(value: Any) -> Any:
    """Return what a mark gives as the record has it: JSON has no tuples."""
    if isinstance(value, Mapping):
        return {str(key): _as_recorded(item) for key, item in value.items()}
    return [_as_recorded(item) for item in value] if isinstance(value, (list, tuple)) else value
