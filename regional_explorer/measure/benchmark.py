"""Checks and measures the variants of a call."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec.structs import replace

from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run import Run
from regional_explorer.compiler.switch import Switch
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.memory import gauge_for, memory_peak
from regional_explorer.measure.numerics import (
    Reference,
    compare_results,
    nondeterministic,
    not_comparable,
    run_once,
    verdict,
    with_confirmed_failures,
)
from regional_explorer.measure.reference import (
    comparable_if_in_order,
    find_reference,
    recheck_eager,
    rows_with_eager_random_numbers,
)
from regional_explorer.measure.rounds import Raised, RoundsResult, StopReason, variant_failed_diagnostic
from regional_explorer.measure.timings import MeasureContext, conditions_of, measure_rounds, timings_of
from regional_explorer.measure.turns import in_state_of_call
from regional_explorer.measure.variants import TWIN_OF_FULL, Variants, compile_failed_diagnostic
from regional_explorer.record.benchmark import (
    BY_TORCH,
    TWIN_NOTE,
    CompileCost,
    Conditions,
    MemoryPeak,
    Numerics,
    NumericsVerdict,
    PartitionTiming,
    Phase,
    ReconciliationRow,
    Timing,
    VariantName,
    Verdict,
)
from regional_explorer.record.configs import RANDOM_AS_EAGER
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.environment import Environment
from regional_explorer.record.figure import Noise
from regional_explorer.torch_api.torch_config import read_config

MEMORY_SHARE = 0.25
"""The time for reading the memory of all variants, as a share of the budget and in addition to it."""


@dataclass
class BenchmarkResults:
    """The results of a benchmark so far. They are filled in place, so that an interrupt loses nothing.

    ``cures`` has, by partition measured alone, the config under which it passes its numerics check; None if none was
    found. ``rounds`` are the rounds of the call, ``cut`` those of the cut graph with all regions eager against
    ``aot_eager``. ``verdicts`` are those of ``check_numerics``. A benchmark adds its rounds to these if
    ``environment`` is the same.
    """

    timings: list[Timing] = field(default_factory=list)
    conditions: Conditions | None = None
    numerics: list[Numerics] = field(default_factory=list)
    costs: list[CompileCost] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    memory: list[MemoryPeak] = field(default_factory=list)
    partition_timings: list[PartitionTiming] = field(default_factory=list)
    partition_numerics: list[Numerics] = field(default_factory=list)
    cures: dict[str, Mapping[str, Any] | None] = field(default_factory=dict)
    rounds: RoundsResult | None = None
    verdicts: tuple[Mapping[str, NumericsVerdict], Mapping[str, NumericsVerdict]] = ({}, {})
    cut: RoundsResult | None = None
    environment: Environment | None = None
    reconciliation: tuple[ReconciliationRow, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether the call was measured for as long as it had to be."""
        return self.rounds is not None and self.rounds.stopped in (StopReason.PRECISE, StopReason.BUDGET)

    def add_verdicts(self, verdicts: Mapping[str, NumericsVerdict], against: Mapping[str, NumericsVerdict]) -> None:
        """Add the verdicts of a check of further variants."""
        self.verdicts = {**self.verdicts[0], **verdicts}, {**self.verdicts[1], **against}

    def add_rounds(self, rounds: RoundsResult, environment: Environment) -> None:
        """Add the rounds of the checked variants, with timings and conditions."""
        self.rounds, self.environment, self.timings = rounds, environment, [*timings_of(rounds, *self.verdicts)]
        self.conditions = conditions_of(rounds, environment)
        self.diagnostics += rounds.failures

    def add_noise(self, noise: Noise) -> None:
        """Add the noise of a further measurement of the same benchmark."""
        if self.conditions is not None:
            self.conditions = replace(self.conditions, noise_beside=(*self.conditions.noise_beside, noise))


