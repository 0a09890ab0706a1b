"""Times each kernel inside its generated code, with the least time its work needs."""

from __future__ import annotations

import re
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from regional_explorer.compiler.artifact import Artifact
from regional_explorer.compiler.fingerprint import canonical
from regional_explorer.compiler.program import Program, record_inputs
from regional_explorer.compiler.run import Run
from regional_explorer.compiler.switch import Switch
from regional_explorer.insight.code_store import Insights
from regional_explorer.measure.numerics import repeats
from regional_explorer.measure.partitions import as_in_the_call, timed_calls
from regional_explorer.measure.rates import Rates, Work, product, rates_of, traffic
from regional_explorer.measure.reference import named_outputs
from regional_explorer.measure.rounding import arithmetic_of
from regional_explorer.record.artifact import ArtifactCode, ArtifactKernelTimes, BoundBy, Kernel, KernelTime
from regional_explorer.record.grouping import grouped
from regional_explorer.torch_api.graphs import fake_mode_with_symbols
from regional_explorer.torch_api.inductor import load_code

CLOCK, NOTE = "_regional_explorer_clock", "_regional_explorer_note"
"""The names under which the code finds the clock, and the function that takes a kernel's index and seconds."""


def timed_code(code: ArtifactCode) -> str:
    """Return the text of ``code`` with a clock around each known launch that is a statement on one line.

    Its kernels are those of the artifact, which Inductor finds in its cache: only the Python around them differs.
    """
    lines = code.text.splitlines()
    launches = {kernel.called: index for index, kernel in enumerate(code.kernels) if kernel.called is not None}
    timed_lines = []
    for number, line in enumerate(lines, 1):
        if number in launches and _is_whole_statement(line):
            indent = line[: len(line) - len(line.lstrip())]
            timed_lines += [f"{indent}_t = {CLOCK}()", line, f"{indent}{NOTE}({launches[number]}, {CLOCK}() - _t)"]
        else:
            timed_lines.append(line)
    return "\n".join(timed_lines) + "\n"


def _is_whole_statement(line: str) -> bool:
    """Return whether the statement that a line starts ends on the same line."""
    return line.count("(") == line.count(")") and not re.search(r"[\\,({\[]\s*$", line)


FEWEST_ROUNDS = 5
MOST_ROUNDS = 500
BURSTS = 8
"""How often the rates of the bounds are measured between the rounds."""


def measure_kernel_times(insights: Insights, region: str, budget_s: float, run: Run) -> None:
    """Time the kernels of each distinct partition of a region whose code was read.

    Times measured before a cancel are kept.
    """
    program, codes = insights.program, insights.codes
    switches = grouped(
        (switch.artifact.key, switch)
        for switch in program.switches
        if switch.piece.claim.region == region and switch.artifact is not None and switch.artifact.key in codes
    )
    for done, (key, equal_switches) in enumerate(switches.items()):
        if run.cancelled():
            return
        run.progress(f"timing the kernels of {region} ({done + 1} of {len(switches)})", done / len(switches))
        share_s = budget_s / len(switches)
        times = _measured_times(program, equal_switches, codes[key], share_s, run)
        if times is not None:
            insights.kernel_times[key] = times
            insights.revision += 1


def _measured_times(
    program: Program,
    switches: Sequence[Switch],
    code: ArtifactCode,
    budget_s: float,
    run: Run,
) -> ArtifactKernelTimes | None:
    """Return the times of the kernels of equal partitions; None if cancelled before there were enough rounds."""
    if code.problem is not None:
        return ArtifactKernelTimes(code.artifact, problem=code.problem)
    if others := _devices(switches[0]) - {"cpu"}:
        # The clocks are the host's, and the bounds are those of the CPU.
        problem = f"kernels on {' and '.join(sorted(others))} are not timed: ex.benchmark() times the region, "
        return ArtifactKernelTimes(code.artifact, problem=f"{problem}torch.profiler its kernels")
    recorded = run.executor.run_untimed(lambda: record_inputs(program, switches))
    if recorded.switch is None or recorded.args is None or recorded.switch.artifact is None:
        return ArtifactKernelTimes(code.artifact, problem="the call does not reach it: a branch not taken")
    switch, args, artifact = recorded.switch, recorded.args, recorded.switch.artifact
    notes = ClockNotes()
    with as_in_the_call():
        started = time.perf_counter()
        try:
            timed, untimed = run.executor.run_untimed(lambda: _generated_calls(program, switch, code, args, notes))
        except Exception as error:  # noqa: BLE001 - whatever it is, only the kernel times are missing
            problem = f"the code with clocks does not run: {type(error).__name__}: {error}"
            return ArtifactKernelTimes(code.artifact, problem=problem.splitlines()[0])
        build_s = time.perf_counter() - started
        whole_call = timed_calls(switch, args)[-1]
        if not run.executor.run_untimed(lambda: _same_results(switch, artifact, timed, args, whole_call.before)):
            return ArtifactKernelTimes(
                code.artifact, problem="the code with clocks gives other results", build_s=build_s
            )
        rates = rates_of("cpu")
        works = [work for kernel in code.kernels for work in works_of(kernel).values()]
        rounds = timed_rounds(
            (timed, untimed, whole_call.forward), whole_call.before, notes, lambda: rates.measure(works), budget_s, run
        )
    if len(rounds) < FEWEST_ROUNDS:
        return None
    kernels = tuple(
        kernel_time(kernel, notes.times.get(number, ()), rates) for number, kernel in enumerate(code.kernels)
    )
    return times_of_rounds(code.artifact, kernels, rounds, build_s)


