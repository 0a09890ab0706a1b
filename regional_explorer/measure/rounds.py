"""Interleaved rounds of calls: the loop, when it stops, the samples."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, partial
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from regional_explorer.capture.restore import audible
from regional_explorer.compiler.run import Run, T
from regional_explorer.errors import MeasureError, shown_value
from regional_explorer.measure.clock import Clock, CpuClock, TimedCall, Turn, do_nothing
from regional_explorer.measure.machine import Watch, fixed_work
from regional_explorer.record.benchmark import Phase, VariantName, Verdict
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.figure import QUIET, Figure, Noise
from regional_explorer.record.statistics import (
    CONFIDENCE,
    MAX_DRIFT,
    STOP_CHECKS,
    VERDICT_CONFIDENCE,
    Flags,
    Floats,
    confidence_interval,
    floor_of,
    median_figure,
    middle_half,
    paired_ratios,
    verdict_of,
)
from regional_explorer.style.formats import duration

PRECISION = 0.01
"""The relative half width at which the CI of a speedup is narrow enough to stop."""


def check_budget(budget_s: float) -> float:
    """Return the budget, or raise MeasureError unless it is a positive, finite number of seconds."""
    try:
        valid = isinstance(budget_s, Real) and not isinstance(budget_s, bool) and 0 < float(budget_s) < math.inf
    except OverflowError:
        valid = False
    if not valid:
        meaning = "seconds to measure for, such as 5.0"
        raise MeasureError(f"budget_s={shown_value(budget_s)}: give a positive, finite number: {meaning}.")
    return budget_s


class StopReason(StrEnum):
    """Why a run ended."""

    PRECISE = "every speedup is precise enough"
    BUDGET = "the budget is spent"
    DECIDED = "all but one are out of the race"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    BUSY = "too few rounds were undisturbed to add them"
    FAILED = "nothing is left to measure"

    def raise_interrupt(self) -> None:
        """Raise the KeyboardInterrupt that ended the run, if one did; call it once the results are kept."""
        if self is StopReason.INTERRUPTED:
            raise KeyboardInterrupt

    def raise_if_ended(self) -> None:
        """Raise the KeyboardInterrupt or the CancelledError that ended the run, if one did."""
        self.raise_interrupt()
        if self is StopReason.CANCELLED:
            raise CancelledError


ADDED_WITHIN_S = 5.0
"""A run that adds rounds looks this often whether too few of them are undisturbed, and then ends."""

NOT_ADDED = "No rounds were added: the machine was too busy. Measure more once nothing else runs."
"""The remark on a run that continues an earlier one, but whose disturbed rounds cannot be told from the others."""

TOO_BUSY = "the machine was too busy"
"""Why a figure has no interval, if undisturbed rounds cannot be told from disturbed ones."""


@dataclass(frozen=True)
class Parts:
    """The parts that the calls of one variant consist of: seconds by part, one number per round.

    The figure of a part is its mean over the middle half of the rounds by the time of all parts together, so that
    figures add up, and shares to 100 %. Medians of parts do not add up: each part is disturbed now and then, and the
    whole call in nearly every round. The interval is the median's, stretched to the mean where the mean lies outside.
    It has its coverage whatever the distribution; an interval of the mean has not.
    """

    seconds: Mapping[Any, Floats]
    noise: Noise = QUIET

    def by_round(self, keys: Iterable[Any]) -> Floats:
        """Return the summed seconds of some parts, by round."""
        none = 0.0 * next(iter(self.seconds.values()), np.zeros(0))
        return sum((self.seconds[key] for key in keys), start=none)

    @cached_property
    def _weights(self) -> Floats:
        return middle_half(self.by_round(self.seconds))

    def mean(self, keys: Iterable[Any]) -> float:
        """Return the mean of the summed seconds of some parts."""
        return float(self._weights @ self.by_round(keys))

    def figure(self, keys: Iterable[Any]) -> Figure:
        """Return the mean of the summed seconds of some parts, with its interval."""
        seconds = self.by_round(keys)
        mean, median = float(self._weights @ seconds), figure_of(seconds, self.noise)
        low, high = median.bounds or (None, None)
        return Figure(
            mean, low if low is None else min(low, mean), high if high is None else max(high, mean), median.why
        )


def figure_of(values: Floats, noise: Noise) -> Figure:
    """Return the median over rounds with its CI, or why there is no CI."""
    return median_figure(values, TOO_BUSY if noise.is_too_much else "")


class Raised(NamedTuple):
    """What a variant raised, and when: ``fact`` begins with its name."""

    fact: str
    error: str

    def __str__(self) -> str:
        """Return both."""
        return f"{self.fact}: {self.error}"


def variant_failed_diagnostic(variant: str, raised: Raised) -> Diagnostic:
    """Return the finding of a variant that raised."""
    of_variant = {VariantName.REGIONAL: DiagnosticCode.PLAN_FAILED, VariantName.FULL: DiagnosticCode.FULL_FAILED}
    code = of_variant.get(VariantName(variant), DiagnosticCode.VARIANT_FAILED)
    remedy = "The other variants were measured; call this one by hand to see the full traceback."
    return code.finding(f"Variant {raised.fact}", f": {raised.error}", remedy=remedy)


@dataclass(frozen=True, slots=True)
class RoundsResult:
    """The samples of a run, from complete undisturbed rounds; a variant that raised keeps its earlier samples.

    A run may continue an earlier one: then samples, ``rounds``, ``budget_s`` and ``noise`` are those of all its
    ``benchmarks``.

    ``samples`` has seconds per call by variant and phase, in the order of the rounds; ``control`` has those of the
    baseline's second entry, empty without a control. ``parts`` has the parts of the variants that are divided into any.
    ``dropped`` says by variant what it raised, and when. ``pruned`` are the variants that were taken out because they
    needed no more rounds. ``rounds`` counts all rounds, ``noise`` says how many were left out. On a GPU, ``warnings``
    says which variants are launch-bound, and ``gpu`` is the GPU's state before and after.
    """

    baseline: str
    budget_s: float
    samples: Mapping[str, Mapping[Phase, tuple[float, ...]]]
    control: Mapping[Phase, tuple[float, ...]]
    dropped: Mapping[str, Raised]
    rounds: int
    calls_per_sample: int
    spent_s: float
    stopped: StopReason
    noise: Noise = QUIET
    parts: Mapping[str, Parts] = field(default_factory=dict)
    warnings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gpu: str = ""
    pruned: tuple[str, ...] = ()
    benchmarks: int = 1

    def of(self, names: Mapping[str, str]) -> RoundsResult:
        """Return the rounds of some of the variants under other ``names``, which are given by their own."""
        samples = {names[own]: samples for own, samples in self.samples.items() if own in names}
        dropped = {names[own]: why for own, why in self.dropped.items() if own in names}
        return dataclasses.replace(self, samples=samples, dropped=dropped, pruned=())

    def can_continue(self, names: Collection[str], baseline: str) -> bool:
        """Return whether rounds of these variants can be added: a ratio needs samples of both in every round."""
        is_whole = not self.dropped and not self.pruned and self.samples.keys() == set(names)
        return is_whole and self.baseline == baseline and not self.parts and not self.noise.has_kept

    def continued(self, later: RoundsResult) -> RoundsResult:
        """Return these rounds followed by the rounds of a later run of the same variants.

        Ratios are taken within a round, so a machine that is slower in the later run changes none of them. Disturbed
        rounds would change them: a run that has kept some is not added.
        """
        if later.noise.has_kept:
            noise = replace(self.noise, added=NOT_ADDED)
            return dataclasses.replace(self, noise=noise, stopped=later.stopped, spent_s=later.spent_s)
        noise = self.noise + later.noise
        return dataclasses.replace(
            later,
            budget_s=self.budget_s + later.budget_s,
            samples={name: _joined(samples, later.samples.get(name, {})) for name, samples in self.samples.items()},
            control=_joined(self.control, later.control),
            rounds=self.rounds + later.rounds,
            noise=replace(noise, added=self._drift(later) or ("" if noise.added == NOT_ADDED else noise.added)),
            benchmarks=self.benchmarks + 1,
        )

    def _drift(self, later: RoundsResult) -> str:
        """Return a sentence if a later run's baseline differs beyond its interval and 2 %, else an empty text."""
        phase = list(self.samples[self.baseline])[-1]
        if not later.samples.get(self.baseline, {}).get(phase):
            return ""
        before, after = self.time(self.baseline, phase), later.time(self.baseline, phase)
        low, high = (figure.bounds for figure in sorted((before, after), key=lambda figure: figure.value))
        if low is None or high is None or high[0] <= low[1] or high[0] / low[1] <= 1.0 + MAX_DRIFT:
            return ""
        times = f"{duration(before.value)} in the benchmark before and {duration(after.value)} in this one"
        return f"{self.baseline.capitalize()} took {times}: times are of both benchmarks, ratios are within a round."

    @property
    def failures(self) -> list[Diagnostic]:
        """A diagnostic for each variant that raised."""
        return [variant_failed_diagnostic(variant, raised) for variant, raised in self.dropped.items()]

    def time(self, variant: str, phase: Phase) -> Figure:
        """Return the median time of a variant."""
        return figure_of(np.array(self.samples[variant][phase]), self.noise)

    def ratio(self, variant: str, phase: Phase, baseline: str | None = None) -> Figure | None:
        """Return the median over rounds of baseline / variant, or None if one of them was not measured."""
        ratios = self.ratios(variant, phase, baseline)
        return None if ratios is None else figure_of(ratios, self.noise)

    def ratios(self, variant: str, phase: Phase, baseline: str | None = None) -> Floats | None:
        """Return baseline / variant by round, or None if one of them was not measured.

        ``baseline`` is that of the run unless another variant is given.
        """
        return self._ratios_to(self.samples.get(variant, {}), phase, baseline)

    def control_ratios(self, phase: Phase) -> Floats | None:
        """Return baseline / baseline by round, or None without a control."""
        return self._ratios_to(self.control, phase)

    def _ratios_to(
        self, seconds: Mapping[Phase, Sequence[float]], phase: Phase, baseline: str | None = None
    ) -> Floats | None:
        baseline_s, variant_s = self.samples.get(baseline or self.baseline, {}).get(phase), seconds.get(phase)
        return paired_ratios(baseline_s, variant_s) if baseline_s and variant_s else None

    def floor(self, phase: Phase) -> float:
        """Return the smallest relative difference that counts, given how far the baseline differs from its control."""
        return floor_of(self.control_ratios(phase))

    def verdict(self, variant: str, phase: Phase, baseline: str | None = None) -> Verdict:
        """Return the verdict on a variant against the baseline; unknown if either was not measured."""
        ratios = self.ratios(variant, phase, baseline)
        return Verdict.UNKNOWN if ratios is None else verdict_of(ratios, self.floor(phase), self.noise, self.benchmarks)

    def is_precise(self) -> bool:
        """Return whether the CI of every speedup (of every median, if there is no baseline) is narrow enough.

        The control counts too: if its CI is wide, its high floor hides small differences. The parts of a call never are
        precise enough: they use the whole budget. A pruned variant gets no more rounds, so its precision does not
        count.
        """
        variants = [
            (name, phase)
            for name, phases in self.samples.items()
            if name != self.baseline and name not in self.pruned
            for phase in phases
        ]
        all_ratios = [self.ratios(*variant) for variant in variants] + [
            self.control_ratios(phase) for phase in self.control
        ]
        figures = [ratios for ratios in all_ratios if ratios is not None]
        figures = figures or [np.array(seconds) for phases in self.samples.values() for seconds in phases.values()]
        return not self.noise.is_too_much and not self.parts and all(map(_is_narrow, figures))


