"""The generated code of a region as HTML: kernels, then the highlighted code, with imports and similar folded.

Lines and rows carry ``data-kernels`` (numbers of kernels) and ``data-nodes`` (``graph:name``), for a page that links
them with graph and source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

from regional_explorer.errors.texts import sendable
from regional_explorer.record.region_code import LinkedKernel, PartitionCode, by_artifact
from regional_explorer.render.report.code_sections import sections, shown_lines
from regional_explorer.render.report.code_tables import kernels_table
from regional_explorer.render.report.code_text import MOST_TEXT, cut_note, equal_code, not_compiled
from regional_explorer.render.report.table_node import table_nodes
from regional_explorer.render.report.tokens import MOST_COLOURED, TOKEN_CSS, tokens_by_line
from regional_explorer.render.style.css import PAGE, page_css
from regional_explorer.render.style.element import to_html
from regional_explorer.render.style.untrusted import LONG_TEXT, markup

CODE_CSS = (
    "% .rx-code{font:12px/1.5 var(--jp-code-font-family,ui-monospace,monospace);margin:0;padding:6px 8px;"
    "overflow-x:auto;white-space:pre;background:var(--rx-box);color:var(--rx-ink);border-radius:4px;tab-size:4}"
    "% .rx-code [data-kernels]{box-shadow:-3px 0 0 var(--rx-line)}"
).replace("%", f".{PAGE}" * 2) + TOKEN_CSS


def code_html(region: str, codes: Sequence[PartitionCode], note: str = "") -> str:
    """Return the kernels and the code of each partition as one fragment; equal code is shown once."""
    note_html = f'<p class="rx-note">{markup(note, LONG_TEXT)}</p>' if note else ""
    content = "".join(code_parts(codes)) or f'<p class="rx-empty">{markup(not_compiled(region))}</p>'
    return f'<div class="{PAGE}"><style>{page_css()}{CODE_CSS}</style>{note_html}{content}</div>'


def code_parts(codes: Sequence[PartitionCode], named: Callable[[str], str] = sendable) -> Iterator[str]:
    """Yield the kernels and code of each partition, equal code once; ``named`` returns a node's name in the page."""
    for first, *equal in by_artifact(codes):
        yield to_html(*table_nodes(kernels_table(first)))
        if equal:
            tables = "".join(to_html(*table_nodes(kernels_table(code))) for code in equal)
            yield f"<details><summary>{markup(equal_code(equal))}</summary>{tables}</details>"
        yield partition_html(first, named)


def partition_html(code: PartitionCode, named: Callable[[str], str] = sendable) -> str:
    """Return the code of one partition, section by section."""
    lines = shown_lines(code.text[:MOST_TEXT].splitlines())
    coloured = len(code.text) <= MOST_COLOURED
    kernels = code.kernels
    called_at = {linked.kernel.called: linked for linked in kernels if linked.kernel.called is not None}
    fragments = []
    for section in sections(code.code):
        section_lines = lines[section.first - 1 : section.last]
        if not section_lines:
            break
        defined = [kernels[number - 1] for number in section.kernels]
        rows = highlighted(section_lines, section.language) if coloured else [escape(line) for line in section_lines]
        linked_lines = (
            _linked_line(row, defined or [called_at[n]] if defined or n in called_at else [], code, named)
            for n, row in enumerate(rows, section.first)
        )
        opened = "" if section.folded else " open"
        kind = f" · {defined[0].kernel.kind}" if defined else ""
        title = f"{markup(section.title)}<span class='rx-quiet'>{kind} · {section.lines} lines</span>"
        rows_html = "\n".join(linked_lines)
        fragments.append(
            f'<details{opened}><summary>{title}</summary><pre class="rx-code" tabindex="0">{rows_html}</pre></details>'
        )
    if note := cut_note(code):
        fragments.append(f'<p class="rx-note">{note}</p>')
    return "".join(fragments)


def _linked_line(row: str, kernels: Sequence[LinkedKernel], code: PartitionCode, named: Callable[[str], str]) -> str:
    if not kernels:
        return row
    numbers = " ".join(str(linked.number) for linked in kernels)
    nodes = " ".join(named(f"{code.partition.graph}:{node.name}") for linked in kernels for node in linked.nodes)
    shown = f' data-nodes="{escape(nodes, quote=True)}"' if nodes else ""
    return f'<span data-kernels="{numbers}"{shown}>{row}</span>'


def highlighted(lines: Sequence[str], language: str) -> list[str]:
    """Return ``lines`` as HTML, coloured if Pygments is installed, as it is with Jupyter."""
    return [
        "".join(f'<span class="{kind}">{escape(text)}</span>' if kind else escape(text) for kind, text in row)
        for row in tokens_by_line(lines, language)
    ]
