"""Diagnostics that follow from numerics checks: a variant, the plan or a region whose results are wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from regional_explorer.record.action import Action, ActionKind, Basis, configures, disables, marks
from regional_explorer.record.benchmark import TWIN_NOTE, Numerics, NumericsVerdict, VariantName
from regional_explorer.record.diagnostic import Advice, Diagnostic, DiagnosticCode, Severity, in_sentences
from regional_explorer.record.grouping import grouped
from regional_explorer.record.numerics import errors_of, rows_with, size_of_error
from regional_explorer.record.partition import Partition
from regional_explorer.record.plan import Selector, SelectorKind
from regional_explorer.record.session import Session

SAME_ERROR = 0.01
"""A tensor whose relative error differs by at most this factor from the trace's is wrong for the same reason."""

_NAMES = {
    VariantName.AOT_EAGER: "the traced graphs without a compiler (aot_eager)",
    VariantName.REGIONAL: "the plan (regional)",
    VariantName.FULL: "plain torch.compile (full)",
    VariantName.UPSTREAM: "the marks under upstream's regional_inductor (upstream)",
    VariantName.LITE: "the marks under torch.compile(mode='lite') (lite)",
}
_OF_THE_PLAN = {VariantName.REGIONAL, VariantName.UPSTREAM, VariantName.LITE}


# ------------------------------------------------------------------------------------------------------------- regions


def wrong_regions(session: Session, cures: Mapping[str, Mapping[str, Any] | None]) -> list[Diagnostic]:
    """Return a ``region-numerics`` for each partition whose output is wrong, with the config that corrects it."""
    wrong = (row for row in session.partition_numerics if row.verdict is NumericsVerdict.FAILED)
    partitions = {part.id: part for part in session.partitions}
    return [
        _region_diagnostic(partitions[name], max(rows, key=lambda row: row.share), cures.get(name))
        for name, rows in grouped((row.partition, row) for row in wrong).items()
    ]


def _region_diagnostic(part: Partition, worst: Numerics, cure: Mapping[str, Any] | None) -> Diagnostic:
    return DiagnosticCode.REGION_NUMERICS.found(
        f"Region {part.region!r}: {worst.tensor}, an output of {part.id}, is {size_of_error(worst)}, "
        "so no speedup is shown.",
        region=part.region,
        graph=part.graph,
        remedy=("No config was found that corrects it: ", disables(part.region), ".")
        if cure is None
        else (configures(part.region, cure, basis=Basis.MEASURED), " passes the check."),
    )


# ------------------------------------------------------------------------------------------------------------ variants


def wrong_variants(session: Session, others: Sequence[Diagnostic]) -> Iterator[Diagnostic]:
    """Yield a ``variant-wrong`` for each cause of wrong results, and one for all variants decided by rounding alone.

    If the trace is wrong, it is the cause in every variant that is wrong by as much: one finding covers all of them,
    unless a ``trace-differs`` among the ``others`` already does.
    """
    names = [name for name in _NAMES if not (session.is_outdated and name in _OF_THE_PLAN)]
    wrong = {name: rows for name in names if (rows := rows_with(session, name, NumericsVerdict.FAILED))}
    traced = {row.tensor: row.error for row in wrong.get(VariantName.AOT_EAGER, ())}
    trace_differs = any(found.code is DiagnosticCode.TRACE_DIFFERS for found in others)
    as_traced = []
    for name, rows in wrong.items():
        own = [row for row in rows if not math.isclose(row.error, traced.get(row.tensor, -1.0), rel_tol=SAME_ERROR)]
        if not own or (trace_differs and not traced):
            as_traced.append(name)
        else:
            yield _wrong(session, [name], own, others)
    if as_traced and not trace_differs:
        yield _wrong(session, as_traced, wrong[as_traced[0]], others)
    unsure = [name for name in names if name not in wrong and rows_with(session, name, NumericsVerdict.CHAOTIC)]
    if unsure:
        yield _unsure(session, unsure)


def plan_wrong(session: Session) -> Diagnostic | None:
    """Return the plan's ``variant-wrong``, whatever the cause; None if its results are not known to be wrong."""
    match session.plan_numerics:
        case NumericsVerdict.FAILED as failed:
            rows = rows_with(session, VariantName.REGIONAL, failed)
            return _wrong(session, [VariantName.REGIONAL], rows, session.diagnostics)
        case NumericsVerdict.CHAOTIC:
            return _unsure(session, [VariantName.REGIONAL])
    return None


def _named(names: Sequence[VariantName]) -> str:
    return " and of ".join(map(_NAMES.__getitem__, names))


def _wrong(
    session: Session, names: Sequence[VariantName], rows: Sequence[Numerics], others: Sequence[Diagnostic]
) -> Diagnostic:
    """Return the finding for variants that are wrong for one reason; ``rows`` are the first one's wrong tensors."""
    right = [
        name
        for name in _NAMES
        if NumericsVerdict.worst(row.verdict for row in session.numerics_of(name)) is NumericsVerdict.OK
        and not (session.is_outdated and name in _OF_THE_PLAN)
    ]
    sentences = [
        f"The results of {_named(names)} are wrong: {errors_of(session, names[0], rows)}",
        *([TWIN_NOTE.capitalize()] if any(row.note == TWIN_NOTE for row in rows) else []),
        *([f"Those of {' and '.join(right)} are right"] if right else []),
    ]
    remedy = _remedy(session, names[0], others, plan_is_right=VariantName.REGIONAL in right)
    return DiagnosticCode.VARIANT_WRONG.found(f"{'. '.join(sentences)}.", remedy=remedy)


def _remedy(session: Session, name: VariantName, others: Sequence[Diagnostic], *, plan_is_right: bool) -> str | Advice:
    if any(found.code is DiagnosticCode.TRACE_DIFFERS for found in others):
        return "The trace differs from eager (trace-differs): every compiler gives such results."
    if name is VariantName.AOT_EAGER:
        return (
            "No compiler is the cause, and no region or config helps: torch.compile(fn, backend='aot_eager') is as "
            "wrong."
        )
    if name is not VariantName.REGIONAL:
        if plan_is_right:
            saves = Action(ActionKind.SAVE_PLAN, ("plan.json",))
            return "The plan is right: run it with rx.compile(fn, ", saves, ")."
        all_ops = marks("r", Selector(SelectorKind.OPS, ("*",)))
        which = ("other regions",) if session.plan.regions else ("regions, ", all_ops, " say,")
        return "Mark ", *which, " and measure the plan: a region is often right where the whole call is not."
    of_regions = [found for found in others if found.code is DiagnosticCode.REGION_NUMERICS]
    if of_regions:
        return in_sentences(*{found.remedy: found.advice for found in of_regions}.values())
    if session.partition_numerics:
        return "No region is wrong alone: disable one after the other and measure again, until the results are right."
    alone = Action(ActionKind.BENCHMARK, options={"regions": True})
    return alone, " says which region is wrong alone: disable that one."


def _unsure(session: Session, names: Sequence[VariantName]) -> Diagnostic:
    errors = errors_of(session, names[0], rows_with(session, names[0], NumericsVerdict.CHAOTIC))
    return DiagnosticCode.VARIANT_WRONG.found(
        f"It is unknown whether the results of {_named(names)} are right, since rounding is amplified without limit: "
        f"{errors}. Zeros would pass the check, too.",
        severity=Severity.WARNING,
        remedy="Explore fewer steps, or a smaller part of the call: the check works where rounding stays small.",
    )