_Samples = Mapping[Phase, tuple[float, ...]]
"""Seconds per call by phase, in the order of the rounds."""


def _joined(earlier: _Samples, later: _Samples) -> _Samples:
    return {phase: (*seconds, *later.get(phase, ())) for phase, seconds in earlier.items()}


def _is_narrow(values: Floats) -> bool:
    bounds = confidence_interval(values, CONFIDENCE)
    if bounds is None or confidence_interval(values, VERDICT_CONFIDENCE) is None:
        return False
    half_width = (bounds[1] - bounds[0]) / 2.0
    return half_width <= PRECISION * float(np.median(values))


SAMPLE_S = 1e-3
"""Seconds a sample should last: long compared with its overhead, short compared with changes of a busy machine. In the
same time, many short samples say more than few long ones, because disturbances last for milliseconds."""

FIRST_CALLS = 3
"""The number of calls of each variant before the budget begins; they may compile, tune or record."""

COLD_MATTERS_S = 0.02
"""A variant that follows itself is up to 0.1 ms faster than after another: 0.5 % of a call of this length."""

_WARMUP_SHARE = 0.1
_STEADY_RATIO = 0.98
_REPORT_EVERY_S = 0.25
"""A page that shows a report disturbs the samples after it."""
_TARGET_ROUNDS = 50
_MAX_ROUNDS = 2000
_MIN_ROUNDS_WITH_CONTROL = 10
"""With fewer rounds there is no verdict, so a control would have no effect."""

