"""Times each kernel inside its generated code, with the least time its work needs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from regional_explorer.compiler.artifact import Artifact
from regional_explorer.compiler.fingerprint import canonical, size_at
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run import Run
from regional_explorer.compiler.switch import Switch, standalone_call
from regional_explorer.compiler.workpiece import Workpiece
from regional_explorer.errors import RegionCompileError
from regional_explorer.insight.code_store import Insights
from regional_explorer.measure.alone import RecordedInputs, as_in_the_call, record_inputs, timed_call
from regional_explorer.measure.clock import CpuClock, TimedCall, overhead_s
from regional_explorer.measure.numerics import Reference, compare_results, named_outputs, verdict
from regional_explorer.measure.rates import BURST_SHARE, Rates, Work, product_work, rates_of, traffic_work
from regional_explorer.measure.rounds import Parts, RoundsResult, StopReason, figure_of, run_rounds
from regional_explorer.measure.tolerances import arithmetic_of
from regional_explorer.record.artifact import ArtifactCode, ArtifactKernelTimes, BoundBy, Kernel, KernelTime
from regional_explorer.record.benchmark import NumericsVerdict, Phase
from regional_explorer.record.figure import Figure
from regional_explorer.record.grouping import grouped
from regional_explorer.regions.cut import Piece
from regional_explorer.torch_api.graphs import fake_mode_with_symbols
from regional_explorer.torch_api.inductor import load_code

CLOCK, RECORD = "_regional_explorer_clock", "_regional_explorer_record"
"""The names, in the generated code, of the clock and of the function that records a kernel's index and seconds."""


def timed_code(code: ArtifactCode) -> str:
    """Return the text of ``code`` with a clock around each known launch that is a statement on one line.

    The kernels stay those of the artifact, which Inductor finds in its cache: only the Python around them differs.
    """
    lines = code.text.splitlines()
    launches = {kernel.called: index for index, kernel in enumerate(code.kernels) if kernel.called is not None}
    timed_lines = []
    for number, line in enumerate(lines, 1):
        if number in launches and _is_whole_statement(line):
            indent = line[: len(line) - len(line.lstrip())]
            timed_lines += [f"{indent}_t = {CLOCK}()", line, f"{indent}{RECORD}({launches[number]}, {CLOCK}() - _t)"]
        else:
            timed_lines.append(line)
    return "\n".join(timed_lines) + "\n"


def _is_whole_statement(line: str) -> bool:
    """Return whether the statement that a line starts ends on the same line."""
    return line.count("(") == line.count(")") and not re.search(r"[\\,({\[]\s*$", line)


def measure_kernel_times(insights: Insights, region: str, budget_s: float, run: Run) -> None:
    """Time the kernels of each distinct partition of a region whose code was read.

    Times measured before a cancel or an interrupt are kept.
    """
    if run.cancelled():
        return
    program, codes = insights.program, insights.codes
    kinds = grouped(
        (switch.artifact.key, switch)
        for switch in program.switches
        if switch.piece.claim.region == region and switch.artifact is not None and switch.artifact.key in codes
    )
    for key in list(kinds):
        if problem := _timing_problem(kinds[key][0].known_workpiece, codes[key]):
            insights.kernel_times[key] = ArtifactKernelTimes(problem=problem)
            insights.revision += 1
            del kinds[key]
    inputs = run.threads.run_untimed(lambda: record_inputs(program, list(kinds.values()))) if kinds else []
    for number, key in enumerate(kinds):
        if run.cancelled():
            return
        title = f"timing the kernels of {region} ({number + 1} of {len(kinds)}): "
        share_s, share = budget_s / len(kinds), 1.0 / len(kinds)
        part = run.part(number * share, (number + 1) * share, title, then_s=budget_s - (number + 1) * share_s)
        part.estimate(share_s)
        part.progress("loading the code with clocks", 0.0)
        times, stopped = _measured_times(program, inputs.pop(0), codes[key], share_s, part)
        if times is not None:
            insights.kernel_times[key] = times
            insights.revision += 1
        stopped.raise_interrupt()


