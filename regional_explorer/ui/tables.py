"""The region table and the time table, with their buttons."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from regional_explorer.compiler.region_config import catalogue
from regional_explorer.errors import count
from regional_explorer.record.benchmark import Verdict
from regional_explorer.record.diagnostic import DiagnosticCode
from regional_explorer.record.partition import State
from regional_explorer.record.plan import Plan, config_texts
from regional_explorer.record.profile import ProfileKind, TimeShare, TimeShares
from regional_explorer.record.regions import RegionSummary, RegionTiming, gain_alone_s, region_summaries
from regional_explorer.record.session import Session
from regional_explorer.record.statistics import disagreement
from regional_explorer.regions.edit import selection_text
from regional_explorer.style.css import TONES, TRENDS, toned
from regional_explorer.style.element import LONG, SHORT, Node, clean, node
from regional_explorer.style.formats import NONE, duration, interval, is_withheld, percent, signed, size, speedup
from regional_explorer.tables.profile import AROUND_THE_GRAPHS, profile_conditions
from regional_explorer.tables.table import chip
from regional_explorer.ui.answer import suggestion_row
from regional_explorer.ui.parts import alert, button, pieces_text
from regional_explorer.ui.state import CONFIG, SELECTOR, InvalidInput, Shown, Sort

MOST_CONFIG_CHIPS = 4
SORT_ARROWS = {None: "", False: " ↑", True: " ↓"}


class PanelColumn(NamedTuple):
    """A column of the region table: its key, head and meaning, the value it is sorted by, and its cells."""

    key: str
    head: str
    about: str
    value: Callable[[RegionSummary], Any]
    cell: Callable[[RegionRow], Sequence[Node | str]]
    right: bool = False


class RegionRow(NamedTuple):
    """A row of the region table: the region, the regions' total gain, and its invalid selector text, if any."""

    summary: RegionSummary
    gain_alone_s: float
    invalid: InvalidInput | None
    opened: bool
    busy: bool


def sorted_summaries(summaries: Sequence[RegionSummary], sort: Sort | None) -> list[RegionSummary]:
    """Return ``summaries`` in the order of ``sort``; regions without a value in its column come last."""
    if sort is None:
        return list(summaries)
    key = next(column.value for column in PANEL_COLUMNS if column.key == sort.column)
    with_value = [summary for summary in summaries if key(summary) not in (None, "")]
    return [
        *sorted(with_value, key=key, reverse=sort.descending),
        *(summary for summary in summaries if key(summary) in (None, "")),
    ]


def region_table(shown: Shown) -> list[Node]:
    """Return the table of the regions; without regions, suggested regions."""
    state, summaries = shown.state, region_summaries(shown.session)
    if not summaries:
        return suggestion_row(shown)
    gain_s = gain_alone_s(timing for summary in summaries if (timing := summary.timing))
    head = node("thead", node("tr", *(_column_head(column, state.sort) for column in PANEL_COLUMNS), node("th", "")))
    rows = [
        _region_row(
            RegionRow(
                summary,
                gain_s,
                state.invalid_inputs.get((summary.region.name, None, SELECTOR)),
                opened=summary.region.name == state.opened and state.shows(CONFIG),
                busy=state.busy,
            ),
            is_selected=summary.region.name in state.selected_rows,
        )
        for summary in sorted_summaries(summaries, state.sort)
    ]
    body = node("tbody", *rows)
    label = "Regions. Arrow keys move between rows, Enter selects one, Space adds one, Shift extends the selection."
    return [node("table", head, body, role="grid", aria_multiselectable="true", aria_label=label)]


def _column_head(column: PanelColumn, sort: Sort | None) -> Node:
    descending = sort.descending if sort is not None and sort.column == column.key else None
    order = {None: "none", False: "ascending", True: "descending"}[descending]
    sort_button = button(column.head + SORT_ARROWS[descending], "sort", column.key, title=column.about)
    return node("th", sort_button, aria_sort=order, class_=_class_of(column))


def _class_of(column: PanelColumn) -> str:
    return f"rxt-{column.key}{' rx-figure' if column.right else ''}"


