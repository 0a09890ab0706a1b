"""Compares outputs and gradients of a variant with eager's, and both with float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from regional_explorer.capture.call import Call
from regional_explorer.capture.tensors import tensors_in
from regional_explorer.record.timing import Numerics

SLACK = 4.0
"""How many times farther from the truth than eager a variant may be."""

OK, FAILED, NOT_COMPARABLE = "ok", "failed", "not comparable"

_TOLERANCES = {torch.float16: 1e-3, torch.bfloat16: 1.6e-2, torch.float32: 1.3e-6, torch.float64: 1e-7}
"""Relative tolerances of torch.testing.assert_close, for calls that cannot be run in float64."""


@dataclass(frozen=True)
class Values:
    """What one run gave: named output tensors, and named gradients (None where an input has none)."""

    outputs: tuple[tuple[str, torch.Tensor], ...]
    gradients: tuple[tuple[str, torch.Tensor | None], ...]


def run_once(call: Call, fn: Callable[..., Any] | None = None) -> Values:
    """Run the call once from the state the user left, and return outputs and gradients."""
    with call.kept():
        outputs = call.forward(fn)
        gradients = call.backward(outputs) if call.grad else ()
        named = tuple((name, tensor.detach().clone()) for name, tensor in tensors_in(outputs, "output"))
    return Values(named, tuple(zip(call.gradient_names, gradients, strict=False)))


def compare(variant: str, mine: Values, eager: Values, exact: Values | None, note: str = "") -> tuple[Numerics, ...]:
    """Return one row per output and gradient.

    A tensor fails if it is farther from float64 than ``SLACK`` times the larger of eager's own distance and one ulp
    of its dtype at the scale of the largest output (or gradient): a gradient that is truly zero has no relative error.

    Args:
        variant: the name of the variant.
        mine: what it gave.
        eager: what eager gave, under the same random state.
        exact: what float64 gave, or None where it cannot be run.
        note: what to say beside each row.
    """
    rows = []
    kinds = (("outputs", eager.outputs, mine.outputs), ("gradients", eager.gradients, mine.gradients))
    for kind, theirs, ours in kinds:
        scale = max((_rms(tensor) for _, tensor in theirs if tensor is not None), default=0.0)
        truth: Mapping[str, Any] = dict(getattr(exact, kind)) if exact is not None else {}
        for (name, expected), (_, got) in zip(theirs, ours, strict=False):
            if expected is not None or got is not None:
                rows.append(_row(variant, name, got, expected, truth.get(name), scale, note))
    if len(mine.outputs) != len(eager.outputs):
        rows.append(_mismatch(variant, "outputs", f"{len(mine.outputs)} tensors instead of {len(eager.outputs)}"))
    return tuple(rows)


def verdict(rows: Sequence[Numerics]) -> str:
    """Return what the rows of one variant say together."""
    said = {row.verdict for row in rows}
    return FAILED if FAILED in said else NOT_COMPARABLE if NOT_COMPARABLE in said else OK


def not_comparable(rows: Sequence[Numerics], why: str) -> tuple[Numerics, ...]:
    """Return the rows with their failures turned into "not comparable", for a reason that is told."""
    return tuple(replace(row, verdict=NOT_COMPARABLE, note=why) if row.verdict == FAILED else row for row in rows)


def same(left: Values, right: Values) -> bool:
    """Tell whether two runs gave bitwise the same."""
    pairs = zip((*left.outputs, *left.gradients), (*right.outputs, *right.gradients), strict=True)
    return all(_bitwise(mine, theirs) for (_, mine), (_, theirs) in pairs)


def _row(
    variant: str,
    name: str,
    got: torch.Tensor | None,
    expected: torch.Tensor | None,
    truth: torch.Tensor | None,
    scale: float,
    note: str,
) -> Numerics:
    if got is None or expected is None:
        return _mismatch(variant, name, "one of the two has no gradient")
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return _mismatch(variant, name, f"{got.dtype} {list(got.shape)}, not {expected.dtype} {list(expected.shape)}")
    bitwise = _bitwise(got, expected)
    error, largest = _difference(got, expected)
    eager_error = _difference(expected, truth)[0] if truth is not None else None
    variant_error = _difference(got, truth)[0] if truth is not None else None
    if expected.is_floating_point() or expected.is_complex():
        ulp = torch.finfo(expected.dtype).eps * scale
        if eager_error is not None and variant_error is not None:
            tolerance, distance = SLACK * max(eager_error, ulp), variant_error
        else:
            tolerance, distance = SLACK * _TOLERANCES.get(expected.dtype, 1e-5) * max(scale, _rms(expected)), error
            note = note or "no float64 run was possible: judged by the tolerances of torch.testing"
    else:
        tolerance, distance = 0.0, error
    right = bitwise or distance <= tolerance
    return Numerics(
        variant=variant,
        tensor=name,
        dtype=str(expected.dtype).removeprefix("torch."),
        bitwise=bitwise,
        error=error,
        max_error=largest,
        eager_error=eager_error,
        variant_error=variant_error,
        tolerance=tolerance,
        verdict=OK if right else FAILED,
        note=note,
    )


def _mismatch(variant: str, name: str, why: str) -> Numerics:
    return Numerics(variant, name, "", bitwise=False, error=math.inf, max_error=math.inf, eager_error=None,
                    variant_error=None, tolerance=0.0, verdict=FAILED, note=why)  # fmt: skip


def _bitwise(left: torch.Tensor | None, right: torch.Tensor | None) -> bool:
    if left is None or right is None:
        return left is right
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(_bits(left), _bits(right))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor, element by element: ``==`` would take -0.0 for 0.0."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous().flatten().view(torch.uint8)


def _difference(left: torch.Tensor, right: torch.Tensor) -> tuple[float, float]:
    """Return root mean square and maximum of ``|left - right|``; equal infinities and NaNs differ by nothing."""
    if left.numel() == 0:
        return 0.0, 0.0
    mine, theirs = _wide(left), _wide(right)
    equal = (mine == theirs) | ((mine != mine) & (theirs != theirs))  # noqa: PLR0124 - NaN is not itself
    gap = torch.where(equal, 0.0, (mine - theirs).abs()).nan_to_num(nan=math.inf, posinf=math.inf)
    return float(gap.square().mean().sqrt()), float(gap.max())


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the widest dtype of its kind: the narrowest know hardly an operation."""
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)


def _rms(tensor: torch.Tensor) -> float:
    if tensor.numel() == 0 or not (tensor.is_floating_point() or tensor.is_complex()):
        return 0.0
    finite = _wide(tensor).abs()
    finite = finite[torch.isfinite(finite)]
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0
