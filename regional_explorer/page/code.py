"""Generated code, its differences, and the stages on the way to it, as elements, HTML and text."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from regional_explorer.errors import count, listing, sendable
from regional_explorer.page.panes import Rows
from regional_explorer.picture.folds import outline, pieces
from regional_explorer.picture.layout import LegendEntry, place
from regional_explorer.picture.open_folds import SectionBuilder, scene_of, shown_folds
from regional_explorer.picture.svg import draw, picture_html
from regional_explorer.record.artifact import BENCHMARK_START, ArtifactCode, CodeDiff
from regional_explorer.record.gpu_targets import GPU_TARGETS
from regional_explorer.record.graph import Graph, GraphKind
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import Plan, Region, Selector, SelectorKind
from regional_explorer.record.region_code import LinkedKernel, PartitionCode, grouped_by_artifact, total_coverage
from regional_explorer.record.session import Session
from regional_explorer.record.stages import PartitionStages, Stage
from regional_explorer.style.css import PAGE, page_css, toned
from regional_explorer.style.element import (
    LONG,
    LONG_TEXT,
    SHORT,
    Node,
    clean,
    clean_page,
    markup,
    node,
    style_sheet,
    to_html,
    verbatim,
)
from regional_explorer.style.formats import NONE, size
from regional_explorer.tables.code import bound_text, kernels_table, patterns_note, resource_texts, stages_table

LONG_KERNEL = 80
"""A kernel with more lines is folded."""
LONGEST_LINE = 2_000
"""The maximum number of characters shown of one line."""

_CALLS_START = re.compile(r"\s*(class Runner|def call\(|async_compile\.wait)")


@dataclass(frozen=True, slots=True)
class CodeSection:
    """Lines ``first`` to ``last`` of the code, counted from 1; ``kernels`` are the numbers of kernels defined there.

    ``language`` is the language of its lines, as Pygments names it.
    """

    title: str
    first: int
    last: int
    folded: bool
    kernels: tuple[int, ...] = ()
    language: str = "python"

    @property
    def lines(self) -> int:
        """The number of lines."""
        return self.last - self.first + 1


def sections(code: ArtifactCode) -> tuple[CodeSection, ...]:
    """Return the sections of ``code``, in order, every line in one of them."""
    lines = code.text.splitlines()
    return tuple(section for section in _split_sections(code, lines) if section.lines > 0)


def shown_lines(lines: Iterable[str]) -> list[str]:
    """Return lines of code, each cleaned and cut by itself, so that it stays one line."""
    return [clean_page(line, LONGEST_LINE).replace("\n", " ") for line in lines]


def _split_sections(code: ArtifactCode, lines: list[str]) -> Iterator[CodeSection]:
    numbers_by_span = grouped(
        (kernel.defined, number) for number, kernel in enumerate(code.kernels, 1) if kernel.defined is not None
    )
    end = 0
    for (first, last), numbers in sorted(numbers_by_span.items()):
        if not end or first > end + 1:
            yield CodeSection("Imports and settings" if not end else "Between kernels", end + 1, first - 1, folded=True)
        name, language = code.kernels[numbers[0] - 1].name, "cpp" if code.language == "C++" else "python"
        yield CodeSection(name, first, last, last - first >= LONG_KERNEL, tuple(numbers), language)
        end = last
    calls = _first_match(_CALLS_START, lines, end)
    yield CodeSection("Between kernels" if end else "Imports and settings", end + 1, calls, folded=True)
    harness = _first_match(BENCHMARK_START, lines, calls)
    yield CodeSection("The calls, in order", calls + 1, harness, folded=False)
    yield CodeSection("Inductor's own benchmark", harness + 1, len(lines), folded=True)


def _first_match(pattern: re.Pattern[str], lines: list[str], start: int) -> int:
    """Return the index of the first matching line from ``start`` on; the number of lines if there is none."""
    return next((index for index in range(start, len(lines)) if pattern.match(lines[index])), len(lines))


Tokens = list[tuple[str, str]]
"""The tokens of one line, each a letter (``c`` comment, ``k`` keyword, ``s`` string, ``m`` number) and a text."""
MOST_COLOURED = 100_000
"""The maximum number of characters of a partition's code with coloured tokens; longer code has no colours."""
TOKEN_CSS = (
    f".{PAGE}.{PAGE} :is(code,.rx-code)"
    "{.c{color:var(--rx-quiet)}.k{font-weight:600}.s{color:var(--rx-good)}.m{color:var(--rx-warn)}}"
)
"""The colours of tokens; their letters are the classes of elements inside ``code``."""


