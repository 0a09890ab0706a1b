"""The generated code of a region as an element tree: source lines, kernels and code, as rows linked to nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from regional_explorer.errors.texts import count, listing
from regional_explorer.record.gpu_targets import GPU_TARGETS
from regional_explorer.record.graph import SourceLine
from regional_explorer.record.region_code import LinkedKernel, PartitionCode, by_artifact, total_coverage
from regional_explorer.render.report.code_sections import CodeSection, sections
from regional_explorer.render.report.tokens import Tokens, tokens_by_line
from regional_explorer.render.style.css import page_css
from regional_explorer.render.style.element import Node, node, style_sheet, verbatim
from regional_explorer.render.style.formats import duration, size
from regional_explorer.render.style.tones import toned
from regional_explorer.render.style.untrusted import LONG, clean, clean_page, sendable
from regional_explorer.render.viewer.source_tree import LIVE_REGION

MOST_LINES = 3_000
"""How many lines of one partition's code are shown at most; ``ex.code`` has all."""
MOST_COLOURED = 1_500
"""Longer code is shown without colours."""
MOST_LISTED = 6
MOST_WIDE = 400
"""How many characters of one line are shown at most."""


@dataclass(frozen=True)
class CodeRows:
    """The elements of a region's code, and the nodes of each row, as ``graph:name``, by the row's key."""

    tree: list[Node]
    nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def code_rows(parts: Sequence[PartitionCode]) -> CodeRows:
    """Return the code of a region's partitions; partitions of equal code are shown once, linked to the nodes of all."""
    if not parts:
        return CodeRows([LIVE_REGION])
    nodes: dict[str, tuple[str, ...]] = {}
    blocks = [*_source_lines(parts, nodes)]
    for number, alike in enumerate(by_artifact(parts)):
        blocks += _partition(number, alike, nodes)
    coverage = node("p", f"{total_coverage([part.coverage for part in parts])}.", class_="rx-quiet")
    listed = node("div", style_sheet(page_css(())), *blocks, coverage, class_="rx rxs-list rxs-code", role="listbox")
    listed[1] |= {"aria-multiselectable": "true", "aria-label": "Kernels and code"}
    return CodeRows([listed, LIVE_REGION], nodes)


def _source_lines(parts: Sequence[PartitionCode], nodes: dict[str, tuple[str, ...]]) -> Iterator[Node]:
    """Yield the source lines that the kernels come from, each with all its nodes among the partitions."""
    found: dict[SourceLine, list[str]] = {}
    for part in parts:
        for one in part.nodes:
            if one.source is not None:
                found.setdefault(one.source, []).append(_id(part, one.name))
    if not found:
        return
    yield node("h4", "Source")
    for number, line in enumerate(sorted(found, key=lambda line: (line.file, line.line))):
        nodes[f"s{number}"] = tuple(dict.fromkeys(found[line]))
        yield _row(
            f"s{number}",
            node("span", str(line.line), class_="rxs-number", title=line.numbered),
            verbatim("code", clean(line.text, LONG)),
            class_="rxs-line rxs-from",
        )


def _partition(number: int, alike: Sequence[PartitionCode], nodes: dict[str, tuple[str, ...]]) -> Iterator[Node]:
    part = alike[0]
    target = GPU_TARGETS.get(part.code.target)
    more = f" and {count(len(alike) - 1, 'equal partition')}" if len(alike) > 1 else ""
    where = f" for {target.title}, which is not here" if target else ""
    yield node("h4", f"{part.partition.id}{more}{where}")
    if part.code.problem:
        yield node("p", toned(part.code.problem, "warn"))
    for linked in part.kernels:
        place = linked.number - 1
        mine = (_id(one, name.name) for one in alike for name in one.kernels[place].nodes)
        nodes[f"k{number}.{linked.number}"] = nodes[f"c{number}.{linked.number}"] = tuple(dict.fromkeys(mine))
        yield _kernel(f"k{number}.{linked.number}", linked, part)
    yield from _code(number, part)


