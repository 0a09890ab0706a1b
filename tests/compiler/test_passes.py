"""Passes that ship: they compute what eager computes, in code of other kernels, and the search tries them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import regional_explorer as rx
from regional_explorer.compiler.passes import products_by_onednn
from regional_explorer.compiler.treatment import described
from regional_explorer.record.plan import AS_TORCH_COMPILE, WHOLE, Plan
from regional_explorer.record.tuning import SearchStage
from regional_explorer.tuning.budget import Limits, checked_limits
from regional_explorer.tuning.ledger import Ledger
from regional_explorer.tuning.search import tune
from regional_explorer.tuning.space import WAYS, WRAPPER, with_pass
from regional_explorer.tuning.waterfall import without_each_change
from tests.shared.checks import codes
from tests.tuning.replay import Behaviour, ReplayBench

PASS = described(products_by_onednn)


class Products(nn.Module):
    """Products with a bias and without, of operands that lie across, and one of which no operand is two-dimensional."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.down(self.up(x).relu())
        loss: torch.Tensor = (y.t() @ x).sum() + (y @ x.t()).square().mean() + (y[None] @ y.t()[None]).mean()
        return loss


def gradients(model: nn.Module, loss: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(loss, list(model.parameters()))


@pytest.mark.compiles
@pytest.mark.parametrize(
    "config", [{}, pytest.param({"cpp_wrapper": True}, marks=pytest.mark.slow)], ids=["", "cpp_wrapper"]
)
def test_products_by_onednn_are_those_of_eager_in_both_directions(config: dict[str, bool], tmp_path: Path) -> None:
    model, x = Products(), torch.randn(12, 8)
    ex = rx.explore(model, (x,), plan=Plan(tracing=AS_TORCH_COMPILE)).mark("all", ops="*")
    ex.configure("all", config, passes=[rx.products_by_onednn]).compile()
    assert "pass-failed" not in codes(ex)
    assert "region-failed" not in codes(ex)
    changes = dict(zip(ex.passes.direction, ex.passes.change, strict=True))
    for change in changes.values():
        assert "regional_explorer.onednn_mm" in change
        assert "−1 aten.bmm" not in change
    assert "+1 aten.add.Tensor" in changes["forward"], "the bias is added afterwards"
    assert "_linear_pointwise" in str(ex.code("all", config=config).partitions[0].text)
    ex.benchmark(variants=["eager", "regional"], budget_s=0.1)
    assert set(ex.numerics.verdict) == {"ok"}
    plan = ex.save_plan(tmp_path / "plan.json")
    compiled = rx.compile(model, plan, strict=True)
    assert_close(gradients(model, compiled(x)), gradients(model, model(x)))
    assert {part.state for part in rx.status(compiled).partitions} == {"compiled"}


@pytest.mark.compiles
@pytest.mark.parametrize(
    "x", [torch.randn(4, 4, dtype=torch.float64), torch.randn(4, 0)], ids=["float64", "of nothing"]
)
def test_other_products_stay(x: torch.Tensor) -> None:
    ex = rx.explore(lambda x: x @ x.t(), (x,)).mark("all", ops="*")
    ex.configure("all", passes=[products_by_onednn]).compile()
    assert list(ex.passes.change) == [""]
    assert list(ex.passes.problem) == [""]


def test_sizes_may_be_dynamic() -> None:
    x, weight = torch.randn(6, 4), torch.randn(4, 3)
    torch._dynamo.mark_dynamic(x, 0)
    with rx.explore(lambda x: (x @ weight).sin(), (x,)) as ex:
        ex.mark("all", ops="*").configure("all", passes=[products_by_onednn]).compile()
        assert codes(ex) == []
        assert_close(ex.compiled(x), (x @ weight).sin())
        assert_close(ex.compiled(x[:5]), (x[:5] @ weight).sin())


# ---------------------------------------------------------------------------------------------------------- the search


def test_passes_are_tried_where_they_may_matter() -> None:
    def passes(device: str, *ops: str) -> list[str]:
        limits = checked_limits(60.0, "close", None, None, None, device, ops)
        return [str(one) for one in limits.passes]

    assert passes("cpu", "relu", "addmm") == ["products_by_onednn"]
    assert passes("cpu", "relu", "bmm") == []
    assert passes("cuda", "mm") == []


@pytest.mark.parametrize("factor", [0.7, 1.2])
def test_a_pass_is_kept_if_the_call_is_faster_with_it(factor: float, tmp_path: Path) -> None:
    def simulate(plan: Plan) -> Behaviour:
        if WHOLE not in plan:
            return Behaviour(1.2)
        has_pass, has_wrapper = PASS in plan[WHOLE].treatment.passes, WRAPPER.items() <= plan[WHOLE].config.items()
        over = (factor if has_pass else 1.0) * (0.95 if has_wrapper else 1.0) * (0.98 if plan.tracing == WAYS[0] else 1)
        return Behaviour(over, code=f"{plan.tracing} {has_pass} {has_wrapper}")

    limits = Limits(600.0, keys=(WRAPPER, {"size_asserts": False}), passes=(PASS,))
    tuning = tune(ReplayBench(simulate), limits, Ledger(tmp_path / "tries.jsonl"))
    assert tuning.plan is not None
    found = tuning.plan[WHOLE]
    assert (PASS in found.treatment.passes) is (factor < 1.0)
    assert found.config == WRAPPER
    tried = [one for one in tuning.tries if one.stage is SearchStage.PASSES and one.plan is not None]
    assert all("products_by_onednn" in one.title for one in tried)
    first = next(one for one in tuning.tries if one.plan is not None)
    assert tuning.tries.index(tried[0]) <= tuning.tries.index(first) + 1, "it comes second"


def test_a_pass_is_a_change_of_a_plan() -> None:
    from regional_explorer.tuning.space import whole_graph_candidate

    plan = with_pass(whole_graph_candidate(SearchStage.TRACING, AS_TORCH_COMPILE), PASS).plan
    (other,) = (plan for title, plan in without_each_change(plan).items() if title == "products_by_onednn")
    assert other == whole_graph_candidate(SearchStage.TRACING, AS_TORCH_COMPILE).plan
