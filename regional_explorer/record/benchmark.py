"""What a benchmark found: timings of variants, numerics, compile costs, memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import final

from msgspec.structs import replace

from regional_explorer.errors import MeasureError, did_you_mean, shown_value
from regional_explorer.record.figure import QUIET, Figure, Noise
from regional_explorer.record.record import Count, Quantity, Record, Seconds


class VariantName(StrEnum):
    """The variants. ``aot_eager`` is the capture with nothing cut, ``full`` plain ``torch.compile``.

    ``upstream`` is the call with the plan's marks under upstream's ``regional_inductor``, ``lite`` the same under
    ``torch.compile(mode="lite")``: what the annotations give without this package.
    """

    EAGER = "eager"
    AOT_EAGER = "aot_eager"
    REGIONAL = "regional"
    FULL = "full"
    UPSTREAM = "upstream"
    LITE = "lite"


AT_FIRST = (VariantName.EAGER, VariantName.AOT_EAGER, VariantName.REGIONAL)
"""The variants that a panel compares until ``torch.compile`` is asked for: the whole call takes longest to compile."""

BY_DEFAULT = (*AT_FIRST, VariantName.FULL)
"""The variants that are compared by default."""

BY_TORCH = (VariantName.FULL, VariantName.UPSTREAM, VariantName.LITE)
"""The variants that torch compiles as a whole, each in its own trace."""


def checked_variants(names: Sequence[str]) -> list[VariantName]:
    """Return the variants of these names and eager, in order.

    Raises:
        MeasureError: ``names`` is not a sequence, or no variant has one of the names.
    """
    valid = [str(name) for name in VariantName]
    if isinstance(names, (str, Mapping)) or not isinstance(names, Iterable):
        raise MeasureError(f"variants={shown_value(names)}: give a tuple of names, such as ('eager', 'regional').")
    names = list(names)
    for name in names:
        if not isinstance(name, str) or name not in valid:
            raise MeasureError(
                f"No variant is called {shown_value(name)}.{did_you_mean(name, valid)} Variants: {', '.join(valid)}."
            )
    return [name for name in VariantName if name in names or name is VariantName.EAGER]


LEAST_SAMPLES = 8
"""With fewer samples no ratio, interval or spread is given: not even all of them bound a median with 99 %."""

SAME_WITHIN = 0.05
"""Two variants count as equally fast if the whole CI of their ratio is closer to 1 than this."""


class NumericsVerdict(StrEnum):
    """The result of the numerics check of one tensor, or of several together; the worst comes first.

    ``CHAOTIC``: rounding alone may change the results into any others. ``NOT_COMPARABLE``: eager does not reproduce its
    own results, draws other random numbers, or rounding explains the difference. ``NOT_CHECKED``: there
    is nothing to compare, or no way to. ``NOT_COMPARED``: the content of the output is unknown. ``REFERENCE`` is eager,
    which the others are compared with.
    """

    FAILED = "failed"
    CHAOTIC = "chaotic"
    NOT_COMPARABLE = "not comparable"
    NOT_CHECKED = "not checked"
    OK = "ok"
    NOT_COMPARED = "not compared"
    REFERENCE = "reference"

    @classmethod
    def worst(cls, verdicts: Iterable[NumericsVerdict]) -> NumericsVerdict | None:
        """Return the worst of ``verdicts``, None if there are none."""
        return min(verdicts, key=list(cls).index, default=None)

    @property
    def withholds_speedup(self) -> bool:
        """Whether no speedup is given: what is fast may be wrong."""
        return self in {NumericsVerdict.FAILED, NumericsVerdict.CHAOTIC}


class Phase(StrEnum):
    """Which part of a call a figure is about. A step is forward + backward, without an optimizer."""

    FORWARD = "forward"
    BACKWARD = "backward"
    STEP = "step"


class Verdict(StrEnum):
    """The conclusion that the samples allow about a variant against eager.

    ``SAME``: a difference of more than ``SAME_WITHIN`` is ruled out. ``INCONCLUSIVE``: such a difference is possible,
    but which of the two is faster is unknown. ``BUSY``: the same, or no interval, beside other work. ``WITHHELD``: the
    numerics check gives no speedup, however many samples there are.
    """

    BASELINE = "baseline"
    FASTER = "faster"
    SLOWER = "slower"
    SAME = "no difference"
    INCONCLUSIVE = "inconclusive"
    BUSY = "machine busy"
    UNKNOWN = "not enough data"
    WITHHELD = "withheld"
    NONE = "no verdict"
    """The variant did not run the same code throughout."""

    @property
    def is_unsure(self) -> bool:
        """Whether more rounds, or a quieter machine, may give another verdict."""
        return self in {Verdict.INCONCLUSIVE, Verdict.BUSY, Verdict.UNKNOWN}

    @classmethod
    def without_winner(cls, low: float, high: float, *, busy: bool = False) -> Verdict:
        """Return the verdict for a CI of the speedup when neither is faster."""
        if low >= 1.0 / (1.0 + SAME_WITHIN) and high <= 1.0 + SAME_WITHIN:
            return cls.SAME
        return cls.BUSY if busy else cls.INCONCLUSIVE


@final
class Comparison(Record, frozen=True):
    """How a variant compares with another ``baseline`` than eager, whose results are its own up to rounding.

    ``speedup`` is the median over rounds of baseline / variant in the same round, ``numerics`` the verdict of comparing
    the results of the two.
    """

    baseline: str
    speedup: Figure
    verdict: Verdict
    numerics: NumericsVerdict


@final
class Timing(Record, frozen=True):
    """Run time of one variant in one phase; compile time is never part of it.

    ``samples_s`` holds seconds per call, one entry per round, in the order of the rounds. ``speedup`` is the median
    over rounds of eager / variant in the same round; None without eager samples of the same rounds, if the numerics
    check failed or cannot fail, and with fewer than ``LEAST_SAMPLES`` samples; in that case ``iqr_s`` is None too.
    ``against_trace`` is the comparison with the captured graphs, where these differ from eager and the variant does not
    differ from them.
    """

    variant: str
    phase: Phase
    samples_s: tuple[Seconds, ...]
    median_s: Figure
    iqr_s: Seconds | None = None
    speedup: Figure | None = None
    verdict: Verdict = Verdict.UNKNOWN
    calls_per_sample: Count = 1
    numerics: NumericsVerdict = NumericsVerdict.NOT_CHECKED
    warnings: tuple[str, ...] = ()
    against_trace: Comparison | None = None

    def __post_init__(self) -> None:
        """Check that the time is not negative and the speedup positive: a file may say anything."""
        if min((self.median_s.value, *(self.median_s.bounds or ()))) < 0.0:
            raise ValueError("a time is negative")
        if self.speedup is not None and min((self.speedup.value, *(self.speedup.bounds or ()))) <= 0.0:
            raise ValueError("a speedup is not positive")


def withheld_text(*timings: Timing) -> str:
    """Return whose numerics check withholds a comparison of ``timings``; empty if none does."""
    whose = [f"numerics of {one.variant} {one.numerics}" for one in timings if one.numerics.withholds_speedup]
    return f"{Verdict.WITHHELD}: {' and '.join(whose)}" if whose else ""


class Conditions(Record, frozen=True):
    """The conditions of a benchmark, which are shown with every figure.

    ``outdated`` says that a plan other than the session's was measured; ``smallest_difference`` is the smallest
    relative difference from eager that this run could have found. ``gpu`` is the memory in use, the clocks and the
    temperature of a GPU. ``rounds`` and ``noise`` are of the call; ``noise_beside`` has one for each measurement of a
    partition or of the cut graph. ``memory_left_out`` are the variants of which one call takes too long beside the
    budget to read its memory.
    """

    device: str
    torch: str
    threads: Count
    confidence: Quantity
    rounds: Count
    stopped: str
    budget_s: Seconds
    smallest_difference: Quantity | None = None
    outdated: bool = False
    gpu: str = ""
    noise: Noise = QUIET
    noise_beside: tuple[Noise, ...] = ()
    memory_left_out: tuple[str, ...] = ()


TWIN_NOTE = "checked on a twin compiled with fallback_random"
"""The note of a row that is not of the variant's own code, which draws other random numbers than eager does."""


