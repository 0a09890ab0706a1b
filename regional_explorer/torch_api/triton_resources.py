"""Registers, shared memory, spills and occupancy of Triton kernels, by compiling them for a GPU that need not exist."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Mapping

from regional_explorer.errors.texts import count
from regional_explorer.record.gpu_targets import GpuTarget
from regional_explorer.record.kernels import GpuResources
from regional_explorer.torch_api.lowered_graphs import TRITON_KERNEL
from regional_explorer.torch_api.virtual_gpu import triton_target


def kernel_resources(code: str, target: GpuTarget) -> Mapping[str, GpuResources]:
    """Compile the Triton kernels of ``code`` for ``target``, each under the first of its launch configs."""
    return {name: _resources_of(source, function, target) for name, function, source in TRITON_KERNEL.findall(code)}


def _resources_of(source: str, function: str, target: GpuTarget) -> GpuResources:
    import triton
    from torch._inductor.codecache import PyCodeCache
    from triton.compiler import ASTSource

    kernel = getattr(PyCodeCache.load(source), function)
    config = kernel.configs[0]
    meta = kernel._create_compile_meta(config)
    ast_source = ASTSource(kernel.fn, meta["signature"], meta["constants"], meta["configs"][0])
    options = kernel._create_compile_options(config, meta)
    log = io.StringIO()
    with _assembled_anew(), contextlib.redirect_stdout(log):
        binary = triton.compile(ast_source, target=triton_target(target), options=options)
    warps, shared = int(binary.metadata.num_warps), int(binary.metadata.shared)
    assembly = str(binary.asm["ptx" if target.backend == "cuda" else "amdgcn"])
    registers, spilled = _nvidia_registers(log.getvalue()) if target.backend == "cuda" else _amd_registers(assembly)
    settings = [*(f"{key}={value}" for key, value in config.kwargs.items()), count(warps, "warp")]
    return GpuResources(
        registers=registers,
        spilled_bytes=spilled,
        shared_bytes=shared,
        occupancy=None if registers is None else occupancy(target, registers, shared, warps),
        launch=", ".join(settings),
        configs=len(kernel.configs),
        assembly=assembly,
    )


@contextlib.contextmanager
def _assembled_anew() -> Iterator[None]:
    """A block in which Triton takes no kernel from its cache, and prints what ``ptxas`` says about each.

    Running ``ptxas`` once more would need Triton's flags, which differ by version and change registers and spills.
    """
    from triton import knobs

    with knobs.compilation.scope(), knobs.nvidia.scope():
        knobs.compilation.always_compile = True
        knobs.nvidia.dump_ptxas_log = True
        yield


def _nvidia_registers(log: str) -> tuple[int | None, int | None]:
    """Return registers and spilled bytes per thread, as ``ptxas`` reports them.

    The size of local memory is not enough: ``sin`` has a table there, and no spill.
    """
    registers = re.search(r"Used (\d+) registers", log)
    spilled = re.search(r"(\d+) bytes spill stores", log)
    return (int(registers[1]) if registers else None), (int(spilled[1]) if spilled else None)


def _amd_registers(assembly: str) -> tuple[int | None, int | None]:
    registers = re.search(r"\.vgpr_count:\s*(\d+)", assembly)
    spilled = re.search(r"\.vgpr_spill_count:\s*(\d+)", assembly)
    # A spilled register is four bytes.
    return (int(registers[1]) if registers else None), (4 * int(spilled[1]) if spilled else None)


def occupancy(target: GpuTarget, registers: int, shared: int, warps: int) -> float:
    """Return the share of a multiprocessor's threads that can be resident at once, by registers and shared memory.

    Args:
        target: the GPU.
        registers: those of each thread.
        shared: bytes of shared memory of each block.
        warps: those of each block.
    """
    # A warp's registers are allocated in one of the four parts of a multiprocessor, in units of eight per thread.
    warps_per_part = target.registers_per_multiprocessor // 4 // (max(1, -(-registers // 8)) * 8 * target.warp_size)
    reserved = shared + target.shared_reserved
    blocks_by_shared = target.shared_per_multiprocessor // reserved if reserved else target.blocks_per_multiprocessor
    most_warps = target.threads_per_multiprocessor // target.warp_size
    blocks = min(target.blocks_per_multiprocessor, 4 * warps_per_part // warps, blocks_by_shared, most_warps // warps)
    return blocks * warps / most_warps
