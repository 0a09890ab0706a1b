"""The columns of a panel or page, and the pane of the user's source, with links from its rows to nodes."""

from __future__ import annotations

import functools
import linecache
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regional_explorer.errors import count, listing, sendable
from regional_explorer.record.figure import Figure
from regional_explorer.record.graph import SourceLine, function_spans, is_cell, is_library
from regional_explorer.record.grouping import grouped
from regional_explorer.record.profile import ProfileKind
from regional_explorer.record.session import Session
from regional_explorer.style.css import TONES
from regional_explorer.style.element import LONG, LONG_TEXT, SHORT, Node, clean, clean_page, node
from regional_explorer.style.formats import duration, with_interval
from regional_explorer.tables.table import chip

# -------------------------------------------------------------------------------------------------------------- columns


GRAPH, SOURCE, BESIDE = COLUMNS = ("graph", "source", "beside")


def columns(
    head: Node | str, beside: Sequence[Node], shown: Collection[str] = COLUMNS, under: Sequence[Node] = ()
) -> Node:
    """Return the columns, each of which the page can hide and show.

    ``head`` is the head of the column ``beside`` the others; ``under`` is below the graph.
    """

    def column(name: str, *children: Node) -> Node:
        return node("div", *children, class_="rx-column", data_column=name, hidden=name not in shown)

    source = node("div", class_="rxs", data_part="source")
    return node(
        "div",
        column(GRAPH, graph_host(), *under),
        _grip("Width of the graph and the source"),
        column(SOURCE, _head(node("span", "Source")), node("div", source, class_="rx-pane")),
        _grip("Width of the source and what is beside it"),
        column(BESIDE, _head(head), node("div", *beside, class_="rx-pane")),
        class_="rx-views",
    )


def graph_host() -> Node:
    """Return the element that the page fills with the graph."""
    return node("div", class_="rxg", role="group", aria_label="Graph view")


def _head(title: Node | str) -> Node:
    full = node("button", "⤢", type="button", data_do="full", title="Full screen, and back", aria_label="Full screen")
    return node("div", title, full, class_="rx-head")


def _grip(label: str) -> Node:
    about = "Drag it, or press ← and →"
    return node(
        "div",
        role="separator",
        aria_orientation="vertical",
        aria_valuenow="50",
        aria_label=label,
        title=about,
        tabindex="0",
        class_="rx-grip",
    )


# ----------------------------------------------------------------------------------------------------------- the source


@dataclass(frozen=True, slots=True)
class _FunctionRange:
    """A function: its lines in a file, and its qualified name."""

    file: str
    name: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Line:
    """A shown line with its ``own`` nodes as ``graph:name``; ``passing`` adds the nodes of functions that it calls."""

    number: int
    text: str
    own: tuple[str, ...]
    passing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """A shown function; ``path`` is the path of its ``file``; ``folded`` is True if its lines are shown on request."""

    name: str
    file: str
    path: str
    folded: bool
    lines: tuple[Line, ...]

    @property
    def wraps(self) -> bool:
        """Whether it does nothing but call another function."""
        return not any(line.own for line in self.lines) and sum(bool(line.passing) for line in self.lines) == 1


class _SourceFile:
    """A source file as it is now; if it has changed since the trace, only its traced lines are shown."""

    def __init__(self, path: str, traced_lines: Sequence[SourceLine]) -> None:
        self.path = path
        self.lines = _file_lines(path)
        self.traced_texts = {line.line: line.text for line in traced_lines}
        self.numbers_of = grouped((_full_name(line), line.line) for line in traced_lines)
        self.changed = any(
            number > len(self.lines) or text.strip() != self.lines[number - 1].strip()
            for number, text in self.traced_texts.items()
        )
        self.functions = [
            _FunctionRange(path, span.name, span.first, span.last)
            for span in (() if self.changed else function_spans("\n".join(self.lines)))
            if not span.name.endswith("<lambda>")
        ]

    def function_at(self, line: SourceLine) -> _FunctionRange:
        """Return the innermost function around a line; if the file is missing, the range of the traced lines."""
        around = [function for function in self.functions if function.first <= line.line <= function.last]
        if around:
            return max(around, key=lambda function: function.first)
        numbers = self.numbers_of[_full_name(line)]
        return _FunctionRange(self.path, _full_name(line), min(numbers), max(numbers))

    def text(self, function: _FunctionRange) -> list[str]:
        """Return the lines of a function without their common indent."""
        numbers = range(function.first, function.last + 1)
        lines = [self.traced_texts.get(number) or "…" if self.changed else self.lines[number - 1] for number in numbers]
        return textwrap.dedent("\n".join(line.expandtabs(4) for line in lines)).split("\n")


