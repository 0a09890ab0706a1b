"""The differences between two versions of a region's generated code, as text and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from regional_explorer.record.code_diff import CodeDiff
from regional_explorer.render.report.code_html import CODE_CSS
from regional_explorer.render.report.gpu_figures import resource_changes
from regional_explorer.render.style.css import PAGE, page_css
from regional_explorer.render.style.untrusted import clean, clean_page, markup

MOST_LINES = 4_000
"""How many lines of a diff are shown at most."""

_TONES = {"+": "rx-good", "-": "rx-bad", "@": "rx-quiet"}


def diff_text(region: str, parts: Sequence[CodeDiff]) -> str:
    """Return, for each partition, its kernels as same, changed, new or gone, their resources, and the changed lines."""
    return f"{_summary(region, parts)}\n\n" + "\n\n".join(
        "\n".join((_head(part), *(f"  {line}" for line in resource_changes(part)), part.unified)).rstrip()
        for part in parts
    )


def diff_html(region: str, parts: Sequence[CodeDiff]) -> str:
    """Return the same as an HTML fragment with changed lines coloured."""
    content = "".join(f"<h4>{markup(_head(part))}</h4>{_resources(part)}{_lines(part)}" for part in parts)
    summary = f"<p>{markup(_summary(region, parts))}</p>"
    return f'<div class="{PAGE}"><style>{page_css(())}{CODE_CSS}</style>{summary}{content}</div>'


def _summary(region: str, parts: Sequence[CodeDiff]) -> str:
    changed = sum(not part.same for part in parts)
    if not parts:
        return f"Region {clean(repr(region))} has no partition with code on both sides."
    if not changed:
        return f"Nothing changed in region {clean(repr(region))}: the generated code is the same."
    return f"The code of {changed} of {len(parts)} partitions of region {clean(repr(region))} changed."


def _head(part: CodeDiff) -> str:
    if part.problem:
        return f"{part.partition}: {part.problem}"
    return f"{part.partition}: the code is the same" if part.same else f"{part.partition}: kernels: {part.counted}"


def _resources(part: CodeDiff) -> str:
    lines = "".join(f"<li>{markup(line)}</li>" for line in resource_changes(part))
    return f"<ul>{lines}</ul>" if lines else ""


def _lines(part: CodeDiff) -> str:
    lines = part.unified.splitlines()
    if not lines or part.same:
        return ""
    shown = "\n".join(_line(clean_page(line, 2_000)) for line in lines[:MOST_LINES])
    more = f'<p class="rx-note">… {len(lines) - MOST_LINES:,} more lines</p>' if len(lines) > MOST_LINES else ""
    return f'<pre class="rx-code">{shown}</pre>{more}'


def _line(line: str) -> str:
    tone = _TONES.get(line[:1])
    return f'<span class="{tone}">{escape(line)}</span>' if tone else escape(line)
