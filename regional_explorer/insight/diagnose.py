"""Why a region is fast or slow; a remedy is measured before it is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from regional_explorer.compiler.program import Program, record_inputs
from regional_explorer.compiler.run import Run
from regional_explorer.compiler.switch import Switch
from regional_explorer.errors import MeasureError, RegionCompileError, count
from regional_explorer.insight.code_store import Insights
from regional_explorer.insight.region_time import FEWER_LAUNCHES, problem_of, region_time
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.partitions import as_in_the_call, timed_calls
from regional_explorer.measure.reference import check_partition
from regional_explorer.measure.timings import MeasureContext, measure_rounds, timings_of
from regional_explorer.record.artifact import ArtifactCode, BoundBy, code_hash
from regional_explorer.record.benchmark import NumericsVerdict, Timing, Verdict
from regional_explorer.record.configs import FUSING, KEEP_RESULTS
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.plan import DEFAULT, Direction
from regional_explorer.record.region_code import LinkedKernel, PartitionCode, by_artifact
from regional_explorer.record.session import Environment
from regional_explorer.style.formats import config_text, duration, size, with_interval

AT_BOUND = 0.8
"""If the bounds of a region's kernels are at least this share of its time, its code is at their limit."""
MOSTLY_LAUNCHES = 0.5
"""If a region spends at least this share of its time outside its kernels, launches dominate."""
EXPENSIVE_OPS = frozenset(
    (
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "erf", "erfc", "erfinv", "exp"),
        *("exp2", "expm1", "fmod", "lgamma", "log", "log10", "log1p", "log2", "pow", "rsqrt", "sigmoid", "sin"),
        *("sinh", "sqrt", "tan", "tanh"),
    )
)
"""Ops that take many instructions per element, so that computing them twice can cost more than memory."""


def from_times(region: str, parts: Sequence[PartitionCode]) -> Iterator[Diagnostic]:
    """Yield a ``kernel-bound`` or a ``launch-bound`` diagnostic if the kernel times of a region show it.

    ``parts`` are all its partitions in one call: the times of equal code count once for each of them. On a machine too
    busy to tell nothing is found.
    """
    timed = [(part, part.times) for part in parts if part.times is not None]
    if not timed or any(map(problem_of, parts)):
        return
    whole_s = sum(times.parts_s for _, times in timed)
    kernels_s = sum(times.kernels_s for _, times in timed)
    kernels = [kernel for _, times in timed for kernel in times.kernels]
    limits_s = {by: sum(one.least_s or 0.0 for one in kernels if one and one.bound_by is by) for by in BoundBy}
    least_s = sum(limits_s.values())
    graph, where = timed[0][0].partition.graph, timed[0][0].source[:1]
    if kernels and None not in kernels and kernels_s <= (1 - MOSTLY_LAUNCHES) * whole_s:
        yield DiagnosticCode.LAUNCH_BOUND.found(
            f"Region {region!r} spends {1 - kernels_s / whole_s:.0%} of its {duration(whole_s)} outside "
            f"its {count(len(kernels), 'kernel')}: allocating, checking and launching.",
            region=region,
            graph=graph,
            where=where,
            remedy=FEWER_LAUNCHES,
        )
    elif AT_BOUND * whole_s <= least_s <= whole_s:
        needs = " and ".join(f"{duration(limits_s[by])} {WORK[by]}" for by in BoundBy if limits_s[by])
        yield DiagnosticCode.KERNEL_BOUND.found(
            f"Of the {duration(whole_s)} of region {region!r}, its kernels need at least {needs} "
            f"({least_s / whole_s:.0%}), at the fastest that this machine was seen to do such work.",
            region=region,
            graph=graph,
            where=where,
            remedy=LESS_WORK[max(BoundBy, key=limits_s.__getitem__)],
        )


WORK = {BoundBy.COPY: "to move their bytes", BoundBy.MATRIX: "for their matrix products"}
LESS_WORK = {
    BoundBy.COPY: "Move fewer bytes: a smaller dtype, or a larger region, inside which results need not be written.",
    BoundBy.MATRIX: "Compute less: smaller matrices, or a dtype whose products are faster here.",
}
"""What would change the limit of the code as it is."""


Find = Callable[[str, PartitionCode, ArtifactCode], Diagnostic | None]
"""Compares the code of a partition with that under a remedy; returns what is found, the remedy's text still empty."""


