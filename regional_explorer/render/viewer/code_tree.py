"""The generated code of a region as an element tree: source lines, kernels and code, as rows linked to nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from regional_explorer.errors.texts import count, listing, sendable
from regional_explorer.record.gpu_targets import GPU_TARGETS
from regional_explorer.record.graph import SourceLine
from regional_explorer.record.region_code import LinkedKernel, PartitionCode, by_artifact, total_coverage
from regional_explorer.render.report.code_sections import CodeSection, sections, shown_lines
from regional_explorer.render.report.gpu_figures import bound_text, resource_texts
from regional_explorer.render.report.tokens import MOST_COLOURED, TOKEN_CSS, Tokens, tokens_by_line
from regional_explorer.render.style.css import page_css
from regional_explorer.render.style.element import Node, node, style_sheet, verbatim
from regional_explorer.render.style.formats import NONE, size
from regional_explorer.render.style.tones import toned
from regional_explorer.render.style.untrusted import LONG, clean
from regional_explorer.render.viewer.source_tree import LIVE_REGION

CODE_LIMIT = 3_000
"""How many lines of one partition's code are shown at most; ``ex.code`` has all."""
MOST_LISTED = 6


@dataclass(frozen=True)
class CodeRows:
    """The elements of a region's code, and the nodes of each row, as ``graph:name``, by the row's key."""

    tree: list[Node]
    nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def code_rows(codes: Sequence[PartitionCode]) -> CodeRows:
    """Return the code of a region's partitions; partitions of equal code are shown once, linked to the nodes of all."""
    if not codes:
        return CodeRows([LIVE_REGION])
    row_nodes: dict[str, tuple[str, ...]] = {}
    blocks = [*_source_rows(codes, row_nodes)]
    for number, equal in enumerate(by_artifact(codes)):
        blocks += _code_block(number, equal, row_nodes)
    coverage = node("p", f"{total_coverage([code.coverage for code in codes])}.", class_="rx-quiet")
    listed = node(
        "div", style_sheet(page_css() + TOKEN_CSS), *blocks, coverage, class_="rx rxs-list rxs-code", role="listbox"
    )
    listed[1] |= {"aria-multiselectable": "true", "aria-label": "Kernels and code"}
    return CodeRows([listed, LIVE_REGION], row_nodes)


def _source_rows(codes: Sequence[PartitionCode], row_nodes: dict[str, tuple[str, ...]]) -> Iterator[Node]:
    """Yield the source lines that the kernels come from, each with all its nodes among the partitions."""
    nodes_by_line: dict[SourceLine, list[str]] = {}
    for code in codes:
        for graph_node in code.nodes:
            if graph_node.source is not None:
                nodes_by_line.setdefault(graph_node.source, []).append(_node_id(code, graph_node.name))
    if not nodes_by_line:
        return
    yield node("h4", "Source")
    for number, line in enumerate(sorted(nodes_by_line, key=lambda line: (line.file, line.line))):
        row_nodes[f"s{number}"] = tuple(dict.fromkeys(nodes_by_line[line]))
        yield _pickable_row(
            f"s{number}",
            node("span", str(line.line), class_="rxs-number", title=line.numbered),
            verbatim("code", clean(line.text, LONG)),
            class_="rxs-line rxs-from",
        )


def _code_block(number: int, equal: Sequence[PartitionCode], row_nodes: dict[str, tuple[str, ...]]) -> Iterator[Node]:
    first = equal[0]
    target = GPU_TARGETS.get(first.code.target)
    more = f" and {count(len(equal) - 1, 'equal partition')}" if len(equal) > 1 else ""
    where = f" for {target.title}, not run" if target else ""
    yield node("h4", f"{first.partition.id}{more}{where}")
    if first.code.problem:
        yield node("p", toned(first.code.problem, "warn"))
    for linked in first.kernels:
        index = linked.number - 1
        ids = (_node_id(code, graph_node.name) for code in equal for graph_node in code.kernels[index].nodes)
        row_nodes[f"k{number}.{linked.number}"] = row_nodes[f"c{number}.{linked.number}"] = tuple(dict.fromkeys(ids))
        yield _kernel_row(f"k{number}.{linked.number}", linked, first)
    yield from _section_folds(number, first)


