"""Sessions of random figures, as the clocks, the counters and the checks of any machine may give them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from msgspec.structs import replace

from regional_explorer.diagnostics.measured import plan_diagnostics, region_diagnostics
from regional_explorer.insight.diagnose import region_time, time_findings
from regional_explorer.insight.kernel_times import BETWEEN, CLOCKED, GENERATED, WHOLE, kernel_times
from regional_explorer.measure.memory import LEAST_RESIDENT, measure_peak
from regional_explorer.measure.partitions import CUT_GRAPH, reconcile
from regional_explorer.measure.profile import NO_GRAPH, STAMPED, profile_of
from regional_explorer.measure.rates import STEPS, Rates
from regional_explorer.measure.rounds import Parts, RoundsResult, StopReason
from regional_explorer.measure.timings import conditions_of, timings_of
from regional_explorer.record.artifact import (
    ArtifactCode,
    ArtifactCompile,
    ArtifactKernelTimes,
    ArtifactRecord,
    CacheResult,
    Kernel,
    KernelKind,
)
from regional_explorer.record.benchmark import CompileCost, NumericsVerdict, PartitionTiming, Phase, VariantName
from regional_explorer.record.figure import Noise
from regional_explorer.record.floor import Floor, Product
from regional_explorer.record.graph import Graph
from regional_explorer.record.profile import Profile
from regional_explorer.record.region_code import region_code
from regional_explorer.record.regions import region_timings
from regional_explorer.record.session import Session
from tests.shared.sessions import ENVIRONMENT, training_session

SLOWER_BY = np.array((1.0, 1.01, 1.3, 40.0, 3000.0))
"""How many times as long one call may take as another on a machine with other work."""
NUMERICS = (NumericsVerdict.OK, NumericsVerdict.OK, NumericsVerdict.NOT_COMPARABLE, NumericsVerdict.FAILED)
CODE = ArtifactCode(
    "x",
    (
        Kernel("loop", KernelKind.REDUCTION, bytes_read=1 << 20, bytes_written=1 << 12, nodes=(1,)),
        Kernel("product", KernelKind.EXTERN, bytes_written=1 << 12, operations=10**8, dtype="float32"),
        Kernel("other", KernelKind.POINTWISE),
    ),
)


class RandomMachine:
    """A machine whose clocks, counters and checks give random figures.

    Undisturbed times are those of one call, at most ``spread`` times as long or as short.
    """

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.call_s = self.magnitude(1e-7, 10.0)
        self.spread = self.one_of(1.05, 2.0, 30.0)

    def magnitude(self, low: float, high: float) -> float:
        """Return a number of any magnitude."""
        return float(np.exp(self.random.uniform(np.log(low), np.log(high))))

    def near(self, value: float) -> float:
        return value * self.magnitude(1 / self.spread, self.spread)

    def one_of(self, *values: Any) -> Any:
        return values[self.random.integers(len(values))]

    def rounds(
        self, *variants: str, parts: Mapping[str, Mapping[Any, float]] | None = None, share: float = 1.0
    ) -> RoundsResult:
        """Return random samples of variants, samples of parts near their share of a call, and random noise."""
        rounds = self.one_of(1, 7, 8, 40, 40, 40, 40)
        disturbed = int(self.random.integers(rounds + 1))
        noise = self.one_of(
            Noise(rounds),
            Noise(rounds),
            Noise(rounds),
            Noise(rounds, disturbed, disturbed // 2, self.one_of(None, self.random.uniform(0.0, 2.0)), 2),
        )
        slower_by = SLOWER_BY[: self.one_of(1, 2, 2, 3, 5)]

        def samples(seconds: float) -> Any:
            return seconds * self.random.choice(slower_by, rounds)

        def phases(seconds: float) -> dict[Phase, tuple[float, ...]]:
            return {phase: tuple(map(float, samples(seconds * self.magnitude(0.9, 1.1)))) for phase in Phase}

        seconds = {variant: self.near(self.call_s * share) for variant in variants}
        return RoundsResult(
            baseline=variants[0],
            budget_s=5.0,
            samples={variant: phases(of_variant) for variant, of_variant in seconds.items()},
            control=phases(seconds[variants[0]]),
            dropped={},
            rounds=rounds,
            calls_per_sample=1,
            spent_s=5.0,
            stopped=StopReason.BUDGET,
            noise=noise,
            parts={
                variant: Parts({key: samples(self.near(self.call_s * share)) for key, share in shares.items()}, noise)
                for variant, shares in (parts or {}).items()
            },
        )

    def rates(self) -> Rates:
        """Return rates close to those of ``CODE``, or wrong by any factor."""
        rates = Rates("cpu")
        factor = self.one_of(1.0, 1.0, self.magnitude(1e-6, 1e6))
        for step in (*STEPS[::4], STEPS[-1]):
            rates.fastest["copy", step] = self.near(factor * (1 << 21) / self.call_s)
        rates.fastest["float32", 0] = self.near(factor * 2e8 / self.call_s)
        return rates

    def kernel_times(self) -> ArtifactKernelTimes:
        shares = dict(list({0: 0.5, 1: 0.5, 2: 0.03}.items())[: self.one_of(2, 3, 3, 3)])
        found = self.rounds(WHOLE, GENERATED, CLOCKED, parts={CLOCKED: shares | {BETWEEN: self.one_of(0.03, 1.0)}})
        return kernel_times(CODE, found, self.rates())

    def profile(self, graphs: Iterable[Graph]) -> Profile:
        shares = {(graph.id, node.name): self.one_of(0.0, 0.05) for graph in graphs for node in graph.ops}
        moved = {key: int(self.magnitude(1.0, 1e10)) for key in shares}
        around = {(NO_GRAPH, "before the graphs"): 0.1, (NO_GRAPH, "after them"): 0.0}
        found = self.rounds(VariantName.AOT_EAGER, parts={STAMPED: shares | around})
        return profile_of(found, graphs, moved, self.rates(), self.magnitude(1e-8, 1e-5))

    def partition_timings(self, session: Session) -> tuple[PartitionTiming, ...]:
        """Return the times of each partition: equal ones share them."""
        timings = {}
        for phase in (Phase.FORWARD, Phase.BACKWARD):
            found = timings_of(self.rounds("eager", "compiled", share=0.1), {"compiled": self.one_of(*NUMERICS)})
            eager, compiled = (replace(one, phase=phase) for one in found[:: len(Phase)])
            timings[phase] = eager, self.one_of(compiled, compiled, compiled, None)
        return tuple(
            PartitionTiming(part.id, *timings[Phase(part.graph.removeprefix("0/"))], runs=2)
            for part in session.partitions
        )

    def session(self) -> Session:
        """Return a session that was measured in every way."""
        base = training_session(2)
        whole = self.rounds(*VariantName)
        verdicts = {str(name): self.one_of(*NUMERICS) for name in (VariantName.REGIONAL, VariantName.FULL)}
        gauge: Any = SimpleNamespace(
            how="resident set", least_bytes=LEAST_RESIDENT, peak_of=lambda _: int(self.magnitude(1.0, 1e11))
        )
        seconds = ArtifactCompile(self.magnitude(1e-3, 1e3), self.one_of(*CacheResult))
        kernels = self.kernel_times()
        session = replace(
            base,
            timings=timings_of(whole, verdicts),
            conditions=conditions_of(whole, ENVIRONMENT),
            memory=tuple(measure_peak(variant, int, gauge) for variant in VariantName),
            variant_costs=(CompileCost("full", self.magnitude(1e-3, 1e3), "cold"),),
            partition_timings=self.partition_timings(base),
            profile=self.profile(base.graphs),
            artifacts={key: ArtifactRecord(seconds, code=CODE, kernel_times=kernels) for key in base.artifacts},
        )
        cut = self.rounds(VariantName.AOT_EAGER, CUT_GRAPH)
        session = replace(session, reconciliation=reconcile(session.timings, region_timings(session), cut))
        code = region_code(session, "mlp")
        why = (region_time("mlp", code, []), *time_findings("mlp", code))
        session = replace(session, diagnostics=(*region_diagnostics(session), *plan_diagnostics(session), *why))
        return replace(session, floor=self.floor())

    def floor(self) -> Floor:
        """Return a floor near the time of a call, above or below."""
        each_s = self.near(self.call_s) / 4
        product = Product("mm 8×8 · 8×8 float32", 2, each_s, "oneDNN", each_s * self.one_of(1.0, 1.5))
        moved, moving_s = int(self.magnitude(1.0, 1e12)), self.near(self.call_s) / 4
        return Floor((product,), moved, moving_s, ENVIRONMENT, self.one_of(0, 3), self.one_of(True, False))


@functools.cache
def random_measurement(seed: int) -> tuple[RandomMachine, Session]:
    """Return a random machine, and a session measured on it."""
    machine = RandomMachine(seed)
    return machine, machine.session()
