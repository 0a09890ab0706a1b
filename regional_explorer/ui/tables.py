"""The region table and the time table, with their buttons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from regional_explorer.compiler.region_config import catalogue
from regional_explorer.errors import count
from regional_explorer.record.plan import Plan, config_texts
from regional_explorer.record.profile import ProfileKind
from regional_explorer.record.regions import RegionSummary
from regional_explorer.record.session import Session
from regional_explorer.record.statistics import disagreement
from regional_explorer.record.time_shares import TimeShare, TimeShares
from regional_explorer.style.css import TONES, TRENDS, toned
from regional_explorer.style.element import SHORT, Node, clean, node
from regional_explorer.style.formats import NONE, duration, interval, percent, size, speedup, withheld
from regional_explorer.tables.benchmark import REGION_COLUMNS
from regional_explorer.tables.profile import AROUND_THE_GRAPHS, profile_conditions
from regional_explorer.tables.table import Column, Number, chip
from regional_explorer.ui.parts import button
from regional_explorer.ui.state import Sort

MOST_CONFIG_CHIPS = 4
EMPTY_CELLS = ([NONE], ["0"])
"""The contents of cells without information, which narrow rows leave out."""
SORT_ARROWS = {None: "", False: " ↑", True: " ↓"}


class PanelColumn(NamedTuple):
    """A column of the region table: its key, the column it shows and is sorted by, its tooltip, and the head's text.

    ``cell`` makes its cells where they show more than the column has.
    """

    key: str
    column: Column[RegionSummary]
    title: str
    cell: Callable[[RegionSummary], Node] | None = None

    @property
    def class_(self) -> str:
        """The class of its cells."""
        return f"rxt-{self.key}{' rxt-figure' if self.column.right else ''}"

    def node(self, summary: RegionSummary) -> Node:
        """Return the cell of a region."""
        cell = self.cell(summary) if self.cell else node("td", *self.column.content(summary))
        empty_class = " rxt-none" if cell[2:] in EMPTY_CELLS else ""
        cell[1] |= {"class": self.class_ + empty_class, "data-head": self.column.title}
        return cell


def ordered(summaries: Sequence[RegionSummary], sort: Sort | None) -> list[RegionSummary]:
    """Return ``summaries`` in the order of ``sort``; regions without a value in that column come last."""
    if sort is None:
        return list(summaries)
    key = next(column.column.exact for column in PANEL_COLUMNS if column.key == sort.column)
    with_value = [summary for summary in summaries if key(summary) not in (None, "")]
    return [
        *sorted(with_value, key=key, reverse=sort.descending),
        *(summary for summary in summaries if key(summary) in (None, "")),
    ]


def region_table(
    summaries: Sequence[RegionSummary], sort: Sort | None, *, picked: Sequence[str], opened: str | None, busy: bool
) -> list[Node]:
    """Return the table of ``summaries``, or nothing where there is no region.

    Args:
        summaries: the regions in the order of the plan.
        sort: the order of the rows.
        picked: names of the selected rows.
        opened: name of the region whose config is shown.
        busy: whether a job is running.
    """
    if not summaries:
        return []
    head = node("thead", node("tr", *(_column_head(column, sort) for column in PANEL_COLUMNS), node("th", "")))
    rows = [
        _region_row(summary, picked=summary.region.name in picked, opened=summary.region.name == opened, busy=busy)
        for summary in ordered(summaries, sort)
    ]
    body = node("tbody", *rows)
    label = "Regions. Arrow keys move between rows, Enter selects one, Space adds one, Shift extends the selection."
    return [node("table", head, body, role="grid", aria_multiselectable="true", aria_label=label)]


def _column_head(column: PanelColumn, sort: Sort | None) -> Node:
    descending = sort.descending if sort is not None and sort.column == column.key else None
    order = {None: "none", False: "ascending", True: "descending"}[descending]
    sort_button = button(column.column.title + SORT_ARROWS[descending], "sort", column.key, title=column.title)
    return node("th", sort_button, aria_sort=order, class_=column.class_)


def _region_row(summary: RegionSummary, *, picked: bool, opened: bool, busy: bool) -> Node:
    name, clean_name = summary.region.name, clean(summary.region.name)
    buttons = node(
        "td",
        button(
            "Close" if opened else "Config",
            "open",
            name,
            aria_expanded=str(opened).lower(),
            title=f"Show and change the config of {clean_name}",
        ),
        button(
            "×",
            "remove",
            name,
            disabled=busy,
            aria_label=f"Remove {clean_name} from the plan",
            title=f"Remove the region {clean_name} from the plan",
            class_="rxt-small",
        ),
        class_="rxt-last",
    )
    return node(
        "tr",
        _name_cell(summary, busy=busy),
        *(column.node(summary) for column in PANEL_COLUMNS[1:]),
        buttons,
        data_do="pick",
        data_of=name,
        tabindex="-1",
        aria_selected=str(picked).lower(),
        aria_label=clean_name,
    )


def _name_cell(summary: RegionSummary, *, busy: bool) -> Node:
    clean_name = clean(summary.region.name)
    switch = node(
        "input",
        type="checkbox",
        checked=summary.region.enabled,
        disabled=busy,
        data_do="switch",
        data_of=summary.region.name,
        aria_label=f"Compile {clean_name}",
        title=f"Compile {clean_name}; when off it runs eagerly",
    )
    return node("td", switch, chip(summary.number), node("b", clean_name, title=clean_name), class_="rxt-name")


def _ops_cell(summary: RegionSummary) -> Node:
    forward, backward = summary.ops_forward, summary.ops_backward
    words = f"{forward} + {backward}" if backward else str(forward)
    return node("td", words, title=f"{count(forward, 'op')} in the forward, {backward} in the backward graph")


def _state_cell(summary: RegionSummary) -> Node:
    details = [count(len(summary.partitions), "partition"), count(summary.artifacts, "artifact"), summary.note]
    state = toned(summary.state, TONES.get(summary.state, ""))
    return node("td", state, title=", ".join(filter(None, details)))


def _config_cell(summary: RegionSummary) -> Node:
    entries = catalogue()

    def is_default(key: str, value: object) -> bool:
        return key in entries and value == entries[key].default  # a plan may have keys that this torch does not know

    settings = [
        f"{direction} {text}" if direction else text
        for direction, config in summary.region.configs
        # Where the directions differ, a key at its default may be what makes the difference.
        for text in config_texts({k: value for k, value in config.items() if direction or not is_default(k, value)})
    ]
    if not settings:
        return node("td", node("span", "default", class_="rx-quiet"))
    chips = [node("span", clean(text, SHORT), class_="rx-key") for text in settings[:MOST_CONFIG_CHIPS]]
    more = f"and {len(settings) - MOST_CONFIG_CHIPS} more" if len(settings) > MOST_CONFIG_CHIPS else ""
    return node("td", *chips, node("span", more, class_="rx-quiet"))


def _speedup_cell(summary: RegionSummary) -> Node:
    timing = summary.timing
    if timing is not None and withheld(timing):
        return node("td", toned(timing.verdict, "bad"), title=f"numerics {timing.numerics}")
    if timing is None or timing.speedup is None:
        return node("td", NONE)
    tone = TONES.get(timing.verdict, "quiet") if timing.speedup.bounds else "quiet"
    figure = toned(speedup(timing), tone, TRENDS)
    between = node("small", interval(timing.speedup).removesuffix("×"))
    bounds_text = "with its CI" if timing.partitions == 1 else "with all its partitions at their bounds at once"
    if timing.speedup.bounds is None:
        bounds_text = f"without CI ({timing.speedup.why})"
    about = f"eager ÷ compiled, {bounds_text}: {timing.verdict}"
    if timing.over_trace:
        about += "; eager are the traced ops here, which are slower than the program's own"
    # What stands in the columns beside it is the sum of medians.
    of_medians = timing.eager_s.value / (timing.compiled_s or timing.eager_s).value
    if disagrees := disagreement(of_medians, timing.speedup):
        return node("td", figure, between, toned("noisy", "warn"), title=f"{about}; {disagrees}")
    return node("td", figure, between, title=about)


def _diagnostics_cell(summary: RegionSummary) -> Node:
    if summary.worst is None:
        return node("td", "0", title="no diagnostic")
    return node("td", toned(len(summary.diagnostics), TONES[summary.worst]))


_OF_TABLE = {column.name: column for column in REGION_COLUMNS}
PANEL_COLUMNS = (
    PanelColumn("name", _OF_TABLE["region"], "Sort by name"),
    PanelColumn("ops", Number("ops", lambda s: s.ops_forward + s.ops_backward), "Ops in forward + backward", _ops_cell),
    PanelColumn("state", _OF_TABLE["state"], "Sort by state", _state_cell),
    PanelColumn(
        "config",
        Column("config", lambda s: sum(len(config) for _, config in s.region.configs)),
        "Sort by the number of keys set",
        _config_cell,
    ),
    PanelColumn("eager", _OF_TABLE["eager_us"], "Run time eagerly"),
    PanelColumn("compiled", _OF_TABLE["compiled_us"], "Run time compiled"),
    PanelColumn("speedup", _OF_TABLE["speedup"], "Eager ÷ compiled, with its CI", _speedup_cell),
    PanelColumn("compile", _OF_TABLE["compile_s"], "Compile time"),
    PanelColumn("numerics", _OF_TABLE["numerics"], "Compared with eager"),
    PanelColumn(
        "diagnostics", Number("notes", lambda s: len(s.diagnostics)), "Diagnostics of the region", _diagnostics_cell
    ),
)


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
    return [*tables, node("p", profile_conditions(shares.profile, brief=True), class_="rx-quiet"), start_button]


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
    body = (_share_row(share, number, plan, busy=busy) for number, share in enumerate(rows))
    table = node("table", node("thead", head), node("tbody", *body), aria_label=f"Time by {kind}")
    total = len(shares.by(kind))
    more = [node("p", f"The longest {len(rows)} of {total}.", class_="rx-quiet")] if total > len(rows) else []
    if kind is ProfileKind.MODULE:
        return [table, *more]
    if kind is ProfileKind.AROUND:
        return [node("details", node("summary", "Around the graphs"), table, node("p", AROUND_THE_GRAPHS))]
    return [node("details", node("summary", f"By {kind}"), table, *more)]


def _share_row(share: TimeShare, number: int, plan: Plan, *, busy: bool) -> Node:
    row, key = share.row, _row_key(share.row.kind, number)
    name = clean(row.name)
    times = f" × {share.times}" if share.times > 1 else ""
    marked = any(share.selector in region.selectors for region in plan.regions)
    facts = [
        f"CI {interval(row.seconds, duration)}" if row.seconds.bounds else row.seconds.why,
        f"forward {duration(row.forward_s)}, backward {duration(row.backward_s)}" if row.backward_s else "",
        count(row.ops, "op") if row.ops else "",
        f"moves {size(row.moved_bytes)}" if row.moved_bytes else "",
        f"copying that much takes {duration(row.least_s)}" if row.least_s else "",
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
        node("td", duration(row.seconds.value), class_="rxt-figure", title="; ".join(filter(None, facts))),
        node("td", mark_button if share.selector is not None else NONE, class_="rxt-last"),
    )
