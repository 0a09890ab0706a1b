"""The generated code of a region as HTML: kernels, then the highlighted code, with imports and similar folded.

Lines and rows carry ``data-kernels`` (numbers of kernels) and ``data-nodes`` (``graph:name``), for a page that links
them with graph and source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

from regional_explorer.record.region_code import LinkedKernel, PartitionCode, by_artifact
from regional_explorer.render.report.code_sections import sections
from regional_explorer.render.report.code_tables import kernels_table
from regional_explorer.render.report.code_text import MOST_TEXT, cut_note, equal_code, not_compiled
from regional_explorer.render.report.table_node import table_nodes
from regional_explorer.render.report.tokens import tokens_by_line
from regional_explorer.render.style.css import PAGE, page_css
from regional_explorer.render.style.element import to_html
from regional_explorer.render.style.untrusted import LONG_TEXT, clean_page, markup, sendable

MOST_HIGHLIGHTED = 100_000
"""Longer code is shown without colours."""

CODE_CSS = (
    "% .rx-code{font:12px/1.5 var(--jp-code-font-family,ui-monospace,monospace);margin:0;padding:6px 8px;"
    "overflow-x:auto;white-space:pre;background:var(--rx-box);color:var(--rx-ink);border-radius:4px;tab-size:4}"
    "% .rx-code .c{color:var(--rx-quiet)}% .rx-code .k{font-weight:600}"
    "% .rx-code .s{color:var(--rx-good)}% .rx-code .m{color:var(--rx-warn)}"
    "% .rx-code [data-kernels]{box-shadow:-3px 0 0 var(--rx-line)}"
).replace("%", f".{PAGE}" * 2)


def code_html(region: str, parts: Sequence[PartitionCode], note: str = "") -> str:
    """Return the kernels and the code of each partition as one fragment; equal code is shown once."""
    head = f'<p class="rx-note">{markup(note, LONG_TEXT)}</p>' if note else ""
    content = "".join(code_parts(parts)) or f'<p class="rx-empty">{markup(not_compiled(region))}</p>'
    return f'<div class="{PAGE}"><style>{page_css(())}{CODE_CSS}</style>{head}{content}</div>'


def code_parts(parts: Sequence[PartitionCode], named: Callable[[str], str] = sendable) -> Iterator[str]:
    """Yield the kernels and code of each partition, equal code once; ``named`` returns a node's name in the page."""
    for first, *others in by_artifact(parts):
        yield to_html(*table_nodes(kernels_table(first)))
        if others:
            tables = "".join(to_html(*table_nodes(kernels_table(part))) for part in others)
            yield f"<details><summary>{markup(equal_code(others))}</summary>{tables}</details>"
        yield partition_html(first, named)


def partition_html(part: PartitionCode, named: Callable[[str], str] = sendable) -> str:
    """Return the code of one partition, section by section."""
    # Cleaned line by line, so that the lines keep their numbers.
    lines = [clean_page(line, 2_000) for line in part.text[:MOST_TEXT].splitlines()]
    coloured = len(part.text) <= MOST_HIGHLIGHTED
    kernels = part.kernels
    called = {linked.kernel.called: linked for linked in kernels if linked.kernel.called is not None}
    found = []
    for section in sections(part.code):
        shown = lines[section.first - 1 : section.last]
        if not shown:
            break
        own = [kernels[number - 1] for number in section.kernels]
        rows = highlighted(shown, section.language) if coloured else [escape(line) for line in shown]
        marked = (
            _line(row, own or [called[n]] if own or n in called else [], part, named)
            for n, row in enumerate(rows, section.first)
        )
        opened = "" if section.folded else " open"
        kinds = f" · {own[0].kernel.kind}" if own else ""
        title = f"{markup(section.title)}<span class='rx-quiet'>{kinds} · {section.lines} lines</span>"
        code = "\n".join(marked)
        found.append(
            f'<details{opened}><summary>{title}</summary><pre class="rx-code" tabindex="0">{code}</pre></details>'
        )
    if rest := cut_note(part):
        found.append(f'<p class="rx-note">{rest}</p>')
    return "".join(found)


def _line(row: str, kernels: Sequence[LinkedKernel], part: PartitionCode, named: Callable[[str], str]) -> str:
    if not kernels:
        return row
    numbers = " ".join(str(linked.number) for linked in kernels)
    nodes = " ".join(named(f"{part.partition.graph}:{node.name}") for linked in kernels for node in linked.nodes)
    return f'<span data-kernels="{numbers}" data-nodes="{escape(nodes, quote=True)}">{row}</span>'


def highlighted(lines: Sequence[str], language: str) -> list[str]:
    """Return ``lines`` as HTML, coloured if Pygments is installed, as it is with Jupyter."""
    return [
        "".join(f'<span class="{kind}">{escape(text)}</span>' if kind else escape(text) for kind, text in row)
        for row in tokens_by_line(lines, language)
    ]
