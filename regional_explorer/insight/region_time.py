"""Divides the time of a region: kernels by kind, and the time outside of kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from regional_explorer.errors import count, listing
from regional_explorer.record.action import BENCHMARKS, Action, ActionKind, carves, disables
from regional_explorer.record.artifact import Kernel, KernelKind
from regional_explorer.record.diagnostic import Advice, Diagnostic, DiagnosticCode
from regional_explorer.record.figure import Figure, exactly
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import Selector, SelectorKind
from regional_explorer.record.region_code import PartitionCode
from regional_explorer.style.formats import duration, with_interval

GENERATED, LIBRARY, FALLBACK, OUTSIDE = "generated kernel", "library call", "fallback", "outside of the kernels"
"""The parts of a region's time. A fallback calls the kernel of eager, as Inductor has no code of its own for the op."""

MOST_OPS = 3
"""How many ops of a kind of kernels are named."""

FALLBACKS = (
    "A fallback calls the kernel of eager, as Inductor has no code of its own for the op, and one op may take several: "
    "compiling gains nothing there."
)
FEWER_LAUNCHES = (
    "Mark a larger region, or give it more data per call: a small kernel costs as much to launch as a large one."
)


def part_of(kernel: Kernel) -> str:
    """Return the part of a region's time that a kernel belongs to."""
    return {KernelKind.EXTERN: LIBRARY, KernelKind.FALLBACK: FALLBACK}.get(kernel.kind, GENERATED)


def why_undivided(part: PartitionCode) -> str | None:
    """Return why the time of a partition cannot be divided among its kernels; None if it can."""
    if part.times is None or part.times.problem is not None:
        return "they were not measured" if part.times is None else part.times.problem
    return "the machine was too busy" if part.times.noise.is_too_much else None


def region_time(region: str, parts: Sequence[PartitionCode], tried: Sequence[str]) -> Diagnostic:
    """Return a ``region-time``: the parts of a region's time, and the remedies that were tried.

    ``parts`` are all its partitions in one call; ``tried`` says for each config that was tried what it gains.
    """
    kernels = grouped((part_of(linked.kernel), linked.kernel) for part in parts for linked in part.kernels)
    texts = {
        kind: f"{count(len(of_kind), kind)} ({listing(dict.fromkeys(_ops(of_kind)), MOST_OPS)})"
        for kind, of_kind in kernels.items()
    }
    problem = next(filter(None, map(why_undivided, parts)), None)
    seconds = {} if problem else time_by_part(parts)
    whole = sum(seconds.values(), exactly(0.0))
    if problem is None and whole.bounds is not None:
        shares = "; ".join(
            f"{figure.value / (whole.value or 1.0):.0%} {f'in {texts[kind]}' if kind in texts else kind}, "
            f"{with_interval(figure, duration)}"
            for kind, figure in seconds.items()
        )
        bounds = _bounds_text(parts, whole.value)
        text = f"Region {region!r} takes {with_interval(whole, duration)} in each call: {shares}.{bounds}"
        remedy = _remedy(max(seconds, key=lambda kind: seconds[kind].value), region, parts)
    else:
        text = (
            f"How long the kernels of region {region!r} take is not known: {problem or whole.why}. "
            f"In each call it runs {'; '.join(texts.values()) or 'no kernel'}."
        )
        is_measurable = all(part.times is not None and part.times.problem is None for part in parts)
        remedy = "Give it a larger budget_s, on a quiet machine." if is_measurable else ""
    refused = sum(len(part.code.refused) for part in parts)
    fusions = count(refused, "fusion") if refused else "no fusion"
    return DiagnosticCode.REGION_TIME.found(
        f"{text} Inductor refused {fusions} of loops that share data. Configs tried: {'; '.join(tried)}.",
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
    known = f"those of {len(bounds_s)} of {count(len(times), 'kernel')}"
    return f" The known bounds, {known}, are {sum(bounds_s) / whole_s:.0%} of that." if bounds_s else ""


def _remedy(largest: str, region: str, parts: Sequence[PartitionCode]) -> str | Advice:
    """Return what can be done about the largest part of the time."""
    if largest == FALLBACK:
        # What an extern kernel reads may count as its nodes, too: the last one is its op.
        fallbacks = {
            f"{part.partition.graph}:{linked.nodes[-1].name}": None
            for part in parts
            for linked in part.kernels
            if linked.nodes and part_of(linked.kernel) == FALLBACK
        }
        is_all = len(fallbacks) == sum(len(part.computing) for part in parts)
        of_some = bool(fallbacks) and not is_all
        eager = carves(region, Selector(SelectorKind.NODES, tuple(fallbacks))) if of_some else disables(region)
        return f"{FALLBACKS} ", eager, " runs them eagerly; ", BENCHMARKS, " says which is faster."
    by_part: dict[str, str | Advice] = {
        GENERATED: (Action(ActionKind.KERNEL_TIMES, (region,)), " has each kernel with its bound."),
        LIBRARY: "Eager calls the same functions: only other shapes or a faster dtype change their time.",
        OUTSIDE: FEWER_LAUNCHES,
    }
    return by_part[largest]
