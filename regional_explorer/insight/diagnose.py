"""Why a region is fast or slow; a remedy is measured before it is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from regional_explorer.compiler.program import Program, record_inputs
from regional_explorer.compiler.run import Run
from regional_explorer.compiler.switch import Switch
from regional_explorer.errors import MeasureError, RegionCompileError, count
from regional_explorer.insight.code_store import Codes
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.partitions import as_in_the_call, timed_calls
from regional_explorer.measure.reference import check_partition
from regional_explorer.measure.summary import MeasureContext, measure_rounds
from regional_explorer.record.artifact import ArtifactCode, ArtifactKernelTimes, RefusedFusion, code_hash
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.plan import Direction, Region
from regional_explorer.record.region_code import LinkedKernel, PartitionCode
from regional_explorer.record.session import Environment
from regional_explorer.record.timing import NumericsVerdict, Timing, Verdict
from regional_explorer.style.formats import duration, size

AT_BOUND = 0.8
"""If the bounds of a region's kernels are at least this share of its time, there is nothing to gain."""
MOSTLY_LAUNCHES = 0.5
"""If a region spends at least this share of its time outside its kernels, launches dominate."""
KEEP_RESULTS = {"realize_opcount_threshold": 3}
"""Under this config Inductor stores a value that takes more than three ops, instead of recomputing it per reader."""
EXPENSIVE_OPS = frozenset(
    (
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "erf", "erfc", "erfinv", "exp"),
        *("exp2", "expm1", "fmod", "lgamma", "log", "log10", "log1p", "log2", "pow", "rsqrt", "sigmoid", "sin"),
        *("sinh", "sqrt", "tan", "tanh"),
    )
)
"""Ops that take many instructions per element, so that computing them twice can cost more than memory."""


def from_times(
    region: str, parts: Sequence[PartitionCode], times: Mapping[str, ArtifactKernelTimes]
) -> Iterator[Diagnostic]:
    """Yield a ``kernel-bound`` or a ``launch-bound`` diagnostic if the kernel times of a region show it.

    ``parts`` are all its partitions: the times of equal code count once for each of them.
    """
    timed_parts = [(part, times[part.code.artifact]) for part in parts if part.code.artifact in times]
    if not timed_parts or any(part_times.problem is not None for _, part_times in timed_parts):
        return
    whole_s = sum(part_times.whole_s for _, part_times in timed_parts)
    kernels_s = sum(part_times.kernels_s for _, part_times in timed_parts)
    kernels = [kernel for _, part_times in timed_parts for kernel in part_times.kernels]
    bounds = [kernel.bound_s for kernel in kernels if kernel is not None and kernel.bound_s is not None]
    if None not in kernels and kernels_s <= (1 - MOSTLY_LAUNCHES) * whole_s:
        yield DiagnosticCode.LAUNCH_BOUND.found(
            f"Region {region!r} spends {1 - kernels_s / whole_s:.0%} of its {duration(whole_s)} outside "
            f"its {count(len(kernels), 'kernel')}: allocating, checking and launching.",
            region=region,
            graph=timed_parts[0][0].partition.graph,
            where=timed_parts[0][0].source[:1],
            remedy="Mark a larger region, or give it more data per call: a small kernel costs as much to launch as a "
            "large one.",
        )
    elif len(bounds) == len(kernels) and sum(bounds) >= AT_BOUND * whole_s:
        yield DiagnosticCode.KERNEL_BOUND.found(
            f"The kernels of region {region!r} need at least {duration(sum(bounds))} of its {duration(whole_s)} "
            f"({sum(bounds) / whole_s:.0%}) for the bytes they move and the products they compute: "
            "no config will help.",
            region=region,
            graph=timed_parts[0][0].partition.graph,
            where=timed_parts[0][0].source[:1],
            remedy="Move fewer bytes: a smaller dtype, or a larger region, inside which results need not be written.",
        )


@dataclass(frozen=True)
class Cured:
    """What a remedy improves in a partition."""

    part: PartitionCode