def remedies(parts: Sequence[PartitionCode]) -> list[tuple[Mapping[str, Any], Find]]:
    """Return the changes of a region's config that may make it faster, each with what finds whether it improves code.

    They are to keep results, and the configs that may fuse what was refused in these partitions.
    """
    reasons = {refused.reason for part in parts for refused in part.code.refused}
    configs = [config for words, config in FUSING.items() if any(words in reason for reason in reasons)]
    distinct = [config for number, config in enumerate(configs) if config not in configs[:number]]
    return [(KEEP_RESULTS, recomputed_ops), *((config, partial(refused_fusions, config)) for config in distinct)]


def recomputed_ops(region: str, part: PartitionCode, after: ArtifactCode) -> Diagnostic | None:
    """Return the ops that a partition computes more often than ``after``, its code under ``KEEP_RESULTS``."""
    now, then = _expensive_op_counts(part.code), _expensive_op_counts(after)
    ops = {op: (times, then.get(op, 0)) for op, times in now.items() if times > then.get(op, 0) > 0}
    if not ops:
        return None
    kernels = [linked for linked in part.kernels if ops.keys() & linked.kernel.loop_ops.keys()]
    again = ", ".join(f"{op} {now} times instead of {then}" for op, (now, then) in sorted(ops.items()))
    names = ", ".join(linked.kernel.name for linked in kernels)
    return _finding(
        DiagnosticCode.OP_RECOMPUTED,
        f"Region {region!r} computes {again} per element in {names}: each reader of a value computes it again.",
        region,
        part,
        kernels,
    )


def _expensive_op_counts(code: ArtifactCode) -> dict[str, int]:
    counts = sum((Counter(kernel.loop_ops) for kernel in code.kernels), Counter[str]())
    return {op: times for op, times in counts.items() if op in EXPENSIVE_OPS}


def refused_fusions(
    config: Mapping[str, Any], region: str, part: PartitionCode, after: ArtifactCode
) -> Diagnostic | None:
    """Return the refused fusion that shares the most data, if the refusals in ``after`` share less."""
    pairs = [pair for pair in part.code.refused if any(FUSING[w] == config for w in FUSING if w in pair.reason)]
    now_bytes, then_bytes = (sum(pair.shared_bytes for pair in code.refused) for code in (part.code, after))
    if not pairs or after.problem is not None or then_bytes >= now_bytes:
        return None
    refused = max(pairs, key=lambda pair: pair.shared_bytes)
    kernels = [part.kernels[position] for position in dict.fromkeys((refused.first, refused.second))]
    names = " and ".join(linked.kernel.name for linked in kernels)
    which = f"{names} apart" if len(kernels) > 1 else f"two loops of {names} one after the other"
    more_pairs = f", and {count(len(pairs) - 1, 'more pair')} for such a reason" if len(pairs) > 1 else ""
    return _finding(
        DiagnosticCode.FUSION_REFUSED,
        f"Region {region!r} runs {which}, though they touch the same {size(refused.shared_bytes)}: "
        f"Inductor refused to fuse them ({refused.reason}){more_pairs}.",
        region,
        part,
        kernels,
    )


def _finding(
    code: DiagnosticCode, message: str, region: str, part: PartitionCode, kernels: Sequence[LinkedKernel]
) -> Diagnostic:
    return code.found(
        message,
        region=region,
        graph=part.partition.graph,
        at=dict.fromkeys(node.name for linked in kernels for node in linked.nodes),
        where=[line for linked in kernels for line in linked.lines],
    )


def wins(timings: Sequence[Timing | None]) -> bool:
    """Return whether a remedy is significantly faster in one timing and not slower in any."""
    verdicts = [timing.verdict if timing is not None else None for timing in timings]
    return Verdict.FASTER in verdicts and not {Verdict.SLOWER, None} & set(verdicts)


class _Candidate(NamedTuple):
    """A remedy that changes the code of ``parts``, which are of one direction, and improves that of ``cured``."""

    config: Mapping[str, Any]
    finding: Diagnostic
    cured: PartitionCode
    parts: tuple[PartitionCode, ...]


