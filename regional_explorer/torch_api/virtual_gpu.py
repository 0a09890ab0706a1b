"""Generates code for a GPU that is not there: patches of torch, attention, resources of its kernels."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import io
import os
import re
import subprocess
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch._inductor.config as inductor_config
from torch import fx
from torch._inductor.codecache import PyCodeCache
from torch._subclasses import FakeTensorMode, fake_tensor
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from regional_explorer.errors import count
from regional_explorer.record.artifact import GpuResources
from regional_explorer.record.gpu_targets import GpuTarget
from regional_explorer.torch_api.graphs import arguments_of
from regional_explorer.torch_api.lowering import TRITON_KERNEL

aten = torch.ops.aten
CPU_FORWARD = aten._scaled_dot_product_flash_attention_for_cpu.default
CPU_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
HALF_DTYPES = (torch.float16, torch.bfloat16)
DEVICE = "cuda:0"


def replace_cpu_attention(gm: fx.GraphModule, inputs: Sequence[Any], mode: FakeTensorMode) -> None:
    """Replace the CPU's attention ops of ``gm`` by CUDA's, in place; names of nodes stay.

    As torch chooses on a GPU: flash attention for 16-bit dtypes without a mask, else memory-efficient attention.
    """
    forwards, backwards = (gm.graph.find_nodes(op="call_function", target=op) for op in (CPU_FORWARD, CPU_BACKWARD))
    if forwards or backwards:
        FakeTensorProp(gm, mode=mode).propagate_dont_convert_inputs(*inputs)
    for node in forwards:
        args = arguments_of(node)
        qkv = (args["query"], args["key"], args["value"])
        if _uses_flash(args):
            node.target = aten._scaled_dot_product_flash_attention.default
            node.args = (*qkv, args["dropout_p"], args["is_causal"])
        else:
            node.target = aten._scaled_dot_product_efficient_attention.default
            # True: compute the log-sum-exp, which the backward needs.
            node.args = (*qkv, args["attn_mask"], True, args["dropout_p"], args["is_causal"])
        node.kwargs = {"scale": args["scale"]}
    for node in backwards:
        args = arguments_of(node)
        gradient = (args["grad_out"], args["query"], args["key"], args["value"])
        saved, drop, causal = (args["out"], args["logsumexp"]), args["dropout_p"], args["is_causal"]
        with gm.graph.inserting_before(node):
            # The forward returns a random state for its backward; without dropout nothing reads it.
            state: dict[str, Any] = {"dtype": torch.int64, "device": torch.device(DEVICE)}
            seed, offset = (gm.graph.call_function(aten.empty.memory_format, ([0],), state) for _ in range(2))
            if _uses_flash(args):
                lengths = (gm.graph.call_function(aten.sym_size.int, (args[name], 2)) for name in ("query", "key"))
                node.target = aten._scaled_dot_product_flash_attention_backward.default
                node.args = (*gradient, *saved, None, None, *lengths, drop, causal, seed, offset)
            else:
                grad_mask = [True, True, True, False]
                node.target = aten._scaled_dot_product_efficient_attention_backward.default
                node.args = (*gradient, args["attn_mask"], *saved, seed, offset, drop, grad_mask, causal)
        node.kwargs = {"scale": args["scale"]}


def _uses_flash(args: dict[str, Any]) -> bool:
    return args["attn_mask"] is None and args["query"].meta["val"].dtype in HALF_DTYPES


_GUARD_SOURCE = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
using namespace c10::impl;
static bool _ = [] {
  auto& slot = device_guard_impl_registry[static_cast<size_t>(c10::DeviceType::CUDA)];
  if (!slot.load()) slot.store(new NoOpDeviceGuardImpl<c10::DeviceType::CUDA>());
  return true;
}();
"""
"""A torch built for the CPU has no guard for CUDA devices, and aborts if a fake CUDA tensor is touched."""


