"""The result of a run of rounds: samples by variant and phase, ratios to the baseline, why it stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from regional_explorer.measure.timing.benchmark_options import BenchmarkOptions
from regional_explorer.record.statistics import Floats, paired_ratios
from regional_explorer.record.timing import Phase


class Stop(StrEnum):
    """Why a run ended."""

    PRECISE = "every speedup is precise enough"
    BUDGET = "the budget is spent"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    FAILED = "nothing is left to measure"

    def raise_interrupt(self) -> None:
        """Raise the KeyboardInterrupt that ended the run, if one did: to be called when its results are kept."""
        if self is Stop.INTERRUPTED:
            raise KeyboardInterrupt


@dataclass(frozen=True, slots=True)
class RoundsResult:
    """The samples of a run, from complete rounds; a variant that raised keeps its earlier samples.

    ``samples`` holds seconds per call by variant and phase, in the order of the rounds; ``control`` those of the
    baseline's second entry, empty without a control. ``dropped`` says by variant what was raised, and when.
    ``waited_s`` is the part of ``spent_s`` in which this thread was ready to run but got no core; None if the system
    does not report it.
    """

    baseline: str
    options: BenchmarkOptions
    samples: Mapping[str, Mapping[Phase, tuple[float, ...]]]
    control: Mapping[Phase, tuple[float, ...]]
    dropped: Mapping[str, str]
    rounds: int
    calls_per_sample: int
    spent_s: float
    stopped: Stop
    waited_s: float | None = None

    def ratios(self, variant: str, phase: Phase) -> Floats | None:
        """Return baseline / variant by round, or None if one of them was not measured."""
        return ratios_of(self.samples.get(self.baseline, {}), self.samples.get(variant, {}), phase)

    def control_ratios(self, phase: Phase) -> Floats | None:
        """Return baseline / baseline by round, or None without a control."""
        return ratios_of(self.samples.get(self.baseline, {}), self.control, phase)


def ratios_of(
    baseline: Mapping[Phase, Sequence[float]], variant: Mapping[Phase, Sequence[float]], phase: Phase
) -> Floats | None:
    """Return baseline / variant by round, or None if one of them was not measured."""
    baseline_s, variant_s = baseline.get(phase), variant.get(phase)
    return paired_ratios(baseline_s, variant_s) if baseline_s and variant_s else None
