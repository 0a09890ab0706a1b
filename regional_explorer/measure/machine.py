"""The machine during a benchmark: other processes, launch-bound calls, a GPU's clock and temperature."""

from __future__ import annotations

import math
import os
import re
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace

from regional_explorer.compiler.run import Run, Threads
from regional_explorer.errors import count
from regional_explorer.measure.clock import Clock, CudaClock, TimedCall, Turn
from regional_explorer.record.figure import OFTEN, QUIET, Noise
from regional_explorer.record.statistics import QUIET_LIMIT, Flags, quiet_rounds
from regional_explorer.style.formats import duration

LAUNCH_BOUND = 0.8
"""A call is launch-bound if launching it takes the host at least this part of its time on the device."""

CLOCK_RATIO_LIMIT = 0.9

_LAUNCHED_CALLS = 5
FIXED_ELEMENTS = 1 << 16
"""The sine of this many numbers takes some tenths of a millisecond: long enough to show a disturbance."""

LEAST_QUIET_ROUNDS = 10
"""If fewer rounds would remain, disturbed rounds are used too: fewer rounds give no verdict."""

LEAST_OBSERVED_S = 0.2
"""The system counts CPU time in hundredths of a second: over a shorter time it says nothing of other processes."""

LEAST_OTHER_CORES = 0.5
"""If other processes use fewer cores, they disturb at most four of five rounds, and the fastest fifth is right.

If they use more, all rounds may be disturbed: then the fixed work is compared with the least time that it ever took.
On a quiet machine it is not: a processor that has become slower disturbs nothing, because it slows all rounds alike.
"""

SETTLE_S = 0.02
"""The most seconds that a round waits for a quiet moment after a report: the browser that shows it disturbs so long."""

_PROC = Path("/proc")
_BROWSER = re.compile("chrom|firefox|headless|msedge|Web Co|WebExt", re.IGNORECASE)
"""Finds the name of a browser's process, which Linux cuts after 15 letters."""


@dataclass
class Sentinel:
    """Fixed work that is timed around each round. ``fastest_s`` is its least time in this process."""

    call: TimedCall
    fastest_s: float = math.inf

    def time_s(self, clock: Clock[Any]) -> float:
        """Return the seconds that the work takes now; if it takes long, time it twice and return the shorter time."""
        seconds = self._time(clock)
        if seconds > QUIET_LIMIT * self.fastest_s:
            seconds = min(seconds, self._time(clock))
        self.fastest_s = min(self.fastest_s, seconds)
        return seconds

    def _time(self, clock: Clock[Any]) -> float:
        begin, end = self.call.stamps_of_call(clock)
        clock.synchronize()
        return clock.seconds(begin, end)


def fixed_work(clock: Clock[Any]) -> Sentinel:
    """Return a call that takes the same time on each undisturbed run, on the device of ``clock`` with all threads."""
    return _fixed_work(str(clock.device) if isinstance(clock, CudaClock) else "cpu", torch.get_num_threads())


@cache
def _fixed_work(device: str, _threads: int) -> Sentinel:
    with torch.inference_mode(mode=False):  # a call outside of inference mode cannot write to a tensor made in it
        numbers = torch.ones(FIXED_ELEMENTS, dtype=torch.float32, device=device)
        out = torch.empty_like(numbers)
    return Sentinel(TimedCall("fixed work", lambda: torch.sin(numbers, out=out)))


def other_processes_s(stat: Path = _PROC / "stat") -> float | None:
    """Return the CPU seconds that other processes have used so far; None if the system does not report them."""
    try:
        user, nice, system, _idle, _waiting, irq, soft, stolen = map(int, stat.read_text().split()[1:9])
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + soft + stolen) / os.sysconf("SC_CLK_TCK") - time.process_time()


