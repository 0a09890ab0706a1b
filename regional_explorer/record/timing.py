"""What was measured: run time, compile time, numerics."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """Which part of a call a figure is about. A step is forward + backward, without an optimizer."""

    FORWARD = "forward"
    BACKWARD = "backward"
    STEP = "step"


class Verdict(StrEnum):
    """What the samples allow one to say about a variant against eager."""

    BASELINE = "baseline"
    FASTER = "faster"
    SLOWER = "slower"
    SAME = "no difference"
    UNKNOWN = "not enough data"


@dataclass(frozen=True, slots=True)
class Timing:
    """Run time of one variant in one phase; compile time is never part of it.

    ``samples_s`` holds seconds per call, one entry per round, in the order of the rounds. ``speedup`` is the median
    over rounds of eager / variant in the same round; ``speedup_low`` and ``speedup_high`` bound its bootstrap CI.
    They are None where no eager sample stands beside, or where the numerics check failed (``numerics_ok`` False).
    """

    variant: str
    phase: Phase
    samples_s: tuple[float, ...]
    median_s: float
    iqr_s: float
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    verdict: Verdict
    calls_per_sample: int = 1
    numerics: str = "not checked"
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under which conditions a benchmark ran: no figure is shown without them.

    ``outdated`` tells that the plan has changed since; ``smallest_difference`` is the smallest relative difference
    from eager that this run could have told.
    """

    device: str
    torch: str
    threads: int
    confidence: float
    rounds: int
    stopped: str
    budget_s: float
    smallest_difference: float | None = None
    outdated: bool = False


@dataclass(frozen=True, slots=True)
class Numerics:
    """One output or gradient of one variant against eager and against a float64 run.

    Differences are root-mean-square over the tensor, in its own unit; ``max_error`` is the largest single
    |variant - eager|. The float64 columns are None where no float64 run was possible.
    """

    variant: str
    tensor: str
    dtype: str
    bitwise: bool
    error: float
    max_error: float
    eager_error: float | None
    variant_error: float | None
    tolerance: float
    verdict: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class CompileCost:
    """What one compile cost: of one artifact, or of the ``full`` variant. ``cache`` is ``cold`` or ``warm``."""

    what: str
    seconds: float
    cache: str