def tokens_by_line(lines: Sequence[str], language: str) -> list[Tokens]:
    """Return the tokens of each line of code; without Pygments each line is one token."""
    plain: list[Tokens] = [[("", line)] for line in lines]
    try:
        from pygments.lexers import get_lexer_by_name
    except ImportError:
        return plain
    lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    token_lines: list[Tokens] = [[]]
    for kind, text in lexer.get_tokens("\n".join(lines)):
        first_line, *other_lines = text.split("\n")
        token_lines[-1].append((_token_letter(kind), first_line))
        token_lines += [[(_token_letter(kind), line)] for line in other_lines]
    return token_lines if len(token_lines) == len(lines) else plain


def _token_letter(kind: Any) -> str:
    """Return the letter of a kind of token of Pygments, such as ``Token.Literal.String.Double``."""
    name = str(kind)
    letters = {"Token.Comment": "c", "Token.Keyword": "k", "Token.Literal.String": "s", "Token.Literal.Number": "m"}
    return next((letter for prefix, letter in letters.items() if name.startswith(prefix)), "")


CODE_LIMIT = 3_000
"""The maximum number of lines shown of a partition's code; ``ex.code`` has all lines."""
MOST_LISTED = 6


_Rows = dict[str, tuple[tuple[str, ...], tuple[str, ...]]]


def code_pane(codes: Sequence[PartitionCode]) -> tuple[list[Node], Rows]:
    """Return the code of a region's partitions as elements, and the nodes of each row by the row's key.

    Equal code is shown once, linked to the nodes of all its partitions.
    """
    if not codes:
        return [], {}
    rows: _Rows = {}
    blocks = [*_source_rows(codes, rows)]
    for number, equal in enumerate(grouped_by_artifact(codes)):
        blocks += _code_rows(number, equal, rows)
    coverage = node("p", f"{total_coverage([code.coverage for code in codes])}.", class_="rx-quiet")
    listed = node("div", style_sheet(TOKEN_CSS), *blocks, coverage, class_="rx rxs-list rxs-code", role="listbox")
    listed[1] |= {"aria-multiselectable": "true", "aria-label": "Kernels and code"}
    return [listed], rows


def _source_rows(codes: Sequence[PartitionCode], rows: _Rows) -> Iterator[Node]:
    """Yield the source lines that the kernels come from, each with all of its nodes in the partitions."""
    nodes_by_line = grouped(
        (graph_node.source, _node_id(code, graph_node.name))
        for code in codes
        for graph_node in code.nodes
        if graph_node.source is not None
    )
    if not nodes_by_line:
        return
    yield node("h4", "Source")
    for number, line in enumerate(sorted(nodes_by_line, key=lambda line: (line.file, line.line))):
        rows[f"s{number}"] = (), tuple(nodes_by_line[line])
        yield _pickable_row(
            f"s{number}",
            node("span", str(line.line), class_="rxs-number", title=line.numbered),
            verbatim("code", clean(line.text, LONG)),
            class_="rxs-line rxs-from",
        )


def _code_rows(number: int, equal: Sequence[PartitionCode], rows: _Rows) -> Iterator[Node]:
    first = equal[0]
    target = GPU_TARGETS.get(first.code.target)
    more = f" and {count(len(equal) - 1, 'equal partition')}" if len(equal) > 1 else ""
    where = f" for {target.title}, not run" if target else ""
    yield node("h4", f"{first.partition.id}{more}{where}")
    if first.code.problem:
        yield node("p", toned(first.code.problem, "warn"))
    if matched := patterns_note(first.code):
        yield node("p", matched, class_="rx-quiet")
    for linked in first.kernels:
        rows[f"k{number}.{linked.number}"] = (), _nodes_of((linked,), equal)
        yield _kernel_row(f"k{number}.{linked.number}", linked, first)
    yield from _panel_sections(number, equal, rows)


