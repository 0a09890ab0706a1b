"""The results of a benchmark: timings of variants, numerics, compile costs, memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import final

from msgspec.structs import replace

from regional_explorer.errors import MeasureError, did_you_mean, shown_value
from regional_explorer.record import Count, Quantity, Record, Seconds
from regional_explorer.record.environment import Environment
from regional_explorer.record.figure import QUIET, Figure, Noise


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


BY_DEFAULT = (VariantName.EAGER, VariantName.AOT_EAGER, VariantName.REGIONAL, VariantName.FULL)
"""The variants that are compared by default."""

DEFAULT_BUDGET_S = 5.0
"""The default budget for measuring variants, in seconds."""

BY_TORCH = (VariantName.FULL, VariantName.UPSTREAM, VariantName.LITE)
"""The variants that torch compiles as a whole, each in its own trace."""


def checked_variants(names: Sequence[str]) -> list[VariantName]:
    """Return the variants called ``names`` and eager, in order.

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
"""With fewer samples there is no ratio, interval or spread: even their extremes do not bound a median at 99 %."""

SAME_WITHIN = 0.05
"""Two variants count as equally fast if the whole CI of their ratio is closer to 1 than this."""


class NumericsVerdict(StrEnum):
    """The result of the numerics check of one tensor, or of several together; the worst comes first.

    ``CHAOTIC``: rounding alone may change the results without limit. ``NOT_COMPARABLE``: eager does not reproduce its
    own results, draws other random numbers, or rounding explains the difference. ``NOT_CHECKED``: there is nothing to
    compare, or no way to. ``NOT_COMPARED``: the content of the output is unknown. ``REFERENCE`` is eager, with which
    the others are compared.
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
        """Whether the verdict withholds a speedup: a fast variant may be wrong."""
        return self in {NumericsVerdict.FAILED, NumericsVerdict.CHAOTIC}


class Phase(StrEnum):
    """The part of a call that a figure is about. A step is forward + backward, without an optimizer."""

    FORWARD = "forward"
    BACKWARD = "backward"
    STEP = "step"


class Verdict(StrEnum):
    """The conclusion of the samples about a variant against eager.

    ``SAME``: a difference of more than ``SAME_WITHIN`` is ruled out. ``INCONCLUSIVE``: such a difference is possible,
    but which of the two is faster is unknown. ``BUSY``: inconclusive or without an interval, beside other work.
    ``WITHHELD``: the numerics check gives no speedup, however many samples there are.
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
    def without_interval(cls, *, busy: bool) -> Verdict:
        """Return the verdict where no CI of the speedup is known."""
        return cls.BUSY if busy else cls.UNKNOWN

    @classmethod
    def without_winner(cls, low: float, high: float, *, busy: bool = False) -> Verdict:
        """Return the verdict for a CI of the speedup when neither is faster."""
        if low >= 1.0 / (1.0 + SAME_WITHIN) and high <= 1.0 + SAME_WITHIN:
            return cls.SAME
        return cls.BUSY if busy else cls.INCONCLUSIVE


CONCLUSIONS = frozenset({Verdict.FASTER, Verdict.SLOWER, Verdict.SAME})
"""The verdicts that say which of two is faster, or that neither is."""


@final
class Comparison(Record, frozen=True):
    """The time of a variant against the captured graphs; made only if both give the same results up to rounding."""

    speedup: Figure
    """The median over rounds of traced ÷ variant in the same round."""
    verdict: Verdict
    """What the samples allow to conclude."""
    numerics: NumericsVerdict
    """The verdict of comparing the results of the two."""


AN_EARLIER_RUN = "an earlier run"
"""What has measured ``torch.compile`` if it was not in the rounds of the plan."""


