"""The differences between two versions of a region's generated code, as text and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from regional_explorer.record.code_diff import CodeDiff
from regional_explorer.render.report.code_html import CODE_CSS
from regional_explorer.render.report.gpu_figures import resource_changes
from regional_explorer.render.style.css import PAGE, page_css
from regional_explorer.render.style.untrusted import clean, clean_page, markup

DIFF_LIMIT = 4_000
"""How many lines of a diff are shown at most."""

_LINE_CLASSES = {"+": "rx-good", "-": "rx-bad", "@": "rx-quiet"}


def diff_text(region: str, diffs: Sequence[CodeDiff]) -> str:
    """Return, for each partition, its kernels as same, changed, new or gone, their resources, and the changed lines."""
    return f"{_diff_summary(region, diffs)}\n\n" + "\n\n".join(
        "\n".join((_diff_head(diff), *(f"  {line}" for line in resource_changes(diff)), diff.unified)).rstrip()
        for diff in diffs
    )


def diff_html(region: str, diffs: Sequence[CodeDiff]) -> str:
    """Return the differences as an HTML fragment with changed lines coloured."""
    content = "".join(f"<h4>{markup(_diff_head(diff))}</h4>{_resource_list(diff)}{_diff_lines(diff)}" for diff in diffs)
    summary = f"<p>{markup(_diff_summary(region, diffs))}</p>"
    return f'<div class="{PAGE}"><style>{page_css()}{CODE_CSS}</style>{summary}{content}</div>'


def _diff_summary(region: str, diffs: Sequence[CodeDiff]) -> str:
    changed = sum(not diff.same for diff in diffs)
    if not diffs:
        return f"Region {clean(repr(region))} has no partition with code on both sides."
    if not changed:
        return f"Nothing changed in region {clean(repr(region))}: the generated code is the same."
    return f"The code of {changed} of {len(diffs)} partitions of region {clean(repr(region))} changed."


def _diff_head(diff: CodeDiff) -> str:
    if diff.problem:
        return f"{diff.partition}: {diff.problem}"
    return f"{diff.partition}: the code is the same" if diff.same else f"{diff.partition}: kernels: {diff.counted}"


def _resource_list(diff: CodeDiff) -> str:
    lines = "".join(f"<li>{markup(line)}</li>" for line in resource_changes(diff))
    return f"<ul>{lines}</ul>" if lines else ""


def _diff_lines(diff: CodeDiff) -> str:
    lines = diff.unified.splitlines()
    if not lines or diff.same:
        return ""
    html_lines = "\n".join(_coloured_line(clean_page(line, 2_000)) for line in lines[:DIFF_LIMIT])
    more = f'<p class="rx-note">… {len(lines) - DIFF_LIMIT:,} more lines</p>' if len(lines) > DIFF_LIMIT else ""
    return f'<pre class="rx-code">{html_lines}</pre>{more}'


def _coloured_line(line: str) -> str:
    css_class = _LINE_CLASSES.get(line[:1])
    return f'<span class="{css_class}">{escape(line)}</span>' if css_class else escape(line)