def load_device_guard(compiler: str, folder: Path) -> None:
    """Build and load the device guard that a torch built for the CPU lacks.

    Raises:
        subprocess.CalledProcessError, OSError: it could not be built.
    """
    if torch.version.cuda is not None or torch.version.hip is not None:
        return
    root = Path(torch.__file__).parent
    flags = [
        *("-shared", "-fPIC", "-std=c++20", f"-I{root / 'include'}"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
    ]
    libraries = [f"-L{root / 'lib'}", "-lc10", f"-Wl,-rpath,{root / 'lib'}"]
    key = hashlib.sha256(repr((torch.__version__, _GUARD_SOURCE, compiler, flags, libraries)).encode()).hexdigest()[:16]
    library = folder / f"guard-{key}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / f"guard-{os.getpid()}.cpp"
        source.write_text(_GUARD_SOURCE)
        built = source.with_suffix(".so")
        command = [compiler, *flags, str(source), "-o", str(built), *libraries]
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - the compiler that Inductor uses
        built.replace(library)
        source.unlink()
    ctypes.CDLL(str(library))


@contextlib.contextmanager
def virtual_gpu(target: GpuTarget) -> Iterator[None]:
    """Context manager: let torch report ``target`` as its only GPU."""
    import torch._dynamo.device_interface as interfaces
    import torch._inductor.utils as inductor_utils
    import torch.utils._triton as triton_utils
    import triton
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen
    from torch._inductor.fx_passes import joint_graph, post_grad
    from torch._inductor.runtime import triton_helpers
    from torch._inductor.runtime.hints import DeviceProperties

    properties = _device_properties(target)
    driver_before = triton.runtime.driver._active
    with contextlib.ExitStack() as patches:

        def patch(owner: Any, name: str, value: Any, *, create: bool = False) -> None:
            patches.enter_context(mock.patch.object(owner, name, value, create=create))

        for name, value in _device_functions(properties).items():
            patch(torch.cuda, name, value, create=True)
            patch(interfaces.CudaInterface, name, staticmethod(value), create=True)
        if target.backend == "hip":
            patch(torch.version, "hip", torch.version.hip or "6.4")
        elif torch.version.cuda is None:
            patch(torch.version, "cuda", "12.8")
        patch(torch._C, "_cuda_getCurrentRawStream", lambda _device: 0, create=True)
        patch(fake_tensor.FakeTensorMode, "avoid_device_init", property(lambda _self: True))
        patch(fake_tensor, "init_gpu_context", lambda _device: None)  # it allocates memory on the GPU
        # These functions warm up patterns with real tensors on the GPU.
        for module in (joint_graph, post_grad):
            patch(module, "lazy_init", _without_gpu(module.lazy_init))
        patch(PythonWrapperCodegen, "generate_and_run_autotune_block", lambda _self: None)
        patch(interfaces.CudaInterface.Worker, "get_device_properties", staticmethod(lambda *_, **__: properties))
        patch(interfaces.CudaInterface.Worker, "current_device", staticmethod(lambda: 0))
        patch(triton_helpers, "set_driver_to_gpu", lambda: None)
        interfaces.get_interface_for_device("cuda")
        for module in (triton_utils, inductor_utils):
            _clear_function_caches(module)
        DeviceProperties.create.cache_clear()
        triton.runtime.driver.set_active(_triton_driver(target))
        # With shape_padding Inductor would measure on the GPU whether padding a matrix product pays off.
        patches.enter_context(
            inductor_config.patch(compile_threads=1, joint_graph_constant_folding=False, shape_padding=False)
        )
        try:
            yield
        finally:
            triton.runtime.driver._active = driver_before


def _device_properties(target: GpuTarget) -> Any:
    return types.SimpleNamespace(
        name=target.title,
        major=target.capability[0],
        minor=target.capability[1],
        multi_processor_count=target.multiprocessors,
        total_memory=target.memory_bytes,
        warp_size=target.warp_size,
        regs_per_multiprocessor=target.registers_per_multiprocessor,
        max_threads_per_multi_processor=target.threads_per_multiprocessor,
        max_threads_per_block=1024,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=target.shared_per_block,
        shared_memory_per_multiprocessor=target.shared_per_multiprocessor,
        L2_cache_size=target.l2_bytes,
        gcnArchName=target.architecture if target.backend == "hip" else "",
        is_integrated=False,
        uuid="virtual",
    )


def _device_functions(properties: Any) -> dict[str, Callable[..., Any]]:
    """Return the functions of ``torch.cuda`` to patch, and the extra functions of Dynamo's interface to it."""
    memory, hip = properties.total_memory, properties.gcnArchName
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_properties": lambda *_, **__: properties,
        "get_device_capability": lambda *_, **__: (properties.major, properties.minor),
        "get_compute_capability": lambda *_, **__: hip or properties.major * 10 + properties.minor,
        "get_device_name": lambda *_, **__: properties.name,
        "is_bf16_supported": lambda *_, **__: True,
        "is_tf32_supported": lambda: True,
        "is_initialized": lambda: True,
        "synchronize": lambda *_: None,
        "memory_allocated": lambda *_: 0,
        "mem_get_info": lambda *_: (memory, memory),
        "get_rng_state": lambda *_, **__: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda *_, **__: None,
        "get_raw_stream": lambda _device: 0,
        "set_device": lambda _device: None,
        "_lazy_init": lambda: None,
        **dict.fromkeys(
            ("exchange_device", "maybe_exchange_device", "_exchange_device", "_maybe_exchange_device"),
            lambda _device: 0,
        ),
    }


