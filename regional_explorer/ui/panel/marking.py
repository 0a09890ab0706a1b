"""The form that marks a region by modules, lines, ops, or the selection in the graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from regional_explorer.errors.texts import count
from regional_explorer.record.graph import GraphKind, over_layers
from regional_explorer.record.named_subgraphs import subgraph_names, subgraphs
from regional_explorer.record.session import Session
from regional_explorer.render.style.element import Node, node
from regional_explorer.ui.panel.controls import alert, button, choice, field
from regional_explorer.ui.state import SELECTION, MarkForm

PATTERN_HINTS = {
    SELECTION: "the nodes selected in the graph or the source",
    "modules": "a glob over module paths, such as layers.*.mlp",
    "lines": "numbers beside the source, 22-25 or model.py:22-25, or function:3-7 (the def is line 1)",
    "ops": "a glob over operators, such as gelu or aten.gelu*",
    "subgraphs": "a glob over functions marked by nested_compile_region, such as Block.forward",
}
MAX_SUGGESTED = 300

_FIRST_REGION_TEXT = (
    "Select nodes in the graph or lines in the source and name them here, or select modules, lines or ops by a"
    " pattern; or mark the region in the source: "
)


def mark_form(
    form: MarkForm, selected: int, suggested: Sequence[str], *, key: str, first: bool, busy: bool
) -> list[Node]:
    """Return the form.

    Args:
        form: what was typed, and its error.
        selected: how many nodes are selected in the graph.
        suggested: patterns to choose from.
        key: identifies the exploration on a page.
        first: whether there is no region yet.
        busy: whether a job is running.
    """
    by_selection = form.kind == SELECTION
    selection_text = f"{count(selected, 'node')} selected" if selected else ""
    title = (
        [node("h4", "No region yet"), node("p", _FIRST_REGION_TEXT, node("code", 'with rx.region("mlp"): …'))]
        if first
        else [node("h4", "Mark another region")]
    )
    fields = node(
        "div",
        choice("Mark by", "kind", ((kind, kind) for kind in PATTERN_HINTS), form.kind, disabled=busy),
        field(
            "Pattern",
            "pattern",
            selection_text if by_selection else form.pattern,
            placeholder=PATTERN_HINTS[form.kind],
            list=None if by_selection else f"rx-{key}",
            data_live=True,
            disabled=busy or by_selection,
        ),
        field("Name", "name", form.name, placeholder="of the region", data_live=True, disabled=busy),
        button("Mark", "mark", title="Mark this as a region, without tracing again", disabled=busy),
        class_="rx-marking",
    )
    options = node("datalist", *(node("option", value=pattern) for pattern in suggested), id=f"rx-{key}")
    return [*title, fields, options, *alert(form.error)]


def suggestions(session: Session) -> dict[str, list[str]]:
    """Return suggested patterns by kind: module paths, functions, operators and subgraphs of the graphs.

    Globs over equal modules, such as ``layers.*.attn``, come before the modules that they match.
    """
    patterns: dict[str, dict[str, None]] = {kind: {} for kind in PATTERN_HINTS}
    patterns["subgraphs"].update((name, None) for graph in subgraphs(session.graphs) for name in subgraph_names(graph))
    module_calls = {call.path: call for graph in session.graphs for op in graph.ops for call in op.modules if call.path}
    globs = Counter((over_layers(path), call.class_name) for path, call in module_calls.items())
    patterns["modules"] = dict.fromkeys(sorted(glob for (glob, _), times in globs.items() if times > 1))
    for graph in session.graphs:
        for op in graph.ops:
            if graph.kind is not GraphKind.DYNAMO:
                patterns["ops"][op.target] = None
            if op.source is not None:
                patterns["lines"][f"{op.source.function}:1-99"] = None
    module_globs = patterns.pop("modules")
    module_paths = dict.fromkeys(sorted(module_calls))
    return {
        "modules": list({**module_globs, **module_paths})[:MAX_SUGGESTED],
        **{kind: sorted(names)[:MAX_SUGGESTED] for kind, names in patterns.items()},
    }
