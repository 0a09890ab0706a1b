"""A session as HTML: tables that copy well, one picture, no script, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from regional_explorer.record.diagnostic import Diagnostic, Severity
from regional_explorer.record.session import Session
from regional_explorer.render.picture.svg import picture_html, session_svg
from regional_explorer.render.report.chart import Scale, whisker
from regional_explorer.render.report.plan_tables import breaks_table, partitions_table, regions_table, summary
from regional_explorer.render.report.region_tables import memory_table, reconciliation_table, region_times_table
from regional_explorer.render.report.result_tables import compile_table, numerics_table, timings_table
from regional_explorer.render.report.table import Cell, Table
from regional_explorer.render.style.css import PAGE, page_css
from regional_explorer.render.style.palette import paint
from regional_explorer.render.style.untrusted import LONG_TEXT, markup

FEW = 5
"""More diagnostics than this are folded away."""

_SIGNS = {"good": "✓ ", "bad": "✗ ", "warn": "! "}


def session_html(session: Session, *, picture: str | None = None) -> str:
    """Return ``session`` as one HTML fragment.

    Args:
        session: The record.
        picture: SVG of ``session_svg``; None leaves the picture out.
    """
    facts = "".join(f"<dt>{markup(label)}</dt><dd>{markup(text)}</dd>" for label, text in summary(session))
    parts = [
        f"<h3>{markup(session.title)}</h3><dl>{facts}</dl>",
        diagnostics_html(session.diagnostics),
        picture_html(picture) if picture else "",
        table_html(timings_table(session), regions=session),
        table_html(region_times_table(session), regions=session) if session.partition_timings else "",
        _adding_up(session),
        table_html(regions_table(session), regions=session),
        _details(session),
    ]
    return _scoped("".join(parts), session)


def results_html(session: Session) -> str:
    """Return what was found but the regions, which a panel shows in its own way, as a fragment of its own."""
    parts = [
        table_html(timings_table(session), regions=session),
        _adding_up(session),
        _details(session),
    ]
    return _scoped("".join(parts), session)


def _adding_up(session: Session) -> str:
    # The sums alone stand among the run times already.
    parts = [row for row in session.reconciliation if not row.total]
    return _folded(reconciliation_table(session), session) if parts else ""


def _details(session: Session) -> str:
    parts = [
        _folded(partitions_table(session), session),
        _folded(numerics_table(session), session),
        _folded(compile_table(session), session) if session.compile_costs else "",
        _folded(memory_table(session), session) if session.memory else "",
        table_html(breaks_table(session)) if session.breaks else "",
    ]
    return "".join(parts)


def page_html(session: Session, *, picture: str | None = None) -> str:
    """Return ``session`` as a page of its own; without ``picture`` one is drawn."""
    drawn = session_svg(session) if picture is None else picture
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';style-src 'unsafe-inline'\">"
        f"<title>{markup(session.title)}</title></head>"
        f'<body style="margin:0">{session_html(session, picture=drawn)}</body></html>\n'
    )


def diagnostics_html(diagnostics: Sequence[Diagnostic]) -> str:
    """Return the diagnostics as a list; many are folded away."""
    if not diagnostics:
        return ""
    items = "".join(map(_diagnostic, diagnostics))
    title = f"{len(diagnostics)} diagnostic{'s' if len(diagnostics) > 1 else ''}"
    if len(diagnostics) > FEW:
        return f'<details><summary>{title}</summary><ul class="rx-list">{items}</ul></details>'
    return f'<h4>{title}</h4><ul class="rx-list">{items}</ul>'


def table_html(table: Table, *, regions: Session | None = None, titled: bool = True) -> str:
    """Return ``table`` as an HTML table; ``regions`` gives the colours of the regions named in it."""
    title = f"<h4>{markup(table.title)}</h4>" if titled else ""
    note = "".join(f'<p class="rx-note">{markup(line, LONG_TEXT)}</p>' for line in table.note.splitlines())
    if not table.rows:
        return f'{title}<p class="rx-empty">{markup(table.empty)}</p>'
    scale = Scale.of(cell.timing for row in table.rows for cell in row if cell.timing)
    known = len(regions.plan.regions) if regions else 0
    side = [' class="rx-figure"' if column in table.figures else "" for column in table.columns]
    head = "".join(f"<th{flush}>{markup(column)}</th>" for column, flush in zip(table.columns, side, strict=True))
    body = "".join(
        f"<tr>{''.join(_cell(cell, flush, scale, known) for cell, flush in zip(row, side, strict=True))}</tr>"
        for row in table.rows
    )
    return f'{title}<div class="rx-wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}'


def _cell(cell: Cell, flush: str, scale: Scale, known: int) -> str:
    if cell.timing:
        return f"<td{flush}>{whisker(cell.timing, scale)}</td>"
    text = markup(cell.text)
    if cell.region is not None and cell.region < known:
        colours = paint(cell.region)
        text = f'<span class="rx-chip rx-r{cell.region}">{colours.letter}</span>\u00a0{text}'
    if cell.tone:
        text = f'<span class="rx-{cell.tone}">{_SIGNS.get(cell.tone, "")}{text}</span>'
    return f"<td{flush}>{text}</td>"


def _diagnostic(found: Diagnostic) -> str:
    tone = {Severity.ERROR: "bad", Severity.WARNING: "warn"}.get(found.severity, "quiet")
    places = ", ".join(str(line) for line in found.where[:3])
    rest = "".join(
        f'<div class="rx-quiet">{label}{markup(text, LONG_TEXT)}</div>'
        for label, text in (("At ", places), ("Upstream torch: ", found.upstream), ("What to do: ", found.remedy))
        if text
    )
    word = f'<span class="rx-{tone}">{_SIGNS.get(tone, "")}{markup(found.severity)}</span>'
    return f"<li>{word} <code>{markup(found.code)}</code> {markup(found.message, LONG_TEXT)}{rest}</li>"


def _folded(table: Table, session: Session) -> str:
    if not table.rows:
        return table_html(table, regions=session)
    bad = any(cell.tone in {"bad", "warn"} for row in table.rows for cell in row)
    inside = table_html(table, regions=session, titled=False)
    opened = " open" if bad or len(table.rows) <= FEW else ""
    return f"<details{opened}><summary>{markup(table.title)}</summary>{inside}</details>"


def _scoped(content: str, session: Session) -> str:
    paints = [paint(number) for number in range(len(session.plan.regions))]
    return f'<div class="{PAGE}"><style>{page_css(paints)}</style>{content}</div>'
