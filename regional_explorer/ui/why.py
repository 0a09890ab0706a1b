"""The pane that explains the speed of a region: kernels, recomputed ops, configs that were tried, diagnostics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from regional_explorer.errors import listing
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.figure import exactly
from regional_explorer.record.graph import recomputed_ops
from regional_explorer.record.region_code import grouped_by_artifact, nodes_of_diagnostic, nodes_of_region, region_code
from regional_explorer.record.regions import region_timings_of_whole_call
from regional_explorer.record.session import Session
from regional_explorer.style.element import LONG_TEXT, SHORT, Node, clean, node
from regional_explorer.style.formats import between, duration, region_config_text
from regional_explorer.tables.code import TimedRow, kernel_times_table, kernels_table
from regional_explorer.tables.plan import diagnostics_nodes
from regional_explorer.tables.regions import speedup_nodes
from regional_explorer.tables.table import chip
from regional_explorer.ui.parts import button
from regional_explorer.ui.state import Shown

HINT = "Press Why in the row of a region to see its kernels, its recomputed ops, and the configs that were tried."


def is_unexplained(session: Session, region: str) -> bool:
    """Return whether a region is compiled but its kernels have no times that measuring may give."""
    compiled = any(part.region == region and part.artifact is not None for part in session.partitions)
    times = [row.times for row in kernel_times_table(session, region).rows]
    return compiled and all(each.unknown and each.is_measurable for each in times)


def why_pane(shown: Shown) -> list[Node]:
    """Return the facts about the open region, its diagnostics, then all other diagnostics."""
    session, region = shown.session, shown.opened
    numbers = {id(diagnostic): number for number, diagnostic in enumerate(session.diagnostics)}

    def show_button(_number: int, diagnostic: Diagnostic) -> Node | None:
        if not nodes_of_diagnostic(diagnostic, session):
            return None
        title, number = "Select its nodes in the graph and in the source", str(numbers[id(diagnostic)])
        return button("Show", "show", number, title=title, aria_label=f"Show the nodes of {diagnostic.code}")

    own = [finding for finding in session.diagnostics if region is not None and finding.region == region.name]
    others = [finding for finding in session.diagnostics if finding not in own]
    nothing = node("p", "No diagnostics: all was done as requested.", class_="rx-quiet")
    return [
        *([node("p", HINT, class_="rx-quiet")] if region is None else _region_facts(region.name, shown)),
        *diagnostics_nodes(own, show_button, infos_open=True),
        *([node("h4", "Other diagnostics")] if region is not None and others else []),
        *diagnostics_nodes(others, show_button),
        *([] if session.diagnostics else [nothing]),
    ]


def _region_facts(name: str, shown: Shown) -> Iterator[Node]:
    session = shown.session
    yield node("h4", chip(session.plan.numbers[name]), f" {clean(name, SHORT)}")
    yield from _kernels(name, session, busy=shown.state.busy)
    for title, facts in (
        ("Not fused", _unfused_text(name, session)),
        ("Computed again", _recomputed_text(name, session)),
    ):
        if facts:
            yield node("p", node("b", f"{title}: "), f"{facts}.")
    yield from _tried_configs(name, shown)


# ------------------------------------------------------------------------------------------------------------- kernels

MOST_KERNELS = 8


def _kernels(region: str, session: Session, *, busy: bool) -> list[Node]:
    """Return the times of a region's kernels as bars with their bounds, or the button that measures them."""
    table, unexplained = kernel_times_table(session, region), is_unexplained(session, region)
    rows = [row for row in table.rows if row.seconds is not None and not row.times.unknown]
    if not rows:
        title = "Time each kernel of the region, and try configs that could make it faster"
        measure = button("Find out why", "diagnose", region, title=title, disabled=busy or not unexplained)
        missing = "Its kernels were not timed." if unexplained else "The region is not compiled yet."
        problem = next((row.times.unknown for row in table.rows), "")
        return [node("div", node("span", problem or missing, class_="rx-quiet"), measure, class_="rx-line")]
    longest = max(row.seconds.value for row in rows if row.seconds)
    shown = sorted(rows, key=lambda row: -(row.seconds.value if row.seconds else 0.0))[:MOST_KERNELS]
    more = f"{len(rows) - len(shown)} more below {duration(shown[-1].seconds and shown[-1].seconds.value)}. "
    return [
        node("table", node("tbody", *(_kernel_row(row, longest) for row in shown)), class_="rx-times"),
        node(
            "p",
            more if len(rows) > len(shown) else "",
            "A bar is the time of one run; its mark is the bound, the time to copy its bytes or multiply its matrices.",
            class_="rx-quiet",
        ),
    ]


def _kernel_row(row: TimedRow, longest_s: float) -> Node:
    seconds, bound_s = row.seconds or exactly(0.0), row.time and row.time.valid_bound_s
    lines = row.linked.lines if row.linked else ()
    place = f"line {lines[0].line}{' …' if len(lines) > 1 else ''}" if lines else None
    bound = [node("span", style=f"left:{100 * bound_s / longest_s:.1f}%")] if bound_s else []
    bar = node("div", node("i", style=f"width:{100 * seconds.value / longest_s:.1f}%"), *bound)
    bound_text = f"bound {duration(bound_s)} by {row.time.bound_by}" if bound_s and row.time else "no bound is known"
    title = clean(", ".join(map(str, lines)), LONG_TEXT) or None
    return node(
        "tr",
        node("td", clean(row.name or "", SHORT), place and node("small", place), title=title),
        node("td", bar, title=bound_text),
        node("td", duration(seconds.value), class_="rx-figure", title=between(seconds, duration) or None),
    )


# --------------------------------------------------------------------------------------------------------------- facts

MOST_FACTS = 4


def _unfused_text(region: str, session: Session) -> str:
    """Return the kernels that Inductor did not fuse, and why; empty unless the code of the region was read."""
    codes = [equal[0] for equal in grouped_by_artifact(region_code(session, region))]
    refused = (f"{row.kernel.name} with {row.refusals}" for row in kernels_table(codes).rows if row.refusals)
    return listing([clean(text, LONG_TEXT) for text in refused], MOST_FACTS, joint="; ")


def _recomputed_text(region: str, session: Session) -> str:
    """Return the ops of the region's forward that its backward recomputes, as text."""
    recomputed = recomputed_ops(session.graphs)
    ops = Counter(recomputed[name].op for name in nodes_of_region(session, region) if name in recomputed)
    texts = [f"{op} × {times}" if times > 1 else op for op, times in ops.most_common()]
    return f"{listing(texts, MOST_FACTS)} in the backward, because the forward does not keep the results" if ops else ""


def _tried_configs(region: str, shown: Shown) -> Iterator[Node]:
    """Yield the region's speedup alone under each config that it has in a measured plan."""
    plans = [*shown.runs, shown.session]
    timings = {
        region_config_text(plan.plan[region]) or "default": timing
        for plan in plans
        if region in plan.plan
        and plan.plan[region].selectors == shown.state.plan[region].selectors
        and (timing := region_timings_of_whole_call(plan).get(region))
        and timing.speedup
    }
    if len(timings) > 1:
        cells = {config: node("td", *speedup_nodes(timing), class_="rx-figure") for config, timing in timings.items()}
        rows = [node("tr", node("td", config), cell) for config, cell in cells.items()]
        yield node("p", node("b", "Tried: "), "the region's speedup over eager, measured alone")
        yield node("table", node("tbody", *rows), aria_label=f"Configs of {clean(region, SHORT)} that were tried")
