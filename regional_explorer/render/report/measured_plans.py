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

_CURRENT = node("span", "current plan", class_="rx-quiet")


def measured_plans(
    runs: Sequence[Session], current: Session, use: Callable[[int], Node | None] = lambda _number: None
) -> list[Node]:
    """Return a table with one row per run, the plan of ``current`` marked; nothing while there are fewer than two.

    ``use`` returns the button that switches to a plan, given its number; a saved page has none.
    """
    if len(runs) < MIN_PLANS:
        return []
    names = list(dict.fromkeys(timing.variant for run in runs for timing in run.timings))
    heads = ["plan", "differences", *names, "regional: speedup", "CI", "compile", "numerics", ""]
    figures = {*names, "regional: speedup", "CI", "compile"}
    head = node("tr", *(node("th", text, class_="rxt-figure" if text in figures else "") for text in heads))
    plan_differences = differences([run.plan for run in runs])
    other_shapes = len({run.shapes for run in runs}) > 1
    rows = []
    for number, (run, other_plan) in enumerate(zip(runs, plan_differences, strict=True)):
        differs = [*([f"shapes: {run.shapes}"] if other_shapes else []), *other_plan]
        is_current = run.plan == current.plan and run.shapes == current.shapes
        times = run.whole_timings
        regional = times.get(VariantName.REGIONAL)
        cells = [
            *(_figure(duration(times[name].median_s) if name in times else NONE, name) for name in names),
            _speedup(regional),
            _figure(interval(regional) if regional else NONE, "CI"),
            _figure(duration(run.compile_s), "compile"),
            node("td", regional.numerics if regional else NONE, data_head="numerics"),
        ]
        chips = [node("span", text, class_="rx-key") for text in differs[:MAX_DIFFERENCES]]
        more = (
            node("span", f"and {len(differs) - MAX_DIFFERENCES} more", class_="rx-quiet")
            if len(differs) > MAX_DIFFERENCES
            else ""
        )
        rows.append(
            node(
                "tr",
                node("td", node("b", str(number + 1)), class_="rxt-name"),
                node("td", *(chips or [node("span", "–")]), more),
                *cells,
                node("td", _CURRENT if is_current else use(number), class_="rxt-last"),
            )
        )
    drawn = node("table", node("thead", head), node("tbody", *rows), aria_label="Measured plans")
    return [node("h4", "Measured plans"), drawn]


def _figure(text: str, head: str) -> Node:
    return node("td", text, class_="rxt-figure", data_head=head)


def _speedup(regional: Timing | None) -> Node:
    if regional is None:
        return _figure(NONE, "speedup")
    tone = TONES.get(regional.verdict, "quiet")
    inside = toned(speedup(regional), tone, TRENDS, title=str(regional.verdict))
    return node("td", inside, class_="rxt-figure", data_head="speedup")
