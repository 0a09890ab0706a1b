"""A search for the best plan: its tries and its result; and regions that are suggested, which a search tries too."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property

from msgspec.structs import replace

from regional_explorer.record import Count, Quantity, Record, Seconds
from regional_explorer.record.benchmark import Conditions, NumericsVerdict, Timing
from regional_explorer.record.figure import Figure
from regional_explorer.record.plan import Plan, Selector

EAGER = "eager"
TORCH_COMPILE = "torch.compile"
PLAN_FOUND = "the plan found"
TOGETHER = "together"
"""The title of what the changes of a plan save together beyond the sum of what each saves."""
AT_HAND = "the plan at hand"
"""The title of the plan that the exploration had."""


class SearchStage(StrEnum):
    """The stages of a search, in their order."""

    REFERENCE = "reference"
    TRACING = "ways of tracing"
    PASSES = "passes"
    WRAPPER = "C++ wrappers"
    KEYS = "single keys"
    TOGETHER = "keys together"
    OTHERS = "other plans"
    PIECES = "keys per region"


class Outcome(StrEnum):
    """The outcome of a try; only tries with one of the first outcomes can be chosen."""

    MEASURED = "measured"
    SLOWER = "slower"
    """It left its race early, because it was slower than the best plan at that time."""

    SAME_CODE = "same code"
    WRONG = "wrong results"
    CHAOTIC = "chaotic"
    """Rounding alone may change its results without limit, so whether they are right is unknown."""

    SHORTER = "on the shorter call"
    """It was tried on the shorter call alone: others were faster there, or the time was over."""

    NOT_BITWISE = "not bitwise"
    """Its results are right, but bitwise equality with eager's was required."""

    FAILED = "failed"
    NOT_TRIED = "not tried"


class NumericsRequirement(StrEnum):
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
    """Whether the figures come from the final comparison, in which all took turns; others only guide the search."""
    time_s: Figure | None = None
    """The time of the whole call: of the step, or of the forward if no gradient is taken."""
    speedup: Figure | None = None
    """The median over rounds of eager ÷ plan."""
    over_full: Figure | None = None
    """The median over rounds of ``torch.compile`` ÷ plan."""
    promised: Figure | None = None
    """The median over rounds of ``torch.compile`` ÷ plan on the shorter call."""
    after_s: Seconds | None = None
    """The seconds from the beginning of the search until it was first timed."""
    compile_s: Seconds | None = None
    """The seconds waited for its compile; artifacts from a cache took none."""
    peak_bytes: Figure | None = None
    """The peak memory of a call."""
    kept_bytes: Count | None = None
    """The bytes that its forwards keep for their backward; None if a size is dynamic, or without a backward."""
    constant_bytes: Count = 0
    """The bytes of the frozen weights in its code, beside the model's own."""
    launches: Count | None = None
    """The number of launches of generated kernels in its partitions' code; None if it was not compiled."""
    remembered: bool = False
    """Whether it is from the ledger: an earlier search has tried it."""
    numerics: NumericsVerdict = NumericsVerdict.NOT_CHECKED
    """Whether its results are right."""

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


class GainPart(Record, frozen=True):
    """A bar of the waterfall from ``torch.compile`` to the plan found: a time, or what a change saves of it."""

    title: str
    """The change, such as ``cpp_wrapper=True``; or ``torch.compile``, ``together`` or ``the plan found``."""
    seconds: Figure
    """The seconds of a call; of a change, the seconds that a call takes more without it."""
    note: str = ""
    """Why it saves nothing."""
    is_change: bool = False
    """Whether it is what a change saves."""


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
    numbers: NumericsRequirement = NumericsRequirement.CLOSE
    """How close the results have to be to eager's."""
    budget_s: Seconds = 0.0
    """The budget in seconds."""
    spent_s: Seconds = 0.0
    """The seconds that it took."""
    spent_on: Mapping[str, Seconds] = {}
    """The seconds spent on tracing, compiling, checking, timing and memory."""
    pieces: tuple[PieceRace, ...] = ()
    """The races of single pieces."""
    stopped: str = ""
    """Why it ended."""
    timings: tuple[Timing, ...] = ()
    """The times of the final comparison, of the whole call; ``variant`` is the title of a try."""
    conditions: Conditions | None = None
    """The conditions of the final comparison; None without one."""
    shorter: str = ""
    """The repeats of the shorter call, on which most plans were tried, such as ``1 of 8 Block``; empty without one."""
    parts: tuple[GainPart, ...] = ()
    """The waterfall from ``torch.compile`` to the plan, in order; empty unless it was measured."""
    remarks: Mapping[str, Count] = {}
    """Why the requested executor did not compile some pieces: the number of pieces by reason."""

    @cached_property
    def by_title(self) -> dict[str, Try]:
        """The tries by title."""
        return {tried.title: tried for tried in self.tries}

    @property
    def plan(self) -> Plan | None:
        """The plan to use; None if the answer is eager or ``torch.compile``, or if there is none."""
        return self.by_title[self.answer].plan if self.answer else None

    @property
    def best(self) -> Try | None:
        """The answer; if the search ended before its final comparison, the best plan so far."""
        return self.by_title.get(self.answer) or self.best_so_far

    @property
    def best_so_far(self) -> Try | None:
        """The fastest plan that can be chosen, by the figures so far."""
        plans = [
            tried for tried in self.tries if tried.plan is not None and tried.can_be_chosen and tried.score is not None
        ]
        return max(plans, key=lambda tried: tried.score or 0.0, default=None)

    @property
    def counts(self) -> Counter[Outcome]:
        """The number of plans with each outcome; eager and ``torch.compile`` are not plans, the plan at hand is one."""
        return Counter(tried.outcome for tried in self.tries if tried.title not in {EAGER, TORCH_COMPILE})

    @property
    def tried(self) -> int:
        """The number of plans that were tried, whatever the outcome."""
        return sum(number for outcome, number in self.counts.items() if outcome is not Outcome.NOT_TRIED)

    @property
    def not_tried(self) -> Counter[str]:
        """The number of plans that were not tried, by reason: the first clause of each ``why``."""
        return Counter(tried.why.partition(":")[0] for tried in self.tries if tried.outcome is Outcome.NOT_TRIED)


