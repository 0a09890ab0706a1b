"""The results of one run, and how far rounding may move right results apart."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from regional_explorer.compiler.run import never_cancelled
from regional_explorer.torch_api.graphs import (
    bodies,
    is_elementwise,
    is_random_op,
    only_moves,
    returns_new_tensors,
    size_hint,
)

SLACK = 4.0
"""A variant may be this many times as far from float64 as eager."""

MOST_OF_ZERO = 2.0**-10
"""A result is zero to rounding if float64 gives no more than this share of what eager gives."""

FEW_ELEMENTS = 32
"""With fewer elements, eager's own distance from float64 may be small by chance."""

_UNITS_OF_DTYPE, _UNITS_OF_SUM = 10.0, 64.0
"""How many rounding units eager may be off: of its dtype, and of the sums' dtype per root of the number of terms."""

_CHUNK_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class Arithmetic:
    """How the graphs of a call compute.

    ``reduction`` is how many terms the largest reduction sums, at the sizes of the trace; ``eps`` the precision of the
    narrowest dtype that they compute in: under autocast, a float32 result was rounded to bfloat16 on the way.
    """

    reduction: int = 1
    eps: float = 0.0


@dataclass(frozen=True)
class Limit:
    """How far an element may be off: ``relative`` × (its size + the tensor's RMS) + ``absolute``."""

    relative: float
    absolute: float

    def rms(self, tensor_rms: float) -> float:
        """Return how far off the RMS of a tensor's error may be; ``tensor_rms`` is the tensor's RMS."""
        return self.relative * tensor_rms + self.absolute


@dataclass(frozen=True)
class Gap:
    """How far one tensor is from another.

    ``rms`` and ``largest`` are absolute differences; ``shares`` has, for each limit that was given, the largest
    fraction of it that an element uses.
    """

    rms: float
    largest: float
    shares: tuple[float, ...]


def rounding_unit(dtype: torch.dtype, scale: float) -> Limit:
    """Return the error of rounding a result once; ``scale`` is the RMS of the largest output, or gradient."""
    return Limit(eps_of(dtype), eps_of_sums(dtype) * scale)


def units_of_a_sum(tensor: torch.Tensor, arithmetic: Arithmetic) -> float:
    """Return how many units a correct result may be off, even if eager is nearer to float64.

    Eager sums pairwise; Inductor adds one term after the other, and each addition rounds: by √n units of the dtype that
    kernels sum in, and by twice that if the terms repeat (the gradient of a mean). Few elements may be near by chance.
    """
    sum_units = math.sqrt(arithmetic.reduction)
    if tensor.numel() < FEW_ELEMENTS:
        return sum_units * max(1.0, arithmetic.eps / eps_of(tensor.dtype))
    return max(1.0, sum_units * eps_of_sums(tensor.dtype) / eps_of(tensor.dtype))


def rounding_limit(dtype: torch.dtype, arithmetic: Arithmetic, scale: float, noise: float = 0.0) -> Limit:
    """Return how far eager may be off by rounding alone; a larger difference has another cause.

    ``scale`` is the RMS of the largest output, or gradient: a gradient that is truly zero is noise at that scale.
    ``noise`` is the measured move of the result under other rounding, 0 if it was not measured. Such a move is allowed
    where the terms of a long sum cancel, but at most the error of a sum at that scale.
    """
    eps = max(eps_of(dtype), arithmetic.eps)
    relative = _UNITS_OF_DTYPE * eps + _UNITS_OF_SUM * eps_of_sums(dtype) * math.sqrt(arithmetic.reduction)
    return Limit(relative, max(_UNITS_OF_DTYPE * eps * scale, min(noise, relative * scale)))


def gap(left: torch.Tensor, right: torch.Tensor, *limits: Limit) -> Gap:
    """Return how far ``left`` is from ``right``; equal infinities and two NaNs differ by 0, others by infinity."""
    square_sum, largest, shares, right_rms = 0.0, 0.0, [0.0] * len(limits), rms(right)
    for chunk, other in _chunks(left, right):
        equal = (chunk == other) | ((chunk != chunk) & (other != other))  # noqa: PLR0124 - NaN is not itself
        diff = torch.where(equal, 0.0, (chunk - other).abs()).nan_to_num(nan=math.inf, posinf=math.inf)
        square_sum += float(diff.square().sum())
        largest = max(largest, float(diff.max()))
        for index, limit in enumerate(limits):
            allowed = limit.relative * (other.abs() + right_rms) + limit.absolute
            share = float(torch.where(diff == 0.0, 0.0, (diff / allowed).nan_to_num(nan=math.inf)).max())
            shares[index] = max(shares[index], share)
    return Gap(math.sqrt(square_sum / max(left.numel(), 1)), largest, tuple(shares))


