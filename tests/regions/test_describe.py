"""Selections by pointer as selectors: they match exactly the selected ops, also in a later trace, and parse back."""

from __future__ import annotations

import collections
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pytest
import torch

import regional_explorer as rx
from regional_explorer.export.to_source import plan_source
from regional_explorer.page.panes import source_listing
from regional_explorer.picture.folds import Fold, FoldKind, outline, producers
from regional_explorer.record.files import dump_plan, load_plan
from regional_explorer.record.graph import Graph, GraphKind
from regional_explorer.record.plan import Plan, Region, SelectorKind
from regional_explorer.record.session import Session
from regional_explorer.regions.describe import choice_for, selectors_for
from regional_explorer.regions.select import picked_origins
from tests.shared import models as architectures
from tests.shared import programs, small_models

SELECTIONS = 200
MOST_BY_NAME = 0.05


class Selection(NamedTuple):
    """What a pointer selects: the kind of selector of what was clicked, whether it is whole, and the nodes."""

    clicked: SelectorKind | None
    whole: bool
    nodes: list[str]


KINDS = {
    FoldKind.MODULE: SelectorKind.MODULES,
    FoldKind.LINE: SelectorKind.LINES,
    FoldKind.FUNCTION: SelectorKind.LINES,
    FoldKind.OP: SelectorKind.OPS,
}


def fold_selections(graph: Graph, folds: Sequence[Fold]) -> Iterator[Selection]:
    parts = producers(graph)  # the getitem of an op is in the box of the op
    for fold in folds:
        nodes = [f"{graph.id}:{op.name}" for op in graph.ops if parts.get(op.name, op.name) in fold.nodes]
        yield Selection(KINDS.get(fold.kind), fold.kind is FoldKind.MODULE and "(call" not in fold.title, nodes)
        yield from fold_selections(graph, fold.parts)


def graph_selections(graph: Graph) -> Iterator[Selection]:
    """Yield the boxes of a graph, the modules named above it, and all ops of each name."""
    yield from fold_selections(graph, outline(graph, ()))
    for path in {call.path for node in graph.ops for call in node.modules if call.path}:
        inside = [node for node in graph.ops if f"{node.module_path or ''}.".startswith(f"{path}.")]
        yield Selection(SelectorKind.MODULES, True, [f"{graph.id}:{node.name}" for node in inside])
    for target in {node.target for node in graph.ops}:
        # Backward ops belong to ops of other names; sums of gradients belong to none.
        whole = graph.kind is not GraphKind.BACKWARD
        yield Selection(None, whole, [f"{graph.id}:{node.name}" for node in graph.ops if node.target == target])


def random_selections(session: Session, number: int) -> Iterator[Selection]:
    """Yield random selections, a quarter of them unions of two, of each kind as often as of another."""
    made = [one for graph in session.graphs for one in graph_selections(graph)]
    lines = [line for function in source_listing(session) for line in function.lines]
    made += [Selection(SelectorKind.LINES, True, list(line.passing)) for line in lines if line.passing]
    by_kind = collections.defaultdict(list)
    for one in sorted(made, key=lambda one: (str(one.clicked), one.whole, one.nodes)):
        by_kind[one.clicked, one.whole].append(one)
    generator = random.Random(7)  # noqa: S311 - a fixed seed

    def random_selection() -> Selection:
        return generator.choice(by_kind[generator.choice(list(by_kind))])

    for _ in range(number):
        first, second = random_selection(), random_selection()
        if generator.random() < 0.75:
            yield first
        else:
            clicked = first.clicked if first.clicked is second.clicked else None
            yield Selection(clicked, False, list(dict.fromkeys(first.nodes + second.nodes)))


def identities(graphs: Sequence[Graph]) -> dict[int | None, object]:
    """Return what identifies each op in any trace: its modules, lines and name, and its number among equal ones."""
    times: collections.Counter[object] = collections.Counter()
    found: dict[int | None, object] = {}
    for graph in graphs:
        for node in graph.ops if graph.kind is GraphKind.DYNAMO else ():
            calls = tuple((call.path, call.call) for call in node.modules)
            place = calls, tuple((line.file, line.line) for line in node.stack), node.target
            times[place] += 1
            found[node.origin] = place, times[place]
    return found


def origins_of(selectors: Sequence[rx.Selector], graphs: Sequence[Graph]) -> set[int]:
    return {origin for selector in selectors for origin in picked_origins(selector, graphs)}


def transformer(name: str) -> Callable[[], rx.Exploration]:
    def make() -> rx.Exploration:
        pytest.importorskip("transformers")
        return architectures.explore_unmarked(name, training=True)

    return make


