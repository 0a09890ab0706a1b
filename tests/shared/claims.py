"""What a session says in its tables and texts, and whether it can be true."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from regional_explorer.page.report import report, session_html, session_text
from regional_explorer.record.diagnostic import DiagnosticCode
from regional_explorer.record.session import Session
from regional_explorer.tables.benchmark import timings_table
from regional_explorer.tables.code import kernel_times_table
from regional_explorer.tables.profile import op_times_table

BOUND = "bounds above what was measured"
SHARE = "shares outside 0 to 100 %, or that do not add up"
WHOLE = "parts that exceed their whole"
NEGATIVE = "negative times and sizes"
INTERVAL = "figures outside of their interval"
TEXT = "impossible percentages and undefined figures, in texts"
ROUNDING = 1e-9


class Claim(NamedTuple):
    """A statement of a session: its kind, its text, and whether it can be true."""

    kind: str
    holds: bool
    what: str


def claims_of(session: Session) -> Iterator[Claim]:
    """Yield the statements of a session that can be checked."""
    times = [kernel_times_table(session, region.name) for region in session.plan.regions]
    for table in (*report(session), *times, op_times_table(session)):
        yield from table_claims(table.title, table.dataframe())
    yield from _sum_claims(session)
    for text in (session_text(session), words(session_html(session)), *map(str, session.diagnostics)):
        yield from text_claims(text)
    eager_us = timings_table(session).dataframe().median_us.max()
    for item in session.diagnostics:
        if item.code is DiagnosticCode.REGION_WORTH:
            for saved_s in durations(" ".join(re.findall(r"saves? (?:the \w+ )?(\S+ \S+)", item.message))):
                yield Claim(WHOLE, saved_s <= 1e-6 * eager_us, str(item))


PAIRS = (("bound_us", "time_us", BOUND), ("copy_us", "eager_us", BOUND), ("fused_bytes", "moved_bytes", WHOLE))
"""Pairs of columns: the first is a bound or a part of the second."""


def table_claims(title: str, frame: Any) -> Iterator[Claim]:
    if "total" in frame:  # the other rows are differences
        frame = frame[frame.total]
    for name, column in frame.items():
        if name.endswith(("_us", "_s", "_bytes")):
            yield Claim(NEGATIVE, not (column < 0).any(), f"{title}: {name} {column.min()}")
        if name == "share":
            yield Claim(SHARE, bool(column.dropna().between(0, 1 + ROUNDING).all()), f"{title}: {list(column)}")
        low, high = (f"{name.removesuffix('_us')}_{end}{'_us' * name.endswith('_us')}" for end in ("low", "high"))
        if {low, high} <= set(frame):
            inside = (column >= frame[low]) & (column <= frame[high]) | frame[low].isna() | column.isna()
            yield Claim(INTERVAL, bool(inside.all()), f"{title}: {name}\n{frame[~inside]}")
    for part, limit, kind in PAIRS:
        if {part, limit} <= set(frame):
            yield Claim(kind, not (frame[part] > frame[limit]).any(), f"{title}: {part}\n{frame}")


def _sum_claims(session: Session) -> Iterator[Claim]:
    """Yield the parts that have to add up: kernels and the time around them, ops of a call and the time around them."""
    ops = op_times_table(session).dataframe()
    around = ops[ops.by == "around"]
    parts = [(by, ops[ops.by == by].share.sum() + around.share.sum()) for by in ("line", "op") if len(ops)]
    for region in session.plan.regions:
        times = kernel_times_table(session, region.name).dataframe().dropna(subset="share")
        parts += [(str(name), rows.share.sum()) for name, rows in times.groupby("partition")]
    for name, total in parts:
        yield Claim(SHARE, abs(total - 1) < ROUNDING, f"{name}: {total:.2%} together")
    whole_us = ops[ops.by != "module"].eager_us.sum() / 2 + around.eager_us.sum() / 2
    yield Claim(WHOLE, not (ops.eager_us > whole_us * (1 + ROUNDING)).any(), f"{ops.eager_us.max()} of {whole_us} µs")


def text_claims(text: str) -> Iterator[Claim]:
    """Yield the percentages of a text, and whether it has an undefined figure. A change may be of any size."""
    for match in re.finditer(r"(drifted.{,30})?([-+−]?[\d,]+(?:\.\d+)?(?:e[-+]?\d+)?) ?%", text):
        share = float(match[2].replace(",", "").replace("−", "-"))
        yield Claim(TEXT, bool(match[1]) or match[2][0] == "+" or 0 <= share <= 100, words_around(text, match))
    undefined = re.search(r"\b(nan|inf)\b", text, re.IGNORECASE)
    yield Claim(TEXT, undefined is None, words_around(text, undefined) if undefined else "")


def words_around(text: str, match: re.Match[str]) -> str:
    """Return a match with the words around it."""
    return " ".join(text[max(0, match.start() - 60) : match.end() + 40].split())


UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def durations(text: str) -> list[float]:
    """Return the seconds of all durations in a text."""
    matches = re.findall(r"(-?[\d,.]+) (ns|µs|ms|s)\b", text)
    return [float(number.replace(",", "")) * UNITS[unit] for number, unit in matches]


def words(page: str) -> str:
    """Return the words of a page."""
    return html.unescape(re.sub(r"<[^>]*>", " ", re.sub(r"<(style|script)\b.*?</\1>", "", page, flags=re.DOTALL)))
