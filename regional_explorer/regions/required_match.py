"""Refuses selectors that match nothing, or several nodes of one name; the error suggests what could be meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from regional_explorer.errors import SelectorError, did_you_mean
from regional_explorer.errors.texts import listing
from regional_explorer.record.graph import Graph, GraphBreak, GraphKind, SourceLine
from regional_explorer.record.named_subgraphs import subgraph_names, subgraphs
from regional_explorer.record.selector import Selector, SelectorKind
from regional_explorer.regions.line_ranges import LineRange
from regional_explorer.regions.module_selector import module_glob
from regional_explorer.regions.select import picks

MOST_HINTS = 8
LONGEST_SHOWN_PATTERN = 120
"""The maximum number of characters shown of a pattern."""

Among = Callable[[int | None], bool]


def require_match(
    name: str,
    chosen: Iterable[Selector],
    graphs: Sequence[Graph],
    among: Among = lambda _: True,
    breaks: Sequence[GraphBreak] = (),
) -> None:
    """Raise SelectorError if a pattern of a selector for region ``name`` picks nothing; the text lists near matches.

    It is raised, too, for the name of several nodes that belong to different operations of the program.

    ``among`` says which origins count; ``breaks`` are the graph breaks, which may be the cause. Among several node
    names, some may be nodes that no selector picks (an input, a sum of gradients), since a selection in the graph
    contains those too.
    """
    where = "of this call" if among(None) else "of the region"
    for selector in chosen:
        for node in selector.only:
            if not any(map(among, picks(Selector(SelectorKind.NODES, (node,)), graphs))):
                hint = _suggestions(SelectorKind.NODES, node, graphs, among)
                raise SelectorError(f"Region {name!r}: only: no operation {where} is called {node!r}.{hint}")
        for node in (*selector.only, *(selector.patterns if selector.kind is SelectorKind.NODES else ())):
            require_one_op(node, graphs, among)
        selector_matches = any(map(among, picks(selector, graphs)))
        for pattern in selector.patterns:
            single = replace(selector, patterns=(pattern,))
            if (selector_matches and selector.only) or any(map(among, picks(single, graphs))):
                if selector.kind is SelectorKind.LINES:
                    _require_one_file(pattern, graphs)
                continue
            names = (
                name for graph in graphs for node in graph.nodes for name in (node.name, f"{graph.id}:{node.name}")
            )
            is_node = selector.kind is SelectorKind.NODES and pattern in names
            if is_node and selector_matches:
                continue
            hint = (
                " It is an input, or a backward op that was not traced from a forward op: selectors cannot pick those."
                if is_node and among(None)
                else broken_at(single, breaks) or _suggestions(selector.kind, pattern, graphs, among)
            )
            raise SelectorError(f"Region {name!r}: {_shortened(str(single))} matches no operation {where}.{hint}")


def broken_at(selector: Selector, breaks: Sequence[GraphBreak]) -> str:
    """Return which graph break is inside what ``selector`` names, or around it: it ran eagerly. Empty if none is."""
    for graph_break in reversed(breaks):
        where = f"at {graph_break.source}" if graph_break.source is not None else "in the call"
        runs_eagerly = f"where it runs eagerly: {graph_break.reason.rstrip('.')}."
        for pattern in selector.patterns:
            if selector.kind is SelectorKind.MODULES:
                rule = module_glob(pattern)
                for path in reversed(graph_break.modules):
                    if rule.fullmatch(path) or pattern.startswith(f"{path}."):
                        return f" The graph broke in module {path!r} {where}, {runs_eagerly}"
            elif selector.kind is SelectorKind.LINES:
                lines = LineRange.parse(pattern)
                if any(lines.contains(line) for line in graph_break.stack):
                    return f" The graph broke {where}, {runs_eagerly}"
    return ""


def require_one_op(name: str, graphs: Sequence[Graph], among: Among) -> None:
    """Raise SelectorError if nodes called ``name`` come from several operations of the program.

    Each graph names its nodes anew: Dynamo by the user's variables, AOTAutograd by the operators.
    """
    full_names = {
        node.origin: f"{graph.id}:{node.name}"
        for graph in graphs
        for node in graph.ops
        if node.name == name and node.origin is not None and among(node.origin)
    }
    if len(full_names) > 1:
        raise SelectorError(
            f"Several nodes are called {name!r}. Say which: {listing(full_names.values(), MOST_HINTS)}."
        )


def _require_one_file(pattern: str, graphs: Sequence[Graph]) -> None:
    """Raise SelectorError if line numbers without a place are found in several files; the text says how to name one."""
    line_range = LineRange.parse(pattern)
    lines: dict[str, SourceLine] = {}
    if not line_range.place:
        stacks = (node.stack for graph in graphs for node in graph.ops)
        lines = {line.file: line for stack in stacks for line in stack if line_range.contains(line)}
    if len(lines) > 1:
        places = (line.in_function if line.in_cell else f"{_file_name(line)}:{line_range}" for line in lines.values())
        raise SelectorError(
            f"lines={pattern!r} is in {len(lines)} files. Say which one: {' or '.join(sorted(places))}."
        )


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN_PATTERN else f"{text[: LONGEST_SHOWN_PATTERN - 1]}…"


def _file_name(line: SourceLine) -> str:
    return line.file.rsplit("/", 1)[-1]


def _suggestions(kind: SelectorKind, pattern: str, graphs: Sequence[Graph], among: Among) -> str:
    """Return names spelled like the pattern, else names with its last part, else a few examples."""
    choices = _selectable_names(kind, pattern, graphs, among)
    if kind is SelectorKind.SUBGRAPHS and not choices:
        return " Torch inlines a body without options that is called once (inline_single_use_invoke_subgraph)."
    plain = pattern.replace("*", "").strip(".")
    if kind is SelectorKind.MODULES and (hint := _deeper_glob_hint(pattern, choices)):
        return hint
    short_names = {node.op for graph in graphs for node in graph.ops} if kind is SelectorKind.OPS else ()
    if similar := did_you_mean(plain, [*choices, *short_names]):
        return similar
    tail = re.split(r"[.:/]", plain)[-1]
    same_tail = [name for name in choices if tail and tail in re.split(r"[.:/]", name)]
    examples = same_tail or choices
    return f" Examples of {kind}: {listing(examples, MOST_HINTS)}." if examples else ""


def _deeper_glob_hint(pattern: str, paths: Iterable[str]) -> str:
    """Return a hint with what a module glob would match if its ``*`` were ``**``; an empty text if nothing more."""
    deep = re.sub(r"\*+", "**", pattern)
    matches = [path for path in paths if deep != pattern and module_glob(deep).fullmatch(path)]
    if not matches:
        return ""
    return f" '*' stays within one level of the path, '**' does not: {deep!r} matches {listing(matches, MOST_HINTS)}."


def _selectable_names(kind: SelectorKind, pattern: str, graphs: Sequence[Graph], among: Among) -> list[str]:
    """Return all names that a selector can have, in the form of ``pattern``: lines by file or function, for example."""
    ops = [(graph, node) for graph in graphs for node in graph.ops if among(node.origin)]
    place = pattern.partition(":")[0]
    match kind:
        case SelectorKind.MODULES:
            names = {path for _, node in ops for call in node.modules for path in (call.path, *call.aliases) if path}
        case SelectorKind.LINES:
            lines = {line for _, node in ops for line in node.stack}
            lines_in_place = {line for line in lines if place in (line.function, line.scope)} or lines
            ordered = sorted(lines_in_place, key=lambda line: (line.file, line.line))
            by_file, bare = place.endswith(".py"), ":" not in pattern
            return list(
                dict.fromkeys(
                    str(line.line)
                    if bare and not line.in_library
                    else f"{_file_name(line)}:{line.line}"
                    if by_file or not line.def_line
                    else line.in_function
                    for line in ordered
                )
            )
        case SelectorKind.OPS:
            forward = {node.target for graph in graphs if graph.kind is not GraphKind.BACKWARD for node in graph.ops}
            names = {
                node.target for graph, node in ops if graph.kind is not GraphKind.BACKWARD or node.target not in forward
            }
        case SelectorKind.SUBGRAPHS:
            names = {name for graph in subgraphs(graphs) for name in subgraph_names(graph)}
        case _:
            names = {f"{graph.id}:{node.name}" if ":" in pattern else node.name for graph, node in ops}
    return sorted(names)
