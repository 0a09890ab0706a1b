"""The ``kernel-bound``, ``launch-bound`` and ``op-recomputed`` diagnostics; a remedy: a config that may be faster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from regional_explorer.errors.texts import count
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.kernel_times import ArtifactKernelTimes
from regional_explorer.record.kernels import ArtifactCode
from regional_explorer.record.region import Direction
from regional_explorer.record.region_code import LinkedKernel, PartitionCode
from regional_explorer.record.timing import Timing, Verdict
from regional_explorer.render.style.formats import duration

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
        yield Diagnostic(
            DiagnosticCode.LAUNCH_BOUND,
            f"Region {region!r} spends {1 - kernels_s / whole_s:.0%} of its {duration(whole_s)} outside "
            f"its {count(len(kernels), 'kernel')}: allocating, checking and launching.",
            Severity.INFO,
            upstream="the same, without a warning.",
            remedy="Mark a larger region, or give it more data per call: a small kernel costs as much to launch as a "
            "large one.",
            region=region,
            graph=timed_parts[0][0].partition.graph,
            where=timed_parts[0][0].source[:1],
        )
    elif len(bounds) == len(kernels) and sum(bounds) >= AT_BOUND * whole_s:
        yield Diagnostic(
            DiagnosticCode.KERNEL_BOUND,
            f"The kernels of region {region!r} need at least {duration(sum(bounds))} of its {duration(whole_s)} "
            f"({sum(bounds) / whole_s:.0%}) for the bytes they move and the products they compute: "
            "no config will help.",
            Severity.INFO,
            upstream="the same, without a warning.",
            remedy="Move fewer bytes: a smaller dtype, or a larger region, inside which results need not be written.",
            region=region,
            graph=timed_parts[0][0].partition.graph,
            where=timed_parts[0][0].source[:1],
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
    return Diagnostic(
        DiagnosticCode.OP_RECOMPUTED,
        f"Region {region!r} computes {again} per element in {names}: each reader of a value computes it again.",
        Severity.INFO,
        region=region,
        graph=cured.part.partition.graph,
        nodes=nodes,
        where=lines,
        upstream="the same, without a warning.",
        remedy=remedy_text(region, KEEP_RESULTS, cured.part, timing),
    )


RECOMPUTED = Remedy(KEEP_RESULTS, recomputed, op_recomputed)


def wins(timings: Sequence[Timing | None]) -> bool:
    """Return whether a remedy is significantly faster in one timing and not slower in any."""
    verdicts = [timing.verdict if timing is not None else None for timing in timings]
    return Verdict.FASTER in verdicts and not {Verdict.SLOWER, None} & set(verdicts)
