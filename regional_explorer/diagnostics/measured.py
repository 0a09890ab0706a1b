"""Diagnostics from what was measured: compile warnings, slower plans and regions, wrong results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from regional_explorer.diagnostics.evidence import lines
from regional_explorer.errors import count, listing
from regional_explorer.record.action import (
    ALONE,
    Action,
    ActionKind,
    EffectBasis,
    configure_action,
    disable_action,
    mark_action,
    show_table_action,
)
from regional_explorer.record.benchmark import TWIN_NOTE, Numerics, NumericsVerdict, VariantName, Verdict
from regional_explorer.record.diagnostic import Advice, Diagnostic, DiagnosticCode, Severity, in_sentences
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition
from regional_explorer.record.plan import Selector, SelectorKind
from regional_explorer.record.plan_file import plan_slower_diagnostic
from regional_explorer.record.region_code import is_idle, pattern_match_counts
from regional_explorer.record.regions import (
    RegionTiming,
    gain_alone_s,
    is_one_region,
    region_timings_of_whole_call,
    tracing_cost_s,
    whole_gain_s,
)
from regional_explorer.record.session import Session
from regional_explorer.record.speeds import WORDS, plan_speed, ratio_text
from regional_explorer.record.statistics import median_figure, paired_gaps
from regional_explorer.style.formats import duration, pattern_text, with_interval
from regional_explorer.tables.regions import trace_note

MOST_ADVISED = 6

RECONCILIATION = show_table_action("reconciliation")
SLOWER_REMEDY = "Disable the regions that are slower, or mark larger ones: the code around each costs time, too."
ONE_REGION = "one region has all ops already, so none can be larger."


def slower_speeds(session: Session) -> dict[str, str]:
    """Return the plan's speed against eager and against plain ``torch.compile``, as text, where the plan is slower.

    Where no compiled code ran, the plan is as fast as its trace, which says nothing about compiled code.
    """
    if session.is_outdated or all(part.artifact is None or part.error for part in session.partitions):
        return {}
    speeds = (plan_speed(session, variant) for variant in (VariantName.EAGER, VariantName.FULL))
    return {
        speed.against: ratio_text(speed.speedup, speed.against)
        for speed in speeds
        if speed.is_slower and speed.speedup is not None
    }


def plan_diagnostics(session: Session) -> list[Diagnostic]:
    """Return a ``plan-slower`` against eager, and one against plain ``torch.compile``, where the call is slower."""
    marks = ((name, session.whole_timings.get(name)) for name in (VariantName.UPSTREAM, VariantName.LITE))
    others = "".join(
        f" Under {name}, the same marks run {with_interval(timing.speedup)} as fast as eager."
        for name, timing in marks
        if timing is not None and timing.speedup is not None
    )
    return [
        plan_slower_diagnostic(f"The plan is {slower}", f".{others}", against, _slower_remedy(session, against))
        for against, slower in slower_speeds(session).items()
    ]


def _slower_remedy(session: Session, against: str) -> str | Advice:
    verdicts = {timing.verdict for timing in region_timings_of_whole_call(session).values()}
    if is_one_region(session):
        disable = ("Or ", disable_action(session.partitions[0].region), ".") if Verdict.SLOWER in verdicts else ""
        return in_sentences(f"{ONE_REGION[0].upper()}{ONE_REGION[1:]}", _cost_around(session, against), disable)
    if Verdict.SLOWER in verdicts:
        return SLOWER_REMEDY, " ", show_table_action("regions"), " and ", RECONCILIATION, " say which."
    if verdicts and verdicts <= {Verdict.FASTER, Verdict.SAME}:
        return "Mark larger regions: none is slower alone, but the code around each costs time, too."
    return SLOWER_REMEDY


def _cost_around(session: Session, against: str) -> Advice:
    """Return why a plan of one region is slower, how much time that takes, and what to do."""
    if against == VariantName.EAGER:
        cost_s = tracing_cost_s(session, session.whole_phase)
        why = "guards, AOTAutograd's wrappers, and traced ops in place of the program's own"
        instead = "Give each call more work, or run it eagerly."
    else:
        regional, full = (session.whole_timings[name] for name in (VariantName.REGIONAL, VariantName.FULL))
        cost_s = None if full.earlier else median_figure(paired_gaps(regional.samples_s, full.samples_s))
        why = "the code that calls the region, and what torch.compile changes in the whole graph before it is cut"
        instead = "Use plain torch.compile for this call."
    took = f" {with_interval(cost_s, duration)} of each call" if cost_s is not None and cost_s.bounds else ""
    return f"The difference is{took}: {why} (", RECONCILIATION, f"). {instead}"


def region_diagnostics(session: Session) -> list[Diagnostic]:
    """Return a ``region-slower`` for each region that is slower compiled, and one ``region-worth`` for the others.

    The ``region-worth`` is left out unless the whole call is faster under the plan.
    """
    timings = sorted(region_timings_of_whole_call(session).values(), key=lambda timing: -_gain_s(timing))
    slower = [timing for timing in timings if timing.verdict is Verdict.SLOWER]
    diagnostics = [_slower_diagnostic(timing, one_region=is_one_region(session)) for timing in slower]
    gain_s, regional = whole_gain_s(session), session.whole_timings.get(VariantName.REGIONAL)
    if gain_s is not None and regional is not None and regional.speedup is not None:
        whole_gain = f"the {session.whole_phase} {duration(gain_s)}, {with_interval(regional.speedup)}"
        diagnostics += _worth_diagnostic(timings, whole_gain, trace_note(session))
    return diagnostics


def _gain_s(timing: RegionTiming) -> float:
    return timing.gain_s.value if timing.gain_s else 0.0


def _slower_diagnostic(row: RegionTiming, *, one_region: bool) -> Diagnostic:
    loss_s = None if row.gain_s is None else row.gain_s * -1.0
    disable = replace(disable_action(row.region), basis=EffectBasis.MEASURED, gain_s=loss_s, assumes=ALONE)
    return DiagnosticCode.REGION_SLOWER.finding(
        f"Region {row.region!r} takes {'' if loss_s is None else with_interval(loss_s, duration)} longer in each call "
        f"compiled than eager ({'' if row.speedup is None else with_interval(row.speedup)}{_numerics_note(row)}, "
        "measured alone)",
        region=row.region,
        remedy=(
            disable,
            f": {ONE_REGION}"
            if one_region
            else ", or mark a larger region: no fusion crosses its border, and each call of a partition costs time.",
        ),
    )


def _worth_diagnostic(rows: list[RegionTiming], whole_gain: str, trace_text: str) -> list[Diagnostic]:
    """Return the ``region-worth``: each region's part of the whole call's gain; empty if no verdict allows one."""
    faster = [row for row in rows if row.verdict is Verdict.FASTER]
    same = [repr(row.region) for row in rows if row.verdict is Verdict.SAME]
    unsure = [repr(row.region) for row in rows if row.verdict.is_unsure and row.speedup is not None]
    cure = "a quieter machine" if any(row.verdict is Verdict.BUSY for row in rows) else "more rounds"
    if not faster and not same:
        return []
    kept_share = rows[0].kept_share or 0.0
    gains = [
        f"{row.region!r} saves {duration(kept_share * _gain_s(row))} in each call{_pay_off_text(row)}"
        f"{_numerics_note(row)}"
        for row in faster
    ]
    clauses = [
        f": {listing(gains, MOST_ADVISED)}" if faster else "",
        f"; no difference: {listing(same, MOST_ADVISED)}" if same else "",
        f"; inconclusive (try {cure}): {listing(unsure, MOST_ADVISED)}" if unsure else "",
        f". With the code around them, they save {whole_gain}",
        f"; measured alone, they save {duration(gain_alone_s(rows))} (ex.reconciliation)"
        if kept_share < 1.0 and faster
        else "",
    ]
    title = "Worth compiling" if faster else "No region is measurably faster compiled"
    return [DiagnosticCode.REGION_WORTH.finding(title, f"{''.join(clauses)}. {trace_text}".rstrip())]


def _numerics_note(row: RegionTiming) -> str:
    return f" (numerics {NumericsVerdict.NOT_COMPARABLE})" if row.numerics is NumericsVerdict.NOT_COMPARABLE else ""


def _pay_off_text(row: RegionTiming) -> str:
    """Return the number of calls after which a compile pays off, as text."""
    calls, alone = row.pays_off_after_calls, row.calls_to_pay_off(1.0)
    if calls is None or math.isinf(calls):
        return ""
    if calls == 0:
        return ", its compile is shared"
    by_itself = f" ({alone:,.0f} by its gain measured alone)" if alone != calls else ""
    return f", its {row.cache} compile of {duration(row.compile_s)} pays off after {calls:,.0f} calls{by_itself}"


def warning_diagnostics(session: Session) -> list[Diagnostic]:
    """Return an ``inductor-warning`` for each region and text of a warning that Inductor gave while compiling it."""
    graphs = {graph.id: graph.by_name for graph in session.graphs}
    warned = grouped(
        ((part.region, text), part)
        for part in session.partitions
        if (artifact := session.artifact_of(part)) is not None
        for text in dict.fromkeys((*artifact.compile.warnings, *(artifact.code.warnings if artifact.code else ())))
    )
    return [
        DiagnosticCode.INDUCTOR_WARNING.finding(
            f"Inductor warned when it compiled region {region!r} ({count(len(parts), 'partition')})",
            f": {text}",
            region=region,
            graph=parts[0].graph,
            where=lines(graphs[part.graph][name] for part in parts for name in part.nodes)[:1],
            remedy=(Action(ActionKind.DIAGNOSE, (region,)), " says where its time goes."),
        )
        for (region, text), parts in warned.items()
    ]


def pattern_diagnostics(session: Session) -> list[Diagnostic]:
    """Return a ``pattern-lost`` if patterns that matched in plain ``torch.compile`` do not match under the plan."""
    lost = [
        f"{pattern_text(pattern.name)} ({pattern.full}×)"
        for pattern in pattern_match_counts(session)
        if pattern.is_lost and not is_idle(pattern.name)
    ]
    if not lost or not session.partitions:
        return []
    tracing = replace(session.plan.tracing, joint_passes=True, decompositions=True)
    larger = "a larger region, so that no border cuts through a pattern"
    retrace = Action(ActionKind.RETRACE, tracing=tracing), f" looks for them before regions are cut. Or mark {larger}."
    return [
        DiagnosticCode.PATTERN_LOST.finding(
            "These patterns matched in torch.compile, but neither in the trace nor in a region",
            f": {listing(lost, MOST_ADVISED)}.",
            remedy=f"Mark {larger}." if tracing == session.plan.tracing else retrace,
        )
    ]


SAME_ERROR = 0.01
"""A variant's tensor is wrong for the trace's reason if the relative errors of both differ by at most this factor."""

_NAMES = {
    **{VariantName(name): word for name, word in WORDS.items()},
    VariantName.AOT_EAGER: "the traced graphs without a compiler",
    VariantName.UPSTREAM: "the marks under upstream's regional_inductor",
    VariantName.LITE: "the marks under torch.compile(mode='lite')",
}
_OF_THE_PLAN = {VariantName.REGIONAL, VariantName.UPSTREAM, VariantName.LITE}


# ------------------------------------------------------------------------------------------------------------- regions


def wrong_region_diagnostics(session: Session, cures: Mapping[str, Mapping[str, Any] | None]) -> list[Diagnostic]:
    """Return a ``region-numerics`` for each partition whose output is wrong, with the config that corrects it."""
    wrong = (row for row in session.partition_numerics if row.verdict is NumericsVerdict.FAILED)
    partitions = {part.id: part for part in session.partitions}
    return [
        _region_diagnostic(session, partitions[name], max(rows, key=lambda row: row.share), cures.get(name))
        for name, rows in grouped((row.partition, row) for row in wrong).items()
    ]


def _region_diagnostic(
    session: Session, part: Partition, worst: Numerics, cure: Mapping[str, Any] | None
) -> Diagnostic:
    treated = session.plan[part.region].treatment.texts
    otherwise = f"Leave out {listing(treated)}, or " if treated else "No config was found that corrects it: "
    return DiagnosticCode.REGION_NUMERICS.finding(
        f"Region {part.region!r}: {worst.tensor}, an output of {part.id}, is {worst.error_text}",
        ", so no speedup is shown.",
        region=part.region,
        graph=part.graph,
        remedy=(otherwise, disable_action(part.region), ".")
        if cure is None
        else (configure_action(part.region, cure, basis=EffectBasis.MEASURED), " passes the check."),
    )


# ------------------------------------------------------------------------------------------------------------ variants


def wrong_variant_diagnostics(session: Session, others: Sequence[Diagnostic]) -> Iterator[Diagnostic]:
    """Yield a ``variant-wrong`` for each cause of wrong results, and one for all variants whose check rounding decides.

    A wrong trace is the cause in every variant that is wrong by as much. One finding covers these variants, unless a
    ``trace-differs`` among the ``others`` does.
    """
    names = [name for name in _NAMES if not (session.is_outdated and name in _OF_THE_PLAN)]
    wrong = {name: rows for name in names if (rows := session.numerics_of(name, NumericsVerdict.FAILED))}
    traced = {row.tensor: row.error for row in wrong.get(VariantName.AOT_EAGER, ())}
    trace_differs = any(finding.code is DiagnosticCode.TRACE_DIFFERS for finding in others)
    as_traced = []
    for name, rows in wrong.items():
        own = [row for row in rows if not math.isclose(row.error, traced.get(row.tensor, -1.0), rel_tol=SAME_ERROR)]
        if not own or (trace_differs and not traced):
            as_traced.append(name)
        else:
            yield _wrong_diagnostic(session, [name], own, others)
    if as_traced and not trace_differs:
        yield _wrong_diagnostic(session, as_traced, wrong[as_traced[0]], others)
    unsure = [name for name in names if name not in wrong and session.numerics_of(name, NumericsVerdict.CHAOTIC)]
    if unsure:
        yield _unsure_diagnostic(session, unsure)


def wrong_plan_diagnostic(session: Session) -> Diagnostic | None:
    """Return the plan's ``variant-wrong``, whatever the cause; None if its results are right or unchecked."""
    match session.plan_numerics:
        case NumericsVerdict.FAILED as failed:
            rows = session.numerics_of(VariantName.REGIONAL, failed)
            return _wrong_diagnostic(session, [VariantName.REGIONAL], rows, session.diagnostics)
        case NumericsVerdict.CHAOTIC:
            return _unsure_diagnostic(session, [VariantName.REGIONAL])
    return None


