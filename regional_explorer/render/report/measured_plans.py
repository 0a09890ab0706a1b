"""The table of measured plans, for the panel and for saved pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regional_explorer.record.plan_differences import differences
from regional_explorer.record.session import Session
from regional_explorer.record.timing import Timing
from regional_explorer.record.variant_name import VariantName
from regional_explorer.render.style.element import Node, node
from regional_explorer.render.style.formats import NONE, duration, interval, speedup
from regional_explorer.render.style.tones import TONES, TRENDS, toned

MIN_PLANS = 2
"""The table is shown from this number of measured plans on."""
MAX_DIFFERENCES = 6
"""How many differences of one plan are listed at most; ``ex.history`` has all."""

_CURRENT_PLAN = node("span", "current plan", class_="rx-quiet")


def measured_plans(
    runs: Sequence[Session], current: Session, use: Callable[[int], Node | None] = lambda _number: None
) -> list[Node]:
    """Return a table with one row per run, the plan of ``current`` marked; nothing while there are fewer than two.

    ``use`` returns the button that switches to a plan, given its number; a saved page has none.
    """
    if len(runs) < MIN_PLANS:
        return []
    variants = list(dict.fromkeys(timing.variant for run in runs for timing in run.timings))
    heads = ["plan", "differences", *variants, "regional: speedup", "CI", "compile", "numerics", ""]
    figures = {*variants, "regional: speedup", "CI", "compile"}
    head = node("tr", *(node("th", text, class_="rxt-figure" if text in figures else "") for text in heads))
    plan_differences = differences([run.plan for run in runs])
    shapes_differ = len({run.shapes for run in runs}) > 1
    rows = []
    for number, (run, plan_texts) in enumerate(zip(runs, plan_differences, strict=True)):
        difference_texts = [*([f"shapes: {run.shapes}"] if shapes_differ else []), *plan_texts]
        is_current = run.plan == current.plan and run.shapes == current.shapes
        timings = run.whole_timings
        regional = timings.get(VariantName.REGIONAL)
        cells = [
            *(_figure_cell(duration(timings[name].median_s) if name in timings else NONE, name) for name in variants),
            _speedup_cell(regional),
            _figure_cell(interval(regional) if regional else NONE, "CI"),
            _figure_cell(duration(run.compile_s), "compile"),
            node("td", regional.numerics if regional else NONE, data_head="numerics"),
        ]
        chips = [node("span", text, class_="rx-key") for text in difference_texts[:MAX_DIFFERENCES]]
        more = (
            node("span", f"and {len(difference_texts) - MAX_DIFFERENCES} more", class_="rx-quiet")
            if len(difference_texts) > MAX_DIFFERENCES
            else ""
        )
        rows.append(
            node(
                "tr",
                node("td", node("b", str(number + 1)), class_="rxt-name"),
                node("td", *(chips or [node("span", "–")]), more),
                *cells,
                node("td", _CURRENT_PLAN if is_current else use(number), class_="rxt-last"),
            )
        )
    table = node("table", node("thead", head), node("tbody", *rows), aria_label="Measured plans")
    return [node("h4", "Measured plans"), table]


def _figure_cell(text: str, head: str) -> Node:
    return node("td", text, class_="rxt-figure", data_head=head)


def _speedup_cell(regional: Timing | None) -> Node:
    if regional is None:
        return _figure_cell(NONE, "speedup")
    tone = TONES.get(regional.verdict, "quiet")
    text = toned(speedup(regional), tone, TRENDS, title=str(regional.verdict))
    return node("td", text, class_="rxt-figure", data_head="speedup")
