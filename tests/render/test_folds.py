"""The outline of a graph: modules, functions and lines, with regions in them."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from regional_explorer.picture.folds import Fold, FoldKind, RegionPiece, outline
from regional_explorer.picture.open_folds import BOX_BUDGET, compose, path_ending, shown_folds
from regional_explorer.record.graph import Graph, GraphKind, ModuleCall, Node, Role, SourceLine, TensorSpec
from tests.shared import sessions


def graph(*nodes: Node, kind: GraphKind = GraphKind.FORWARD) -> Graph:
    return Graph("0", kind, 0, nodes)


def line(number: int, function: str = "forward", text: str = "", scope: str = "") -> SourceLine:
    return SourceLine("model.py", number, function, text or f"line {number}", 1, scope)


def op(
    name: str, *inputs: str, modules: Iterable[str] = (), stack: Iterable[SourceLine] = (), origin: int | None = 0
) -> Node:
    calls = tuple(ModuleCall(path, re.sub(r"\d+", "Layer", path.split(".")[-1])) for path in modules)
    return Node(name, Role.OP, "aten.add.Tensor", inputs, (sessions.SPEC,), tuple(stack), calls, origin=origin)


def names(folds: Iterable[Fold]) -> list[str]:
    return [fold.title if fold.kind is not FoldKind.OP else fold.nodes[0] for fold in folds]


def open_titles(whole: Graph, *pieces: RegionPiece, everything: bool = False) -> list[str]:
    return names(shown_folds(outline(whole, pieces), everything=everything))


def norm(path: str, name: str) -> list[Node]:
    """Return the three ops of a norm with two lines, as in a language model."""
    around = ("model", path, f"{path}.norm")
    return [
        op(f"{name}a", modules=around, stack=[line(1), line(8)]),
        op(f"{name}b", f"{name}a", modules=around, stack=[line(1), line(8)]),
        op(f"{name}c", f"{name}b", modules=around, stack=[line(1), line(9)]),
    ]


def test_module_shows_path_and_class_only() -> None:
    (model,) = outline(graph(*norm("model.layers.0", "n"), op("add", "nc", modules=("model", "model.layers.0"))), ())
    assert (model.kind, model.title, model.about) == (FoldKind.MODULE, "model.layers.0", "Layer")
    inner, add = model.parts
    assert (inner.kind, inner.title, inner.about) == (FoldKind.MODULE, "model.layers.0.norm", "norm")
    assert names(inner.parts) == ["na", "nb", "nc"]
    assert add.kind is FoldKind.OP


def test_each_module_call_is_one_box() -> None:
    found = outline(graph(op("a", modules=["m"]), op("b", modules=["n"]), op("c", modules=["m"])), ())
    assert [fold.nodes for fold in found] == [("a", "c"), ("b",)]
    calls = [
        Node(f"c{n}", Role.OP, "aten.mm.default", (), (), (), (ModuleCall("shared", "Linear", n),)) for n in range(2)
    ]
    assert names(outline(graph(*calls), ())) == ["shared", "shared (call 2)"]


def test_equal_layers_fold_into_one_repeat() -> None:
    nodes = [node for n in range(6) for node in norm(f"layers.{n}", f"n{n}")]
    (repeat,) = outline(graph(*nodes), ())[0].parts
    assert (repeat.kind, repeat.title, repeat.times) == (FoldKind.REPEAT, "layers.0–5.norm", 6)
    assert names(repeat.parts) == ["layers.0.norm", "layers.1–5.norm"]
    assert [part.times for part in repeat.parts] == [1, 5]
    assert names(repeat.parts[1].parts) == [f"layers.{n}.norm" for n in range(1, 6)]

    def keys(folds: Iterable[Fold]) -> list[str]:
        return [key for fold in folds for key in (fold.key, *keys(fold.parts))]

    found = keys(outline(graph(*nodes), ()))
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    "other", [TensorSpec("float32", (2, 9), (9, 1), "cpu"), replace(sessions.SPEC, dtype="bfloat16")], ids=str
)
def test_layers_with_different_shapes_or_dtypes_are_not_equal(other: TensorSpec) -> None:
    nodes = [node for n in range(6) for node in norm(f"layers.{n}", f"n{n}")]
    nodes[7] = Node("n2b", Role.OP, "aten.add.Tensor", ("n2a",), (other,), nodes[7].stack, nodes[7].modules, origin=0)
    assert names(outline(graph(*nodes), ())[0].parts) == [f"layers.{n}.norm" for n in range(6)]
    regions = [RegionPiece(f"p{n}", 0, n, (f"n{n}a", f"n{n}b")) for n in range(6)]
    likes = [layer.parts[0].like for layer in outline(graph(*nodes), regions)[0].parts]
    assert likes == [None, regions[0], None, *regions[:1] * 3]


def test_gradient_sum_is_in_the_common_module() -> None:
    nodes = (
        op("a", modules=["m", "m.left"]),
        op("b", modules=["m", "m.right"]),
        op("sum", "a", "b", origin=None, stack=[line(1), line(8)]),
        op("c", "sum", modules=["other"]),
        op("far", "sum", "c", origin=None),
    )
    found = outline(graph(*nodes, kind=GraphKind.BACKWARD), ())
    assert names(found) == ["m", "other", "far"]
    assert names(found[0].parts) == ["m.left", "m.right", "sum"]


def test_functions_fold_by_call_and_their_loop_is_a_repeat() -> None:
    def call(function: str, at: int, count: int, number: int) -> list[Node]:
        stack = [line(at, "step", scope="step"), line(30, function, scope=function)]
        return [op(f"{function}{number}_{n}", stack=stack) for n in range(count)]

    nodes = [node for n in range(5) for node in (*call("attend", 3, 3, n), *call("feed", 4, 2, n))]
    (repeat,) = outline(graph(*nodes), ())
    assert (repeat.title, repeat.times) == ("attend, feed", 5)
    assert names(repeat.parts) == ["attend", "feed", "attend, feed"]
    assert repeat.parts[0].about == "model.py:3 in step"


def test_a_function_that_wraps_all_ops_gets_no_fold() -> None:
    wrapper = line(1, "wrapper", scope="wrapper")
    nodes = [op(f"op{n}", stack=[wrapper, line(5 + n // 2, "f", scope="f")]) for n in range(8)]
    assert names(outline(graph(*nodes), ())) == ["line 5", "line 6", "line 7", "line 8"]


def test_many_ops_of_a_module_fold_by_source_line() -> None:
    nodes = [op(f"op{n}", modules=["m"], stack=[line(n // 5, text=f"x{n // 5} = f(y)")]) for n in range(20)]
    (module,) = outline(graph(*nodes), ())
    assert names(module.parts) == [f"x{n} = f(y)" for n in range(4)]


def test_unfolded_ops_are_grouped_in_runs() -> None:
    nodes = [Node(f"op{n}", Role.OP, f"aten.f{n * n * n % 997}.default") for n in range(2000)]
    found = outline(graph(*nodes), ())
    assert len(found) == 45
    assert found[0].title == "op0 … op44"
    assert [node for fold in found for node in fold.nodes] == [node.name for node in nodes]


def test_a_region_is_in_the_innermost_module_that_contains_it() -> None:
    nodes = [
        *norm("layers.0", "n"),
        op("x", "nc", modules=("model", "layers.0", "layers.0.mlp")),
        op("y", "x", modules=["head"]),
    ]
    whole = RegionPiece("whole", 0, 0, ("na", "nb", "nc"))
    layer, _ = outline(graph(*nodes), (whole,))
    assert [(part.kind, part.title) for part in layer.parts] == [
        (FoldKind.PIECE, "layers.0.norm"),
        (FoldKind.MODULE, "layers.0.mlp"),
    ]
    across = RegionPiece("across", 0, 0, ("nb", "nc", "x"))
    layer, _ = outline(graph(*nodes), (across,))
    assert [part.kind for part in layer.parts] == [FoldKind.MODULE, FoldKind.PIECE]
    assert layer.parts[1].nodes == ("nb", "nc", "x")
    assert layer.pieces == (across,)


def test_graph_opens_on_its_modules() -> None:
    nodes = [op("e", modules=["bert", "bert.embed"]), op("e1", modules=["bert", "bert.embed"])]
    for n in range(12):
        path = f"bert.encoder.layer.{n}"
        nodes += [op(f"l{n}_{m}", modules=("bert", "bert.encoder", path, f"{path}.{'ab'[m % 2]}")) for m in range(8)]
    nodes += [op("h", modules=["head"]), op("h1", modules=["head"])]
    assert open_titles(graph(*nodes)) == ["bert.embed", "bert.encoder.layer.0–11", "head"]
    assert names(outline(graph(*nodes), ())) == ["bert", "head"]
    assert len(open_titles(graph(*nodes), everything=True)) == len(nodes)


def test_a_graph_opens_down_to_the_first_of_equal_regions() -> None:
    nodes, pieces = [], []
    for n in range(12):
        path = f"layer.{n}"
        nodes += [op(f"l{n}_{m}", modules=("enc", path, f"{path}.{'abcd'[m // 2]}")) for m in range(8)]
        pieces.append(RegionPiece(f"p{n}", 0, n, (f"l{n}_2", f"l{n}_3")))
    assert open_titles(graph(*nodes), *pieces) == ["layer.0.a", "l0_2", "l0_3", "layer.0.c", "layer.0.d", "layer.1–11"]


def test_the_box_budget_limits_the_folds_opened_at_first() -> None:
    nodes = [op(f"{m}_{n}", modules=[f"m{m}"]) for m in range(40) for n in range(9 + m)]
    pieces = [RegionPiece(f"p{m}", m, 0, (f"{m}_0",)) for m in range(40)]
    first = [title for m in range(BOX_BUDGET - 40) for title in (f"{m}_0", "add")]
    assert open_titles(graph(*nodes), *pieces) == [*first, *(f"m{m}" for m in range(BOX_BUDGET - 40, 40))]


@pytest.mark.parametrize("kind", ["functions", "modules"])
def test_five_hundred_nested_levels_are_folded(kind: str) -> None:
    nodes = [
        op(f"n{depth}", stack=[line(level, f"f{level}") for level in range(depth + 1)])
        if kind == "functions"
        else op(f"n{depth}", modules=[".".join(["m"] * (level + 1)) for level in range(depth)])
        for depth in range(500)
    ]
    session = sessions.session((graph(*nodes),))
    assert len(compose(session, everything=True).boxes) == 500
    assert len(compose(session).boxes) == BOX_BUDGET


def test_a_long_path_keeps_its_end() -> None:
    assert path_ending("model.layers.0.norm") == "model.layers.0.norm"
    assert path_ending("model.encoder.layers.0.attention.query") == "…layers.0.attention.query"