def _region_row(row: RegionRow, *, is_selected: bool) -> Node:
    name, clean_name = row.summary.region.name, clean(row.summary.region.name)
    worst, number = row.summary.worst, len(row.summary.diagnostics)
    tone, title = f"rx-{TONES[worst]}" if worst else None, f"Why {clean_name} is as fast as it is, and its diagnostics"
    why = button(f"Why {number or ''}".strip(), "why", name, class_=tone, title=title)
    label, title = f"Remove {clean_name} from the plan", f"Remove the region {clean_name} from the plan"
    remove = button("×", "remove", name, disabled=row.busy, aria_label=label, title=title, class_="rxt-small")
    cells = ((column, column.cell(row), _class_of(column)) for column in PANEL_COLUMNS)
    return node(
        "tr",
        *(
            node("td", *cell, class_=f"{class_} rxt-none" if list(cell) == [NONE] else class_, data_head=column.head)
            for column, cell, class_ in cells
        ),
        node("td", why, remove, class_="rxt-last"),
        data_do="pick",
        data_of=name,
        tabindex="-1",
        aria_selected=str(is_selected).lower(),
        aria_label=clean_name,
    )


def _name_cell(row: RegionRow) -> list[Node]:
    clean_name = clean(row.summary.region.name)
    checkbox = node(
        "input",
        type="checkbox",
        checked=row.summary.region.enabled,
        disabled=row.busy,
        data_do="enable",
        data_of=row.summary.region.name,
        aria_label=f"Compile {clean_name}",
        title=f"Compile {clean_name}; when off it runs eagerly",
    )
    return [checkbox, chip(row.summary.number), node("b", clean_name, title=clean_name)]


def _picks_cell(row: RegionRow) -> list[Node | str]:
    summary, region, invalid = row.summary, row.summary.region, row.invalid
    forward, backward = summary.ops_forward, summary.ops_backward
    same_code = f", same code as {clean(summary.same_code, SHORT)}" if summary.same_code else ""
    pieces = node(
        "span",
        pieces_text(len(summary.partitions), forward, backward) + same_code,
        class_="rx-quiet",
        title=f"{count(forward, 'op')} in the forward, {backward} in the backward graph; "
        f"{count(summary.artifacts, 'artifact')}",
    )
    text = selection_text(region)
    if not text or text != clean(text):
        return [node("span", clean(region.selection, SHORT), title=clean(region.selection, LONG)), " ", pieces]
    editable = node(
        "input",
        type="text",
        value=invalid.text if invalid else text,
        data_do="repick",
        data_of=region.name,
        disabled=row.busy,
        class_="rx-wrong" if invalid else None,
        aria_label=f"What {clean(region.name)} picks",
        title="The ops of the region: modules, lines, ops, nodes or subgraphs, and a pattern. Press Enter to change it",
        spellcheck="false",
    )
    return [editable, pieces, *alert(invalid.error if invalid else "")]


def _time_cell(row: RegionRow) -> list[Node | str]:
    summary, timing = row.summary, row.summary.timing
    compiled = "" if summary.compile_s is None else f"compiled in {duration(summary.compile_s)}"
    state_about = "; ".join(filter(None, (summary.note, compiled)))
    state = [toned(summary.state, TONES.get(summary.state, ""))]
    if state_about:
        state[0][1]["title"] = state_about
    if timing is None:
        return list(state)
    if summary.state is State.MEASURED:
        state = []
    before = duration(timing.eager_s.value)
    if timing.compiled_s is None:
        return [*state, node("span", before, title=f"eager {before} in each call")]
    after = duration(timing.compiled_s.value)
    unit = after.partition(" ")[2]
    unsure = timing.eager_s.why or timing.compiled_s.why
    title = "; ".join(filter(None, (f"medians in each call: eager {before}, compiled {after}", compiled, unsure)))
    if unsure and timing.exceeds_call:
        return [*state, toned("noisy", "warn", title=f"{title}: alone it took longer than the whole call")]
    class_ = "rx-quiet" if unsure else None
    times = node("span", f"{before.removesuffix(f' {unit}')} → {after}", title=title, class_=class_)
    return [*state, times, *speedup_nodes(timing)]


def speedup_nodes(timing: RegionTiming) -> list[Node | str]:
    """Return the speedup of a region with its interval; empty without a speedup."""
    if is_withheld(timing):
        return [toned(timing.verdict, "bad", title=f"numerics {timing.numerics}")]
    if timing.speedup is None:
        return []
    tone = TONES.get(timing.verdict, "quiet") if timing.speedup.bounds else "quiet"
    bounds_text = "with its CI" if timing.partitions == 1 else "with all its partitions at their bounds at once"
    if timing.speedup.bounds is None:
        bounds_text = f"without CI ({timing.speedup.why})"
    title = f"eager ÷ compiled of the same rounds, {bounds_text}: {timing.verdict}"
    if timing.over_trace:
        title += "; here eager means the traced ops, which are slower than the program's own"
    # The times beside the speedup are sums of medians, the speedup is the median over rounds.
    of_medians = timing.eager_s.value / (timing.compiled_s or timing.eager_s).value
    disagrees = disagreement(of_medians, timing.speedup)
    noisy = [toned("noisy", "warn", title=disagrees)] if disagrees else []
    between = node("small", interval(timing.speedup).removesuffix("×"))
    return [toned(speedup(timing), tone, TRENDS, title=title), between, *noisy]


