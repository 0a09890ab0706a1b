"""What one run of a call gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Values:
    """What one run gave: named output tensors, and named gradients (None where an input has none).

    ``opaque`` are path and type of what the outputs hold and nobody can look into.
    """

    outputs: tuple[tuple[str, torch.Tensor], ...]
    gradients: tuple[tuple[str, torch.Tensor | None], ...]
    opaque: tuple[tuple[str, str], ...] = ()
