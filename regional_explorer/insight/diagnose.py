"""``ex.diagnose``: collects why regions are fast or slow, and times each remedy before it is recommended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from typing import Any

from regional_explorer.compiler.input_recording import record_inputs
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run_context import RunContext, no_progress
from regional_explorer.compiler.switch import Switch
from regional_explorer.errors import MeasureError, RegionCompileError
from regional_explorer.insight.code_store import Codes
from regional_explorer.insight.fusion_refused import fusion_remedies
from regional_explorer.insight.why import RECOMPUTED, Cured, Remedy, from_times, wins
from regional_explorer.measure.accuracy.partition_check import check_partition
from regional_explorer.measure.partition_benchmark import as_in_the_call, timed_calls
from regional_explorer.measure.timing.benchmark_options import BenchmarkOptions
from regional_explorer.measure.timing.measured_rounds import MeasureContext, measure_rounds
from regional_explorer.measure.timing.timed_call import TimedCall
from regional_explorer.record.code_diff import code_hash
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.kernel_times import ArtifactKernelTimes
from regional_explorer.record.region import Direction, Region
from regional_explorer.record.region_code import PartitionCode
from regional_explorer.record.session import Environment
from regional_explorer.record.timing import NumericsVerdict, Timing


@dataclass(frozen=True)
class _Candidate:
    """A remedy that improves the code of ``parts``, the partitions of one direction that it changes."""

    remedy: Remedy[Any]
    cured: Cured
    parts: tuple[PartitionCode, ...]


class Diagnoses:
    """The findings about the regions of ``program``, kept while a region is unchanged; ``revision`` counts them."""

    def __init__(self, program: Program, codes: Codes, environment: Environment) -> None:
        self._program = program
        self._codes = codes
        self._environment = environment
        self._diagnostics: dict[str, tuple[Region, tuple[Diagnostic, ...]]] = {}
        self.revision = 0

    @property
    def found(self) -> tuple[Diagnostic, ...]:
        """The findings about regions that have not changed since."""
        plan = self._program.plan
        return tuple(
            diagnostic
            for name, (region, diagnostics) in self._diagnostics.items()
            if name in plan and plan[name] == region
            for diagnostic in diagnostics
        )

    def diagnose(
        self,
        region: str,
        parts: Sequence[PartitionCode],
        times: Mapping[str, ArtifactKernelTimes],
        budget_s: float,
        run: RunContext,
    ) -> tuple[Diagnostic, ...]:
        """Return the findings about a region whose kernels have been timed; each remedy is measured first."""
        distinct = list({part.code.artifact: part for part in parts}.values())
        remedies: list[Remedy[Any]] = [RECOMPUTED, *fusion_remedies(distinct)]
        candidates = [candidate for remedy in remedies for candidate in self._candidates(region, distinct, remedy, run)]
        share_s = budget_s / max(1, sum(len(candidate.parts) for candidate in candidates))
        measured = [
            item for candidate in candidates if (item := self._diagnosis(region, candidate, share_s, run)) is not None
        ]
        if run.cancelled():
            return ()
        diagnostics = tuple(
            diagnostic
            for diagnostic in (*from_times(region, parts, times), *measured)
            if not (measured and diagnostic.code is DiagnosticCode.KERNEL_BOUND)  # which says that no config will help
        )
        self._diagnostics[region] = self._program.plan[region], diagnostics
        self.revision += 1
        return diagnostics

    def _candidates(
        self, region: str, distinct: Sequence[PartitionCode], remedy: Remedy[Any], run: RunContext
    ) -> Iterator[_Candidate]:
        """Yield a candidate per direction in which a remedy improves the code."""
        if run.cancelled():
            return
        after = run.executor.run_untimed(
            lambda: self._codes.under(region, self._codes.changed(region, remedy.config), None, run)
        )
        changed = [
            part
            for part in distinct
            if part.partition.id in after and code_hash(part.text) != code_hash(after[part.partition.id].text)
        ]
        for direction in Direction:
            affected = tuple(part for part in changed if Direction.of_graph(part.partition.graph) is direction)
            cures = [cure for part in affected if (cure := remedy.cured(part, after[part.partition.id])) is not None]
            if cures:
                yield _Candidate(remedy, cures[0], affected)

    def _diagnosis(self, region: str, candidate: _Candidate, share_s: float, run: RunContext) -> Diagnostic | None:
        """Return the diagnostic of a candidate that was measured to be faster, ``share_s`` for each partition."""
        if run.cancelled():
            return None
        run.progress(f"measuring a remedy for {region}", 0.5)
        remedy, cured = candidate.remedy, candidate.cured
        timings = [self._remedy_timing(part, remedy.config, share_s, run) for part in candidate.parts]
        best = timings[candidate.parts.index(cured.part)]
        return remedy.diagnostic(region, cured, best) if best is not None and wins(timings) else None

    def _remedy_timing(
        self,
        part: PartitionCode,
        config: Mapping[str, Any],
        budget_s: float,
        run: RunContext,
    ) -> Timing | None:
        """Return the time of equal partitions under ``config`` relative to now.

        None if it cannot be measured, or does not compute what eager does.
        """
        key = part.code.artifact
        program = self._program
        switches = [switch for switch in program.switches if switch.artifact is not None and switch.artifact.key == key]
        recorded = run.executor.run_untimed(lambda: record_inputs(program, switches))
        switch, args = recorded.switch, recorded.args
        if switch is None or args is None:
            return None
        try:
            calls = run.executor.run_untimed(lambda: self._remedy_calls(switch, args, config))
            context = MeasureContext.of(replace(run, progress=no_progress), self._environment)
            with as_in_the_call():
                check = run.executor.run_untimed(
                    lambda: check_partition(program, switch, args, switch.partition.name, run.cancelled, config)
                )
                if check.verdict is NumericsVerdict.FAILED:
                    return None
                numerics = {"remedy": check.verdict}
                rounds = measure_rounds(calls, BenchmarkOptions(budget_s), context, baseline="now", numerics=numerics)
        except (CancelledError, RegionCompileError, MeasureError):
            return None
        rounds.result.stopped.raise_interrupt()
        return next((timing for timing in rounds.timings if timing.variant == "remedy"), None)

    def _remedy_calls(self, switch: Switch, args: Sequence[Any], config: Mapping[str, Any]) -> list[TimedCall]:
        now, twin = switch.artifact, self._program.twin(switch, config)
        assert now is not None  # noqa: S101 - only partitions that have one are measured
        with as_in_the_call():
            put_back = timed_calls(switch, args)[-1].before
        return [
            TimedCall("now", lambda: now.call(list(args)), before=put_back),
            TimedCall("remedy", lambda: twin.call(list(args)), before=put_back),
        ]
