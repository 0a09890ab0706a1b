"""Sums of gradients: which of them belong to a region, which stay eager, and that all computes the same."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch.utils.checkpoint import checkpoint

import regional_explorer as rx
from regional_explorer.record.json_file import load_plan
from regional_explorer.record.plan import Cut
from regional_explorer.regions import instances
from tests.shared.checks import assert_compiled_is_right, assert_eager_pieces_are_bitwise, codes, cut_by_region, told
from tests.ui.gpt import GPT


def vector(size: int = 3) -> torch.Tensor:
    return torch.linspace(0.1, 0.9, size).requires_grad_()


def backward(ex: rx.Exploration) -> dict[str, list[list[str]]]:
    return cut_by_region(ex, "0/backward")


def left(ex: rx.Exploration) -> list[str]:
    return [item.message for item in told(ex, "backward-unmarked")]


def with_cut(ex: rx.Exploration, cut: Cut) -> rx.Exploration:
    ex.plan = replace(ex.plan, cut=cut)
    return ex


def thrice(x: torch.Tensor) -> torch.Tensor:
    with rx.region("r"):
        a = x.sin()
        return a.cos() * a.exp() * a.tanh()


def two_residuals(x: torch.Tensor) -> torch.Tensor:
    """Two blocks as transformers have them: what comes into a branch also goes past it."""
    for _ in range(2):
        with rx.region("r"):
            x = x + x.sin().exp()
            x = x + x.cos().tanh()
        x = x * 2
    return x


def test_sums_of_sums_belong_to_the_instance_that_all_of_it_comes_from() -> None:
    ex = rx.explore(thrice, (vector(),))
    (nodes,) = backward(ex)["r"]
    graph = ex.session.graph("0/backward")
    added = [node.name for node in graph.ops if node.op == "add"]
    assert len(added) == 2
    assert set(added) <= set(nodes) == set(ex.session.members["r"]["0/backward"])
    assert int(ex.partitions.ops[ex.partitions.graph == "0/backward"].sum()) == len(graph.ops)
    assert not ex.diagnostics
    preview = ex.preview(ex.plan)
    assert [part.nodes for part in preview.partitions] == [part.nodes for part in ex.session.partitions]
    assert not preview.diagnostics
    assert_eager_pieces_are_bitwise(ex)


def test_the_sum_between_two_branches_of_an_instance_does_not_cut_it() -> None:
    ex = rx.explore(two_residuals, (vector(),))
    assert [len(parts) for parts in backward(ex).values()] == [2]
    assert not left(ex)
    assert_eager_pieces_are_bitwise(ex)
    assert [len(parts) for parts in backward(with_cut(ex, Cut.MARKED)).values()] == [4]


def test_marked_alone_and_upstreams_cut_leave_them_eager(tmp_path: Path) -> None:
    ex = rx.explore(thrice, (vector(),))
    for cut in (Cut.MARKED, Cut.UPSTREAM):
        with_cut(ex, cut)
        assert len(backward(ex)["r"]) == 2
        assert "add" not in ex.session.members["r"]["0/backward"]
        (message,) = left(ex)
        assert message.startswith("2 ops")
        assert f"cut='{cut}' takes only marked ops" in message
        assert_eager_pieces_are_bitwise(ex)
    with_cut(ex, Cut.MARKED).save_plan(tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == ex.plan


def test_a_value_used_outside_as_well() -> None:
    def outside(x: torch.Tensor) -> torch.Tensor:
        with rx.region("r"):
            a = x.sin()
            b = a.cos() * a.exp()
        return a * b

    ex = rx.explore(outside, (vector(),))
    (message,) = left(ex)
    assert "2 ops" in message
    assert "they also take inputs from outside the instance" in message
    assert len(backward(ex)["r"]) == 2


def test_sums_of_what_comes_back_through_unmarked_ops_stay_out() -> None:
    def through(x: torch.Tensor) -> torch.Tensor:
        with rx.region("r"):
            a = x.sin()
            b = a.cos()
        c = a.neg()
        with rx.region("r"):
            return b * c

    ex = rx.explore(through, (vector(),))
    owned = {name for nodes in backward(ex)["r"] for name in nodes}
    added = {node.name for graph in ex.session.graphs for node in graph.ops if node.op == "add"}
    assert added
    assert not owned & added
    assert_eager_pieces_are_bitwise(ex)


def between(x: torch.Tensor) -> torch.Tensor:
    a = x.sin()
    with rx.region("one"):
        b = a.cos()
    with rx.region("two"):
        c = a.exp()
    return b * c


def around(x: torch.Tensor) -> torch.Tensor:
    with rx.region("r"):
        y = x.sin().exp()
    return (x + y).cos()


@pytest.mark.parametrize("fn", [between, around])
def test_sums_between_regions_and_of_a_residual_around_one_belong_to_none(fn: Callable[..., torch.Tensor]) -> None:
    ex = rx.explore(fn, (vector(),))
    assert not any("add" in nodes for parts in backward(ex).values() for nodes in parts)
    assert not left(ex)


def test_sums_of_tangents_belong_to_what_alone_takes_them() -> None:
    def twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with rx.region("r"):
            y = x.sin()
        return y, y.view(-1)

    ex = rx.explore(twice, (vector(),))
    ex.mark("r", ops="*")
    (nodes,) = backward(ex)["r"]
    assert set(nodes) == {node.name for node in ex.session.graph("0/backward").ops}
    assert_eager_pieces_are_bitwise(ex)


def crossed(x: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The backward of ``a`` is two halves with a sum between; ``b`` feeds the second and is fed by the first."""
    with rx.region("a"):
        y1, y2 = x.sin().chunk(2)
    with rx.region("b"):
        w = y2.exp()
    with rx.region("a"):
        s = y1.cos() * y1.tan()
    with rx.region("b"):
        k = z.exp() + w.detach().sum()
    with rx.region("a"):
        return s * k, w


