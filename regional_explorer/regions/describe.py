"""Finds the shortest selectors that pick just the selected nodes, as a person would write them, and their name."""

from __future__ import annotations

import functools
import itertools
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from regional_explorer.errors import listing
from regional_explorer.record.graph import Graph, GraphKind, Node, SourceLine, equal_layers, layer_glob
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import Selector, SelectorKind
from regional_explorer.regions.select import LineRange, node_names, operator_names, picked_origins

COST_OF_NAME = 3
"""The cost of a node's name, in patterns: it says nothing to a reader, and may differ in the next trace."""

BY_POINTER = (SelectorKind.MODULES, SelectorKind.LINES, SelectorKind.OPS)
"""The kinds of selectors that a click can make, in the order in which a person prefers them for the same nodes."""

CLICK_MEANS_ALL = (SelectorKind.MODULES, SelectorKind.LINES)
"""A click on one of these kinds means all of the module or line, not only its part in sight."""

Origins = int
"""A set of origins, as bits."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The selectors and the name for nodes selected by pointer: of just these nodes, and of all alike nodes.

    ``alike`` picks the same nodes in each of the ``count`` equal modules; empty if the nodes are in no such module.
    """

    this: tuple[Selector, ...] = ()
    alike: tuple[Selector, ...] = ()
    count: int = 1
    name: str = ""


NO_CHOICE = Choice()
"""The choice if nothing is selected."""


def choice_for(nodes: Collection[str], graphs: Sequence[Graph], clicked: SelectorKind | None = None) -> Choice:
    """Return the selectors for a selection of ``nodes``, given as ``graph:name``.

    Among several selectors that pick the same nodes, the kind ``clicked`` is preferred.
    """
    wanted, seen = _selected_origins(nodes, graphs, clicked)
    name = _name_of_nodes(set(nodes), graphs)
    if not wanted:  # ``mark`` says why nothing can pick these nodes
        return Choice((Selector(SelectorKind.NODES, tuple(nodes)),) if nodes else (), (), 1, name)
    patterns = _Patterns(graphs, seen)
    this, alike_ops = patterns.describe(wanted, clicked), _alike_ops(wanted, graphs)
    if len(alike_ops) < 2:  # noqa: PLR2004 - alone
        return Choice(this, (), 1, name)
    wanted = _bits(itertools.chain(*alike_ops))
    # If the same modules of all layers are these ops, they are cut as those of one layer are.
    alike = tuple(
        replace(one, patterns=tuple(dict.fromkeys(map(layer_glob, one.patterns))))
        for one in this
        if one.kind is SelectorKind.MODULES and not (one.within or one.without)
    )
    if len(alike) < len(this) or patterns.picked(alike) != wanted:
        alike = patterns.describe(wanted, clicked)
    return Choice(this, alike, len(alike_ops), name)


def selectors_for(
    nodes: Collection[str], graphs: Sequence[Graph], clicked: SelectorKind | None = None
) -> tuple[Selector, ...]:
    """Return the shortest list of selectors that picks just ``nodes``, given as ``graph:name``.

    That is one pattern if possible, else several, or one that others narrow. Only nodes that no pattern picks are
    named. Nodes that no selector picks, such as inputs, do not count.
    """
    return choice_for(nodes, graphs, clicked).this


# ----------------------------------------------------------------------------------------------------------- their name

MOST_NAMED_PARTS = 3
"""A selection of more modules and ops is called a part of what they have in common."""


def name_of_module(path: str) -> str:
    """Return the end of a module's path or glob that names it: ``mlp``, ``layers.0``, or ``layers`` of ``layers.*``."""
    if ending := re.search(r"(?:[^\W\d]\w*|^\d+)(?:\.\d+)*$", path):
        return ending[0]
    return next((word for word in reversed(re.findall(r"\w+", path)) if not word.isdigit()), "")


def _name_of_nodes(names: Collection[str], graphs: Sequence[Graph]) -> str:
    """Return the name of nodes: the modules or functions that they are all of, and their other ops.

    A module that only holds another one has the other's name, as in a picture.
    """
    of_graphs = [{f"{graph.id}:{node.name}": node for node in graph.ops} for graph in graphs]
    in_sight = {name: node for nodes in of_graphs if not nodes.keys().isdisjoint(names) for name, node in nodes.items()}
    scopes = {name: _scopes(node) for name, node in in_sight.items()}
    chosen = [name for name in scopes if name in names]
    of_all, taken = (Counter(scope for name in some for scope in {*scopes[name]}) for some in (scopes, chosen))
    parts: dict[str, None] = {}
    for name in chosen:
        whole = [scope for scope in scopes[name] if taken[scope] == of_all[scope]]
        parts |= {([scope for scope in whole if taken[scope] == taken[whole[0]]] or [in_sight[name].op])[-1]: None}
    words = dict.fromkeys(map(name_of_module, parts))
    if len(words) > MOST_NAMED_PARTS:  # such as several layers
        words = dict.fromkeys(name_of_module(layer_glob(part)) for part in parts)
    common = [scope for name in chosen[:1] for scope in scopes[name] if taken[scope] == len(chosen)]
    if len(words) > MOST_NAMED_PARTS and common:
        return f"part of {name_of_module(common[-1])}"
    return listing(words, MOST_NAMED_PARTS, joint=" + ")


