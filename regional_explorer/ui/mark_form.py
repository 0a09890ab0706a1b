"""The form that marks a region: selector, proposed name, suggestions, preview."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from regional_explorer.errors import count, fresh_names, listing
from regional_explorer.record.graph import GraphKind, equal_layers, subgraph_names, subgraphs
from regional_explorer.record.partition import Preview
from regional_explorer.record.plan import Direction, Selector, SelectorKind
from regional_explorer.record.session import Session
from regional_explorer.regions.describe import Choice, name_of_module
from regional_explorer.style.element import SHORT, Node, clean, node
from regional_explorer.tables.plan import diagnostic_item
from regional_explorer.ui.parts import alert, button, choice, field, pieces_text, whole_regions
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
    """Return the form that marks a region; it has the same fields, in the same places, whatever is selected."""
    form, busy, picked = shown.state.mark, shown.state.busy, shown.choice
    list_id = f"rx-{shown.key}"
    by_selection = form.kind == SELECTION
    scopes = [(THIS_ONE, "this one"), *([(ALL_ALIKE, f"all {picked.count} alike")] if picked.alike else [])]
    fields = node(
        "div",
        choice("Mark by", "kind", ((kind, kind) for kind in PATTERN_HINTS), form.kind, disabled=busy),
        field(
            "Pattern",
            "pattern",
            _text_of(selectors_of(shown.state, picked)) if by_selection else form.pattern,
            placeholder=PATTERN_HINTS[form.kind],
            list=None if by_selection else list_id,
            data_live=True,
            data_enter="mark",
            disabled=busy or by_selection,
        ),
        choice("Which", "alike", scopes, (THIS_ONE, ALL_ALIKE)[form.alike], disabled=busy or not picked.alike),
        field(
            "Name",
            "name",
            form.name,
            placeholder=name_of_mark(shown.state, shown.session, picked) if picked.this else "of the region",
            data_live=True,
            data_enter="mark",
            disabled=busy,
        ),
        button("Mark", "mark", title="Mark this as a region, without tracing again", disabled=busy),
        class_="rx-marking",
    )
    options = (node("option", value=pattern) for pattern in shown.suggestions[form.kind])
    return [fields, node("datalist", *options, id=list_id), *alert(form.error)]


def selection_buttons(shown: Shown) -> list[Node]:
    """Return buttons that mark the nodes selected by hand, alone or in all equal modules; of a region, its name."""
    state, picked = shown.state, shown.choice
    if names := whole_regions(shown.session, state.selection):
        return [node("span", "These ops are region ", node("b", listing([clean(name, SHORT) for name in names])), ".")]
    if not picked.this:
        return []

    def mark_button(text: str, of: str, selectors: Sequence[Selector]) -> Node:
        title = f"Make a region of {_text_of(selectors)}"
        return button(text, "mark picked", of, title=title, disabled=state.busy)

    name = clean(state.mark.name.strip() or _unused(picked.name, shown.session), SHORT)
    alike = [mark_button(f"all {picked.count} alike", ALL_ALIKE, picked.alike)] if picked.alike else []
    return [mark_button(f"Mark {name}", THIS_ONE, picked.this), *alike]


def _text_of(selectors: Iterable[Selector | str]) -> str:
    """Return selectors as text; node names are left out."""

    def text(selector: Selector | str) -> str:
        if isinstance(selector, Selector) and selector.kind is SelectorKind.NODES:
            return f"{count(len(selector.patterns), 'node')} selected"
        return str(selector)

    return ", ".join(map(text, selectors))


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
    """Return the pieces and ops that the region would have, changes to other regions, and new diagnostics."""
    form, session = shown.state.mark, shown.session
    preview, name = form.preview, form.previewed_name
    if preview is None or form.error:  # the error says why there is no preview
        return []
    if isinstance(preview, str):
        return [node("span", preview, class_="rx-quiet")]
    partitions = [part for part in preview.partitions if part.region == name]
    ops = Counter[Direction]()
    for part in partitions:
        ops[Direction.of_graph(part.graph)] += len(part.nodes)
    before, after = (Counter(part.region for part in parts) for parts in (session.partitions, preview.partitions))
    changed = (region for region in before if region != name and before[region] != after[region])
    other_changes = "".join(f"; {region}: {before[region]} → {count(after[region], 'piece')}" for region in changed)
    size = pieces_text(len(partitions), ops[Direction.FORWARD], ops[Direction.BACKWARD])
    said = "Region ", node("b", clean(name, SHORT)), " would have ", node("b", size), f"{other_changes}."
    head = node("div", *said, role="status")
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


def selectors_of(state: PanelState, choice: Choice) -> tuple[str | Selector, ...]:
    """Return the form's selectors, as arguments of ``mark``; empty while the form is incomplete.

    ``choice`` has the selectors for the selected nodes.
    """
    form, pattern = state.mark, state.mark.pattern.strip()
    if form.kind == SELECTION:
        return (form.alike and choice.alike) or choice.this
    return (pattern if pattern[:1] in {"-", "&"} else f"{form.kind}:{pattern}",) if pattern else ()


def name_of_mark(state: PanelState, session: Session, choice: Choice) -> str:
    """Return the typed name of the next region, else a proposed name; ``choice`` has those of the selected nodes."""
    form = state.mark
    if form.name.strip() or form.kind == SELECTION:
        name = re.sub(r"\.\d+", "", choice.name) if form.alike else choice.name  # of all layers: without a number
        return form.name.strip() or _unused(name, session)
    return proposed_name(form.kind, re.split(r"(?:^|\s)[-&]", form.pattern.strip())[0], session)


def proposed_name(kind: str, pattern: str, session: Session) -> str:
    """Return an unused name for what a pattern picks: ``mlp`` for ``blocks.*.mlp``, ``gelu`` for ``aten.gelu*``."""
    if kind == "modules":
        return _unused(name_of_module(pattern), session)
    plain = pattern.partition(":")[0].removesuffix(".py") if kind == "lines" else pattern
    words = [word for word in re.findall(r"\w+", plain) if not word.isdigit()]
    if kind == "ops":  # namespace.op.overload
        words = words[1:2] or words
    return _unused(words[-1] if words else "", session)


def _unused(name: str, session: Session) -> str:
    return next(fresh_names(name or "region", {region.name for region in session.plan.regions}))
