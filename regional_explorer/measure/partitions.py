"""Benchmarks each distinct partition by itself, compiled against eager, on inputs recorded from the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from regional_explorer.capture.restore.random_state import RandomState
from regional_explorer.capture.restore.undo_log import UndoLog
from regional_explorer.compiler.input_recording import Recorded, record_inputs
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.switch import Switch
from regional_explorer.errors import MeasureError
from regional_explorer.measure.accuracy.partition_check import VARIANT, Check, check_partition
from regional_explorer.measure.timing.benchmark_options import BenchmarkOptions
from regional_explorer.measure.timing.clock import Clock
from regional_explorer.measure.timing.executor import SAME_THREAD, Executor
from regional_explorer.measure.timing.machine import device_state, launch_warnings, throttled
from regional_explorer.measure.timing.rounds import run_rounds
from regional_explorer.measure.timing.rounds_result import Progress, Stop
from regional_explorer.measure.timing.summary import summarize
from regional_explorer.measure.timing.timed_call import TimedCall
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.session import Environment
from regional_explorer.record.timing import Numerics, NumericsVerdict, PartitionTiming, Phase, Timing
from regional_explorer.torch_api import outside_autocast

EAGER = "eager"


@dataclass
class PartitionResults:
    """What measuring partitions alone found, filled in as it goes.

    ``cures`` has the config under which a partition passes the numerics check, None where none was found.
    """

    timings: list[PartitionTiming] = field(default_factory=list)
    numerics: list[Numerics] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    cures: dict[str, Mapping[str, Any] | None] = field(default_factory=dict)


def measure_partitions(
    program: Program,
    options: BenchmarkOptions,
    environment: Environment,
    clock: Clock[Any],
    partition_results: PartitionResults,
    *,
    cancelled: Callable[[], bool],
    progress: Callable[[str, float], None],
    executor: Executor = SAME_THREAD,
) -> None:
    """Measure one partition of each kind, writing into ``partition_results``; others of its kind take over its figures.

    Of one kind are those that share an artifact and whose inputs have equal layouts. What one kind leaves of its share
    of the budget goes to the next.
    """
    kinds = executor.run_untimed(lambda: distinct(program))
    left_s = options.budget_s
    for done, switches in enumerate(kinds):
        name = switches[0].partition.name
        if cancelled():
            return
        progress(f"{name} alone ({done + 1} of {len(kinds)})", done / len(kinds))

        def on_progress(stage: Progress, name: str = name, done: int = done) -> None:
            progress(f"{name} alone: {stage.doing}", (done + stage.fraction) / len(kinds))

        share = replace(options, budget_s=max(left_s, options.budget_s / 100) / (len(kinds) - done))
        measured = _PartitionKind(program, switches, share, environment, clock, partition_results, executor)
        spent_s, stopped = measured.go(cancelled, on_progress)
        left_s -= spent_s
        if stopped in (Stop.CANCELLED, Stop.INTERRUPTED):
            return


def distinct(program: Program) -> list[list[Switch]]:
    """Return the partitions by kind: those that share an artifact and whose inputs have equal layouts are of one."""
    program.record_layouts()
    program.apply_artifacts()
    kinds: dict[tuple[Any, ...], list[Switch]] = {}
    for switch in program.switches:
        key = switch.artifact.key if switch.artifact is not None else None
        # A piece that the call passes by, fed sizes that nobody knows, has no fingerprint: it is of its own kind.
        kind = (key, switch.fingerprint(), switch.inputs) if switch.inputs is not None else (switch,)
        kinds.setdefault(kind, []).append(switch)
    return list(kinds.values())


@contextmanager
def as_in_the_call() -> Iterator[None]:
    """A block in which to run pieces as autograd runs them, and leave the random generators as they were."""
    with RandomState(), torch.no_grad(), outside_autocast():
        yield


@dataclass
class _PartitionKind:
    """One kind of partition being measured."""

    program: Program
    switches: Sequence[Switch]
    options: BenchmarkOptions
    environment: Environment
    clock: Clock[Any]
    partition_results: PartitionResults
    executor: Executor

    def go(self, cancelled: Callable[[], bool], on_progress: Callable[[Progress], None]) -> tuple[float, Stop]:
        """Measure; return the seconds spent and why it ended."""
        recorded = self.executor.run_untimed(lambda: record_inputs(self.program, self.switches))
        if recorded.switch is None or recorded.args is None:
            self.partition_results.timings += [self._passed_by(switch) for switch in self.switches]
            return 0.0, Stop.PRECISE
        # Not around the call itself: in another mode it would be traced anew.
        with as_in_the_call():
            return self._measure(recorded, recorded.switch, recorded.args, cancelled, on_progress)

    def _measure(
        self,
        recorded: Recorded,
        switch: Switch,
        args: Sequence[Any],
        cancelled: Callable[[], bool],
        on_progress: Callable[[Progress], None],
    ) -> tuple[float, Stop]:
        name = switch.partition.name
        check, entries = self.executor.run_untimed(
            lambda: (
                check_partition(self.program, switch, args, name) if switch.artifact is not None else None,
                timed_calls(switch, args),
            )
        )
        if check is not None and switch.artifact is not None:
            self.partition_results.numerics += check.rows
            self.partition_results.cures[name] = check.cure
        before = device_state(self.environment.device)
        try:
            result = run_rounds(
                entries,
                self.options,
                baseline=EAGER,
                clock=self.clock,
                cancelled=cancelled,
                on_progress=on_progress,
                executor=self.executor,
            )
        except MeasureError as error:
            text = f"Partition {name} alone: {error}"
            self._add_diagnostic(Diagnostic(DiagnosticCode.VARIANT_FAILED, text, Severity.ERROR), switch)
            return 0.0, Stop.FAILED
        entries = [entry for entry in entries if entry.name not in result.dropped]
        fell = throttled(before, device_state(self.environment.device))
        asked = before is not None and not cancelled()
        launched = launch_warnings(entries, self.clock, self.executor) if asked else {}
        said = check.verdict if check is not None else NumericsVerdict.NOT_CHECKED
        withheld = [VARIANT] if said == NumericsVerdict.FAILED else []
        summary = summarize(result, self.environment, numerics={VARIANT: said}, withheld=withheld)
        found = {
            timing.variant: replace(timing, warnings=(*timing.warnings, *launched.get(timing.variant, ()), *fell))
            for timing in summary.timings
        }
        if EAGER in found:
            self._note(recorded, found[EAGER], found.get(VARIANT), check)
        return result.spent_s, result.stopped

    def _note(self, recorded: Recorded, eager: Timing, compiled: Timing | None, check: Check | None) -> None:
        assert recorded.switch is not None  # noqa: S101 - something was recorded, or nothing could have been measured
        name = recorded.switch.partition.name
        artifact = recorded.switch.artifact
        key = self._artifact(recorded.switch)
        worst = check.worst if check is not None else None
        timing = PartitionTiming(
            partition=name,
            region="",
            phase=eager.phase,
            eager_s=eager.median_s,
            eager_iqr_s=eager.iqr_s,
            samples=len(eager.samples_s),
            artifact=key,
            warnings=tuple(dict.fromkeys((*eager.warnings, *(compiled.warnings if compiled is not None else ())))),
        )
        if compiled is not None and artifact is not None:
            timing = replace(
                timing,
                compiled_s=compiled.median_s,
                compiled_iqr_s=compiled.iqr_s,
                speedup=compiled.speedup,
                speedup_low=compiled.speedup_low,
                speedup_high=compiled.speedup_high,
                verdict=compiled.verdict,
                numerics=compiled.numerics,
                bitwise=check.bitwise if check is not None else None,
                worst_tensor=worst.tensor if worst is not None and not worst.bitwise else "",
            )
        for switch in self.switches:
            mine = replace(timing, runs=recorded.runs[switch], **self._who(switch))
            self.partition_results.timings.append(
                mine if switch is recorded.switch else replace(mine, measured_as=name)
            )

    def _passed_by(self, switch: Switch) -> PartitionTiming:
        key = self._artifact(switch)
        why = ("the call does not come by here: a branch not taken",)
        return PartitionTiming(**self._who(switch), eager_s=0.0, eager_iqr_s=0.0, runs=0, artifact=key, warnings=why)

    def _artifact(self, switch: Switch) -> str | None:
        """Return the key of the artifact that the record says a partition has; it may have refused its inputs."""
        key = self.program.keys().get(switch, "")
        return key if key in self.program.store.artifacts else None

    def _who(self, switch: Switch) -> dict[str, Any]:
        backward = switch.piece.graph_id.split("/")[1] == GraphKind.BACKWARD
        return {
            "partition": switch.partition.name,
            "region": switch.piece.claim.region,
            "phase": Phase.BACKWARD if backward else Phase.FORWARD,
        }

    def _add_diagnostic(self, found: Diagnostic, switch: Switch) -> None:
        executor = replace(found, region=switch.piece.claim.region, graph=switch.piece.graph_id)
        self.partition_results.diagnostics.append(executor)


def timed_calls(switch: Switch, args: Sequence[Any]) -> list[TimedCall]:
    """Return the eager piece, and the compiled one where there is one, as the live call runs it, on ``args``."""
    random = RandomState() if switch.draws else None
    undo = _writes(switch, args)

    def put_back() -> None:
        undo.restore()
        if random is not None:
            random.restore()

    compiled = switch.as_function()
    found = [TimedCall(EAGER, lambda: switch.eager(list(args)), before=put_back)]
    if switch.artifact is not None:
        found.append(TimedCall(VARIANT, lambda: compiled(list(args)), before=put_back))
    return found


def _writes(switch: Switch, args: Sequence[Any]) -> UndoLog:
    """Return what undoes the writes of a piece to its inputs."""
    undo = UndoLog()
    try:
        with undo:
            switch.eager(list(args))
    except Exception:  # noqa: BLE001 - a higher-order op may refuse to be watched; cutting leaves ops that write outside
        return UndoLog()
    finally:
        undo.restore()
    return undo