def _full_name(line: SourceLine) -> str:
    """Return the name of the function that a line is in, with the names of its classes if they are known."""
    return line.scope or line.function


def _file_lines(path: str) -> list[str]:
    try:
        return [line.rstrip("\n") for line in linecache.getlines(path)]
    except ValueError:  # not a valid file name
        return []


def source_listing(session: Session) -> tuple[Function, ...]:
    """Return the functions that the nodes of ``session`` come from, each line with its nodes.

    The user's own functions come first, or else the model's; wrappers that a library puts around others come last.
    """
    ops = [(graph.id, op) for graph in session.graphs for op in graph.ops if op.stack]
    lines_by_file = grouped((line.file, line) for line in dict.fromkeys(line for _, op in ops for line in op.stack))
    files = {path: _SourceFile(path, lines) for path, lines in lines_by_file.items()}
    function_of = {line: files[path].function_at(line) for path, lines in lines_by_file.items() for line in lines}
    places = [
        (sendable(f"{graph_id}:{op.name}"), [(function_of[line], line.line) for line in op.stack])
        for graph_id, op in ops
    ]
    own_nodes = grouped((stack[-1], name) for name, stack in places)
    passing_nodes = grouped((place, name) for name, stack in places for place in dict.fromkeys(stack))
    functions = [
        Function(
            name=clean(function.name, SHORT),
            file="cell" if is_cell(function.file) else clean(function.file.rsplit("/", 1)[-1], 2 * SHORT),
            path=sendable(function.file),
            folded=is_library(function.file),
            lines=tuple(
                Line(
                    number,
                    clean_page(text, LONG).replace("\n", ""),
                    tuple(own_nodes.get((function, number), ())),
                    tuple(passing_nodes.get((function, number), ())),
                )
                for number, text in enumerate(files[function.file].text(function), function.first)
            ),
        )
        for function in dict.fromkeys(function for function, _ in passing_nodes)
    ]
    functions.sort(key=lambda function: (function.folded, function.folded and function.wraps))
    return tuple(replace(function, folded=function.folded and number > 0) for number, function in enumerate(functions))


MOST_REGION_CHIPS = 4
"""A line with more regions shows their number instead of their chips."""
MOST_REGION_NAMES = 12

RegionOfNode = Mapping[str, tuple[int, str]]
"""The number and name of the region of each node, by ``graph:name``."""


def _line_times(session: Session) -> Mapping[str, Figure]:
    """Return the profiled time of the line of each node, by ``graph:name``."""
    if session.profile is None:
        return {}
    times = {row.name: row.seconds for row in session.profile.by(ProfileKind.LINE)}
    ops = ((sendable(f"{graph.id}:{op.name}"), str(op.source)) for graph in session.graphs for op in graph.ops)
    return {name: times[line] for name, line in ops if line in times}


MOST_REMARKS = 3


def _remarks(session: Session) -> Mapping[tuple[str, int], list[Node]]:
    """Return the remarks of diagnostics by file and line; a remark about several lines is on the first."""
    first_lines = ((found.where[0], found) for found in session.diagnostics if found.where)
    places = grouped(((sendable(line.file), line.line), found) for line, found in first_lines)
    return {
        place: [
            node(
                "div",
                f"↳ {clean(one.title, LONG)}",
                class_=f"rxs-remark rx-{TONES[one.severity]}",
                title=clean(" ".join(filter(None, (one.message, one.remedy))), LONG_TEXT),
                role="option",
                aria_disabled="true",
            )
            for one in found[:MOST_REMARKS]
        ]
        for place, found in places.items()
    }


LineNodes = Sequence[Sequence[Node]]
"""The element of each line, by function."""


def line_nodes(functions: Sequence[Function], session: Session) -> LineNodes:
    """Return the lines as elements, whose keys are those of ``line_rows``.

    A line has the number of its nodes or, after a profile, its time. Besides the functions, only the numbers and
    members of the regions and the profile matter.
    """
    times = _line_times(session)
    region_of = {
        sendable(f"{graph}:{name}"): (number, region)
        for region, number in session.plan.numbers.items()
        for graph, names in session.members.get(region, {}).items()
        for name in names
    }
    row_keys = iter(line_rows(functions))
    return [
        [_line_row(line, region_of, times, next(row_keys) if line.passing else None) for line in function.lines]
        for function in functions
    ]