@final
class Timing(Record, frozen=True):
    """Run time of one variant in one phase; compile time is never part of it."""

    variant: str
    phase: Phase
    """The part of the call that was timed."""
    samples_s: tuple[Seconds, ...]
    """Seconds per call, one entry per round, in the order of the rounds."""
    median_s: Figure
    iqr_s: Seconds | None = None
    """Their interquartile range; None with fewer than ``LEAST_SAMPLES`` samples."""
    speedup: Figure | None = None
    """The median over rounds of eager ÷ variant in the same round; None without eager samples of the same rounds, if
    the numerics check failed or cannot fail, or with fewer than ``LEAST_SAMPLES`` samples."""
    verdict: Verdict = Verdict.UNKNOWN
    """What the samples allow to conclude."""
    calls_per_sample: Count = 1
    """How many calls one sample times."""
    numerics: NumericsVerdict = NumericsVerdict.NOT_CHECKED
    """Whether the results are right."""
    warnings: tuple[str, ...] = ()
    """What limits the figures, in sentences."""
    against_trace: Comparison | None = None
    """The variant against the captured graphs, if these differ from eager and the variant's results equal theirs."""
    earlier: bool = False
    """Whether an earlier run has measured it, so that only its speedup compares with other timings of the session."""

    def __post_init__(self) -> None:
        """Check that the time is not negative and the speedup positive: a file may say anything."""
        if min((self.median_s.value, *(self.median_s.bounds or ()))) < 0.0:
            raise ValueError("a time is negative")
        if self.speedup is not None and min((self.speedup.value, *(self.speedup.bounds or ()))) <= 0.0:
            raise ValueError("a speedup is not positive")


class Conditions(Record, frozen=True):
    """The conditions of a benchmark, which are shown with every figure."""

    device: str
    """The device that ran the call."""
    torch: str
    threads: Count
    confidence: Quantity
    """The confidence of the intervals."""
    rounds: Count
    """How many rounds of the call were measured."""
    stopped: str
    """Why the benchmark ended."""
    budget_s: Seconds
    """The seconds that it was given."""
    smallest_difference: Quantity | None = None
    """The smallest relative difference from eager that this run could have found."""
    floors: Mapping[Phase, Quantity] = {}
    """By phase the smallest relative difference that counts, as eager differs from itself by as much."""
    outdated: bool = False
    """Whether another plan than the session's was measured."""
    gpu: str = ""
    """The memory in use, the clocks and the temperature of a GPU."""
    noise: Noise = QUIET
    """What else the machine did while the call was measured."""
    noise_beside: tuple[Noise, ...] = ()
    """The noise of each other measurement: of a partition, or of the cut graph."""
    memory_left_out: tuple[str, ...] = ()
    """The variants whose call takes too long for the budget to read its memory."""
    benchmarks: Count = 1
    """How many benchmarks the samples come from; each adds to those before."""
    environment: Environment | None = None
    """The environment of the benchmark, to compare with a later one; None in an older file."""

    def __post_init__(self) -> None:
        """Check that the samples come from a benchmark: a file may say anything."""
        if self.benchmarks < 1:
            raise ValueError("the samples come from no benchmark")


TWIN_NOTE = "checked on a twin compiled with fallback_random"
"""The note of a row that was checked on a twin: the variant's own code draws other random numbers than eager."""


ZERO_TO_ROUNDING = "zero to rounding: what eager and the variant compute is rounding error alone"
"""The note of a tensor whose true value is zero beside the terms that were summed."""


