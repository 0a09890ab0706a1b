"""A bench that replays: plans take planted times, on a clock that only moves with them."""

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
from regional_explorer.measure.timings import MeasureContext
from regional_explorer.record.benchmark import MemoryPeak, Verdict
from regional_explorer.record.figure import Figure
from regional_explorer.record.plan import Direction, Plan, Tracing
from regional_explorer.record.session import Environment
from regional_explorer.record.tuning import EAGER, TORCH_COMPILE, Suggestion
from regional_explorer.tuning.bench import CheckResult, CompileResult, RaceResult, TimedPiece
from regional_explorer.tuning.space import WHOLE, is_whole
from tests.shared.fakes import FakeClock

MIB = 1 << 20
ENVIRONMENT = Environment(torch="2.13.0", python="3.11", device="cpu", threads=2)


@dataclass(frozen=True)
class Planted:
    """The planted behaviour of a plan: its time relative to ``torch.compile``, its cost, its failure."""

    over: float = 1.0
    compile_s: float = 5.0
    code: str = ""
    wrong: str = ""
    failure: str = ""
    refusal: str = ""
    raises: str = ""
    peak_bytes: int = 10 * MIB
    bitwise: bool = False
    constant_bytes: int = 0
    launches: int | None = None


@dataclass(frozen=True)
class PlantedPiece:
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
    planted: Planted
    plan: Plan
    kept_bytes: int | None = MIB

    @property
    def constant_bytes(self) -> int:
        return self.planted.constant_bytes


@dataclass
class ReplayBench:
    """Replays the call whose plans do what ``plant`` says; ``log`` has what was asked of it."""

    plant: Callable[[Plan], Planted]
    clock: FakeClock = field(default_factory=FakeClock)
    at_hand: Plan = field(default_factory=Plan)
    suggested: Sequence[Suggestion] = ()
    plant_pieces: Callable[[Plan], Sequence[PlantedPiece]] = lambda _plan: ()
    eager_over: float = 1.3
    full: Callable[[], tuple[TimedCall, float]] = field(init=False)
    full_fails: str = ""
    step_s: float = 0.03
    noise: float = 0.004
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

    def asked(self, what: str) -> list[Any]:
        return [about for asked, about in self.log if asked == what]

    @contextmanager
    def step(self, *, timed: bool) -> Iterator[None]:
        self.log.append(("step", timed))
        yield

    def start(self) -> None:
        self.clock.spend(1.0)

    def prepare(self, plan: Plan) -> ReplayedPlan:
        self.log.append(("prepare", plan))
        self.clock.spend(0.5)
        planted = self.plant(plan)
        if planted.refusal:
            raise CaptureError(RefusalCode.GRAPH_FAILED, planted.refusal)
        return ReplayedPlan(f"{plan!r}", planted, plan)

    def compile(self, prepared: Sequence[ReplayedPlan], run: Run) -> list[CompileResult | None]:
        built: list[CompileResult | None] = []
        for one in prepared:
            if run.cancelled():
                built.append(None)
                continue
            self.log.append(("compile", one.key))
            left_s = one.planted.compile_s
            while left_s > 0.0 and not run.cancelled():
                self.clock.spend(min(left_s, 1.0))
                left_s -= 1.0
            built.append(
                None
                if left_s > 0.0
                else CompileResult(
                    one.planted.code or one.key,
                    one.planted.compile_s,
                    one.planted.failure,
                    launches=one.planted.launches,
                )
            )
        return built

    def check(self, prepared: ReplayedPlan) -> CheckResult:
        self.log.append(("check", prepared.key))
        self.clock.spend(0.1)
        if prepared.planted.raises == "check":
            raise RuntimeError("no kernel")
        return CheckResult(prepared.planted.wrong, prepared.planted.bitwise)

    def call(self, prepared: ReplayedPlan, title: str) -> TimedCall:
        assert ("check", prepared.key) in self.log, "timed before it was checked"
        return self._taking(title, prepared.planted)

    def pieces(self, prepared: ReplayedPlan, budget_s: float) -> list[TimedPiece]:
        self.log.append(("pieces", prepared.key))
        self.clock.spend(budget_s)
        return [
            TimedPiece(one.name, one.region, one.direction, one.runs, one.seconds, (number, prepared))
            for number, one in enumerate(self.plant_pieces(prepared.plan))
        ]

    def race_piece(
        self, piece: TimedPiece, others: Mapping[str, ReplayedPlan], budget_s: float
    ) -> Mapping[str, RaceResult]:
        self.log.append(("race piece", piece.partition))
        self.clock.spend(budget_s)
        number, _ = piece.handle
        raced = {}
        for change, other in others.items():
            then = self.plant_pieces(other.plan)[number]
            ratio = piece.seconds / then.seconds
            if not then.wrong:
                verdict = Verdict.BASELINE if ratio == 1.0 else Verdict.FASTER if ratio > 1.0 else Verdict.SLOWER
                raced[change] = RaceResult(Figure(ratio, ratio * 0.99, ratio * 1.01), verdict)
        return raced

    def eager(self) -> TimedCall:
        return self._taking(EAGER, Planted(self.eager_over))

    def compile_full(self) -> tuple[TimedCall, float]:
        if self.full_fails:
            raise RuntimeError(self.full_fails)
        self.clock.spend(6.0)
        return self._taking(TORCH_COMPILE, Planted()), 6.0

    def _taking(self, title: str, planted: Planted) -> TimedCall:
        peaks[title] = planted.peak_bytes

        def spend(share: float) -> str:
            if planted.raises == "call":
                raise RuntimeError("it crashed")
            self.clock.spend(share * planted.over * self.step_s * self._slowness())
            return title

        return TimedCall(title, lambda: spend(0.4), (lambda _: spend(0.6)) if self.grad else None)

    def _slowness(self) -> float:
        """Return how much longer a call takes now: noise differs from call to call, a drift goes on from the last."""
        if self.drift:
            self.drifted += self.random.gauss(0.0, self.drift)
        return math.exp(self.drifted) * self.random.uniform(1 - self.noise, 1 + self.noise)

    def peak_memory(self, call: TimedCall, limit_s: float) -> MemoryPeak:
        del limit_s
        return MemoryPeak(call.name, Figure(peaks[call.name], why="too few"), "replay", 0)

    @contextmanager
    def measuring(self) -> Iterator[None]:
        self.log.append(("race", None))
        yield

    def trouble(self, prepared: ReplayedPlan) -> str:
        return "Dynamo traced the call again" if prepared.planted.raises == "trouble" else ""

    def keep(self, prepared: ReplayedPlan) -> None:
        self.log.append(("keep", prepared.key))

    def free(self, keep: Collection[Tracing]) -> None:
        self.log.append(("free", set(keep)))


peaks: dict[str, int] = {}


def by_parts(ways: Mapping[Tracing, float], keys: Mapping[str, float], **planted: Any) -> Callable[[Plan], Planted]:
    """Return a planting in which ways of tracing and keys multiply; keys that are not named change no code."""

    def plant(plan: Plan) -> Planted:
        if not is_whole(plan):
            return Planted(1.2)
        config = plan[WHOLE].config
        over = ways.get(plan.tracing, 1.1)
        effective = [key for key in config if key in keys]
        for key in effective:
            over *= keys[key]
        return Planted(over, code=f"{plan.tracing} {sorted(effective)}", **planted)

    return plant
