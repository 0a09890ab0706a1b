"""Suggests regions from the recorded graphs, and from a profile if there is one; nothing is run or compiled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from msgspec.structs import replace

from regional_explorer.errors import count, fresh_names
from regional_explorer.record.expected import work_of_origins
from regional_explorer.record.graph import Graph, GraphKind, Role, equal_layers
from regional_explorer.record.grouping import connected_components, grouped
from regional_explorer.record.plan import Selector, SelectorKind
from regional_explorer.record.profile import Profile
from regional_explorer.record.session import Session
from regional_explorer.record.stages import NONCOMPUTING_OPS
from regional_explorer.record.tuning import Suggestion, SuggestionKind, as_measured
from regional_explorer.regions.describe import selectors_for
from regional_explorer.regions.instances import Instance, direct_feeds
from regional_explorer.regions.select import picked_origins
from regional_explorer.torch_api.products import is_product

NORMS = frozenset({"batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm"})
"""Norms that are one op of the program."""
FEWEST_FUSED = 2
"""The minimum number of fusable ops of a suggestion."""
CONTAINERS = ("ModuleDict", "ModuleList", "Sequential")
"""Classes that say nothing about their contents: their modules are alike only in equal places."""


def suggestions_of(session: Session) -> list[Suggestion]:
    """Return the suggested regions of a session: those that were measured by their gain, then the guesses."""
    suggested = suggest_regions(session.graphs, session.profile, session.compile_rate)
    return as_measured(suggested, session.suggestions)


def suggest_regions(
    graphs: Sequence[Graph], profile: Profile | None = None, compile_rate: float = 1.0
) -> tuple[Suggestion, ...]:
    """Return regions that could be compiled, in a guessed order: by the share of the time that could be fused.

    Without a profile, the number of fusable ops counts. Of regions with the same ops only the first is returned.
    """
    program = _Program(graphs, profile, compile_rate)
    suggested = {suggestion: frozenset(origins) for suggestion, origins in program.suggestions() if origins}
    first = {origins: suggestion for suggestion, origins in reversed(suggested.items())}
    distinct = {suggestion: origins for suggestion, origins in suggested.items() if suggestion in first.values()}
    names = _unique_names(list(distinct))
    by_size = sorted(distinct, key=lambda suggestion: len(distinct[suggestion]))
    related = [
        replace(
            suggestion,
            name=names[suggestion],
            inside=tuple(names[other] for other in by_size if origins < distinct[other]),
            overlaps=tuple(
                names[other]
                for other, shared in distinct.items()
                if origins & shared and origins - shared and shared - origins
            ),
        )
        for suggestion, origins in distinct.items()
    ]
    return tuple(sorted(related, key=lambda suggestion: (-(suggestion.fusable_share or 0.0), -suggestion.fusable)))


def _unique_names(suggestions: Sequence[Suggestion]) -> dict[Suggestion, str]:
    names: dict[Suggestion, str] = {}
    for suggestion in suggestions:
        names[suggestion] = next(fresh_names(suggestion.name, set(names.values())))
    return names


@dataclass(frozen=True)
class _Modules:
    """Modules of one class: their paths by the glob of equal ones, and the origins inside."""

    class_name: str
    globs: Mapping[str, Sequence[str]]
    origins: frozenset[int]

    @property
    def paths(self) -> list[str]:
        """All paths."""
        return [path for paths in self.globs.values() for path in paths]

    @property
    def name(self) -> str:
        """The last word of their paths, or else the name of their class."""
        words = {next((word for word in reversed(glob.split(".")) if word.isidentifier()), "") for glob in self.globs}
        return words.pop() or self.class_name if len(words) == 1 else self.class_name

    @property
    def stars(self) -> int:
        """How many levels of their paths are numbered."""
        return max(glob.count("*") for glob in self.globs)


class _Program:
    """The ops of the program, by origin: which are fusable, what feeds what, and the time of each."""

    def __init__(self, graphs: Sequence[Graph], profile: Profile | None, compile_rate: float) -> None:
        self.graphs = graphs
        self.profile = profile
        self.compile_rate = compile_rate
        dynamo = [graph for graph in graphs if graph.kind is GraphKind.DYNAMO]
        self.ops = {node.origin: node for graph in dynamo for node in graph.ops if node.origin is not None}
        self.feeds = direct_feeds(graphs)
        running = [graph for graph in graphs if graph.kind in {GraphKind.FORWARD, GraphKind.INFERENCE}]
        self.parts = grouped(
            (node.origin, node.op) for graph in running for node in graph.ops if node.origin is not None
        )
        self.products = {origin for origin in self.parts if any(map(is_product, self.parts[origin]))}
        self.fusable = {
            origin
            for origin, parts in self.parts.items()
            if origin not in self.products and set(parts) - NONCOMPUTING_OPS
        }

    @cached_property
    def seconds(self) -> Mapping[int, float]:
        """The profiled seconds of each op with its backward."""
        origins = {(graph.id, node.name): node.origin for graph in self.graphs for node in graph.ops}
        seconds: defaultdict[int, float] = defaultdict(float)
        for op in self.profile.ops if self.profile else ():
            if (origin := origins.get((op.graph, op.node))) is not None:
                seconds[origin] += op.seconds.value
        return seconds

    def suggestions(self) -> Iterator[tuple[Suggestion, Collection[int]]]:
        """Yield every suggestion with the origins that it picks."""
        everything = Selector(SelectorKind.OPS, ("*",))
        single = len(self.fusable) < FEWEST_FUSED
        why_whole = (
            "there is no other op to fuse it with: little to gain"
            if single and not self.products
            else "everything that is traced, as plain torch.compile compiles it: the plan to beat"
        )
        yield self._suggestion("whole", SuggestionKind.WHOLE, (everything,), why_whole)
        if single:
            return
        modules = self._repeated_modules()
        for group in modules:
            yield self._suggestion(
                group.name, SuggestionKind.MODULES, (_module_selector(group),), self._why_modules(group)
            )
        if left_out := self._ops_left_out():
            chains = self._between(everything, left_out)
            why = f"all but the matrix products ({len(self.products)}), which are library calls compiled or not"
            yield self._suggestion("chains", SuggestionKind.CHAINS, (chains,), why)
            for block in modules[:1] if modules and modules[0].origins & self.products else ():
                chains = self._between(_module_selector(block), left_out)
                inside = f"the ops between the matrix products of each {block.class_name}"
                yield self._suggestion(f"{block.name}-chains", SuggestionKind.CHAINS, (chains,), inside)
        yield from self._norms()
        yield from self._loss({origin for group in modules for origin in group.origins})

    def _suggestion(
        self, name: str, kind: SuggestionKind, selectors: tuple[Selector, ...], why: str
    ) -> tuple[Suggestion, Collection[int]]:
        picked: dict[int, Instance] = {}
        for selector in selectors:
            picked |= picked_origins(selector, self.graphs)
        instances = self._instances(picked)
        picked = {origin: instance for origin, instance in picked.items() if origin in self.parts}
        likeness = {tuple((self.ops[origin].target, self.ops[origin].values) for origin in ops) for ops in instances}
        fusable = self.fusable & picked.keys()
        whole_s = self.profile.whole_s if self.profile else 0.0
        share, fusable_share = (
            (sum(self.seconds[origin] for origin in ops) / whole_s if whole_s else None) for ops in (picked, fusable)
        )
        return (
            Suggestion(
                name,
                kind,
                selectors,
                why,
                len(picked),
                len(fusable),
                len(instances),
                len(likeness),
                share,
                fusable_share,
                expected_s=self.compile_rate * work_of_origins(self.graphs, instances).seconds,
            ),
            picked.keys(),
        )

    def _instances(self, picked: Mapping[int, Instance]) -> list[list[int]]:
        """Return the ops of each module call, and of each connected piece outside of modules."""
        calls = grouped((instance, origin) for origin, instance in picked.items())
        pieces = self._pieces(calls.pop(None, []))
        running = ([origin for origin in sorted(ops) if origin in self.parts] for ops in (*calls.values(), *pieces))
        return list(filter(None, running))

    def _pieces(self, origins: Collection[int]) -> list[list[int]]:
        links = ((origin, source) for origin in origins for source in self.feeds.get(origin, ()))
        return connected_components(sorted(origins), links)

    # ---------------------------------------------------------------------------------------------------- modules

    def _repeated_modules(self) -> list[_Modules]:
        """Return the modules that occur several times: the outermost, and the modules inside them with several ops.

        Modules inside these count only if there are several in each, such as the experts of a mixture.
        """
        classes = {call.path: call.class_name for node in self.ops.values() for call in node.modules if call.path}
        inside: defaultdict[str, set[int]] = defaultdict(set)
        for origin, node in self.ops.items():
            for call in node.modules if origin in self.parts else ():
                inside[call.path].add(origin)
        globs = equal_layers(classes)
        by_class = grouped(
            ((cls, glob if cls in CONTAINERS else ""), (glob, paths))
            for glob, paths in globs.items()
            for cls in [classes[paths[0]]]
        )
        groups = []
        for (class_name, _), members in by_class.items():
            paths = [path for _, paths in members for path in paths]
            origins = frozenset(chain.from_iterable(inside[path] for path in paths))
            fusable, products = len(origins & self.fusable), len(origins & self.products)
            enough = fusable >= len(paths) and fusable + products >= FEWEST_FUSED * len(paths)
            if len(paths) > 1 and enough and "Norm" not in class_name:
                groups.append(_Modules(class_name, dict(members), origins))
        groups.sort(key=lambda group: -len(group.origins))
        outer: list[_Modules] = []
        for group in groups:
            around = [other for other in outer if group.origins <= other.origins]
            if any(group.origins == other.origins for other in around):
                continue
            if len(around) < 2 or group.stars > max(other.stars for other in around):  # noqa: PLR2004 - two levels
                outer.append(group)
        return outer

    def _why_modules(self, modules: _Modules) -> str:
        number = len(modules.paths)
        ops = len(modules.origins & self.fusable) // number
        return (
            f"{number} modules {modules.class_name}, each with {count(ops, 'op')} to fuse: equal ones are compiled once"
        )

    # ----------------------------------------------------------------------------------------------------- chains

    def _ops_left_out(self) -> list[str]:
        """Return the names of matrix products, and of views that would be pieces without anything to fuse.

        Empty if nothing is left that can be fused.
        """
        pieces = self._pieces(self.parts.keys() - self.products)
        useful = {origin for piece in pieces if self.fusable.intersection(piece) for origin in piece}
        chains = [piece for piece in pieces if len(self.fusable.intersection(piece)) >= FEWEST_FUSED]
        if not chains or not self.products:
            return []
        names = dict.fromkeys(self._name(origin) for origin in self.products)
        others = dict.fromkeys(self.ops[origin].op for origin in self.parts.keys() - self.products - useful)
        used = {self.ops[origin].op for origin in useful}
        return [*names, *(name for name in others if name not in used and name not in names)]

    def _between(self, around: Selector, left_out: Sequence[str]) -> Selector:
        """Return the selector of ``around`` without its ops ``left_out``."""
        inside = picked_origins(around, self.graphs)
        names = [
            name
            for name in left_out
            if inside.keys() & picked_origins(Selector(SelectorKind.OPS, (name,)), self.graphs)
        ]
        return replace(around, without=(Selector(SelectorKind.OPS, tuple(names)),))

    def _name(self, product: int) -> str:
        """Return the name of a matrix product in the program, or its ATen name if other ops share that name."""
        op = self.ops[product].op
        ops = {origin for origin, node in self.ops.items() if node.op == op and origin in self.parts}
        return op if ops <= self.products else next(part for part in self.parts[product] if is_product(part))

    # --------------------------------------------------------------------------------------------- norms and loss

    def _norms(self) -> Iterator[tuple[Suggestion, Collection[int]]]:
        """Yield the norms: single ops of the program, and modules that compute a norm by hand."""
        names = {node.op for origin, node in self.ops.items() if origin in self.parts and node.op in NORMS}
        calls = grouped((node.modules, origin) for origin, node in self.ops.items() if origin in self.parts)
        by_hand = [
            origins
            for modules, origins in calls.items()
            if modules
            and "Norm" in modules[-1].class_name
            and names.isdisjoint(self.ops[origin].op for origin in origins)
        ]
        why = "one kernel each in eager, too: little to gain, unless they fuse with the ops beside them"
        if by_hand:
            why = f"written as up to {max(map(len, by_hand))} ops each: one kernel if compiled"
        selectors = [Selector(SelectorKind.OPS, tuple(sorted(names)))] if names else []
        selectors += self._selectors_for(list(chain.from_iterable(by_hand)))
        if selectors:
            yield self._suggestion("norms", SuggestionKind.NORMS, tuple(selectors), why)

    def _loss(self, in_modules: Collection[int]) -> Iterator[tuple[Suggestion, Collection[int]]]:
        """Yield the ops from the last matrix product to a scalar that is differentiated."""
        if not self.products or not any(graph.kind is GraphKind.BACKWARD for graph in self.graphs):
            return
        for graph in self.graphs:
            if graph.kind is GraphKind.DYNAMO and graph.parent is None:
                tail = [origin for origin in self._tail(graph) if origin not in in_modules]
                if self.fusable.intersection(tail):
                    why = f"{count(len(tail), 'op')} between the last matrix product and the result, with the backward"
                    yield self._suggestion("loss", SuggestionKind.LOSS, self._selectors_for(tail), why)

    def _tail(self, graph: Graph) -> list[int]:
        """Return the ops that a scalar output depends on and no matrix product does."""
        outputs = [name for node in graph.nodes if node.role is Role.OUTPUT for name in node.inputs]
        losses = {name for name in outputs if [value.shape for value in graph.by_name[name].values] == [()]}
        before: set[str] = set()  # matrix products, and the ops that they depend on
        tail = []
        for node in reversed(graph.nodes):
            if node.name in before or node.origin in self.products:
                before |= {node.name, *node.inputs}
            elif node.name in losses and node.role is Role.OP:
                losses.update(node.inputs)
                tail.append(node)
        return [node.origin for node in tail if node.origin in self.parts and node.origin is not None]

    def _selectors_for(self, origins: Collection[int]) -> tuple[Selector, ...]:
        names = {
            f"{graph.id}:{node.name}"
            for graph in self.graphs
            if graph.kind in {GraphKind.FORWARD, GraphKind.INFERENCE}
            for node in graph.ops
            if node.origin in set(origins)
        }
        return selectors_for(names, self.graphs)


def _module_selector(modules: _Modules) -> Selector:
    return Selector(SelectorKind.MODULES, tuple(modules.globs))
