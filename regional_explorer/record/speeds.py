"""The speed of the whole call under one variant relative to another, and which of them to use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec.structs import replace

from regional_explorer.record import Record
from regional_explorer.record.benchmark import (
    AN_EARLIER_RUN,
    CONCLUSIONS,
    Conditions,
    NumericsVerdict,
    Timing,
    VariantName,
    Verdict,
)
from regional_explorer.record.diagnostic import DiagnosticCode
from regional_explorer.record.figure import QUIET, Figure
from regional_explorer.record.session import Session
from regional_explorer.record.statistics import (
    EITHER,
    MIN_FLOOR,
    median_figure,
    paired_ratios,
    verdict_and_reason,
    verdict_confidence,
    verdict_of_bounds,
)
from regional_explorer.record.tuning import EAGER, TORCH_COMPILE, Outcome, Try, Tuning

WORDS: Mapping[str, str] = {
    VariantName.EAGER: "eager",
    VariantName.AOT_EAGER: "traced",
    VariantName.REGIONAL: "your plan",
    VariantName.FULL: "torch.compile",
}
"""The name of each variant that people read."""

BEST = "best found"
"""The plan that a search found, unless it is the plan at hand; it stands beside the words of ``WORDS``."""

WIDEST = 4.0
"""A ratio is not shown if the ends of its interval differ by more than this factor: it says nothing yet."""


class Missing(StrEnum):
    """Why one variant has no speed against another."""

    NOT_MEASURED = "not measured"
    FAILED = "failed"


_OPPOSITES = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}


class Speed(Record, frozen=True, omit_defaults=False):
    """The speed of the whole call under one variant relative to another, from the same rounds."""

    of: str
    """The variant, as a word of ``WORDS``."""
    against: str
    """The variant that it is compared with, as a word of ``WORDS``."""
    verdict: Verdict | Missing
    """The verdict of the samples, or why there is none."""
    speedup: Figure | None = None
    """The median over rounds of ``against`` ÷ ``of``."""
    comparable: bool = True
    """False if it is not known whether both compute the same."""
    why: str = ""
    """Why the samples allow no verdict, in a clause; empty if they do, and where that is unknown."""
    wrong: Mapping[str, NumericsVerdict] = {}
    """The variants whose results withhold the speed, as words of ``WORDS``."""
    verdict_speedup: Figure | None = None
    """The speedup with the interval that the verdict takes, of a higher confidence; None if it is that of ``speedup``.
    """

    @property
    def is_certain(self) -> bool:
        """Whether the samples say which of the two is faster, or that neither is."""
        return self.verdict in CONCLUSIONS

    @property
    def is_slower(self) -> bool:
        """Whether ``of`` is certainly slower than ``against``."""
        return self.verdict == Verdict.SLOWER

    @property
    def turned(self) -> Speed:
        """The same comparison the other way round."""
        verdict = _OPPOSITES.get(self.verdict, self.verdict) if isinstance(self.verdict, Verdict) else self.verdict
        speedup, strict = (figure and 1.0 / figure for figure in (self.speedup, self.verdict_speedup))
        return replace(self, of=self.against, against=self.of, verdict=verdict, speedup=speedup, verdict_speedup=strict)


# ------------------------------------------------------------------------------------------------------------- figures


def interval_ends(figure: Figure) -> tuple[float, float, float]:
    """Return the lower end, the value and the upper end of a figure."""
    low, high = figure.bounds or (figure.value, figure.value)
    return low, figure.value, high


def if_bounded(figure: Figure | None) -> Figure | None:
    """Return the figure if it has an interval, else None."""
    return figure if figure is not None and figure.bounds is not None else None


def if_narrow(ratio: Figure | None) -> Figure | None:
    """Return the ratio if its interval is narrow enough to say something, else None."""
    ratio = if_bounded(ratio)
    low, _, high = (1.0, 1.0, 1.0) if ratio is None else interval_ends(ratio)
    return ratio if 0.0 < high <= WIDEST * low else None


def speed_of(session: Session, of: VariantName, against: VariantName) -> Speed:
    """Return the speed of the whole call under one variant relative to another, from the same rounds."""
    words, timings = (WORDS.get(of, of), WORDS.get(against, against)), session.whole_timings
    numerics = {WORDS.get(name, name): numerics_of(session, name) for name in (of, against)}
    if wrong := {word: verdict for word, verdict in numerics.items() if verdict.withholds_speedup}:
        return Speed(*words, Verdict.WITHHELD, wrong=wrong)
    for variant in (of, against):
        if variant not in timings:
            return Speed(*words, Missing.FAILED if has_failed(session, variant) else Missing.NOT_MEASURED)
    return _compared(words, timings[of], timings[against], session.conditions)


def _compared(words: tuple[str, str], own: Timing, other: Timing, conditions: Conditions | None) -> Speed:
    """Return the speed of one timing relative to another, whose variants people know by ``words``."""
    comparable = NumericsVerdict.NOT_COMPARABLE not in {own.numerics, other.numerics}
    ratios = paired_ratios(other.samples_s, own.samples_s)
    noise = QUIET if conditions is None else conditions.noise
    floor = MIN_FLOOR if conditions is None else conditions.floors.get(own.phase, MIN_FLOOR)
    benchmarks = 1 if conditions is None else conditions.benchmarks
    strict = if_bounded(median_figure(ratios, confidence=verdict_confidence(benchmarks)))
    if Verdict.NONE in {own.verdict, other.verdict}:
        verdict, why = Verdict.NONE, "not all rounds ran the same code"
    else:
        verdict, why = verdict_and_reason(ratios, floor, noise, benchmarks)
    if other.variant == VariantName.EAGER:
        why = why if verdict is own.verdict else ""
        return Speed(*words, own.verdict, if_narrow(own.speedup), comparable, why, verdict_speedup=strict)
    if own.earlier != other.earlier and own.speedup and other.speedup:  # both against eager in their own rounds
        ratio = own.speedup.over(other.speedup)
        verdict = verdict_of_bounds(ratio.value, ratio.bounds, floor, noise)
        why = f"{words[0] if own.earlier else words[1]} was measured in {AN_EARLIER_RUN}"
        return Speed(*words, verdict, if_narrow(ratio), comparable, "" if verdict in CONCLUSIONS else why)
    if own.median_s.bounds is None or other.median_s.bounds is None:
        return Speed(*words, Verdict.without_interval(busy=noise.is_busy), why=why)
    return Speed(*words, verdict, if_narrow(median_figure(ratios)), comparable, why, verdict_speedup=strict)


def numerics_of(session: Session, variant: str) -> NumericsVerdict:
    """Return whether the results of a variant are right; wrong ones may have no timing."""
    timing, rows = session.whole_timings.get(variant), session.numerics_of(variant)
    known = [*(row.verdict for row in rows), *([] if timing is None else [timing.numerics])]
    return NumericsVerdict.worst(known) or NumericsVerdict.NOT_CHECKED


_FAILURES = {VariantName.REGIONAL: DiagnosticCode.PLAN_FAILED, VariantName.FULL: DiagnosticCode.FULL_FAILED}


SLOWER_FROM = 0.5
"""A slower variant is described in per cent from this speed on, and as a ratio below it."""


def ratio_text(speedup: Figure, against: str) -> str:
    """Return a speed in the one way that texts use.

    That is ``1.08× as fast as eager (1.05–1.10)``, or ``19 % slower than eager (18–21)`` for a speed of 0.81.
    """
    low, value, high = interval_ends(speedup)
    if SLOWER_FROM <= value < 1.0:
        percents = [100.0 * (1.0 - end) for end in (high, value, low)]
        digits = 0 if percents[2] - percents[0] >= 1.0 and percents[1] >= 1.0 else 1
        least, shown, most = (f"{number:.{digits}f}" for number in percents)
        return f"{shown} % slower than {against}{_between(least, most, shown)}"
    least, shown, most = (f"{end:.2f}" if end >= 0.1 else f"{end:.2g}" for end in (low, value, high))  # noqa: PLR2004
    return f"{shown}× as fast as {against}{_between(least, most, shown)}"


def _between(least: str, most: str, shown: str) -> str:
    return "" if least == most == shown else f" ({least}–{most})"


def not_compared(speed: Speed) -> str:
    """Return why two variants are not compared, as a sentence; empty if they are."""
    if speed.verdict is Verdict.WITHHELD:
        wrong = "wrong" if NumericsVerdict.FAILED in speed.wrong.values() else "not known to be right"
        return f"The results of {' and '.join(speed.wrong)} are {wrong}, so there is no speed to compare."
    does = {Missing.NOT_MEASURED: "was not measured", Missing.FAILED: "fails on this call"}
    return f"{speed.against} {does[speed.verdict]}." if isinstance(speed.verdict, Missing) else ""


def speed_text(speed: Speed) -> str:
    """Return a comparison in words, ``1.16× as fast as eager (1.14–1.18)``; if there is none, a sentence says why."""
    against, ratio = speed.against, speed.speedup
    if why_not := not_compared(speed):
        return why_not
    if ratio is None:
        than = f"{speed.verdict} than {against}, by an unknown factor"
        return than if speed.is_certain else f"unknown against {against}"
    if speed.verdict in {Verdict.FASTER, Verdict.SLOWER}:
        text = ratio_text(ratio, against)
    else:
        # The interval of the verdict: that of the ratio may seem to say what the verdict does not.
        low, value, high = interval_ends(speed.verdict_speedup or ratio)
        side = "not clearly faster than" if value >= 1.0 else "not clearly slower than"
        same = speed.verdict is Verdict.SAME
        text = f"{'as fast as' if same else side} {against} ({low:.2f}–{high:.2f}×)"
    is_in_results = {speed.of, against} == {WORDS[VariantName.REGIONAL], WORDS[VariantName.EAGER]}
    note = "" if speed.comparable or is_in_results else f", results {NumericsVerdict.NOT_COMPARABLE}"
    return f"{text}{note}"


def has_failed(session: Session, variant: VariantName) -> bool:
    """Return whether the plan or ``torch.compile`` raised an error when it was to be measured."""
    return any(diagnostic.code is _FAILURES.get(variant) for diagnostic in session.diagnostics)


def plan_speed(session: Session, against: VariantName) -> Speed:
    """Return the speed of the whole call under the plan relative to a variant."""
    return speed_of(session, VariantName.REGIONAL, against)


def speeds_of_try(tuning: Tuning, tried: Try, word: str) -> tuple[Speed, Speed]:
    """Return the speeds of a search's try, which people know by ``word``, against eager and ``torch.compile``."""
    timings = {timing.variant: timing for timing in tuning.timings}

    def speed(title: str, ratio: Figure | None) -> Speed:
        words, other = (word, title), tuning.by_title.get(title)
        if tried.title in timings and title in timings:
            return _compared(words, timings[tried.title], timings[title], tuning.conditions)
        if ratio is not None:  # of a race, whose samples are not kept
            verdict = verdict_of_bounds(ratio.value, ratio.bounds, MIN_FLOOR)
            return Speed(*words, verdict, if_narrow(ratio), why="" if verdict in CONCLUSIONS else ratio.why or EITHER)
        if other is not None and other.numerics.withholds_speedup:
            return Speed(*words, Verdict.WITHHELD, wrong={title: other.numerics})
        failed = other is not None and other.outcome is Outcome.FAILED
        return Speed(*words, Missing.FAILED if failed else Missing.NOT_MEASURED)

    return speed(EAGER, tried.speedup), speed(TORCH_COMPILE, tried.over_full)