def _nodes_of(kernels: Sequence[LinkedKernel], equal: Sequence[PartitionCode]) -> tuple[str, ...]:
    """Return the nodes of kernels, in all partitions that have the same code."""
    indexes = [linked.number - 1 for linked in kernels]
    nodes = ((code, graph_node) for code in equal for index in indexes for graph_node in code.kernels[index].nodes)
    return tuple(dict.fromkeys(_node_id(code, graph_node.name) for code, graph_node in nodes))


def _kernel_row(key: str, linked: LinkedKernel, code: PartitionCode) -> Node:
    """Return the row of a kernel: its kind, ops, bytes read and written, GPU resources and source lines."""
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


def _panel_sections(number: int, equal: Sequence[PartitionCode], rows: _Rows) -> Iterator[Node]:
    lines = equal[0].text.splitlines()

    def row(kernels: Sequence[LinkedKernel], element: Node) -> Node:
        key = f"c{number}.{'+'.join(str(linked.number) for linked in kernels)}"
        rows[key] = _nodes_of(kernels, equal), ()
        return _pickable_row(key, element, class_="rxs-line rxs-text")

    for summary, elements, opened in section_rows(equal[0], lines[:CODE_LIMIT], row):
        yield node("details", summary, *elements, open=opened)
    if len(lines) > CODE_LIMIT:
        yield node(
            "p", f"The code goes on for {count(len(lines) - CODE_LIMIT, 'line')}: see ex.code.", class_="rx-quiet"
        )


def section_rows(
    code: PartitionCode, lines: Iterable[str], row: Callable[[Sequence[LinkedKernel], Node], Node]
) -> Iterator[tuple[Node, list[Node], bool]]:
    """Yield the summary and the elements of each section of ``lines``, and whether it is open.

    ``row`` returns the element of lines that define or call kernels; other lines are a plain ``code`` element.
    """
    shown = shown_lines(lines)
    coloured = len(code.text) <= MOST_COLOURED
    called_at = {linked.kernel.called: [linked] for linked in code.kernels if linked.kernel.called is not None}
    for section in sections(code.code):
        section_lines = shown[section.first - 1 : section.last]
        if not section_lines:
            break
        tokens = (
            tokens_by_line(section_lines, section.language) if coloured else [[("", line)] for line in section_lines]
        )
        defined = [code.kernels[number - 1] for number in section.kernels]
        kind = f" · {defined[0].kernel.kind}" if defined else ""
        size_text = node("span", f"{kind} · {count(section.lines, 'line')}", class_="rx-quiet")
        runs = groupby(enumerate(tokens, section.first), lambda line: line[0] if line[0] in called_at else None)
        parts = [(called_at[number] if number else [], [row for _, row in run]) for number, run in runs]
        elements = [
            row(kernels, code_element(part)) if kernels else code_element(part)
            for kernels, part in ([(defined, tokens)] if defined else parts)
        ]
        yield node("summary", node("b", section.title), size_text), elements, not section.folded


def code_element(rows: Sequence[Tokens]) -> Node:
    """Return lines of code as one element; adjacent tokens of the same kind are merged."""
    tokens = (token for row in rows for token in (*row, ("", "\n")))
    merged = ((kind, "".join(text for _, text in run)) for kind, run in groupby(tokens, lambda token: token[0]))
    inside = [verbatim("span", text, class_=kind) if kind else sendable(text) for kind, text in merged]
    return [*node("code"), *inside]


def _pickable_row(key: str, *children: Node | None, class_: str) -> Node:
    return node("div", *children, class_=class_, role="option", tabindex="-1", data_do="nodes", data_of=key)


def _node_id(code: PartitionCode, name: str) -> str:
    return sendable(f"{code.partition.graph}:{name}")


MOST_TEXT = 400_000
"""The maximum number of characters shown of a partition's code."""


def not_compiled(region: str) -> str:
    """Return the text for a region without code."""
    name = clean(repr(region))
    return f"The code of region {name} is not known: the region is not compiled, or ex.code({name}) was not called."


def code_text(region: str, codes: Sequence[PartitionCode], note: str = "") -> str:
    """Return the kernels, source lines and code of each partition of a region; equal code is printed once."""
    return "\n\n".join(filter(None, [note, *_partition_texts(codes)])) if codes else not_compiled(region)


def cut_note(code: PartitionCode) -> str:
    """Return the note below code that is cut off; empty if all code is shown."""
    more = len(code.text) - MOST_TEXT
    return f"The code goes on for {more:,} characters: see .text of this partition." if more > 0 else ""