def _scopes(node: Node) -> list[str]:
    """Return the paths of the modules around a node, or the functions if it is in no module; outermost first."""
    return [call.path for call in node.modules if call.path] or [line.function for line in node.stack]


def _selected_origins(
    nodes: Collection[str], graphs: Sequence[Graph], clicked: SelectorKind | None
) -> tuple[Origins, Origins]:
    """Return the origins of ``nodes``, and all origins in sight where the nodes were selected.

    Not all ops of a module are in sight: an op may run in no graph, and an op that only the backward computes again is
    in no forward. A selection of all ops of a module that are in sight means the module. A click on a module or a line
    means all of it, even if only its part in one graph is in sight.
    """
    names = set(nodes)
    chosen = [
        (graph, node)
        for graph in graphs
        for node in graph.ops
        if node.origin is not None and f"{graph.id}:{node.name}" in names
    ]
    kinds = {graph.kind for graph, _ in chosen}
    in_sight = {*kinds} if clicked in CLICK_MEANS_ALL else {GraphKind.FORWARD, GraphKind.INFERENCE, *kinds}
    visible = graphs if GraphKind.DYNAMO in kinds else [graph for graph in graphs if graph.kind in in_sight]
    return _bits(node.origin for _, node in chosen), _bits(node.origin for graph in visible for node in graph.ops)


def _alike_ops(wanted: Origins, graphs: Sequence[Graph]) -> list[list[int]]:
    """Return the ops ``wanted``, and the ops in the same places of equal modules, one list per module."""
    ops = [(origin, node) for origin, node in _dynamo_ops(graphs) if node.modules]
    classes = {call.path: call.class_name for _, node in ops for call in node.modules}
    form = {path: glob for glob, paths in equal_layers(classes).items() for path in paths}
    times: Counter[object] = Counter()
    place: dict[int, object] = {}
    for origin, node in ops:
        modules = tuple((form[call.path], call.class_name) for call in node.modules)
        kind = modules, node.stack[-1:], node.target
        call = kind, tuple((call.path, call.call) for call in node.modules)
        times[call] += 1
        place[origin] = kind, times[call]
    origins = _members(wanted)
    places = {place.get(origin) for origin in origins}
    if None in places or len(places) < len(origins):  # outside of modules, or in several equal modules
        return []
    origins_by_place = grouped((where, origin) for origin, where in place.items() if where in places)
    if len(set(map(len, origins_by_place.values()))) > 1:
        return []
    return list(map(list, zip(*origins_by_place.values(), strict=True)))


def _dynamo_ops(graphs: Sequence[Graph]) -> Iterator[tuple[int, Node]]:
    dynamo = (graph for graph in graphs if graph.kind is GraphKind.DYNAMO)
    return ((node.origin, node) for graph in dynamo for node in graph.ops if node.origin is not None)


def _bits(origins: Iterable[int | None]) -> Origins:
    return _union(1 << origin for origin in {*origins} if origin is not None)


def _union(sets: Iterable[Origins]) -> Origins:
    return functools.reduce(operator.or_, sets, 0)