def _without_gpu(function: Any) -> Callable[..., Any]:
    def quietly(*_args: Any, **_kwargs: Any) -> Any:
        with mock.patch.object(torch.cuda, "is_available", lambda: False):
            return function()

    return quietly


def _clear_function_caches(module: Any) -> None:
    """Clear the function caches of ``module``, which were filled without the GPU."""
    for name in dir(module):
        cache_clear = getattr(getattr(module, name), "cache_clear", None)
        if cache_clear is not None:
            with contextlib.suppress(Exception):
                cache_clear()


def triton_target(target: GpuTarget) -> Any:
    """Return Triton's description of a target."""
    from triton.backends.compiler import GPUTarget

    major, minor = target.capability
    architecture = target.architecture if target.backend == "hip" else major * 10 + minor
    return GPUTarget(target.backend, architecture, target.warp_size)


def _triton_driver(target: GpuTarget) -> Any:
    utils = types.SimpleNamespace(
        load_binary=None,
        get_device_properties=lambda _device: {
            "max_shared_mem": target.shared_per_block,
            "multiprocessor_count": target.multiprocessors,
            "warpSize": target.warp_size,
        },
    )
    return types.SimpleNamespace(
        utils=utils,
        is_active=lambda: True,
        get_current_target=lambda: triton_target(target),
        get_current_device=lambda: 0,
        get_current_stream=lambda _device=0: 0,
        get_active_torch_device=lambda: torch.device(DEVICE),
        set_current_device=lambda _device: None,
        map_python_to_cpp_type=lambda kind: kind,
        get_benchmarker=lambda: None,
    )


# ------------------------------------------------------------------------------------------------- a piece, on the GPU


class NotOnGpuError(Exception):
    """A piece has an op without a counterpart on a GPU."""


def to_gpu(gm: fx.GraphModule, inputs: list[Any], mode: FakeTensorMode) -> list[Any]:
    """Move a piece to the virtual GPU, in place, and return fakes for its inputs there. Names of nodes stay.

    Raises:
        NotOnGpuError: one of its ops exists only on the CPU.
    """
    replace_cpu_attention(gm, inputs, mode)
    for node in gm.graph.nodes:
        if node.op == "call_function" and "for_cpu" in str(node.target):
            raise NotOnGpuError(f"{node.target}: an op of the CPU without a counterpart on a GPU")
        if isinstance(device := node.kwargs.get("device"), torch.device) and device.type == "cpu":
            node.kwargs = {**node.kwargs, "device": torch.device(DEVICE)}
    gm.recompile()
    with mode:
        moved = [
            torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=DEVICE)
            if isinstance(value, torch.Tensor)
            else value
            for value in inputs
        ]
    for node, fake in zip(gm.graph.find_nodes(op="placeholder"), moved, strict=True):
        node.meta["val"] = fake
    return moved


