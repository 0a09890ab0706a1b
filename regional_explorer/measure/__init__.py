"""Measures variants, regions, partitions and ops: time, memory and numerics."""

from regional_explorer.measure.clock import Clock, CpuClock, CudaClock, TimedCall, clock_for
from regional_explorer.measure.rounds import BenchmarkOptions, RoundsResult, Stop, run_rounds
from regional_explorer.measure.summary import Summary, summarize

__all__ = [
    "BenchmarkOptions",
    "Clock",
    "CpuClock",
    "CudaClock",
    "RoundsResult",
    "Stop",
    "Summary",
    "TimedCall",
    "clock_for",
    "run_rounds",
    "summarize",
]
