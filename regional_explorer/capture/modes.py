"""Torch's modes (grad, inference, autocast, default device): read now, to run code under later or on another thread."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from regional_explorer.torch_api import AUTOCAST_DEVICES


@dataclass(frozen=True)
class Modes:
    """The modes of a thread that decide what its code computes."""

    grad: bool
    inference: bool
    autocast: tuple[tuple[str, torch.dtype, bool], ...]
    autocast_cache: bool
    default_device: torch.device

    @classmethod
    def current(cls) -> Modes:
        """Return the modes of the calling thread."""
        return cls(
            grad=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            autocast=tuple(
                (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
                for device in AUTOCAST_DEVICES
            ),
            autocast_cache=torch.is_autocast_cache_enabled(),
            default_device=torch.get_default_device(),
        )

    @property
    def casts(self) -> bool:
        """Whether any autocast is enabled."""
        return any(enabled for _, _, enabled in self.autocast)

    @property
    def autocast_text(self) -> str:
        """The enabled autocasts, such as ``cpu: bfloat16``; empty if there are none."""
        enabled = [(device, str(dtype).removeprefix("torch.")) for device, dtype, is_on in self.autocast if is_on]
        return ", ".join(f"{device}: {dtype}" for device, dtype in enabled)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Context manager: run the block under these modes, on whichever thread."""
        with contextlib.ExitStack() as stack:
            # Not torch.set_default_device: inside a `with torch.device(…)` of the user it leaves a context behind.
            if self.default_device != torch.get_default_device():
                stack.enter_context(self.default_device)
            if self.inference != torch.is_inference_mode_enabled():  # entering it sets other modes, too
                stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for device, dtype, enabled in self.autocast:
                if enabled or torch.is_autocast_enabled(device):
                    autocast = torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=self.autocast_cache)
                    stack.enter_context(autocast)
            yield
