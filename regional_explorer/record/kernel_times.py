"""The measured time of each kernel of an artifact, and the lower bound for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

ADDS_UP_WITHIN = 0.1
"""The relative difference up to which times are said to add up."""


class BoundBy(StrEnum):
    """What the lower bound of a kernel is: copying the bytes it moves, or a matrix product of its size."""

    COPY = "copy"
    MATRIX = "matrix product"


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One launch of a kernel: the median and the interquartile range of its times, and its bound.

    ``bound_s`` is None where no bound is known; then no time counts as wasted.
    """

    median_s: float
    iqr_s: float
    bound_s: float | None = None
    bound_by: BoundBy | None = None

    @property
    def wasted_s(self) -> float | None:
        """The time beyond the bound; 0.0 if the kernel is faster than that."""
        return None if self.bound_s is None else max(0.0, self.median_s - self.bound_s)


@dataclass(frozen=True, slots=True)
class ArtifactKernelTimes:
    """The times of the kernels of one artifact, in the order of ``ArtifactCode.kernels``, None where one was not timed.

    ``whole_s`` is the median time of the same call without clocks between the kernels, ``between_s`` the median time
    between the kernels in the generated code with clocks: allocations, checks, and launches. ``around_s`` is the time
    of the wrapper that calls the generated code. ``with_clocks`` is the time of wrapper and code with clocks relative
    to the call without. All are of medians over rounds in which the calls ran one after the other.
    ``build_s`` is the time of the build with clocks. ``problem`` says why there are no times.
    """

    artifact: str
    kernels: tuple[KernelTime | None, ...] = ()
    whole_s: float = 0.0
    between_s: float = 0.0
    around_s: float = 0.0
    with_clocks: float = 1.0
    rounds: int = 0
    build_s: float = 0.0
    problem: str | None = None

    @property
    def kernels_s(self) -> float:
        """The times of all kernels together."""
        return sum(kernel.median_s for kernel in self.kernels if kernel is not None)

    @property
    def unaccounted_s(self) -> float:
        """The time of the call without clocks that is neither in the kernels, nor between, nor around them."""
        return self.whole_s - self.kernels_s - self.between_s - self.around_s

    @property
    def adds_up(self) -> bool:
        """Whether the kernels, the time between and that around them are the time of the call, to a tenth of it."""
        return abs(self.unaccounted_s) <= ADDS_UP_WITHIN * self.whole_s
