"""Finds why a region is fast or slow; every remedy is measured before it is named."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run import Run
from regional_explorer.errors import MeasureError, RegionCompileError, count, listing
from regional_explorer.insight.code_store import Insights
from regional_explorer.measure.alone import race, record_inputs
from regional_explorer.measure.timings import MeasureContext
from regional_explorer.record.action import (
    ALONE,
    BENCHMARK,
    Action,
    ActionKind,
    EffectBasis,
    carve_action,
    configure_action,
    disable_action,
)
from regional_explorer.record.artifact import ArtifactCode, BoundBy, Kernel, KernelKind, code_hash
from regional_explorer.record.benchmark import Timing, Verdict
from regional_explorer.record.configs import FUSING, KEEP_RESULTS
from regional_explorer.record.diagnostic import Advice, Diagnostic, DiagnosticCode
from regional_explorer.record.environment import Environment
from regional_explorer.record.figure import Figure, exactly
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import Direction, Selector, SelectorKind
from regional_explorer.record.region_code import LinkedKernel, PartitionCode, grouped_by_artifact
from regional_explorer.style.formats import config_text, duration, size, with_interval

GENERATED, LIBRARY, FALLBACK, OUTSIDE = "generated kernel", "library call", "fallback", "outside of the kernels"
"""The parts of a region's time. A fallback calls eager's kernel, because Inductor has no code of its own for the op."""

MOST_OPS = 3
"""The maximum number of ops that a text names for one kind of kernel."""

FALLBACKS = (
    "A fallback calls eager's kernel, because Inductor has no code of its own for the op; one op may take several "
    "fallbacks. Compiling gains nothing there."
)
FEWER_LAUNCHES = (
    "Mark a larger region, or give it more data per call: a small kernel costs as much to launch as a large one."
)


def part_of(kernel: Kernel) -> str:
    """Return the part of a region's time that a kernel belongs to."""
    return {KernelKind.EXTERN: LIBRARY, KernelKind.FALLBACK: FALLBACK}.get(kernel.kind, GENERATED)


def division_problem(part: PartitionCode) -> str:
    """Return why the time of a partition cannot be divided among its kernels; empty if it can."""
    return "they were not measured" if part.times is None else part.times.unknown


def distinct_code(parts: Sequence[PartitionCode]) -> list[PartitionCode]:
    """Return the first of the partitions that run the same code."""
    return [equal[0] for equal in grouped_by_artifact(parts)]


def region_time(region: str, parts: Sequence[PartitionCode], tried: Sequence[str]) -> Diagnostic:
    """Return a ``region-time``: the parts of a region's time, and the remedies that were tried.

    ``parts`` are all its partitions in one call; ``tried`` has the gain of each config that was tried, in words.
    """
    kernels = grouped((part_of(linked.kernel), linked.kernel) for part in parts for linked in part.kernels)
    texts = {
        kind: f"{count(len(of_kind), kind)} ({listing(dict.fromkeys(_ops(of_kind)), MOST_OPS)})"
        for kind, of_kind in kernels.items()
    }
    problems = list(filter(None, map(division_problem, parts)))
    if not problems:
        seconds = time_by_part(parts)
        whole = sum(seconds.values(), exactly(0.0))
        shares = "; ".join(
            f"{figure.value / (whole.value or 1.0):.0%} {f'in {texts[kind]}' if kind in texts else kind}, "
            f"{with_interval(figure, duration)}"
            for kind, figure in seconds.items()
        )
        bounds = _bounds_text(parts, whole.value)
        title, details = (
            f"Region {region!r} takes {with_interval(whole, duration)} in each call",
            f": {shares}.{bounds}",
        )
        remedy = _remedy(max(seconds, key=lambda kind: seconds[kind].value), region, parts)
    else:
        of_which = "" if len(problems) == len(parts) else f"{len(problems)} of {count(len(parts), 'piece')} of "
        title = f"How long the kernels of {of_which}region {region!r} take is not known"
        details = f": {problems[0]}. In each call it runs {'; '.join(texts.values()) or 'no kernel'}."
        again = Action(ActionKind.DIAGNOSE, (region,)), " measures them again: press it once nothing else runs."
        remedy = again if all(part.times is not None and part.times.is_measurable for part in parts) else ""
    all_kernels, distinct = (sum(len(part.kernels) for part in found) for found in (parts, distinct_code(parts)))
    if distinct < all_kernels:
        details += f" Equal partitions share their code, so lists of kernels have {distinct} of these {all_kernels}."
    refused = sum(len(part.code.refused) for part in parts)
    fusions = count(refused, "fusion") if refused else "no fusion"
    return DiagnosticCode.REGION_TIME.finding(
        title,
        f"{details} Inductor refused {fusions} of loops that share data. Configs tried: {'; '.join(tried)}.",
        region=region,
        graph=parts[0].partition.graph,
        where=parts[0].source[:1],
        remedy=remedy,
    )


