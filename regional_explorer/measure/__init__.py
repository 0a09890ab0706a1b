"""Measures variants, regions, partitions and ops: time, memory and numerics."""

from regional_explorer.measure.timing.benchmark_options import BenchmarkOptions
from regional_explorer.measure.timing.clock import Clock, CpuClock, CudaClock, clock_for
from regional_explorer.measure.timing.rounds import run_rounds
from regional_explorer.measure.timing.rounds_result import RoundsResult, Stop
from regional_explorer.measure.timing.summary import Summary, summarize
from regional_explorer.measure.timing.timed_call import TimedCall

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