def seconds_by_culprit(own_thread: int, proc: Path = _PROC) -> dict[str, float]:
    """Return the CPU seconds that each other process, and each other thread of Python, has used so far, by its name.

    All processes of a browser count as one. It is empty if the system has no ``/proc``.
    """
    found, ticks = Counter[str](), int(os.sysconf("SC_CLK_TCK"))
    main = "another cell of this kernel" if "ipykernel" in sys.modules else "the main thread of this process"
    names = {
        f"self/task/{thread.native_id}": main if thread is threading.main_thread() else f"thread {thread.name!r}"
        for thread in threading.enumerate()
        if thread.native_id != own_thread
    }
    names |= {folder.name: "" for folder in proc.glob("[0-9]*") if folder.name != str(os.getpid())}
    for folder, name in names.items():
        with suppress(OSError, ValueError):  # it has ended
            command, _, numbers = (proc / folder / "stat").read_text().partition("(")[2].rpartition(")")
            if command.startswith("kworker"):  # a thread of Linux, whose name changes with its work
                continue
            process = "the browser" if _BROWSER.search(command) else f"{command} (process {folder})"
            found[name or process] += sum(map(int, numbers.split()[11:13]))
    return {name: used / ticks for name, used in found.items()}


QUIET_S = 3.0
"""The seconds without other processes after which the machine counts as quiet."""


def wait_until_quiet(
    run: Run, sleep: Callable[[float], None] = time.sleep, now_s: Callable[[], float] = time.perf_counter
) -> None:
    """Wait until other processes use few of the cores; return at once if the system does not report their use."""
    cores = os.cpu_count() or 1
    while not run.cancelled():
        before_s, began_s = other_processes_s(), now_s()
        if before_s is None:
            return
        sleep(QUIET_S)
        used = max(0.0, (other_processes_s() or 0.0) - before_s) / max(QUIET_S, now_s() - began_s)
        if used < LEAST_OTHER_CORES:
            return
        run.progress(f"waiting for a quiet machine: other processes use {used:.1f} of {count(cores, 'core')}", 0.0)


@dataclass
class Watch:
    """Watches the machine during rounds: times the fixed work around each round, and counts others' CPU time.

    ``sentinel_s`` has the longer of the times before and after each round. ``waited_s`` are the seconds that the rounds
    waited for the thread of the user's code. ``before_s`` is the time before the round at hand; None if other work of
    this process came after it.
    """

    clock: Clock[Any]
    sentinel: Sentinel
    sentinel_s: list[float] = field(default_factory=list)
    waited_s: float = 0.0
    before_s: float | None = None
    began_s: float = 0.0
    others_before_s: float | None = None
    before: dict[str, float] = field(default_factory=dict)
    own_thread: int = 0

    def begin(self) -> None:
        """Begin to count the CPU time of other processes; called on the thread that runs the rounds."""
        self.own_thread, self.waited_s = threading.get_native_id(), 0.0
        self.before = seconds_by_culprit(self.own_thread)
        self.began_s, self.others_before_s = time.perf_counter(), other_processes_s()

    def open_round(self) -> None:
        """Time the fixed work before a round; after a report, wait for a quiet moment, but no longer than it takes."""
        end_s = self.clock.now() + SETTLE_S
        while self.before_s is None:
            seconds = self.sentinel.time_s(self.clock)
            if seconds <= QUIET_LIMIT * self.sentinel.fastest_s or self.clock.now() >= end_s:
                self.before_s = seconds

    def close_round(self) -> None:
        """Time the fixed work after a round."""
        after_s = self.sentinel.time_s(self.clock)
        self.sentinel_s.append(max(self.before_s or 0.0, after_s))
        self.before_s = after_s

    def used_rounds(self, rounds: int, earlier: Noise = QUIET) -> tuple[Flags, Noise]:
        """Return which rounds are used (the undisturbed, or all if those are too few), and the noise.

        If they continue a run, its noise is ``earlier``, and its undisturbed rounds count, too.
        """
        others = self._other_cores()
        fastest_s = self.sentinel.fastest_s if others is not None and others >= LEAST_OTHER_CORES else math.inf
        quiet = quiet_rounds(self.sentinel_s[:rounds], fastest_s)
        disturbed = rounds - int(quiet.sum())
        noise = Noise(rounds, disturbed, disturbed, others, os.cpu_count() or 1)
        if noise.is_busy and not isinstance(self.clock, CudaClock):
            noise = replace(noise, culprit=self._culprit())
        if noise.is_too_much or rounds - disturbed + earlier.rounds - earlier.disturbed < LEAST_QUIET_ROUNDS:
            return np.ones(rounds, dtype=np.bool_), replace(noise, left_out=0)
        return quiet, noise

    def _culprit(self) -> str:
        """Return what used the CPU beside the rounds, in words; empty if nothing used a considerable part of it."""
        elapsed_s, cores = time.perf_counter() - self.began_s, os.cpu_count() or 1
        if self.waited_s > OFTEN * elapsed_s:
            return f"another cell of this kernel ran for {duration(self.waited_s)} meanwhile"
        now = seconds_by_culprit(self.own_thread)
        used = ((seconds - self.before.get(name, 0.0), name) for name, seconds in now.items())
        seconds, name = max(used, default=(0.0, ""))
        least_s = min(OFTEN * cores, LEAST_OTHER_CORES) * elapsed_s
        return f"{name} used {seconds / elapsed_s:.1f} of {count(cores, 'core')}" if seconds >= least_s else ""

    def _other_cores(self) -> float | None:
        """Return how many cores other processes used on average so far; None if unknown."""
        now_s, elapsed_s = other_processes_s(), time.perf_counter() - self.began_s
        if now_s is None or self.others_before_s is None or elapsed_s < LEAST_OBSERVED_S:
            return None
        return max(0.0, now_s - self.others_before_s) / elapsed_s


