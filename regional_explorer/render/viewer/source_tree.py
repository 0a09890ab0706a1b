"""The source lines as an element tree: coloured by their regions, each with the number of its nodes."""

from __future__ import annotations

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
    chips, tint = _chips(line, regions)
    tooltip = f"{count(len(line.own), 'node')} from here, {len(line.passing)} including the functions it calls"
    row = node(
        "div",
        node("span", str(line.number), class_="rxs-number"),
        node("span", *chips, class_="rxs-marks"),
        ["code", {}, line.text or " "],
        node("span", str(len(line.passing) or ""), class_="rxs-count", title=tooltip),
        class_="rxs-line",
        role="option",
        aria_disabled="true" if number is None else None,
        style=tint,
    )
    if number is not None:
        row[1] |= {"data-do": "pick", "data-of": str(number), "tabindex": "-1"}
    return row


def _chips(line: Line, regions: Names) -> tuple[list[Node], str | None]:
    """Return a chip for each region of a line, and a tint if the whole line is in one region.

    A chip is filled if the line itself is in the region, and outlined if a function it calls is.
    """
    inside = {regions[name] for name in line.own if name in regions}
    through = dict.fromkeys(regions[name] for name in line.passing if name in regions)
    tint = f"--tint:var(--rx-f{next(iter(inside))[0]})" if len(inside) == 1 else None
    if len(through) > MOST_CHIPS:
        names = listing([name for _, name in through], MOST_NAMED)
        return [node("span", count(len(through), "region"), title=names, class_="rx-quiet")], tint
    chips = [
        chip(number, title=clean(name, SHORT), style=None if (number, name) in inside else "background:none")
        for number, name in through
    ]
    return chips, tint
