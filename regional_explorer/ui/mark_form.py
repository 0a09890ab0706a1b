"""The form that marks a region: selector, proposed name, suggestions, preview."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from regional_explorer.errors import count, fresh_names
from regional_explorer.record.graph import GraphKind, equal_layers, subgraph_names, subgraphs
from regional_explorer.record.partition import Preview
from regional_explorer.record.plan import Selector, SelectorKind
from regional_explorer.record.session import Session
from regional_explorer.regions.describe import Choice
from regional_explorer.style.element import SHORT, Node, clean, node
from regional_explorer.tables.plan import diagnostic_item
from regional_explorer.ui.parts import alert, button, choice, field
from regional_explorer.ui.state import SELECTION, MarkForm, PanelState, Shown

PATTERN_HINTS = {
    SELECTION: "the nodes selected in the graph or the source",
    "modules": "a glob over module paths, such as layers.*.mlp; add -ops:aten.div* to leave these ops out",
    "lines": "line numbers, 22-25 or model.py:22-25, or lines of a function, step:3-7 (its def is line 1)",
    "ops": "a glob over operators, such as gelu or aten.gelu*",
    "subgraphs": "a glob over functions marked by nested_compile_region, such as Block.forward",
}
MAX_SUGGESTED = 300
THIS_ONE, ALL_ALIKE = "this", "alike"
"""The choices of the form: mark the selected nodes only, or these nodes in all equal modules."""


def mark_form(shown: Shown) -> list[Node]:
    """Return the form that marks a region."""
    form, busy = shown.state.mark, shown.state.busy
    list_id = f"rx-{shown.key}"
    by_selection = form.kind == SELECTION
    selectors = selectors_of(shown.state, shown.choice) if by_selection else ()
    selection_text = ", ".join(map(_selector_text, selectors))
    scopes = [(THIS_ONE, "this one"), (ALL_ALIKE, f"all {shown.choice.count} alike")]
    fields = node(
        "div",
        choice("Mark by", "kind", ((kind, kind) for kind in PATTERN_HINTS), form.kind, disabled=busy),
        field(
            "Pattern",
            "pattern",
            selection_text if by_selection else form.pattern,
            placeholder=PATTERN_HINTS[form.kind],
            list=None if by_selection else list_id,
            data_live=True,
            disabled=busy or by_selection,
        ),
        *([choice("Which", "alike", scopes, scopes[form.alike][0], disabled=busy)] if shown.choice.alike else []),
        field("Name", "name", form.name, placeholder="of the region", data_live=True, disabled=busy),
        button("Mark", "mark", title="Mark this as a region, without tracing again", disabled=busy),
        class_="rx-marking",
    )
    options = (node("option", value=pattern) for pattern in shown.suggestions[form.kind])
    return [fields, node("datalist", *options, id=list_id), *alert(form.error)]


def selection_buttons(shown: Shown) -> list[Node]:
    """Return buttons that mark the nodes selected by hand, alone or in all equal modules; empty for selected rows."""
    if not shown.choice.this or shown.state.selected_rows or shown.state.mark.kind != SELECTION:
        return []
    name, busy = clean(name_of_mark(shown.state, shown.session), SHORT), shown.state.busy
    selection = ", ".join(map(_selector_text, shown.choice.this))
    buttons = [button(f"Mark {name}", "mark picked", THIS_ONE, title=f"Make a region of {selection}", disabled=busy)]
    if shown.choice.alike:
        selection = ", ".join(map(_selector_text, shown.choice.alike))
        text = f"all {shown.choice.count} alike"
        buttons.append(button(text, "mark picked", ALL_ALIKE, title=f"Make a region of {selection}", disabled=busy))
    return buttons


def _selector_text(selector: str | Selector) -> str:
    """Return a selector as text; node names are left out."""
    if isinstance(selector, Selector) and selector.kind is SelectorKind.NODES:
        return f"{count(len(selector.patterns), 'node')} selected"
    return str(selector)


def suggestions(session: Session) -> dict[str, list[str]]:
    """Return suggested patterns by kind: module paths, functions, operators and subgraphs of the graphs.

    Globs over equal modules, such as ``layers.*.attn``, come before the modules that they match.
    """
    ops = [(graph, op) for graph in session.graphs for op in graph.ops]
    module_calls = {call.path: call for _, op in ops for call in op.modules if call.path}
    globs = equal_layers({path: call.class_name for path, call in module_calls.items()})
    patterns = {
        SELECTION: [],
        "modules": [*sorted(globs.keys() - module_calls), *sorted(module_calls)],
        "lines": sorted(f"{op.source.function}:1-99" for _, op in ops if op.source is not None),
        "ops": sorted(op.target for graph, op in ops if graph.kind is not GraphKind.DYNAMO),
        "subgraphs": sorted(name for graph in subgraphs(session.graphs) for name in subgraph_names(graph)),
    }
    return {kind: list(dict.fromkeys(names))[:MAX_SUGGESTED] for kind, names in patterns.items()}


def preview_nodes(shown: Shown) -> list[Node]:
    """Return the partitions that the region would have, changes to other regions, and new diagnostics."""
    form, session = shown.state.mark, shown.session
    preview, name = form.preview, form.previewed_name
    if preview is None or form.error:  # the error says why there is no preview
        return []
    if isinstance(preview, str):
        return [node("span", preview, class_="rx-quiet")]
    partitions = [part for part in preview.partitions if part.region == name]
    ops = sorted({len(part.nodes) for part in partitions})
    sizes = f" of {ops[0]}{f'–{ops[-1]}' if len(ops) > 1 else ''} {'op' if ops == [1] else 'ops'}" if ops else ""
    by_graph = Counter(part.graph for part in partitions)
    graphs = ", ".join(f"{number} in {graph}" for graph, number in by_graph.items())
    places = f" ({graphs})" if graphs else ""
    before, after = (Counter(part.region for part in parts) for parts in (session.partitions, preview.partitions))
    changed = (region for region in before if region != name and before[region] != after[region])
    other_changes = "".join(f"; {region}: {before[region]} → {after[region]}" for region in changed)
    partition_count = node("b", count(len(partitions), "partition"))
    head = node(
        "div",
        "Region ",
        node("b", clean(name, SHORT)),
        " would give ",
        partition_count,
        f"{sizes}{places}{other_changes}.",
        role="status",
    )
    shown_before = {(diagnostic.code, diagnostic.message) for diagnostic in session.diagnostics}
    messages = [
        diagnostic_item(diagnostic, short=True)
        for diagnostic in preview.diagnostics
        if (diagnostic.code, diagnostic.message) not in shown_before
    ]
    return [head, *([node("ul", *messages, class_="rx-list")] if messages else [])]


def previewed_nodes(form: MarkForm) -> list[str]:
    """Return the nodes that the typed pattern matches, as ``graph:name``; empty for nodes selected by hand."""
    if form.kind == SELECTION or not isinstance(form.preview, Preview):
        return []
    partitions = (part for part in form.preview.partitions if part.region == form.previewed_name)
    return [f"{part.graph}:{name}" for part in partitions for name in part.nodes]


COMMON_SHARE = 0.5
"""The share of the selected nodes that must be in one module for its name to be proposed."""


def selectors_of(state: PanelState, choice: Choice) -> tuple[str | Selector, ...]:
    """Return the form's selectors, as arguments of ``mark``; empty while the form is incomplete.

    ``choice`` has the selectors for the selected nodes.
    """
    form, pattern = state.mark, state.mark.pattern.strip()
    if form.kind == SELECTION:
        return (form.alike and choice.alike) or choice.this
    return (pattern if pattern[:1] in {"-", "&"} else f"{form.kind}:{pattern}",) if pattern else ()


def name_of_mark(state: PanelState, session: Session) -> str:
    """Return the typed name of the next region, else a proposed name."""
    form, selector = state.mark, dict[str, Any]()
    if form.kind == SELECTION and state.selection:
        selector = {"nodes": state.selection}
    elif pattern := form.pattern.strip():
        selector = {form.kind: re.split(r"(?:^|\s)[-&]", pattern)[0]}
    return form.name.strip() or proposed_name(selector, session)


def proposed_name(selector: Mapping[str, Any], session: Session) -> str:
    """Return an unused name for a region marked by ``selector``, the keyword arguments of ``mark``; "" if it is empty.

    ``blocks.*.mlp`` gives ``mlp``, ``aten.gelu*`` gives ``gelu``, ``step:3-7`` gives ``step``; selected nodes give the
    name of the module, the op or the function they have in common.
    """
    if not selector:
        return ""
    (kind, argument), *_ = selector.items()
    word = _word_of_nodes(set(argument), session) if kind == "nodes" else _word_of_pattern(kind, str(argument))
    return next(fresh_names(word or "region", {region.name for region in session.plan.regions}))


def _word_of_pattern(kind: str, pattern: str) -> str:
    plain = pattern.partition(":")[0].removesuffix(".py") if kind == "lines" else pattern
    words = [word for word in re.findall(r"\w+", plain) if not word.isdigit()]
    if kind == "ops":  # namespace.op.overload
        words = words[1:2] or words
    return words[-1] if words else ""


def _word_of_nodes(node_names: set[str], session: Session) -> str:
    nodes = [node for graph in session.graphs for node in graph.ops if f"{graph.id}:{node.name}" in node_names]
    ops = {node.op for node in nodes}
    if len(ops) == 1:
        return ops.pop()
    nodes_per_module = Counter(call.path for node in nodes for call in node.modules if _last_word(call.path))
    # The innermost of the modules that hold most of the nodes.
    common_modules = [path for path, contained in nodes_per_module.items() if contained > COMMON_SHARE * len(nodes)]
    if common_modules:
        return _last_word(max(common_modules, key=len))
    functions = {node.source.function for node in nodes if node.source is not None}
    return functions.pop().rpartition(".")[2] if len(functions) == 1 else ""


def _last_word(path: str) -> str:
    return next((word for word in reversed(path.split(".")) if word and not word.isdigit()), "")
