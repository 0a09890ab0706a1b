"""The weights that are constants of a piece, and whether they were written to since.

Torch counts writes to a tensor, but not writes through ``weight.data`` or ``weight.numpy()``. So each call also
compares a few words of every weight, and each compile or measurement compares whole weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any, NamedTuple, Self

import torch

from regional_explorer.regions.cut import Piece
from regional_explorer.torch_api.cheap_calls import picker
from regional_explorer.torch_api.frozen import is_weight
from regional_explorer.torch_api.tensors import version_of

WORDS = 4
"""The minimum number of 8-byte words, spread over each weight, that a call compares."""


class Weight(NamedTuple):
    """A weight with its state when frozen: torch's count of writes, its address, and what some of its words held."""

    tensor: torch.Tensor
    version: int
    address: int
    words: memoryview
    held: list[int]

    @property
    def is_unchanged(self) -> bool:
        """Whether the weight was not written to, as far as the compared words show."""
        tensor = self.tensor
        return (
            version_of(tensor) == self.version
            and tensor.data_ptr() == self.address
            and self.words.tolist() == self.held
        )


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights among the inputs of a piece, by place; ``digest`` is a hash of their content."""

    by_place: Mapping[int, Weight]
    digest: str

    @classmethod
    def of(cls, piece: Piece, values: Mapping[str, Any]) -> Self | None:
        """Return the weights among the inputs of a piece, whose ``values`` are by name; None if it has no weights."""
        tensors = {
            place: values[name]
            for place, name in enumerate(piece.inputs)
            if name in piece.unwritten and is_weight(values.get(name))
        }
        by_place, digest = {}, hashlib.sha256()
        for place, tensor in tensors.items():
            in_order = tensor.detach().permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True))
            content = in_order.contiguous().cpu().flatten().view(torch.uint8).numpy().data
            digest.update(f"{place}:".encode())
            digest.update(content)
            is_in_place = tensor.device.type == "cpu" and in_order.is_contiguous()
            words = _few_words(content if is_in_place else _NOTHING)
            by_place[place] = Weight(tensor, version_of(tensor), tensor.data_ptr(), words, words.tolist())
        return cls(by_place, digest.hexdigest()[:20]) if tensors else None

    @property
    def are_unchanged(self) -> bool:
        """Whether no weight was written to, as far as the compared words show."""
        return all(weight.is_unchanged for weight in self.by_place.values())

    def are_among(self) -> Callable[[Sequence[Any]], bool]:
        """Return a function that checks whether the inputs of a call include these weights, unchanged."""
        pick, tensors = picker(list(self.by_place)), [weight.tensor for weight in self.by_place.values()]
        return lambda args: all(map(is_, pick(args), tensors)) and self.are_unchanged

    def changed(self, args: Sequence[Any]) -> list[int]:
        """Return the places of weights that a call replaced by other tensors, or that were written to."""
        return [
            place
            for place, weight in self.by_place.items()
            if args[place] is not weight.tensor or not weight.is_unchanged
        ]


_NOTHING = memoryview(b"")


def _few_words(content: memoryview) -> memoryview:
    whole = len(content) // 8
    if whole < WORDS:
        return content
    return content[: whole * 8].cast("Q")[:: max(1, (whole - 1) // (WORDS - 1))]
