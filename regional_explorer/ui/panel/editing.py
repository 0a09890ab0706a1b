"""The buttons that edit the selected regions: rename, merge, split, carve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from regional_explorer.errors.texts import listing
from regional_explorer.record.node_names import nodes_of_region
from regional_explorer.record.plan import Plan
from regional_explorer.record.region import Region
from regional_explorer.record.session import Session
from regional_explorer.render.style.element import Node, node
from regional_explorer.render.style.untrusted import SHORT, clean
from regional_explorer.ui.panel.controls import alert, button
from regional_explorer.ui.state import NameForm

MIN_MERGED = 2
MOST_NAMED_REGIONS = 6


@dataclass(frozen=True, slots=True)
class Edit:
    """A button of the bar: ``applies`` says whether it does for the selected regions, and the carvable nodes."""

    text: str
    title: str
    applies: Callable[[Sequence[Region], Mapping[str, Sequence[str]]], bool]


EDITS: Mapping[str, Edit] = {
    "rename": Edit("Rename", "Give the selected region this name", lambda regions, _: len(regions) == 1),
    "merge": Edit(
        "Merge",
        "Merge the selected regions into one, with the first's config",
        lambda regions, _: len(regions) >= MIN_MERGED,
    ),
    "split": Edit(
        "Split",
        "Split at the first node selected in the graph, or else by instance",
        lambda regions, _: len(regions) == 1,
    ),
    "carve": Edit("Carve out", "Run the ops selected in the graph eagerly", lambda _, carvable: bool(carvable)),
    "uncarve": Edit(
        "Take back",
        "Return carved ops to the selected region",
        lambda regions, _: len(regions) == 1 and bool(regions[0].carved),
    ),
}
"""The buttons by the event they send."""


def edit_bar(
    plan: Plan, picked: Sequence[str], carvable: Mapping[str, Sequence[str]], form: NameForm, *, busy: bool
) -> list[Node]:
    """Return a name field and a row of buttons, each enabled when it applies; nothing without a selection.

    Args:
        plan: the plan.
        picked: names of the selected rows.
        carvable: nodes selected in the graph, by region; ``partly_selected`` finds them.
        form: what was typed, and its error.
        busy: whether a job is running.
    """
    regions = [plan[name] for name in picked if name in plan]
    if not regions and not carvable:
        return []
    selected = (
        [node("b", listing([clean(name, SHORT) for name in picked], MOST_NAMED_REGIONS)), " selected"]
        if regions
        else ["Ops of ", node("b", listing([clean(name, SHORT) for name in carvable], MOST_NAMED_REGIONS))]
    )
    name_field = node(
        "input",
        type="text",
        value=form.name,
        placeholder="new name",
        aria_label="new name",
        title="A new name for the selected region, or for the merged one",
        data_do="new name",
        data_live=True,
        disabled=busy,
    )
    buttons = (
        button(edit.text, do, title=edit.title, disabled=busy or not edit.applies(regions, carvable))
        for do, edit in EDITS.items()
    )
    return [
        node("div", node("span", *selected, class_="rx-quiet"), name_field, *buttons, class_="rx-line"),
        *alert(form.error),
    ]


def partly_selected(session: Session, selection: Sequence[str]) -> dict[str, list[str]]:
    """Return the nodes selected in the graph by region, as they run, without regions that are selected completely."""
    selected_names = set(selection)
    nodes_by_region: dict[str, list[str]] = {}
    for region in session.plan.regions if selection else ():
        region_nodes = nodes_of_region(session, region.name)
        selected = [name for name in region_nodes if name in selected_names]
        if 0 < len(selected) < len(region_nodes):
            nodes_by_region[region.name] = selected
    return nodes_by_region
