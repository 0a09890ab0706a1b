"""Parts of the panel (header, tool bar, progress, tabs, code head, plans, edit bar), and their buttons and fields."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from regional_explorer.errors import count, listing
from regional_explorer.export.to_source import plan_source
from regional_explorer.page.panes import BESIDE, GRAPH, SOURCE
from regional_explorer.page.report import summary_rows
from regional_explorer.record.benchmark import VariantName
from regional_explorer.record.files import plan_line
from regional_explorer.record.gpu_targets import GPU_TARGETS
from regional_explorer.record.partition import State
from regional_explorer.record.plan import Region
from regional_explorer.record.region_code import nodes_of_region
from regional_explorer.record.session import SHAPES, Session
from regional_explorer.style.css import SIGNS, TONES, toned
from regional_explorer.style.element import LONG_TEXT, SHORT, Node, clean, clean_page, node, verbatim
from regional_explorer.style.formats import word
from regional_explorer.tables.plan import measured_plans
from regional_explorer.ui.state import CANCEL, IMPORT_RX, PANES, WHY, PanelState, Shown


def button(text: str, do: str, of: str = "", *, title: str = "", disabled: bool = False, **attributes: object) -> Node:
    """Return a button that sends the event ``do``."""
    return node(
        "button", text, type="button", data_do=do, data_of=of, title=title or None, disabled=disabled, **attributes
    )


def copy_button(text: str, content: str, *, title: str = "") -> Node:
    """Return a button that copies ``content`` to the clipboard; the page does this without the kernel."""
    return node("button", text, type="button", data_do="copy", data_of=content, title=title or None)


def copy_python_button(code: str, *, title: str = "") -> Node:
    """Return a button that copies Python code, with the import that it needs."""
    return copy_button("Copy as Python", f"{IMPORT_RX}\n{code}" if "rx." in code else code, title=title)


def field(label: str, do: str, value: object, *, kind: str = "text", **attributes: object) -> Node:
    """Return a labelled input that sends the event ``do`` with the typed text."""
    return node(
        "label", node("span", label), node("input", type=kind, data_do=do, data_of="", value=str(value), **attributes)
    )


def choice(label: str, do: str, options: Iterable[tuple[str, str]], value: str, **attributes: object) -> Node:
    """Return a labelled menu of ``options``, each a value and its text."""
    entries = (node("option", text, value=name, selected=name == value) for name, text in options)
    return node("label", node("span", label), node("select", *entries, data_do=do, **attributes))


def alert(error: str) -> list[Node]:
    """Return an error message to place at a field; empty without an error."""
    return [node("div", toned(error, "bad"), role="alert", class_="rx-error")] if error else []


def pieces_text(pieces: int, forward: int, backward: int) -> str:
    """Return the size of a region: its pieces, and its ops in the forward and in the backward."""
    return f"{count(pieces, 'piece')}, {f'{forward} + {backward} ops' if backward else count(forward, 'op')}"


MAX_BUDGET_S = 3600.0
NO_OWNER = "...  # Put your exploration here: no variable holds it."
"""The text in copied code in place of an exploration that has no Python expression."""


def tool_bar(shown: Shown) -> list[Node]:
    """Return the tool bar: buttons, disabled where they do not apply, the options, and the columns."""
    state, busy, job = shown.state, shown.state.busy, shown.state.job
    stoppable = job is not None and not job.cancelling
    buttons = (
        button(
            title,
            "column",
            name,
            title=f"Show or hide the column of the {title.lower()}",
            aria_pressed=str(name in state.columns).lower(),
        )
        for name, title in _COLUMN_TITLES.items()
    )
    return [
        button(
            "▶ Compile & measure",
            "measure",
            title="Compile pieces that are not compiled, check the results, measure",
            disabled=busy,
            class_="rx-primary",
            aria_label="Compile & measure",
        ),
        button("Compile", "compile", title="Compile pieces that are not compiled, without measuring", disabled=busy),
        button("Profile", "profile", title="Time every op, to see where the time goes", disabled=busy),
        button(CANCEL, "cancel", title="Stop the job; the results so far are kept", disabled=not stoppable),
        button("Undo", "undo", title="Undo the last change of the plan", disabled=busy or not state.past),
        button("Redo", "redo", title="Redo the change", disabled=busy or not state.future),
        _options(state, busy=busy),
        node("div", *buttons, class_="rx-toggles", role="group", aria_label="Columns"),
    ]


def _options(state: PanelState, *, busy: bool) -> Node:
    budget = field(
        "Budget (s)",
        "budget",
        f"{state.budget_s:g}",
        kind="number",
        min="0.1",
        max=f"{MAX_BUDGET_S:g}",
        step="0.1",
        disabled=busy,
        title="Seconds to measure the variants; compile time comes on top",
    )
    summary = node("summary", "Options", title="The variants to compare, and the seconds to measure them")
    return node("details", summary, node("div", budget, _variant_boxes(state.variants, busy=busy)), class_="rx-options")


_COLUMN_TITLES = {GRAPH: "Graph", SOURCE: "Source", BESIDE: "Details"}


def header(shown: Shown) -> list[Node]:
    """Return the title, the save-and-copy menu, and a line with facts of the capture, the shapes menu and the owner."""
    session = shown.session
    summary = dict(summary_rows(session))
    stale = sum(part.state is State.STALE for part in session.partitions)
    changes = ", ".join(session.environment_changes) if stale else ""
    facts = [f"{count(stale, 'piece')} must be compiled again: {changes}"] if changes else []
    facts += [summary["graphs"], f"graph breaks: {summary['graph breaks']}", summary["device"], summary["gradients"]]
    facts += [f"traced: {summary['traced']}"] if "traced" in summary else []
    captured = node("span", " · ".join(facts), title="; ".join(": ".join(row) for row in summary.items()))
    owner = ["in Python: ", node("code", shown.owner)] if shown.owner else ["not assigned to a variable"]
    owner_note = node("span", *owner, title="The variable with the exploration that this panel shows")
    shapes_field = choice(
        "shapes",
        "shapes",
        ((word, word) for word in SHAPES),
        shown.shapes,
        disabled=shown.state.busy,
        title="Trace the call again with automatic, static or dynamic shapes, as dynamic= of torch.compile",
        aria_label="Shapes",
    )
    return [
        node("h3", shown.session.title),
        _save_menu(shown),
        node("div", captured, " · ", shapes_field, " · ", owner_note, class_="rx-line rx-quiet"),
    ]


SAVED = {
    "patch": ("Patch", "The plan as torch's annotations: a diff of your files, or the new text of notebook cells"),
    "plan": ("Plan file", "For rx.compile(fn, 'plan.json') and %regional_compile --plan"),
    "python": ("Python", "The calls that make this plan, as a program"),
    "html": ("Page", "An interactive page with graph, source and tables, in one file"),
    "json": ("JSON", "The session, for rx.load"),
}
"""The files that the menu can write, each with its title and description."""


def _save_menu(shown: Shown) -> Node:
    """Return the menu that writes files and copies the plan."""
    plan, owner, busy = shown.state.plan, shown.owner, shown.state.busy
    python = plan_source(plan)
    if owner != "ex":
        python = f"ex = {owner.removeprefix(f'{IMPORT_RX}; ') or NO_OWNER}\n{python}"
    entries = (button(title, "save", kind, title=about, disabled=busy) for kind, (title, about) in SAVED.items())
    copies = (
        copy_button("Copy plan", plan_line(plan), title="For %regional_compile --plan, or a file"),
        copy_python_button(python, title="Copy the calls that make this plan"),
    )
    menu = node("div", *entries, *copies, role="group", aria_label="Results")
    summary = node("summary", "Take home ▾", title="Write the plan and the results to files, or copy the plan")
    return node("details", summary, menu, class_="rx-options")


_VARIANT_TITLES = {
    VariantName.EAGER: "Always measured: all others are compared with it",
    VariantName.AOT_EAGER: "aot_eager: the captured graphs, run op by op; nothing is compiled",
    VariantName.REGIONAL: "regional: each region compiled under its config, the rest op by op",
    VariantName.FULL: "full: the whole call under plain torch.compile",
    VariantName.UPSTREAM: "The same marks under torch's own regional_inductor",
    VariantName.LITE: "The same marks under torch.compile(mode='lite')",
}


def _variant_boxes(chosen: tuple[VariantName, ...], *, busy: bool) -> Node:
    boxes = (
        node(
            "label",
            node(
                "input",
                type="checkbox",
                data_do="variant",
                data_of=name,
                checked=name in chosen,
                disabled=busy or name is VariantName.EAGER,
                title=_VARIANT_TITLES.get(name),
            ),
            node("span", word(name)),
        )
        for name in VariantName
    )
    return node("div", node("span", "Compare"), *boxes, class_="rx-line", role="group", aria_label="Variants")


def progress(shown: Shown) -> list[Node]:
    """Return the job's progress, else the last job's note."""
    job, note, saved = shown.state.job, shown.state.note, shown.state.saved
    if job is None:
        text = note or (f"Saved to {saved}." if saved else "")
        status = node("span", text, role="status", title=text or None)
        return [status, *([button("Open", "file", saved, title="Open the file in a new tab")] if saved else [])]
    doing = job.doing or f"{job.name}: starting"
    if job.cancelling:
        doing = f"Cancelling after this step: {doing}"
    elif job.in_cell:
        doing += " (press Cancel or interrupt the kernel to stop it)"
    bar = node("progress", max="1", value=f"{job.fraction:.3f}", aria_label=job.name)
    stop = [] if job.in_cell or job.stop == CANCEL else [button(job.stop, "cancel", disabled=job.cancelling)]
    return [bar, node("span", doing, role="status", title=doing), *stop]


def problem(shown: Shown) -> list[Node]:
    """Return the error to show, with its traceback if it has one, and a button that dismisses it."""
    error = shown.state.problem
    if error is None:
        return []
    message = node("div", toned(error.text, "bad"), role="alert")
    dismiss = button("Dismiss", "dismiss", title="Dismiss the message")
    return [node("div", message, *traceback(error.details)), dismiss]


def traceback(text: str) -> list[Node]:
    """Return a folded traceback; empty without text."""
    if not text:
        return []
    return [node("details", node("summary", "Traceback"), verbatim("code", clean_page(text, 4 * LONG_TEXT)))]


_PANE_TITLES = {
    "why": "Why a region is as fast as it is, the diagnostics, and what to do",
    "code": "The code that Inductor generated for a region",
    "config": "The Inductor config of a region",
    "time": "Where the time of the call goes",
}


def tabs(shown: Shown) -> list[Node]:
    """Return the tabs; the first shows the number of diagnostics and the sign of the most severe."""
    tones = [TONES[diagnostic.severity] for diagnostic in shown.session.diagnostics]
    sign = next((SIGNS[tone] for tone in ("bad", "warn") if tone in tones), "")
    suffixes = {WHY: f" {sign}{len(tones)}" if tones else ""}
    return [
        button(
            f"{name.capitalize()}{suffixes.get(name, '')}",
            "pane",
            name,
            role="tab",
            title=_PANE_TITLES[name],
            aria_selected=str(name == shown.state.pane).lower(),
            tabindex="0" if name == shown.state.pane else "-1",
        )
        for name in PANES
    ]


def code_head(shown: Shown) -> list[Node]:
    """Return the region whose code is listed, the target, and a button if code is missing."""
    code, target, busy = shown.code, shown.state.target, shown.state.busy
    if code is None:
        return [node("p", "Select a region: its generated code is shown here.", class_="rx-quiet")]
    compiled = any(part.region == code.region and part.artifact is not None for part in shown.session.partitions)
    gpus = [(gpu.name, f"{gpu.title} (generated, not run)") for gpu in GPU_TARGETS.values()]
    targets = [("", "this device"), *gpus]
    head = [node("h4", f"Code of {clean(code.region)}"), choice("for", "target", targets, target, disabled=busy)]
    if shown.unread_partitions:
        head.append(button("Read the code", "code", title="Find the kernels of the compiled code", disabled=busy))
    elif not target and not compiled:
        head += [
            node("p", "Not compiled yet.", class_="rx-quiet"),
            button("Compile", "compile code", title="Compile the region, then read its code", disabled=busy),
        ]
    return [node("div", *head, class_="rx-line"), *([node("p", code.note, class_="rx-quiet")] if code.note else [])]


def plans(shown: Shown) -> list[Node]:
    """Return the measured plans side by side, each with a button that switches to it."""

    def use_button(number: int) -> Node:
        run, name = shown.runs[number], f"Use plan {number + 1}"
        same_shapes = run.shapes == shown.session.shapes
        same_tracing = run.plan.tracing == shown.session.plan.tracing
        tracing = f"with {run.shapes} shapes" if same_tracing else f"with the {run.plan.tracing}"
        effect = "Undo switches back" if same_shapes and same_tracing else f"the call is traced again {tracing}"
        title = f"Switch to plan {number + 1}; {effect}"
        return button("Use this plan", "take", run_key(run), disabled=shown.state.busy, title=title, aria_label=name)

    return measured_plans(shown.runs, shown.session, use_button)


def run_key(run: Session) -> str:
    """Return a stable id of a measured plan; its number changes when the oldest plan is dropped."""
    return hashlib.sha256(f"{run.shapes} {plan_line(run.plan)}".encode()).hexdigest()[:16]


MIN_MERGED = 2
MOST_NAMED_REGIONS = 6


@dataclass(frozen=True, slots=True)
class Edit:
    """A button of the edit bar; ``applies`` takes the selected regions and the carvable nodes."""

    text: str
    title: str
    applies: Callable[[Sequence[Region], Mapping[str, Sequence[str]]], bool]


EDITS: Mapping[str, Edit] = {
    "rename": Edit("Rename", "Give the selected region this name", lambda regions, _: len(regions) == 1),
    "merge": Edit(
        "Merge",
        "Merge the selected regions into one, with the config of the first",
        lambda regions, _: len(regions) >= MIN_MERGED,
    ),
    "split": Edit(
        "Split",
        "Split the region at the first node selected in the graph, else into its instances",
        lambda regions, _: len(regions) == 1,
    ),
    "carve": Edit("Carve out", "Run the ops selected in the graph eagerly", lambda _, carvable: bool(carvable)),
    "uncarve": Edit(
        "Take back",
        "Return carved ops to the selected region",
        lambda regions, _: len(regions) == 1 and bool(regions[0].carved),
    ),
}
"""The buttons of the edit bar, by the event they send."""


def edit_bar(shown: Shown) -> list[Node]:
    """Return a name field and a row of buttons, disabled where they do not apply; empty without regions."""
    state = shown.state
    if not state.plan.regions:
        return []
    regions = [state.plan[name] for name in state.selected_rows]
    carvable = partly_selected(shown.session, state.selection)
    names = listing([clean(name, SHORT) for name in state.selected_rows or carvable], MOST_NAMED_REGIONS)
    which = [*([] if regions else ["ops of "] if carvable else ["no region"]), node("b", names), " selected"]
    selected = node("span", *which, class_="rx-quiet", title=names or None)
    name_field = node(
        "input",
        type="text",
        value=state.rename.name,
        placeholder="new name",
        aria_label="new name",
        title="A new name for the selected region, or for the merged one",
        data_do="new name",
        data_live=True,
        data_enter="rename",
        disabled=state.busy,
    )
    buttons = (
        button(edit.text, do, title=edit.title, disabled=state.busy or not edit.applies(regions, carvable))
        for do, edit in EDITS.items()
    )
    return [
        node("div", selected, name_field, *buttons, class_="rx-line"),
        *alert(state.rename.error),
    ]


def partly_selected(session: Session, selection: Sequence[str]) -> dict[str, list[str]]:
    """Return the selected nodes of partly selected regions, by region, in the order they run."""
    chosen, regions = set(selection), [region.name for region in session.plan.regions] if selection else []
    nodes = {region: nodes_of_region(session, region) for region in regions}
    selected = {region: [name for name in names if name in chosen] for region, names in nodes.items()}
    return {region: names for region, names in selected.items() if 0 < len(names) < len(nodes[region])}


def whole_regions(session: Session, selection: Collection[str]) -> tuple[str, ...]:
    """Return the regions whose pieces, each as a whole, are the selection; empty if it is anything else."""
    pieces = [(part.region, part.graph, part.nodes) for part in session.partitions]
    pieces += [(name, graph, nodes) for name, members in session.members.items() for graph, nodes in members.items()]
    selected = set(selection)
    whole = [(region, {f"{graph}:{name}" for name in nodes}) for region, graph, nodes in pieces]
    whole = [(region, nodes) for region, nodes in whole if nodes and nodes <= selected]
    covered = set[str]().union(*(nodes for _, nodes in whole))
    return tuple(dict.fromkeys(region for region, _ in whole)) if covered == selected else ()
