"""Writes a scene in the DOT language: boxes, edges, legend, and regions as coloured clusters.

Everything that reaches the DOT text was cleaned in the scene; here it is quoted. Node ids are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from regional_explorer.render.picture.scene import Box, BoxGroup, Look, Scene, Section
from regional_explorer.render.picture.text_size import box_size
from regional_explorer.render.style.palette import LIGHT, paint

FONT = "Helvetica,Arial,sans-serif"
POINTS_PER_INCH = 72


def scene_dot(scene: Scene, *, legend: bool = True) -> str:
    """Return the DOT text of ``scene``, with or without the legend that explains colours and signs."""
    return "\n".join(
        ["digraph regional_explorer {", *(f"  {line}" for line in dot_lines(scene, legend=legend)), "}", ""]
    )


def dot_lines(scene: Scene, *, legend: bool = True) -> Iterator[str]:
    """Yield the statements of the DOT text, without the braces around them."""
    font = quoted(FONT)
    yield f"graph [fontname={font} fontsize=10 bgcolor={quoted(LIGHT.paper)} nodesep=0.12 ranksep=0.17 pad=0.1]"
    yield f"graph [tooltip={quoted(scene.title)} labelloc=b]"
    yield f"node [fontname={font} fontsize=10 fontcolor={quoted(LIGHT.ink)} margin={quoted('0.06,0.02')} height=0.22]"
    yield (
        f"node [shape=box style={quoted('rounded,filled')} color={quoted(LIGHT.edge)} fillcolor={quoted(LIGHT.box)}"
        " penwidth=0.7]"
    )
    yield f"edge [color={quoted(LIGHT.edge)} arrowsize=0.4 penwidth=0.8]"
    if legend and (scene.entries or scene.marks):
        yield f"label=<{_legend_table(scene)}>"
    for section in scene.sections:
        yield from _section_statements(section)


def quoted(text: str) -> str:
    """Return ``text`` as a quoted DOT string that shows exactly ``text``."""
    # Graphviz interprets entities and backslash escapes inside quotes: both are escaped, to be taken literally.
    literal = text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{literal}"'.replace("\n", "\\n")


def _section_statements(section: Section) -> Iterator[str]:
    yield f"subgraph cluster_{section.id} {{"
    yield f"  label={quoted(section.title)} labeljust=l labelloc=t peripheries=0 fontsize=11"
    yield f"  fontcolor={quoted(LIGHT.quiet)}"
    grouped = {box for group in section.groups for box in group.boxes}
    boxes = {box.id: box for box in section.boxes}
    yield from (f"  {_box_statement(box)}" for box in section.boxes if box.id not in grouped)
    for group in section.groups:
        yield from (f"  {line}" for line in _cluster_statements(group, boxes))
    yield from (f"  {tail} -> {head}" for tail, head in section.edges)
    yield "}"


def _cluster_statements(group: BoxGroup, boxes: dict[str, Box]) -> Iterator[str]:
    colours = paint(group.region)
    stroke = LIGHT.bad if group.failed else colours.light.stroke
    yield f"subgraph cluster_{group.id} {{"
    yield f"  label={quoted(group.title)} labeljust=l labelloc=t fontsize=10 margin=6"
    yield f"  tooltip={quoted(group.tooltip or group.title)}"
    yield (
        f"  style={quoted('rounded,filled,' + colours.line)} color={quoted(stroke)}"
        f" fillcolor={quoted(colours.light.fill)} fontcolor={quoted(LIGHT.bad if group.failed else colours.light.text)}"
    )
    yield from (f"  {_box_statement(boxes[box_id])}" for box_id in group.boxes)
    yield "}"


def _box_statement(box: Box) -> str:
    width, height = (side / POINTS_PER_INCH for side in box_size(box))
    title = " ".join(filter(None, (box.title, " ".join(box.marks))))
    attrs = {
        "label": quoted(f"{title}\n{box.detail}" if box.detail else title),
        "tooltip": quoted(box.tooltip or title),
    }
    attrs |= {"width": f"{width:.2f}", "height": f"{height:.2f}"}
    if box.region is not None:
        tone = paint(box.region).light
        attrs |= {
            "color": quoted(tone.stroke),
            "fillcolor": quoted(tone.fill if box.look is Look.PIECE else LIGHT.paper),
        }
        attrs |= {"fontcolor": quoted(tone.text)}
    if box.look is Look.VIEW:
        attrs |= {"fontsize": "8", "margin": quoted("0.04,0"), "penwidth": "0.4"}
    if box.look is Look.INPUT:
        attrs |= {"shape": "plaintext", "margin": quoted("0"), "style": quoted(""), "fontcolor": quoted(LIGHT.quiet)}
    if box.look is Look.BAD or box.failed:
        attrs |= {"color": quoted(LIGHT.bad), "fontcolor": quoted(LIGHT.bad)}
    return f"{box.id} [{' '.join(f'{key}={value}' for key, value in attrs.items())}]"


def _legend_table(scene: Scene) -> str:
    rows = []
    for entry in scene.entries:
        colours = paint(entry.region)
        cell = f'<td bgcolor="{colours.light.fill}" color="{colours.light.stroke}" border="1">{colours.letter}</td>'
        text = escape(entry.text)
        rows.append(f'<tr>{cell}<td align="left"><font color="{colours.light.text}">{text}</font></td></tr>')
    if scene.marks:
        text = escape("    ".join(f"{badge} {badge.meaning}" for badge in scene.marks))
        rows.append(f'<tr><td></td><td align="left"><font color="{LIGHT.quiet}">{text}</font></td></tr>')
    return f'<table border="0" cellborder="0" cellspacing="3">{"".join(rows)}</table>'