def source_pane(functions: Sequence[Function], lines: LineNodes, session: Session) -> list[Node]:
    """Return the functions with their ``lines`` and the remarks of diagnostics below them; library code is folded."""
    if not functions:
        return [node("div", "The nodes of this session have no source lines.", class_="rxs-empty")]
    remarks = _remarks(session)
    blocks = [
        node(
            "details",
            node("summary", node("b", function.name), node("span", start), title=f"{function.name} {start}"),
            node(
                "div",
                *(
                    element
                    for line, own in zip(function.lines, elements, strict=True)
                    for element in (own, *remarks.get((function.path, line.number), ()))
                ),
                role="listbox",
                aria_multiselectable="true",
                aria_label=f"{function.name} in {function.file}",
            ),
            open=not function.folded,
        )
        for function, elements in zip(functions, lines, strict=True)
        for start in [f"{function.file}:{function.lines[0].number}"]
    ]
    return [node("div", *blocks, class_="rx rxs-list", role="group", aria_label="Source lines")]


Rows = Mapping[str, tuple[Sequence[str], Sequence[str]]]
"""For each row of a pane, by key: the nodes it stands for, and the nodes inside those."""


def line_rows(functions: Iterable[Function]) -> Rows:
    """Return a row for each line with nodes: its own nodes, and its own together with those of functions it calls."""
    lines = (line for function in functions for line in function.lines if line.passing)
    return {f"l{number}": (line.own, line.passing) for number, line in enumerate(lines)}


def row_links(rows: Rows, names: Sequence[str]) -> dict[str, Any]:
    """Return the rows to highlight with each node of ``names``: ``of`` has the number of its chain, -1 for none.

    A chain has the rows that stand for what contains the node, and the rows that stand for the node itself.
    """
    rows_of: dict[str, tuple[list[str], list[str]]] = {}
    for key, (own, inside) in rows.items():
        stands_for = set(own)
        for name in dict.fromkeys([*own, *inside]):
            rows_of.setdefault(name, ([], []))[name in stands_for].append(key)
    numbers: dict[str, int] = {}
    of = [numbers.setdefault(repr(rows_of[name]), len(numbers)) if name in rows_of else -1 for name in names]
    chains = {repr(chain): chain for chain in rows_of.values()}
    return {"chains": [chains[key] for key in numbers], "of": of}


def _line_row(line: Line, region_of: RegionOfNode, times: Mapping[str, Figure], key: str | None) -> Node:
    own_regions = {region_of[name] for name in line.own if name in region_of}
    passing_regions = dict.fromkeys(region_of[name] for name in line.passing if name in region_of)
    marks = tuple((*region, region in own_regions) for region in passing_regions)
    tint = f"--tint:var(--rx-f{next(iter(own_regions))[0]})" if len(own_regions) == 1 else None
    seconds = next((times[name] for name in line.own if name in times), None)
    time = "" if seconds is None else duration(seconds.value)
    about = "" if seconds is None else f"forward and backward: {with_interval(seconds, duration)}"
    gutter = (time, about) if times else _counts_of(line)
    return _cached_row(key, line.number, line.text, gutter, marks, tint)


def _counts_of(line: Line) -> tuple[str, str]:
    own, passing = len(line.own), len(line.passing)
    return str(passing or ""), f"{count(own, 'node')} from here, {passing} including the functions it calls"


@functools.lru_cache(maxsize=4096)  # an edit of the plan changes few of a thousand rows
def _cached_row(
    key: str | None,
    line: int,
    text: str,
    gutter: tuple[str, str],
    marks: tuple[tuple[int, str, bool], ...],
    tint: str | None,
) -> Node:
    """Return the row of a line, tinted if the line is in one region; ``key`` is None for a line without nodes.

    ``gutter`` is the text beside the line, and its tooltip.
    """
    text_beside, about = gutter
    row = node(
        "div",
        node("span", str(line), class_="rxs-number"),
        node("span", *_region_chips(marks), class_="rxs-marks"),
        node("span", text_beside, class_="rxs-count", title=about or None),
        ["code", {}, text or " "],
        class_="rxs-line",
        role="option",
        aria_disabled="true" if key is None else None,
        style=tint,
    )
    if key is not None:
        row[1] |= {"data-do": "nodes", "data-of": key, "tabindex": "-1"}
    return row


def _region_chips(marks: Sequence[tuple[int, str, bool]]) -> list[Node]:
    """Return a chip for each region of a line: filled if the line is in it, outlined if only called functions are."""
    if len(marks) > MOST_REGION_CHIPS:
        names = listing([name for _, name, _ in marks], MOST_REGION_NAMES)
        return [node("span", count(len(marks), "region"), title=names, class_="rx-quiet")]
    return [
        chip(number, title=clean(name, SHORT), style=None if inside else "background:none")
        for number, name, inside in marks
    ]