def ten_ops(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a = x.sin() * y
    b = a.exp() + x
    c = (b.tanh() - a) @ y
    d = (c * c).mean(-1)
    return (d.sqrt() / 2).sum()


MODELS: dict[str, Callable[[], rx.Exploration]] = {
    "ten ops": lambda: rx.explore(ten_ops, programs.pair()),
    "stack": lambda: rx.explore(programs.Stack(), (torch.randn(4, 16),)),
    "gpt": lambda: architectures.explore_unmarked("gpt", training=True),
    "dit": lambda: architectures.explore_unmarked("dit", training=True),
    "bert": transformer("bert"),
    "llama": transformer("llama"),
}


@pytest.mark.parametrize(
    "name", [*list(MODELS)[:3], *(pytest.param(one, marks=pytest.mark.slow) for one in list(MODELS)[3:])]
)
def test_pointer_selection_becomes_exact_selectors(name: str) -> None:
    with MODELS[name]() as ex:
        graphs = ex.session.graphs
        origins = {f"{graph.id}:{node.name}": node.origin for graph in graphs for node in graph.ops}
        place, by_name, wholes = identities(graphs), 0, 0
        stored: list[tuple[tuple[rx.Selector, ...], set[object]]] = []
        for selection in random_selections(ex.session, SELECTIONS):
            wanted = {origins[node] for node in selection.nodes} - {None}
            if not wanted:  # sums of gradients: nothing can mark these
                continue
            found = selectors_for(selection.nodes, graphs, selection.clicked)
            marked = origins_of(found, graphs)
            shown = {node.rpartition(":")[0] for node in selection.nodes}
            assert {
                node for node, origin in origins.items() if node.rpartition(":")[0] in shown and origin in marked
            } == {node for node, origin in origins.items() if node.rpartition(":")[0] in shown and origin in wanted}, (
                selection,
                found,
            )
            names = any(selector.kind is SelectorKind.NODES for selector in found)
            by_name, wholes = by_name + (names and selection.whole), wholes + selection.whole
            assert names or tuple(rx.Selector.parse(str(selector)) for selector in found) == found
            if not names:
                stored.append((found, {place[origin] for origin in marked}))
        assert by_name < MOST_BY_NAME * wholes
        ex.retrace(dynamic=True)
        now = identities(ex.session.graphs)
        both = set(now.values()) & set(place.values())
        assert len(both) > 0.9 * len(place)
        for found, before in stored:
            assert {now[origin] for origin in origins_of(found, ex.session.graphs)} & both == before & both, found


TOGETHER = [
    ("-ops:gelu", "-ops:gelu"),
    ("modules:layers.* -ops:gelu,linear", "modules:layers.* -ops:gelu,linear"),
    ("ops:gelu  &modules:layers.0", "ops:gelu &modules:layers.0"),
    (
        "lines:Layer.forward:2 (innermost) -ops:linear -ops:add",
        "lines:Layer.forward:2 (innermost) -ops:linear -ops:add",
    ),
]


@pytest.mark.parametrize(("text", "shown"), TOGETHER)
def test_plans_keep_combined_selectors(ex: rx.Exploration, text: str, shown: str) -> None:
    every = {f"{graph.id}:{op.name}" for graph in ex.session.graphs for op in graph.ops if op.origin is not None}

    def nodes(*selector: str) -> set[str]:
        ex.plan = rx.Plan()
        members = ex.mark("r", *selector).session.members["r"]
        return {f"{graph}:{name}" for graph, names in members.items() for name in names}

    first, *others = rx.Selector.parse(text).without or rx.Selector.parse(text).within
    whole = rx.Selector.parse(text)
    base = nodes(str(rx.Selector(whole.kind, whole.patterns, whole.innermost))) & every
    for one in (first, *others):
        inside = nodes(str(one))
        base = base - inside if whole.without else base & inside
    assert nodes(text) & every == base != set()
    assert ex.plan["r"].selection == shown
    assert load_plan(dump_plan(ex.plan)) == ex.plan
    plan, source = ex.plan, plan_source(ex.plan)
    ex.plan = rx.Plan()
    exec(source, {"ex": ex, "rx": rx})  # noqa: S102 - what the panel copies
    assert ex.plan == plan


def test_excluded_ops_separate_instances(ex: rx.Exploration) -> None:
    ex.mark("chains", "-ops:linear")
    parts = ex.partitions.query("graph == '0/forward'")
    assert len(parts) == 7, "the norm and the gelu of each of three layers, and the end"
    ex.mark("one", "modules:layers.1 -ops:layer_norm")
    assert len(ex.session.members["one"]["0/forward"]) > 3
    ex.merge("chains", "one", name="both").split("both")
    kept = {name for region in ex.plan.regions for name in ex.session.members[region.name]["0/forward"]}
    assert "native_layer_norm" in kept


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-ops:geluu", "ops:geluu matches no operation of the region. Did you mean 'gelu'"),
        ("modules:layers.0.up -ops:gelu", "ops:gelu matches no operation of the region"),
        ("ops:gelu &module:layers.0", "is no selector: write KIND:PATTERN"),
        ("gelu", "is no selector: write KIND:PATTERN"),
        ("-opps:gelu", "'opps:gelu' is no selector"),
        ("ops:gelu &modules:layers.*.up", "modules:layers.*.up matches no operation of the region"),
    ],
)
def test_empty_exclusion_is_refused(ex: rx.Exploration, text: str, message: str) -> None:
    with pytest.raises(rx.SelectorError) as error:
        ex.mark("r", text)
    assert message in str(error.value)


