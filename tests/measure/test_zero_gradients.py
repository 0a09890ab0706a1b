"""Gradients whose true value is zero are called zero to rounding, not chaotic, and a speed is given."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import regional_explorer as rx
from regional_explorer.measure.numerics import compare_results, verdict
from regional_explorer.measure.reference import find_reference
from regional_explorer.measure.tolerances import Values
from regional_explorer.record.benchmark import ZERO_TO_ROUNDING, NumericsVerdict

STUDENT = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8))
TEACHER = copy.deepcopy(STUDENT).requires_grad_(requires_grad=False)
BIAS = nn.Linear(32, 16)


def distilled(x: torch.Tensor) -> torch.Tensor:
    return -(STUDENT(x).log_softmax(-1) * TEACHER(x).softmax(-1)).sum(-1).mean()


def divergence(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.kl_div(STUDENT(x).log_softmax(-1), TEACHER(x).softmax(-1), reduction="batchmean")


def sum_of_probabilities(x: torch.Tensor) -> torch.Tensor:
    return BIAS(x).softmax(-1).sum(-1).mean()


def normalized_and_summed(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.batch_norm(BIAS(x), None, None, training=True).mean()


ZERO = (distilled, divergence, sum_of_probabilities, normalized_and_summed)


def reference_of(call: Callable[..., Any]) -> Any:
    torch.manual_seed(0)
    ex = rx.explore(call, (torch.randn(16, 32),))
    return ex, find_reference(ex.live.call, ex.live.program)


def other(tensor: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
    return factor * tensor.roll(1, 0)


@pytest.mark.parametrize("call", ZERO, ids=lambda call: call.__name__)
def test_other_rounding_of_a_gradient_of_zero_is_right(call: Callable[..., Any]) -> None:
    _, reference = reference_of(call)
    eager = reference.eager
    rows = compare_results("fake", Values(eager.outputs, tuple((n, other(g)) for n, g in eager.gradients)), reference)
    assert verdict(rows) is NumericsVerdict.OK
    assert ZERO_TO_ROUNDING in {row.note for row in rows}


@pytest.mark.parametrize("call", ZERO, ids=lambda call: call.__name__)
def test_a_gradient_that_should_be_zero_and_is_not_is_wrong(call: Callable[..., Any]) -> None:
    _, reference = reference_of(call)
    eager = reference.eager
    wrong = tuple((n, g + 0.01) for n, g in eager.gradients)
    assert verdict(compare_results("fake", Values(eager.outputs, wrong), reference)) is NumericsVerdict.FAILED


def test_gradients_that_are_not_zero_have_no_such_note() -> None:
    teacher = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).requires_grad_(requires_grad=False)

    def call(x: torch.Tensor) -> torch.Tensor:
        return -(STUDENT(x).log_softmax(-1) * teacher(x).softmax(-1)).sum(-1).mean()

    _, reference = reference_of(call)
    eager = reference.eager
    moved = tuple((n, other(g)) for n, g in eager.gradients)
    rows = compare_results("fake", Values(eager.outputs, moved), reference)
    assert verdict(rows) is NumericsVerdict.FAILED
    assert ZERO_TO_ROUNDING not in {row.note for row in rows}


@pytest.mark.compiles
def test_the_answer_names_gradients_of_zero_and_gives_a_speed() -> None:
    ex = rx.explore(distilled, (torch.randn(16, 32),))
    ex.mark("r", ops="*")
    ex.benchmark(variants=("eager", "regional"), budget_s=0.3)
    assert ex.session.plan_numerics is NumericsVerdict.OK
    assert "zero to rounding: grad" in str(ex)
    assert "withheld" not in set(ex.bench.verdict)