# ---------------------------------------------------------------------------------------------------- suggested regions


class SuggestionKind(StrEnum):
    """The kind of a suggested region; ``CHAINS`` are ops between matrix products."""

    WHOLE = "whole"
    MODULES = "modules"
    CHAINS = "chains"
    NORMS = "norms"
    LOSS = "loss"


class Suggestion(Record, frozen=True):
    """A region that could be marked, with its facts before anything is compiled."""

    name: str
    """The name that the region would get."""
    kind: SuggestionKind
    """Its kind."""
    selectors: tuple[Selector, ...]
    """The selectors of the region."""
    why: str
    """Why it may be worth it."""
    ops: Count
    """How many ops of the program it picks."""
    fusable: Count
    """How many of these a compiler can fuse: neither matrix products nor views."""
    instances: Count
    """How many instances it would have."""
    distinct: Count
    """The number of instances that differ in ops or shapes and are compiled separately."""
    share: Quantity | None = None
    """The share of the profiled time of its ops, with their backward; None without a profile."""
    fusable_share: Quantity | None = None
    """The share of the profiled time of its fusable ops."""
    inside: tuple[str, ...] = ()
    """The suggestions that contain all of it, the smallest first."""
    overlaps: tuple[str, ...] = ()
    """The suggestions that share ops with it, neither containing the other."""
    gain_s: Figure | None = None
    """The seconds that each call would save, less the cost of the region's borders; None unless measured."""
    compile_s: Seconds | None = None
    """The seconds waited for its compile; None unless it was compiled."""
    why_not: str = ""
    """Why it was not measured although a measurement was requested."""
    expected_s: Seconds | None = None
    """The seconds that its compile is expected to take."""

    @property
    def selection(self) -> str:
        """The selectors as text."""
        return ", ".join(map(str, self.selectors))

    @property
    def brings_nothing(self) -> bool:
        """Whether it was measured, and its gain is not certainly above zero."""
        return self.gain_s is not None and (self.gain_s.bounds or (0.0,))[0] <= 0.0

    @property
    def calls_to_pay_off(self) -> float | None:
        """The number of calls after which its compile pays off, infinite if never; None unless it was measured."""
        if self.gain_s is None or self.compile_s is None:
            return None
        return math.inf if self.brings_nothing else float(math.ceil(self.compile_s / self.gain_s.value))

    @property
    def relation(self) -> str:
        """Its relation to other suggestions: ``inside layers; overlaps chains``; the whole graph is not mentioned."""
        words = (("inside", self.inside[:-1][:1]), ("overlaps", self.overlaps))
        return "; ".join(f"{word} {', '.join(names)}" for word, names in words if names)


def best_first(suggestions: Iterable[Suggestion]) -> list[Suggestion]:
    """Return suggestions by their gain; those without a known gain come last, in the given order."""
    return sorted(suggestions, key=lambda item: -(item.gain_s.value if item.gain_s is not None else -math.inf))


def as_measured(suggestions: Iterable[Suggestion], measured: Sequence[Suggestion]) -> list[Suggestion]:
    """Return suggestions with the figures of the ``measured`` ones, the best first."""
    by_selectors = {item.selectors: item for item in measured}
    return best_first(
        replace(item, gain_s=source.gain_s, compile_s=source.compile_s, why_not=source.why_not)
        for item in suggestions
        for source in [by_selectors.get(item.selectors, item)]
    )