def rms(tensor: torch.Tensor | None) -> float:
    """Return the root mean square of the finite elements of a floating tensor; 0 for other tensors."""
    if tensor is None or not is_floating(tensor):
        return 0.0
    square_sum, count = 0.0, 0
    for (chunk,) in _chunks(tensor):
        finite = chunk.abs()[torch.isfinite(chunk)]
        square_sum, count = square_sum + float(finite.square().sum()), count + finite.numel()
    return math.sqrt(square_sum / count) if count else 0.0


def is_floating(tensor: torch.Tensor) -> bool:
    """Return whether a tensor holds floating or complex numbers."""
    return tensor.is_floating_point() or tensor.is_complex()


def holds_exact_values(tensor: torch.Tensor) -> bool:
    """Return whether a tensor holds no results of arithmetic that rounds: integers, booleans, or 8-bit numbers.

    Eight bits are for storage: a value is rounded to them on purpose, and differs by a whole step or not at all.
    """
    return not is_floating(tensor) or tensor.dtype.itemsize == 1


def _chunks(*tensors: torch.Tensor) -> Iterable[tuple[torch.Tensor, ...]]:
    """Yield tensors in chunks in the widest dtype of their kind: whole copies would take several times the memory."""
    flat = [tensor.detach().reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), _CHUNK_ELEMENTS):
        yield tuple(
            piece[start : start + _CHUNK_ELEMENTS].to(torch.complex128 if piece.is_complex() else torch.float64)
            for piece in flat
        )


def eps_of(dtype: torch.dtype) -> float:
    """Return the precision of a floating dtype: the distance from 1 to the next larger number."""
    return float(torch.finfo(dtype).eps)


def eps_of_sums(dtype: torch.dtype) -> float:
    """Return the precision in which kernels sum: float32 for all narrower dtypes."""
    return min(eps_of(dtype), eps_of(torch.float32))


# --------------------------------------------------------------------------------------------------- how graphs compute


def arithmetic_of(graphs: Iterable[fx.GraphModule]) -> Arithmetic:
    """Return how graphs compute."""
    nodes = [node for gm in graphs for node in _op_nodes(gm)]
    dtypes = {tensor.dtype for node in nodes for tensor in _result_tensors(node) if is_floating(tensor)}
    return Arithmetic(
        max(map(_summed_terms, nodes), default=1),
        # Eight bits are for storage: those values were rounded on purpose, and are rounded in the float64 run too.
        max((eps_of(dtype) for dtype in dtypes if dtype.itemsize > 1), default=0.0),
    )


def _op_nodes(gm: fx.GraphModule) -> Iterable[fx.Node]:
    yield from (node for node in gm.graph.nodes if node.op == "call_function")
    for _, body in bodies(gm):
        yield from _op_nodes(body)


_LEFT_OPERANDS = {"mm": 0, "addmm": 1, "bmm": 0, "baddbmm": 1, "_scaled_mm": 0, "_int_mm": 0}
"""Matrix products, and the position of their left operand."""

_PICKING_PREFIXES = (
    *("index", "select", "gather", "embedding", "slice", "split", "take", "sort", "topk"),
    *("arg", "amax", "amin", "max", "min", "any", "all"),
)
"""Prefixes of the names of operators that pick elements without summing."""

_ALONG_DIMS = frozenset(("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data", "cumsum"))


