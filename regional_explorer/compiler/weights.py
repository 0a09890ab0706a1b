"""The weights that are constants of a piece: which they are, and whether they are still what they were.

Torch counts what is written to a tensor, but not what is written through ``weight.data`` or ``weight.numpy()``. So each
call compares a few words of every weight, too, and whatever compiles or measures compares all of them.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch

from regional_explorer.regions.cut import Piece
from regional_explorer.torch_api.cheap_calls import picking
from regional_explorer.torch_api.frozen import is_weight

WORDS = 4
"""How many words of 8 bytes a call compares of each weight, the first and the last among them."""


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights among the inputs of a piece, by place; ``digest`` is a hash of their content.

    ``versions`` are torch's counts of writes, and ``words`` are views of memory with what was there.
    """

    tensors: Mapping[int, torch.Tensor]
    digest: str
    versions: Sequence[int]
    addresses: Sequence[int]
    words: Mapping[int, tuple[memoryview, memoryview]]

    @classmethod
    def of(cls, piece: Piece, values: Mapping[str, Any]) -> Self | None:
        """Return the weights among the inputs of a piece, by name; None if it has none that may be constants."""
        tensors = {
            place: values[name]
            for place, name in enumerate(piece.inputs)
            if name in piece.unwritten and is_weight(values.get(name))
        }
        if not tensors:
            return None
        digest, words = hashlib.sha256(), {}
        for place, tensor in tensors.items():
            content = _bytes_of(tensor)
            digest.update(f"{place}:".encode())
            digest.update(content)
            if tensor.device.type == "cpu" and tensor.is_contiguous():
                few = _few_words(content)
                words[place] = few, memoryview(few.tobytes()).cast(few.format)
        return cls(
            tensors,
            digest.hexdigest()[:20],
            [tensor._version for tensor in tensors.values()],
            [tensor.data_ptr() for tensor in tensors.values()],
            words,
        )

    def are_unchanged(self) -> bool:
        """Return whether the tensors have been written to, as far as a call compares them."""
        return self._have_content(list(self.tensors.values()))

    def are_among(self) -> Callable[[Sequence[Any]], bool]:
        """Return a check whether the inputs of a call are these tensors, unchanged."""
        pick, tensors, have_content = picking(list(self.tensors)), list(self.tensors.values()), self._have_content

        def are_these(args: Sequence[Any]) -> bool:
            return all(map(operator.is_, pick(args), tensors)) and have_content(tensors)

        return are_these

    def changed(self, args: Sequence[Any]) -> list[int]:
        """Return the places of those that are other tensors in a call, or were written to."""
        return [
            place
            for (place, tensor), version, address in zip(
                self.tensors.items(), self.versions, self.addresses, strict=True
            )
            if args[place] is not tensor
            or (tensor._version, tensor.data_ptr()) != (version, address)
            or (place in self.words and operator.ne(*self.words[place]))
        ]

    def _have_content(self, tensors: Sequence[torch.Tensor]) -> bool:
        return (
            [tensor._version for tensor in tensors] == self.versions
            and [tensor.data_ptr() for tensor in tensors] == self.addresses
            and all(now == then for now, then in self.words.values())
        )


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the content of a tensor: its own memory, where that is contiguous and on the CPU."""
    return memoryview(tensor.detach().contiguous().cpu().flatten().view(torch.uint8).numpy())


def _few_words(content: memoryview) -> memoryview:
    whole = len(content) // 8
    if whole < WORDS:
        return content
    return content[: whole * 8].cast("Q")[:: max(1, (whole - 1) // (WORDS - 1))]
