"""The interface of a search to a call, whose plans it traces, compiles, checks and times."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeVar

from regional_explorer.compiler.run import Run
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.rounds import RoundsResult
from regional_explorer.measure.timings import MeasureContext
from regional_explorer.record.benchmark import MemoryPeak, NumericsVerdict, Verdict
from regional_explorer.record.figure import Figure
from regional_explorer.record.plan import Direction, Plan, Tracing
from regional_explorer.record.tuning import Outcome, Suggestion


class CutPlan(Protocol):
    """A plan that was traced and cut, ready to be compiled or run."""

    @property
    def key(self) -> str:
        """Its identity: graphs, layouts, configs, settings and machine."""

    @property
    def kept_bytes(self) -> int | None:
        """The bytes that its forwards keep for their backward."""

    @property
    def constant_bytes(self) -> int:
        """The bytes of the frozen weights in its code, once it is compiled."""


P = TypeVar("P", bound=CutPlan)
"""The kind of cut plan that a bench prepares."""


class CompileResult(NamedTuple):
    """A compiled plan: the hash ``code`` of its code and of what runs around it, or its ``failure``."""

    code: str
    seconds: float
    failure: str = ""
    launches: int | None = None


class CheckResult(NamedTuple):
    """The comparison of results with eager's; if ``outcome`` is not ``MEASURED``, ``why`` says how they differ."""

    outcome: Outcome
    why: str
    bitwise: bool
    numerics: NumericsVerdict = NumericsVerdict.OK


class TimedPiece(NamedTuple):
    """One kind of partition of a plan: equal code on equal layouts. ``handle`` identifies it for the bench."""

    partition: str
    region: str
    direction: Direction
    runs: int
    seconds: float
    handle: Any = None

    @property
    def seconds_per_call(self) -> float:
        """The estimated seconds of this kind of partition in a call: its runs × the seconds of one run, timed alone."""
        return self.runs * self.seconds


class RaceResult(NamedTuple):
    """A piece under another config: the verdict, and the speedup (median over rounds of the time before ÷ after)."""

    speedup: Figure
    verdict: Verdict


class Bench(Protocol[P]):
    """The work of a search on the plans of a call. Every method may raise ``CancelledError``."""

    grad: bool
    device_type: str
    at_hand: Plan
    suggested: Sequence[Suggestion]
    context: MeasureContext
    repeats: str
    """The repeats of a shorter call, such as ``1 of 8 Block``."""

    def step(self, *, timed: bool) -> AbstractContextManager[None]:
        """Return a context manager for a step in which nobody else uses the exploration; between steps others may."""

    def start(self) -> None:
        """Start the toolchain, once per process, so that no plan is charged for its start."""

    def shorter(self) -> Bench[P] | None:
        """Return the bench of the call in which one of each kind of repeated modules runs; None if nothing repeats."""

    def prepare(self, plan: Plan) -> P:
        """Trace the call with a plan's tracing, and cut it; raise if that is impossible."""

    def compile(self, prepared: Sequence[P], run: Run) -> Sequence[CompileResult | None]:
        """Compile plans; None for a plan that was not reached before ``run`` was cancelled."""

    def check(self, prepared: P | None) -> CheckResult:
        """Compare the results of a plan, or of plain ``torch.compile`` for None, with eager's."""

    def call(self, prepared: P, title: str) -> TimedCall:
        """Return the call under a compiled plan."""

    def eager(self) -> TimedCall:
        """Return the call as it is."""

    def full(self) -> tuple[TimedCall, float]:
        """Return the call under plain ``torch.compile``, and the seconds of its compile; raise if it fails."""

    def floor_s(self, limit_s: float) -> float | None:
        """Return the floor of the call; products whose time is not known yet are measured for ``limit_s`` at most.

        None if the machine was busy: the floor may be lower then.
        """

    def pieces(self, prepared: P, budget_s: float) -> Sequence[TimedPiece]:
        """Record the inputs of each kind of partition of a compiled plan, and time it alone."""

    def race_piece(self, piece: TimedPiece, others: Mapping[str, P], budget_s: float) -> Mapping[str, RaceResult]:
        """Race a piece against the same piece under other plans of the same cut, unless its results there are wrong."""

    def peak_memory(self, call: TimedCall, limit_s: float) -> MemoryPeak | None:
        """Return the peak memory of a call; None if it cannot be measured."""

    def measuring(self, context: MeasureContext) -> AbstractContextManager[MeasureContext]:
        """Return a context manager for the block in which calls are timed; it gives the context to time them in."""

    def trouble(self, prepared: P) -> str:
        """Return what has gone wrong since a plan was checked, such as a new trace; empty if nothing."""

    def keep(self, compared: RoundsResult, plans: Mapping[str, P]) -> None:
        """Keep the final comparison as a benchmark of each of its plans, which are given by title."""

    def free(self, keep: Collection[Tracing]) -> None:
        """Free the traces of all tracings except those to ``keep``."""