def launch_share(timed_call: TimedCall, clock: Clock[Any]) -> float:
    """Return the time the host takes to launch a call, as a fraction of its time on the (initially idle) device.

    A small fraction means that the device's own speed is measured; near 1 the device waits for the host.
    """
    timed_call.select()
    launch_shares = []
    for _ in range(_LAUNCHED_CALLS):
        timed_call.before()
        clock.flush()
        clock.synchronize()
        began_s, begin = clock.now(), clock.stamp()
        outputs = timed_call.forward()
        if timed_call.backward is not None:
            timed_call.backward(outputs)
        del outputs  # or the next call would find less memory
        end, ended_s = clock.stamp(), clock.now()
        clock.synchronize()
        launch_shares.append((ended_s - began_s) / max(clock.seconds(begin, end), 1e-9))
    return statistics.median(launch_shares)


def launch_warnings(
    timed_calls: Iterable[TimedCall], clock: Clock[Any], threads: Threads, turn: Turn
) -> dict[str, list[str]]:
    """Return the warning for each launch-bound call, by name; calls that raise or are cancelled get none."""

    def share_of(timed_call: TimedCall) -> float:
        with turn():
            return launch_share(timed_call, clock)

    warnings = {}
    for timed_call in timed_calls:
        with suppress(Exception):
            share = threads.run_timed(partial(share_of, timed_call))
            if share >= LAUNCH_BOUND:
                text = f"launch-bound: launching took {share:.0%} of the time on the device"
                warnings[timed_call.name] = [f"{text}; the kernels alone are faster"]
    return warnings


@dataclass(frozen=True)
class DeviceState:
    """Clock, temperature and memory of a GPU; clock and temperature are None if torch cannot read them (no pynvml)."""

    clock_mhz: int | None
    temperature_c: int | None
    used_bytes: int
    total_bytes: int

    def described_since(self, before: DeviceState) -> str:
        """Return a text on memory, clock and temperature over a run."""
        facts = [f"{self.used_bytes / 2**30:.1f} of {self.total_bytes / 2**30:.1f} GiB in use"]
        if before.clock_mhz is not None and self.clock_mhz is not None:
            facts.append(f"SM clock {before.clock_mhz} MHz before, {self.clock_mhz} MHz after")
        if self.temperature_c is not None:
            facts.append(f"{self.temperature_c} °C")
        return ", ".join(facts)

    def throttled_since(self, before: DeviceState) -> str:
        """Return a sentence if the clock fell during a run, else an empty text."""
        then_mhz, now_mhz = before.clock_mhz or 0, self.clock_mhz or math.inf
        fell = now_mhz < CLOCK_RATIO_LIMIT * then_mhz
        return f"Throttling: the SM clock fell from {then_mhz} to {now_mhz} MHz while measuring." if fell else ""


def device_state(device: str) -> DeviceState | None:
    """Return the state of ``device``, or None for a CPU."""
    if not device.startswith("cuda"):
        return None
    gpu = torch.device(device.partition(" ")[0])
    free, total = torch.cuda.mem_get_info(gpu)
    return DeviceState(_reading(torch.cuda.clock_rate, gpu), _reading(torch.cuda.temperature, gpu), total - free, total)


def _reading(reader: Any, gpu: Any) -> int | None:
    try:
        return int(reader(gpu))
    except Exception:  # noqa: BLE001 - errors differ: no pynvml, no driver, or no permission to read
        return None
