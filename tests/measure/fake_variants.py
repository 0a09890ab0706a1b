"""Fake variants: wrong, right, or rounded differently; and functions whose trace is wrong.

A variant is a function that takes the call's arguments, or one that changes the values that eager gave.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

from regional_explorer.measure.tolerances import Values

MANY = 100_000
MILLION = 10 * MANY
LAYERS = 25
"""The number of layers of the deep net; each has a weight and a bias."""


@dataclass(frozen=True)
class Program:
    """A call: its function and arguments, and the number of terms of its largest sum."""

    function: Callable[..., Any]
    arguments: Callable[[], Sequence[torch.Tensor]]
    terms: int = 1


def _normal(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(dtype).requires_grad_(grad)


def _normals(
    *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, grad: bool = False
) -> tuple[torch.Tensor, ...]:
    return tuple(_normal(*shape, dtype=dtype, grad=grad) for shape in shapes)


def wave(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.sin() * y + 1.5


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def deep_net(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        x = x + torch.tanh(F.linear(x, weight, bias))
    return x


def attention(x: torch.Tensor, q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    scores = (x @ q) @ (x @ k + bias).transpose(-1, -2) / 8.0
    return F.softmax(scores, -1) @ x


def norm_and_gelu(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.layer_norm(x, x.shape[-1:], weight))


def sum_and_mean_square(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.sum(), x.square().mean()


def argmax_and_exp(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return x.argmax(-1), x > 0, x.exp()


def sine_or_cosine(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0.5, x.sin(), x.cos())


def fake_quantize(x: torch.Tensor) -> torch.Tensor:
    """Fake quantization with a straight-through gradient."""
    scaled = (x * 0.37 + 0.11) * 7.3
    return (scaled + (scaled.round() - scaled).detach()) / 7.3


def one_or_three(x: torch.Tensor) -> torch.Tensor:
    return (x.round() > 0).float() * 2 + 1


def quantize_to_int8(x: torch.Tensor) -> torch.Tensor:
    return (x * 50.3).round().clamp(-128, 127).to(torch.int8)


def max_topk_argsort(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 1.5
    return *y.max(-1), *y.topk(3), y.argsort(-1)


def max_pool(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    values, indices = F.max_pool2d(x.sin(), 2, return_indices=True)
    return values, indices


def relu_net(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    for weight in weights:
        x = F.relu(x @ weight)
    return x


def float8_cast(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).to(torch.float8_e5m2)


def float8_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Multiply two float8 factors; return a float8 result."""
    factors = [t.to(torch.float8_e4m3fn).to(torch.bfloat16) for t in (x, w)]
    return (factors[0] @ factors[1] / 8).to(torch.float8_e5m2)