def _names_text(names: Sequence[VariantName]) -> str:
    return " and of ".join(map(_NAMES.__getitem__, names))


def _wrong_diagnostic(
    session: Session, names: Sequence[VariantName], rows: Sequence[Numerics], others: Sequence[Diagnostic]
) -> Diagnostic:
    """Return the finding for variants that share one cause; ``rows`` are the wrong tensors of the first variant."""
    right = [
        name
        for name in _NAMES
        if NumericsVerdict.worst(row.verdict for row in session.numerics_of(name)) is NumericsVerdict.OK
        and not (session.is_outdated and name in _OF_THE_PLAN)
    ]
    sentences = [
        session.errors_of(names[0], rows),
        *([TWIN_NOTE.capitalize()] if any(row.note == TWIN_NOTE for row in rows) else []),
        *([f"The results of {_names_text(right)} are right"] if right else []),
    ]
    remedy = _remedy(session, names[0], others, plan_is_right=VariantName.REGIONAL in right)
    title = f"The results of {_names_text(names)} are wrong"
    return DiagnosticCode.VARIANT_WRONG.finding(title, f": {'. '.join(sentences)}.", remedy=remedy)


def _remedy(session: Session, name: VariantName, others: Sequence[Diagnostic], *, plan_is_right: bool) -> str | Advice:
    if any(finding.code is DiagnosticCode.TRACE_DIFFERS for finding in others):
        return "The trace differs from eager (trace-differs): every compiler of this trace gives such results."
    if name is VariantName.AOT_EAGER:
        return (
            "No compiler is the cause, and no region or config helps: torch.compile(fn, backend='aot_eager') gives the "
            "same wrong results."
        )
    if name is not VariantName.REGIONAL:
        if plan_is_right:
            saves = Action(ActionKind.SAVE_PLAN, ("plan.json",))
            return "The plan is right: run it with rx.compile(fn, ", saves, ")."
        all_ops = mark_action("r", Selector(SelectorKind.OPS, ("*",)))
        regions = ("other regions",) if session.plan.regions else ("regions, for example ", all_ops, ",")
        return "Mark ", *regions, " and measure the plan: a region is often right where the whole call is not."
    wrong = [finding for finding in others if finding.code is DiagnosticCode.REGION_NUMERICS]
    if wrong:
        return in_sentences(*{finding.remedy: finding.advice for finding in wrong}.values())
    if session.partition_numerics:
        return "No region is wrong alone: disable one after the other and measure again, until the results are right."
    alone = Action(ActionKind.BENCHMARK, options={"regions": True})
    return alone, " says which region is wrong alone: disable it."


def _unsure_diagnostic(session: Session, names: Sequence[VariantName]) -> Diagnostic:
    errors = session.errors_of(names[0], session.numerics_of(names[0], NumericsVerdict.CHAOTIC))
    return DiagnosticCode.VARIANT_WRONG.finding(
        f"It is unknown whether the results of {_names_text(names)} are right, since rounding is amplified without "
        f"limit",
        f": {errors}. Zeros would pass the check, too.",
        severity=Severity.WARNING,
        remedy="Explore fewer steps, or a smaller part of the call: the check works where rounding stays small.",
    )