def _measured_times(
    program: Program, recorded: RecordedInputs, code: ArtifactCode, budget_s: float, run: Run
) -> tuple[ArtifactKernelTimes | None, StopReason]:
    """Return the kernel times of equal partitions (None before the first round), and why the measurement ended."""
    if recorded.why_not:
        return ArtifactKernelTimes(problem=recorded.why_not), StopReason.FAILED
    switch, args = recorded.switch, recorded.args
    workpiece, artifact, clocks = switch.known_workpiece, switch.artifact, KernelClocks()
    assert artifact is not None  # noqa: S101 - only partitions that have one are timed
    with as_in_the_call():
        try:
            timed, untimed = run.threads.run_untimed(
                lambda: _generated_calls(program, switch, artifact, code, args, clocks)
            )
            compiled = run.threads.run_untimed(lambda: standalone_call(workpiece, artifact, args))
        except RegionCompileError as error:
            return ArtifactKernelTimes(problem=str(error)), StopReason.FAILED
        except Exception as error:  # noqa: BLE001 - whatever it is, only the kernel times are missing
            problem = f"the code with clocks does not run: {type(error).__name__}: {error}"
            return ArtifactKernelTimes(problem=problem.splitlines()[0]), StopReason.FAILED
        whole = timed_call(WHOLE, compiled, args, workpiece.restorer(args))
        if not run.threads.run_untimed(lambda: _has_same_results(switch.piece, artifact, timed, args, whole.before)):
            return ArtifactKernelTimes(problem="the code with clocks gives other results"), StopReason.FAILED
        if run.cancelled():
            return None, StopReason.CANCELLED
        rates = rates_of("cpu")
        works = [work for kernel in code.kernels for work in works_of(kernel).values()]
        rounds = run_rounds(
            kernel_calls(whole, untimed, timed, clocks),
            budget_s,
            baseline="",
            context=run,
            between=lambda: rates.measure(works, budget_s * BURST_SHARE),
        )
    return kernel_times(code, rounds, rates) if CLOCKED in rounds.parts else None, rounds.stopped


def _timing_problem(workpiece: Workpiece, code: ArtifactCode) -> str:
    """Return why the kernels of a partition cannot be timed; empty if they can."""
    devices = {layout.device.partition(":")[0] for layout in (*workpiece.inputs, *workpiece.outputs) if layout.device}
    if code.problem is None and (others := devices - {"cpu"}):
        # The clocks are the host's, and the bounds are those of the CPU.
        where = " and ".join(sorted(others))
        return f"kernels on {where} are not timed: ex.benchmark() times the region, torch.profiler its kernels"
    return code.problem or ""


WHOLE, GENERATED, CLOCKED = "the call", "its generated code", "that with clocks"
BETWEEN, AROUND = "between", "around"


@dataclass
class KernelClocks:
    """The seconds by kernel that the clocks in the code measured, in each call of a sample."""

    calls: list[dict[int, float]] = field(default_factory=list)

    def record(self, kernel: int, seconds: float) -> None:
        """Record the time of one launch."""
        if self.calls:
            self.calls[-1][kernel] = self.calls[-1].get(kernel, 0.0) + seconds

    def parts(self, number: int, stamps: Sequence[float]) -> Mapping[Any, float]:
        """Return the seconds of each kernel and of the code between kernels in one call, less the clocks' own time."""
        clock_s, seconds_by_kernel = overhead_s(CpuClock()), self.calls[number]
        between_s = stamps[-1] - stamps[0] - sum(seconds_by_kernel.values()) - clock_s * len(seconds_by_kernel)
        kernels = {kernel: max(seconds - clock_s, 0.0) for kernel, seconds in seconds_by_kernel.items()}
        return {**kernels, BETWEEN: max(between_s, 0.0)}


def kernel_calls(
    whole: TimedCall, generated: Callable[[], object], clocked: Callable[[], object], clocks: KernelClocks
) -> tuple[TimedCall, TimedCall, TimedCall]:
    """Return the calls to time: the whole artifact, its generated code alone, and its code with clocks."""

    def before() -> None:
        whole.before()
        clocks.calls.append({})

    return (
        replace(whole, name=WHOLE),
        replace(whole, name=GENERATED, forward=generated),
        TimedCall(CLOCKED, clocked, before=before, select=clocks.calls.clear, parts=clocks.parts),
    )