class Numerics(Record, frozen=True):
    """One output or gradient of one variant, or one tensor that it wrote, against eager and against a float64 run.

    Differences are root-mean-square over the tensor, in its own unit; ``max_error`` is the largest single
    |variant - eager|. The float64 columns are None if no float64 run was possible; ``judged_by_eager`` says that there
    was one, but eager is farther from it than rounding explains. ``element_share`` is the error of the worst element
    relative to the tolerance for one element. ``partition`` is set if a compiled partition was checked alone, on the
    inputs recorded for it, against its eager piece.
    """

    variant: str
    tensor: str
    dtype: str = ""
    bitwise: bool = False
    error: float = 0.0
    max_error: float = 0.0
    eager_error: float | None = None
    variant_error: float | None = None
    tolerance: float = 0.0
    verdict: NumericsVerdict = NumericsVerdict.NOT_CHECKED
    note: str = ""
    partition: str = ""
    element_share: float = 0.0
    judged_by_eager: bool = False

    @property
    def share(self) -> float:
        """The error relative to the tolerance; infinite if the error is NaN."""
        return max(self.rms_share, self.element_share)

    @property
    def rms_share(self) -> float:
        """The error of the tensor as a whole relative to its tolerance."""
        error = self.error if self.variant_error is None or self.judged_by_eager else self.variant_error
        share = error / self.tolerance if self.tolerance else math.inf if error else 0.0
        return math.inf if math.isnan(share) else share