_CONTROL_ENTRY = "\0control"


Prune = Callable[[RoundsResult], Collection[str]]
"""Called whenever a run could stop, with the results so far; returns the variants that need no more rounds."""


def keep_all(_result: RoundsResult) -> Collection[str]:
    """Return no variant."""
    return ()


def run_rounds(  # noqa: PLR0913 - options by keyword
    timed_calls: Sequence[TimedCall],
    budget_s: float = 5.0,
    *,
    baseline: str = "eager",
    seed: int = 0,
    clock: Clock[Any] | None = None,
    context: Run | None = None,
    first_calls: int = FIRST_CALLS,
    between: Callable[[], object] = do_nothing,
    turn: Turn = nullcontext,
    prune: Prune = keep_all,
    earlier: RoundsResult | None = None,
) -> RoundsResult:
    """Measure the calls against each other.

    A call that raises is dropped and the others continue; an interrupt ends the run. The result has the samples that
    were measured before; the caller keeps them, then raises the interrupt again (``StopReason.raise_interrupt``).

    Args:
        timed_calls: the variants, with distinct names.
        budget_s: seconds for all of them together; first calls, which may compile, are not counted.
        baseline: the name of the variant that the others are compared with. Without it there are no speedups.
        seed: the seed of the random order in the rounds.
        clock: the clock of the device; the host's by default.
        context: ``cancelled`` is called between samples, and ends the run when it returns True; ``progress`` before a
            variant is warmed up, and after a round if the last report was 0.25 s ago: it takes time outside of samples.
        first_calls: how often each variant is called before the budget begins.
        between: called before the first round, wherever the run could stop early, and after the last, so that it sees
            the same machine as the rounds do; not counted in the budget.
        turn: gives a context manager for each part of the timed work, as ``in_state_of_call`` yields it.
        prune: takes variants out of the rounds that follow; the others get their time. The baseline stays. The number
            of calls per sample stays too, so that samples of all rounds can be compared.
        earlier: the rounds of an earlier run, which this one adds to if it measured the same variants.

    Raises:
        MeasureError: there is no call, or all of them raised before the first round was complete.
    """
    clock = clock or CpuClock()
    watch = Watch(clock, fixed_work(clock))
    if earlier is not None and not earlier.can_continue([timed_call.name for timed_call in timed_calls], baseline):
        earlier = None
    run = _RoundsRun(
        timed_calls,
        check_budget(budget_s),
        baseline,
        seed if earlier is None else seed + earlier.rounds,
        clock,
        context or Run(),
        watch,
        first_calls,
        between,
        turn,
        prune,
        earlier,
    )
    stopped = run.go()
    if stopped is StopReason.FAILED and not run.history:
        raise MeasureError("No variant could be measured. " + " ".join(map(str, run.dropped.values())))
    return run.result(stopped)


