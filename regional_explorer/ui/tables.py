"""The region table and the time table, with their buttons."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from functools import partial

from regional_explorer.compiler.region_config import catalogue
from regional_explorer.errors import count
from regional_explorer.record.diagnostic import DiagnosticCode
from regional_explorer.record.plan import Plan, config_texts
from regional_explorer.record.profile import ProfileKind, TimeShare, TimeShares
from regional_explorer.record.regions import RegionSummary
from regional_explorer.record.session import Session
from regional_explorer.regions.edit import selection_text
from regional_explorer.style.css import TONES
from regional_explorer.style.element import LONG, SHORT, Node, clean, node
from regional_explorer.style.formats import NONE, between, duration, percent, size
from regional_explorer.tables.profile import AROUND_THE_GRAPHS, profile_conditions
from regional_explorer.tables.regions import regions_table
from regional_explorer.tables.table import ABOUT, Cell, Column, Table, chip
from regional_explorer.ui.answer import suggestion_row
from regional_explorer.ui.parts import alert, button, pieces_text
from regional_explorer.ui.state import CONFIG, SELECTOR, PanelState, Shown, Sort

MOST_CONFIG_CHIPS = 4
SORT_ARROWS = {None: "", False: " ↑", True: " ↓"}


REGION_HEADS = ("region", "selector", "eager → compiled", "of the call", "config", "numerics")


def sorted_regions(session: Session, sort: Sort | None) -> Table[RegionSummary]:
    """Return the table of the regions in the order of ``sort``."""
    table = regions_table(session)
    return table if sort is None else table.ordered(sort.column, descending=sort.descending)


def region_table(shown: Shown) -> list[Node]:
    """Return the table of the regions; without regions, suggested regions."""
    state, table = shown.state, sorted_regions(shown.session, shown.state.sort)
    if not table.rows:
        return suggestion_row(shown)

    def head(column: Column[RegionSummary]) -> Node:
        if not column.title:
            return node("th", "")
        descending = state.sort.descending if state.sort is not None and state.sort.column == column.title else None
        order = {None: "none", False: "ascending", True: "descending"}[descending]
        text, class_ = column.title + SORT_ARROWS[descending], f"{column.class_}{' rx-figure' if column.right else ''}"
        return node("th", button(text, "sort", column.title, title=ABOUT[column.title]), aria_sort=order, class_=class_)

    def row(summary: RegionSummary) -> dict[str, object]:
        name = summary.region.name
        selected = str(name in state.selected_rows).lower()
        events = {"data_do": "pick", "data_of": name}
        return {**events, "tabindex": "-1", "aria_selected": selected, "aria_label": clean(name)}

    cells: dict[str, Cell[RegionSummary]] = {
        "region": partial(_name_cell, state),
        "selector": partial(_selector_cell, state),
        "config": partial(_config_cell, state),
    }
    label = "Regions. Arrow keys move between rows, Enter selects one, Space adds one, Shift extends the selection."
    edited = table.edited(REGION_HEADS, cells, partial(_row_buttons, state))
    return [edited.grid(heads=head, row=row, role="grid", aria_multiselectable="true", aria_label=label)]


def _row_buttons(state: PanelState, summary: RegionSummary) -> list[Node]:
    name, clean_name = summary.region.name, clean(summary.region.name)
    worst, number = summary.worst, len(summary.diagnostics)
    tone, title = f"rx-{TONES[worst]}" if worst else None, f"Why {clean_name} is as fast as it is, and its diagnostics"
    why = button(f"Why {number or ''}".strip(), "why", name, class_=tone, title=title)
    label, title = f"Remove {clean_name} from the plan", f"Remove the region {clean_name} from the plan"
    return [why, button("×", "remove", name, disabled=state.busy, aria_label=label, title=title, class_="rxt-small")]


def _name_cell(state: PanelState, summary: RegionSummary) -> list[Node]:
    clean_name = clean(summary.region.name)
    checkbox = node(
        "input",
        type="checkbox",
        checked=summary.region.enabled,
        disabled=state.busy,
        data_do="enable",
        data_of=summary.region.name,
        aria_label=f"Compile {clean_name}",
        title=f"Compile {clean_name}; when off it runs eagerly",
    )
    return [checkbox, chip(summary.number), node("b", clean_name, title=clean_name)]


def _selector_cell(state: PanelState, summary: RegionSummary) -> list[Node | str]:
    region = summary.region
    invalid = state.invalid_inputs.get((region.name, None, SELECTOR))
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
        disabled=state.busy,
        class_="rx-wrong" if invalid else None,
        aria_label=f"What {clean(region.name)} picks",
        title="The ops of the region: modules, lines, ops, nodes or subgraphs, and a pattern. Press Enter to change it",
        spellcheck="false",
    )
    return [editable, pieces, *alert(invalid.error if invalid else "")]


def _config_cell(state: PanelState, summary: RegionSummary) -> list[Node]:
    entries, region = catalogue(), summary.region
    opened = region.name == state.opened and state.shows(CONFIG)

    def is_default(key: str, value: object) -> bool:
        return key in entries and value == entries[key].default  # a plan may have keys that this torch does not know

    inert = {
        (action.options.get("direction"), key): clean(found.message, LONG)
        for found in summary.diagnostics
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
    ] + [(text, None) for text in region.treatment.texts]
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
            aria_expanded=str(opened).lower(),
            title=f"{'Close' if opened else 'Show and change'} the config of {clean(region.name)}",
        )
    ]


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
        f"CI {between(row.seconds, duration)}" if row.seconds.bounds else row.seconds.why,
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