# --------------------------------------------------------------------------------------------------------- what to use


def comparison(speeds: Sequence[Speed], of: str, against: str) -> Speed | None:
    """Return the comparison of two variants, given as words, whichever way round it was made; None without one."""
    for speed in (*speeds, *(speed.turned for speed in speeds)):
        if (speed.of, speed.against) == (of, against):
            return speed
    return None


def variant_to_use(speeds: Sequence[Speed], compile_s: Mapping[str, float]) -> str:
    """Return the word of the variant to use; empty if no comparison of it is certain.

    No other is certainly faster. Of several, eager comes first, since it needs no compile; then the one that seems
    faster, or, of two that are equally fast, the one that compiled in less time (``compile_s``, by word).
    """
    both = (*speeds, *(speed.turned for speed in speeds))
    slower = {speed.of for speed in both if speed.is_slower}
    certain = [word for word in WORDS.values() if any(speed.of == word and speed.is_certain for speed in both)]
    best = [word for word in certain if word not in slower]
    chosen = best[0] if best else ""
    for word in best[1:] if chosen != WORDS[VariantName.EAGER] else ():
        speed = comparison(speeds, word, chosen)
        if speed is not None and _is_better(speed, compile_s):
            chosen = word
    return chosen


def _is_better(speed: Speed, compile_s: Mapping[str, float]) -> bool:
    """Return whether to use ``of`` rather than ``against``, if neither is certainly slower."""
    if speed.verdict is Verdict.SAME and {speed.of, speed.against} <= compile_s.keys():
        return compile_s[speed.of] < compile_s[speed.against]
    return speed.speedup is not None and speed.speedup.value > 1.0