def kernel_times(code: ArtifactCode, rounds: RoundsResult, rates: Rates) -> ArtifactKernelTimes:
    """Return the kernel times from rounds; in each round the time around the code is the call's minus the code's.

    If the call's time has no interval, no kernel's time is known.
    """
    if why := rounds.time(WHOLE, Phase.FORWARD).why:
        return ArtifactKernelTimes(problem=why, noise=rounds.noise)
    whole, generated, clocked = (np.array(rounds.samples[name][Phase.FORWARD]) for name in (WHOLE, GENERATED, CLOCKED))
    parts = Parts({**rounds.parts[CLOCKED].seconds, AROUND: whole - generated}, rounds.noise)
    around = parts.figure([AROUND])
    low_s, high_s = (end and max(end, 0.0) for end in (around.low, around.high))
    return ArtifactKernelTimes(
        tuple(kernel_time(kernel, parts, number, rates) for number, kernel in enumerate(code.kernels)),
        between=parts.figure([BETWEEN]),
        around=Figure(max(around.value, 0.0), low_s, high_s, around.why),
        whole=rounds.time(WHOLE, Phase.FORWARD),
        with_clocks=figure_of((clocked + whole - generated) / whole, rounds.noise),
        noise=rounds.noise,
    )


def _generated_calls(
    program: Program, switch: Switch, artifact: Artifact, code: ArtifactCode, args: Sequence[Any], clocks: KernelClocks
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return two functions that call the generated code: with clocks, and without."""
    with program.store.generated.collecting():
        config, constants = program.config_for(switch), artifact.constants
        names = {} if constants is None else constants.values
        timed = load_code(timed_code(code), config, {**names, CLOCK: time.perf_counter, RECORD: clocks.record}).call
        untimed = load_code(code.text, config, names).call
        # Dynamic sizes come first, as in the code.
        _, _, symbols = canonical(switch.piece, switch.known_workpiece.inputs, fake_mode_with_symbols())
    sizes = [size_at(args[argument], place) for _, (argument, place) in symbols if place >= 0]
    inputs = [*sizes, *args]
    arguments = inputs if constants is None else [inputs[place] for place in constants.inputs]
    return lambda: timed(list(arguments)), lambda: untimed(list(arguments))


def _has_same_results(
    piece: Piece, artifact: Artifact, timed: Callable[[], Any], args: Sequence[Any], put_back: Callable[[], object]
) -> bool:
    """Return whether the code with clocks has the artifact's results, up to the order in which threads add."""
    put_back()
    expected = named_outputs(piece, artifact.call(list(args)))
    put_back()
    results = timed()
    put_back()
    if len(results) != len(piece.outputs):
        return False
    reference = Reference(expected, arithmetic=arithmetic_of([piece.gm]))
    return (
        verdict(compare_results("with clocks", named_outputs(piece, results), reference)) is not NumericsVerdict.FAILED
    )


def works_of(kernel: Kernel) -> dict[BoundBy, Work]:
    """Return the known work that bounds the time of a kernel from below."""
    works = {}
    if kernel.bytes_moved:
        works[BoundBy.COPY] = traffic_work(kernel.bytes_read or 0, kernel.bytes_written or 0)
    if kernel.operations and kernel.dtype:
        works[BoundBy.MATRIX] = product_work(kernel.operations, kernel.dtype)
    return works


def kernel_time(kernel: Kernel, parts: Parts, number: int, rates: Rates) -> KernelTime | None:
    """Return the time of a kernel with the largest of its bounds; None if it was not timed."""
    if number not in parts.seconds:
        return None
    fastest_s = float(min(parts.seconds[number]))
    bounds = [(rates.bound_s(work, fastest_s), kind) for kind, work in works_of(kernel).items()]
    bound_s, bound_by = max(((bound_s, kind) for bound_s, kind in bounds if bound_s is not None), default=(None, None))
    return KernelTime(parts.figure([number]), bound_s, bound_by)
