"""Compares outputs, gradients and writes with eager's (the expected ones) and with a float64 run's; gives verdicts.

``docs/numerics.md`` states the rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from msgspec.structs import replace

from regional_explorer.capture.call import Call
from regional_explorer.capture.tensors import opaque_in, tensors_in
from regional_explorer.measure.tolerances import (
    MOST_OF_ZERO,
    SLACK,
    Arithmetic,
    Limit,
    Moves,
    Values,
    as_dense,
    gap,
    holds_exact_values,
    is_dense,
    is_floating,
    rms,
    rounding_limit,
    rounding_unit,
    touched_elements,
    units_of_a_sum,
)
from regional_explorer.record.benchmark import ZERO_TO_ROUNDING, Numerics, NumericsVerdict
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.regions.cut import Piece
from regional_explorer.torch_api.graphs import is_effect_token

NO_FLOAT64 = "no float64 run was possible: compared with eager directly"
BEYOND_ROUNDING = "eager is farther from float64 than rounding explains: compared with eager directly"
NONDETERMINISTIC = "two eager calls differ by more than rounding"
RIGHT_ONCE = "two calls of this code differ: one is right, the other is wrong"
NOTHING_TO_COMPARE = "the call returns no tensors, and writes none that can be found"
CHAOTIC = "amplified rounding without limit: zeros would pass this check as well"
UNKNOWN_MOVES = "rounding may explain it; Dynamo reached its recompile limit, so that cannot be checked on its graphs"
EXPLAINED_BY_ROUNDING = "amplified rounding: the captured graphs change as much if each op rounds differently"


@dataclass(frozen=True)
class Reference:
    """The results that a variant is compared with.

    ``exact`` are the results in float64, or None if float64 is no reference, for the reason ``note``. ``arithmetic`` is
    how the call's graphs compute. ``nondeterministic`` says that two eager runs differ. ``moves`` tells how far
    rounding moves the results; None if their graphs are not known. ``diagnostics`` are what eager and its trace showed.
    ``trace`` is the reference of the captured graphs instead of eager; None unless they differ.
    """

    eager: Values
    exact: Values | None = None
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    note: str = NO_FLOAT64
    nondeterministic: bool = False
    moves: Moves | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    trace: Reference | None = None


def run_once(call: Call, fn: Callable[..., Any] | None = None) -> Values:
    """Run the call once from the state the user left, and return outputs, gradients, and what it wrote."""
    with call.restoring():
        outputs, gradients = call.run(fn)
        written = call.written_tensors()
        tensors = (*tensors_in(outputs, "output"), *((name, tensor) for name, tensor, _ in written))
        return Values(
            tuple((name, as_dense(tensor).clone()) for name, tensor in tensors),
            tuple(
                (name, None if gradient is None else as_dense(gradient))
                for name, gradient in zip(call.gradient_names, gradients, strict=False)
            ),
            tuple(opaque_in(outputs, "output")),
            {
                name: touched_elements(tensor, before)
                for name, tensor, before in written
                if before is not None and is_dense(tensor)
            },
        )


def named_outputs(piece: Piece, results: Any) -> Values:
    """Return the tensors that a piece returned, by the names of its outputs."""
    tensors = (
        (name, as_dense(value).clone())
        for name, node, value in zip(piece.outputs, piece.output_nodes, results, strict=True)
        if isinstance(value, torch.Tensor) and not is_effect_token(node)
    )
    return Values(tuple(tensors), ())


def compare_results(variant: str, results: Values, reference: Reference, note: str = "") -> tuple[Numerics, ...]:
    """Return one row per output and gradient of a variant, given its ``results``; each row gets ``note``."""
    rows: list[Numerics] = []
    eager, exact = reference.eager, reference.exact
    kinds = (("outputs", eager.outputs, results.outputs), ("gradients", eager.gradients, results.gradients))
    for kind, expected_tensors, got_tensors in kinds:
        scale = max((_scale(tensor, eager.touched.get(name)) for name, tensor in expected_tensors), default=0.0)
        truths: Mapping[str, Any] = dict(getattr(exact, kind)) if exact is not None else {}
        for (name, expected), (_, got) in zip(expected_tensors, got_tensors, strict=False):
            if expected is None and got is None:
                continue
            if got is None or expected is None:
                rows.append(_failed_row(variant, name, "either eager or the variant has no gradient"))
            elif not is_dense(got) or not is_dense(expected):
                rows.append(Numerics(variant, name, note=f"{_kind_of(expected)}: its elements cannot be compared"))
            elif (got.shape, got.dtype) != (expected.shape, expected.dtype):
                why = f"{got.dtype} {list(got.shape)}, not {expected.dtype} {list(expected.shape)}"
                rows.append(_failed_row(variant, name, why))
            else:
                judge = _Judge(variant, reference, scale, note, name, expected, truths.get(name))
                rows.append(judge.verdict_on(got))
    if [name for name, _ in results.outputs] != [name for name, _ in eager.outputs]:
        rows.append(_failed_row(variant, "outputs", _name_differences(results.outputs, eager.outputs)))
    for path, kind in eager.opaque:
        why = f"{kind}: cannot be searched for tensors"
        rows.append(Numerics(variant, path, verdict=NumericsVerdict.NOT_COMPARED, note=why))
    rows = rows or [Numerics(variant, "outputs", note=NOTHING_TO_COMPARE)]
    return nondeterministic(rows) if reference.nondeterministic else tuple(rows)


def verdict(rows: Sequence[Numerics]) -> NumericsVerdict:
    """Return the verdict on one variant: the worst of its rows."""
    return NumericsVerdict.worst(row.verdict for row in rows) or NumericsVerdict.NOT_CHECKED


def error_in_words(row: Numerics) -> str:
    """Return a phrase that says how far off a tensor is."""
    return (
        f"{row.tensor}: {row.note if math.isinf(row.error) and not row.dtype else f'off by up to {row.max_error:.2g}'}"
    )


def not_comparable(rows: Sequence[Numerics], why: str) -> tuple[Numerics, ...]:
    """Return the rows with "failed" replaced by "not comparable", for the reason ``why``."""
    return tuple(
        replace(row, verdict=NumericsVerdict.NOT_COMPARABLE, note=why) if row.verdict == NumericsVerdict.FAILED else row
        for row in rows
    )


def nondeterministic(rows: Iterable[Numerics]) -> tuple[Numerics, ...]:
    """Return the rows as not comparable, because two eager runs of the call differ."""
    return tuple(replace(row, verdict=NumericsVerdict.NOT_COMPARABLE, note=NONDETERMINISTIC) for row in rows)


def with_confirmed_failures(rows_of_a_call: Callable[[], tuple[Numerics, ...]]) -> tuple[Numerics, ...]:
    """Return the rows of a call; "failed" stands only if a repetition of the call fails in the same tensor."""
    rows = rows_of_a_call()
    if verdict(rows) is not NumericsVerdict.FAILED:
        return rows
    failed_again = {row.tensor for row in rows_of_a_call() if row.verdict is NumericsVerdict.FAILED}
    return tuple(not_comparable([row], RIGHT_ONCE)[0] if row.tensor not in failed_again else row for row in rows)


@dataclass(frozen=True)
class _Judge:
    """Judges one tensor. ``scale`` is the RMS of the largest output or gradient, ``truth`` the tensor in float64."""

    variant: str
    reference: Reference
    scale: float
    note: str
    name: str
    expected: torch.Tensor
    truth: torch.Tensor | None

    def verdict_on(self, got: torch.Tensor) -> Numerics:
        """Return the row of the tensor; how far rounding moves it is measured only if it fails."""
        row, moves = self._row(got), self.reference.moves
        if row.verdict is not NumericsVerdict.FAILED:
            return row
        if self._is_zero and (in_sums := self._row(got, self._noise_of_sums)).verdict is not NumericsVerdict.FAILED:
            return replace(in_sums, note=ZERO_TO_ROUNDING)
        if moves is None:
            return row
        noise = SLACK * moves.rms(self.name)
        if (in_noise := self._row(got, noise)).verdict is not NumericsVerdict.FAILED:
            return in_noise
        if not self._is_explained(got, moves, noise):
            if moves.are_known() or self._row(got, math.inf).verdict is NumericsVerdict.FAILED:
                return row
            return replace(row, verdict=NumericsVerdict.NOT_COMPARABLE, note=UNKNOWN_MOVES)
        zeros = torch.zeros_like(self.expected)
        if is_floating(zeros) and self.expected.any() and self._is_explained(zeros, moves, noise):
            if self._is_zero:
                return replace(row, verdict=NumericsVerdict.OK, note=ZERO_TO_ROUNDING)
            return replace(row, verdict=NumericsVerdict.CHAOTIC, note=CHAOTIC)
        return replace(row, verdict=NumericsVerdict.NOT_COMPARABLE, note=EXPLAINED_BY_ROUNDING)

    @property
    def _is_zero(self) -> bool:
        """Whether eager's tensor is rounding error alone; integers are not."""
        return self.truth is not None and rms(self.truth) <= MOST_OF_ZERO * rms(self.expected) > 0.0

    @property
    def _noise_of_sums(self) -> float:
        """How far off a tensor may be that is zero: a bias before a batch norm has the errors of two long sums."""
        units = units_of_a_sum(self.expected, self.reference.arithmetic)
        return SLACK * units * rounding_unit(self.expected.dtype, self.scale).absolute

    def _is_explained(self, got: torch.Tensor, moves: Moves, noise: float) -> bool:
        """Return whether the tensor would pass without the elements that rounding explains."""
        unexplained = moves.without_explained(self.name, got, self.expected, self.reference.arithmetic.eps)
        return self._row(unexplained, noise).verdict is not NumericsVerdict.FAILED

    def _row(self, got: torch.Tensor, noise: float = 0.0) -> Numerics:
        """Return the row of the tensor, given that rounding moves the tensor as a whole by ``noise``."""
        return self._exact_row(got) if holds_exact_values(self.expected) else self._floating_row(got, noise)

    def _exact_row(self, got: torch.Tensor) -> Numerics:
        """Return the row of a tensor whose elements have to be equal."""
        to_eager, bitwise = gap(got, self.expected), are_bitwise_equal(got, self.expected)
        equal = bitwise or (is_floating(got) and to_eager.largest == 0.0)  # float64 does not hold all 64-bit integers
        return Numerics(
            self.variant,
            self.name,
            _dtype_name(got),
            bitwise=bitwise,
            error=to_eager.rms,
            max_error=to_eager.largest,
            verdict=NumericsVerdict.OK if equal else NumericsVerdict.FAILED,
            note=self.note,
        )

    def _floating_row(self, got: torch.Tensor, noise: float) -> Numerics:
        """Return the row of a tensor of floats, judged by float64 if there is such a reference, else by eager."""
        expected, truth = self.expected, self.truth
        if (touched := self.reference.eager.touched.get(self.name)) is not None:
            # Elements that the call did not write say nothing about rounding, but a wrong write to them must be
            # noticed.
            part = touched | (got != expected)
            truth = truth[part] if truth is not None and truth.shape == expected.shape else None
            expected, got = expected[part], got[part]
        limit = rounding_limit(expected.dtype, self.reference.arithmetic, self.scale, noise)
        to_eager = gap(got, expected, limit)
        row = Numerics(
            self.variant,
            self.name,
            _dtype_name(expected),
            bitwise=are_bitwise_equal(got, expected),
            error=to_eager.rms,
            max_error=to_eager.largest,
            tolerance=limit.rms(rms(expected)),
            element_share=to_eager.shares[0],
            verdict=NumericsVerdict.OK,
            note=self.note,
        )
        if truth is None or truth.shape != expected.shape:
            row = replace(row, note=self.note or self.reference.note)
        else:
            row = self._by_float64(row, got, expected, truth, limit)
        return row if row.bitwise or row.share <= 1.0 else replace(row, verdict=NumericsVerdict.FAILED)

    def _by_float64(
        self, row: Numerics, got: torch.Tensor, expected: torch.Tensor, truth: torch.Tensor, limit: Limit
    ) -> Numerics:
        """Return the row judged by float64, or by eager if eager is farther from float64 than rounding explains."""
        one_unit, truth_rms = rounding_unit(expected.dtype, self.scale), rms(truth)
        of_eager, of_variant = gap(expected, truth, limit, one_unit), gap(got, truth, limit, one_unit)
        row = replace(row, eager_error=of_eager.rms, variant_error=of_variant.rms)
        (eager_share, eager_units), (variant_share, variant_units) = of_eager.shares, of_variant.shares
        if of_eager.rms > limit.rms(truth_rms) or eager_share > 1.0:
            return replace(row, judged_by_eager=True, note=BEYOND_ROUNDING)
        least_units = units_of_a_sum(expected, self.reference.arithmetic)
        tolerance = SLACK * max(of_eager.rms, least_units * one_unit.rms(truth_rms))
        return replace(
            row,
            tolerance=min(tolerance, limit.rms(truth_rms)),
            element_share=max(variant_units / (SLACK * max(eager_units, least_units)), variant_share),
        )


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _scale(tensor: torch.Tensor | None, touched: torch.Tensor | None) -> float:
    """Return the RMS of a tensor, or of the elements that the call wrote; 0 if they cannot be compared."""
    if tensor is None or not is_dense(tensor):
        return 0.0
    return rms(tensor if touched is None else tensor[touched])


