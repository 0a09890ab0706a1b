"""Finds differences explained by step functions (rounding, comparisons, indices), which turn rounding into a step.

Errors add up on the way to a step, and some ops amplify them, such as a batch norm over few samples. Running the call
with every result on the way rounded differently shows how far (Monte Carlo arithmetic: Parker, Pierce and Eggert,
2000). ``docs/numerics.md`` states the rule.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from regional_explorer.compiler.run_context import never_cancelled
from regional_explorer.measure.accuracy.rounding import SLACK, is_floating, rms
from regional_explorer.measure.accuracy.values import Values, is_dense
from regional_explorer.torch_api import draws_random, is_elementwise, returns_new_tensors

_MOVED_UNITS = 2.0
"""The units of rounding by which the inputs of step functions are moved."""

_RANDOM_RUNS = 14
"""The number of runs that move inputs in random directions; two more move them up and down."""

_STEP_FUNCTIONS = frozenset(
    (
        *("round", "floor", "ceil", "trunc", "fix", "frac", "sign", "sgn", "heaviside", "signbit"),
        *("gt", "lt", "ge", "le", "eq", "ne", "floor_divide", "remainder", "fmod", "threshold_backward"),
        *("argmax", "argmin", "topk", "sort", "argsort", "kthvalue", "searchsorted", "bucketize"),
    )
)


@dataclass(frozen=True)
class Shift:
    """How the inputs of step functions are moved: by rounding of ``eps``, up, down, or at random by ``seed``.

    Results on the way to them are rounded differently in each run, by ``seed``.
    """

    eps: float
    direction: float = 0.0
    seed: int = 0

    def moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a moved value; whole numbers and infinities stay: positions, masks, results of other steps."""
        if not tensor.is_floating_point():
            return tensor
        wide = tensor.double()
        distance = _MOVED_UNITS * max(self.eps, torch.finfo(tensor.dtype).eps) * (wide.abs() + rms(tensor))
        signs = self.direction or _random_signs(tensor, torch.Generator(tensor.device).manual_seed(self.seed))
        return torch.where(_is_exact(tensor), wide, wide + distance * signs).to(tensor.dtype)


def rounded_differently(tensor: torch.Tensor, generator: torch.Generator, *, elementwise: bool) -> torch.Tensor:
    """Return the result of an op as other code may round it: each element, and its sums unless ``elementwise``.

    Kernels sum narrower dtypes in float32.
    """
    wide = tensor.double()
    eps = torch.finfo(tensor.dtype).eps
    in_sums = 0.0 if elementwise else min(eps, torch.finfo(torch.float32).eps) * rms(tensor)
    error = eps / 2 * wide.abs() + in_sums
    return torch.where(_is_exact(tensor), wide, wide + error * _random_signs(tensor, generator)).to(tensor.dtype)


