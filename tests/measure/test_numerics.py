"""What a comparison of two runs says of each tensor."""

from __future__ import annotations

import pytest
import torch

from regional_explorer.measure.numerics import Reference, compare, repeats, verdict
from regional_explorer.measure.rounding import Arithmetic, Values, dense
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


def test_nothing_to_compare_is_not_ok() -> None:
    nothing = Values((), ())
    (row,) = compare("regional", nothing, Reference(nothing))
    assert (verdict([row]), verdict([])) == ("not checked", "not checked")
    assert "no tensors" in row.note


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_a_nested_tensor_is_not_compared_and_not_ok(layout: torch.layout) -> None:
    values = Values((("output", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)),), ())
    (row,) = compare("regional", values, Reference(values))
    assert row.verdict == "not checked"
    assert "nested" in row.note


def test_sparse_tensors_are_compared_as_dense_ones() -> None:
    eager = torch.randn(8, 8).relu()
    for sparse in (eager.to_sparse(), eager.to_sparse_csr()):
        assert torch.equal(dense(sparse), eager)
    huge = torch.sparse_coo_tensor(torch.zeros(2, 1, dtype=torch.int64), torch.ones(1), (1 << 20, 1 << 20))
    values = Values((("output", dense(huge)),), ())
    (row,) = compare("regional", values, Reference(values))
    assert (row.verdict, row.note) == ("not checked", "a sparse_coo tensor: its elements cannot be compared")
