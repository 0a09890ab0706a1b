"""What is said of any figures, in any text: no part exceeds its whole, nothing is undefined, no bound is beaten."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import regional_explorer
from benchmarks.claims import Claim, claims_of, durations, text_claims, words
from regional_explorer.backend.planned_backend import in_production
from regional_explorer.diagnostics.measured import plan_diagnostics, region_diagnostics, slower_than
from regional_explorer.exploration.code_results import Roofline
from regional_explorer.insight.diagnose import from_times
from regional_explorer.insight.kernel_times import BETWEEN, CLOCKED, GENERATED, WHOLE, kernel_times
from regional_explorer.insight.region_time import region_time
from regional_explorer.insight.roofline import reached, region_reaches
from regional_explorer.measure.memory import LEAST_RESIDENT, peak
from regional_explorer.measure.partitions import CUT_GRAPH, reconcile
from regional_explorer.measure.profile import MARKED, NO_GRAPH, profile_of
from regional_explorer.measure.rates import STEPS, Rates
from regional_explorer.measure.rounds import Parts, RoundsResult, Stop
from regional_explorer.measure.timings import conditions_of, timings_of
from regional_explorer.page.saved import page_html
from regional_explorer.record.artifact import (
    ArtifactCode,
    ArtifactCompile,
    ArtifactKernelTimes,
    ArtifactRecord,
    CacheAnswer,
    Kernel,
    KernelKind,
)
from regional_explorer.record.benchmark import (
    CompileCost,
    NumericsVerdict,
    PartitionTiming,
    Phase,
    VariantName,
    Verdict,
)
from regional_explorer.record.figure import Noise, exactly
from regional_explorer.record.graph import Graph
from regional_explorer.record.plan_file import Explored, slower_when_explored
from regional_explorer.record.profile import Profile
from regional_explorer.record.region_code import region_code
from regional_explorer.record.regions import region_timings
from regional_explorer.record.roofline import Border, Launches, Roundings
from regional_explorer.record.session import Session
from tests.shared.pages import Page
from tests.shared.sessions import ENVIRONMENT, measured_alone, timing, trained

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


class Drawn:
    """What the clocks, the counters and the checks may have said on any machine, by chance.

    All times are those of a call, ``spread`` times as long or as short at most, where nothing disturbed it.
    """

    def __init__(self, seed: int) -> None:
        self.chance = np.random.default_rng(seed)
        self.call_s = self.magnitude(1e-7, 10.0)
        self.spread = self.one_of(1.05, 2.0, 30.0)

    def magnitude(self, low: float, high: float) -> float:
        """Return a number of any magnitude."""
        return float(np.exp(self.chance.uniform(np.log(low), np.log(high))))

    def near(self, value: float) -> float:
        return value * self.magnitude(1 / self.spread, self.spread)

    def one_of(self, *values: Any) -> Any:
        return values[self.chance.integers(len(values))]

    def rounds(
        self, *variants: str, parts: Mapping[str, Mapping[Any, float]] | None = None, share: float = 1.0
    ) -> RoundsResult:
        """Return the samples of variants, those of parts near their share of a call, and what else the machine did."""
        rounds = self.one_of(1, 7, 8, 40, 40, 40, 40)
        disturbed = int(self.chance.integers(rounds + 1))
        noise = self.one_of(
            Noise(rounds),
            Noise(rounds),
            Noise(rounds),
            Noise(rounds, disturbed, disturbed // 2, self.one_of(None, self.chance.uniform(0.0, 2.0)), 2),
        )
        slower_by = SLOWER_BY[: self.one_of(1, 2, 2, 3, 5)]

        def samples(seconds: float) -> Any:
            return seconds * self.chance.choice(slower_by, rounds)

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
            stopped=Stop.BUDGET,
            noise=noise,
            parts={
                variant: Parts({key: samples(self.near(self.call_s * share)) for key, share in shares.items()}, noise)
                for variant, shares in (parts or {}).items()
            },
        )

    def rates(self) -> Rates:
        """Return rates that are near those of ``CODE``, or wrong by any factor."""
        rates = Rates("cpu")
        factor = self.one_of(1.0, 1.0, self.magnitude(1e-6, 1e6))
        for step in (*STEPS[::4], STEPS[-1]):
            rates.fastest["copy", step] = self.near(factor * (1 << 21) / self.call_s)
        rates.fastest["float32", 0] = self.near(factor * 2e8 / self.call_s)
        return rates

    def kernel_times(self) -> ArtifactKernelTimes:
        shares = dict(list({0: 0.5, 1: 0.5, 2: 0.03}.items())[: self.one_of(2, 3, 3, 3)])
        found = self.rounds(WHOLE, GENERATED, CLOCKED, parts={CLOCKED: shares | {BETWEEN: self.one_of(0.03, 1.0)}})
        return kernel_times(CODE, found, self.rates(), 1.0)

    def profile(self, graphs: Iterable[Graph]) -> Profile:
        shares = {(graph.id, node.name): self.one_of(0.0, 0.05) for graph in graphs for node in graph.ops}
        moved = {key: int(self.magnitude(1.0, 1e10)) for key in shares}
        around = {(NO_GRAPH, "before the graphs"): 0.1, (NO_GRAPH, "after them"): 0.0}
        found = self.rounds(VariantName.AOT_EAGER, parts={MARKED: shares | around})
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
        base = trained(2)
        whole = self.rounds(*VariantName)
        verdicts = {str(name): self.one_of(*NUMERICS) for name in (VariantName.REGIONAL, VariantName.FULL)}
        gauge: Any = SimpleNamespace(
            how="resident set", least_bytes=LEAST_RESIDENT, peak_of=lambda _: int(self.magnitude(1.0, 1e11))
        )
        seconds = ArtifactCompile(self.magnitude(1e-3, 1e3), self.one_of(*CacheAnswer))
        kernels = self.kernel_times()
        session = replace(
            base,
            timings=timings_of(whole, verdicts),
            conditions=conditions_of(whole, ENVIRONMENT),
            memory=tuple(peak(variant, int, gauge) for variant in VariantName),
            variant_costs=(CompileCost("full", self.magnitude(1e-3, 1e3), "cold"),),
            partition_timings=self.partition_timings(base),
            profile=self.profile(base.graphs),
            artifacts={key: ArtifactRecord(seconds, code=CODE, kernel_times=kernels) for key in base.artifacts},
        )
        cut = self.rounds(VariantName.AOT_EAGER, CUT_GRAPH)
        session = replace(session, reconciliation=reconcile(session.timings, region_timings(session), cut))
        code = region_code(session, "mlp")
        why = (region_time("mlp", code, []), *from_times("mlp", code))
        return replace(session, diagnostics=(*region_diagnostics(session), *plan_diagnostics(session), *why))

    def roofline(self, session: Session) -> Roofline:
        reach = reached(session)
        size = int(self.magnitude(1.0, 1e12))
        border = Border("mlp", "eager ops", 2, size, 1, self.one_of(size, size // 3))
        return Roofline(
            reach,
            region_reaches(session, reach[-1]),
            (border,),
            Launches(3, 2, 1),
            Roundings(0, 0),
            bandwidth=self.rates().copies(),
        )


@functools.cache
def drawn(seed: int) -> tuple[Drawn, Session]:
    """Return what chance drew, and a session of it."""
    chance = Drawn(seed)
    return chance, chance.session()


def wrong(claims: Iterable[Claim]) -> list[Claim]:
    return [claim for claim in claims if not claim.holds]


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_said_that_cannot_be(seed: int) -> None:
    assert not wrong(claims_of(drawn(seed)[1]))


@pytest.mark.parametrize("seed", range(4))
def test_nothing_in_a_saved_page_is_undefined(seed: int) -> None:
    """Its graphs are drawn from JSON, which has no word for what is undefined."""
    page = page_html(drawn(seed)[1])
    text = json.dumps(Page(page).data, ensure_ascii=False)
    assert not wrong(text_claims(words(page)))
    assert not wrong(text_claims(text))
    assert not re.search(r"\bInfinity\b", text)


def test_what_a_diagnostic_names_as_a_part_is_no_longer_than_its_whole() -> None:
    named = 0
    for item in (item for seed in range(24) for item in drawn(seed)[1].diagnostics):
        of = re.search(r"[Oo]f (?:its|the) (\S+ [nµm]?s)\b", item.message)
        if of is not None:
            named += 1
            assert max(durations(item.message)) <= durations(of[1])[0] * 1.01, item.message
    assert named


@pytest.mark.parametrize("seed", range(8))
def test_a_roofline_promises_no_more_than_the_call_takes(seed: int) -> None:
    chance, session = drawn(seed)
    found = chance.roofline(session)
    assert not wrong(text_claims(str(found)))
    regional_us = 1e6 * session.whole_timings[VariantName.REGIONAL].median_s.value
    assert (found.border_frame.at_most_us <= regional_us * 1.000001).all()


def said_to_save(eager_s: float, speedup: float, verdict: Verdict, alone: float) -> list[str]:
    """Return what region 'mlp' is said to save in a call; ``alone`` is its speedup when it is measured alone."""
    variants = [
        timing("eager", eager_s, 1.0, phase=Phase.STEP, verdict=Verdict.BASELINE),
        timing("regional", eager_s / speedup, speedup, phase=Phase.STEP, verdict=verdict),
    ]
    gained = measured_alone(speedup=exactly(alone))
    messages = " ".join(item.message for item in region_diagnostics(replace(gained, timings=tuple(variants))))
    return re.findall(r"'mlp' saves (-?[\d,.]+ \S+) in each call", messages)


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-7, 10.0), st.floats(0.1, 10.0), st.sampled_from(Verdict), st.floats(0.1, 10.0))
def test_no_region_saves_more_than_the_call(eager_s: float, speedup: float, verdict: Verdict, alone: float) -> None:
    for saved in said_to_save(eager_s, speedup, verdict, alone):
        assert verdict is Verdict.FASTER
        assert 0 <= durations(saved)[0] <= (eager_s - eager_s / speedup) * 1.01
    assert said_to_save(1e-3, 2.0, Verdict.FASTER, 2.0), "the pattern is that of the message"


# ----------------------------------------------------------------------------------------------------------- production


@pytest.mark.parametrize("seed", range(24))
def test_what_is_said_in_production_names_no_exploration(seed: int) -> None:
    _, session = drawn(seed)
    explored = replace(Explored.of(session), slower=slower_than(session))
    told = [*slower_when_explored(explored), *map(in_production, plan_diagnostics(session))]
    assert not [item for item in told if "ex." in str(item)]
    assert not wrong(claim for item in told for claim in text_claims(str(item)))


OF_AN_EXPLORATION = {"REGION_WORTH"}
"""What no program says that runs a plan."""


def test_no_message_of_a_finding_names_an_exploration() -> None:
    """A program that runs a plan says the message as it is; only the remedy is exchanged."""
    messages = 0
    for path in Path(regional_explorer.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match call:
                case ast.Call(func=ast.Attribute(value=code, attr="found"), args=[message, *_]):
                    texts = [str(node.value) for node in ast.walk(message) if isinstance(node, ast.Constant)]
                    messages += bool(texts)
                    exempt = getattr(code, "attr", "") in OF_AN_EXPLORATION
                    assert exempt or not any("ex." in text for text in texts), (path, call.lineno)
    assert messages > 40, "of 45 codes"


@pytest.mark.parametrize("text", ["a row of −26 %", "needs 8752% of it", "takes nan µs", "pays off after inf calls"])
def test_a_text_that_cannot_be_is_found(text: str) -> None:
    assert wrong(text_claims(text))
