"""A virtual GPU: torch is patched to report a GPU that is not there, so that Inductor generates code for it.

Use it in a separate process: the patches affect all of it, and nothing can run on such a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import subprocess
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch._inductor.config as inductor_config
from torch import fx
from torch._subclasses import FakeTensorMode, fake_tensor

from regional_explorer.record.gpu_targets import GpuTarget
from regional_explorer.torch_api.gpu_attention import replace_cpu_attention

DEVICE = "cuda:0"

_GUARD_SOURCE = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
using namespace c10::impl;
static bool _ = [] {
  auto& slot = device_guard_impl_registry[static_cast<size_t>(c10::DeviceType::CUDA)];
  if (!slot.load()) slot.store(new NoOpDeviceGuardImpl<c10::DeviceType::CUDA>());
  return true;
}();
"""
"""A torch built for the CPU has no guard for CUDA devices, and aborts where a fake tensor of one is touched."""


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
    """A block in which torch reports ``target`` as its only GPU."""
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

        for name, value in _cuda_functions(properties).items():
            patch(torch.cuda, name, value, create=True)
        if target.backend == "hip":
            patch(torch.version, "hip", torch.version.hip or "6.4")
        elif torch.version.cuda is None:
            patch(torch.version, "cuda", "12.8")
        patch(torch._C, "_cuda_getCurrentRawStream", lambda _device: 0, create=True)
        patch(fake_tensor.FakeTensorMode, "avoid_device_init", property(lambda _self: True))
        patch(fake_tensor, "init_gpu_context", lambda _device: None)  # it allocates there
        # They warm up patterns with real tensors on the GPU.
        for module in (joint_graph, post_grad):
            patch(module, "lazy_init", _without_gpu(module.lazy_init))
        patch(PythonWrapperCodegen, "generate_and_run_autotune_block", lambda _self: None)
        for name, value in _interface_functions(properties).items():
            patch(interfaces.CudaInterface, name, staticmethod(value), create=True)
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


def _cuda_functions(properties: Any) -> dict[str, Callable[..., Any]]:
    memory = properties.total_memory
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_properties": lambda *_, **__: properties,
        "get_device_capability": lambda *_, **__: (properties.major, properties.minor),
        "get_device_name": lambda *_, **__: properties.name,
        "is_bf16_supported": lambda *_, **__: True,
        "is_tf32_supported": lambda: True,
        "is_initialized": lambda: True,
        "synchronize": lambda *_: None,
        "memory_allocated": lambda *_: 0,
        "mem_get_info": lambda *_: (memory, memory),
        "get_rng_state": lambda *_, **__: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda *_, **__: None,
        "_lazy_init": lambda: None,
        "_exchange_device": lambda _device: 0,
        "_maybe_exchange_device": lambda _device: 0,
    }


def _interface_functions(properties: Any) -> dict[str, Callable[..., Any]]:
    hip = properties.gcnArchName
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_properties": lambda *_, **__: properties,
        "get_compute_capability": lambda *_, **__: hip or properties.major * 10 + properties.minor,
        "synchronize": lambda *_: None,
        "get_raw_stream": lambda _device: 0,
        "is_bf16_supported": lambda *_, **__: True,
        "exchange_device": lambda _device: 0,
        "maybe_exchange_device": lambda _device: 0,
        "set_device": lambda _device: None,
        "memory_allocated": lambda *_: 0,
    }


def _without_gpu(function: Any) -> Callable[..., Any]:
    def quietly(*_args: Any, **_kwargs: Any) -> Any:
        with mock.patch.object(torch.cuda, "is_available", lambda: False):
            return function()

    return quietly


def _clear_function_caches(module: Any) -> None:
    """Clear the caches of the functions of ``module``, filled before the GPU was there."""
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
    replace_cpu_attention(gm, inputs, mode, DEVICE)
    for node in gm.graph.nodes:
        if node.op == "call_function" and "for_cpu" in str(node.target):
            raise NotOnGpuError(f"{node.target}: an op of the CPU without a counterpart on a GPU")
        if isinstance(device := node.kwargs.get("device"), torch.device) and device.type == "cpu":
            node.kwargs = {**node.kwargs, "device": torch.device(DEVICE)}
    gm.recompile()
    moved = [_moved_input(value, mode) for value in inputs]
    for node, fake in zip(gm.graph.find_nodes(op="placeholder"), moved, strict=True):
        node.meta["val"] = fake
    return moved


def _moved_input(value: Any, mode: FakeTensorMode) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    with mode:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=DEVICE)