def kernel_resources(code: str, target: GpuTarget) -> Mapping[str, GpuResources]:
    """Compile the Triton kernels of ``code`` for ``target``, each under the first of its launch configs."""
    return {name: _resources_of(source, function, target) for name, function, source in TRITON_KERNEL.findall(code)}


def _resources_of(source: str, function: str, target: GpuTarget) -> GpuResources:
    import triton
    from triton.compiler import ASTSource

    kernel = getattr(PyCodeCache.load(source), function)
    config = kernel.configs[0]
    meta = kernel._create_compile_meta(config)
    ast_source = ASTSource(kernel.fn, meta["signature"], meta["constants"], meta["configs"][0])
    options = kernel._create_compile_options(config, meta)
    log = io.StringIO()
    with _assembling_again(), contextlib.redirect_stdout(log):
        binary = triton.compile(ast_source, target=triton_target(target), options=options)
    warps, shared = int(binary.metadata.num_warps), int(binary.metadata.shared)
    assembly = str(binary.asm["ptx" if target.backend == "cuda" else "amdgcn"])
    registers, spilled = _registers(log.getvalue() if target.backend == "cuda" else assembly, target.backend)
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
def _assembling_again() -> Iterator[None]:
    """Context manager: let Triton take no kernel from its cache, and print the output of ``ptxas``.

    Running ``ptxas`` once more would need Triton's flags, which differ by version and change registers and spills.
    """
    from triton import knobs

    with knobs.compilation.scope(), knobs.nvidia.scope():
        knobs.compilation.always_compile = True
        knobs.nvidia.dump_ptxas_log = True
        yield


_REGISTERS = {
    "cuda": (r"Used (\d+) registers", r"(\d+) bytes spill stores", 1),
    "hip": (r"\.vgpr_count:\s*(\d+)", r"\.vgpr_spill_count:\s*(\d+)", 4),
}
"""Match the registers of a thread, and its spills in bytes or in registers of four bytes.

The local memory that ``ptxas`` reports is not enough: ``sin`` has a table there, and no spill.
"""


def _registers(text: str, backend: str) -> tuple[int | None, int | None]:
    """Return registers and spilled bytes per thread, from the output of ``ptxas`` or the assembly of an AMD GPU."""
    registers_pattern, spilled_pattern, spilled_bytes = _REGISTERS[backend]
    registers, spilled = re.search(registers_pattern, text), re.search(spilled_pattern, text)
    return (int(registers[1]) if registers else None), (spilled_bytes * int(spilled[1]) if spilled else None)


def occupancy(target: GpuTarget, registers: int, shared: int, warps: int) -> float:
    """Return the share of a multiprocessor's threads that can be resident at once, by registers and shared memory.

    Args:
        target: the GPU.
        registers: registers of each thread.
        shared: bytes of shared memory of each block.
        warps: warps of each block.
    """
    # A warp's registers are allocated in one of the four parts of a multiprocessor, in units of eight per thread.
    warps_per_part = target.registers_per_multiprocessor // 4 // (max(1, -(-registers // 8)) * 8 * target.warp_size)
    reserved = shared + target.shared_reserved
    blocks_by_shared = target.shared_per_multiprocessor // reserved if reserved else target.blocks_per_multiprocessor
    most_warps = target.threads_per_multiprocessor // target.warp_size
    blocks = min(target.blocks_per_multiprocessor, 4 * warps_per_part // warps, blocks_by_shared, most_warps // warps)
    return blocks * warps / most_warps
