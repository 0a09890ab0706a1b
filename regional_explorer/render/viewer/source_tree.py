"""The source lines as an element tree: coloured by their regions, each with the number of its nodes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from regional_explorer.errors.texts import count, listing
from regional_explorer.record.session import Session
from regional_explorer.render.report.source_listing import Function, Line
from regional_explorer.render.report.table_node import chip
from regional_explorer.render.style.css import page_css
from regional_explorer.render.style.element import Node, node, style_sheet
from regional_explorer.render.style.palette import paint
from regional_explorer.render.style.untrusted import SHORT, clean, sendable

LIVE_REGION = node("div", role="status", class_="rxs-live")
"""The element whose text screen readers announce."""

MOST_CHIPS = 4
"""A line with more regions shows their number in place of a chip for each."""
MOST_NAMED = 12

Names = Mapping[str, tuple[int, str]]
"""Number and name of the region of each node, by ``graph:name``."""


def source_tree(functions: Sequence[Function], session: Session, height: int) -> list[Node]:
    """Return the functions as selectable lines; library code is folded."""
    regions = {
        sendable(f"{graph}:{name}"): (number, region.name)
        for number, region in enumerate(session.plan.regions)
        for graph, names in session.members.get(region.name, {}).items()
        for name in names
    }
    if not functions:
        return [node("div", "The nodes of this session have no source lines.", class_="rxs-empty"), LIVE_REGION]
    colours = style_sheet(page_css([paint(number) for number in range(len(session.plan.regions))]))
    numbers = iter(range(sum(len(one.lines) for one in functions)))
    blocks = [
        node(
            "details",
            node("summary", node("b", one.name), node("span", start), title=f"{one.name} {start}"),
            node(
                "div",
                *(_row(line, regions, next(numbers) if line.passing else None) for line in one.lines),
                role="listbox",
                aria_multiselectable="true",
                aria_label=f"{one.name} in {one.file}",
            ),
            open=not one.library,
        )
        for one in functions
        for start in [f"{one.file}:{one.lines[0].number}"]
    ]
    listed = node("div", colours, *blocks, class_="rx rxs-list", style=f"max-height:{height}px", role="group")
    listed[1]["aria-label"] = "Source lines"
    return [listed, LIVE_REGION]


def _row(line: Line, regions: Names, number: int | None) -> Node:
    inside = {regions[name] for name in line.own if name in regions}
    through = dict.fromkeys(regions[name] for name in line.passing if name in regions)
    marks = tuple((*region, region in inside) for region in through)
    tint = f"--tint:var(--rx-f{next(iter(inside))[0]})" if len(inside) == 1 else None
    return _row_of(number, line.number, line.text, (len(line.own), len(line.passing)), marks, tint)


@functools.lru_cache(maxsize=4096)  # an edit of the plan changes few of a thousand rows
def _row_of(
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
        node("span", *_chips(marks), class_="rxs-marks"),
        ["code", {}, text or " "],
        node(
            "span",
            str(passing or ""),
            class_="rxs-count",
            title=f"{count(own, 'node')} from here, {passing} including the functions it calls",
        ),
        class_="rxs-line",
        role="option",
        aria_disabled="true" if number is None else None,
        style=tint,
    )
    if number is not None:
        row[1] |= {"data-do": "pick", "data-of": str(number), "tabindex": "-1"}
    return row


def _chips(marks: Sequence[tuple[int, str, bool]]) -> list[Node]:
    """Return a chip for each region of a line: filled if the line itself is in it, outlined if a called function is."""
    if len(marks) > MOST_CHIPS:
        names = listing([name for _, name, _ in marks], MOST_NAMED)
        return [node("span", count(len(marks), "region"), title=names, class_="rx-quiet")]
    return [
        chip(number, title=clean(name, SHORT), style=None if inside else "background:none")
        for number, name, inside in marks
    ]
