"""Which statements or function hold exactly the ops of a region, and why none does."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

import libcst as cst

from regional_explorer.export.source_file import (
    Function,
    Mark,
    SourceFile,
    Span,
    Statement,
    StatementRange,
    SubmoduleCalls,
    WholeFunction,
    can_be_hoisted,
    is_loop,
    span_of,
    submodule_calls,
)
from regional_explorer.record.graph import Chain, Graph, GraphBreak, GraphKind, ModuleCall, Node, SourceLine, is_library
from regional_explorer.record.grouping import grouped
from regional_explorer.record.json_file import json_safe
from regional_explorer.record.partition import Partition
from regional_explorer.record.plan import Direction, Plan, Region, Selector, SelectorKind, config_of
from regional_explorer.regions.instances import Instance
from regional_explorer.regions.select import Assignment, assign, node_names
from regional_explorer.regions.source_marks import annotated_config, annotation_key, annotation_name


@dataclass(frozen=True)
class Frame:
    """One function on the stack of an op, with the statements around the current line, outermost first.

    ``depth`` counts the functions above it on the stack.
    """

    file: str
    function: Function
    path: Sequence[Statement]
    library: bool
    depth: int = 0

    @property
    def around(self) -> list[Function | Statement]:
        """The function, and the statements around the current line, outermost first."""
        return [self.function, *self.path]


class Sites:
    """The stack frames of ops, and the ops of functions and statements, in the files that ops of ``origins`` come from.

    Graph breaks count as ops of no region, with negative numbers: a marked block with a break runs in plain Python.
    """

    def __init__(self, graphs: Sequence[Graph], breaks: Sequence[GraphBreak], origins: Collection[int]) -> None:
        nodes = (node for graph in graphs if graph.kind is GraphKind.DYNAMO for node in graph.ops)
        self.ops: dict[int, Node] = {node.origin: node for node in nodes if node.origin is not None}
        self.unread: dict[str, str] = {}
        self.files: dict[str, SourceFile] = {}
        self._read_files(line.file for origin in origins for line in self.ops[origin].stack)
        self._drop_changed_files(line for node in self.ops.values() for line in node.stack)
        frame_of = functools.cache(self._frame_of_line)
        stacks = {origin: node.stack for origin, node in self.ops.items()}
        stacks |= {-number: graph_break.stack for number, graph_break in enumerate(breaks, start=1)}
        self.frames: dict[int, list[Frame]] = {}
        self.origins: dict[Any, set[int]] = defaultdict(set)
        self._call_origins: dict[Statement, dict[str, set[int]]] = {}
        self._range_origins: dict[StatementRange, set[int]] = {}
        for origin, stack in stacks.items():
            numbered = enumerate(map(frame_of, stack))
            self.frames[origin] = [replace(frame, depth=depth) for depth, frame in numbered if frame is not None]
            for frame in self.frames[origin]:
                for site in frame.around:
                    self.origins[site].add(origin)

    def _read_files(self, names: Iterable[str]) -> None:
        for name in dict.fromkeys(names):
            try:
                self.files[name] = SourceFile(name)
            except (OSError, ValueError) as error:
                self.unread[name] = str(error)

    def _drop_changed_files(self, lines: Iterable[SourceLine]) -> None:
        """Drop files that have changed since the trace: their line numbers may be wrong."""
        for line in set(lines):
            if (file := self.files.get(line.file)) is not None and not file.is_unchanged(line):
                self.unread[line.file] = f"{line.file} has changed since the call was traced: explore again"
                del self.files[line.file]

    def _frame_of_line(self, line: SourceLine) -> Frame | None:
        file = self.files.get(line.file)
        if file is None:
            return None
        function, path = file.path_to(line)
        return None if function is None else Frame(line.file, function, path, is_library(line.file))

    # -------------------------------------------------------------------------------------------------------- covering

    def cover(
        self,
        required: AbstractSet[int],
        allowed: AbstractSet[int],
        *,
        through: AbstractSet[int] = frozenset(),
        in_loops: bool = False,
        innermost: bool = False,
    ) -> list[Span] | None:
        """Return the outermost spans that contain all ``required`` ops and only ``allowed`` ones, or None.

        The user's own files come before those of libraries, and statements and functions before single calls. With
        ``in_loops`` only statements in loops are considered, with ``innermost`` those of inner loops first. Consecutive
        statements are one span, and so are those with nothing but ops of ``through`` between them.
        """
        spans: dict[Any, Span] = {}
        missing = sorted(required)
        while missing:
            candidate = next(
                (
                    self._spans_in_loops(missing[0], allowed, innermost=innermost)
                    if in_loops
                    else self._candidate_spans(missing[0], allowed)
                ),
                None,
            )
            if candidate is None:
                return None
            span, contained = candidate
            spans[span] = span
            missing = [origin for origin in missing if origin not in contained]
        blocks = [span for span in spans.values() if isinstance(span, StatementRange)]
        return [
            *self._joined_ranges(blocks, through),
            *(span for span in spans.values() if not isinstance(span, StatementRange)),
        ]

    def _candidate_spans(self, origin: int, allowed: AbstractSet[int]) -> Iterator[tuple[Span, AbstractSet[int]]]:
        for library in (False, True):
            frames = [frame for frame in self.frames[origin] if frame.library is library]
            for frame in frames:
                if frame.function.plain and self.origins[frame.function] <= allowed:
                    yield WholeFunction(frame.function), self.origins[frame.function]
                for statement in frame.path:
                    if self.origins[statement] <= allowed and not statement.yields:
                        yield span_of(statement), self.origins[statement]
            for frame in frames:
                for attribute, origins in self.calls(frame.path[-1]).items() if frame.path else ():
                    if origin in origins and origins <= allowed:
                        yield SubmoduleCalls(frame.path[-1], attribute), origins

    def _spans_in_loops(
        self, origin: int, allowed: AbstractSet[int], *, innermost: bool
    ) -> Iterator[tuple[Span, AbstractSet[int]]]:
        for library in (False, True):
            candidates = [
                (span_of(statement), self.origins[statement])
                for frame in self.frames[origin]
                if frame.library is library
                for statement in frame.path
                if self.origins[statement] <= allowed and not statement.yields and any(map(is_loop, statement.around))
            ]
            yield from reversed(candidates) if innermost else candidates

    def calls(self, statement: Statement) -> dict[str, set[int]]:
        """Return the ops of each submodule that a statement calls as ``self.name(…)``, by that name.

        Calls that cannot be moved out of the statement are left out.
        """
        if (cached := self._call_origins.get(statement)) is not None:
            return cached
        origins_by_name = self._call_origins[statement] = {}
        for name, calls in submodule_calls(statement).items():
            if len(calls) > 1 or not can_be_hoisted(statement.node, calls[0]):
                continue
            inside = {origin for origin in self.origins[statement] if origin >= 0 and _in_call(self.ops[origin], name)}
            if inside:
                origins_by_name[name] = inside
        return origins_by_name

    def _joined_ranges(self, blocks: Iterable[StatementRange], through: AbstractSet[int]) -> list[Span]:
        ranges: list[StatementRange] = []
        for block in sorted(blocks, key=lambda span: (id(span.suite), span.first)):
            previous = ranges[-1] if ranges else None
            between = block.suite.statements[previous.last + 1 : block.first] if previous else ()
            joins = all(self.origins[stmt] <= through and not stmt.yields for stmt in between)
            if previous and previous.suite is block.suite and joins:
                ranges[-1] = replace(previous, last=block.last)
            else:
                ranges.append(block)
        return list(ranges)

    def ops_of(self, span: Span) -> AbstractSet[int]:
        """Return the ops that a span contains."""
        if isinstance(span, WholeFunction):
            return self.origins[span.function]
        if isinstance(span, SubmoduleCalls):
            return self.calls(span.statement).get(span.attribute, set())
        if span not in self._range_origins:
            self._range_origins[span] = set().union(*(self.origins[statement] for statement in span.statements))
        return self._range_origins[span]

    def runs_once(self, span: StatementRange) -> bool:
        """Return whether the ops of statements come from one run of their function, as far as the record shows."""
        origins = self.ops_of(span)
        paths = {
            tuple(self.ops[origin].stack[: frame.depth])
            for origin in origins
            for frame in self.frames[origin]
            if frame.function is span.function
        }
        if paths == {()}:
            return True
        method_of, _, name = span.function.scope.rpartition(".")
        class_name = method_of.rpartition(".")[2]
        chains = [self.ops[origin].modules for origin in origins]
        if any(call.class_name == class_name for call in _common_calls(chains)):
            return True
        # The root is the only module whose call has no entry: wrappers may call its forward, on one path.
        is_root = name == "forward" and not any(call.class_name == class_name for chain in chains for call in chain)
        return is_root and len(paths) == 1

    def iteration(self, function: Function, origin: int) -> int | None:
        """Return which iteration of a method's loop over a list of modules an op comes from: the module's number.

        None if the method called no such module for it.
        """
        class_name = function.scope.rpartition(".")[0].rpartition(".")[2]
        chain = self.ops[origin].modules
        inside = [index for index, call in enumerate(chain) if call.class_name == class_name]
        inner_calls = chain[inside[0] + 1 :] if inside else chain  # the root has no entry of its own
        if len(inside) > 1 or not inner_calls:
            return None
        outer_path, called = f"{chain[inside[0]].path}." if inside else "", inner_calls[0]
        parts = called.path.removeprefix(outer_path).split(".") if called.path.startswith(outer_path) else ()
        return next((int(part) for part in parts if part.isdecimal()), None)


def _common_calls(chains: Sequence[Chain]) -> Sequence[ModuleCall]:
    in_step = itertools.takewhile(lambda calls: len(set(calls)) == 1, zip(*chains, strict=False))
    return [calls[0] for calls in in_step]


def _in_call(node: Node, attribute: str) -> bool:
    """Return whether an op is inside a call of the submodule ``attribute`` of one of the modules around it."""
    outer = {""}  # the root has no entry of its own
    for call in node.modules:
        names = {call.path, *call.aliases}
        if any((f"{name}.{attribute}" if name else attribute) in names for name in outer):
            return True
        outer = names
    return False


@dataclass(frozen=True)
class NewMark:
    """One mark to write: the span it surrounds and its region; with ``carve`` it leaves that span's ops to eager.

    ``instance`` distinguishes this mark's instances from others of the region: numbers, and loops, which stand for
    their index. With ``by_number`` the iterations of the loop are known by the numbers of the modules called in them.
    """

    span: Span
    region: Region
    instance: tuple[int | Statement, ...] = ()
    carve: bool = False
    by_number: bool = False


@dataclass
class Placement:
    """The marks to write, the regions whose marks in the source stay, and why other regions cannot be written.

    ``obsolete`` are the marks in the source that are removed; ``staying`` are marks of no region that cannot be, since
    they are computed, each with its file.
    """

    sites: Sites
    marks: list[NewMark] = field(default_factory=list)
    kept: dict[str, Region] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    obsolete: list[Mark] = field(default_factory=list)
    staying: dict[Function | Statement, str] = field(default_factory=dict)


def reused_mark(new_mark: NewMark) -> Mark | None:
    """Return the mark in the source that surrounds exactly the span of ``new_mark``, and so is changed in place."""
    span = new_mark.span
    if new_mark.carve:
        return None
    if isinstance(span, WholeFunction):
        return span.function.mark
    if isinstance(span, StatementRange) and len(span.statements) == 1:
        return span.statements[0].mark
    return None


MOST_NAMED_LINES = 3
"""How many source lines a reason names: enough to find the place."""


def why_unwritable(
    region: Region, region_origins: AbstractSet[int], sites: Sites, claims: Mapping[int, tuple[str, object]]
) -> str:
    """Return why no statements, function or call compute exactly the ops ``region_origins``.

    ``claims`` has the region of every op that is in one.
    """
    nodes = [sites.ops[origin] for origin in sorted(region_origins)]
    for node in nodes:
        if not node.stack:
            return f"torch records no source line for {node.name}"
        unread = [sites.unread[line.file] for line in node.stack if line.file in sites.unread]
        if unread:
            return unread[0]
    innermost = [frame.path[-1] for origin in region_origins for frame in sites.frames[origin] if frame.path]
    if any(statement.yields for statement in innermost):
        return "its lines hold a yield, and a mark around one would stay open while the generator waits"
    lines = dict.fromkeys(str(node.source) for node in nodes)
    shown_lines = ", ".join(list(lines)[:MOST_NAMED_LINES]) + (", …" if len(lines) > MOST_NAMED_LINES else "")
    if any(selector.kind is SelectorKind.NODES or selector.only for selector in region.selectors):
        return f"its nodes were selected one by one, and no statement computes just them ({shown_lines})"
    calls = {(node.stack, node.modules) for node in nodes}
    other_regions = dict.fromkeys(
        claims[origin][0] if origin in claims else None
        for origin, node in sites.ops.items()
        if str(node.source) in lines and not any(_is_from_run(node, *call) for call in calls)
    )
    if other_names := [repr(name) for name in other_regions if name is not None and name != region.name]:
        return f"the same lines run for region {other_names[0]} too ({shown_lines})"
    if None in other_regions:
        return f"the same lines also run where they are in no region ({shown_lines})"
    return f"it is part of an expression ({shown_lines})"


def _is_from_run(node: Node, stack: Sequence[SourceLine], modules: Chain) -> bool:
    """Return whether an op comes from the same run of its line as one with this stack and these modules."""
    shorter = min(len(modules), len(node.modules))
    return node.stack == stack and node.modules[:shorter] == modules[:shorter]


OriginClaims = Mapping[int, tuple[str, Instance]]
"""The region of each op that is in one, and its instance, by origin."""


def predicted_plan(
    graphs: Sequence[Graph], plan: Plan, claims: OriginClaims, placement: Placement
) -> tuple[Plan, dict[str, str]]:
    """Return the plan that exploring the marked source would begin with.

    Each instance of a region of ``plan`` is a region of its own in it; the second value maps their names to the names
    of those regions.
    """
    owners = _predicted_owners(claims, placement)
    carved = {origin for origin, (_, _, eager) in owners.items() if eager}
    origins_by_owner = grouped((owners[origin][:2], origin) for origin in sorted(owners))
    names: dict[str, str] = {}
    regions = [*placement.kept.values()]
    for number, ((name, _), origins) in enumerate(origins_by_owner.items()):
        if name not in placement.kept:
            names[f"{name} {number}"] = name
            regions.append(
                _region_of_nodes(graphs, f"{name} {number}", plan[name], set(origins), carved.intersection(origins))
            )
    return replace(plan, regions=(*regions, *map(plan.__getitem__, placement.refused))), names


def _region_of_nodes(
    graphs: Sequence[Graph], name: str, region: Region, origins: AbstractSet[int], carved: AbstractSet[int]
) -> Region:
    nodes = Selector(SelectorKind.NODES, node_names(graphs, origins))
    left_out = (Selector(SelectorKind.NODES, node_names(graphs, carved)),) if carved else ()
    return Region(name, (nodes,), region.config, carved=left_out)


def _predicted_owners(claims: OriginClaims, placement: Placement) -> dict[int, tuple[str, Any, bool]]:
    """Return by op the region of the innermost mark around it, which instance, and whether it is carved out."""
    sites = placement.sites
    marks_at: dict[Any, list[NewMark]] = {}
    for mark in placement.marks:
        span = mark.span
        span_sites: Sequence[Function | Statement] = (
            span.statements
            if isinstance(span, StatementRange)
            else [span.function if isinstance(span, WholeFunction) else span.statement]
        )
        for site in span_sites:
            marks_at.setdefault(site, []).append(mark)
    for site_marks in marks_at.values():
        site_marks.sort(key=lambda mark: -len(sites.ops_of(mark.span)))
    kept_by_key = {key: name for name, region in placement.kept.items() for key in annotation_keys(region)}
    owners: dict[int, tuple[str, Any, bool]] = {}
    for origin, node in sites.ops.items():
        kept_region = kept_by_key.get(annotation_key(node.annotation)) if node.annotated else None
        owner = (kept_region, None, False) if kept_region is not None else None
        for site in (site for frame in sites.frames[origin] for site in frame.around):
            if site.mark is not None and site.mark.value is not None and kept_region is not None:
                owner = (kept_region, None, False)
            for mark in marks_at.get(site, ()):
                if origin in sites.ops_of(mark.span):
                    owner = _owner_below(mark, origin, owner, claims, placement)
            if site in placement.staying:  # inside what surrounds it
                owner = None
        if owner is not None:
            owners[origin] = owner
    return owners


def _owner_below(mark: NewMark, origin: int, outer: Any, claims: OriginClaims, placement: Placement) -> Any:
    """Return the owner of an op inside ``mark``; ``outer`` is its owner by the marks around ``mark``."""
    if mark.carve:
        return (*outer[:2], True) if outer is not None else None
    numbers = tuple(part for part in mark.instance if isinstance(part, int))
    iteration: object = None
    if mark.by_number and isinstance(mark.span, StatementRange):
        iteration = placement.sites.iteration(mark.span.function, origin)
    elif len(numbers) < len(mark.instance):
        iteration = claims.get(origin, ("", None))[1]
    return mark.region.name, (numbers, iteration), False


def annotation_keys(region: Region) -> Iterator[str]:
    """Yield the keys of the marks in the source that a region stands for."""
    return (key for sel in region.selectors if sel.kind is SelectorKind.ANNOTATION for key in sel.patterns)


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
