"""One line of the table that ``make bench`` prints, the turns it comes from, and how steps and processes are timed."""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

import regional_explorer as rx
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.rounds import run_rounds
from regional_explorer.record.benchmark import Phase, VariantName
from regional_explorer.record.statistics import confidence_interval


@dataclass(frozen=True)
class Row:
    """The figures of both sides in each turn, in ``unit``, and the wanted range of the ratio: ``least`` to ``goal``.

    Both sides of a turn ran one right after the other, so that a slower machine slows both.
    """

    what: str
    against: str
    ours: Sequence[float]
    theirs: Sequence[float]
    goal: float
    least: float = 0.0
    unit: str = "s"

    @property
    def ratio(self) -> float:
        """Ours / theirs, the median over the turns."""
        return statistics.median(self._ratios)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the ratio; its range with fewer than six turns, None with one turn."""
        if len(self._ratios) == 1:
            return None
        return confidence_interval(np.asarray(self._ratios), 0.95) or (min(self._ratios), max(self._ratios))

    @property
    def result(self) -> str:
        """Whether the goal is met, and whether the interval leaves that open."""
        word = "met" if self.least <= self.ratio <= self.goal else "missed"
        low, high = self.interval or (self.ratio, self.ratio)
        return f"{word}, not sure" if low <= self.goal < high or low < self.least <= high else word

    @property
    def _ratios(self) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]


def elapsed_s(act: Callable[[], Any]) -> float:
    """Return the wall seconds that ``act`` takes; garbage is collected before."""
    gc.collect()
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def turns(repeats: int, *sides: Callable[[], float]) -> list[list[float]]:
    """Call each of ``sides`` once a turn, in reverse order every second turn; return their seconds by side."""
    seconds: list[list[float]] = [[] for _ in sides]
    for turn in range(repeats):
        for index in list(range(len(sides)))[:: -1 if turn % 2 else 1]:
            seconds[index].append(sides[index]())
    return seconds


def in_process(code: str, *arguments: object, **environment: str) -> str:
    """Return the output of ``code`` in a Python process of its own; empty ``environment`` variables are unset."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    around = {name: value for name, value in {**os.environ, **environment}.items() if value}
    return subprocess.run(command, env=around, check=True, stdout=subprocess.PIPE, text=True).stdout


def training_steps(
    functions: Mapping[str, Callable[..., Any]], x: torch.Tensor, leaves: list[torch.Tensor], budget_s: float
) -> Mapping[str, Sequence[float]]:
    """Return the seconds of the training steps of each function, once all are compiled, in interleaved rounds."""

    def gradients(loss: Any) -> object:
        return torch.autograd.grad(loss, leaves)

    for function in functions.values():
        for _ in range(3):
            gradients(function(x))
    return _steps([TimedCall(name, partial(fn, x), gradients) for name, fn in functions.items()], budget_s)


def regional_steps(explorations: Mapping[str, rx.Exploration], budget_s: float) -> Iterable[Sequence[float]]:
    """Return the seconds of the training steps of compiled explorations, and close these."""
    regional = {name: ex.live.variants.get(VariantName.REGIONAL) for name, ex in explorations.items()}
    steps = _steps([TimedCall(name, call.forward, call.backward) for name, call in regional.items()], budget_s)
    for ex in explorations.values():
        ex.close()
    return steps.values()


def inference_calls(
    functions: Mapping[str, Callable[..., Any]], x: torch.Tensor, budget_s: float
) -> Mapping[str, Sequence[float]]:
    """Return the seconds of the calls of each function without gradients, likewise."""
    with torch.no_grad():
        for function in functions.values():
            for _ in range(3):
                function(x)
        return _steps([TimedCall(name, partial(fn, x)) for name, fn in functions.items()], budget_s, Phase.FORWARD)


def _steps(calls: list[TimedCall], budget_s: float, phase: Phase = Phase.STEP) -> Mapping[str, Sequence[float]]:
    result = run_rounds(calls, budget_s, baseline=calls[-1].name)
    return {name: phases[phase] for name, phases in result.samples.items()}


def cells(*values: object) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(map(str, values))} |"


def heads(*names: str) -> str:
    """Return the first two lines of a Markdown table."""
    return f"\n{cells(*names)}\n{'|---' * len(names)}|"
