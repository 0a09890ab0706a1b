"""How long each kernel of an artifact takes in place, beside the least that it could take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

TENTH = 0.1
"""How far times may be apart and still be said to add up."""


class BoundBy(StrEnum):
    """What bounds a kernel: copying the bytes it moves, or a matrix product of its size."""

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
        """The time beyond the bound; 0.0 where it is faster than that."""
        return None if self.bound_s is None else max(0.0, self.median_s - self.bound_s)


@dataclass(frozen=True, slots=True)
class ArtifactKernelTimes:
    """The times of the kernels of one artifact, in the order of ``ArtifactCode.kernels``, None where one was not timed.

    ``whole_s`` is the median time of the same call without a clock between the kernels, ``between_s`` that of what lies
    between the kernels in the call with clocks: allocations, checks, and launching them. ``with_clocks`` says how many
    times as long that call takes, the median over rounds in which both ran one after the other. ``build_s`` is what the
    build with clocks took. ``problem`` says why there are no times.
    """

    artifact: str
    kernels: tuple[KernelTime | None, ...] = ()
    whole_s: float = 0.0
    between_s: float = 0.0
    with_clocks: float = 1.0
    rounds: int = 0
    build_s: float = 0.0
    problem: str | None = None

    @property
    def kernels_s(self) -> float:
        """The times of all kernels together."""
        return sum(kernel.median_s for kernel in self.kernels if kernel is not None)

    @property
    def adds_up(self) -> bool:
        """Whether kernels and what lies between them take as long as the call without clocks, to a tenth."""
        return abs(self.with_clocks - 1.0) <= TENTH