class CompileCost(Record, frozen=True):
    """The compile time of one artifact, or of the ``full`` variant. ``cache`` is ``cold`` or ``warm``.

    In ``overlapped_s`` of the ``seconds`` others were compiled too.
    """

    what: str
    seconds: Seconds
    cache: str
    overlapped_s: Seconds = 0.0

    @property
    def waited_s(self) -> float:
        """Its part of the seconds that were waited for."""
        return self.seconds - self.overlapped_s


class PartitionTiming(Record, frozen=True):
    """Run time of one partition alone: its eager piece against its artifact, on inputs recorded from the real call.

    ``compiled`` is None if there is no artifact (disabled, failed). ``runs`` is how often one call runs the partition.
    ``measured_as`` is the partition whose figures these are, which alone has the samples, if both share an artifact and
    inputs of equal layout; None if it was measured itself.
    """

    partition: str
    eager: Timing
    compiled: Timing | None = None
    runs: Count = 1
    measured_as: str | None = None
    bitwise: bool | None = None
    worst_tensor: str = ""

    def measured_with(self, other: str) -> PartitionTiming:
        """Return the timing as that of a partition whose samples stand with ``other``."""
        eager, compiled = replace(self.eager, samples_s=()), self.compiled and replace(self.compiled, samples_s=())
        return replace(self, eager=eager, compiled=compiled, measured_as=other)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of both, each once."""
        return tuple(dict.fromkeys((*self.eager.warnings, *(self.compiled.warnings if self.compiled else ()))))


class Reconciled(Record, frozen=True):
    """One row of how the parts add up to the whole, in seconds per call.

    ``total`` rows are times of a variant; the rows between them are the differences from one to the next, positive if
    the call takes longer. ``note`` says how the row was found.
    """

    phase: Phase
    part: str
    seconds: Figure
    total: bool = False
    region: str | None = None
    note: str = ""


class MemoryPeak(Record, frozen=True):
    """The peak memory of one call of a variant, above what was allocated before it.

    ``how`` is ``allocator`` (of the device: exact) or ``resident set`` (of the process: in pages of the system, so that
    a peak below ``least_bytes`` cannot be distinguished from zero).
    """

    variant: str
    peak_bytes: Figure
    how: str
    least_bytes: Count = 0
