"""The outputs and gradients of one run of a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Values:
    """The results of one run: named output tensors, and named gradients (None if an input has none).

    ``opaque`` are the paths and types of objects among the outputs that cannot be searched for tensors.
    """

    outputs: tuple[tuple[str, torch.Tensor], ...]
    gradients: tuple[tuple[str, torch.Tensor | None], ...]
    opaque: tuple[tuple[str, str], ...] = ()
