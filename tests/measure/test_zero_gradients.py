"""Gradients whose true value is zero are called zero to rounding, not chaotic, and a speed is given."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

import regional_explorer as rx
from regional_explorer.measure.numerics import Reference, compare_results, verdict
from regional_explorer.measure.reference import find_reference
from regional_explorer.measure.tolerances import Values
from regional_explorer.record.benchmark import ZERO_TO_ROUNDING, NumericsVerdict, Verdict

STUDENT = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8))
TEACHER = copy.deepcopy(STUDENT).requires_grad_(requires_grad=False)
BIAS = nn.Linear(32, 16)


def distilled(x: torch.Tensor) -> Any:
    return -(STUDENT(x).log_softmax(-1) * TEACHER(x).softmax(-1)).sum(-1).mean()


def divergence(x: torch.Tensor) -> Any:
    return nn.functional.kl_div(STUDENT(x).log_softmax(-1), TEACHER(x).softmax(-1), reduction="batchmean")


def sum_of_probabilities(x: torch.Tensor) -> Any:
    return BIAS(x).softmax(-1).sum(-1).mean()


def normalized_and_summed(x: torch.Tensor) -> Any:
    return nn.functional.batch_norm(BIAS(x), None, None, training=True).mean()


ZERO = (distilled, divergence, sum_of_probabilities, normalized_and_summed)


def reference_of(call: Callable[..., Any]) -> Reference:
    torch.manual_seed(0)
    ex = rx.explore(call, (torch.randn(16, 32),))
    return find_reference(ex.live.call, ex.live.program)


def moved(gradients: Iterable[tuple[str, torch.Tensor | None]], by: float = 0.0) -> tuple[tuple[str, Any], ...]:
    """Return gradients whose rows stand in another order, which is other rounding of what is zero, moved by ``by``."""
    return tuple((name, None if value is None else value.roll(1, 0) + by) for name, value in gradients)


@pytest.mark.parametrize("call", ZERO, ids=lambda call: call.__name__)
def test_other_rounding_of_a_gradient_of_zero_is_right(call: Callable[..., Any]) -> None:
    reference = reference_of(call)
    eager = reference.eager
    rows = compare_results("fake", Values(eager.outputs, moved(eager.gradients)), reference)
    assert verdict(rows) is NumericsVerdict.OK
    assert ZERO_TO_ROUNDING in {row.note for row in rows}


@pytest.mark.parametrize("call", ZERO, ids=lambda call: call.__name__)
def test_a_gradient_that_should_be_zero_and_is_not_is_wrong(call: Callable[..., Any]) -> None:
    reference = reference_of(call)
    eager = reference.eager
    rows = compare_results("fake", Values(eager.outputs, moved(eager.gradients, 0.01)), reference)
    assert verdict(rows) is NumericsVerdict.FAILED


def test_gradients_that_are_not_zero_have_no_such_note() -> None:
    teacher = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).requires_grad_(requires_grad=False)

    def call(x: torch.Tensor) -> Any:
        return -(STUDENT(x).log_softmax(-1) * teacher(x).softmax(-1)).sum(-1).mean()

    reference = reference_of(call)
    eager = reference.eager
    rows = compare_results("fake", Values(eager.outputs, moved(eager.gradients)), reference)
    assert verdict(rows) is NumericsVerdict.FAILED
    assert ZERO_TO_ROUNDING not in {row.note for row in rows}


@pytest.mark.compiles
def test_the_answer_names_gradients_of_zero_and_gives_a_speed() -> None:
    ex = rx.explore(distilled, (torch.randn(16, 32),))
    ex.mark("r", ops="*")
    ex.benchmark(variants=("eager", "regional"), budget_s=0.3)
    assert ex.session.plan_numerics is NumericsVerdict.OK
    assert "zero to rounding: grad" in ex.answer.markdown
    assert Verdict.WITHHELD not in {timing.verdict for timing in ex.session.timings}


def test_a_bias_before_a_norm_over_many_rows_may_have_the_error_of_its_sums() -> None:
    """Inductor's gradient of the mean in a batch norm is a sum of 8,192 terms, one after the other."""
    linear, norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
    ex = rx.explore(lambda x: norm(linear(x)).relu().mean(), (torch.randn(8192, 4),))
    reference = find_reference(ex.live.call, ex.live.program)
    eager = reference.eager
    largest = max(float(value.norm()) for _, value in eager.gradients if value is not None)

    def verdict_if_off_by(share: float) -> NumericsVerdict:
        offsets = {"grad linear.bias": share * largest}
        gradients = tuple(
            (name, value + offsets.get(name, 0.0)) for name, value in eager.gradients if value is not None
        )
        return verdict(compare_results("fake", Values(eager.outputs, gradients), reference))

    assert "grad linear.bias" in dict(eager.gradients)
    assert verdict_if_off_by(5e-6) is NumericsVerdict.OK
    assert verdict_if_off_by(1e-3) is NumericsVerdict.FAILED
