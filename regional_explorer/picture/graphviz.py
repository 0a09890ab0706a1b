"""A picture as DOT text, and a child process that lays it out within a time limit."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html import escape

from regional_explorer.picture.scene import Box, BoxGroup, Look, Scene, Section, box_size
from regional_explorer.style.css import LIGHT, paint

LAYOUT_LIMIT_S = 10.0
"""The default time limit of a layout, in seconds."""
MOST_DRAWINGS = 16
"""The number of cached drawings; the same text is not laid out twice."""

_CHILD = """
import sys, pygraphviz
graph = pygraphviz.AGraph(string=sys.stdin.buffer.read().decode())
sys.stdout.buffer.write(graph.draw(format=sys.argv[1], prog="dot"))
"""
"""The child's program: lay out DOT from stdin and write it to stdout, in the format named by its argument."""


def graphviz(
    dot: str,
    form: str,
    *,
    time_limit_s: float = LAYOUT_LIMIT_S,
    command: tuple[str, ...] | None = None,
) -> bytes | None:
    """Return ``dot`` laid out and written as ``form``; None if the layout fails or takes too long.

    The libraries of pygraphviz are used; without pygraphviz, an installed ``dot`` executable.

    Args:
        dot: Text in the DOT language.
        form: An output format of Graphviz, such as ``svg`` or ``json0``.
        time_limit_s: The child is ended after this many seconds.
        command: The command to run; by default the result of ``layout_command``.
    """
    command = command or layout_command(form)
    if command is None:
        return None
    try:
        return _drawing(command, dot, time_limit_s) or None
    except (OSError, subprocess.SubprocessError):
        return None


@functools.lru_cache(MOST_DRAWINGS)
def _drawing(command: tuple[str, ...], dot: str, time_limit_s: float) -> bytes:
    # Our own interpreter or `dot`; the DOT text goes through stdin.
    done = subprocess.run(command, input=dot.encode(), capture_output=True, check=True, timeout=time_limit_s)  # noqa: S603
    return done.stdout


def layout_command(form: str) -> tuple[str, ...] | None:
    """Return the command that lays out and writes as ``form``; None if neither pygraphviz nor dot is installed."""
    if sys.executable and importlib.util.find_spec("pygraphviz"):
        # -P keeps the current folder off the child's path: its modules could shadow those of the standard library.
        return (sys.executable, "-P", "-c", _CHILD, form)
    dot = shutil.which("dot")
    return (dot, f"-T{form}") if dot else None


FONT = "Helvetica,Arial,sans-serif"
POINTS_PER_INCH = 72


def scene_dot(scene: Scene) -> str:
    """Return the DOT text of ``scene`` for its layout, without a legend."""
    lines = (f"  {line}" for line in dot_lines(scene, legend=False))
    return "\n".join(["digraph regional_explorer {", *lines, "}", ""])


def dot_lines(scene: Scene, *, legend: bool) -> Iterator[str]:
    """Yield the statements of the DOT text, with or without the legend that explains colours and signs."""
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
            "fontcolor": quoted(tone.text),
        }
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
