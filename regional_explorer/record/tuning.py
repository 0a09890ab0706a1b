"""The tries and the result of a search for the best plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property

from regional_explorer.record.figure import QUIET, Figure, Noise
from regional_explorer.record.plan import Plan
from regional_explorer.record.record import Count, Quantity, Record, Seconds

EAGER = "eager"
TORCH_COMPILE = "torch.compile"
AT_HAND = "the plan at hand"
"""The title of the plan that the exploration had."""


class SearchStage(StrEnum):
    """The stages of a search, in their order."""

    REFERENCE = "reference"
    TRACING = "ways of tracing"
    WRAPPER = "C++ wrappers"
    KEYS = "single keys"
    TOGETHER = "keys together"
    OTHERS = "other plans"
    PIECES = "keys per region"


class Outcome(StrEnum):
    """The outcome of a try; only tries with one of the first outcomes can be chosen."""

    MEASURED = "measured"
    SLOWER = "slower"
    """It left its race early, because it was slower than the best plan of that time."""

    SAME_CODE = "same code"
    WRONG = "wrong results"
    FAILED = "failed"
    NOT_TRIED = "not tried"


class Numbers(StrEnum):
    """How close the results of a plan have to be to eager's."""

    CLOSE = "close"
    """Right by the numerics check."""

    BITWISE = "bitwise"
    """Equal to eager's, to the bit."""


class Try(Record, frozen=True):
    """One plan that was tried, or was to be tried."""

    title: str
    """The plan in words."""
    stage: SearchStage
    """The stage of the search."""
    outcome: Outcome
    """The outcome."""
    plan: Plan | None = None
    """None for eager and plain ``torch.compile``."""
    why: str = ""
    """Why it was not measured, or why it cannot be chosen."""
    same_as: str = ""
    """The title of the try that has the same code."""
    final: bool = False
    """Whether the figures are from the final comparison, in which all took turns; other figures guided the search."""
    time_s: Figure | None = None
    """The time of the whole call: of the step, or of the forward if no gradient is taken."""
    speedup: Figure | None = None
    """The median over rounds of eager ÷ plan."""
    over_full: Figure | None = None
    """The median over rounds of ``torch.compile`` ÷ plan."""
    compile_s: Seconds | None = None
    """The seconds waited for its compile; artifacts from a cache took none."""
    peak_bytes: Figure | None = None
    """The peak memory of a call."""
    kept_bytes: Count | None = None
    """The bytes that its forwards keep for their backward; None if a size is dynamic, or without a backward."""
    constant_bytes: Count = 0
    """What the frozen weights in its code take, beside those of the model."""
    launches: Count | None = None
    """The number of launches of generated kernels in its partitions' code; None if it was not compiled."""
    remembered: bool = False
    """Whether it is from the ledger: an earlier search has tried it."""

    @property
    def can_be_chosen(self) -> bool:
        """Whether it can be the answer."""
        return self.outcome is Outcome.MEASURED and not self.why

    @property
    def score(self) -> float | None:
        """Its speedup over ``torch.compile``, or over eager if that fails; None if unknown."""
        figure = self.over_full or self.speedup
        return None if figure is None else figure.value


class PieceRace(Record, frozen=True):
    """A race of configs for one kind of the best plan's partitions, alone on recorded inputs."""

    partition: str
    """The id of the first partition of the kind."""
    best: str = ""
    """The config under which it is certainly fastest; empty if there is none."""
    gain: Figure | None = None
    """The median over rounds of the time before ÷ the time under ``best``."""
    why_not: str = ""
    """Why it did not race."""


class Tuning(Record, frozen=True, dict=True):
    """All tries of a search, and its answer."""

    tries: tuple[Try, ...]
    """All tries in their order."""
    answer: str = ""
    """The title of the try to use; empty if the search ended before its final comparison."""
    rival: str = ""
    """The title of the fastest of eager, ``torch.compile`` and the plan at hand."""
    gain: Figure | None = None
    """The median over rounds of rival ÷ answer, in the final comparison; None if the answer is the rival."""
    numbers: Numbers = Numbers.CLOSE
    """How close the results have to be to eager's."""
    budget_s: Seconds = 0.0
    """The budget in seconds."""
    spent_s: Seconds = 0.0
    """The seconds that it took."""
    spent_on: Mapping[str, Seconds] = {}
    """Where the time went: tracing, compiling, checking, timing, memory."""
    pieces: tuple[PieceRace, ...] = ()
    """The races of single pieces."""
    stopped: str = ""
    """Why it ended."""
    noise: Noise = QUIET
    """What else the machine did in the final comparison."""
    floor: Quantity = 0.0
    """The smallest relative difference that counted in the final comparison: a call timed twice differed by this."""
    remarks: Mapping[str, Count] = {}
    """Why pieces were not compiled by the requested executor, each reason with the number of pieces."""

    @cached_property
    def by_title(self) -> dict[str, Try]:
        """The tries by title."""
        return {one.title: one for one in self.tries}

    @property
    def plan(self) -> Plan | None:
        """The plan to use; None if the answer is eager or ``torch.compile``, or if there is none."""
        return self.by_title[self.answer].plan if self.answer else None

    def compared(self, plan: Plan) -> Try | None:
        """Return a plan's try in the final comparison; None if it took no part."""
        return next((one for one in self.tries if one.final and one.plan == plan), None)

    @property
    def best_so_far(self) -> Try | None:
        """The fastest plan that can be chosen, by the figures so far."""
        plans = [one for one in self.tries if one.plan is not None and one.can_be_chosen and one.score is not None]
        return max(plans, key=lambda one: one.score or 0.0, default=None)

    @property
    def counts(self) -> Counter[Outcome]:
        """The number of plans with each outcome."""
        return Counter(one.outcome for one in self.tries if one.stage is not SearchStage.REFERENCE)