def _members(origins: Origins) -> list[int]:
    return [origin for origin in range(origins.bit_length()) if origins >> origin & 1]


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A selector of one pattern, and the origins in sight that it picks."""

    kind: SelectorKind
    text: str
    origins: Origins
    innermost: bool = False
    one_instance: bool = False
    """Whether it is the path of a module that only holds modules, and so makes one instance of all of them."""

    def order(self, clicked: SelectorKind | None) -> tuple[bool, int, bool, int]:
        """Return the order in which a person would choose it among patterns that pick the same."""
        return (
            self.kind is not clicked,
            BY_POINTER.index(self.kind),
            self.innermost or self.one_instance,
            len(self.text),
        )


class _Patterns:
    """All patterns that a person could write for a call's graphs."""

    def __init__(self, graphs: Sequence[Graph], seen: Origins) -> None:
        self.graphs = graphs
        self.seen = seen
        self._modules = list(self._module_patterns())
        self._ops = list(self._op_patterns())
        self._passing: defaultdict[SourceLine, Origins] = defaultdict(int)
        self._own: defaultdict[SourceLine, Origins] = defaultdict(int)
        for origin, node in _dynamo_ops(graphs):
            picked = _bits([origin]) & seen
            for line in node.stack:
                self._passing[line] |= picked
            if node.stack:
                self._own[node.stack[-1]] |= picked
        self._functions = grouped(
            ((line.function, line.file, line.scope, line.def_line), line) for line in self._passing
        )

    def describe(self, wanted: Origins, clicked: SelectorKind | None) -> tuple[Selector, ...]:
        """Return selectors that together pick ``wanted`` and nothing else in sight, by node names if need be."""

        def order(pattern: _Pattern) -> tuple[bool, int, bool, int]:
            return pattern.order(clicked)

        patterns = sorted(self._within(wanted), key=order)
        if exact := [pattern for pattern in patterns if pattern.origins == wanted]:
            selectors = _selectors(exact[:1])
        else:
            chosen, left = _cover(wanted, _widest(patterns), wanted.bit_count())
            together = *_selectors(chosen), *self._node_selectors(left)
            selectors = min([together, *self._combinations(wanted, order)], key=_cost)
        return selectors if self.picked(selectors) == wanted else self._node_selectors(wanted)

    def picked(self, selectors: Iterable[Selector]) -> Origins:
        """Return the origins in sight that selectors pick."""
        return self.seen & _bits(origin for one in selectors for origin in picked_origins(one, self.graphs))

    def _node_selectors(self, origins: Origins) -> tuple[Selector, ...]:
        names = node_names(self.graphs, _members(origins))
        return (Selector(SelectorKind.NODES, names),) if names else ()

    def _combinations(self, wanted: Origins, order: Callable[[_Pattern], Any]) -> Iterator[tuple[Selector, ...]]:
        """Yield patterns around ``wanted``, perhaps within a module, and without the nodes that other patterns pick."""
        spans = self._line_patterns(wanted, spanning=True)
        patterns = (*self._modules, *self._ops, *spans)
        around = sorted((pattern for pattern in patterns if not wanted & ~pattern.origins), key=order)
        modules = [pattern for pattern in around if pattern.kind is SelectorKind.MODULES]
        modules.sort(key=lambda module: len(module.text))
        others = _widest(sorted(self._within(self.seen & ~wanted), key=order))
        for pattern in around:
            for within in ([], *([module] for module in modules)):
                origins = functools.reduce(operator.and_, (module.origins for module in within), pattern.origins)
                without, left = _cover(origins & ~wanted, others, COST_OF_NAME * wanted.bit_count())
                if not left:
                    yield (replace(*_selectors([pattern]), within=_selectors(within), without=_selectors(without)),)

    # ------------------------------------------------------------------------------------------------- the patterns

    def _within(self, allowed: Origins) -> Iterator[_Pattern]:
        """Yield the patterns that pick something, and in sight only ``allowed``; for lines, the longest ranges."""
        for pattern in (*self._modules, *self._ops, *self._line_patterns(allowed)):
            if pattern.origins and not pattern.origins & ~allowed:
                yield pattern

    def _module_patterns(self) -> Iterator[_Pattern]:
        picked: defaultdict[str, Origins] = defaultdict(int)
        called: set[str] = set()
        by_modules = grouped((node.modules, origin) for origin, node in _dynamo_ops(self.graphs))
        for calls, origins_inside in by_modules.items():
            names = {name for call in calls for name in (call.path, *call.aliases)}
            called |= names
            origins = _bits(origins_inside) & self.seen
            for path in {path for name in names for path in itertools.accumulate(name.split("."), "{}.{}".format)}:
                picked[path] |= origins
        picked.pop("", None)
        for path, origins in picked.items():
            yield _Pattern(SelectorKind.MODULES, path, origins, one_instance=path not in called)
        plain = [path.split(".") for path in picked if not set("*?[") & set(path)]
        for paths in grouped((len(parts), parts) for parts in plain).values():
            numbers = {tuple(index for index, part in enumerate(parts) if part.isdigit()) for parts in paths}
            for stars in {
                some for each in numbers for size in range(len(each)) for some in itertools.combinations(each, size + 1)
            }:
                globs = grouped((_with_stars(parts, stars), parts) for parts in paths)
                for glob, matched in globs.items():
                    if len(matched) > 1 and any(all(parts[index].isdigit() for index in stars) for parts in matched):
                        matches = [".".join(parts) for parts in matched]
                        origins = _union(map(picked.__getitem__, matches))
                        yield _Pattern(SelectorKind.MODULES, glob, origins, one_instance=called.isdisjoint(matches))

    def _op_patterns(self) -> Iterable[_Pattern]:
        """Return patterns by operator, the program's names first; a backward operator has none."""
        forward = (graph for graph in self.graphs if graph.kind is not GraphKind.BACKWARD)
        named = grouped(
            (name, node.origin) for graph in forward for node in graph.ops for name in operator_names(graph, node)
        )
        as_written = {name for _, node in _dynamo_ops(self.graphs) for name in node.op_names}
        named = dict(sorted(named.items(), key=lambda item: (item[0] not in as_written, len(item[0]))))
        patterns: dict[Origins, _Pattern] = {}
        for name, origins in (("*", itertools.chain(*named.values())), *named.items()):
            picked = _bits(origins) & self.seen
            patterns.setdefault(picked, _Pattern(SelectorKind.OPS, name, picked))
        return patterns.values()

    def _line_patterns(self, allowed: Origins, *, spanning: bool = False) -> Iterator[_Pattern]:
        """Yield the longest ranges of lines of each function that pick nothing in sight but ``allowed``.

        If ``spanning``, yield the range from the first to the last line that picks any of them, whatever is between.
        """
        namesakes = grouped((line.function, line) for line in self._passing)
        for (function, file, scope, def_line), lines in self._functions.items():
            name = file.rsplit("/", 1)[-1] if file.endswith(".py") else ""  # a cell: its lines are numbers alone
            place, start = (scope or function, def_line - 1) if def_line else (name, 0)
            others = namesakes[function] if def_line else list(self._passing)
            for innermost, picked in ((False, self._passing), (True, self._own)):
                ordered = sorted((line for line in lines if picked[line]), key=lambda line: line.line)
                for first, last in _spans(ordered, picked, allowed) if spanning else _runs(ordered, picked, allowed):
                    line_range = LineRange(place, first - start, last - start)
                    covered = [line for line in others if line_range.contains(line)]
                    if place or len({line.file for line in covered}) == 1:
                        text = f"{place}:{line_range}" if place else str(line_range)
                        yield _Pattern(SelectorKind.LINES, text, _union(map(picked.__getitem__, covered)), innermost)