@dataclass
class _RoundsRun:
    """The state of one run. Every entry is sampled once per round; the control is a second entry of the baseline.

    ``separate`` says that calls are so short that a sample must not follow one of the same variant. ``last_call`` ran
    last.
    """

    timed_calls: Sequence[TimedCall]
    budget_s: float
    baseline: str
    seed: int
    clock: Clock[Any]
    context: Run
    watch: Watch
    first_calls: int
    between: Callable[[], object]
    turn: Turn
    prune: Prune
    earlier: RoundsResult | None
    entries: dict[str, TimedCall] = field(default_factory=dict)
    dropped: dict[str, Raised] = field(default_factory=dict)
    pruned: list[str] = field(default_factory=list)
    history: list[dict[str, Mapping[Any, float]]] = field(default_factory=list)
    calls: int = 1
    began_s: float | None = None
    queued_s: float = 0.0
    reported_s: float = -math.inf
    separate: bool = False
    last_call: TimedCall | None = None

    def go(self) -> StopReason:
        """Warm up and measure; return why the run ended."""
        self.entries = {timed_call.name: timed_call for timed_call in self.timed_calls}
        try:
            self._run_first_calls()
            self._run_aside(self.between)
            self.began_s, self.queued_s = self.clock.now(), 0.0
            self._run_timed(self.watch.begin)
            self._choose_calls_per_sample(self._warm_up())
            stopped = self._measure_rounds()
            self._run_aside(self.between)
        except CancelledError:
            return StopReason.CANCELLED
        except KeyboardInterrupt:
            return StopReason.INTERRUPTED
        return stopped

    def result(self, stopped: StopReason) -> RoundsResult:
        """Return the result so far."""
        quiet, noise = self._used_rounds()
        names = [*(timed_call.name for timed_call in self.timed_calls), _CONTROL_ENTRY]
        history = [seconds for seconds, is_quiet in zip(self.history, quiet, strict=True) if is_quiet]
        # A dropped entry has samples of the first rounds only.
        by_entry = {name: [seconds[name] for seconds in history if name in seconds] for name in names}
        samples = {
            name: {phase: tuple(sample[phase] for sample in rounds) for phase in Phase if phase in rounds[0]}
            for name, rounds in by_entry.items()
            if rounds
        }
        parts = {
            timed_call.name: Parts(_seconds_by_part(by_entry[timed_call.name]), noise)
            for timed_call in self.timed_calls
            if timed_call.parts is not None and by_entry[timed_call.name]
        }
        control = samples.pop(_CONTROL_ENTRY, {})
        undisturbed = RoundsResult(
            baseline=self.baseline,
            budget_s=self.budget_s,
            samples=samples,
            control=control,
            dropped=dict(self.dropped),
            rounds=len(self.history),
            calls_per_sample=self.calls,
            spent_s=self._spent_s(),
            stopped=stopped,
            noise=noise,
            parts=parts,
            pruned=tuple(self.pruned),
        )
        return undisturbed if self.earlier is None else self.earlier.continued(undisturbed)

    def _used_rounds(self) -> tuple[Flags, Noise]:
        return self.watch.used_rounds(len(self.history), QUIET if self.earlier is None else self.earlier.noise)

    def _run_first_calls(self) -> None:
        for name in list(self.entries):
            self._report_progress(f"first calls of {name}")
            for _ in range(self.first_calls):
                if self._run_timed(partial(self._sample_entry, name, 1)) is None:
                    break

    def _warm_up(self) -> dict[str, float]:
        """Return the wall seconds that one call of each variant takes after warming up."""
        share_s = self.budget_s * _WARMUP_SHARE / max(1, len(self.entries))
        costs = {}
        for name in list(self.entries):
            self._report_progress(f"warming up {name}")
            cost_s = self._run_timed(partial(self._steady_cost, name, share_s))
            if cost_s is not None:
                costs[name] = cost_s
        return costs

    def _steady_cost(self, name: str, share_s: float) -> float | None:
        """Call one variant until it gets no faster; return the wall seconds of a call, or None if it raised."""
        began_s, calls, best_s = self.clock.now(), 1, math.inf
        while True:
            before_s = self.clock.now()
            if self._sample_entry(name, calls) is None:
                return None
            after_s = self.clock.now()
            took_s = after_s - before_s
            steady = took_s >= SAMPLE_S and took_s / calls >= best_s * _STEADY_RATIO
            best_s = min(best_s, took_s / calls)
            if steady or after_s - began_s >= share_s:
                return best_s
            # Double the block until it takes as long as a sample, then repeat that length.
            calls = calls * 2 if took_s < SAMPLE_S else calls

    def _choose_calls_per_sample(self, costs: Mapping[str, float]) -> None:
        """Choose the number of calls per sample, and add a control if the budget allows it.

        All variants use the same number: the first call after another variant finds cold caches.
        """
        if not costs:
            return
        self.separate = max(costs.values()) < COLD_MATTERS_S
        budget_s = self.budget_s
        bare_s = sum(costs.values())  # a round of one call each, without the control
        round_s = max(bare_s + costs.get(self.baseline, 0.0), 1e-9)
        long_enough = math.ceil(SAMPLE_S / max(min(costs.values()), 1e-9))
        few_enough = math.ceil(budget_s / (_MAX_ROUNDS * round_s))
        self.calls = max(1, min(max(long_enough, few_enough), int(budget_s / (_TARGET_ROUNDS * round_s))))
        has_time = budget_s >= _MIN_ROUNDS_WITH_CONTROL * self.calls * bare_s
        if self.earlier is not None:  # samples of both runs are alike, and a control is in all rounds
            self.calls, has_time = self.earlier.calls_per_sample, bool(self.earlier.control)
        if has_time and self.baseline in self.entries and len(self.entries) > 1:
            self.entries[_CONTROL_ENTRY] = self.entries[self.baseline]

    def _measure_rounds(self) -> StopReason:
        order = random.Random(self.seed)  # noqa: S311 - an order, not a secret
        budget_s, first_s = self.budget_s, self._spent_s()
        checks, due_s = list(STOP_CHECKS), ADDED_WITHIN_S
        while self.entries:
            round_s = (self._spent_s() - first_s) / max(1, len(self.history))
            if self.history and self._spent_s() + round_s > budget_s:
                return StopReason.BUDGET
            self._run_timed(lambda: self._run_round(order))
            if self.clock.now() >= self.reported_s + _REPORT_EVERY_S:
                self._report_progress(f"round {len(self.history)}")
            if self.earlier is not None and self._spent_s() >= due_s:
                due_s += ADDED_WITHIN_S
                if self._used_rounds()[1].has_kept:
                    return StopReason.BUSY
            if checks and self._spent_s() >= checks[0] * budget_s:
                checks = [check for check in checks if check * budget_s > self._spent_s()]
                self._run_aside(self.between)
                self._take_out(self.prune(self.result(StopReason.PRECISE)))
                if self.pruned and not set(self.entries) - {self.baseline, _CONTROL_ENTRY}:
                    return StopReason.DECIDED
                if self.result(StopReason.PRECISE).is_precise():
                    return StopReason.PRECISE
        return StopReason.FAILED

    def _take_out(self, names: Collection[str]) -> None:
        """Stop sampling the variants ``names``."""
        out = [name for name in self.entries if name in names and name not in (self.baseline, _CONTROL_ENTRY)]
        self.pruned += out
        self.entries = {name: call for name, call in self.entries.items() if name not in out}

    def _run_round(self, order: random.Random) -> None:
        """Sample every entry once, each after another variant. Only a complete round is added to the history."""
        names = list(self.entries)
        order.shuffle(names)
        self.watch.open_round()
        samples_of_round = {}
        for name in names:
            self._run_another_before(name, order)
            sample = self._sample_entry(name, self.calls) if name in self.entries else None
            if sample is not None:
                samples_of_round[name] = sample
        if samples_of_round:
            self.watch.close_round()
            self.history.append(samples_of_round)

    def _run_another_before(self, entry: str, order: random.Random) -> None:
        """Call another variant once if the variant of ``entry`` ran last and would find its caches warm.

        Otherwise the baseline would be favoured: it has two entries, so it would often follow itself.
        """
        if self.separate and self.entries.get(entry) is self.last_call:
            others = [name for name, call in self.entries.items() if call is not self.last_call]
            if others:
                self._sample_entry(order.choice(others), 1)

    def _sample_entry(self, entry: str, calls: int) -> Mapping[Any, float] | None:
        """Return one sample, or remove the call's entries and return None if it raised."""
        if self.context.cancelled():
            raise CancelledError
        timed_call = self.last_call = self.entries[entry]
        try:
            return timed_call.sample(self.clock, calls)
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything; the other variants go on
            self.entries = {name: call for name, call in self.entries.items() if call is not timed_call}
            moment = f"in round {len(self.history) + 1}" if self.history else "before the first round was complete"
            # Keep only the text: an exception holds its frames, and those hold tensors.
            self.dropped[timed_call.name] = Raised(
                f"'{timed_call.name}' raised {type(error).__name__} {moment}", str(error)
            )
            return None

    def _spent_s(self) -> float:
        return 0.0 if self.began_s is None else self.clock.now() - self.began_s - self.queued_s

    def _run_timed(self, work: Callable[[], T]) -> T:
        """Run timed work; time spent waiting for the thread is not counted in the budget."""
        requested_s = self.clock.now()

        def begin() -> T:
            waited_s = self.clock.now() - requested_s
            self.queued_s += waited_s
            self.watch.waited_s += waited_s
            with self.turn():
                return work()

        return self.context.threads.run_timed(begin)

    def _run_aside(self, work: Callable[[], object]) -> None:
        """Run timed work that is not counted in the budget."""
        began_s, self.watch.before_s = self.clock.now(), None

        def begin() -> None:
            with self.turn():
                work()

        self.context.threads.run_timed(begin)
        self.queued_s += self.clock.now() - began_s

    def _report_progress(self, doing: str) -> None:
        self.reported_s, self.watch.before_s = self.clock.now(), None
        with audible():  # only what the call prints is muted
            self.context.estimate(max(0.0, self.budget_s - self._spent_s()))
            self.context.progress(doing, min(1.0, self._spent_s() / self.budget_s))


def _seconds_by_part(rounds: Sequence[Mapping[Any, float]]) -> dict[Any, Floats]:
    """Return the seconds of each part by round, 0 in a round in which it did not run."""
    keys = dict.fromkeys(key for sample in rounds for key in sample if not isinstance(key, Phase))
    return {key: np.array([sample.get(key, 0.0) for sample in rounds]) for key in keys}