def _kernel_row(key: str, linked: LinkedKernel, code: PartitionCode) -> Node:
    """Return the row of a kernel: its kind, ops, bytes read and written, GPU resources, and source lines."""
    kernel = linked.kernel
    target = GPU_TARGETS.get(code.code.target)
    bound = target.bound_s(kernel.bytes_moved, kernel.operations, kernel.dtype) if target else None
    resources = resource_texts(kernel.gpu) if kernel.gpu else {}
    facts = [
        str(kernel.kind),
        f"reads {size(kernel.bytes_read)}" if kernel.bytes_read is not None else "",
        f"writes {size(kernel.bytes_written)}" if kernel.bytes_written is not None else "",
        f"bound {bound_text(bound)}" if bound is not None else "",
        *(f"{name} {text}" for name, text in resources.items() if text not in {"", NONE, "0 B"}),
        f"lines {listing([str(line.line) for line in linked.lines], MOST_LISTED)}" if linked.lines else "",
    ]
    return _pickable_row(
        key,
        node("div", node("b", f"{linked.number} {kernel.name}")),
        node("div", listing(kernel.ops, MOST_LISTED)) if kernel.ops else None,
        node("div", " · ".join(filter(None, facts)), class_="rx-quiet"),
        class_="rxs-line rxs-kernel",
    )


def _section_folds(number: int, code: PartitionCode) -> Iterator[Node]:
    all_lines = code.text.splitlines()
    lines = shown_lines(all_lines[:CODE_LIMIT])
    called_at = {linked.kernel.called: linked for linked in code.kernels if linked.kernel.called is not None}
    for section in sections(code.code):
        section_lines = lines[section.first - 1 : section.last]
        if not section_lines:
            break
        coloured = len(code.text) <= MOST_COLOURED
        rows = tokens_by_line(section_lines, section.language) if coloured else [[("", line)] for line in section_lines]
        kind = f" · {code.kernels[section.kernels[0] - 1].kernel.kind}" if section.kernels else ""
        summary = node("summary", node("b", section.title), node("span", f"{kind} · {count(section.lines, 'line')}"))
        children = _section_rows(number, section, rows, called_at)
        yield node("details", summary, *children, open=not section.folded)
    if len(all_lines) > CODE_LIMIT:
        yield node(
            "p", f"The code goes on for {count(len(all_lines) - CODE_LIMIT, 'line')}: see ex.code.", class_="rx-quiet"
        )


def _section_rows(
    number: int, section: CodeSection, rows: Sequence[Tokens], called_at: Mapping[int, LinkedKernel]
) -> Iterator[Node]:
    if section.kernels:
        yield _pickable_row(f"c{number}.{section.kernels[0]}", _code_element(rows), class_="rxs-line rxs-text")
        return
    unlinked: list[Tokens] = []
    for line, row in enumerate(rows, section.first):
        if line in called_at:
            if unlinked:
                yield _code_element(unlinked)
            unlinked = []
            yield _pickable_row(f"c{number}.{called_at[line].number}", _code_element([row]), class_="rxs-line rxs-text")
        else:
            unlinked.append(row)
    if unlinked:
        yield _code_element(unlinked)


def _code_element(rows: Sequence[Tokens]) -> Node:
    """Return lines of code as one element; adjacent tokens of the same kind are merged."""
    merged: list[tuple[str, str]] = []
    for row in rows:
        for kind, text in [*row, ("", "\n")]:
            if merged and merged[-1][0] == kind:
                merged[-1] = (kind, merged[-1][1] + text)
            else:
                merged.append((kind, text))
    inside = [verbatim("span", text, class_=kind) if kind else sendable(text) for kind, text in merged]
    return [*node("code"), *inside]


def _pickable_row(key: str, *children: Node | None, class_: str) -> Node:
    return node("div", *children, class_=class_, role="option", tabindex="-1", data_do="pick", data_of=key)


def _node_id(code: PartitionCode, name: str) -> str:
    return sendable(f"{code.partition.graph}:{name}")
