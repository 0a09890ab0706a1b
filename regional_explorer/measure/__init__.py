"""Measuring: clocks, interleaved rounds, and what the samples allow one to say."""

from regional_explorer.measure.clock import Clock, CpuClock, CudaClock, clock_for
from regional_explorer.measure.contender import Contender
from regional_explorer.measure.effort import Effort
from regional_explorer.measure.result import Progress, RoundsResult, Stop
from regional_explorer.measure.rounds import run_rounds
from regional_explorer.measure.summary import Summary, summarize

__all__ = [
    "Clock",
    "Contender",
    "CpuClock",
    "CudaClock",
    "Effort",
    "Progress",
    "RoundsResult",
    "Stop",
    "Summary",
    "clock_for",
    "run_rounds",
    "summarize",
]
