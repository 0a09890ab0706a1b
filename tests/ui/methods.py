"""The methods of an exploration that take a run."""

from __future__ import annotations

from collections.abc import Callable

import regional_explorer as rx

METHODS: dict[str, Callable[[rx.Exploration, rx.Run], object]] = {
    "profile": lambda ex, run: ex.profile(0.05, run=run),
    "compile": lambda ex, run: ex.compile(run=run),
    "benchmark": lambda ex, run: ex.benchmark(("eager", "regional"), 0.05, run=run),
    "code": lambda ex, run: ex.code("first", run=run),
    "code under a config": lambda ex, run: ex.code("first", config={"max_fusion_size": 3}, run=run),
    "stages": lambda ex, run: ex.stages("second", run=run),
    "kernel times": lambda ex, run: ex.kernel_times("first", 0.05, run=run),
    "diagnose": lambda ex, run: ex.diagnose("first", 0.05, run=run),
    "floor": lambda ex, run: ex.floor(0.5, run=run),
    "retrace": lambda ex, run: ex.retrace(run=run),
}