C = TypeVar("C", bound=Cured)


@dataclass(frozen=True)
class Remedy(Generic[C]):
    """A change of a region's config that may make it faster.

    ``cured`` compares the code of a partition with that under the remedy, and returns what improves, or None.
    ``diagnostic`` returns the diagnostic once the remedy was measured to be faster.
    """

    config: Mapping[str, Any]
    cured: Callable[[PartitionCode, ArtifactCode], C | None]
    diagnostic: Callable[[str, C, Timing], Diagnostic]


def remedy_text(region: str, config: Mapping[str, Any], part: PartitionCode, timing: Timing) -> str:
    """Return the text of a remedy: the call to make, the measured speedup, and the verdict of the numerics check."""
    direction = Direction.of_graph(part.partition.graph)
    return (
        f'ex.configure({region!r}, {dict(config)!r}, direction="{direction}"): '
        f"measured {timing.speedup:.2f}× as fast ({timing.speedup_low:.2f}–{timing.speedup_high:.2f}×) as now; "
        f"numerics: {timing.numerics}."
    )


@dataclass(frozen=True)
class Recomputed(Cured):
    """Ops that a partition computes more often than under ``KEEP_RESULTS``: the counts now and then."""

    ops: Mapping[str, tuple[int, int]]
    kernels: tuple[LinkedKernel, ...]


def recomputed(part: PartitionCode, after: ArtifactCode) -> Recomputed | None:
    """Return the ops that a partition recomputes, by comparison with ``after``, its code under ``KEEP_RESULTS``."""
    now, then = _expensive_op_counts(part.code), _expensive_op_counts(after)
    ops = {op: (times, then.get(op, 0)) for op, times in now.items() if times > then.get(op, 0) > 0}
    if not ops:
        return None
    kernels = tuple(linked for linked in part.kernels if ops.keys() & linked.kernel.loop_ops.keys())
    return Recomputed(part, ops, kernels)


def _expensive_op_counts(code: ArtifactCode) -> dict[str, int]:
    counts = sum((Counter(kernel.loop_ops) for kernel in code.kernels), Counter[str]())
    return {op: times for op, times in counts.items() if op in EXPENSIVE_OPS}


def op_recomputed(region: str, cured: Recomputed, timing: Timing) -> Diagnostic:
    """Return the diagnostic of a recomputed op whose remedy was measured to be faster."""
    again = ", ".join(f"{op} {now} times instead of {then}" for op, (now, then) in sorted(cured.ops.items()))
    names = ", ".join(linked.kernel.name for linked in cured.kernels)
    nodes = tuple(dict.fromkeys(node.name for linked in cured.kernels for node in linked.nodes))
    lines = tuple(dict.fromkeys(line for linked in cured.kernels for line in linked.lines))
    return DiagnosticCode.OP_RECOMPUTED.found(
        f"Region {region!r} computes {again} per element in {names}: each reader of a value computes it again.",
        region=region,
        graph=cured.part.partition.graph,
        at=nodes,
        where=lines,
        remedy=remedy_text(region, KEEP_RESULTS, cured.part, timing),
    )


RECOMPUTED = Remedy(KEEP_RESULTS, recomputed, op_recomputed)


def wins(timings: Sequence[Timing | None]) -> bool:
    """Return whether a remedy is significantly faster in one timing and not slower in any."""
    verdicts = [timing.verdict if timing is not None else None for timing in timings]
    return Verdict.FASTER in verdicts and not {Verdict.SLOWER, None} & set(verdicts)


TOO_MANY_SIDE_BY_SIDE = "cpp.max_horizontal_fusion_size"

REMEDIES: Mapping[str, Mapping[str, Any]] = {
    "exceeds max fusion": {"max_fusion_size": 512},
    TOO_MANY_SIDE_BY_SIDE: {TOO_MANY_SIDE_BY_SIDE: 512},
    "score_fusion_memory_threshold": {"score_fusion_memory_threshold": 1},
    "indexing mismatch": {"loop_ordering_after_fusion": True},
    "memory deps did not match": {"loop_ordering_after_fusion": True},
}
"""Configs under which Inductor fuses what it refused, by words of its reason; other reasons have no config."""