def normed_convolution(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """A convolution whose norm removes its bias: the gradient of the bias is the rounding of sums that cancel."""
    return F.instance_norm(F.conv2d(x, weight, bias)).tanh()


def fused_fake_quantize(x: torch.Tensor) -> torch.Tensor:
    """Compute ``fake_quantize`` as a fused kernel does, rounded to bfloat16 only at the end."""
    return fake_quantize(x.float()).bfloat16()


def bfloat16_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return float32 results of sums in bfloat16."""
    return (a.bfloat16().sin() @ b.bfloat16()).cos().float()


def logistic(x: torch.Tensor) -> torch.Tensor:
    for _ in range(40):
        x = 3.9 * x * (1 - x)
    return x


def norms(x: torch.Tensor, *weights: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """Norms over a batch of twelve, which amplify rounding until it decides the sign before a ReLU."""
    for w in weights:
        y = x @ w
        x = ((y - y.mean(0)) / (y.var(0) + 1e-5).sqrt()).relu() * scale
    return x


def _norm_arguments() -> tuple[torch.Tensor, ...]:
    """Return arguments of which one of 36,864 signs changes if the products are computed as two sums."""
    torch.manual_seed(7)
    x, first, *others = torch.randn(12, 256), *(torch.randn(256, 256) / 16 for _ in range(12))
    return x.requires_grad_(), first.requires_grad_(), *others


def residual(x: torch.Tensor, *weights: torch.Tensor, scale: float = 1.0, noise: float = 0.0) -> torch.Tensor:
    """Layers in which the rounding of one layer decides signs in the next, in 16-bit dtypes."""
    for number, w in enumerate(weights):
        y = (F.layer_norm(x, (x.shape[-1],)) @ w).relu()
        if number == 3:
            y = y * scale + noise * y.detach().std() * torch.randn_like(y)
        x = x + y
    return x


def _residual_arguments(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    x, weights = torch.randn(32, 128).to(dtype), (torch.randn(6, 128, 128) / 11).to(dtype)
    return x.requires_grad_(), *(w.clone().requires_grad_() for w in weights)


def _scores_with_late_maxima() -> tuple[torch.Tensor]:
    """Return bfloat16 scores whose two largest differ by one step and have large indices."""
    scores = torch.zeros(1, MANY).bfloat16()
    scores[0, 90_000], scores[0, 90_003] = 1.0, 1.0 + 2**-7
    return (scores,)


NEAR = torch.tensor([[1.1, 1.1 + 2e-7, 0.3], [1.1, 0.7, 0.3]])
INDICES: dict[str, Callable[..., torch.Tensor]] = {
    "argmax": lambda x: (x * 1.0).argmax(-1),
    "max": lambda x: (x * 1.0).max(-1)[1],
    "max pool": lambda x: F.max_pool1d((x * 1.0)[None], 3, return_indices=True)[1].flatten(),
    "topk": lambda x: (x * 1.0).topk(1)[1].flatten(),
}
CASTS: dict[str, Callable[..., torch.Tensor]] = {
    "int8": lambda x: (x * 20.7 * 1.37).round().to(torch.int8),
    "int32, of numbers that may be integers": lambda x: (x * 307.7 * 1.37).to(torch.int32),
    "float8": lambda x: ((x * 0.37 + 0.11) * 1.37).to(torch.float8_e5m2),
    "float8, finite": lambda x: ((x * 0.37 + 0.11) * 1.37).to(torch.float8_e4m3fn),
}

PROGRAMS = {
    "wave": Program(wave, lambda: _normals((MANY,), (MANY,))),
    "product": Program(product, lambda: _normals((256, 512), (512, 256)), 512),
    "deep net": Program(
        deep_net,
        lambda: (_normal(16, 32), *(p for _ in range(LAYERS) for p in (_weight(32, 32), _normal(32, grad=True)))),
        32,
    ),
    "attention": Program(
        attention, lambda: (_normal(4, 32, 64), _weight(64, 64), _weight(64, 64), _normal(64, grad=True)), 128
    ),
    "norm and gelu": Program(norm_and_gelu, lambda: _normals((64, 256), (256,)), 256),
    "sum and mean square": Program(sum_and_mean_square, lambda: _normals((MILLION,)), MILLION),
    "argmax and exp": Program(argmax_and_exp, lambda: _normals((64, 32))),
    "wave of float16": Program(wave, lambda: _normals((4096,), (4096,), dtype=torch.float16)),
    "wave of bfloat16": Program(wave, lambda: _normals((4096,), (4096,), dtype=torch.bfloat16)),
    "product of bfloat16": Program(product, lambda: _normals((64, 512), (512, 64), dtype=torch.bfloat16), 512),
    "sine or cosine": Program(sine_or_cosine, lambda: _normals((64, 64))),
    "sine or cosine of float16": Program(sine_or_cosine, lambda: _normals((64, 64), dtype=torch.float16)),
    "fake quantize": Program(fake_quantize, lambda: _normals((4096,), dtype=torch.bfloat16, grad=True)),
    "one or three": Program(one_or_three, lambda: _normals((64, 64))),
    "int8": Program(quantize_to_int8, lambda: _normals((64, 64))),
    "int8 of bfloat16": Program(quantize_to_int8, lambda: _normals((64, 64), dtype=torch.bfloat16)),
    "max, topk, argsort": Program(max_topk_argsort, lambda: _normals((64, 32))),
    "max pool of a sine": Program(max_pool, lambda: _normals((2, 3, 16, 16))),
    "relu net": Program(relu_net, lambda: (_normal(32, 64, grad=True), *(_weight(64, 64) * 1.4 for _ in range(4))), 64),
    "float8": Program(float8_cast, lambda: _normals((4096,))),
    "float8 of half precision": Program(float8_cast, lambda: _normals((4096,), dtype=torch.float16)),
    "float8, finite": Program(
        lambda x: (x * 0.37 + 0.11).to(torch.float8_e4m3fn), lambda: _normals((4096,), dtype=torch.bfloat16)
    ),
    "float8, product": Program(float8_product, lambda: _normals((64, 64), (64, 64), dtype=torch.bfloat16), 64),
    "normed convolution": Program(
        normed_convolution,
        lambda: (_normal(2, 3, 48, 48), _weight(8, 3, 3, 3), (_normal(8) * 100).requires_grad_()),
        4232,
    ),
    "two sizes": Program(lambda x, y: (x.sin() * 1000, y.sin() / 1000), lambda: _normals((64, 64), (64, 64))),
    "wide": Program(product, lambda: _normals((64, 64), (64, 64), dtype=torch.float64), 64),
    # Variants of these may round differently.
    "quantized": Program(fake_quantize, lambda: _normals((4096,), dtype=torch.bfloat16)),
    "quantized, product": Program(
        lambda x, w: fake_quantize(x) @ w, lambda: _normals((64, 256), (256, 64), dtype=torch.bfloat16, grad=True), 256
    ),
    "bfloat16 product": Program(bfloat16_product, lambda: _normals((16, 16), (16, 16)), 16),
    "bfloat16 product, few": Program(bfloat16_product, lambda: _normals((16, 16), (16, 1)), 16),
    "equal terms": Program(
        lambda x: x.sum(0), lambda: (_normal(4, 1, 128).expand(4, 1024, 128).reshape(4096, 128) / 1024,), 4096
    ),
    **{f"index, {name}": Program(function, lambda: (NEAR,)) for name, function in INDICES.items()},
    "index of an argument": Program(lambda x: x.max(-1)[1], lambda: (NEAR,)),
    "index, far away": Program(lambda x: (x * 1.3).argmax(-1), _scores_with_late_maxima),
    **{
        f"cast, {name}": Program(function, lambda: _normals((64, 1024), dtype=torch.bfloat16))
        for name, function in CASTS.items()
    },
    "logistic": Program(logistic, lambda: (torch.rand(1000),)),
    "norms": Program(norms, _norm_arguments, 256),
    "residual of bfloat16": Program(residual, lambda: _residual_arguments(torch.bfloat16), 4096),
    "residual of float16": Program(residual, lambda: _residual_arguments(torch.float16), 4096),
}


def _weight(*shape: int) -> torch.Tensor:
    weight: torch.Tensor = _normal(*shape) / shape[-1] ** 0.5
    return weight.requires_grad_(True)


# ------------------------------------------------------------------------------------------------- changes of values


@dataclass(frozen=True)
class ChangedValues:
    change: Callable[[Values], Values]


Variant = Callable[..., Any] | ChangedValues


def _change_outputs(change: Callable[[torch.Tensor], torch.Tensor]) -> ChangedValues:
    return ChangedValues(
        lambda values: replace(values, outputs=tuple((name, change(tensor.clone())) for name, tensor in values.outputs))
    )


def _change_one(kind: str, index: int, change: Callable[[torch.Tensor], torch.Tensor | None]) -> ChangedValues:
    def apply(values: Values) -> Values:
        tensors = list(getattr(values, kind))
        name, tensor = tensors[index]
        tensors[index] = (name, change(tensor.clone()))
        found: dict[str, Any] = {kind: tuple(tensors)}
        return replace(values, **found)

    return ChangedValues(apply)


_change_output, _change_gradient = (
    functools.partial(_change_one, "outputs"),
    functools.partial(_change_one, "gradients"),
)


def _add_noise(level: float) -> ChangedValues:
    return _change_outputs(lambda tensor: tensor * (1 + level * torch.randn(tensor.shape)).to(tensor.dtype))


def _scale(factor: float) -> ChangedValues:
    return _change_outputs(lambda tensor: (tensor.double() * factor).to(tensor.dtype))


def _step_float8(count: int, index: int | slice = slice(None)) -> ChangedValues:
    """Return a change of float8 results by ``count`` steps away from zero."""

    def apply(tensor: torch.Tensor) -> torch.Tensor:
        tensor.view(torch.uint8).view(-1)[index] += count
        return tensor

    return _change_outputs(apply)


def _change_element(index: int, change: Callable[[torch.Tensor], torch.Tensor]) -> ChangedValues:
    def apply(tensor: torch.Tensor) -> torch.Tensor:
        flat = tensor.view(-1)
        flat[index] = change(flat[index])
        return tensor

    return _change_outputs(apply)


# ------------------------------------------------------------------------------------------------------------- wrong


def _deep_without_a_term(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    """Detach the first row of the bias of the middle layer, so that its gradient lacks a term."""
    for layer, (weight, bias) in enumerate(zip(weights[::2], weights[1::2], strict=True)):
        rows = bias.expand(len(x), -1)
        rows = torch.cat([rows[:1].detach(), rows[1:]]) if layer == LAYERS // 2 else rows
        x = x + torch.tanh(F.linear(x, weight) + rows)
    return x


WRONG: dict[str, tuple[str, Variant]] = {
    **{f"wave, noise {level:g}": ("wave", _add_noise(level)) for level in (1e-1, 1e-2, 1e-3, 1e-4)},
    **{f"product, noise {level:g}": ("product", _add_noise(level)) for level in (1e-1, 1e-2, 1e-3)},
    **{f"deep net, noise {level:g}": ("deep net", _add_noise(level)) for level in (1e-2, 1e-3)},
    "wave of half precision, noise 0.1": ("wave of float16", _add_noise(1e-1)),
    "product of bfloat16, noise 3": ("product of bfloat16", _add_noise(3.0)),
    "wrong constant": ("wave", lambda x, y: x.sin() * y + 1.501),
    "wrong constant of half precision": ("wave of float16", lambda x, y: x.sin() * y + 1.6),
    "wrong epsilon": ("norm and gelu", lambda x, w: F.gelu(F.layer_norm(x, x.shape[-1:], w, eps=3e-2))),
    "other gelu": ("norm and gelu", lambda x, w: F.gelu(F.layer_norm(x, x.shape[-1:], w) * 1.01)),
    "wrong scale": ("attention", lambda x, q, k, b: F.softmax((x @ q) @ (x @ k + b).mT / 8.1, -1) @ x),
    "swapped arguments": ("wave", lambda x, y: wave(y, x)),
    "swapped weights": ("attention", lambda x, q, k, b: attention(x, k, q, b)),
    "a missing term in one gradient of fifty": ("deep net", _deep_without_a_term),
    "one gradient of fifty is zero": ("deep net", _change_gradient(7, lambda tensor: tensor * 0)),
    "one gradient of fifty is missing": ("deep net", _change_gradient(7, lambda _tensor: None)),
    "one gradient of fifty is negated": ("deep net", _change_gradient(33, lambda tensor: -tensor)),
    "wrong dtype": ("product", _change_outputs(lambda tensor: tensor.to(torch.bfloat16))),
    "wider dtype": ("product", _change_outputs(lambda tensor: tensor.double())),
    "not a number in one element": ("wave", _change_element(4321, lambda element: element * float("nan"))),
    "infinite in one element": ("wave of bfloat16", _change_element(17, lambda element: element / 0)),
    "one element of many off by a tenth": ("wave", _change_element(65_432, lambda element: element * 1.1)),
    "transposed": ("product", _change_outputs(lambda tensor: tensor.t())),
    "a sum without its last tenth": ("sum and mean square", lambda x: (x[: -len(x) // 10].sum(), x.square().mean())),
    "another index": ("argmax and exp", _change_element(
        5, lambda element: torch.logical_not(element) if element.dtype is torch.bool else element + 1)),
    # Nothing, and half of what is right.
    **{f"{name}, {what}": (name, _scale(factor))
       for what, factor in (("zeros", 0.0), ("halves", 0.5))
       for name in ("wave of float16", "wave of bfloat16", "product of bfloat16", "sine or cosine", "fake quantize",
                    "int8", "int8 of bfloat16", "float8", "float8, finite", "float8 of half precision",
                    "float8, product", "relu net")},
    "zeros in the smaller of two results": ("two sizes", _change_output(1, lambda tensor: tensor * 0)),
    "half of the smaller of two results": ("two sizes", _change_output(1, lambda tensor: tensor / 2)),
    "a gradient that is zero but for rounding": (
        "normed convolution", _change_gradient(1, lambda tensor: tensor + 0.05)),
    "all gradients are halves": ("deep net", lambda x, *ws: (deep_net(x, *ws) + deep_net(x, *ws).detach()) / 2),
    # Behind step functions.
    "another threshold": ("sine or cosine", lambda x: torch.where(x > 0.45, x.sin(), x.cos())),
    "the other branch": ("sine or cosine", lambda x: torch.where(x > 0.5, x.cos(), x.sin())),
    "the branches of half precision, a tenth more": ("sine or cosine of float16", _scale(1.1)),
    "one element of a masked result": ("sine or cosine", _change_element(77, lambda element: element * 1.01)),
    "no rounding": ("fake quantize", lambda x: (x * 0.37 + 0.11) * 7.3 / 7.3),
    "down instead of to the nearest": ("fake quantize", lambda x: ((x * 0.37 + 0.11) * 7.3).floor() / 7.3 + 0 * x),
    "no gradient through the rounding": ("fake quantize", lambda x: ((x * 0.37 + 0.11) * 7.3).round() / 7.3 + 0 * x),
    "or equal": ("one or three", lambda x: (x.round() >= 0).float() * 2 + 1),
    "down to integers": ("int8", lambda x: (x * 50.3).floor().clamp(-128, 127).to(torch.int8)),
    "integers that wrap around": ("int8", lambda x: (x * 50.3).round().to(torch.int32).to(torch.int8)),
    "one more everywhere": ("int8 of bfloat16", _change_outputs(lambda tensor: tensor + 1)),
    "one integer of many": ("int8", _change_element(1234, lambda element: element ^ 4)),
    "the smallest instead of the largest": (
        "max, topk, argsort", lambda x: (*(x * 1.5).min(-1), *(x * 1.5).topk(3), (x * 1.5).argsort(-1))),
    "the order turned around": (
        "max, topk, argsort",
        lambda x: (*(x * 1.5).max(-1), *(x * 1.5).topk(3), (x * 1.5).argsort(-1, descending=True))),
    "an index of the largest in one row": (
        "max, topk, argsort", _change_output(1, lambda tensor: tensor + (torch.arange(64) == 9))),
    "the next index of a window": ("max pool of a sine", _change_output(1, lambda tensor: tensor + 1)),
    "one index of a window": ("max pool of a sine", _change_output(1, lambda tensor: tensor + (torch.arange(8) == 3))),
    "a slope below zero": (
        "relu net", lambda x, *ws: functools.reduce(lambda y, w: F.leaky_relu(y @ w, 0.01), ws, x)),
    "a layer without its step": ("relu net", lambda x, *ws: relu_net(x, *ws[:-1]) @ ws[-1]),
    # In float8.
    "float8, a step more": ("float8", _step_float8(1)),
    "float8, a step more in one element": ("float8", _step_float8(1, 1001)),
    "float8, two steps more in some": ("float8, finite", _step_float8(2, slice(0, 4096, 64))),
    "float8, another sign": ("float8", _scale(-1.0)),
    "float8, a tenth more": ("float8", lambda x: (x * 2.2).to(torch.float8_e5m2)),
    "another kind of float8": ("float8", lambda x: (x * 2).to(torch.float8_e4m3fn)),
    "float8, cut off": (
        "float8, finite", lambda x: (x.float() * 0.37 + 0.11).mul(0.93).to(torch.float8_e4m3fn)),
    "float8, a factor of the product": ("float8, product", lambda x, w: float8_product(x * 1.25, w)),
    "float8, the product transposed": ("float8, product", lambda x, w: float8_product(x, w.t())),
    "float8, not a number": ("float8", _step_float8(0x7F, 3)),
}  # fmt: skip


def _scale_element_100(y: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.cat([y[:100], y[100:101] * factor, y[101:]])


WRONG |= {
    "one element of many, quantized": ("quantized", lambda x: _scale_element_100(fused_fake_quantize(x), 2)),
    "not a number, quantized": ("quantized", lambda x: _scale_element_100(fused_fake_quantize(x), torch.nan)),
    "a step more everywhere": ("quantized", lambda x: fused_fake_quantize(x) + 1 / 7.3),
    "a quarter more": ("quantized", lambda x: fused_fake_quantize(x) * 1.25),
    "no quantization": ("quantized", lambda x: (x.float() * 0.37 + 0.11).bfloat16()),
    "floor for round": ("quantized", lambda x: (((x.float() * 0.37 + 0.11) * 7.3).floor() / 7.3).bfloat16()),
    "noise behind the step": (
        "quantized", lambda x: fused_fake_quantize(x) * (1 + 0.3 * torch.randn(x.shape)).bfloat16()),
    "bfloat16 product, a quarter": ("bfloat16 product", lambda a, b: bfloat16_product(a, b) + 0.25),
    "bfloat16 product, few, a quarter": ("bfloat16 product, few", lambda a, b: bfloat16_product(a, b) + 0.25),
    **{f"another index where none is near, {name}": (
           f"index, {name}", _change_outputs(lambda t: t + torch.tensor([0, 1])))
       for name in INDICES},
    "an index of an argument, which was not rounded": (
        "index of an argument", _change_outputs(lambda tensor: tensor - torch.tensor([1, 0]))),
}  # fmt: skip

_UNEVEN = torch.linspace(1, 1.01, 256)[:, None]
WRONG_BY_LITTLE: dict[str, tuple[str, Variant]] = {
    "equal terms, a thousandth more": ("equal terms", lambda x: _sum_one_by_one(x) * 1.001),
    "norms, a factor": ("norms", lambda x, *ws: norms(x, *ws, scale=1.01)),
    "norms, a layer less": ("norms", lambda x, *ws: norms(x, *ws[:-1])),
    "norms, no gradient of the input": ("norms", lambda x, *ws: norms(x.detach(), *ws) + 0 * x.sum()),
    "norms, a weight off by a hundredth": ("norms", lambda x, *ws: norms(x, *(w * _UNEVEN for w in ws[:3]), *ws[3:])),
    "norms, noise": ("norms", lambda x, *ws: norms(x, *ws) * (1 + 1e-2 * torch.randn(256))),
    "norms, another sign in every tenth column": (
        "norms", lambda x, *ws: norms(x, *ws) * (1 - 2.0 * (torch.arange(256) % 10 == 0))),
    **{f"residual of {name}, {what}": (f"residual of {name}", wrong)
       for name in ("bfloat16", "float16")
       for what, wrong in {
           "a factor in one layer": lambda x, *ws: residual(x, *ws, scale=1.1),
           "a layer less": lambda x, *ws: residual(x, *ws[:-1]) + 0 * ws[-1].sum(),
           "noise in one layer": lambda x, *ws: residual(x, *ws, noise=0.2),
           "no gradient of the input": lambda x, *ws: residual(x.detach(), *ws) + 0 * x.sum(),
       }.items()},
}  # fmt: skip
"""Variants that are wrong by less than the bound, which does not know how far rounding may move them."""


def _if_compiling(then: Any, otherwise: Any) -> Any:
    return then if torch.compiler.is_compiling() else otherwise


WRONG_TRACES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "two thirds": (lambda x: x.sin() * _if_compiling(2, 3), (64, 64)),
    "two thirds behind a step": (lambda x: torch.where(x > 0.5, x.sin(), x.cos()) * _if_compiling(2, 3), (64, 64)),
    "zeros behind a step": (lambda x: F.relu(x * 1.1) * _if_compiling(0, 1), (64, 64)),
    "half of it, rounded": (lambda x: (x * 7.7).round() * _if_compiling(0.5, 1.0), (64, 64)),
    "down instead of to the nearest": (lambda x: _if_compiling(torch.floor, torch.round)(x * 3.3) / 3.3, (64, 64)),
    "another threshold": (lambda x: torch.where(x * 1.1 > _if_compiling(0.4, 0.5), x.sin(), x.cos()), (64, 64)),
    "another index": (lambda x: _if_compiling(torch.argmin, torch.argmax)(x * 1.5, -1), (64, 32)),
    "integers, one more": (lambda x: (x * 50.3).to(torch.int32) + _if_compiling(1, 0), (64, 64)),
    "float8, halves": (lambda x: (x * _if_compiling(1, 2)).to(torch.float8_e5m2), (64, 64)),
    "float8, zeros": (lambda x: (x * _if_compiling(0, 2)).to(torch.float8_e4m3fn), (64, 64)),
    "a step in place of a slope": (lambda x: _if_compiling(F.relu, F.gelu)(x * 2), (64, 64)),
    "a gradient behind a step": (lambda x, w: F.relu(x @ _if_compiling(w.detach(), w)) + 0 * w.sum(), (64, 64, 64)),
}
"""Functions whose traces compute something else; an argument's shape is two neighbours of the sizes."""


# ------------------------------------------------------------------------------------------------------------- right


def _compute_in(dtype: torch.dtype, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes in another dtype and rounds once."""

    def run(*arguments: torch.Tensor) -> Any:
        results, back = function(*(argument.to(dtype) for argument in arguments)), arguments[0].dtype
        return results.to(back) if isinstance(results, torch.Tensor) else tuple(one.to(back) for one in results)

    return run


def _product_in_pieces(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    parts = [one @ other for one, other in zip(a.chunk(8, 1), b.chunk(8, 0), strict=True)]
    return functools.reduce(torch.add, parts)


def _permuted_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    order = torch.randperm(a.shape[1])
    return a[:, order] @ b[order]


def _naive_attention(x: torch.Tensor, q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    scores = torch.exp((x @ q) @ (x @ k + bias).transpose(-1, -2) / 8.0)
    return (scores / scores.sum(-1, keepdim=True)) @ x


def _reordered_attention(x: torch.Tensor, q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    scores = torch.einsum("bik,bjk->bij", x @ q * 0.125, torch.einsum("bjc,ck->bjk", x, k) + bias)
    return torch.einsum("bij,bjc->bic", F.log_softmax(scores, -1).exp(), x)


def _norm_by_moments(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    mean, square = x.mean(-1, keepdim=True), x.square().mean(-1, keepdim=True)
    y = (x - mean) / (square - mean * mean + 1e-5).sqrt() * weight
    return 0.5 * y * (1 + torch.erf(y * 2**-0.5))


def _norm_in_steps(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    centred = x - x.sum(-1, keepdim=True) / x.shape[-1]
    return F.gelu(centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5) * weight)


def _normed_convolution_by_products(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Compute the sums in another order, from the last position to the first."""
    places = F.unfold(x.flip(-1, -2), weight.shape[-1])
    sums = weight.flip(-1, -2).flatten(1) @ places + bias[:, None]
    sums = sums.unflatten(-1, (x.shape[-2] - 2, x.shape[-1] - 2)).flip(-1, -2)
    centre, spread = sums.mean((2, 3), keepdim=True), sums.var((2, 3), keepdim=True, correction=0)
    normed: torch.Tensor = (sums - centre) * torch.rsqrt(spread + 1e-5)
    return normed.tanh()


def _deep_by_products(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        x = torch.tanh(torch.einsum("bi,oi->bo", x, weight) + bias) + x
    return x


RIGHT: dict[str, tuple[str, Variant]] = {
    **{f"{name}, again": (name, program.function) for name, program in PROGRAMS.items() if name != "argmax and exp"},
    **{f"{name}, in float64": (name, _compute_in(torch.float64, PROGRAMS[name].function))
       for name in ("wave", "product", "deep net", "sum and mean square", "attention", "norm and gelu")},
    **{f"{name}, rounded once": (name, _compute_in(torch.float32, PROGRAMS[name].function))
       for name in ("wave of float16", "wave of bfloat16", "product of bfloat16")},
    "wave, by cosines": ("wave", lambda x, y: torch.cos(x - torch.pi / 2) * y + 1.5),
    "product, in pieces": ("product", _product_in_pieces),
    "product of bfloat16, in another order": ("product of bfloat16", _permuted_product),
    "product, in another order": ("product", _permuted_product),
    "attention, naive softmax": ("attention", _naive_attention),
    "attention, in one kernel": (
        "attention", lambda x, q, k, b: F.scaled_dot_product_attention(x @ q, x @ k + b, x, scale=0.125)),
    "attention, reordered": ("attention", _reordered_attention),
    "norm and gelu, by moments": ("norm and gelu", _norm_by_moments),
    "norm and gelu, in steps": ("norm and gelu", _norm_in_steps),
    "sums in rows": (
        "sum and mean square", lambda x: (x.view(-1, 1000).sum(1).sum(), x.view(-1, 1000).square().mean(1).mean())),
    "normed convolution, by products": ("normed convolution", _normed_convolution_by_products),
    "deep net, by products": ("deep net", _deep_by_products),
}  # fmt: skip


# ------------------------------------------------------------------------------------------------- rounded differently


def _sum_one_by_one(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros_like(x[0])
    for row in x:
        total = total + row
    return total


def _bfloat16_product_rounded_later(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.bfloat16().sin() @ b.bfloat16()).float().cos().bfloat16().float()


def _expanded_logistic(x: torch.Tensor) -> torch.Tensor:
    for _ in range(40):
        x = 3.9 * x - 3.9 * x * x
    return x


def _norms_of_split_products(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    for w in weights:
        y = x[:, :100] @ w[:100] + x[:, 100:] @ w[100:]
        x = ((y - y.mean(0)) / (y.var(0) + 1e-5).sqrt()).relu()
    return x


ROUNDED_DIFFERENTLY: dict[str, tuple[str, Variant, str]] = {
    "a result rounded to fewer bits on the way": ("bfloat16 product", _bfloat16_product_rounded_later, "ok"),
    "a few results rounded to fewer bits on the way": ("bfloat16 product, few", _bfloat16_product_rounded_later, "ok"),
    "equal terms, one after the other": ("equal terms", _sum_one_by_one, "ok"),
    "an ulp before a step": ("quantized", fused_fake_quantize, "not comparable"),
    "sums of many steps, and their gradients": (
        "quantized, product", lambda x, w: fused_fake_quantize(x) @ w, "not comparable"),
    **{f"another index where two are near, {name}": (
           f"index, {name}", _change_outputs(lambda tensor: tensor * torch.tensor([0, 1])), "not comparable")
       for name in INDICES},
    "a large index, which is never rounded": (
        "index, far away", _change_outputs(lambda tensor: tensor - 3), "not comparable"),
    **{f"left unrounded before a cast, {name}": (
           f"cast, {name}", lambda x, function=function: function(x.float()), "not comparable")
       for name, function in CASTS.items()},
    "norms, in two sums": ("norms", _norms_of_split_products, "not comparable"),
    **{f"residual of {name}, in float32": (
           f"residual of {name}",
           lambda x, *ws: residual(x.float(), *(w.float() for w in ws)).to(x.dtype),
           "not comparable")
       for name in ("bfloat16", "float16")},
    # Ops without steps amplify rounding: a check cannot tell these from zeros.
    "logistic, expanded": ("logistic", _expanded_logistic, "chaotic"),
    "logistic, half": ("logistic", lambda x: logistic(x) * 0.5, "chaotic"),
}  # fmt: skip
"""Variants that the bound cannot separate from right ones, with their verdict."""