class Numerics(Record, frozen=True):
    """One tensor that a variant returns, writes or takes as gradient, against eager and against a float64 run.

    Errors are root-mean-square over the tensor, in its own unit.
    """

    variant: str
    tensor: str
    dtype: str = ""
    bitwise: bool = False
    """Whether it equals eager's to the bit."""
    error: float = 0.0
    """How far the variant is from eager."""
    max_error: float = 0.0
    """The largest single |variant − eager|."""
    eager_error: float | None = None
    """How far eager is from float64; None if no float64 run was possible."""
    variant_error: float | None = None
    """How far the variant is from float64; None if no float64 run was possible."""
    tolerance: float = 0.0
    """The error that is allowed."""
    verdict: NumericsVerdict = NumericsVerdict.NOT_CHECKED
    note: str = ""
    """A remark on the result."""
    partition: str = ""
    """The compiled partition that was checked alone against its eager piece; empty for the call."""
    element_share: float = 0.0
    """The error of the worst element relative to the tolerance for one element."""
    judged_by_eager: bool = False
    """Whether eager judges it despite a float64 run, because eager is farther from that than rounding explains."""

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

    @property
    def error_text(self) -> str:
        """The error of a wrong tensor beside the allowed one: as a whole, or of its worst element."""
        if math.isinf(self.error):
            return "infinite or not a number where eager is not, or the reverse" if self.dtype else self.note
        if not self.tolerance:
            return f"off by up to {self.max_error:.2g}, and has to be equal"
        if self.rms_share <= 1.0:
            return f"one element off by {self.max_error:.2g}, {self.element_share:,.3g} times what is allowed"
        allowed = f"({self.tolerance:.2g} is allowed)"
        if self.variant_error is None or self.eager_error is None or self.judged_by_eager:
            return f"{self.error:.2g} from eager {allowed}"
        return f"{self.variant_error:.2g} from float64, where eager is {self.eager_error:.2g} {allowed}"


class CompileCost(Record, frozen=True):
    """The compile time of one artifact, or of the ``full`` variant."""

    what: str
    seconds: Seconds
    """How long it took."""
    cache: str
    """``cold`` or ``warm``."""
    overlapped_s: Seconds = 0.0
    """The seconds in which other compiles ran too."""
    patterns: Mapping[str, Count] | None = None
    """How often each pattern of Inductor's passes matched; None if unknown, as for code from a cache."""

    @property
    def waited_s(self) -> float:
        """Its part of the seconds waited for it and the compiles beside it."""
        return self.seconds - self.overlapped_s


class PartitionTiming(Record, frozen=True):
    """Run time of one partition alone: its eager piece against its artifact, on recorded inputs."""

    partition: str
    """The id of the partition."""
    eager: Timing
    """The time of the eager piece."""
    compiled: Timing | None = None
    """The time of the artifact; None if there is none."""
    runs: Count = 1
    """How often one call runs the partition."""
    measured_as: str | None = None
    """The partition whose figures these are, if both share an artifact and inputs of equal layout; None if it was
    measured itself."""
    bitwise: bool | None = None
    """Whether all its outputs equal eager's to the bit."""
    worst_tensor: str = ""
    """The output with the largest error."""

    def measured_with(self, other: str) -> PartitionTiming:
        """Return the timing for a partition whose samples are with the partition ``other``."""
        eager, compiled = replace(self.eager, samples_s=()), self.compiled and replace(self.compiled, samples_s=())
        return replace(self, eager=eager, compiled=compiled, measured_as=other)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of both timings, each once."""
        return tuple(dict.fromkeys((*self.eager.warnings, *(self.compiled.warnings if self.compiled else ()))))


class ReconciliationRow(Record, frozen=True):
    """One row of the table in which the parts add up to the whole, in seconds per call."""

    phase: Phase
    """The part of the call."""
    part: str
    """The part that the row is about."""
    seconds: Figure
    """The time of a variant in a ``total`` row; else the difference to the next total, positive if the call takes
    longer."""
    total: bool = False
    """Whether the row is the time of a variant."""
    region: str | None = None
    """The region that the row is about, if it is about one."""
    note: str = ""
    """How the row was computed."""


class MemoryPeak(Record, frozen=True):
    """The peak memory of one call of a variant, above what was allocated before it."""

    variant: str
    peak_bytes: Figure
    how: str
    """``allocator`` (of the device: exact) or ``resident set`` (of the process: in pages of the system)."""
    least_bytes: Count = 0
    """Peaks below this cannot be distinguished from zero."""
