"""Step functions: rounding to whole numbers, comparisons, indices. A rounding error before one moves results by a step.

``docs/numerics.md`` states the rule.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from regional_explorer.measure.accuracy.rounding import SLACK, is_floating, rms
from regional_explorer.measure.accuracy.values import Values
from regional_explorer.torch_api import BoxedInterpreter

_UNITS = 2.0
"""So many units of rounding the inputs of step functions are moved by."""

_DRAWS = 6
"""So many times in random directions, after once up and once down."""

_STEPS = frozenset(
    (
        *("round", "floor", "ceil", "trunc", "fix", "frac", "sign", "sgn", "heaviside", "signbit"),
        *("gt", "lt", "ge", "le", "eq", "ne", "floor_divide", "remainder", "fmod", "threshold_backward"),
        *("argmax", "argmin", "topk", "sort", "argsort", "kthvalue", "searchsorted", "bucketize"),
    )
)


@dataclass(frozen=True)
class Shift:
    """How the inputs of step functions are moved: by rounding of ``eps``, up, down, or at random by ``seed``."""

    eps: float
    direction: float = 0.0
    seed: int = 0

    def moved(self, value: torch.Tensor) -> torch.Tensor:
        """Return a value moved; whole numbers and infinities stay: positions, masks, what another step gave."""
        if not value.is_floating_point():
            return value
        wide = value.double()
        off = _UNITS * max(self.eps, torch.finfo(value.dtype).eps) * (wide.abs() + rms(value))
        if not self.direction:
            generator = torch.Generator(value.device).manual_seed(self.seed)
            off = off * (torch.rand(value.shape, generator=generator, device=value.device) * 2 - 1).sign()
        stays = (wide == wide.round()) | ~wide.isfinite()
        return torch.where(stays, wide, wide + off * (self.direction or 1.0)).to(value.dtype)


class Shifted(BoxedInterpreter):
    """Runs a graph with what its step functions are given moved by ``shift``."""

    def __init__(self, gm: fx.GraphModule, shift: Shift) -> None:
        super().__init__(gm)
        self._shift = shift

    def run_node(self, n: fx.Node) -> Any:
        """Run a node."""
        if not is_step(n):
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        moved = tuple(self._shift.moved(item) if isinstance(item, torch.Tensor) else item for item in args)
        return self.call_function(n.target, moved, kwargs)


def is_step(node: fx.Node) -> bool:
    """Return whether a node is a step function of a floating value; a cast to integers or to eight bits is one, too."""
    if node.op != "call_function" or not any(_floats(source) for source in node.all_input_nodes):
        return False
    name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
    if name == "div":
        return node.kwargs.get("rounding_mode") is not None
    if name in ("_to_copy", "convert_element_type"):
        value = node.meta.get("val")
        return isinstance(value, torch.Tensor) and (not is_floating(value) or value.dtype.itemsize == 1)
    return name in _STEPS


def _floats(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def has_steps(graphs: Iterable[fx.GraphModule]) -> bool:
    """Return whether any graph has a step function."""
    return any(is_step(node) for gm in graphs for node in gm.graph.nodes)


@dataclass
class Steps:
    """How far each element of the results moves with rounding before the step functions of a call.

    ``run`` runs the call's graphs with their inputs moved; ``eps`` is the precision of the narrowest dtype in them.
    """

    run: Callable[[Shift], Values]
    eager: Values
    eps: float

    def without_explained(self, name: str, got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        """Return ``got`` with eager's elements in place of those that are off by what step functions explain."""
        moved = self._moved.get(name)
        if moved is None or moved.shape != got.shape:
            return got
        # Where many steps add up, other ones go the other way in each run: what moves at all may move as all do.
        allowed = torch.where(moved > 0, moved.clamp(min=rms(moved)), 0.0)
        return torch.where(_off(got, expected) <= SLACK * allowed, expected, got)

    @functools.cached_property
    def _moved(self) -> Mapping[str, torch.Tensor]:
        shifts = [Shift(self.eps, +1.0), Shift(self.eps, -1.0), *(Shift(self.eps, seed=n) for n in range(_DRAWS))]
        expected = _by_name(self.eager)
        found: dict[str, torch.Tensor] = {}
        for shift in shifts:
            # An op may refuse what was moved: less is explained then.
            with contextlib.suppress(RuntimeError, ValueError, IndexError):
                for name, got in _by_name(self.run(shift)).items():
                    if name in expected and got.shape == expected[name].shape:
                        off = _off(got, expected[name])
                        found[name] = torch.maximum(found[name], off) if name in found else off
        return found


def _by_name(values: Values) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in (*values.outputs, *values.gradients) if tensor is not None}


def _off(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    wide = torch.complex128 if expected.is_complex() else torch.float64
    return (got.to(wide) - expected.to(wide)).abs()
