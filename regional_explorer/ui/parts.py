"""Parts of the panel: controls, tool bar, header, tabs, diagnostics, edit bar."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from regional_explorer.errors import listing
from regional_explorer.export.plan_source import plan_source
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.gpu_targets import GPU_TARGETS
from regional_explorer.record.json_file import plan_line
from regional_explorer.record.plan import Plan, Region
from regional_explorer.record.region_code import nodes_of_diagnostic, nodes_of_region
from regional_explorer.record.session import SHAPES, Session
from regional_explorer.record.timing import VariantName
from regional_explorer.style.css import SIGNS, TONES, toned
from regional_explorer.style.element import LONG_TEXT, SHORT, Node, clean, clean_page, node, verbatim
from regional_explorer.tables.plan import diagnostics_nodes
from regional_explorer.ui.state import CODE, DIAGNOSTICS, IMPORT_RX, PANES, Job, NameForm, PanelState, Problem


def button(text: str, do: str, of: str = "", *, title: str = "", disabled: bool = False, **attributes: object) -> Node:
    """Return a button that sends the event ``do``."""
    return node(
        "button", text, type="button", data_do=do, data_of=of, title=title or None, disabled=disabled, **attributes
    )


def copy_button(text: str, what: str, *, title: str = "") -> Node:
    """Return a button that copies ``what`` to the clipboard; the page does this without the kernel."""
    return node("button", text, type="button", data_do="copy", data_of=what, title=title or None)


def copy_python_button(code: str, *, title: str = "") -> Node:
    """Return a button that copies Python code, with the import that it needs."""
    return copy_button("Copy as Python", f"{IMPORT_RX}\n{code}" if "rx." in code else code, title=title)


def field(label: str, do: str, value: object, *, of: str = "", kind: str = "text", **attributes: object) -> Node:
    """Return a labelled input that sends the event ``do`` with what was typed."""
    return node(
        "label", node("span", label), node("input", type=kind, data_do=do, data_of=of, value=str(value), **attributes)
    )


def checkbox(label: str, do: str, of: str, *, checked: bool, disabled: bool = False, **attributes: object) -> Node:
    """Return a labelled checkbox."""
    box = node("input", type="checkbox", data_do=do, data_of=of, checked=checked, disabled=disabled, **attributes)
    return node("label", box, node("span", label), class_="rx-check")


def choice(label: str, do: str, options: Iterable[tuple[str, str]], value: str, **attributes: object) -> Node:
    """Return a labelled menu of ``options``, each a value and its text."""
    entries = (node("option", text, value=name, selected=name == value) for name, text in options)
    return node("label", node("span", label), node("select", *entries, data_do=do, **attributes))


def alert(error: str) -> list[Node]:
    """Return an error message to place at a field; nothing without an error."""
    return [node("div", toned(error, "bad"), role="alert", class_="rx-error")] if error else []


MAX_BUDGET_S = 3600.0
NO_OWNER = "...  # Put your exploration here: no variable holds the one that was shown."
"""Stands in copied code for an exploration that has no Python expression."""


def tool_bar(state: PanelState) -> list[Node]:
    """Return the buttons, each enabled where it applies, the budget, and the choice of variants."""
    busy, job = state.busy, state.job
    stoppable = job is not None and not job.in_cell and not job.cancelling
    return [
        button(
            "▶ Compile & measure",
            "measure",
            title="Compile stale partitions, check the numerics, measure",
            disabled=busy,
            class_="rx-primary",
            aria_label="Compile & measure",
        ),
        button("Compile", "compile", title="Compile stale partitions without measuring", disabled=busy),
        button("Profile", "profile", title="Time every op, to see where the time goes", disabled=busy),
        button("Cancel", "cancel", title="Stop the job; the results so far are kept", disabled=not stoppable),
        button("Undo", "undo", title="Undo the last change of the plan", disabled=busy or not state.past),
        button("Redo", "redo", title="Redo the change", disabled=busy or not state.future),
        field(
            "Budget (s)",
            "budget",
            f"{state.budget_s:g}",
            kind="number",
            min="0.1",
            max=f"{MAX_BUDGET_S:g}",
            step="0.1",
            disabled=busy,
            title="Seconds to measure, without compile time",
        ),
        _variant_boxes(state.variants, busy=busy),
    ]


def export_buttons(plan: Plan, owner: str, *, busy: bool) -> Node:
    """Return the buttons that save and copy the results.

    Args:
        plan: the plan.
        owner: the Python expression of the exploration, empty if there is none.
        busy: whether a job is running.
    """
    python = plan_source(plan)
    if owner != "ex":
        python = f"ex = {owner.removeprefix(f'{IMPORT_RX}; ') or NO_OWNER}\n{python}"
    return node(
        "div",
        button(
            "Save HTML", "save", "html", title="Save an interactive page with graph, source and tables", disabled=busy
        ),
        button("Save JSON", "save", "json", title="Save everything, for rx.load", disabled=busy),
        copy_button("Copy plan", plan_line(plan), title="For %regional_compile --plan, or a file"),
        copy_python_button(python, title="Copy the calls that make this plan"),
        button("Code", "pane", CODE, title="Show the generated code of a region"),
        class_="rx-exports",
        role="group",
        aria_label="Results",
    )


def shapes_field(shapes: str, *, busy: bool) -> Node:
    """Return the choice of shapes; another one traces the call again."""
    title = "Trace the call again with automatic, static or dynamic shapes, as dynamic= of torch.compile"
    options = ((word, word) for word in SHAPES)
    return choice("shapes", "shapes", options, shapes, disabled=busy, title=title, aria_label="Shapes")


_VARIANT_TITLES = {
    VariantName.EAGER: "Always measured: all others are compared with it",
    VariantName.UPSTREAM: "The same marks under torch's own regional_inductor",
    VariantName.LITE: "The same marks under torch.compile(mode='lite')",
}


def _variant_boxes(chosen: tuple[VariantName, ...], *, busy: bool) -> Node:
    boxes = (
        checkbox(
            name,
            "variant",
            name,
            checked=name in chosen,
            disabled=busy or name is VariantName.EAGER,
            title=_VARIANT_TITLES.get(name),
        )
        for name in VariantName
    )
    return node("div", node("span", "Compare"), *boxes, class_="rx-variants", role="group", aria_label="Variants")


def progress(job: Job | None, note: str) -> list[Node]:
    """Return the progress of the job, or the note of the last one."""
    if job is None:
        return [node("span", note, role="status")] if note else []
    doing = job.doing or f"{job.name}: starting"
    if job.cancelling:
        doing = f"Cancelling after this step: {doing}"
    elif job.in_cell:
        doing = f"{doing} (to stop, interrupt the kernel)"
    bar = node("progress", max="1", value=f"{job.fraction:.3f}", aria_label=job.name)
    return [bar, node("span", doing, role="status")]


def problem(found: Problem | None) -> list[Node]:
    """Return an error with its traceback, if it has one, and a button that dismisses it."""
    if found is None:
        return []
    message = node("div", toned(found.text, "bad"), role="alert")
    dismiss = button("Dismiss", "dismiss", title="Dismiss the message")
    return [node("div", message, *traceback(found.details)), dismiss]


def traceback(text: str) -> list[Node]:
    """Return a folded traceback, or nothing without text."""
    if not text:
        return []
    return [node("details", node("summary", "Traceback"), verbatim("code", clean_page(text, 4 * LONG_TEXT)))]


def tabs(pane: str, session: Session) -> list[Node]:
    """Return the tabs; the diagnostics tab has the number of diagnostics and the sign of the worst."""
    tones = [TONES[diagnostic.severity] for diagnostic in session.diagnostics]
    sign = next((SIGNS[tone] for tone in ("bad", "warn") if tone in tones), "")
    suffixes = {DIAGNOSTICS: f" {sign}{len(tones)}" if tones else ""}
    return [
        button(
            f"{name.capitalize()}{suffixes.get(name, '')}",
            "pane",
            name,
            role="tab",
            class_="rx-tab",
            aria_selected=str(name == pane).lower(),
            tabindex="0" if name == pane else "-1",
        )
        for name in PANES
    ]


def code_head(name: str | None, *, compiled: bool, unread: int, note: str, target: str, busy: bool) -> list[Node]:
    """Return the head of the code tab: the region, the target, and a button if code is missing.

    Args:
        name: the region, or None.
        compiled: whether any of it was compiled.
        unread: how many of its partitions have code that was not read yet.
        note: a remark on where the code comes from.
        target: the GPU that the code is for; empty for the code that was compiled.
        busy: whether a job is running.
    """
    if name is None:
        return [node("p", "Select a region: its generated code is shown here.", class_="rx-quiet")]
    targets = [
        ("", "what was compiled"),
        *((gpu.name, f"{gpu.title} (generated, not run)") for gpu in GPU_TARGETS.values()),
    ]
    head = [node("h4", f"Code of {clean(name)}"), choice("for", "target", targets, target, disabled=busy)]
    if unread:
        head.append(button("Read the code", "code", title="Find out what its kernels are", disabled=busy))
    elif not target and not compiled:
        head += [
            node("p", "Not compiled yet.", class_="rx-quiet"),
            button("Compile", "compile code", title="Compile stale partitions, then read the code", disabled=busy),
        ]
    return [node("div", *head, class_="rx-line"), *([node("p", note, class_="rx-quiet")] if note else [])]


def diagnostics_list(session: Session) -> list[Node]:
    """Return the diagnostics as a list, folded if there are many."""

    def show_button(number: int, diagnostic: Diagnostic) -> Node | None:
        if not nodes_of_diagnostic(diagnostic, session):
            return None
        title = "Select its nodes in the graph and in the source"
        return button("Show", "show", str(number), title=title, aria_label=f"Show the nodes of {diagnostic.code}")

    return diagnostics_nodes(session.diagnostics, show_button)


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
