"""What a search asks of a call: plans of it traced, compiled, checked and timed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, TypeVar

from regional_explorer.compiler.run import Run
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.timings import MeasureContext
from regional_explorer.record.benchmark import MemoryPeak
from regional_explorer.record.plan import Plan
from regional_explorer.record.suggestion import Suggestion
from regional_explorer.record.tracing import Tracing
from regional_explorer.tuning.pieces import Raced, TimedPiece


class CutPlan(Protocol):
    """A plan that was traced and cut: ready to be compiled, or run."""

    @property
    def key(self) -> str:
        """What identifies it: graphs, layouts, configs, settings, machine."""

    @property
    def kept_bytes(self) -> int | None:
        """What its forwards keep for their backward."""


P = TypeVar("P", bound=CutPlan)
"""What a bench prepares."""


class Built(NamedTuple):
    """A plan that was compiled: the hash of ``code`` and of what runs around it, or its ``failure``."""

    code: str
    seconds: float
    failure: str = ""
    may_succeed_later: bool = False
    launches: int | None = None


class Checked(NamedTuple):
    """How the results of a plan compare with eager's: ``wrong`` says how they are wrong, if they are."""

    wrong: str
    bitwise: bool


class Bench(Protocol[P]):
    """What a search does with the plans of a call. Everything may raise ``CancelledError``."""

    grad: bool
    device_type: str
    at_hand: Plan
    suggested: Sequence[Suggestion]
    context: MeasureContext

    def step(self, *, timed: bool) -> AbstractContextManager[None]:
        """A block in which nobody else uses the exploration; between two of them others may."""

    def start(self) -> None:
        """Start what compiles, once per process: no plan is charged with it."""

    def prepare(self, plan: Plan) -> P:
        """Trace the call in the way of a plan, and cut it; raise if that is not possible."""

    def compile(self, prepared: Sequence[P], run: Run) -> Sequence[Built | None]:
        """Compile plans; None for those that were not reached before ``run`` was cancelled."""

    def check(self, prepared: P) -> Checked:
        """Compare the results of a plan with eager's."""

    def call(self, prepared: P, title: str) -> TimedCall:
        """Return the call under a compiled plan."""

    def eager(self) -> TimedCall:
        """Return the call as it is."""

    def full(self) -> tuple[TimedCall, float]:
        """Return the call under plain ``torch.compile``, and the seconds of its compile; raise if it fails."""

    def pieces(self, prepared: P, budget_s: float) -> Sequence[TimedPiece]:
        """Record what each kind of partition of a compiled plan takes, and time it alone."""

    def race_piece(self, piece: TimedPiece, others: Mapping[str, P], budget_s: float) -> Mapping[str, Raced]:
        """Race a piece against itself under other plans of the same cut; those that are not right are left out."""

    def peak_memory(self, call: TimedCall, limit_s: float) -> MemoryPeak | None:
        """Return the peak memory of a call; None if it cannot be read."""

    def measuring(self) -> AbstractContextManager[None]:
        """A block in which calls are timed."""

    def trouble(self, prepared: P) -> str:
        """Return what has gone wrong since a plan was checked, such as another trace; empty if nothing has."""

    def keep(self, prepared: P) -> None:
        """Keep what a plan was compiled to: it is going to be applied."""

    def free(self, keep: Collection[Tracing]) -> None:
        """Free the traces in other ways than these."""