def benchmark(
    variants: Variants,
    names: Sequence[VariantName],
    budget_s: float,
    context: MeasureContext,
    results: BenchmarkResults,
) -> bool:
    """Check and measure the variants ``names``, adding to ``results``; return whether it was completed.

    If ``results`` has rounds already, rounds are added to them, and nothing else is done.

    Raises:
        MeasureError: no variant could be measured.
        KeyboardInterrupt: it was interrupted.
    """
    run, untimed = context.run, context.run.threads.run_untimed
    before = results.conditions if results.rounds is not None else None
    compiling = run.part(0.0, 1.0, then_s=budget_s)
    ready = untimed(lambda: _compile(variants, names, compiling, results if before is None else BenchmarkResults()))
    traces = variants.traces()
    if run.cancelled():
        return False
    if before is None:
        results.verdicts = check_numerics(variants, ready, run, results)
    if run.cancelled():
        return False
    timed_calls = [variants.get(name) for name in ready]
    with in_state_of_call(variants, run) as turn:
        timing = dataclasses.replace(context, turn=turn)
        rounds = measure_rounds(timed_calls, budget_s, timing, baseline=VariantName.EAGER, earlier=results.rounds)
    results.add_rounds(rounds, context.environment)
    results.timings = [*_without_verdict(results.timings, variants.traced_since(traces), variants.given_up())]
    rounds.stopped.raise_interrupt()
    if not results.is_complete:
        return False
    if before is not None and results.conditions is not None:
        beside, left_out = before.noise_beside, before.memory_left_out
        results.conditions = replace(results.conditions, noise_beside=beside, memory_left_out=left_out)
        return True
    _read_memory(variants, timed_calls, rounds, budget_s, context, results)
    return True


def _read_memory(
    variants: Variants,
    timed_calls: Sequence[TimedCall],
    rounds: RoundsResult,
    budget_s: float,
    context: MeasureContext,
    results: BenchmarkResults,
) -> None:
    """Read the peak memory of each variant, except for variants whose call takes longer than their share of time."""
    run, gauge = context.run, gauge_for(context.environment.device)
    measured = [timed_call for timed_call in timed_calls if timed_call.name not in rounds.dropped]
    share_s = MEMORY_SHARE * budget_s / max(1, len(measured))
    left_out = []
    for number, timed_call in enumerate(measured):
        if gauge is None or run.cancelled():
            return
        phases = rounds.samples.get(timed_call.name, {})
        if statistics.median(phases.get(Phase.STEP) or phases.get(Phase.FORWARD) or (0.0,)) > share_s:
            left_out.append(timed_call.name)
            continue
        run.estimate((len(measured) - number) * share_s)
        run.progress(f"reading the memory of {timed_call.name}", 1.0)
        read = partial(memory_peak, variants, timed_call, gauge, share_s)
        results.memory.append(run.threads.run_untimed(read))
    if left_out and results.conditions is not None:
        results.conditions = replace(results.conditions, memory_left_out=tuple(left_out))


def _compile(
    variants: Variants, names: Sequence[VariantName], run: Run, results: BenchmarkResults
) -> list[VariantName]:
    """Compile the variants that torch compiles; return the variants that can run."""
    ready = []
    for name in names:
        if run.cancelled():
            break
        if name in BY_TORCH:
            run.estimate(variants.expected_s if name is VariantName.FULL else None)
            run.progress(_COMPILE_TASKS[name], 0.0)
            try:
                compiled = variants.compile(name, run.cancelled)
            except CancelledError:
                break
            except Exception as error:  # noqa: BLE001 - Dynamo and Inductor may raise anything; other variants go on
                results.diagnostics.append(compile_failed_diagnostic(name, error))
                continue
            results.costs.append(compiled.cost)
            results.diagnostics += compiled.findings
        ready.append(name)
    return ready


_COMPILE_TASKS = {
    VariantName.FULL: "compiling the whole call with torch.compile",
    VariantName.UPSTREAM: "compiling the marks with upstream's regional_inductor",
    VariantName.LITE: "compiling the marks with torch.compile(mode='lite')",
}


def check_numerics(
    variants: Variants, ready: list[VariantName], run: Run, results: BenchmarkResults
) -> tuple[Mapping[str, NumericsVerdict], Mapping[str, NumericsVerdict]]:
    """Compare the variants with eager; return their verdicts. A variant that raises is reported and leaves ``ready``.

    If the trace differs from eager, variants that differ from eager are also compared with the trace, which gives the
    second verdicts. Before a variant is called wrong, eager runs once more: it may differ from itself in few runs only.
    """
    call, program, untimed = variants.call, variants.program, run.threads.run_untimed
    run.estimate(None)
    run.progress("checking numerics: eager", 0.0)
    reference = untimed(lambda: find_reference(call, program, run.cancelled))
    results.diagnostics += reference.diagnostics
    verdicts: dict[str, NumericsVerdict] = {}
    against_trace: dict[str, NumericsVerdict] = {}
    for name in [name for name in ready if name is not VariantName.EAGER]:
        if run.cancelled():
            break
        run.progress(f"checking numerics: {name}", 0.0)
        try:
            rows = untimed(partial(_numerics_rows, variants, name, reference, run, results))
            if reference.trace is not None and verdict(rows) is NumericsVerdict.FAILED:
                against = partial(_numerics_rows, variants, name, reference.trace, run, results)
                against_trace[name] = verdict(untimed(against))
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything; the other variants go on
            ready.remove(name)
            fact = f"'{name}' raised {type(error).__name__} when its results were to be compared with eager's"
            raised = Raised(fact, (str(error).splitlines() or [""])[0])
            results.diagnostics.append(variant_failed_diagnostic(name, raised))
            continue
        if verdict(rows) is NumericsVerdict.FAILED:
            rechecked = untimed(partial(recheck_eager, reference, partial(run_once, call)))
            if rechecked.nondeterministic:
                reference, rows = rechecked, nondeterministic(rows)
                results.numerics[:] = nondeterministic(results.numerics)
                verdicts = dict.fromkeys(verdicts, NumericsVerdict.NOT_COMPARABLE)
                results.diagnostics += rechecked.diagnostics
        results.numerics += rows
        verdicts[name] = verdict(rows)
    verdicts[VariantName.EAGER] = (
        NumericsVerdict.NOT_COMPARABLE if reference.nondeterministic else NumericsVerdict.REFERENCE
    )
    return verdicts, against_trace


