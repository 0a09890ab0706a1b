"""Runs jobs on a worker thread, under the torch modes of the thread that created the exploration."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from regional_explorer.torch_api import AUTOCAST_DEVICES


@dataclass(frozen=True)
class Modes:
    """The thread-local state of torch (grad mode, autocast, default device, stream) and the context variables."""

    context: contextvars.Context
    grad: bool
    inference: bool
    autocast: tuple[tuple[str, torch.dtype, bool], ...]
    autocast_cache: bool
    default_device: torch.device
    cuda_stream: Any

    @classmethod
    def current(cls) -> Modes:
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
        # A context can be entered once at a time: a copy per run.
        self.context.copy().run(self._run, work)

    def _run(self, work: Callable[[], None]) -> None:
        with self._entered():
            work()

    @contextmanager
    def _entered(self) -> Iterator[None]:
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
                    on = torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=self.autocast_cache)
                    stack.enter_context(on)
            yield


class Worker:
    """Runs one job at a time, each on a new thread."""

    def __init__(self, modes: Modes) -> None:
        self._modes = modes
        self._thread: threading.Thread | None = None
        self._cancelled = threading.Event()

    def start(self, work: Callable[[], None]) -> None:
        """Start ``work``, which must not raise and should check ``cancelled`` regularly."""
        self._cancelled = threading.Event()
        # A daemon: a compile that takes long must not keep the kernel from ending.
        self._thread = threading.Thread(target=self._modes.run, args=(work,), name="regional_explorer", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Ask the job to stop at its next check of ``cancelled``."""
        self._cancelled.set()

    def cancelled(self) -> bool:
        """Return whether the job was asked to stop."""
        return self._cancelled.is_set()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the job to end; return whether it ended in time."""
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()