@dataclass(frozen=True)
class Fused(Cured):
    """The refused fusion that shares the most data, and the number of ``pairs`` refused for such a reason."""

    refused: RefusedFusion
    pairs: int


def fusion_remedies(parts: Sequence[PartitionCode]) -> list[Remedy[Fused]]:
    """Return the configs that may fuse what was refused in these partitions."""
    reasons = {refused.reason for part in parts for refused in part.code.refused}
    configs = [config for words, config in REMEDIES.items() if any(words in reason for reason in reasons)]
    distinct = [config for number, config in enumerate(configs) if config not in configs[:number]]
    return [Remedy(config, partial(fused, config), partial(fusion_refused, config)) for config in distinct]


def fused(config: Mapping[str, Any], part: PartitionCode, after: ArtifactCode) -> Fused | None:
    """Return the refused fusion that shares the most data, if the refusals in ``after`` share less."""
    pairs = [pair for pair in part.code.refused if any(REMEDIES[w] == config for w in REMEDIES if w in pair.reason)]
    now_bytes, then_bytes = (sum(pair.shared_bytes for pair in code.refused) for code in (part.code, after))
    if not pairs or after.problem is not None or then_bytes >= now_bytes:
        return None
    return Fused(part, max(pairs, key=lambda pair: pair.shared_bytes), len(pairs))


def fusion_refused(config: Mapping[str, Any], region: str, cured: Fused, timing: Timing) -> Diagnostic:
    """Return the diagnostic of a refused fusion whose remedy was measured to be faster."""
    refused = cured.refused
    pair = [cured.part.kernels[position] for position in dict.fromkeys((refused.first, refused.second))]
    names = " and ".join(linked.kernel.name for linked in pair)
    which = f"{names} apart" if len(pair) > 1 else f"two loops of {names} one after the other"
    more_pairs = f", and {count(cured.pairs - 1, 'more pair')} for such a reason" if cured.pairs > 1 else ""
    return DiagnosticCode.FUSION_REFUSED.found(
        f"Region {region!r} runs {which}, though they touch the same {size(refused.shared_bytes)}: "
        f"Inductor refused to fuse them ({refused.reason}){more_pairs}.",
        region=region,
        graph=cured.part.partition.graph,
        at=tuple(dict.fromkeys(node.name for linked in pair for node in linked.nodes)),
        where=tuple(dict.fromkeys(line for linked in pair for line in linked.lines)),
        remedy=remedy_text(region, config, cured.part, timing),
    )


@dataclass(frozen=True)
class _Candidate:
    """A remedy that improves the code of ``parts``, the partitions of one direction that it changes."""

    remedy: Remedy[Any]
    cured: Cured
    parts: tuple[PartitionCode, ...]