def test_source_marks_cannot_be_combined() -> None:
    mark = rx.Selector(SelectorKind.ANNOTATION, ("id:a",))
    with pytest.raises(rx.SelectorError, match="A mark in the source"):
        rx.Selector(SelectorKind.ANNOTATION, ("id:a",), without=(rx.Selector(SelectorKind.OPS, ("gelu",)),))
    with pytest.raises(rx.SelectorError, match="A mark in the source"):
        rx.Selector(SelectorKind.OPS, ("gelu",), within=(mark,))
    with pytest.raises(rx.SelectorError, match="A selector in within= or without= cannot have"):
        rx.Selector(SelectorKind.OPS, ("*",), without=(rx.Selector.parse("ops:gelu -ops:add"),))


CHOICES: list[tuple[list[str], SelectorKind | None, str, str, int]] = [
    (["0/forward:addmm", "0/forward:t"], SelectorKind.MODULES, "modules:layers.0.up", "modules:layers.*.up", 3),
    (["0/forward:gelu"], SelectorKind.OPS, "ops:gelu &modules:layers.0", "ops:gelu", 3),
    (["0/forward:gelu", "0/forward:gelu_1"], None, "ops:gelu -modules:layers.2", "", 1),
    (["0/forward:mean", "0/forward:pow_1"], None, "lines:Stack.forward:4", "", 1),
    (["0/forward:mean"], SelectorKind.OPS, "ops:mean", "", 1),
    (["0/forward:gelu", "0/forward:pow_1"], None, "ops:square, nodes:0/dynamo:gelu", "", 1),
    ([], None, "", "", 1),
]


@pytest.mark.parametrize(("nodes", "clicked", "this", "alike", "count"), CHOICES)
def test_a_selection_has_selectors_for_itself_and_all_alike(
    ex: rx.Exploration, nodes: list[str], clicked: SelectorKind | None, this: str, alike: str, count: int
) -> None:
    choice = choice_for(nodes, ex.session.graphs, clicked)
    texts = [", ".join(map(str, selectors)) for selectors in (choice.this, choice.alike)]
    assert (*texts, choice.count) == (this, alike, count)


@pytest.fixture(scope="module")
def nested() -> Iterator[rx.Exploration]:
    with rx.explore(small_models.Nested(), (torch.randn(4, 8),)) as ex:
        yield ex


def test_all_alike_has_the_pieces_of_each_layer_alone(nested: rx.Exploration) -> None:
    def counts(selectors: Sequence[rx.Selector]) -> Counter[str]:
        return Counter(part.graph for part in nested.preview(Plan((Region("r", tuple(selectors)),))).partitions)

    modules = [[f"model.layers.{number}.{name}" for name in ("norm", "attn")] for number in range(4)]
    choices = [choice_for(_inside(nested, *paths), nested.session.graphs) for paths in modules]
    assert {choice.count for choice in choices} == {4}
    alone = sum((counts(choice.this) for choice in choices), Counter[str]())
    assert [counts(choice.alike) for choice in choices] == [alone] * 4


def _inside(ex: rx.Exploration, *modules: str) -> list[str]:
    return [
        f"0/forward:{op.name}"
        for op in ex.session.graph("0/forward").ops
        if any(call.path == path for call in op.modules for path in modules)
    ]


@pytest.mark.parametrize(
    ("modules", "name"),
    [
        (["model.layers.0"], "layers.0"),
        (["model.layers.0.attn"], "attn"),
        (["model.layers.0.norm", "model.layers.0.mlp"], "norm + mlp"),
        (["model.layers.0.mlp", "model.layers.1.mlp"], "mlp"),
        (["model.layers.0", "model.layers.1"], "layers.0 + layers.1"),
        ([f"model.layers.{number}" for number in range(4)], "layers"),
    ],
)
def test_a_selection_has_the_name_of_the_modules_that_were_taken(
    nested: rx.Exploration, modules: list[str], name: str
) -> None:
    assert choice_for(_inside(nested, *modules), nested.session.graphs).name == name


def test_a_part_of_a_module_does_not_have_its_name(nested: rx.Exploration) -> None:
    ops = _inside(nested, "model.layers.0.attn")
    assert choice_for(ops[:1], nested.session.graphs).name == ops[0].rpartition(":")[2]
    assert choice_for(ops[:-1], nested.session.graphs).name == "part of attn"
