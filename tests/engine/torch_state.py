"""What torch keeps about tensors and locks, and shows under private names only."""

from __future__ import annotations

import torch
from torch._dynamo import convert_frame


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written in place."""
    return tensor._version


def owns_compile_lock() -> bool:
    """Return whether this thread holds torch's compile lock."""
    return bool(convert_frame.compile_lock._is_owned())  # type: ignore[attr-defined]  # a C class


def backwards_use_threads() -> bool:
    """Return whether autograd may run a backward on threads of its own."""
    return torch._C._is_multithreading_enabled()