class Diagnoses:
    """The findings about the regions of ``program``, kept while a region is unchanged; ``revision`` counts them."""

    def __init__(self, program: Program, codes: Codes, environment: Environment) -> None:
        self._program = program
        self._codes = codes
        self._environment = environment
        self._diagnostics: dict[str, tuple[Region, tuple[Diagnostic, ...]]] = {}
        self.revision = 0

    @property
    def found(self) -> tuple[Diagnostic, ...]:
        """The findings about regions that have not changed since."""
        plan = self._program.plan
        return tuple(
            diagnostic
            for name, (region, diagnostics) in self._diagnostics.items()
            if name in plan and plan[name] == region
            for diagnostic in diagnostics
        )

    def diagnose(
        self,
        region: str,
        parts: Sequence[PartitionCode],
        times: Mapping[str, ArtifactKernelTimes],
        budget_s: float,
        run: Run,
    ) -> tuple[Diagnostic, ...]:
        """Return the findings about a region whose kernels have been timed; each remedy is measured first."""
        distinct = list({part.code.artifact: part for part in parts}.values())
        remedies: list[Remedy[Any]] = [RECOMPUTED, *fusion_remedies(distinct)]
        candidates = [candidate for remedy in remedies for candidate in self._candidates(region, distinct, remedy, run)]
        share_s = budget_s / max(1, sum(len(candidate.parts) for candidate in candidates))
        measured = [
            item for candidate in candidates if (item := self._diagnosis(region, candidate, share_s, run)) is not None
        ]
        if run.cancelled():
            return ()
        diagnostics = tuple(
            diagnostic
            for diagnostic in (*from_times(region, parts, times), *measured)
            if not (measured and diagnostic.code is DiagnosticCode.KERNEL_BOUND)  # which says that no config will help
        )
        self._diagnostics[region] = self._program.plan[region], diagnostics
        self.revision += 1
        return diagnostics

    def _candidates(
        self, region: str, distinct: Sequence[PartitionCode], remedy: Remedy[Any], run: Run
    ) -> Iterator[_Candidate]:
        """Yield a candidate per direction in which a remedy improves the code."""
        if run.cancelled():
            return
        after = run.executor.run_untimed(
            lambda: self._codes.under(region, self._codes.changed(region, remedy.config), None, run)
        )
        changed = [
            part
            for part in distinct
            if part.partition.id in after and code_hash(part.text) != code_hash(after[part.partition.id].text)
        ]
        for direction in Direction:
            affected = tuple(part for part in changed if Direction.of_graph(part.partition.graph) is direction)
            cures = [cure for part in affected if (cure := remedy.cured(part, after[part.partition.id])) is not None]
            if cures:
                yield _Candidate(remedy, cures[0], affected)

    def _diagnosis(self, region: str, candidate: _Candidate, share_s: float, run: Run) -> Diagnostic | None:
        """Return the diagnostic of a candidate that was measured to be faster, ``share_s`` for each partition."""
        if run.cancelled():
            return None
        run.progress(f"measuring a remedy for {region}", 0.5)
        remedy, cured = candidate.remedy, candidate.cured
        timings = [self._remedy_timing(part, remedy.config, share_s, run) for part in candidate.parts]
        best = timings[candidate.parts.index(cured.part)]
        return remedy.diagnostic(region, cured, best) if best is not None and wins(timings) else None

    def _remedy_timing(
        self,
        part: PartitionCode,
        config: Mapping[str, Any],
        budget_s: float,
        run: Run,
    ) -> Timing | None:
        """Return the time of equal partitions under ``config`` relative to now.

        None if it cannot be measured, or does not compute what eager does.
        """
        key = part.code.artifact
        program = self._program
        switches = [switch for switch in program.switches if switch.artifact is not None and switch.artifact.key == key]
        recorded = run.executor.run_untimed(lambda: record_inputs(program, switches))
        switch, args = recorded.switch, recorded.args
        if switch is None or args is None:
            return None
        try:
            calls = run.executor.run_untimed(lambda: self._remedy_calls(switch, args, config))
            context = MeasureContext.of(run.silent(), self._environment)
            with as_in_the_call():
                check = run.executor.run_untimed(lambda: check_partition(program, switch, args, run.cancelled, config))
                if check.verdict is NumericsVerdict.FAILED:
                    return None
                numerics = {"remedy": check.verdict}
                rounds = measure_rounds(calls, budget_s, context, baseline="now", numerics=numerics)
        except (CancelledError, RegionCompileError, MeasureError):
            return None
        rounds.result.stopped.raise_interrupt()
        return next((timing for timing in rounds.timings if timing.variant == "remedy"), None)

    def _remedy_calls(self, switch: Switch, args: Sequence[Any], config: Mapping[str, Any]) -> list[TimedCall]:
        now, twin = switch.artifact, self._program.twin(switch, config)
        assert now is not None  # noqa: S101 - only partitions that have one are measured
        with as_in_the_call():
            put_back = timed_calls(switch, args)[-1].before
        return [
            TimedCall("now", lambda: now.call(list(args)), before=put_back),
            TimedCall("remedy", lambda: twin.call(list(args)), before=put_back),
        ]
