"""The tries and the result of a search for the best plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property

from regional_explorer.record.figure import QUIET, Figure, Noise
from regional_explorer.record.plan import Direction, Plan
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
    """The outcome of a try; the first ones can be chosen."""

    MEASURED = "measured"
    SLOWER = "slower"
    """It left its race early: it was slower than the best plan then."""

    SAME_CODE = "same code"
    WRONG = "wrong results"
    FAILED = "failed"
    NOT_TRIED = "not tried"


class Numbers(StrEnum):
    """What the results of a plan have to be."""

    CLOSE = "close"
    """Right by the numerics check."""

    BITWISE = "bitwise"
    """Those of eager, to the bit."""


class Try(Record, frozen=True):
    """One plan that was tried, or was to be."""

    title: str
    """What was tried, in words."""
    stage: SearchStage
    """The stage of the search."""
    outcome: Outcome
    """What became of it."""
    plan: Plan | None = None
    """None for eager and plain ``torch.compile``."""
    why: str = ""
    """Why it was not measured, or why it cannot be chosen."""
    same_as: str = ""
    """The title of the try that has the same code."""
    final: bool = False
    """Whether the figures are those of the final comparison, in which all took turns; others guided the search."""
    time_s: Figure | None = None
    """The time of the whole call: of the step, or of the forward if no gradient is taken."""
    speedup: Figure | None = None
    """The median over rounds of eager ÷ plan."""
    over_full: Figure | None = None
    """The median over rounds of ``torch.compile`` ÷ plan."""
    compile_s: Seconds | None = None
    """The seconds that were waited for its compile; what was in a cache took none."""
    peak_bytes: Figure | None = None
    """The peak memory of a call."""
    kept_bytes: Count | None = None
    """What its forwards keep for their backward; None if a size is dynamic, or without a backward."""
    constant_bytes: Count = 0
    """What the frozen weights in its code take, beside those of the model."""
    launches: Count | None = None
    """How many launches of generated kernels are in the code of its partitions; None if it was not compiled."""
    remembered: bool = False
    """Whether this is from the ledger: an earlier search has tried it."""

    @property
    def can_be_chosen(self) -> bool:
        """Whether it may be the answer."""
        return self.outcome is Outcome.MEASURED and not self.why

    @property
    def score(self) -> float | None:
        """How fast it is: beside ``torch.compile``, or where that fails, beside eager; None if it is not known."""
        figure = self.over_full or self.speedup
        return None if figure is None else figure.value


class PieceRace(Record, frozen=True):
    """What configs do to the partitions of one kind, of the best plan, alone on recorded inputs."""

    partition: str
    """The id of the first partition of the kind."""
    region: str
    """The name of the region."""
    direction: Direction
    """Forward or backward."""
    runs: Count
    """How often a call runs partitions of this kind."""
    seconds: Seconds
    """The time of one of them as it was."""
    codes: Count = 0
    """How many other codes it raced."""
    best: str = ""
    """The config under which it is fastest, beyond doubt; empty if none is."""
    gain: Figure | None = None
    """The median over rounds of as it was ÷ under ``best``."""
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
    """How close results must be to eager's."""
    budget_s: Seconds = 0.0
    """The seconds that it was given."""
    spent_s: Seconds = 0.0
    """The seconds that it took."""
    spent_on: Mapping[str, Seconds] = {}
    """Where the time went: tracing, compiling, checking, timing, memory."""
    pieces: tuple[PieceRace, ...] = ()
    """The races of single pieces."""
    stopped: str = ""
    """Why it ended."""
    rounds: Count = 0
    """How many rounds the final comparison had."""
    noise: Noise = QUIET
    """What else the machine did in it."""
    floor: Quantity = 0.0
    """The smallest relative difference that counted in it: by so much a call timed twice differed from itself."""
    remarks: Mapping[str, Count] = {}
    """Why pieces were not compiled by the executor that was asked for, each reason with the number of pieces."""

    @cached_property
    def by_title(self) -> dict[str, Try]:
        """The tries by title."""
        return {one.title: one for one in self.tries}

    @property
    def plan(self) -> Plan | None:
        """The plan to use; None if the answer is eager or ``torch.compile``, or if there is none."""
        return self.by_title[self.answer].plan if self.answer else None

    def compared(self, plan: Plan) -> Try | None:
        """Return the try of a plan that took part in the final comparison; None if it did not."""
        return next((one for one in self.tries if one.final and one.plan == plan), None)

    @property
    def best_so_far(self) -> Try | None:
        """The fastest plan that can be chosen, by the figures there are."""
        plans = [one for one in self.tries if one.plan is not None and one.can_be_chosen and one.score is not None]
        return max(plans, key=lambda one: one.score or 0.0, default=None)

    @property
    def counts(self) -> Counter[Outcome]:
        """How many plans had each outcome."""
        return Counter(one.outcome for one in self.tries if one.stage is not SearchStage.REFERENCE)
