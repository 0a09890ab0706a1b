"""How far rounding moves the results of a call: its graphs run several times, every result rounded otherwise.

Errors add up on the way to a result, and some ops amplify them: a step function turns the rounding of a value near its
step into a whole step, a batch norm over few samples multiplies it. Running the graphs with each result rounded at
random shows how far (Monte Carlo arithmetic: Parker, Pierce and Eggert, 2000). ``docs/numerics.md`` states the rule.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from regional_explorer.compiler.run_context import never_cancelled
from regional_explorer.measure.accuracy.rounding import SLACK, eps_of, eps_of_sums, holds_exact_values, is_floating, rms
from regional_explorer.measure.accuracy.values import Values, is_dense
from regional_explorer.torch_api import draws_random, is_elementwise, only_moves, returns_new_tensors

_RUNS = 16
_TOGETHER = {0: 1.0, 1: -1.0}
"""The runs that move all results in one direction: random ones rarely move all ops of a chain alike."""

_AMPLITUDE = 2.0
"""How many times as far as one rounding each result is moved: other code may round it in several steps."""

_SLACK_OF_EIGHT_BITS = 2.0
"""How many times farther than it moves a number in eight bits may be off: four steps may be all of it."""

_MOST_SPACING = 1 / 16
"""Where floats are farther apart, more of them than this part are whole numbers by chance."""


class Rounded(fx.Interpreter):
    """Runs a graph with the result of each op rounded otherwise, in the way of run ``number``; None: as it is."""

    def __init__(self, gm: fx.GraphModule, number: int | None) -> None:
        super().__init__(gm)
        self._number = number
        self._generators: dict[torch.device, torch.Generator] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run a node."""
        result = super().run_node(n)
        if self._number is None or not returns_new_tensors(n) or only_moves(n) or draws_random(n):
            return result
        round_tensor = functools.partial(self._rounded, elementwise=is_elementwise(n))
        return tuple(map(round_tensor, result)) if isinstance(result, (tuple, list)) else round_tensor(result)

    def _rounded(self, value: Any, *, elementwise: bool) -> Any:
        if not isinstance(value, torch.Tensor) or holds_exact_values(value):
            return value
        if value.is_complex():
            parts = torch.view_as_real(value.resolve_conj())
            return torch.view_as_complex(rounded_otherwise(parts, self._directions(parts), elementwise=elementwise))
        return rounded_otherwise(value, self._directions(value), elementwise=elementwise)

    def _directions(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._number in _TOGETHER:
            return torch.tensor(_TOGETHER[self._number], device=tensor.device)
        if (generator := self._generators.get(tensor.device)) is None:
            generator = torch.Generator(tensor.device).manual_seed(self._number or 0)
            self._generators[tensor.device] = generator
        return torch.rand(tensor.shape, generator=generator, device=tensor.device).sub_(0.5).sign_()


def rounded_otherwise(tensor: torch.Tensor, directions: torch.Tensor, *, elementwise: bool) -> torch.Tensor:
    """Return the result of an op as other code may round it: each element, and its sums unless ``elementwise``.

    Infinities and whole numbers stay: those are positions, masks, or results of steps.
    """
    wide, eps = tensor.double(), eps_of(tensor.dtype)
    in_sums = 0.0 if elementwise else eps_of_sums(tensor.dtype) * rms(tensor)
    error = _AMPLITUDE * (eps / 2 * wide.abs() + in_sums)
    stays = (tensor == tensor.round()) | ~tensor.isfinite()
    if not stays.all():  # then some of the large numbers are whole by chance: all above 128 are in bfloat16
        stays &= (eps * wide.abs() <= _MOST_SPACING) | ~tensor.isfinite()
    return torch.where(stays, wide, wide + error * directions).to(tensor.dtype)


@dataclass
class Moves:
    """How far each element of the results moves if the graphs of a call round otherwise.

    ``run`` runs the graphs in the way of a number, or as they are for None: the moves are measured from there and not
    from eager, so that a difference between the graphs and eager does not explain itself. ``cancelled`` is asked before
    each run.
    """

    run: Callable[[int | None], Values]
    cancelled: Callable[[], bool] = never_cancelled

    def rms(self, name: str) -> float:
        """Return the root mean square of the moves of one tensor, 0 if it has none."""
        return rms(self._moves_by_name.get(name))

    def without_explained(self, name: str, got: torch.Tensor, expected: torch.Tensor, eps: float) -> torch.Tensor:
        """Return ``got`` with eager's elements in place of those that are off by no more than rounding moves them.

        ``eps`` is the precision of the narrowest dtype in the graphs.
        """
        moves = self._moves_by_name.get(name)
        if moves is None or moves.shape != got.shape:
            return got
        is_exact = holds_exact_values(expected)
        least = 0.0 if is_exact else SLACK * eps * (_widened(expected).abs() + rms(expected))
        # If many steps add up, each run takes other ones: an element that moves may move by the RMS of all moves.
        allowed = torch.where(moves > least, moves.clamp(min=rms(moves)), moves)
        slack = _SLACK_OF_EIGHT_BITS if is_exact and is_floating(expected) else SLACK
        return torch.where(_difference(got, expected) <= slack * allowed, expected, got)

    @functools.cached_property
    def _moves_by_name(self) -> Mapping[str, torch.Tensor]:
        moves: dict[str, torch.Tensor] = {}
        expected = self._tensors(None)
        for number in range(_RUNS):
            for name, got in self._tensors(number).items():
                if name in expected and got.shape == expected[name].shape:
                    move = _difference(got, expected[name])
                    moves[name] = torch.maximum(moves[name], move) if name in moves else move
        return moves

    def _tensors(self, number: int | None) -> Mapping[str, torch.Tensor]:
        """Return the results of one run by name; none if an op refuses what was rounded: then less is explained."""
        if self.cancelled():
            raise CancelledError
        with contextlib.suppress(RuntimeError, ValueError, IndexError):
            values = self.run(number)
            tensors = (*values.outputs, *values.gradients)
            return {name: tensor for name, tensor in tensors if tensor is not None and is_dense(tensor)}
        return {}


def _difference(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    return (_widened(got) - _widened(expected)).abs()


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