def _devices(switch: Switch) -> set[str]:
    """Return the types of the devices that the inputs and outputs of a partition are on."""
    return {layout.device.partition(":")[0] for layout in (*(switch.inputs or ()), *switch.outputs) if layout.device}


@dataclass
class ClockNotes:
    """The times that the clocks in the code measured."""

    times: dict[int, list[float]] = field(default_factory=dict)
    total_s: float = 0.0

    def note(self, kernel: int, seconds: float) -> None:
        """Record the time of one launch."""
        self.times.setdefault(kernel, []).append(seconds)
        self.total_s += seconds


@dataclass(frozen=True)
class RoundTimes:
    """The times of one call, of its generated code alone, of that with clocks, and of all kernels of the latter."""

    whole_s: float
    generated_s: float
    clocked_s: float
    kernels_s: float


def times_of_rounds(
    artifact: str, kernels: tuple[KernelTime | None, ...], rounds: Sequence[RoundTimes], build_s: float
) -> ArtifactKernelTimes:
    """Return the medians over rounds; none is below zero, however the machine disturbed single calls."""
    whole_s = statistics.median(one.whole_s for one in rounds)
    around_s = max(0.0, statistics.median(one.whole_s - one.generated_s for one in rounds))
    return ArtifactKernelTimes(
        artifact,
        kernels,
        whole_s=whole_s,
        between_s=statistics.median(one.clocked_s - one.kernels_s for one in rounds),
        around_s=around_s,
        with_clocks=(around_s + statistics.median(one.clocked_s for one in rounds)) / whole_s,
        rounds=len(rounds),
        build_s=build_s,
    )


def _generated_calls(
    program: Program, switch: Switch, code: ArtifactCode, args: Sequence[Any], notes: ClockNotes
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return calls of the generated code with clocks and without."""
    with program.store.generated.collected():
        config = program.config_for(switch)
        timed = load_code(timed_code(code), config, {CLOCK: time.perf_counter, NOTE: notes.note}).call
        untimed = load_code(code.text, config, {}).call
        # Dynamic sizes come first, as in the code.
        _, _, symbols = canonical(switch.piece, switch.inputs or (), fake_mode_with_symbols())
    sizes = [args[argument].shape[dim] for _, (argument, dim) in symbols if dim >= 0]
    return lambda: timed([*sizes, *args]), lambda: untimed([*sizes, *args])


def _same_results(
    switch: Switch, artifact: Artifact, timed: Callable[[], Any], args: Sequence[Any], put_back: Callable[[], object]
) -> bool:
    """Return whether the code with clocks computes what the artifact does, up to the order in which threads add."""
    put_back()
    expected = named_outputs(switch, artifact.call(list(args)))
    put_back()
    results = timed()
    put_back()
    if len(results) != len(switch.piece.outputs):
        return False
    return repeats(expected, named_outputs(switch, results), arithmetic_of([switch.piece.gm]))


def timed_rounds(
    calls: tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]],
    put_back: Callable[[], object],
    notes: ClockNotes,
    burst: Callable[[], object],
    budget_s: float,
    run: Run,
) -> list[RoundTimes]:
    """Call the code with clocks, that without, and the whole in turn until the budget is spent.

    Each round begins with another one, as a call finds in the caches what the one before it left there. A ``burst``
    before the first round, and ``BURSTS`` times between them, sees the machine as they do.
    """
    timed, untimed, whole_call = calls
    order = deque(calls)

    def seconds(call: Callable[[], Any]) -> float:
        put_back()
        started = time.perf_counter()
        call()
        return time.perf_counter() - started

    def time_round() -> RoundTimes:
        notes.total_s = 0.0
        taken_s = {call: seconds(call) for call in order}
        order.rotate(-1)
        return RoundTimes(taken_s[whole_call], taken_s[untimed], taken_s[timed], notes.total_s)

    run.executor.run_timed(burst)
    run.executor.run_timed(time_round)
    notes.times.clear()
    rounds: list[RoundTimes] = []
    now = began = time.perf_counter()
    bursts = 1
    while len(rounds) < FEWEST_ROUNDS or (now < began + budget_s and len(rounds) < MOST_ROUNDS):
        if run.cancelled():
            break
        rounds.append(run.executor.run_timed(time_round))
        now = time.perf_counter()
        if now >= began + bursts * budget_s / BURSTS:
            run.executor.run_timed(burst)
            bursts += 1
    put_back()
    return rounds


def works_of(kernel: Kernel) -> dict[BoundBy, Work]:
    """Return the work that bounds the time of a kernel, as far as it is known."""
    works = {}
    if kernel.bytes_moved:
        works[BoundBy.COPY] = traffic(kernel.bytes_read or 0, kernel.bytes_written or 0)
    if kernel.operations and kernel.dtype:
        works[BoundBy.MATRIX] = product(kernel.operations, kernel.dtype)
    return works


def kernel_time(kernel: Kernel, times: Sequence[float], rates: Rates) -> KernelTime | None:
    """Return the time of a kernel with the largest of its bounds; None if it was timed too seldom."""
    if len(times) < FEWEST_ROUNDS:
        return None
    low, median, high = statistics.quantiles(times, n=4)
    bounds = [(rates.bound_s(work, min(times)), by) for by, work in works_of(kernel).items()]
    bound_s, bound_by = max(((bound_s, by) for bound_s, by in bounds if bound_s is not None), default=(None, None))
    return KernelTime(median, high - low, bound_s, bound_by)
