"""A simulated bench: plans take given times, on a clock that only their calls advance."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from regional_explorer.compiler.run import Run
from regional_explorer.errors import CaptureError, RefusalCode
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.rounds import RoundsResult
from regional_explorer.measure.timings import MeasureContext
from regional_explorer.record.benchmark import MemoryPeak, Verdict
from regional_explorer.record.environment import Environment
from regional_explorer.record.figure import Figure
from regional_explorer.record.plan import WHOLE, Direction, Plan, Tracing
from regional_explorer.record.tuning import EAGER, TORCH_COMPILE, Outcome, Suggestion
from regional_explorer.tuning.bench import CheckResult, CompileResult, RaceResult, TimedPiece
from regional_explorer.tuning.space import is_whole
from tests.shared.fakes import FakeClock

MIB = 1 << 20
ENVIRONMENT = Environment(torch="2.13.0", python="3.11", device="cpu", threads=2)


@dataclass(frozen=True)
class Behaviour:
    """The simulated behaviour of a plan: its time relative to ``torch.compile``, its cost, its failure."""

    over: float = 1.0
    compile_s: float = 5.0
    code: str = ""
    wrong: str = ""
    chaotic: str = ""
    failure: str = ""
    refusal: str = ""
    raises: str = ""
    peak_bytes: int = 10 * MIB
    bitwise: bool = False
    constant_bytes: int = 0
    launches: int | None = None


@dataclass(frozen=True)
class SimulatedPiece:
    """A kind of partition: its time alone, and whether it is wrong."""

    name: str
    region: str
    direction: Direction
    runs: int
    seconds: float
    wrong: bool = False


@dataclass
class ReplayedPlan:
    key: str
    behaviour: Behaviour
    plan: Plan
    kept_bytes: int | None = MIB

    @property
    def constant_bytes(self) -> int:
        return self.behaviour.constant_bytes


@dataclass
class ReplayBench:
    """A call whose plans behave as ``simulate`` says; ``log`` has all requests to the bench."""

    simulate: Callable[[Plan], Behaviour]
    clock: FakeClock = field(default_factory=FakeClock)
    at_hand: Plan = field(default_factory=Plan)
    suggested: Sequence[Suggestion] = ()
    repeats: str = ""
    shortened: ReplayBench | None = None
    simulate_pieces: Callable[[Plan], Sequence[SimulatedPiece]] = lambda _plan: ()
    eager_over: float = 1.3
    full: Callable[[], tuple[TimedCall, float]] = field(init=False)
    torch_compile: Behaviour = field(default_factory=Behaviour)
    step_s: float = 0.03
    full_s: float = 6.0
    noise: float = 0.004
    floor: float | None = None
    drift: float = 0.0
    grad: bool = True
    device_type: str = "cpu"
    log: list[tuple[str, Any]] = field(default_factory=list)
    run: Run = field(default_factory=Run)
    random: Random = field(default_factory=lambda: Random(0))  # noqa: S311 - noise, not a secret

    def __post_init__(self) -> None:
        self.drifted = 0.0
        self.context = MeasureContext(self.run, ENVIRONMENT, self.clock)
        self.full = self.compile_full

    def requests(self, kind: str) -> list[Any]:
        return [about for logged, about in self.log if logged == kind]

    @contextmanager
    def step(self, *, timed: bool) -> Iterator[None]:
        self.log.append(("step", timed))
        yield

    def start(self) -> None:
        self.clock.spend(1.0)

    def shorter(self) -> ReplayBench | None:
        self.log.append(("shorter", None))
        if self.shortened is not None:
            self.shortened.clock = self.clock
            self.shortened.context = self.context
        return self.shortened

    def prepare(self, plan: Plan) -> ReplayedPlan:
        self.log.append(("prepare", plan))
        self.clock.spend(0.5)
        behaviour = self.simulate(plan)
        if behaviour.refusal:
            raise CaptureError(RefusalCode.GRAPH_FAILED, behaviour.refusal)
        return ReplayedPlan(f"{self.repeats}{plan!r}", behaviour, plan)

    def compile(self, prepared: Sequence[ReplayedPlan], run: Run) -> list[CompileResult | None]:
        built: list[CompileResult | None] = []
        for one in prepared:
            if run.cancelled():
                built.append(None)
                continue
            self.log.append(("compile", one.key))
            left_s = one.behaviour.compile_s
            while left_s > 0.0 and not run.cancelled():
                self.clock.spend(min(left_s, 1.0))
                left_s -= 1.0
            built.append(
                None
                if left_s > 0.0
                else CompileResult(
                    one.behaviour.code or one.key,
                    one.behaviour.compile_s,
                    one.behaviour.failure,
                    launches=one.behaviour.launches,
                )
            )
        return built

    def check(self, prepared: ReplayedPlan | None) -> CheckResult:
        behaviour = self.torch_compile if prepared is None else prepared.behaviour
        self.log.append(("check", TORCH_COMPILE if prepared is None else prepared.key))
        self.clock.spend(0.1)
        if behaviour.raises == "check":
            raise RuntimeError("no kernel")
        outcome = Outcome.CHAOTIC if behaviour.chaotic else Outcome.WRONG if behaviour.wrong else Outcome.MEASURED
        return CheckResult(outcome, behaviour.chaotic or behaviour.wrong, behaviour.bitwise)

    def call(self, prepared: ReplayedPlan, title: str) -> TimedCall:
        assert ("check", prepared.key) in self.log, "timed before it was checked"
        return self._timed_call(title, prepared.behaviour)

    def pieces(self, prepared: ReplayedPlan, budget_s: float) -> list[TimedPiece]:
        self.log.append(("pieces", prepared.key))
        self.clock.spend(budget_s)
        return [
            TimedPiece(one.name, one.region, one.direction, one.runs, one.seconds, (number, prepared))
            for number, one in enumerate(self.simulate_pieces(prepared.plan))
        ]

    def race_piece(
        self, piece: TimedPiece, others: Mapping[str, ReplayedPlan], budget_s: float
    ) -> Mapping[str, RaceResult]:
        self.log.append(("race piece", piece.partition))
        self.clock.spend(budget_s)
        number, _ = piece.handle
        raced = {}
        for change, other in others.items():
            then = self.simulate_pieces(other.plan)[number]
            ratio = piece.seconds / then.seconds
            if not then.wrong:
                verdict = Verdict.BASELINE if ratio == 1.0 else Verdict.FASTER if ratio > 1.0 else Verdict.SLOWER
                raced[change] = RaceResult(Figure(ratio, ratio * 0.99, ratio * 1.01), verdict)
        return raced

    def eager(self) -> TimedCall:
        return self._timed_call(EAGER, Behaviour(self.eager_over))

    def compile_full(self) -> tuple[TimedCall, float]:
        if self.torch_compile.failure:
            raise RuntimeError(self.torch_compile.failure)
        self.clock.spend(self.full_s)
        return self._timed_call(TORCH_COMPILE, self.torch_compile), self.full_s

    def _timed_call(self, title: str, behaviour: Behaviour) -> TimedCall:
        peaks[title] = behaviour.peak_bytes

        def spend(share: float) -> str:
            if behaviour.raises == "call":
                raise RuntimeError("it crashed")
            self.clock.spend(share * behaviour.over * self.step_s * self._slowness())
            return title

        return TimedCall(title, lambda: spend(0.4), (lambda _: spend(0.6)) if self.grad else None)

    def _slowness(self) -> float:
        """Return the factor by which a call takes longer now: noise of its own, times a drift that accumulates."""
        if self.drift:
            self.drifted += self.random.gauss(0.0, self.drift)
        return math.exp(self.drifted) * self.random.uniform(1 - self.noise, 1 + self.noise)

    def floor_s(self, limit_s: float) -> float | None:
        self.log.append(("floor", limit_s))
        return self.floor

    def peak_memory(self, call: TimedCall, limit_s: float) -> MemoryPeak:
        del limit_s
        return MemoryPeak(call.name, Figure(peaks[call.name], why="too few"), "replay", 0)

    @contextmanager
    def measuring(self, context: MeasureContext) -> Iterator[MeasureContext]:
        self.log.append(("race", None))
        yield context

    def trouble(self, prepared: ReplayedPlan) -> str:
        return "Dynamo traced the call again" if prepared.behaviour.raises == "trouble" else ""

    def keep(self, compared: RoundsResult, plans: Mapping[str, ReplayedPlan]) -> None:
        self.log.append(("keep", (compared.rounds, [*plans])))

    def free(self, keep: Collection[Tracing]) -> None:
        self.log.append(("free", set(keep)))


peaks: dict[str, int] = {}


def cost_model(
    tracings: Mapping[Tracing, float], keys: Mapping[str, float], **behaviour: Any
) -> Callable[[Plan], Behaviour]:
    """Return behaviour whose time is the product of a factor per tracing and per key; other keys change no code."""

    def simulate(plan: Plan) -> Behaviour:
        if not is_whole(plan):
            return Behaviour(1.2)
        config = plan[WHOLE].config
        over = tracings.get(plan.tracing, 1.1)
        effective = [key for key in config if key in keys]
        for key in effective:
            over *= keys[key]
        return Behaviour(over, code=f"{plan.tracing} {sorted(effective)}", **behaviour)

    return simulate