def _kernel(key: str, linked: LinkedKernel, part: PartitionCode) -> Node:
    """Return the row of a kernel: its kind, ops, bytes read and written, GPU resources, and source lines."""
    kernel = linked.kernel
    target = GPU_TARGETS.get(part.code.target)
    bound = target.bound_s(kernel.bytes_moved, kernel.operations, kernel.dtype) if target else None
    gpu = kernel.gpu
    facts = [
        str(kernel.kind),
        f"reads {size(kernel.bytes_read)}" if kernel.bytes_read is not None else "",
        f"writes {size(kernel.bytes_written)}" if kernel.bytes_written is not None else "",
        f"bound ≥ {duration(bound)}" if bound is not None else "",
        f"{gpu.registers} registers" if gpu and gpu.registers is not None else "",
        f"{gpu.spilled_bytes} bytes spilled" if gpu and gpu.spilled_bytes else "",
        f"{size(gpu.shared_bytes)} shared" if gpu and gpu.shared_bytes else "",
        f"occupancy {100 * gpu.occupancy:.0f} %" if gpu and gpu.occupancy is not None else "",
        gpu.launch if gpu else "",
        f"lines {listing([str(line.line) for line in linked.lines], MOST_LISTED)}" if linked.lines else "",
    ]
    return _row(
        key,
        node("div", node("b", f"{linked.number} {kernel.name}")),
        node("div", listing(kernel.ops, MOST_LISTED)) if kernel.ops else None,
        node("div", " · ".join(filter(None, facts)), class_="rx-quiet"),
        class_="rxs-line rxs-kernel",
    )


def _code(number: int, part: PartitionCode) -> Iterator[Node]:
    whole = part.text.splitlines()
    lines = [clean_page(line, MOST_WIDE).replace("\n", " ") for line in whole[:MOST_LINES]]
    called = {linked.kernel.called: linked for linked in part.kernels if linked.kernel.called is not None}
    for section in sections(part.code):
        shown = lines[section.first - 1 : section.last]
        if not shown:
            break
        coloured = not section.folded and len(whole) <= MOST_COLOURED
        rows = tokens_by_line(shown, section.language) if coloured else [[("", line)] for line in shown]
        kinds = f" · {part.kernels[section.kernels[0] - 1].kernel.kind}" if section.kernels else ""
        summary = node("summary", node("b", section.title), node("span", f"{kinds} · {count(section.lines, 'line')}"))
        inside = _section(number, section, rows, called)
        yield node("details", summary, *inside, open=not section.folded)
    if len(whole) > MOST_LINES:
        yield node(
            "p", f"The code goes on for {count(len(whole) - MOST_LINES, 'line')}: see ex.code.", class_="rx-quiet"
        )


def _section(
    number: int, section: CodeSection, rows: Sequence[Tokens], called: Mapping[int, LinkedKernel]
) -> Iterator[Node]:
    if section.kernels:
        yield _row(f"c{number}.{section.kernels[0]}", _text(rows), class_="rxs-line rxs-text")
        return
    plain: list[Tokens] = []
    for line, row in enumerate(rows, section.first):
        if line in called:
            if plain:
                yield _text(plain)
            plain = []
            yield _row(f"c{number}.{called[line].number}", _text([row]), class_="rxs-line rxs-text")
        else:
            plain.append(row)
    if plain:
        yield _text(plain)


def _text(rows: Sequence[Tokens]) -> Node:
    """Return lines of code as one element; adjacent tokens of the same kind are merged."""
    found: list[tuple[str, str]] = []
    for row in rows:
        for kind, text in [*row, ("", "\n")]:
            if found and found[-1][0] == kind:
                found[-1] = (kind, found[-1][1] + text)
            else:
                found.append((kind, text))
    inside = [verbatim("span", text, class_=f"rxs-{kind}") if kind else sendable(text) for kind, text in found]
    return [*node("code"), *inside]


def _row(key: str, *inside: Node | None, class_: str) -> Node:
    return node("div", *inside, class_=class_, role="option", tabindex="-1", data_do="pick", data_of=key)


def _id(part: PartitionCode, name: str) -> str:
    return sendable(f"{part.partition.graph}:{name}")
