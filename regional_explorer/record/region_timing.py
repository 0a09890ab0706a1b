"""The timings of each region, summed over its partitions: gain, speedup, verdict, compile time warm and cold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from regional_explorer.record.partition import Partition
from regional_explorer.record.region import Direction
from regional_explorer.record.session import Session
from regional_explorer.record.timing import NumericsVerdict, PartitionTiming, Phase, Verdict


@dataclass(frozen=True, slots=True)
class RegionTiming:
    """Run time of one region in one phase, per call: eager against compiled, each partition measured alone.

    ``eager_s`` and ``compiled_s`` are sums over its partitions (``compiled_s`` counts those without an artifact as
    eager); a step is forward + backward. The bounds of ``speedup`` assume all partitions at their bounds at once, so
    they are wider than a CI of the sum. ``compiled_s`` is None if nothing of it is compiled, ``speedup`` also if the
    numerics check of a partition failed. ``numerics`` is the worst verdict of its artifacts. ``compile_cold_s`` and
    ``compile_warm_s`` are the compile times of its own artifacts; shared ones count for the region that compiled them.
    """

    region: str
    phase: Phase
    eager_s: float
    compiled_s: float | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    verdict: Verdict
    numerics: NumericsVerdict | None
    worst_tensor: str
    compile_cold_s: float
    compile_warm_s: float
    partitions: int
    measured: int

    @property
    def gain_s(self) -> float | None:
        """Seconds that compiling saves in each call; negative if it is slower. None without a speedup."""
        return None if self.speedup is None else self.eager_s - self.eager_s / self.speedup

    @property
    def compile_s(self) -> float:
        """Seconds that its own artifacts took to compile."""
        return self.compile_cold_s + self.compile_warm_s

    @property
    def cache(self) -> str:
        """``cold``, ``warm``, ``cold+warm``, or empty if it has no artifact of its own."""
        return "+".join(
            word for word, seconds in (("cold", self.compile_cold_s), ("warm", self.compile_warm_s)) if seconds > 0.0
        )

    @property
    def pays_off_after_calls(self) -> float | None:
        """The number of calls after which the compile pays off; infinite if never. None if that is not known.

        If the samples show no difference, there is no gain, so it never pays off.
        """
        gain = self.gain_s
        if gain is None or self.verdict in (Verdict.UNKNOWN, Verdict.INCONCLUSIVE):
            return None
        calls = self.compile_s / gain if self.verdict is Verdict.FASTER and gain > 0 else math.inf
        return float(math.ceil(calls)) if math.isfinite(calls) else math.inf


def region_timings(session: Session) -> tuple[RegionTiming, ...]:
    """Return one row per region and phase that was measured, in the order of the plan.

    A figure whose partition has been compiled again since is left out; so is the whole row if one is missing.
    """
    by_id = {part.id: part for part in session.partitions}
    timings = current_timings(session)
    rows = []
    for region in session.plan.regions:
        of_region = [timing for timing in timings if timing.region == region.name]
        partitions = [part for part in session.partitions if part.region == region.name]
        for phase in Phase:
            phase_ids = {part.id for part in partitions if phase in (Phase.STEP, Phase(Direction.of_graph(part.graph)))}
            chosen = [timing for timing in of_region if timing.partition in phase_ids]
            if chosen and len(chosen) == len(phase_ids) and (phase is not Phase.STEP or session.grad):
                rows.append(_summed(region.name, phase, chosen, [by_id[timing.partition] for timing in chosen]))
    return tuple(rows)


def whole_region_timings(session: Session) -> Mapping[str, RegionTiming]:
    """Return the row of the whole call for each region: its step, or its forward if no gradient is taken."""
    return {timing.region: timing for timing in region_timings(session) if timing.phase is session.whole_phase}


def current_timings(session: Session) -> tuple[PartitionTiming, ...]:
    """Return the timings of the partitions that still have the artifact that was timed."""
    current = {(part.id, part.region, part.artifact) for part in session.partitions}
    return tuple(
        timing for timing in session.partition_timings if (timing.partition, timing.region, timing.artifact) in current
    )


def _summed(region: str, phase: Phase, chosen: Sequence[PartitionTiming], parts: Iterable[Partition]) -> RegionTiming:
    compiled = [timing for timing in chosen if timing.compiled_s is not None]
    failed = [timing for timing in compiled if timing.numerics == NumericsVerdict.FAILED]
    eager_s = sum(timing.eager_s * timing.runs for timing in chosen)
    low, high = (_speedup_bound(chosen, eager_s, end) for end in ("speedup_low", "speedup_high"))
    speedup = _speedup_bound(chosen, eager_s, "speedup")
    has_speedup = bool(compiled) and not failed
    costs = [(part.compile_s or 0.0, part.cache) for part in parts]
    return RegionTiming(
        region=region,
        phase=phase,
        eager_s=eager_s,
        compiled_s=sum((t.eager_s if t.compiled_s is None else t.compiled_s) * t.runs for t in chosen)
        if compiled
        else None,
        speedup=speedup if has_speedup else None,
        speedup_low=low if has_speedup else None,
        speedup_high=high if has_speedup else None,
        verdict=_region_verdict(compiled, low, high) if has_speedup else Verdict.UNKNOWN,
        numerics=NumericsVerdict.worst(timing.numerics for timing in compiled),
        worst_tensor=next((timing.worst_tensor for timing in (*failed, *compiled) if timing.worst_tensor), ""),
        compile_cold_s=sum(seconds for seconds, cache in costs if cache != "warm"),
        compile_warm_s=sum(seconds for seconds, cache in costs if cache == "warm"),
        partitions=len(chosen),
        measured=sum(timing.measured_as is None for timing in chosen),
    )


def _speedup_bound(chosen: Sequence[PartitionTiming], eager_s: float, end: str) -> float | None:
    """Return the speedup of the sum with every partition at the bound ``end``; None if one has no such bound."""
    seconds = 0.0
    for timing in chosen:
        ratio = 1.0 if timing.compiled_s is None else getattr(timing, end)
        if ratio is None:
            return None
        seconds += timing.eager_s * timing.runs / ratio
    return eager_s / seconds if seconds else None


def _region_verdict(compiled: Sequence[PartitionTiming], low: float | None, high: float | None) -> Verdict:
    """Return the verdict over all partitions: the bounds must agree with it, and so must at least one partition."""
    verdicts = {timing.verdict for timing in compiled}
    if len(verdicts) == 1 or low is None or high is None or Verdict.UNKNOWN in verdicts:
        return verdicts.pop() if len(verdicts) == 1 else Verdict.UNKNOWN
    if Verdict.FASTER in verdicts and low > 1.0:
        return Verdict.FASTER
    if Verdict.SLOWER in verdicts and high < 1.0:
        return Verdict.SLOWER
    return Verdict.without_winner(low, high)
