"""Torch's thread-local modes (grad, inference, autocast, device, stream), copied to the thread that works."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from regional_explorer.torch_api import AUTOCAST_DEVICES


@dataclass(frozen=True)
class ThreadModes:
    """The thread-local state of torch (grad mode, autocast, default device, stream) and the context variables."""

    context: contextvars.Context
    grad: bool
    inference: bool
    autocast: tuple[tuple[str, torch.dtype, bool], ...]
    autocast_cache: bool
    default_device: torch.device
    cuda_stream: Any

    @classmethod
    def current(cls) -> ThreadModes:
        """Return the modes of the calling thread."""
        return cls(
            context=contextvars.copy_context(),
            grad=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            autocast=tuple(
                (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
                for device in AUTOCAST_DEVICES
            ),
            autocast_cache=torch.is_autocast_cache_enabled(),
            default_device=torch.get_default_device(),
            cuda_stream=torch.cuda.current_stream() if torch.cuda.is_initialized() else None,
        )

    def run(self, work: Callable[[], None]) -> None:
        """Run ``work`` on the calling thread under these modes."""
        # A context cannot be entered twice at the same time: each run gets a copy.
        self.context.copy().run(self._run_under_modes, work)

    def _run_under_modes(self, work: Callable[[], None]) -> None:
        with ExitStack() as stack:
            if self.cuda_stream is not None:
                stack.enter_context(torch.cuda.stream(self.cuda_stream))
            device_before = torch.get_default_device()
            if self.default_device != device_before:
                torch.set_default_device(self.default_device)
                stack.callback(torch.set_default_device, None if device_before.type == "cpu" else device_before)
            stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for device, dtype, enabled in self.autocast:
                if enabled or torch.is_autocast_enabled(device):
                    autocast = torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=self.autocast_cache)
                    stack.enter_context(autocast)
            work()