def _numerics_rows(
    variants: Variants, name: VariantName, reference: Reference, run: Run, results: BenchmarkResults
) -> tuple[Numerics, ...]:
    call, program, function = variants.call, variants.program, variants.function(name)
    random_switches = [switch for switch in program.switches if switch.piece.is_random]
    has_other_numbers = call.is_random and _has_other_random_numbers(program, name, random_switches)

    def rows_under(config: Mapping[str, Any], note: str) -> tuple[Numerics, ...]:
        with program.using_twins(random_switches if config else [], config):
            return with_confirmed_failures(lambda: compare_results(name, run_once(call, function), reference, note))

    with program.selected():
        variants.select(name)
        if has_other_numbers:  # a second call and rounding do not explain that
            rows = compare_results(name, run_once(call, function), dataclasses.replace(reference, moves=None))
            if verdict(rows) is NumericsVerdict.FAILED and name is VariantName.FULL:
                return _rows_of_twin(variants, reference, rows, run, results)
            return not_comparable(rows, f"{OTHER_NUMBERS}; try fallback_random")
        if name is VariantName.REGIONAL and random_switches:
            return rows_with_eager_random_numbers(rows_under, (switch.piece.gm for switch in random_switches))
        return rows_under({}, "")


OTHER_NUMBERS = "Inductor draws its own random numbers"


def _rows_of_twin(
    variants: Variants, reference: Reference, rows: Sequence[Numerics], run: Run, results: BenchmarkResults
) -> tuple[Numerics, ...]:
    """Return the rows of a twin of ``full`` that draws eager's random numbers; if it fails, ``rows`` not comparable."""
    if run.cancelled():
        raise CancelledError
    run.progress(f"compiling {TWIN_OF_FULL}", 0.0)
    try:
        with variants.twin_of_full(RANDOM_AS_EAGER) as twin:
            results.costs.append(twin.cost)
            rows_of_twin = with_confirmed_failures(
                lambda: compare_results(VariantName.FULL, run_once(variants.call, twin.function), reference, TWIN_NOTE)
            )
            return comparable_if_in_order(rows_of_twin, (live.gm for live in variants.program.capture.live))
    except CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever torch raises: full itself has run
        why = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        return not_comparable(rows, f"{OTHER_NUMBERS}, and a twin with fallback_random fails: {why}")


def _has_other_random_numbers(program: Program, name: VariantName, random_switches: Sequence[Switch]) -> bool:
    """Return whether a variant draws other random numbers than eager, because torch compiles ops that draw them."""
    key = "fallback_random"
    default = read_config([key])[key]
    if name is VariantName.UPSTREAM:
        return not all(program.config_for(switch).get(key, default) for switch in random_switches)
    return name in BY_TORCH and not default


def _without_verdict(
    timings: Sequence[Timing], traces: Mapping[VariantName, int], given_up: Collection[VariantName]
) -> Sequence[Timing]:
    """Return the timings, without verdicts on variants that Dynamo traced again while timed, or had given up on."""
    means = "new graphs run eagerly, and the diagnostics say why"
    reasons = {
        name: f"Dynamo traced the call again ({count} new graphs) while it was measured: no verdict; "
        f"{'the samples include compiles' if name in BY_TORCH else means}"
        for name, count in traces.items()
    }
    for name in given_up:
        reasons.setdefault(
            name, "Dynamo reached its recompile limit: part of the call runs in plain Python now; no verdict"
        )
    return [
        replace(
            timing,
            verdict=timing.verdict if timing.verdict is Verdict.WITHHELD else Verdict.NONE,
            against_trace=None,
            warnings=(*timing.warnings, reasons[name]),
        )
        if (name := VariantName(timing.variant)) in reasons
        else timing
        for timing in timings
    ]
