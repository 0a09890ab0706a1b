"""Code for GPUs that are not here, for real models: ``python -m benchmarks.gpu_code [MODEL …]``.

Each distinct partition of each model's training step goes to each target; what did not work is listed with its reason.
Nothing is compiled for the CPU.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass

from benchmarks.provenance import explored
from regional_explorer.record.gpu_targets import GPU_TARGETS
from regional_explorer.record.region_code import PartitionCode, total_coverage

MODELS = ("quickstart", "gpt", "bert", "albert", "gpt2", "llama", "vit")
TARGETS = ("h100", "mi300x")

HEADER = (
    "| model | target | partitions that worked | kernels of Triton | extern calls | nodes linked | spilling kernels "
    "| seconds |\n|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Row:
    """What came of one model on one target; ``problems`` say why a partition has no code."""

    text: str
    worked: int
    partitions: int
    problems: tuple[str, ...]


def row(name: str, target: str) -> Row:
    """Generate the code of all distinct partitions of a model for one target."""
    ex = explored(name)
    started = time.perf_counter()
    found: dict[str, PartitionCode] = {}
    for region in ex.plan.regions:
        found |= {part.code.artifact: part for part in ex.code(region.name, target=target)}
    seconds = time.perf_counter() - started
    ex.close()
    parts = list(found.values())
    good = [part for part in parts if part.code.problem is None]
    kernels = [linked.kernel for part in good for linked in part.kernels]
    triton = [kernel.gpu for kernel in kernels if kernel.gpu is not None]
    spilling = sum(bool(gpu.spilled_bytes) for gpu in triton)
    linked = total_coverage(tuple(part.coverage for part in good))
    text = (
        f"| {name} | {target} | {len(good)}/{len(parts)} | {len(triton)} | {len(kernels) - len(triton)} "
        f"| {linked.linked}/{linked.nodes} | {spilling} | {seconds:.0f} |"
    )
    problems = tuple(f"{part.partition.id}: {part.code.problem}" for part in parts if part.code.problem is not None)
    return Row(text, len(good), len(parts), problems)


def main() -> None:
    """Print the table, a row as soon as it is there, then the failures and the share that worked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_code", description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--targets", nargs="+", default=TARGETS, choices=list(GPU_TARGETS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(HEADER)
    rows = []
    for name in options.models:
        for target in options.targets:
            rows.append(row(name, target))
            print(rows[-1].text, flush=True)
            for problem in rows[-1].problems:
                print(f"    {problem}", flush=True)
    worked, partitions = sum(one.worked for one in rows), sum(one.partitions for one in rows)
    print(f"\n{worked} of {partitions} partitions worked ({100 * worked / max(1, partitions):.0f} %)")


if __name__ == "__main__":
    main()
