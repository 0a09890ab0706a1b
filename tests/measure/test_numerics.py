"""What a comparison of two runs says of each tensor."""

from __future__ import annotations

import pytest
import torch

from regional_explorer.measure.accuracy.numerics import Reference, compare, repeats
from regional_explorer.measure.accuracy.rounding import Arithmetic
from regional_explorer.measure.accuracy.values import Values
from regional_explorer.record.timing import NumericsVerdict

PAIRS = {
    "equal": (torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]), True),
    "sign of zero": (torch.tensor([-0.0, 1.0]), torch.tensor([0.0, 1.0]), False),
    "not a number": (torch.tensor(float("nan")), torch.tensor(float("nan")), True),
    "strides": (torch.zeros(2, 3).t(), torch.zeros(3, 2), True),
    "conjugate": (torch.tensor([1 + 1j]).conj(), torch.tensor([1 - 1j]), True),
    "truth values": (torch.tensor([True, False]), torch.tensor([True, False]), True),
    "nothing": (torch.zeros(0, 3), torch.zeros(0, 3), True),
    "eight bits": (torch.ones(2).to(torch.float8_e5m2), torch.ones(2).to(torch.float8_e5m2), True),
}


@pytest.mark.parametrize(("mine", "theirs", "bitwise"), PAIRS.values(), ids=PAIRS)
def test_bitwise_means_to_the_last_bit(mine: torch.Tensor, theirs: torch.Tensor, *, bitwise: bool) -> None:
    ours, eager = (Values((("output", value),), ()) for value in (mine, theirs))
    (row,) = compare("regional", ours, Reference(eager))
    assert (row.bitwise, row.verdict) == (bitwise, NumericsVerdict.OK)


@pytest.mark.parametrize(("dtype", "noise"), [(torch.bfloat16, True), (torch.float32, False)])
def test_a_gradient_that_is_truly_zero_is_noise_at_the_scale_of_the_others(dtype: torch.dtype, *, noise: bool) -> None:
    """Of the bias of attention's keys, or before a batch norm: what is left of it is how the others were rounded."""
    torch.manual_seed(0)
    large, first, second = torch.randn(64), torch.randn(64) / 500, torch.randn(64) / 500
    one, other = (Values((), (("large", large.to(dtype)), ("zero", left.to(dtype)))) for left in (first, second))
    assert repeats(one, other, Arithmetic(64)) is noise


def test_several_verdicts_say_the_worst_of_them() -> None:
    ok, failed, incomparable = NumericsVerdict.OK, NumericsVerdict.FAILED, NumericsVerdict.NOT_COMPARABLE
    assert NumericsVerdict.worst([ok, incomparable, failed]) is failed
    assert NumericsVerdict.worst([ok, incomparable]) is incomparable
    assert NumericsVerdict.worst([NumericsVerdict.NOT_COMPARED, ok]) is ok
    assert NumericsVerdict.worst([]) is None
