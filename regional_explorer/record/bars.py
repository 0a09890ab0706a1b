"""The chart of an answer: the time of a call in eager mode, under torch.compile, your plan and the best plan found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from regional_explorer.record import Record
from regional_explorer.record.answer import Answer, answer_of
from regional_explorer.record.benchmark import AN_EARLIER_RUN, VariantName
from regional_explorer.record.figure import Figure
from regional_explorer.record.plan import AS_TORCH_COMPILE, Plan, whole_graph
from regional_explorer.record.session import Session, derived
from regional_explorer.record.speeds import BEST, WORDS, Missing, Speed, if_bounded, speeds_of_try
from regional_explorer.record.tuning import AT_HAND

EARLIER, SO_FAR = "earlier plan", "best so far"
"""The names of bars of other plans than the plan at hand; ``SO_FAR`` was not in a final comparison."""


class Bar(Record, frozen=True):
    """The time of a call under one plan."""

    word: str
    """The name that people read."""
    seconds: Figure | None = None
    """The time of a call; None for ``torch.compile`` until it is measured."""
    speed: Speed | None = None
    """The speed against eager in the same rounds; against ``torch.compile`` if a search has only raced the plan."""
    plan: Plan | None = None
    """The plan that *Use* takes; None if it is the plan at hand. That of ``torch.compile`` generates the same code."""
    apart: str = ""
    """What measured it, if not the rounds of the bars before it: ``the search``, ``an earlier run``."""
    drawn_s: Figure | None = None
    """The length of the bar: the length of the bar that ``speed`` compares it with, divided by ``speed``, so that bars
    and ratios agree. Without a ratio it is the time of a call."""

    @property
    def verdict(self) -> str:
        """The verdict against eager; empty for eager itself."""
        return "" if self.speed is None else self.speed.verdict


@derived
def bars_of(session: Session) -> tuple[Bar, ...]:
    """Return the bars of the measured variants, without wrong results and without times that have no interval.

    The best plan that a search has found comes last, unless it is the plan at hand.
    """
    answer, tuning = answer_of(session), session.tuning
    own = EARLIER if answer.of_earlier_plan else WORDS[VariantName.REGIONAL]
    if tuning is not None and tuning.plan == session.plan and not answer.of_earlier_plan:
        own = BEST
    eager, full, plan = (WORDS[name] for name in (VariantName.EAGER, VariantName.FULL, VariantName.REGIONAL))
    speeds = {speed.of: speed for speed in answer.speeds if speed.against == eager}
    missing = {full} if full in speeds and speeds[full].verdict is Missing.NOT_MEASURED else set()
    plans = {eager: eager_plan(session.plan), full: whole_graph(AS_TORCH_COMPILE)}
    bars = [
        Bar(
            own if word == plan else word,
            answer.times.get(word),
            speeds.get(word),
            None if plans.get(word) == session.plan else plans.get(word),
            AN_EARLIER_RUN if word in answer.of_earlier_run else "",
        )
        for word in (eager, full, plan)
        if word in answer.times.keys() | missing
    ]
    return tuple(_with_lengths((*bars, *_found_bars(session, answer))))


def eager_plan(plan: Plan) -> Plan:
    """Return a plan with its regions, all of which run eagerly."""
    return replace(plan, regions=tuple(replace(region, enabled=False) for region in plan.regions))


def _with_lengths(bars: Iterable[Bar]) -> Iterator[Bar]:
    """Yield bars with their lengths; each bar comes after the bar that it is compared with.

    The medians of all rounds may give another ratio than the rounds do, if the machine was not the same in all rounds.
    """
    lengths_s: dict[str, float] = {}
    for bar in bars:
        against_s = None if bar.speed is None else lengths_s.get(bar.speed.against)
        ratio = None if bar.speed is None else bar.speed.speedup
        drawn_s = bar.seconds if against_s is None or ratio is None or bar.seconds is None else against_s / ratio
        if drawn_s is not None:
            lengths_s[bar.word] = drawn_s.value
        yield replace(bar, drawn_s=drawn_s)


def _found_bars(session: Session, answer: Answer) -> list[Bar]:
    """Return the bars of the other plans that a search has compared and that the user can take."""
    tuning = session.tuning
    if tuning is None or (best := tuning.best) is None:
        return []
    tries = [(BEST if tuning.answer else SO_FAR, best)]
    if answer.of_search and (before := tuning.by_title.get(AT_HAND)) and before.final:
        tries.insert(0, (EARLIER, before))
    apart = "the search" if answer.times and not answer.of_search else ""
    return [
        Bar(word, seconds, next(shown, None), tried.plan, apart)
        for word, tried in tries
        if tried.plan not in (None, session.plan) and (seconds := if_bounded(tried.time_s)) is not None
        for shown in [(one for one in speeds_of_try(tuning, tried, word) if not isinstance(one.verdict, Missing))]
    ]
