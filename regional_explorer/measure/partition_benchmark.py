"""Benchmarks each distinct partition alone, compiled against eager, on recorded inputs: numerics, then rounds."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
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
from regional_explorer.measure.accuracy.partition_check import COMPILED, Check, check_partition
from regional_explorer.measure.timing.benchmark_options import BenchmarkOptions
from regional_explorer.measure.timing.measured_rounds import MeasureContext, measure_rounds
from regional_explorer.measure.timing.rounds_result import Stop
from regional_explorer.measure.timing.timed_call import TimedCall
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.region import Direction
from regional_explorer.record.timing import Numerics, NumericsVerdict, PartitionTiming, Phase, Timing
from regional_explorer.record.variant_name import VariantName
from regional_explorer.torch_api import outside_autocast


@dataclass(frozen=True)
class PartitionResults:
    """The results of measuring partitions alone, or a part of them. ``a + b`` has the results of both.

    ``cures`` has the config under which a partition passes the numerics check, None if none was found.
    """

    timings: tuple[PartitionTiming, ...] = ()
    numerics: tuple[Numerics, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    cures: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)

    def __add__(self, other: PartitionResults) -> PartitionResults:
        """Return the results of both."""
        return PartitionResults(
            self.timings + other.timings,
            self.numerics + other.numerics,
            self.diagnostics + other.diagnostics,
            {**self.cures, **other.cures},
        )


NO_RESULTS = PartitionResults()


def measure_partitions(
    program: Program, kinds: Sequence[Sequence[Switch]], options: BenchmarkOptions, context: MeasureContext
) -> Iterator[PartitionResults]:
    """Measure one partition of each of the ``distinct`` kinds, yielding results at once; others of its kind share them.

    The unused part of a kind's budget goes to the next kinds.

    Raises:
        KeyboardInterrupt: it was interrupted.
    """
    left_s, count = options.budget_s, len(kinds)
    for kind_index, switches in enumerate(kinds):
        name = switches[0].partition.name
        if context.run.cancelled():
            return
        context.run.progress(f"{name} alone ({kind_index + 1} of {count})", kind_index / count)
        kind_options = replace(options, budget_s=max(left_s, options.budget_s / 100) / (count - kind_index))
        kind_context = context.part(kind_index / count, (kind_index + 1) / count, f"{name} alone: ")
        spent_s, stopped = yield from _PartitionKind(program, switches, kind_options, kind_context).measure()
        left_s -= spent_s
        stopped.raise_interrupt()
        if stopped is Stop.CANCELLED:
            return


def distinct(program: Program) -> list[list[Switch]]:
    """Return the partitions by kind: those of one kind run equal code on inputs with equal layouts.

    Code compiled under different configs may be equal too, so that no code is measured twice.
    """
    program.record_layouts()
    program.apply_artifacts()
    kinds: dict[tuple[Any, ...], list[Switch]] = {}
    for switch in program.switches:
        artifact = switch.artifact
        code_hash = None if artifact is None else program.store.code_hash(artifact.key) or artifact.key
        # A piece that the call does not run, with inputs of unknown sizes, has no fingerprint: it is its own kind.
        kind = (code_hash, switch.fingerprint(), switch.inputs) if switch.inputs is not None else (switch,)
        kinds.setdefault(kind, []).append(switch)
    return list(kinds.values())


@contextmanager
def as_in_the_call() -> Iterator[None]:
    """Context manager for running pieces as autograd runs them; restores the random generators."""
    with RandomState(), torch.no_grad(), outside_autocast():
        yield


@dataclass
class _PartitionKind:
    """One kind of partition being measured."""

    program: Program
    switches: Sequence[Switch]
    options: BenchmarkOptions
    context: MeasureContext

    def measure(self) -> Generator[PartitionResults, None, tuple[float, Stop]]:
        """Check and measure; return the seconds spent and why it ended."""
        try:
            return (yield from self._measure())
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - an op of the user's may raise anything; the other kinds go on
            why = str(error) if isinstance(error, MeasureError) else f"{type(error).__name__}: {error}".splitlines()[0]
            piece, name = self.switches[0].piece, self.switches[0].partition.name
            diagnostic = Diagnostic(
                DiagnosticCode.VARIANT_FAILED,
                f"Partition {name} alone: {why}",
                Severity.ERROR,
                region=piece.claim.region,
                graph=piece.graph_id,
            )
            yield PartitionResults(diagnostics=(diagnostic,))
            return 0.0, Stop.FAILED

    def _measure(self) -> Generator[PartitionResults, None, tuple[float, Stop]]:
        untimed, cancelled = self.context.run.executor.run_untimed, self.context.run.cancelled
        recorded = untimed(lambda: record_inputs(self.program, self.switches))
        switch, args = recorded.switch, recorded.args
        if switch is None or args is None:
            yield PartitionResults(timings=tuple(self._not_run_timing(switch) for switch in self.switches))
            return 0.0, Stop.PRECISE
        name, check = switch.partition.name, None
        # Not around the call itself: in another mode it would be traced again.
        with as_in_the_call():
            if switch.artifact is not None:
                check = untimed(lambda: check_partition(self.program, switch, args, name, cancelled))
            calls = untimed(lambda: timed_calls(switch, args))
        verdict = NumericsVerdict.NOT_CHECKED
        if check is not None:
            verdict = check.verdict
            yield PartitionResults(numerics=tuple(check.rows), cures={name: check.cure})
        with as_in_the_call():
            rounds = measure_rounds(
                calls, self.options, self.context, baseline=VariantName.EAGER, numerics={COMPILED: verdict}
            )
        timings = {timing.variant: timing for timing in rounds.timings}
        if VariantName.EAGER in timings:
            yield PartitionResults(
                tuple(self._timings(recorded, timings[VariantName.EAGER], timings.get(COMPILED), check))
            )
        return rounds.result.spent_s, rounds.result.stopped

    def _timings(
        self, recorded: Recorded, eager: Timing, compiled: Timing | None, check: Check | None
    ) -> Iterator[PartitionTiming]:
        """Yield the timing of every partition of the kind."""
        assert recorded.switch is not None  # noqa: S101 - nothing can be measured without recorded inputs
        name = recorded.switch.partition.name
        artifact = recorded.switch.artifact
        worst = check.worst if check is not None else None
        timing = PartitionTiming(
            partition=name,
            region="",
            phase=eager.phase,
            eager_s=eager.median_s,
            eager_iqr_s=eager.iqr_s,
            samples=len(eager.samples_s),
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
            row = replace(timing, runs=recorded.runs[switch], artifact=self._stored_key(switch), **self._labels(switch))
            yield row if switch is recorded.switch else replace(row, measured_as=name)

    def _not_run_timing(self, switch: Switch) -> PartitionTiming:
        key = self._stored_key(switch)
        why = ("the call does not reach it: a branch not taken",)
        return PartitionTiming(**self._labels(switch), eager_s=0.0, eager_iqr_s=0.0, runs=0, artifact=key, warnings=why)

    def _stored_key(self, switch: Switch) -> str | None:
        """Return the key of a partition's artifact in the record, even if the artifact refused the inputs."""
        key = self.program.keys().get(switch, "")
        return key if key in self.program.store.artifacts else None

    def _labels(self, switch: Switch) -> dict[str, Any]:
        return {
            "partition": switch.partition.name,
            "region": switch.piece.claim.region,
            "phase": Phase(Direction.of_graph(switch.piece.graph_id)),
        }


def timed_calls(switch: Switch, args: Sequence[Any]) -> list[TimedCall]:
    """Return the eager piece and, if there is one, the compiled piece, both called on ``args`` as in the live call."""
    random_state = RandomState() if switch.draws else None
    undo = _log_writes(switch, args)

    def put_back() -> None:
        undo.restore()
        if random_state is not None:
            random_state.restore()

    compiled = switch.as_function()
    calls = [TimedCall(VariantName.EAGER, lambda: switch.eager(list(args)), before=put_back)]
    if switch.artifact is not None:
        calls.append(TimedCall(COMPILED, lambda: compiled(list(args)), before=put_back))
    return calls


def _log_writes(switch: Switch, args: Sequence[Any]) -> UndoLog:
    """Return the log that undoes the writes of a piece to its inputs."""
    undo = UndoLog()
    try:
        with undo:
            switch.eager(list(args))
    except Exception:  # noqa: BLE001 - a higher-order op may refuse a dispatch mode; ops that write are not in pieces
        return UndoLog()
    finally:
        undo.restore()
    return undo