def _partition_texts(codes: Sequence[PartitionCode]) -> Iterator[str]:
    for first, *equal in grouped_by_artifact(codes):
        lines = dict.fromkeys(f"# from {line}: {clean(line.text)}" for code in (first, *equal) for line in code.source)
        equal_note = f"\n# {equal_code(equal)}" if equal else ""
        note = f"\n# {cut_note(first)}" if cut_note(first) else ""
        heading = f"# {'=' * 100}\n{kernels_table([first]).text()}{equal_note}"
        yield "\n\n".join((heading, "\n".join(lines), f"{first.text[:MOST_TEXT]}{note}"))


def equal_code(equal: Sequence[PartitionCode]) -> str:
    """Return the text for partitions whose code is shown above."""
    names = listing([code.partition.id for code in equal])
    return f"The code of {count(len(equal), 'more partition')} is the same: {names}."


CODE_CSS = (
    "% .rx-code{font:12px/1.5 var(--jp-code-font-family,ui-monospace,monospace);margin:0;padding:6px 8px;"
    "overflow-x:auto;white-space:pre;background:var(--rx-box);color:var(--rx-ink);border-radius:4px;tab-size:4}"
    "% .rx-code>code{display:block;font:inherit}% .rx-code [data-kernels]{box-shadow:-3px 0 0 var(--rx-line)}"
).replace("%", f".{PAGE}" * 2) + TOKEN_CSS


def code_html(region: str, codes: Sequence[PartitionCode], note: str = "") -> str:
    """Return the kernels and the code of each partition as one fragment; equal code is shown once."""
    parts = [*code_parts(codes)] or [node("p", not_compiled(region), class_="rx-empty")]
    noted = [node("p", note, class_="rx-note")] if note else []
    return to_html(node("div", style_sheet(page_css() + CODE_CSS), *noted, *parts, class_=PAGE))


def code_parts(codes: Sequence[PartitionCode], named: Callable[[str], str] = sendable) -> Iterator[Node]:
    """Yield the kernels and code of each partition, code that is equal once; ``named`` gives a node's name."""
    for first, *equal in grouped_by_artifact(codes):
        yield from kernels_table([first]).elements()
        if equal:
            tables = (part for code in equal for part in kernels_table([code]).elements())
            yield node("details", node("summary", equal_code(equal)), *tables)

        def row(kernels: Sequence[LinkedKernel], element: Node, code: PartitionCode = first) -> Node:
            nodes = " ".join(named(_node_id(code, part.name)) for linked in kernels for part in linked.nodes)
            element[1]["data-kernels"] = " ".join(str(linked.number) for linked in kernels)
            element[1] |= {"data-nodes": nodes} if nodes else {}
            return element

        for summary, rows, opened in section_rows(first, first.text[:MOST_TEXT].splitlines(), row):
            yield node("details", summary, node("div", *rows, class_="rx-code", tabindex="0"), open=opened)
        if note := cut_note(first):
            yield node("p", note, class_="rx-note")


DIFF_LIMIT = 4_000
"""The maximum number of lines shown of a diff."""

_LINE_CLASSES = {"+": "rx-good", "-": "rx-bad", "@": "rx-quiet"}


def diff_text(region: str, diffs: Sequence[CodeDiff]) -> str:
    """Return how many kernels of each partition are the same, changed, new or gone, and the changed lines."""
    return f"{_diff_summary(region, diffs)}\n\n" + "\n\n".join(
        f"{_diff_head(diff)}\n{diff.unified}".rstrip() for diff in diffs
    )


def diff_html(region: str, diffs: Sequence[CodeDiff]) -> str:
    """Return the differences as an HTML fragment with changed lines coloured."""
    parts = [part for diff in diffs for part in (node("h4", _diff_head(diff)), *_diff_lines(diff))]
    summary = node("p", _diff_summary(region, diffs))
    return to_html(node("div", style_sheet(page_css() + CODE_CSS), summary, *parts, class_=PAGE))


def _diff_summary(region: str, diffs: Sequence[CodeDiff]) -> str:
    name, compared = clean(repr(region)), [diff for diff in diffs if diff.complete]
    if not compared:
        return f"Region {name} has no partition whose code is known on both sides."
    changed, missing = sum(not diff.same for diff in compared), len(diffs) - len(compared)
    result = (
        f"The code of {changed} of {len(compared)} partitions of region {name} changed."
        if changed
        else f"Nothing changed in region {name}: the generated code is the same."
    )
    return f"{result} {count(missing, 'more partition')} had no code on one side." if missing else result


