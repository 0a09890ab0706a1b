"""Kernel times beside the region's own, and a copy beside the bandwidth: ``python -m benchmarks kernels``.

The kernels of a partition are timed with clocks between them, and so is what lies between: launching, allocating. Added
up they are to be the time of the same partition without clocks.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

import regional_explorer as rx
from benchmarks.models import explore
from benchmarks.provenance import quickstart_gpt
from regional_explorer.measure.rates import copy_bandwidth

MODELS = ("gpt", "bert", "vit")
BUDGET_S = 3.0
LEAST_S = 100e-6
"""Partitions whose kernels take less in all are left out: launching is a larger part of them."""

COPIED = 1 << 28
"""Bytes that the copy reads and writes together."""

HEADER = "| what | beside | ours | theirs | ratio | goal |\n|---|---|---|---|---|---|"


@dataclass(frozen=True)
class Row:
    """One comparison: the times, and within which bounds the ratio shall be."""

    what: str
    beside: str
    ours_s: float
    theirs_s: float

    def __str__(self) -> str:
        """Return the row of a Markdown table."""
        ratio = self.ours_s / self.theirs_s
        met = "met" if 0.9 <= ratio <= 1.1 else "missed"
        return (
            f"| {self.what} | {self.beside} | {self.ours_s * 1e3:.3g} ms | {self.theirs_s * 1e3:.3g} ms "
            f"| {ratio:.3f} | 0.9 to 1.1: {met} |"
        )


def rows(models: Iterable[str] = ("quickstart", *MODELS)) -> Iterator[Row]:
    """Compare the copy, then each distinct partition of the models whose kernels take long enough."""
    yield copy_row()
    for name in models:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ex = quickstart_gpt() if name == "quickstart" else explore(name, training=True)[0]
            ex.compile()
            for region in ex.plan.regions:
                ex.kernel_times(region.name, BUDGET_S)
        partitions = {part.artifact: part.id for part in reversed(ex.session.partitions)}
        for found in ex.session.kernel_times:
            if found.problem is None and found.kernels_s > LEAST_S:
                what = f"{name}: {partitions[found.artifact]}, {found.kernels_s / found.whole_s:.0%} of it in kernels"
                ours_s = found.with_clocks * found.whole_s
                yield Row(what, "the same without clocks", ours_s, found.whole_s)
        ex.close()


def copy_row() -> Row:
    """Time a kernel that reads and writes 256 MiB together beside the measured copy bandwidth."""

    def negated(x: torch.Tensor) -> torch.Tensor:
        with rx.region("copy"):
            return -x

    ex = rx.explore(negated, (torch.ones(COPIED // 8),))
    ex.compile()
    ex.kernel_times("copy", BUDGET_S)
    (found,) = ex.session.kernel_times
    bandwidth = copy_bandwidth("cpu")
    ex.close()
    return Row("a kernel that moves 256 MiB", bandwidth.how, found.kernels_s, COPIED / bandwidth.bytes_per_s)
