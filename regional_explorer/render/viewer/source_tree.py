"""The source lines as an element tree: coloured by their regions, each with the number of its nodes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from regional_explorer.errors.texts import count, listing, sendable
from regional_explorer.record.session import Session
from regional_explorer.render.report.source_listing import Function, Line
from regional_explorer.render.report.table_node import chip
from regional_explorer.render.style.css import page_css
from regional_explorer.render.style.element import Node, node, style_sheet
from regional_explorer.render.style.untrusted import SHORT, clean

LIVE_REGION = node("div", role="status", class_="rxs-live")
"""The element whose text screen readers announce."""

MOST_REGION_CHIPS = 4
"""A line with more regions shows their number in place of a chip for each."""
MOST_REGION_NAMES = 12

RegionOfNode = Mapping[str, tuple[int, str]]
"""Number and name of the region of each node, by ``graph:name``."""


def source_tree(functions: Sequence[Function], session: Session, height: int) -> list[Node]:
    """Return the functions as selectable lines; library code is folded."""
    region_of = {
        sendable(f"{graph}:{name}"): (number, region)
        for region, number in session.plan.numbers.items()
        for graph, names in session.members.get(region, {}).items()
        for name in names
    }
    if not functions:
        return [node("div", "The nodes of this session have no source lines.", class_="rxs-empty"), LIVE_REGION]
    colours = style_sheet(page_css(len(session.plan.regions)))
    row_numbers = iter(range(sum(len(function.lines) for function in functions)))
    blocks = [
        node(
            "details",
            node("summary", node("b", function.name), node("span", start), title=f"{function.name} {start}"),
            node(
                "div",
                *(_line_row(line, region_of, next(row_numbers) if line.passing else None) for line in function.lines),
                role="listbox",
                aria_multiselectable="true",
                aria_label=f"{function.name} in {function.file}",
            ),
            open=not function.library,
        )
        for function in functions
        for start in [f"{function.file}:{function.lines[0].number}"]
    ]
    listed = node("div", colours, *blocks, class_="rx rxs-list", style=f"max-height:{height}px", role="group")
    listed[1]["aria-label"] = "Source lines"
    return [listed, LIVE_REGION]


def _line_row(line: Line, region_of: RegionOfNode, number: int | None) -> Node:
    own_regions = {region_of[name] for name in line.own if name in region_of}
    passing_regions = dict.fromkeys(region_of[name] for name in line.passing if name in region_of)
    marks = tuple((*region, region in own_regions) for region in passing_regions)
    tint = f"--tint:var(--rx-f{next(iter(own_regions))[0]})" if len(own_regions) == 1 else None
    return _cached_row(number, line.number, line.text, (len(line.own), len(line.passing)), marks, tint)


@functools.lru_cache(maxsize=4096)  # an edit of the plan changes few of a thousand rows
def _cached_row(
    number: int | None,
    line: int,
    text: str,
    counts: tuple[int, int],
    marks: tuple[tuple[int, str, bool], ...],
    tint: str | None,
) -> Node:
    """Return a line, tinted if all of it is in one region; ``number`` is that of a line with nodes.

    ``counts`` are those of its own nodes, and with those of the functions it calls.
    """
    own, passing = counts
    row = node(
        "div",
        node("span", str(line), class_="rxs-number"),
        node("span", *_region_chips(marks), class_="rxs-marks"),
        node(
            "span",
            str(passing or ""),
            class_="rxs-count",
            title=f"{count(own, 'node')} from here, {passing} including the functions it calls",
        ),
        ["code", {}, text or " "],
        class_="rxs-line",
        role="option",
        aria_disabled="true" if number is None else None,
        style=tint,
    )
    if number is not None:
        row[1] |= {"data-do": "pick", "data-of": str(number), "tabindex": "-1"}
    return row


def _region_chips(marks: Sequence[tuple[int, str, bool]]) -> list[Node]:
    """Return a chip for each region of a line: filled if the line itself is in it, outlined if a called function is."""
    if len(marks) > MOST_REGION_CHIPS:
        names = listing([name for _, name, _ in marks], MOST_REGION_NAMES)
        return [node("span", count(len(marks), "region"), title=names, class_="rx-quiet")]
    return [
        chip(number, title=clean(name, SHORT), style=None if inside else "background:none")
        for number, name, inside in marks
    ]