def diagnose(
    insights: Insights,
    environment: Environment,
    region: str,
    parts: Sequence[PartitionCode],
    budget_s: float,
    run: Run,
) -> tuple[Diagnostic, ...]:
    """Return the findings about a region whose kernels have been timed; each remedy is measured first."""
    distinct = [equal[0] for equal in by_artifact(parts)]
    config = {key: DEFAULT for _, config in insights.program.plan[region].configs for key in config}
    if config:  # for config-inert: whether it changes the code
        run.executor.run_untimed(lambda: insights.under(region, insights.changed(region, config), None, run))
    candidates = {
        config_text(config): list(_candidates(insights, region, distinct, config, find, run))
        for config, find in remedies(distinct)
    }
    share_s = budget_s / max(1, sum(len(one.parts) for found in candidates.values() for one in found))
    measured: list[Diagnostic] = []
    tried: list[str] = []
    for text, found in candidates.items():
        faster = [
            finding
            for candidate in found
            if (finding := _measured(insights.program, environment, candidate, share_s, run)) is not None
        ]
        measured += faster
        tried.append(f"{text} {'is faster' if faster else 'is not measurably faster' if found else 'improves no code'}")
    if run.cancelled():
        return ()
    late = insights.program.capture.late_graphs
    of_one_call = [part for part in parts if part.partition.graph not in late]
    diagnostics = [region_time(region, of_one_call or parts, tried), *from_times(region, of_one_call), *measured]
    if measured:  # the code under the remedy has another limit
        diagnostics = [found for found in diagnostics if found.code is not DiagnosticCode.KERNEL_BOUND]
    insights.diagnoses[region] = insights.needed().get(region, []), tuple(diagnostics)
    insights.revision += 1
    return tuple(diagnostics)


def _candidates(
    insights: Insights,
    region: str,
    distinct: Sequence[PartitionCode],
    config: Mapping[str, Any],
    find: Find,
    run: Run,
) -> Iterator[_Candidate]:
    """Yield a candidate per direction in which a remedy improves the code."""
    if run.cancelled():
        return
    after = run.executor.run_untimed(lambda: insights.under(region, insights.changed(region, config), None, run))
    changed = [
        part
        for part in distinct
        if part.partition.id in after and code_hash(part.text) != code_hash(after[part.partition.id].text)
    ]
    for direction in Direction:
        affected = tuple(part for part in changed if Direction.of_graph(part.partition.graph) is direction)
        found = ((part, find(region, part, after[part.partition.id])) for part in affected)
        for part, finding in found:
            if finding is not None:
                yield _Candidate(config, finding, part, affected)
                break


def _measured(
    program: Program, environment: Environment, candidate: _Candidate, share_s: float, run: Run
) -> Diagnostic | None:
    """Return the finding of a candidate that was measured to be faster, ``share_s`` for each partition."""
    if run.cancelled():
        return None
    region, config = candidate.cured.partition.region, dict(candidate.config)
    run.estimate(share_s * len(candidate.parts))
    run.progress(f"measuring a remedy for {region}", 0.5)
    timings = [remedy_timing(program, environment, part, config, share_s, run) for part in candidate.parts]
    best = timings[candidate.parts.index(candidate.cured)]
    if best is None or best.speedup is None or not wins(timings):
        return None
    direction = Direction.of_graph(candidate.cured.partition.graph)
    remedy = (
        f'ex.configure({region!r}, {config!r}, direction="{direction}"): '
        f"measured {with_interval(best.speedup)} as fast as now; "
        f"numerics: {best.numerics}."
    )
    return replace(candidate.finding, remedy=remedy)


def remedy_timing(
    program: Program,
    environment: Environment,
    part: PartitionCode,
    config: Mapping[str, Any],
    budget_s: float,
    run: Run,
) -> Timing | None:
    """Return the time of equal partitions under ``config`` relative to now.

    None if it cannot be measured, or does not compute what eager does.
    """
    key = part.partition.artifact
    switches = [switch for switch in program.switches if switch.artifact is not None and switch.artifact.key == key]
    recorded = run.executor.run_untimed(lambda: record_inputs(program, switches))
    if recorded is None:
        return None
    switch, args = recorded.switch, recorded.args
    try:
        calls = run.executor.run_untimed(lambda: _remedy_calls(program, switch, args, config))
        context = MeasureContext.of(run.silent(), environment)
        with as_in_the_call():
            check = run.executor.run_untimed(lambda: check_partition(program, switch, args, run.cancelled, config))
            if check.verdict is NumericsVerdict.FAILED:
                return None
            rounds = measure_rounds(calls, budget_s, context, baseline="now")
    except (CancelledError, RegionCompileError, MeasureError):
        return None
    rounds.stopped.raise_interrupt()
    timings = timings_of(rounds, {"remedy": check.verdict})
    return next((timing for timing in timings if timing.variant == "remedy"), None)


def _remedy_calls(program: Program, switch: Switch, args: Sequence[Any], config: Mapping[str, Any]) -> list[TimedCall]:
    now, twin = switch.artifact, program.twin(switch, config)
    assert now is not None  # noqa: S101 - only partitions that have one are measured
    with as_in_the_call():
        put_back = timed_calls(switch, args)[-1].before
    return [
        TimedCall("now", lambda: now.call(list(args)), before=put_back),
        TimedCall("remedy", lambda: twin.call(list(args)), before=put_back),
    ]
