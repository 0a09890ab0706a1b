"""Refuses a selector whose pattern matches nothing: the error suggests near modules, lines, ops or nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from regional_explorer.errors import SelectorError, did_you_mean
from regional_explorer.errors.texts import listing
from regional_explorer.record.graph import Graph, SourceLine
from regional_explorer.record.named_subgraphs import subgraph_names, subgraphs
from regional_explorer.record.selector import Selector, SelectorKind
from regional_explorer.regions.line_ranges import LineRange
from regional_explorer.regions.module_selector import module_glob
from regional_explorer.regions.select import picks

SHOWN = 8
LONGEST_SHOWN = 120
"""The maximum number of characters shown of a pattern."""

Among = Callable[[int | None], bool]


def require_match(
    name: str, chosen: Iterable[Selector], graphs: Sequence[Graph], among: Among = lambda _: True
) -> None:
    """Raise SelectorError if a pattern of a selector for region ``name`` picks nothing; the text lists near matches.

    ``among`` says which origins count. Among several node names, some may be nodes that no selector picks (an input, a
    sum of gradients), since a selection in the graph contains those too.
    """
    where = "of this call" if among(None) else "of the region"
    for selector in chosen:
        whole = any(map(among, picks(selector, graphs)))
        for pattern in selector.patterns:
            alone = replace(selector, patterns=(pattern,))
            if (whole and selector.only) or any(map(among, picks(alone, graphs))):
                if selector.kind is SelectorKind.LINES:
                    _require_one_file(pattern, graphs)
                continue
            names = (
                name for graph in graphs for node in graph.nodes for name in (node.name, f"{graph.id}:{node.name}")
            )
            real = selector.kind is SelectorKind.NODES and pattern in names
            if real and whole:
                continue
            why = (
                " It is an input, or a backward op that was not traced from a forward op: selectors cannot pick those."
                if real and among(None)
                else _suggestions(selector.kind, pattern, graphs, among)
            )
            raise SelectorError(f"Region {name!r}: {_cut(str(alone))} matches no operation {where}.{why}")


def _require_one_file(pattern: str, graphs: Sequence[Graph]) -> None:
    """Raise SelectorError if line numbers without a place are found in several files; the text says how to name one."""
    wanted = LineRange.parse(pattern)
    found: dict[str, SourceLine] = {}
    if not wanted.place:
        stacks = (node.stack for graph in graphs for node in graph.ops)
        found = {line.file: line for stack in stacks for line in stack if wanted.contains(line)}
    if len(found) > 1:
        places = (line.in_function if line.in_cell else f"{_short(line)}:{wanted}" for line in found.values())
        raise SelectorError(
            f"lines={pattern!r} is in {len(found)} files. Say which one: {' or '.join(sorted(places))}."
        )


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"


def _short(line: SourceLine) -> str:
    return line.file.rsplit("/", 1)[-1]


def _suggestions(kind: SelectorKind, pattern: str, graphs: Sequence[Graph], among: Among) -> str:
    """Return names spelled like the pattern, else names with its last part, else a few examples."""
    known = _choices(kind, pattern, graphs, among)
    if kind is SelectorKind.SUBGRAPHS and not known:
        return " Torch inlines a body without options that is called once (inline_single_use_invoke_subgraph)."
    plain = pattern.replace("*", "").strip(".")
    if kind is SelectorKind.MODULES and (deep := _across_levels(pattern, known)):
        return deep
    if near := did_you_mean(plain, known):
        return near
    tail = re.split(r"[.:/]", plain)[-1]
    alike = [name for name in known if tail and tail in re.split(r"[.:/]", name)]
    shown = alike or known
    return f" Examples of {kind}: {listing(shown, SHOWN)}." if shown else ""


def _across_levels(pattern: str, paths: Iterable[str]) -> str:
    """Return a hint with what a module glob would match if its ``*`` were ``**``; an empty text if nothing more."""
    deep = re.sub(r"\*+", "**", pattern)
    found = [path for path in paths if deep != pattern and module_glob(deep).fullmatch(path)]
    if not found:
        return ""
    return f" '*' stays within one level of the path, '**' does not: {deep!r} matches {listing(found, SHOWN)}."


def _choices(kind: SelectorKind, pattern: str, graphs: Sequence[Graph], among: Among) -> list[str]:
    """Return all names that a selector can have, in the form of ``pattern``: lines by file or function, for example."""
    ops = [(graph, node) for graph in graphs for node in graph.ops if among(node.origin)]
    place = pattern.partition(":")[0]
    match kind:
        case SelectorKind.MODULES:
            found = {path for _, node in ops for call in node.modules for path in (call.path, *call.aliases) if path}
        case SelectorKind.LINES:
            lines = {line for _, node in ops for line in node.stack}
            here = {line for line in lines if place in (line.function, line.scope)} or lines
            ordered = sorted(here, key=lambda line: (line.file, line.line))
            by_file, bare = place.endswith(".py"), ":" not in pattern
            return list(
                dict.fromkeys(
                    str(line.line)
                    if bare and not line.in_library
                    else f"{_short(line)}:{line.line}"
                    if by_file or not line.def_line
                    else line.in_function
                    for line in ordered
                )
            )
        case SelectorKind.OPS:
            found = {node.target for _, node in ops}
        case SelectorKind.SUBGRAPHS:
            found = {name for graph in subgraphs(graphs) for name in subgraph_names(graph)}
        case _:
            found = {f"{graph.id}:{node.name}" if ":" in pattern else node.name for graph, node in ops}
    return sorted(found)
