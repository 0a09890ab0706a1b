"""Errors of results, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from regional_explorer.record.benchmark import Numerics, NumericsVerdict, VariantName
from regional_explorer.record.session import Session

MOST_TENSORS = 3
"""The maximum number of wrong tensors that a text names."""


def size_of_error(row: Numerics) -> str:
    """Return the error of a wrong tensor beside the allowed error, of the tensor as a whole or its worst element."""
    if math.isinf(row.error):
        return "infinite or not a number where eager is not, or the reverse" if row.dtype else row.note
    if not row.tolerance:
        return f"off by up to {row.max_error:.2g}, and has to be equal"
    if row.rms_share <= 1.0:
        return f"one element off by {row.max_error:.2g}, {row.element_share:,.3g} times what is allowed"
    if row.variant_error is None or row.eager_error is None or row.judged_by_eager:
        return f"{row.error:.2g} from eager ({row.tolerance:.2g} is allowed)"
    return (
        f"{row.variant_error:.2g} from float64, where eager is {row.eager_error:.2g} ({row.tolerance:.2g} is allowed)"
    )


def errors_in_words(wrong: Sequence[Numerics], tensors: int) -> str:
    """Return the first wrong tensors with their errors, and how many of the other ``tensors`` are wrong."""
    texts = [f"{row.tensor}: {size_of_error(row)}" for row in wrong[:MOST_TENSORS]]
    more = len(wrong) - len(texts)
    return "; ".join(texts) + (f"; and {more} more of {tensors} tensors" if more else "")


def plan_errors(session: Session) -> str:
    """Return how far off the plan's wrong or chaotic results are; empty without such results."""
    verdict = session.plan_numerics
    if verdict is None or not verdict.withholds_speedup:
        return ""
    return errors_of(session, VariantName.REGIONAL, rows_with(session, VariantName.REGIONAL, verdict))


def rows_with(session: Session, name: VariantName, verdict: NumericsVerdict) -> list[Numerics]:
    """Return the tensors of a variant with a verdict."""
    return [row for row in session.numerics_of(name) if row.verdict is verdict]


def errors_of(session: Session, name: VariantName, rows: Sequence[Numerics]) -> str:
    """Return how far off some tensors of a variant are."""
    return errors_in_words(rows, len(session.numerics_of(name)))
