"""Finds the statements or the function to mark for a region: those with exactly its ops; or says why there are none."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from msgspec.structs import replace

from regional_explorer.capture.user_lines import is_internal
from regional_explorer.errors import listing
from regional_explorer.export.statements import Mark, Site, SourceFile
from regional_explorer.record.files import json_safe
from regional_explorer.record.graph import Chain, Graph, GraphBreak, GraphKind, Node, SourceLine
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import IN_SOURCE, Direction, Plan, Region, Selector, SelectorKind, config_of
from regional_explorer.regions.select import annotated_config, annotation_key, annotation_name, assign, node_names

Span = tuple[Site, Site]
"""The first and the last of consecutive statements in one block; for a function, the function twice."""


@dataclass(frozen=True)
class NewMark:
    """A mark to write, around consecutive statements or a function; with ``carve`` it leaves their ops to eager.

    ``parts`` distinguish this mark's instances from other instances of the region: numbers, and loops, which stand for
    their index.
    """

    region: Region
    first: Site
    last: Site
    parts: tuple[int | Site, ...] = ()
    carve: bool = False

    @property
    def reused_mark(self) -> Mark | None:
        """The mark in the source around the same code, which is changed in place; None if there is none."""
        return self.first.mark if self.first is self.last and not self.carve else None


@dataclass
class Placement:
    """The marks to write, the regions whose marks in the source stay, and why other regions cannot be written.

    ``obsolete`` are the places whose marks are removed. ``staying`` are the places of marks that belong to no region
    but cannot be removed, each with the reason.
    """

    marks: list[NewMark] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    obsolete: list[Site] = field(default_factory=list)
    staying: dict[Site, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _RegionOps:
    """The ops of one region: its own, the carved ones, and all ops that a mark around them may contain."""

    own: AbstractSet[int]
    carved: AbstractSet[int]
    allowed: AbstractSet[int]


Choice = list[NewMark] | str | None
"""The marks that express a region, why there are none, or None if the marks in the source already do."""

Sites = Callable[[list[Site]], Iterable[Site]]
"""A function that picks the sites to mark from all sites around an op, in order of preference."""


class Places:
    """The places in the source that the ops of a plan come from, and the marks that can express its regions there.

    Graph breaks count as ops of no region, with negative numbers: a marked block with a break runs in plain Python.
    """

    def __init__(self, graphs: Sequence[Graph], breaks: Sequence[GraphBreak], plan: Plan) -> None:
        self._graphs, self._plan = graphs, plan
        assignment = assign(graphs, plan)
        traced = [
            (node.origin, node, assignment.claim(graph.id, node.name, with_carved=True))
            for graph in graphs
            if graph.kind is GraphKind.DYNAMO
            for node in graph.ops
            if node.origin is not None
        ]
        self._nodes = {origin: node for origin, node, _ in traced}
        self._claims = {origin: claim for origin, _, claim in traced if claim is not None}
        self._ops: dict[str, _RegionOps] = {}
        for region in plan.regions:
            origins = {origin for origin, claim in self._claims.items() if claim.region == region.name}
            carved = origins & assignment.carved
            carved_in_source = {origin for origin in origins if self._nodes[origin].carved}
            taken_over = {
                origin for (loser, _), lost in assignment.overruled.items() if loser == region.name for origin in lost
            }
            self._ops[region.name] = _RegionOps(origins - carved - carved_in_source, carved, origins | taken_over)
        self._unread: dict[str, str] = {}
        self.files: dict[str, SourceFile] = {}
        self._read_files()
        self._around: dict[int, list[Site]] = {}
        stacks = {origin: node.stack for origin, node in self._nodes.items()}
        stacks |= {-number: graph_break.stack for number, graph_break in enumerate(breaks, start=1)}
        for origin, stack in stacks.items():
            read = [line for line in stack if line.file in self.files]
            self._around[origin] = [site for line in read for site in self.files[line.file].sites_of(line)]
            for site in self._around[origin]:
                site.ops.add(origin)

    def _read_files(self) -> None:
        """Read the files of marked ops, except for files that have changed since: their line numbers may be wrong."""
        marked = [node for origin, node in self._nodes.items() if node.annotated or origin in self._claims]
        for name in dict.fromkeys(line.file for node in marked for line in node.stack):
            if is_internal(name):
                self._unread[name] = f"{name} is no file of your own"
                continue
            try:
                self.files[name] = SourceFile(name)
            except (OSError, ValueError) as error:
                self._unread[name] = str(error)
        for line in {line for node in self._nodes.values() for line in node.stack if line.file in self.files}:
            now = self.files[line.file].lines[line.line : line.line + 1] if line.file in self.files else [line.text]
            if [text.strip() for text in now] != [line.text.strip()]:
                self._unread[line.file] = f"{line.file} has changed since the call was traced: explore again"
                del self.files[line.file]

    def placement_of(self, choices: Mapping[str, Choice]) -> Placement:
        """Return the placement of marks that follows from a choice for each region."""
        placement = Placement(
            [mark for choice in choices.values() if isinstance(choice, list) for mark in choice],
            [name for name, choice in choices.items() if choice is None],
            {name: choice for name, choice in choices.items() if isinstance(choice, str)},
        )
        kept = [self._plan[name] for name in (*placement.kept, *placement.refused)]
        kept_keys = {key for region in kept for key in region.patterns(SelectorKind.ANNOTATION)}
        reused = [mark.reused_mark for mark in placement.marks]
        for file in self.files.values():
            for site in file.sites:
                if site.mark is None or site.mark.value is None or not site.ops or site.mark in reused:
                    continue
                if annotation_key(json_safe(site.mark.value)) in kept_keys:
                    continue
                if isinstance(site.node, ast.With) and len(site.node.items) > 1:
                    placement.staying[site] = "its `with` holds other context managers, too"
                else:
                    placement.obsolete.append(site)
        for origin, node in self._nodes.items():
            if not node.annotated or annotation_key(node.annotation) in kept_keys or not self._around[origin]:
                continue
            around = self._around[origin]
            marked = [site for site in around if site.mark is not None]
            if not marked:
                blocks = [site for site in around if site.scope or isinstance(site.node, ast.With)]
                placement.staying[blocks[-1]] = "its text does not look like a mark"
            elif (mark := marked[-1].mark) is not None and mark.value is None:
                placement.staying[marked[-1]] = f"it {mark.stays}"
        return placement

    def by_node_names(self, names: Iterable[str]) -> list[Region]:
        """Return the regions of the plan with selectors by node names, which pick the same ops in a later trace.

        Regions that are marked in the source are left out: a later trace finds their marks.
        """
        regions = []
        for region in map(self._plan.__getitem__, names):
            ops = self._ops[region.name]
            if any(selector.kind not in IN_SOURCE or selector.only for selector in region.selectors):
                picked, carved = (
                    (Selector(SelectorKind.NODES, names),) if (names := node_names(self._graphs, origins)) else ()
                    for origins in (ops.own | ops.carved, ops.carved)
                )
                regions.append(Region(region.name, picked, region.config, region.enabled, carved=carved))
        return regions

    def without_instances(self) -> Plan:
        """Return the plan with selectors by node names, under which connected ops are one instance."""
        by_names = {region.name: region for region in self.by_node_names(region.name for region in self._plan.regions)}
        return replace(self._plan, regions=tuple(by_names.get(region.name, region) for region in self._plan.regions))

    # -------------------------------------------------------------------------------------------- one region: its marks

    def choices(self, region: Region, *, plain: bool) -> Iterator[Choice]:
        """Yield ways to express a region, the simplest first, and at the end the reason why there is no other way.

        With ``plain``, the simplest way is a mark without instances.
        """
        if (reason := self._annotation_problem(region)) is not None:
            yield reason
            return
        if self._is_in_source(region):
            yield None
            return
        ops = self._ops[region.name]
        spans = self._cover(ops.own, ops.allowed, ops.carved)
        if spans is None:
            yield self._why_unwritable(region)
            return
        around_all = [NewMark(region, *span) for span in spans]
        fixed = [
            mark.reused_mark for mark in around_all if mark.reused_mark is not None and mark.reused_mark.value is None
        ]
        if fixed:
            yield f"its mark in the source {fixed[0].stays}: change it there"
            return
        tried: list[list[NewMark]] = []
        reason = "marks in the source would give other partitions, because they join ops that feed each other directly"
        for marks in (around_all if plain else None, *self._marks_by_instance(region)):
            if marks is None or (carving := self._carving_marks(region, marks)) is None or marks in tried:
                continue
            tried.append(marks)
            if (function := _with_other_torch([*marks, *carving])) is not None:
                reason = f"the name torch means something else in {function.scope}"
            else:
                yield [*marks, *carving]
        yield reason

    def _annotation_problem(self, region: Region) -> str | None:
        if region.backward_config is not None:
            return "its backward has a config of its own, and an annotation holds for both directions"
        if not region.enabled:
            return "it is disabled"
        if region.treatment.functions:
            return f"it has {listing(region.treatment.texts)}, which no annotation can express"
        if region.patterns(SelectorKind.SUBGRAPH):
            return "it is marked by nested_compile_region(options=…)"
        if not self._ops[region.name].own:
            return "it has no op in this trace"
        return None

    def _is_in_source(self, region: Region) -> bool:
        """Return whether the marks in the source already express all of the region."""
        if region.carved or any(sel.kind is not SelectorKind.ANNOTATION or sel.only for sel in region.selectors):
            return False
        return all(
            (name := annotation_name(annotation := self._nodes[origin].annotation)) in (None, region.name)
            and (name is not None or region.name.startswith("default"))
            and annotated_config(annotation) == config_of(region, Direction.FORWARD)
            for origin in self._ops[region.name].own
        )

    def _marks_by_instance(self, region: Region) -> Iterator[list[NewMark] | None]:
        """Yield ways to give each instance an id of its own: its number, or the indices of loops around it."""
        origins = sorted(self._ops[region.name].own)
        instances = grouped((self._claims[origin].instance, origin) for origin in origins)
        if len(instances) > 1:
            yield self._marks_by_number(region, list(instances.values()))
            yield self._marks_by_loop_index(region, lambda sites: [site for site in sites if site.loops])
            yield self._marks_by_loop_index(region, lambda sites: [site for site in reversed(sites) if site.loops])

    def _marks_by_number(self, region: Region, instances: Sequence[Sequence[int]]) -> list[NewMark] | None:
        ops, marks = self._ops[region.name], []
        for number, origins in enumerate(map(set, instances)):
            spans = self._cover(origins, origins | (ops.allowed - ops.own), ops.carved)
            if spans is None:
                return None
            marks += [NewMark(region, *span, (number,)) for span in spans]
        return marks

    def _marks_by_loop_index(self, region: Region, preferred: Sites) -> list[NewMark] | None:
        """Return marks whose loop indices distinguish the instances, with a number if several marks are needed."""
        ops = self._ops[region.name]
        spans = self._cover(ops.own, ops.allowed, ops.carved, preferred)
        if spans is None:
            return None
        instances = [{self._claims[origin].instance for origin in _ops_of(span) & ops.own} for span in spans]
        same = all(one == instances[0] for one in instances)
        if not same and sum(map(len, instances)) > len(set().union(*instances)):
            return None
        return [
            NewMark(region, *span, (*(() if same else (number,)), *span[0].loops)) for number, span in enumerate(spans)
        ]

    def _carving_marks(self, region: Region, marks: Sequence[NewMark]) -> list[NewMark] | None:
        """Return marks that leave the carved ops inside ``marks`` to eager; None if they cannot be marked."""
        marked_origins = set().union(*(_ops_of((mark.first, mark.last)) for mark in marks))
        carved = self._ops[region.name].carved & marked_origins
        spans = self._cover(carved, carved)
        return None if spans is None else [NewMark(region, *span, carve=True) for span in spans]

    def _cover(
        self,
        required: AbstractSet[int],
        allowed: AbstractSet[int],
        through: AbstractSet[int] = frozenset(),
        preferred: Sites = iter,
    ) -> list[Span] | None:
        """Return the preferred spans that hold all ``required`` ops and only ``allowed`` ops; None if there are none.

        The user's own files come before files of libraries. Consecutive statements are one span, and so are statements
        with only ops of ``through`` between them.
        """
        found: list[Site] = []
        missing = sorted(required)
        while missing:
            sites = sorted(preferred(self._around[missing[0]]), key=lambda site: site.file.library)
            site = next((site for site in sites if site.plain and site.ops <= allowed), None)
            if site is None:
                return None
            found.append(site)
            missing = [origin for origin in missing if origin not in site.ops]
        spans: list[Span] = []
        for site in sorted(found, key=lambda site: (site.file.path, site.first)):
            first, last = spans[-1] if spans else (site, site)
            if last.suite is site.suite and all(
                between.plain and between.ops <= through for between in last.until(site)[1:-1]
            ):
                spans[-1:] = [(first, site)]
            else:
                spans.append((site, site))
        return spans

    # ----------------------------------------------------------------------------------------------- why there is none

    def _why_unwritable(self, region: Region) -> str:
        """Return why no statements and no function compute exactly the ops of a region."""
        own = self._ops[region.name].own
        nodes = [self._nodes[origin] for origin in sorted(own)]
        for node in nodes:
            if not node.stack:
                return f"torch records no source line for {node.name}"
            if unread := [self._unread[line.file] for line in node.stack if line.file in self._unread]:
                return unread[0]
        innermost = [self._around[origin][-1] for origin in own if self._around[origin]]
        if any(not site.plain and not site.scope for site in innermost):
            return "its lines have a yield, and a mark around a yield would stay open while the generator waits"
        lines = dict.fromkeys(str(node.source) for node in nodes)
        shown_lines = ", ".join(list(lines)[:MOST_NAMED_LINES]) + (", …" if len(lines) > MOST_NAMED_LINES else "")
        if any(selector.by_name for selector in region.selectors):
            return f"its nodes were selected one by one, and no statement computes only these ({shown_lines})"
        calls = {(node.stack, node.modules) for node in nodes}
        others: dict[str | None, None] = {}
        for origin, node in self._nodes.items():
            if str(node.source) in lines and origin not in own:
                if any(_is_from_run(node, *call) for call in calls):
                    return f"it shares a statement or a line with other code: give it lines of its own ({shown_lines})"
                others[self._claims[origin].region if origin in self._claims else None] = None
        if names := [repr(name) for name in others if name is not None and name != region.name]:
            return f"the same lines run for region {names[0]} too ({shown_lines})"
        if None in others:
            return f"the same lines also compute ops of no region ({shown_lines})"
        return f"it shares a statement or a line with other code: give it lines of its own ({shown_lines})"


MOST_NAMED_LINES = 3
"""The maximum number of source lines that a reason names: enough to find the place."""


def _is_from_run(node: Node, stack: Sequence[SourceLine], modules: Chain) -> bool:
    """Return whether an op comes from the same run of its line as an op with this stack and these modules."""
    shorter = min(len(modules), len(node.modules))
    return node.stack == stack and node.modules[:shorter] == modules[:shorter]


def _ops_of(span: Span) -> AbstractSet[int]:
    first, last = span
    return set().union(*(site.ops for site in first.until(last)))


def _with_other_torch(marks: Iterable[NewMark]) -> Site | None:
    """Return a function with marks in which ``torch`` is a variable of the function or of a function around it."""
    for function in [mark.first.function for mark in marks if not mark.first.scope and mark.reused_mark is None]:
        around = next(site for site in function.file.functions if site.first <= function.first <= site.last)
        for node in ast.walk(around.node):
            is_stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == "torch"
            if is_stored or (isinstance(node, ast.arg) and node.arg == "torch"):
                return function
    return None
