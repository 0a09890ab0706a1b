"""The tables of the time tab: modules, source lines and ops with their share of the call, each with a mark button."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from regional_explorer.errors.texts import count
from regional_explorer.record.plan import Plan
from regional_explorer.record.profile import Profile, ProfileKind
from regional_explorer.record.selector import Selector
from regional_explorer.record.session import Session
from regional_explorer.record.time_shares import TimeShare, TimeShares
from regional_explorer.render.report.profile_tables import AROUND_THE_GRAPHS, sums
from regional_explorer.render.style.element import Node, node
from regional_explorer.render.style.formats import NONE, duration, percent, size
from regional_explorer.render.style.untrusted import clean
from regional_explorer.ui.panel.controls import button

MOST_TIME_ROWS = 15
"""How many rows of each kind are shown at most; ``ex.op_times`` has all."""
ABOUT_TIME = "Times every op as eager mode runs it, forward and backward. Nothing is compiled, and no region is needed."


def time_table(session: Session | None, *, busy: bool) -> list[Node]:
    """Return the rows of a profile, or the button that makes one.

    Args:
        session: the record; None while the tab is hidden.
        busy: whether a job is running.
    """
    if session is None:
        return []
    shares = TimeShares.of(session)
    start_button = button("Profile" if shares is None else "Profile again", "profile", title=ABOUT_TIME, disabled=busy)
    if shares is None:
        return [node("h4", "Where does the time go?"), node("p", ABOUT_TIME), start_button]
    tables = [element for kind in ProfileKind for element in _kind_table(shares, kind, session.plan, busy=busy)]
    return [*tables, node("p", _profile_conditions(shares.profile), class_="rx-quiet"), start_button]


def rows_of(shares: TimeShares, kind: ProfileKind) -> Sequence[TimeShare]:
    """Return the rows of one kind that are shown."""
    return shares.by(kind)[:MOST_TIME_ROWS]


def time_share(session: Session, key: str) -> tuple[TimeShares, TimeShare] | None:
    """Return the row of the profile with the key ``kind number``; None if the profile no longer has it."""
    shares = TimeShares.of(session)
    if shares is None:
        return None
    rows = {_row_key(kind, number): row for kind in ProfileKind for number, row in enumerate(rows_of(shares, kind))}
    return (shares, rows[key]) if key in rows else None


def _row_key(kind: ProfileKind, number: int) -> str:
    return f"{kind} {number}"


def _kind_table(shares: TimeShares, kind: ProfileKind, plan: Plan, *, busy: bool) -> Iterable[Node]:
    rows = rows_of(shares, kind)
    heads = (kind, "share", "eager", "")
    head = node("tr", *(node("th", text, class_=None if text == kind else "rxt-figure") for text in heads))
    has_intervals = shares.profile.has_intervals
    body = (_share_row(share, number, plan, busy=busy, has_interval=has_intervals) for number, share in enumerate(rows))
    table = node("table", node("thead", head), node("tbody", *body), aria_label=f"Time by {kind}")
    total = len(shares.by(kind))
    more = [node("p", f"The longest {len(rows)} of {total}.", class_="rx-quiet")] if total > len(rows) else []
    if kind is ProfileKind.MODULE:
        return [table, *more]
    if kind is ProfileKind.AROUND:
        return [node("details", node("summary", "Around the graphs"), table, node("p", AROUND_THE_GRAPHS))]
    return [node("details", node("summary", f"By {kind}"), table, *more)]


def _share_row(share: TimeShare, number: int, plan: Plan, *, busy: bool, has_interval: bool) -> Node:
    row, key = share.row, _row_key(share.row.kind, number)
    name = clean(row.name)
    times = f" × {share.times}" if share.times > 1 else ""
    marked = share.selector is not None and is_marked(share.selector, plan)
    facts = [
        f"CI {duration(row.low_s)} to {duration(row.high_s)}" if has_interval else "",
        f"forward {duration(row.forward_s)}, backward {duration(row.backward_s)}" if row.backward_s else "",
        count(row.ops, "op") if row.ops else "",
        f"moves {size(row.moved_bytes)}; copying that much takes {duration(row.copy_s)}" if row.moved_bytes else "",
    ]
    mark_button = button(
        "Marked" if marked else "Mark",
        "mark time",
        key,
        disabled=busy or marked,
        title=f"Make {name} a region",
        aria_label=f"Mark {name}",
    )
    show_button = button(f"{name}{times}", "show time", key, title="Select its ops in the graph and in the source")
    name_content = show_button if row.ops else name
    share_bar = node("i", style=f"width:{100 * row.share:.1f}%")
    return node(
        "tr",
        node("td", name_content),
        node("td", percent(row.share), share_bar, class_="rxt-figure"),
        node("td", duration(row.seconds), class_="rxt-figure", title="; ".join(filter(None, facts))),
        node("td", mark_button if share.selector is not None else NONE, class_="rxt-last"),
    )


def is_marked(selector: Selector, plan: Plan) -> bool:
    """Return whether a region of ``plan`` has exactly this selector."""
    return any(selector in region.selectors for region in plan.regions)


def _profile_conditions(profile: Profile) -> str:
    short_count = len(profile.short_ops)
    facts = [
        sums(profile),
        f"{count(profile.rounds, 'round')}.",
        f"{count(short_count, 'op')} too short to be measured individually are combined in one row."
        if short_count
        else "",
        "A module's row includes the modules inside it.",
    ]
    return " ".join(filter(None, facts))
