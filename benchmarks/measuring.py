"""The error rate of measuring, the sums of a profile, and the memory that explorations leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import combinations
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
from torch import nn
from torch.nn import functional as F
from torch.utils.benchmark import Timer

import regional_explorer as rx
from benchmarks.row import Row, in_process
from benchmarks.trials import BY_ROUNDS, table, trials
from regional_explorer.record.benchmark import Verdict
from regional_explorer.record.changes import speed_change
from regional_explorer.record.files import load_session
from regional_explorer.record.session import Session
from tests.shared.models import explore
from tests.shared.processes import resident_mib


def by_timer(first: Callable[[], object], second: Callable[[], object], budget_s: float, _seed: int = 0) -> Verdict:
    """Compare two functions with ``torch.utils.benchmark`` in the same time; they differ if the IQRs are disjoint."""
    quartiles = []
    for function in (first, second):
        timer = Timer("function()", globals={"function": function}, num_threads=torch.get_num_threads())
        times = timer.blocked_autorange(min_run_time=budget_s / 2.0).times
        quartiles.append(np.quantile(times, (0.25, 0.75)))
    (first_low, first_high), (second_low, second_high) = quartiles
    if second_low > first_high:
        return Verdict.SLOWER
    return Verdict.FASTER if second_high < first_low else Verdict.SAME


def errors(equal: int = 200, slowed: int = 100, budget_s: float = 5.0) -> Iterator[str]:
    """Count pairs of equal functions that are called different, and slowdowns of 3 % that are found.

    Goals: at most 2 % of equal pairs, and at most a quarter of the pairs that torch.utils.benchmark calls different; at
    least 90 % of the slowdowns. It takes half an hour.
    """
    methods = {**BY_ROUNDS, "torch.utils.benchmark": by_timer}
    outcomes = [*trials(equal, 0.0, budget_s, methods), *trials(slowed, 0.03, budget_s, methods)]
    yield f"\n{table(outcomes)}"


def self_test(pairs: int = 40, budget_s: float = 2.0) -> Iterator[str]:
    """Count the same of this package alone, on fewer pairs; it takes three minutes."""
    yield f"\n{table([*trials(pairs, 0.0, budget_s), *trials(pairs, 0.03, budget_s)])}"


def busy_errors(equal: int = 200, slowed: int = 100, budget_s: float = 2.0) -> Iterator[str]:
    """Count the same for slowdowns of 5 %, beside two processes that compute: none may be called faster.

    A slowdown that is not found has to be called undecided, and no equal pair different. It takes ten minutes.
    """
    with other_work(2):
        outcomes = [*trials(equal, 0.0, budget_s), *trials(slowed, 0.05, budget_s)]
    yield f"\n{table(outcomes)}"


@contextmanager
def other_work(processes: int) -> Iterator[None]:
    """Let ``processes`` processes compute in the block; they end with this process, however it ends."""
    code = f"import os\nwhile os.getppid() == {os.getpid()}:\n    sum(range(100_000))"
    with ExitStack() as running:
        for _ in range(processes):
            process = subprocess.Popen([sys.executable, "-I", "-S", "-c", code])
            running.callback(process.wait)
            running.callback(process.kill)
        time.sleep(0.1 * bool(processes))
        yield


# --------------------------------------------------------------------------------------------------- sessions compared

LIMIT, SLOWDOWN = 0.03, 1.08

MEASURED = "import sys; from benchmarks.measuring import save_measured; save_measured(*sys.argv[1:])"


def save_measured(path: str, budget_s: str) -> None:
    """Measure one function and save the session."""
    torch.manual_seed(0)
    up, down = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def block(x: torch.Tensor) -> torch.Tensor:
        with rx.region("mlp"):
            y = down(F.gelu(up(x)))
        return torch.softmax(x + y, -1)

    ex = rx.explore(block, (torch.randn(256, 256),))
    ex.benchmark(variants=("eager", "regional"), budget_s=float(budget_s))
    ex.save(path)


def compare_apart(sessions: int = 21, budget_s: float = 15.0) -> Iterator[str]:
    """Compare sessions of one function, each measured in a process of its own, pair by pair.

    Hardly any equal pair may fail at 3 %. With the later regional time made 8 % longer, nearly all of them must fail.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.json") for number in range(sessions)]
        for path in paths:
            in_process(MEASURED, path, budget_s)
        pairs = list(combinations(map(load_session, paths), 2))
    equal = [speed_change(before, after) for before, after in pairs]
    slowed = [speed_change(before, _slowed(after)) for before, after in pairs]
    wrong, detected = (sum(change.is_slower(LIMIT) for change in changes) for changes in (equal, slowed))
    low, *_, high = sorted(change.slowdown.value for change in equal if change.slowdown)
    yield f"\n{len(pairs)} equal pairs: {wrong} fail at {LIMIT:.0%}; slowdowns {low:.3f} to {high:.3f}"
    yield f"{len(pairs)} pairs slowed by {SLOWDOWN - 1:.0%}: {detected} fail at {LIMIT:.0%}"