def _ops(kernels: Sequence[Kernel]) -> Iterator[str]:
    """Yield the ops that kernels compute, or the functions that they call."""
    for kernel in kernels:
        yield from (re.sub(r"^(torch\.ops|extern_kernels)\.", "", kernel.name),) if kernel.kind.is_call else kernel.ops


def time_by_part(parts: Sequence[PartitionCode]) -> dict[str, Figure]:
    """Return the seconds of each part of a region's time; all partitions must have been measured."""
    seconds: dict[str, Figure] = {}
    for part in parts:
        assert part.times is not None  # noqa: S101 - there is no problem, so all were measured
        timed = zip(part.kernels, part.times.kernels, strict=True)
        figures = [(part_of(linked.kernel), time.seconds) for linked, time in timed if time is not None]
        for kind, figure in (*figures, (OUTSIDE, part.times.between), (OUTSIDE, part.times.around)):
            seconds[kind] = seconds.get(kind, exactly(0.0)) + figure
    return seconds


def _bounds_text(parts: Sequence[PartitionCode], whole_s: float) -> str:
    times = [time for part in parts if part.times is not None for time in part.times.kernels]
    bounds_s = [time.valid_bound_s for time in times if time is not None and time.valid_bound_s is not None]
    subset = f"those of {len(bounds_s)} of {count(len(times), 'kernel')}"
    return f" The known bounds, {subset}, are {sum(bounds_s) / whole_s:.0%} of that." if bounds_s else ""


def _remedy(largest: str, region: str, parts: Sequence[PartitionCode]) -> str | Advice:
    """Return the remedy for the largest part of the time."""
    if largest == FALLBACK:
        # The nodes of an extern kernel may include those that it reads: the last one is its op.
        fallbacks = {
            f"{part.partition.graph}:{linked.nodes[-1].name}": None
            for part in parts
            for linked in part.kernels
            if linked.nodes and part_of(linked.kernel) == FALLBACK
        }
        is_all = len(fallbacks) == sum(len(part.computing) for part in parts)
        of_some = bool(fallbacks) and not is_all
        eager = (
            carve_action(region, Selector(SelectorKind.NODES, tuple(fallbacks))) if of_some else disable_action(region)
        )
        return f"{FALLBACKS} ", eager, " runs them eagerly; ", BENCHMARK, " says which is faster."
    by_part: dict[str, str | Advice] = {
        GENERATED: (Action(ActionKind.KERNEL_TIMES, (region,)), " has each kernel with its bound."),
        LIBRARY: "Eager calls the same functions: only other shapes or a faster dtype change their time.",
        OUTSIDE: FEWER_LAUNCHES,
    }
    return by_part[largest]


# ------------------------------------------------------------------------------------------------------------ remedies


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