def _random_signs(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(tensor.shape, generator=generator, device=tensor.device).sub_(0.5).sign_()


def _is_exact(tensor: torch.Tensor) -> torch.Tensor:
    """Return a mask of the elements that rounding does not change: whole numbers, infinities and NaNs."""
    return (tensor == tensor.round()) | ~tensor.isfinite()


class Shifted(fx.Interpreter):
    """Runs a graph with the inputs of its steps moved by ``shift``, and results on the way to them rounded differently.

    With ``steps_follow``, the outputs lead to step functions too: those of a forward lead to steps in the backward.
    """

    def __init__(self, gm: fx.GraphModule, shift: Shift, *, steps_follow: bool = False) -> None:
        super().__init__(gm)
        self._shift = shift
        self._generators: dict[torch.device, torch.Generator] = {}
        ends = [node for node in gm.graph.nodes if is_step(node) or (steps_follow and node.op == "output")]
        self._leads_to_step = _ancestors(ends)

    def run_node(self, n: fx.Node) -> Any:
        """Run a node."""
        if is_step(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            moved = tuple(self._shift.moved(item) if isinstance(item, torch.Tensor) else item for item in args)
            return self.call_function(n.target, moved, kwargs)
        result = super().run_node(n)
        if n not in self._leads_to_step or not returns_new_tensors(n) or draws_random(n):
            return result
        round_tensor = functools.partial(self._rounded, elementwise=is_elementwise(n))
        return tuple(map(round_tensor, result)) if isinstance(result, tuple) else round_tensor(result)

    def _rounded(self, value: Any, *, elementwise: bool) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        if (generator := self._generators.get(value.device)) is None:
            generator = torch.Generator(value.device).manual_seed(self._shift.seed)
            self._generators[value.device] = generator
        return rounded_differently(value, generator, elementwise=elementwise)


def _ancestors(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """Return all nodes that ``nodes`` are computed from, in one graph."""
    ancestors: set[fx.Node] = set()
    waiting = list(nodes)
    while waiting:
        new_sources = set(waiting.pop().all_input_nodes) - ancestors
        ancestors |= new_sources
        waiting += new_sources
    return ancestors


def is_step(node: fx.Node) -> bool:
    """Return whether a node is a step function of a floating value, such as a cast to integers or to eight bits."""
    if node.op != "call_function" or not any(_is_floating_node(source) for source in node.all_input_nodes):
        return False
    name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
    if name == "div":
        return node.kwargs.get("rounding_mode") is not None
    if name in ("_to_copy", "convert_element_type"):
        value = node.meta.get("val")
        return isinstance(value, torch.Tensor) and (not is_floating(value) or value.dtype.itemsize == 1)
    return name in _STEP_FUNCTIONS


def _is_floating_node(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def has_steps(graphs: Iterable[fx.GraphModule]) -> bool:
    """Return whether any graph has a step function."""
    return any(is_step(node) for gm in graphs for node in gm.graph.nodes)


@dataclass
class Steps:
    """How far each element of the results moves with rounding before the step functions of a call.

    ``run`` runs the call's graphs with their inputs moved; ``eps`` is the precision of the narrowest dtype in them.
    ``cancelled`` is called before each run.
    """

    run: Callable[[Shift], Values]
    eager: Values
    eps: float
    cancelled: Callable[[], bool] = never_cancelled

    def without_explained(self, name: str, got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        """Return ``got`` with eager's elements in place of those whose difference step functions explain."""
        moves = self._moves_by_name.get(name)
        if moves is None or moves.shape != got.shape:
            return got
        # If many steps add up, each run flips other ones: an element that moves may move by the RMS of all moves.
        by_step = moves > SLACK * self.eps * (_widened(expected).abs() + rms(expected))
        allowed = torch.where(by_step, moves.clamp(min=rms(moves)), 0.0)
        return torch.where(_difference(got, expected) <= SLACK * allowed, expected, got)

    @functools.cached_property
    def _moves_by_name(self) -> Mapping[str, torch.Tensor]:
        up_and_down = (Shift(self.eps, direction, seed) for seed, direction in enumerate((+1.0, -1.0), _RANDOM_RUNS))
        shifts = [*up_and_down, *(Shift(self.eps, seed=seed) for seed in range(_RANDOM_RUNS))]
        expected = _tensors_by_name(self.eager)
        moves: dict[str, torch.Tensor] = {}
        for shift in shifts:
            if self.cancelled():
                raise CancelledError
            # An op may refuse moved inputs; then less is explained.
            with contextlib.suppress(RuntimeError, ValueError, IndexError):
                for name, got in _tensors_by_name(self.run(shift)).items():
                    if name in expected and got.shape == expected[name].shape:
                        move = _difference(got, expected[name])
                        moves[name] = torch.maximum(moves[name], move) if name in moves else move
        return moves


def _tensors_by_name(values: Values) -> dict[str, torch.Tensor]:
    tensors = (*values.outputs, *values.gradients)
    return {name: tensor for name, tensor in tensors if tensor is not None and is_dense(tensor)}


def _difference(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    return (_widened(got) - _widened(expected)).abs()


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
