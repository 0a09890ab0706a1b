"""Restores the states of random generators: torch's, NumPy's, Python's and the user's own."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch

Generator = torch.Generator | np.random.Generator | np.random.RandomState | random.Random
"""A random generator that a program may own."""


class RandomState:
    """The states of the random generators of torch (CPU and CUDA devices in use), NumPy and Python, and the user's."""

    def __init__(self, generators: Sequence[Generator] = ()) -> None:
        self._torch = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        self._numpy = np.random.get_state()  # noqa: NPY002 - the user's code may draw from it
        self._python = random.getstate()
        self._generators = [(generator, _state_of(generator)) for generator in generators]

    def is_unchanged(self) -> bool:
        """Return whether all generators are still in the saved states."""
        return (
            torch.equal(self._torch, torch.get_rng_state())
            and all(map(torch.equal, self._cuda, torch.cuda.get_rng_state_all() if self._cuda else ()))
            and self._python == random.getstate()
            and repr(self._numpy) == repr(np.random.get_state())  # noqa: NPY002
            and all(_equal_states(state, _state_of(generator)) for generator, state in self._generators)
        )

    def restore(self) -> None:
        """Set all generators to the saved states."""
        torch.set_rng_state(self._torch)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        np.random.set_state(self._numpy)  # noqa: NPY002
        random.setstate(self._python)
        for generator, state in self._generators:
            _set_state(generator, state)

    def __enter__(self) -> Self:
        """Enter a block after which the generators are in the states they had at construction."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Restore."""
        self.restore()


def _state_of(generator: Generator) -> Any:
    match generator:
        case random.Random():
            return generator.getstate()
        case np.random.Generator():
            return generator.bit_generator.state
        case _:
            return generator.get_state()


def _set_state(generator: Generator, state: Any) -> None:
    match generator:
        case random.Random():
            generator.setstate(state)
        case np.random.Generator():
            generator.bit_generator.state = state
        case _:
            generator.set_state(state)


def _equal_states(state: Any, other: Any) -> bool:
    return torch.equal(state, other) if isinstance(state, torch.Tensor) else repr(state) == repr(other)
