"""The machine that compiled code runs on (builds of torch and Python, CPU flags, GPU), and how two machines differ."""

from __future__ import annotations

import functools
import platform
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

_INSTRUCTION_FLAGS = re.compile(
    r"^(ss?se|avx|amx|fma|f16c|bmi|abm|lzcnt|movbe|popcnt|v?aes|v?pclmul|gfni|sha|adx|xop|tbm|asimd|sve|sme|neon|i8mm|bf16)"
)
"""The processor flags for instructions that a compiler may use; the others only matter to the operating system."""


@dataclass(frozen=True)
class Machine:
    """The machine on which code was compiled; ``cpu`` are the instruction sets of the processor."""

    system: str
    python: str
    torch: str
    cpu: tuple[str, ...]
    gpu: str = ""

    @classmethod
    def here(cls, devices: Collection[str] = ()) -> Machine:
        """Return this machine, with the GPUs among ``devices``, which are such as ``cuda:0``."""
        return cls(
            system=f"{platform.system()} {platform.machine()}",
            python=str(sys.implementation.cache_tag),
            torch=f"{torch.__version__} ({(torch.version.git_version or 'unknown')[:10]})",
            cpu=_instruction_sets(),
            gpu=_gpu_text(devices),
        )

    def mismatch(self, here: Machine) -> str:
        """Return why code compiled on this machine cannot run on ``here``; an empty text if it can."""
        pairs: Sequence[tuple[str, str, str]] = (
            ("torch", self.torch, here.torch),
            ("Python", self.python, here.python),
            ("", self.system, here.system),
            ("GPU", self.gpu, here.gpu),
        )
        for what, then, now in pairs:
            if then != now:
                return f"they were made with {what} {then or 'none'}, here is {now or 'none'}".replace("  ", " ")
        if lacking := [flag for flag in self.cpu if flag not in here.cpu]:
            return f"they were made for a processor with {', '.join(lacking[:6])}, which this one lacks"
        return ""


@functools.cache
def _instruction_sets() -> tuple[str, ...]:
    """Return the instruction sets of this processor: code is compiled for all of them ("-march=native")."""
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        cpuinfo = ""
    line = next((line for line in cpuinfo.splitlines() if line.startswith(("flags", "Features"))), "")
    flags = {flag for flag in line.partition(":")[2].split() if _INSTRUCTION_FLAGS.match(flag)}
    return tuple(sorted(flags or {torch.backends.cpu.get_cpu_capability(), platform.processor()} - {""}))


def _gpu_text(devices: Collection[str]) -> str:
    gpu_devices = [device for device in map(torch.device, devices) if device.type == "cuda"]
    if not gpu_devices or not torch.cuda.is_available():
        return ""
    gpus = map(torch.cuda.get_device_properties, gpu_devices)
    names = sorted({f"{gpu.name} ({gpu.major}.{gpu.minor})" for gpu in gpus})
    return f"{' and '.join(names)}, runtime {torch.version.cuda or torch.version.hip}"
