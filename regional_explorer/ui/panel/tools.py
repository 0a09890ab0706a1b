"""The tool bar (compile, measure, cancel, undo), what saves and copies, and the progress, note or error of a job."""

from __future__ import annotations

from regional_explorer.record.codec import plan_line
from regional_explorer.record.plan import Plan
from regional_explorer.record.session import SHAPES
from regional_explorer.record.variant_name import VariantName
from regional_explorer.render.report.plan_source import plan_source
from regional_explorer.render.style.element import Node, node, verbatim
from regional_explorer.render.style.tones import toned
from regional_explorer.render.style.untrusted import LONG_TEXT, clean_page
from regional_explorer.ui.panel.controls import button, checkbox, choice, copy_button, copy_python_button, field
from regional_explorer.ui.state import CODE, IMPORT_RX, Job, PanelState, Problem

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