def _slowed(session: Session) -> Session:
    """Return ``session`` with its plan made slower."""
    timings = (
        replace(timing, speedup=timing.speedup * (1.0 / SLOWDOWN))
        if timing.variant == "regional" and timing.speedup
        else timing
        for timing in session.timings
    )
    return replace(session, timings=tuple(timings))


# ------------------------------------------------------------------------------------------------------------ profile

REPEATS = {"gpt": 256, "bert": 256, "albert": 256, "gpt2": 128, "llama": 256, "vit": 256, "dit": 32, "mamba": 64}
"""How often the batch of a model is repeated, so that launching an op takes little of its time."""


def profile_rows(models: Iterable[str] = ("quickstart", *REPEATS), budget_s: float = 5.0) -> Iterator[Row]:
    """Profile a training step: the sum of its ops and of the code around them, beside the step."""
    for name in models:
        with explore(name, repeats=REPEATS.get(name, 1)) as ex:
            ex.profile(budget_s)
            profile = ex.session.profile
            assert profile is not None
            step_s = profile.step.value
            what = f"profile of {name}: {len(profile.ops)} ops, {profile.seconds.value / step_s:.3f} of the step"
            yield Row(f"{what}, and the code around them", "aot_eager", [profile.whole_s], [step_s], 1.1, least=0.9)


# ------------------------------------------------------------------------------------------------------------- memory

LEFT_MIB = 20.0
WARMUP = 5

CASES = {
    "close": "explore, compile, call, `ex.close()`; the same function",
    "drop": "explore, compile, call, `del ex`; the same function",
    "fresh": "explore, compile, call, `ex.close()`; a fresh function each time",
}


def memory_rows(cycles: int = 200) -> Iterator[Row]:
    """Measure how the resident set grows over ``cycles`` cycles after a warm-up, each case in its own process."""

    def grown(case: str) -> float:
        code = f"from benchmarks.measuring import growth_mib; print(growth_mib({case!r}, {cycles}))"
        return float(in_process(code).split()[-1])

    limit = f"{LEFT_MIB:g} MiB; plain `torch.compile` of a fresh function: {grown('plain'):.0f} MiB"
    for case, what in CASES.items():
        yield Row(f"memory after {cycles} cycles: {what}", limit, [grown(case)], [LEFT_MIB], 1.0, unit="MiB")


def growth_mib(case: str, cycles: int) -> float:
    """Return the MiB that a case grows by."""
    cycle = _cycle(case)
    for _ in range(WARMUP):
        cycle()
    before = resident_mib()
    for _ in range(cycles):
        cycle()
    return resident_mib() - before


def _cycle(case: str) -> Callable[[], None]:
    x, w = torch.randn(16, 16), torch.randn(16, 16, requires_grad=True)

    def compile_with_torch() -> None:
        torch.autograd.grad(torch.compile(_fresh())(x, w), [w])

    def compile_with_explorer() -> None:
        ex = rx.explore(_fresh() if case == "fresh" else _step, (x, w))
        torch.autograd.grad(ex.compiled(x, w), [w])
        if case != "drop":
            ex.close()

    return compile_with_torch if case == "plain" else compile_with_explorer


def _step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with rx.region("mlp"):
        y = F.gelu(x @ w)
        z = torch.sin(y) * 2
    return (z + x).square().mean()


def _fresh() -> Callable[..., Any]:
    """Return the function with a code object of its own: Dynamo keeps its knowledge per code object."""
    return FunctionType(_step.__code__.replace(), globals())