def _gain_cell(row: RegionRow) -> list[Node | str]:
    timing = row.summary.timing
    gain = None if timing is None else timing.gain_of_call_s
    if timing is None or gain is None or is_withheld(timing) or gain.bounds is None:
        return [NONE]
    least, most = sorted(gain.bounds)
    bounds = f"{signed(-most)} to {signed(-least)} in each call by the speedup, measured alone"
    if timing.verdict is not Verdict.FASTER:
        return [toned(signed(-gain.value), TONES.get(timing.verdict, "quiet"), {}, title=bounds)]
    share = f"{percent(gain.value / row.gain_alone_s)} of what the regions gain alone"
    kept_share = "" if timing.kept_share is None else f"; the call keeps {percent(timing.kept_share)} of that"
    return [toned(signed(-gain.value), "good", {}, title=f"{bounds}: {share}{kept_share}")]


def _config_cell(row: RegionRow) -> list[Node]:
    entries, region = catalogue(), row.summary.region

    def is_default(key: str, value: object) -> bool:
        return key in entries and value == entries[key].default  # a plan may have keys that this torch does not know

    inert = {
        (action.options.get("direction"), key): clean(found.message, LONG)
        for found in row.summary.diagnostics
        if found.code is DiagnosticCode.CONFIG_INERT
        for action in found.actions
        for key in action.unset
    }
    settings = [
        (f"{direction} {text}" if direction else text, inert.get((direction and str(direction), key)))
        for direction, config in region.configs
        for key, value in config.items()
        # If the directions differ, a key at its default may be the difference.
        if direction or not is_default(key, value)
        for text in config_texts({key: value})
    ]
    chips = [
        node("span", node("s", clean(text, SHORT)), " no effect", class_="rx-key rx-quiet", title=why)
        if why
        else node("span", clean(text, SHORT), class_="rx-key")
        for text, why in settings[:MOST_CONFIG_CHIPS] or [("default", None)]
    ]
    more = f"and {len(settings) - MOST_CONFIG_CHIPS} more" if len(settings) > MOST_CONFIG_CHIPS else ""
    return [
        node(
            "button",
            *chips,
            more,
            type="button",
            data_do="open",
            data_of=region.name,
            class_="rx-flat",
            aria_expanded=str(row.opened).lower(),
            title=f"{'Close' if row.opened else 'Show and change'} the config of {clean(region.name)}",
        )
    ]


def _results_cell(row: RegionRow) -> list[Node | str]:
    numerics = row.summary.numerics
    return [NONE if numerics is None else toned(numerics, TONES.get(numerics, "quiet"))]


PANEL_COLUMNS = (
    PanelColumn(
        "name",
        "region",
        "The name; ticked regions are compiled, others run eagerly",
        lambda s: s.region.name,
        _name_cell,
    ),
    PanelColumn(
        "picks",
        "picks",
        "The selectors of the region, and the number of its ops; sorted by that number",
        lambda s: s.ops_forward + s.ops_backward,
        _picks_cell,
    ),
    PanelColumn(
        "time",
        "eager → compiled",
        "Medians of the region's eager and compiled time in each call; the speedup with its interval, which compares "
        "within each round and may differ from the ratio of the medians; the state, unless it is measured",
        lambda s: s.timing and s.timing.eager_s.value,
        _time_cell,
    ),
    PanelColumn(
        "gain",
        "of the call",
        "What it saves of each call by its speedup, measured alone; a dash if that is more than the call takes",
        lambda s: s.timing and s.timing.gain_of_call_s and s.timing.gain_of_call_s.value,
        _gain_cell,
        right=True,
    ),
    PanelColumn(
        "config",
        "config",
        "Inductor config keys that differ from their defaults",
        lambda s: sum(len(config) for _, config in s.region.configs),
        _config_cell,
    ),
    PanelColumn("results", "results", "The results compared with eager's", lambda s: s.numerics, _results_cell),
)


MOST_TIME_ROWS = 15
"""The maximum number of rows shown of each kind; ``ex.op_times`` has all."""
ABOUT_TIME = "Time every op as eager mode runs it, forward and backward. This compiles nothing and needs no region."