def _diff_head(diff: CodeDiff) -> str:
    if diff.problem:
        return f"{diff.partition}: {diff.problem}"
    return f"{diff.partition}: the code is the same" if diff.same else f"{diff.partition}: kernels: {diff.counted}"


def _diff_lines(diff: CodeDiff) -> Iterator[Node]:
    lines = diff.unified.splitlines()
    if not lines or diff.same:
        return
    shown = shown_lines(lines[:DIFF_LIMIT])
    yield node("div", code_element([[(_LINE_CLASSES.get(line[:1], ""), line)] for line in shown]), class_="rx-code")
    if len(lines) > DIFF_LIMIT:
        yield node("p", f"… {len(lines) - DIFF_LIMIT:,} more lines", class_="rx-note")


# --------------------------------------------------------------------------------------------------------------- stages

FOLLOWED_REGION = "followed"
MOST_OPEN_OPS = 400
"""A stage with more ops is drawn with its modules and functions closed."""
PICTURE_LIMIT_S = 2.0
"""Seconds for the layout of a picture; a simpler layout replaces it after that."""


def stage_svg(session: Session, stage: Stage, followed: Collection[str], title: str) -> str:
    """Return a picture of ``stage``; the nodes ``followed`` are coloured, and the legend calls them ``title``."""
    graph = Graph("stage", GraphKind.INFERENCE, 0, stage.nodes)
    region = Region(FOLLOWED_REGION, (Selector(SelectorKind.NODES, (FOLLOWED_REGION,)),))
    stage_session = replace(
        session,
        graphs=(graph,),
        breaks=(),
        plan=Plan((region,) if followed else ()),
        members={FOLLOWED_REGION: {graph.id: tuple(node.name for node in stage.ops if node.name in followed)}},
        partitions=(),
        diagnostics=(),
    )
    builder = SectionBuilder(stage_session, graph, pieces(stage_session, graph))
    folds = shown_folds(outline(graph, builder.pieces), everything=len(stage.ops) <= MOST_OPEN_OPS)
    section = builder.section("s0", folds)
    section = dataclasses.replace(section, title=f"{clean(stage.title, SHORT)} · {count(len(stage.ops), 'node')}")
    scene = dataclasses.replace(
        scene_of(stage_session, [section]),
        title=clean(stage.title, SHORT),
        entries=(LegendEntry(0, clean(title, SHORT), "", None),) if followed else (),
    )
    return draw(scene, place(scene, time_limit_s=PICTURE_LIMIT_S))


def stages_text(region: str, partitions: Sequence[PartitionStages], followed: Sequence[str], note: str = "") -> str:
    """Return the stages of a region as text: one table per distinct partition."""
    tables = [stages_table([partition], followed).text() for partition in partitions]
    return "\n\n".join(filter(None, [note, *tables])) or f"Region {region!r} has no partition."


def stages_html(
    session: Session, region: str, partitions: Sequence[PartitionStages], followed: Sequence[str], note: str = ""
) -> str:
    """Return the stages of each partition as HTML: a table, and below it one picture per stage."""
    note_html = f'<p class="rx-note">{markup(note, LONG_TEXT)}</p>' if note else ""
    content = "".join(_stage_fragments(session, partitions, followed))
    empty = "" if content else f'<p class="rx-empty">Region {markup(repr(region))} has no partition.</p>'
    return f'<div class="{PAGE}"><style>{page_css()}</style>{note_html}{content}{empty}</div>'


def _stage_fragments(session: Session, partitions: Sequence[PartitionStages], followed: Sequence[str]) -> Iterator[str]:
    for partition in partitions:
        yield to_html(*stages_table([partition], followed).elements())
        followed_ops = partition.followed(followed)
        for stage in partition.stages:
            svg = stage_svg(session, stage, followed_ops[stage.kind], ", ".join(followed))
            change = f"<span class='rx-quiet'> · {markup(str(stage.change), LONG_TEXT)}</span>" if stage.change else ""
            yield f"<details open><summary>{markup(stage.title)}{change}</summary>{picture_html(svg)}</details>"