def _summed_terms(node: fx.Node) -> int:
    target = node.target
    if getattr(target, "is_view", True):  # a higher-order op has no such attribute
        return 1
    name = target.overloadpacket.__name__  # type: ignore[union-attr]  # it is an operator, since it has is_view
    inputs = [shape for source in node.all_input_nodes for shape in _known_shapes(source)]
    outputs = [shape for shape in _known_shapes(node) if math.prod(shape)]
    if not inputs or not outputs:
        return 1
    if name in _LEFT_OPERANDS:
        left: Any = node.args[_LEFT_OPERANDS[name]]
        return max((1, *(shape[-1] for shape in _known_shapes(left))))
    if name == "convolution":
        return max(1, math.prod(inputs[1][1:]))
    if name == "convolution_backward":  # each gradient sums over what the other two share
        gradient, _, weight = inputs[:3]
        return max(1, math.prod(gradient) // max(gradient[1], 1), math.prod(weight) // max(weight[1], 1))
    if name in _ALONG_DIMS:
        return max((1, *inputs[0]))
    if name.startswith(_PICKING_PREFIXES):
        return 1
    return max(1, max(map(math.prod, inputs)) // min(map(math.prod, outputs)))


def _known_shapes(node: fx.Node) -> list[tuple[int, ...]]:
    return [shape for tensor in _result_tensors(node) if (shape := _known_shape(tensor)) is not None]


def _result_tensors(node: fx.Node) -> list[torch.Tensor]:
    value: Any = node.meta.get("val")
    return [
        item for item in (value if isinstance(value, (list, tuple)) else (value,)) if isinstance(item, torch.Tensor)
    ]


def _known_shape(tensor: torch.Tensor) -> tuple[int, ...] | None:
    try:
        return tuple(size_hint(size) for size in tensor.shape)
    except ValueError:  # a size that is known only at run time
        return None


MOST_DENSE_ELEMENTS = 1 << 28
"""Sparse tensors are compared as dense ones if they have no more elements."""


@dataclass(frozen=True)
class Values:
    """The results of one run: named output tensors, and named gradients (None if an input has none).

    Among the outputs are the tensors that the call wrote in place or assigned. ``touched`` are masks, by name, of the
    elements that it wrote in place. ``opaque`` are the paths and types of objects among the outputs that cannot be
    searched for tensors.
    """

    outputs: tuple[tuple[str, torch.Tensor], ...]
    gradients: tuple[tuple[str, torch.Tensor | None], ...]
    opaque: tuple[tuple[str, str], ...] = ()
    touched: Mapping[str, torch.Tensor] = field(default_factory=dict)


def as_dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a detached tensor, dense if it was sparse and is not too large."""
    tensor = tensor.detach()
    is_sparse = tensor.layout not in (torch.strided, torch.jagged)
    return tensor.to_dense() if is_sparse and tensor.numel() <= MOST_DENSE_ELEMENTS else tensor


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has elements that can be compared one by one."""
    return tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_meta


def touched_elements(tensor: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Return a mask of the elements that a call wrote to a tensor, which had the content ``before``.

    If no element has changed, the call wrote equal values again. Then the elements that are not zero count: the
    unwritten part, such as the rest of a cache, is mostly zero.
    """
    changed = tensor.detach() != before
    return changed if changed.any() else tensor.detach() != 0


_RUNS = 16
_ONE_DIRECTION = {0: 1.0, 1: -1.0}
"""The runs that move all results in one direction: random directions rarely move all ops of a chain alike."""

_AMPLITUDE = 2.0
"""How far each result is moved, in roundings: other code may round it in several steps."""

_SLACK_OF_EIGHT_BITS = 2.0
"""An eight-bit number may be off by this many times its move: four steps may be its whole range."""

_MOST_SPACING = 1 / 16
"""The spacing of floats above which too many of them are whole numbers by chance."""


class RoundingRun(fx.Interpreter):
    """Runs a graph, and moves the results of ops by rounding errors; ``number`` chooses directions, None moves none."""

    def __init__(self, gm: fx.GraphModule, number: int | None) -> None:
        super().__init__(gm)
        self._number = number
        self._generators: dict[torch.device, torch.Generator] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run a node."""
        result = super().run_node(n)
        if self._number is None or not returns_new_tensors(n) or only_moves(n) or is_random_op(n):
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
        if self._number in _ONE_DIRECTION:
            return torch.tensor(_ONE_DIRECTION[self._number], device=tensor.device)
        if (generator := self._generators.get(tensor.device)) is None:
            generator = torch.Generator(tensor.device).manual_seed(self._number or 0)
            self._generators[tensor.device] = generator
        return torch.rand(tensor.shape, generator=generator, device=tensor.device).sub_(0.5).sign_()


def rounded_otherwise(tensor: torch.Tensor, directions: torch.Tensor, *, elementwise: bool) -> torch.Tensor:
    """Return the result of an op as other code may round it: per element, and in sums unless ``elementwise``.

    Infinities and whole numbers stay: they are positions, masks, or results of steps.
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
    """How far each element of the results moves if the graphs of a call round differently.

    ``run`` runs the graphs with the rounding of a run's number, or unchanged for None. Moves are measured from the
    unchanged run, not from eager, so that a difference between the graphs and eager does not explain itself.
    ``cancelled`` is called before each run.
    """

    run: Callable[[int | None], Values]
    cancelled: Callable[[], bool] = never_cancelled
    are_known: Callable[[], bool] = lambda: True

    def rms(self, name: str) -> float:
        """Return the root mean square of the moves of one tensor; 0 if it has none."""
        return rms(self._moves_by_name.get(name))

    def without_explained(self, name: str, got: torch.Tensor, expected: torch.Tensor, eps: float) -> torch.Tensor:
        """Return ``got``, with eager's element wherever rounding explains the difference.

        ``eps`` is the precision of the narrowest dtype in the graphs.
        """
        moves = self._moves_by_name.get(name)
        if moves is None or moves.shape != got.shape:
            return got
        is_exact = holds_exact_values(expected)
        least = 0.0 if is_exact else SLACK * eps * (_widened(expected).abs() + rms(expected))
        # If many steps add up, each run takes different steps: an element that moves may move by the RMS of all moves.
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
        """Return the results of one run by name; empty if an op refuses the rounded values."""
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
