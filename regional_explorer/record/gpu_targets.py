"""The GPUs for which code can be generated without the GPU: their properties and peak rates by data sheet."""

from __future__ import annotations

from collections.abc import Mapping

from regional_explorer.errors import InvalidArgumentError, did_you_mean, shown_value
from regional_explorer.record import Record


class GpuTarget(Record, frozen=True):
    """The properties of a GPU by its data sheet; the defaults hold for most NVIDIA GPUs."""

    name: str
    """The name to give as ``target=``."""
    title: str
    """The name that people read."""
    architecture: str
    """The name that the compiler knows."""
    source: str
    """The data sheet."""
    multiprocessors: int
    """How many multiprocessors it has."""
    shared_per_multiprocessor: int
    """Bytes of shared memory of a multiprocessor."""
    shared_per_block: int
    """Bytes of shared memory that one block can have."""
    memory_bytes: int
    l2_bytes: int
    """Bytes of the L2 cache."""
    memory_gb_s: float
    """The memory bandwidth in 10⁹ bytes per second."""
    dense_tflops: Mapping[str, float]
    """The dense peak of matrix products by dtype; ``TF32`` is float32 if the user allows less precision."""
    warp_size: int = 32
    """Threads of a warp."""
    threads_per_multiprocessor: int = 2048
    """The maximum number of resident threads."""
    registers_per_multiprocessor: int = 65536
    blocks_per_multiprocessor: int = 32
    """The maximum number of resident blocks."""
    shared_reserved: int = 1024
    """Bytes of shared memory that the system takes for each block."""
    last_cache_bytes: int = 0
    """Bytes of a cache between L2 and the memory."""

    @property
    def backend(self) -> str:
        """``cuda``, or ``hip`` for AMD."""
        return "cuda" if self.architecture.startswith("sm_") else "hip"

    @property
    def capability(self) -> tuple[int, int]:
        """The number of the architecture: ``(9, 0)`` of sm_90, ``(9, 4)`` of gfx942."""
        digits = self.architecture.removeprefix("sm_").removeprefix("gfx")
        major = digits[:-1] if self.backend == "cuda" else digits[0]
        return int(major), int(digits[len(major)])

    def bound_s(self, bytes_moved: int | None, operations: int | None, dtype: str | None) -> float | None:
        """Return the lower bound in seconds for a kernel: for its bytes and, in a matrix product, its operations."""
        if bytes_moved is None:
            return None
        peak = self.dense_tflops.get(dtype or "")
        product_s = operations / (peak * 1e12) if operations is not None and peak else 0.0
        return max(bytes_moved / (self.memory_gb_s * 1e9), product_s)


TF32 = "tf32"
"""The format to which NVIDIA and AMD round float32 in matrix products, if ``set_float32_matmul_precision`` allows."""
GB = 1 << 30
GPU_TARGETS: Mapping[str, GpuTarget] = {
    target.name: target
    for target in (
        GpuTarget(
            "h100",
            "NVIDIA H100",
            "sm_90",
            "NVIDIA H100 data sheet, SXM",
            multiprocessors=132,
            shared_per_multiprocessor=233472,
            shared_per_block=232448,
            memory_bytes=80 * GB,
            l2_bytes=50 << 20,
            memory_gb_s=3350,
            dense_tflops={"float32": 67, TF32: 494.7, "bfloat16": 989.5, "float16": 989.5},
        ),
        GpuTarget(
            "b200",
            "NVIDIA B200",
            "sm_100",
            "NVIDIA DGX B200 data sheet, one of eight GPUs",
            multiprocessors=148,
            shared_per_multiprocessor=233472,
            shared_per_block=232448,
            memory_bytes=180 * GB,
            l2_bytes=126 << 20,
            memory_gb_s=8000,
            dense_tflops={"float32": 75, TF32: 1125, "bfloat16": 2250, "float16": 2250},
        ),
        GpuTarget(
            "a100",
            "NVIDIA A100",
            "sm_80",
            "NVIDIA A100 80GB data sheet, SXM",
            multiprocessors=108,
            shared_per_multiprocessor=167936,
            shared_per_block=166912,
            memory_bytes=80 * GB,
            l2_bytes=40 << 20,
            memory_gb_s=2039,
            dense_tflops={"float32": 19.5, TF32: 156, "bfloat16": 312, "float16": 312},
        ),
        GpuTarget(
            "l4",
            "NVIDIA L4",
            "sm_89",
            "NVIDIA L4 data sheet",
            multiprocessors=58,
            threads_per_multiprocessor=1536,
            shared_per_multiprocessor=102400,
            shared_per_block=101376,
            blocks_per_multiprocessor=24,
            memory_bytes=24 * GB,
            l2_bytes=48 << 20,
            memory_gb_s=300,
            dense_tflops={"float32": 30.3, TF32: 60, "bfloat16": 121, "float16": 121},
        ),
        GpuTarget(
            "mi300x",
            "AMD MI300X",
            "gfx942",
            "AMD Instinct MI300X data sheet",
            multiprocessors=304,
            warp_size=64,
            registers_per_multiprocessor=131072,
            shared_per_multiprocessor=65536,
            shared_per_block=65536,
            shared_reserved=0,
            memory_bytes=192 * GB,
            l2_bytes=4 << 20,
            last_cache_bytes=256 << 20,
            memory_gb_s=5300,
            dense_tflops={"float32": 163.4, TF32: 653.7, "bfloat16": 1307.4, "float16": 1307.4},
        ),
    )
}


def gpu_target(name: object) -> GpuTarget:
    """Return the target called ``name``.

    Raises:
        InvalidArgumentError: there is no such target; the text lists the targets.
    """
    target = GPU_TARGETS.get(name) if isinstance(name, str) else None
    if target is None:
        raise InvalidArgumentError(
            f"No target is called {shown_value(name)}.{did_you_mean(name, list(GPU_TARGETS))} "
            f"Targets: {', '.join(GPU_TARGETS)}."
        )
    return target