def _kind_of(tensor: torch.Tensor) -> str:
    if tensor.is_meta:
        return "a meta tensor"
    return "a nested tensor" if tensor.is_nested else f"a {str(tensor.layout).removeprefix('torch.')} tensor"


def _name_differences(got_outputs: Sequence[tuple[str, Any]], expected_outputs: Sequence[tuple[str, Any]]) -> str:
    """Return how the output tensors differ from eager's: missing, additional, or in another order."""
    got, expected = dict(got_outputs), dict(expected_outputs)
    texts = [f"{name} is missing" for name in expected if name not in got]
    texts += [f"{name} is not among eager's" for name in got if name not in expected]
    return "; ".join(texts) or "in another order than eager's"


def _failed_row(variant: str, name: str, why: str) -> Numerics:
    """Return the row of a result whose type, shape or dtype is not eager's."""
    return Numerics(variant, name, error=math.inf, max_error=math.inf, verdict=NumericsVerdict.FAILED, note=why)


def are_bitwise_equal(left: torch.Tensor | None, right: torch.Tensor | None) -> bool:
    """Return whether two tensors have the same dtype, shape and bits: a NaN equals itself, and -0.0 is not 0.0."""
    if left is None or right is None:
        return left is right
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(_bits(left), _bits(right))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor: ``==`` on elements would treat -0.0 and 0.0 as equal."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous().flatten().view(torch.uint8)