def time_table(shown: Shown) -> list[Node]:
    """Return the rows of a profile, or the button that makes one."""
    session, busy = shown.session, shown.state.busy
    shares = session.time_shares
    start_button = button("Profile" if shares is None else "Profile again", "profile", title=ABOUT_TIME, disabled=busy)
    if shares is None:
        return [node("h4", "Where does the time go?"), node("p", ABOUT_TIME), start_button]
    tables = [element for kind in ProfileKind for element in _kind_table(shares, kind, session.plan, busy=busy)]
    return [
        *tables,
        node("p", profile_conditions(shares.profile, session.profile_outdated_by, brief=True), class_="rx-quiet"),
        start_button,
    ]


def rows_of(shares: TimeShares, kind: ProfileKind) -> Sequence[TimeShare]:
    """Return the rows of one kind that are shown, the longest first; each module is followed by those inside it."""
    rows = shares.by(kind)[:MOST_TIME_ROWS]
    places = {share.row.name: place for place, share in enumerate(rows)}
    return sorted(rows, key=lambda share: [places[name] for name in _around(share.row.name, places)])


def _around(path: str, rows: Collection[str]) -> list[str]:
    """Return the names of the rows that a module is in, outermost first, and its own."""
    return [name for name in itertools.accumulate(path.split("."), "{}.{}".format) if name in rows]


def time_share(session: Session, key: str) -> tuple[TimeShares, TimeShare] | None:
    """Return the row of the profile with the key ``kind number``; None if the profile no longer has it."""
    shares = session.time_shares
    if shares is None:
        return None
    rows = {_row_key(kind, number): row for kind in ProfileKind for number, row in enumerate(rows_of(shares, kind))}
    return (shares, rows[key]) if key in rows else None


def _row_key(kind: ProfileKind, number: int) -> str:
    return f"{kind} {number}"


def _kind_table(shares: TimeShares, kind: ProfileKind, plan: Plan, *, busy: bool) -> Iterable[Node]:
    rows = rows_of(shares, kind)
    heads = (kind, "share", "eager", "")
    head = node("tr", *(node("th", text, class_=None if text == kind else "rx-figure") for text in heads))
    names = [share.row.name for share in rows]
    body = (_share_row(share, number, plan, names, busy=busy) for number, share in enumerate(rows))
    table = node("table", node("thead", head), node("tbody", *body), aria_label=f"Time by {kind}")
    total = len(shares.by(kind))
    more = [node("p", f"The longest {len(rows)} of {total}.", class_="rx-quiet")] if total > len(rows) else []
    if kind is ProfileKind.MODULE:
        return [table, *more]
    if kind is ProfileKind.AROUND:
        return [node("details", node("summary", "Around the graphs"), table, node("p", AROUND_THE_GRAPHS))]
    return [node("details", node("summary", f"By {kind}"), table, *more)]


def _share_row(share: TimeShare, number: int, plan: Plan, names: Collection[str], *, busy: bool) -> Node:
    """Return a row of those called ``names``; a module has the end of its name, below the module that it is in."""
    row, key = share.row, _row_key(share.row.kind, number)
    name, around = clean(row.name), _around(row.name, names)[:-1]
    ending = clean(row.name.removeprefix(f"{around[-1]}.") if around else row.name)
    times = f" × {share.times}" if share.times > 1 else ""
    marked = any(share.selector in region.selectors for region in plan.regions)
    facts = [
        f"CI {interval(row.seconds, duration)}" if row.seconds.bounds else row.seconds.why,
        f"forward {duration(row.forward_s)}, backward {duration(row.backward_s)}" if row.backward_s else "",
        count(row.ops, "op") if row.ops else "",
        f"moves {size(row.moved_bytes)}" if row.moved_bytes else "",
        f"copying that much takes {duration(row.valid_bound_s)}" if row.valid_bound_s else "",
    ]
    word, title, label = "Marked" if marked else "Mark", f"Make {name} a region", f"Mark {name}"
    mark_button = button(word, "mark time", key, disabled=busy or marked, title=title, aria_label=label)
    about = "select its ops in the graph and in the source"
    show_button = button(f"{ending}{times}", "show time", key, title=f"{name}: {about}", class_="rx-flat")
    share_bar = node("i", style=f"width:{100 * row.share:.1f}%")
    return node(
        "tr",
        node("td", show_button if row.ops else name, style=f"padding-left:{len(around)}em"),
        node("td", percent(row.share), share_bar, class_="rx-figure"),
        node("td", duration(row.seconds.value), class_="rx-figure", title="; ".join(filter(None, facts))),
        node("td", mark_button if share.selector is not None else NONE, class_="rxt-last"),
    )