def test_no_sum_brings_regions_into_a_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    ex = rx.explore(crossed, (vector(4), vector(2)))
    (message,) = left(ex)
    assert "with them, instances would feed each other in a cycle" in message
    assert "region-cycle" not in codes(ex)
    assert {region: len(parts) for region, parts in backward(ex).items()} == {"a": 2, "b": 1}
    assert_eager_pieces_are_bitwise(ex)
    monkeypatch.setattr(instances, "_without_cycles", lambda _graph, _claims, found: found)
    ex = rx.explore(crossed, (vector(4), vector(2)))
    assert "region-cycle" in codes(ex)
    assert_eager_pieces_are_bitwise(ex)


@pytest.mark.filterwarnings("ignore")
def test_what_draws_keeps_its_place() -> None:
    def repeated(x: torch.Tensor) -> torch.Tensor:
        a = x.sin()
        return torch.nn.functional.dropout(a.cos() * a.exp(), 0.5)

    def call(x: torch.Tensor) -> torch.Tensor:
        with rx.region("r"):
            y = checkpoint(repeated, x, use_reentrant=False)
            assert isinstance(y, torch.Tensor)
            return y * y.exp()

    ex = rx.explore(call, (vector(),))
    (message,) = left(ex)
    assert "run_with_rng_state" in message
    assert "keeps its place" in message
    owned = [name for nodes in backward(ex)["r"] for name in nodes]
    assert {"add", "add_1"} <= set(owned)
    assert "run_with_rng_state" not in owned
    assert_eager_pieces_are_bitwise(ex)


def test_a_body_that_several_calls_share_is_cut_once_with_its_sums() -> None:
    @torch.compiler.nested_compile_region
    def body(x: torch.Tensor) -> Any:
        with rx.region("r"):
            a = x.sin()
            return a.cos() * a.exp()

    def call(x: torch.Tensor) -> Any:
        return body(body(x)) * 2

    ex = rx.explore(call, (vector(),))
    assert len(ex.partitions) == 2, "one in the body of the forward, one in that of the backward"
    (nodes,) = backward(ex)["r"]
    assert "add" in nodes
    assert_eager_pieces_are_bitwise(ex)


def test_every_op_marked_gives_one_partition_per_graph() -> None:
    tokens = torch.randint(16, (2, 4))
    ex = rx.explore(GPT(words=16, width=8, heads=2), (tokens, tokens))
    for region in ex.plan.regions:
        ex.unmark(region.name)
    ex.mark("all", ops="*")
    assert Counter(part.graph for part in ex.session.partitions) == {"0/forward": 1, "0/backward": 1}
    ops = {graph.id: len(graph.ops) for graph in ex.session.graphs}
    assert {part.graph: len(part.nodes) for part in ex.session.partitions} == {
        graph: ops[graph] for graph in ("0/forward", "0/backward")
    }
    assert_eager_pieces_are_bitwise(ex)
    assert len(backward(with_cut(ex, Cut.MARKED))["all"]) > 4


@pytest.mark.compiles
@pytest.mark.parametrize("fn", [thrice, two_residuals])
def test_compiled_with_their_sums(fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert_compiled_is_right(rx.explore(fn, (vector(),)))