def time_findings(region: str, parts: Sequence[PartitionCode]) -> Iterator[Diagnostic]:
    """Yield a ``kernel-bound`` or a ``launch-bound`` diagnostic if the kernel times of a region show it.

    ``parts`` are all its partitions in one call: the times of equal code count once for each of them. Nothing is found
    if the machine was too busy, or if the intervals of the times leave it open.
    """
    if not parts or any(map(division_problem, parts)):
        return
    seconds, kernels = time_by_part(parts), [kernel for part in parts if part.times for kernel in part.times.kernels]
    whole, outside = sum(seconds.values(), exactly(0.0)), seconds[OUTSIDE]
    inside = sum((figure for kind, figure in seconds.items() if kind != OUTSIDE), exactly(0.0))
    if whole.bounds is None or outside.bounds is None or inside.bounds is None:
        return
    limits_s = dict.fromkeys(BoundBy, 0.0)
    for kernel in kernels:
        if kernel is not None and kernel.bound_by is not None:
            limits_s[kernel.bound_by] += kernel.valid_bound_s or 0.0
    least_s = sum(limits_s.values())
    graph, where = parts[0].partition.graph, parts[0].source[:1]
    # The figures are compared at the ends of their intervals that speak against the finding.
    if (
        kernels
        and None not in kernels
        and outside.bounds[0] >= MOSTLY_LAUNCHES * (outside.bounds[0] + inside.bounds[1])
    ):
        yield DiagnosticCode.LAUNCH_BOUND.finding(
            f"Region {region!r} spends {outside.value / whole.value:.0%} of its {with_interval(whole, duration)} "
            f"outside its {count(len(kernels), 'kernel')}",
            ": allocating, checking and launching.",
            region=region,
            graph=graph,
            where=where,
            remedy=FEWER_LAUNCHES,
        )
    elif AT_BOUND * whole.bounds[1] <= least_s <= whole.value:
        needs = " and ".join(f"{duration(limits_s[bound])} {WORK[bound]}" for bound in BoundBy if limits_s[bound])
        yield DiagnosticCode.KERNEL_BOUND.finding(
            f"Of the {with_interval(whole, duration)} of region {region!r}, its kernels need at least {needs} "
            f"({least_s / whole.value:.0%}), at the highest rates measured on this machine",
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
"""Advice that lowers the limit itself, by bound."""


Find = Callable[[str, PartitionCode, ArtifactCode], Diagnostic | None]
"""Compares the code of a partition with its code under a remedy; returns a finding, still without advice."""


def remedies(parts: Sequence[PartitionCode]) -> list[tuple[Mapping[str, Any], Find]]:
    """Return the config changes that may make a region faster, each with a function that compares the code.

    The changes are the config that keeps results instead of computing them again, and the configs that may fuse what
    Inductor refused to fuse in the partitions.
    """
    reasons = {refused.reason for part in parts for refused in part.code.refused}
    configs = [config for words, config in FUSING.items() if any(words in reason for reason in reasons)]
    distinct = [config for number, config in enumerate(configs) if config not in configs[:number]]
    return [(KEEP_RESULTS, recomputed_in_kernels), *((config, partial(refused_fusions, config)) for config in distinct)]


def recomputed_in_kernels(region: str, part: PartitionCode, after: ArtifactCode) -> Diagnostic | None:
    """Return a finding on the ops that a partition computes more often than ``after``, its code that keeps results."""
    counts, counts_after = _expensive_op_counts(part.code), _expensive_op_counts(after)
    ops = {op: (times, counts_after.get(op, 0)) for op, times in counts.items() if times > counts_after.get(op, 0) > 0}
    if not ops:
        return None
    kernels = [linked for linked in part.kernels if ops.keys() & linked.kernel.loop_ops.keys()]
    recomputed = ", ".join(f"{op} {now} times instead of {then}" for op, (now, then) in sorted(ops.items()))
    names = ", ".join(linked.kernel.name for linked in kernels)
    return _finding(
        DiagnosticCode.OP_RECOMPUTED,
        f"Region {region!r} computes {recomputed} per element in {names}",
        ": each reader of a value computes it again.",
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
    loops = f"{names} apart" if len(kernels) > 1 else f"two loops of {names} one after the other"
    more_pairs = f", and {count(len(pairs) - 1, 'more pair')} for such a reason" if len(pairs) > 1 else ""
    return _finding(
        DiagnosticCode.FUSION_REFUSED,
        f"Region {region!r} runs {loops}, though they touch the same {size(refused.shared_bytes)}",
        f": Inductor refused to fuse them ({refused.reason}){more_pairs}.",
        region,
        part,
        kernels,
    )


def _finding(
    code: DiagnosticCode, title: str, details: str, region: str, part: PartitionCode, kernels: Sequence[LinkedKernel]
) -> Diagnostic:
    return code.finding(
        title,
        details,
        region=region,
        graph=part.partition.graph,
        at=dict.fromkeys(node.name for linked in kernels for node in linked.nodes),
        where=[line for linked in kernels for line in linked.lines],
    )


def is_faster_and_never_slower(timings: Sequence[Timing | None]) -> bool:
    """Return whether a remedy is significantly faster in one timing and not slower in any."""
    verdicts = [timing.verdict if timing is not None else None for timing in timings]
    return Verdict.FASTER in verdicts and not {Verdict.SLOWER, None} & set(verdicts)


class _Candidate(NamedTuple):
    """A remedy that changes the code of ``parts``, all of one direction, and improves the code of ``cured``."""

    config: Mapping[str, Any]
    finding: Diagnostic
    cured: PartitionCode
    parts: tuple[PartitionCode, ...]

    @property
    def name(self) -> str:
        """The text of its config."""
        return config_text(self.config)

    def finding_if_faster(
        self, timings: Mapping[str, Mapping[str, Timing]], runs: Mapping[str | None, int]
    ) -> Diagnostic | None:
        """Return the finding if it was measured to be faster.

        ``timings`` are by artifact, then by name; ``runs`` says how often a call runs each artifact.
        """
        by_part = [timings.get(part.partition.artifact or "", {}).get(self.name) for part in self.parts]
        best, partition = by_part[self.parts.index(self.cured)], self.cured.partition
        if best is None or best.speedup is None or not is_faster_and_never_slower(by_part):
            return None
        saves = sum(
            (
                _saved_s(timing) * runs[part.partition.artifact]
                for timing, part in zip(by_part, self.parts, strict=True)
            ),
            exactly(0.0),
        )
        configure = configure_action(partition.region, self.config, Direction.of_graph(partition.graph))
        configure = replace(configure, basis=EffectBasis.MEASURED, gain_s=saves, assumes=ALONE)
        measured = f": measured {with_interval(best.speedup)} as fast as now; numerics: {best.numerics}."
        return replace(self.finding, advice=(configure, measured))


def _saved_s(timing: Timing | None) -> Figure:
    """Return the seconds that a remedy saves in each run of a partition."""
    if timing is None or timing.speedup is None:
        return Figure(0.0, why="no speedup is known")
    under_s = timing.median_s.value
    return timing.speedup.map(lambda ratio: under_s * (ratio - 1.0))


def diagnose(
    insights: Insights,
    environment: Environment,
    region: str,
    parts: Sequence[PartitionCode],
    budget_s: float,
    run: Run,
) -> tuple[Diagnostic, ...]:
    """Return the findings about a region whose kernels have been timed; each remedy is measured first."""
    distinct = distinct_code(parts)
    tried = {
        config_text(config): list(_candidates(insights, region, distinct, config, find, run))
        for config, find in remedies(distinct)
    }
    candidates = [candidate for candidates in tried.values() for candidate in candidates]
    late = insights.program.capture.late_graphs
    of_one_call = [part for part in parts if part.partition.graph not in late]
    runs = Counter(part.partition.artifact for part in of_one_call)
    timings = _race_candidates(insights.program, environment, region, candidates, budget_s, run)
    faster = {
        text: [
            finding for candidate in candidates if (finding := candidate.finding_if_faster(timings, runs)) is not None
        ]
        for text, candidates in tried.items()
    }
    texts = [
        f"{text} {'is faster' if faster[text] else 'is not measurably faster' if candidates else 'improves no code'}"
        for text, candidates in tried.items()
    ]
    measured = [finding for findings in faster.values() for finding in findings]
    if run.cancelled():
        return ()
    diagnostics = [region_time(region, of_one_call or parts, texts), *time_findings(region, of_one_call), *measured]
    if measured:  # the remedy changes the code, and with it its limit
        diagnostics = [diagnostic for diagnostic in diagnostics if diagnostic.code is not DiagnosticCode.KERNEL_BOUND]
    insights.diagnoses[region] = insights.needed_keys().get(region, []), tuple(diagnostics)
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
    after = run.threads.run_untimed(
        lambda: insights.codes_under(region, insights.wanted_under(region, config), None, run)
    )
    changed = [
        part
        for part in distinct
        if part.partition.id in after and code_hash(part.text) != code_hash(after[part.partition.id].text)
    ]
    for direction in Direction:
        affected = tuple(part for part in changed if Direction.of_graph(part.partition.graph) is direction)
        findings = ((part, find(region, part, after[part.partition.id])) for part in affected)
        for part, finding in findings:
            if finding is not None:
                yield _Candidate(config, finding, part, affected)
                break


def _race_candidates(
    program: Program,
    environment: Environment,
    region: str,
    candidates: Sequence[_Candidate],
    budget_s: float,
    run: Run,
) -> dict[str, dict[str, Timing]]:
    """Return the timings of all candidates against the present code, by artifact and name, once per distinct partition.

    Candidates that cannot be measured, or whose results differ from eager's, have no timing.
    """
    switches = grouped((switch.artifact.key, switch) for switch in program.switches if switch.artifact is not None)
    kinds = grouped((part.partition.artifact or "", candidate) for candidate in candidates for part in candidate.parts)
    kinds = {key: entered for key, entered in kinds.items() if key in switches}
    if not kinds or run.cancelled():
        return {}
    inputs = run.threads.run_untimed(lambda: record_inputs(program, [switches[key] for key in kinds]))
    share_s, timings = budget_s / sum(map(len, kinds.values())), {}
    for key, entered in kinds.items():
        recorded, configs = inputs.pop(0), {candidate.name: candidate.config for candidate in entered}
        switch, kind_s = recorded.switch, share_s * len(configs)
        if recorded.why_not or switch.artifact is None or run.cancelled():
            continue
        run.estimate(kind_s)
        run.progress(f"measuring remedies for {region}", 0.5)
        context, twin = MeasureContext.of(run.silent(), environment), partial(program.twin, switch)
        with suppress(CancelledError, MeasureError, RegionCompileError):
            timings[key] = race(switch.known_workpiece, recorded.args, switch.artifact, configs, twin, kind_s, context)
    return timings
