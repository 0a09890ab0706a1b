"""Torch's thread-local state (modes, stream) and the context variables, copied to the thread that works."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from regional_explorer.capture.modes import Modes


@dataclass(frozen=True)
class ThreadModes:
    """The thread-local state of torch (modes, stream) and the context variables."""

    context: contextvars.Context
    modes: Modes
    cuda_stream: Any

    @classmethod
    def current(cls) -> ThreadModes:
        """Return the modes of the calling thread."""
        return cls(
            context=contextvars.copy_context(),
            modes=Modes.current(),
            cuda_stream=torch.cuda.current_stream() if torch.cuda.is_initialized() else None,
        )

    def run(self, work: Callable[[], None]) -> None:
        """Run ``work`` on the calling thread under these modes."""
        # A context cannot be entered twice at the same time: each run gets a copy.
        self.context.copy().run(self._run_under_modes, work)

    def _run_under_modes(self, work: Callable[[], None]) -> None:
        stream = contextlib.nullcontext() if self.cuda_stream is None else torch.cuda.stream(self.cuda_stream)
        with stream, self.modes.active():
            work()