def _runs(
    lines: Sequence[SourceLine], picked: Mapping[SourceLine, Origins], allowed: Origins
) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number of each run of lines that pick nothing but ``allowed``."""
    for fits, run in itertools.groupby(lines, lambda line: not picked[line] & ~allowed):
        numbers = [line.line for line in run]
        if fits:
            yield numbers[0], numbers[-1]


def _spans(
    lines: Sequence[SourceLine], picked: Mapping[SourceLine, Origins], wanted: Origins
) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number of the lines that pick any of ``wanted``, if there are any."""
    numbers = [line.line for line in lines if picked[line] & wanted]
    if numbers:
        yield numbers[0], numbers[-1]


def _with_stars(parts: Sequence[str], stars: Collection[int]) -> str:
    return ".".join("*" if index in stars else part for index, part in enumerate(parts))


def _widest(patterns: Iterable[_Pattern]) -> list[_Pattern]:
    """Return the patterns that no other pattern covers, those that pick most first."""
    widest: list[_Pattern] = []
    for pattern in sorted(patterns, key=lambda pattern: -pattern.origins.bit_count()):
        if all(pattern.origins & ~other.origins for other in widest):
            widest.append(pattern)
    return widest


def _cover(wanted: Origins, widest: Sequence[_Pattern], most: int) -> tuple[list[_Pattern], Origins]:
    """Return up to ``most`` patterns that together pick ``wanted``, and the ops that none of them picks."""
    chosen: list[_Pattern] = []
    left = wanted
    while left and len(chosen) < most and (widest := [pattern for pattern in widest if pattern.origins & left]):
        chosen.append(max(widest, key=lambda pattern: (pattern.origins & left).bit_count()))
        left &= ~chosen[-1].origins
    return chosen, left


def _cost(selectors: Iterable[Selector]) -> int:
    """Return the reading cost of selectors: the number of their patterns, where a node's name counts for several."""
    return sum(
        len(selector.patterns) * (COST_OF_NAME if selector.kind is SelectorKind.NODES else 1)
        + _cost(selector.within)
        + _cost(selector.without)
        for selector in selectors
    )


def _selectors(patterns: Iterable[_Pattern]) -> tuple[Selector, ...]:
    """Return patterns as selectors, one for each kind."""
    by_kind = grouped(((pattern.kind, pattern.innermost), pattern.text) for pattern in patterns)
    return tuple(Selector(kind, tuple(texts), innermost) for (kind, innermost), texts in by_kind.items())
