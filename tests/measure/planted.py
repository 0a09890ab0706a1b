"""Variants planted to be judged: thirty that are wrong, thirty that are right in another way than eager.

A variant is a function that takes the call's arguments, or one that changes the values that eager gave.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

from regional_explorer.measure.accuracy.values import Values

MILLION = 1_000_000
LAYERS = 25
"""Of the deep call; each has a weight and a bias."""


@dataclass(frozen=True)
class Program:
    """A call: its function and arguments, and how many terms its largest reduction sums."""

    function: Callable[..., Any]
    arguments: Callable[[], Sequence[torch.Tensor]]
    terms: int = 1


def _normal(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(dtype).requires_grad_(grad)


def wave(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.sin() * y + 1.5


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def deep(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        x = x + torch.tanh(F.linear(x, weight, bias))
    return x


def attention(x: torch.Tensor, q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    scores = (x @ q) @ (x @ k + bias).transpose(-1, -2) / 8.0
    return F.softmax(scores, -1) @ x


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.layer_norm(x, x.shape[-1:], weight))


def total(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.sum(), x.square().mean()


def pick(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return x.argmax(-1), x > 0, x.exp()


PROGRAMS = {
    "wave": Program(wave, lambda: (_normal(MILLION), _normal(MILLION))),
    "product": Program(product, lambda: (_normal(256, 512), _normal(512, 256)), 512),
    "deep": Program(
        deep,
        lambda: (
            _normal(16, 32),
            *(p for _ in range(LAYERS) for p in (_weight(32, 32), _normal(32, grad=True))),
        ),
        32,
    ),
    "attention": Program(
        attention, lambda: (_normal(4, 32, 64), _weight(64, 64), _weight(64, 64), _normal(64, grad=True)), 128
    ),
    "normed": Program(normed, lambda: (_normal(64, 256), _normal(256)), 256),
    "total": Program(total, lambda: (_normal(MILLION),), MILLION),
    "pick": Program(pick, lambda: (_normal(64, 32),)),
    "wave16": Program(wave, lambda: (_normal(4096, dtype=torch.float16), _normal(4096, dtype=torch.float16))),
    "waveb": Program(wave, lambda: (_normal(4096, dtype=torch.bfloat16), _normal(4096, dtype=torch.bfloat16))),
    "productb": Program(
        product, lambda: (_normal(64, 512, dtype=torch.bfloat16), _normal(512, 64, dtype=torch.bfloat16)), 512
    ),
    "wide": Program(product, lambda: (_normal(64, 64, dtype=torch.float64), _normal(64, 64, dtype=torch.float64)), 64),
}


def _weight(*shape: int) -> torch.Tensor:
    weight: torch.Tensor = _normal(*shape) / shape[-1] ** 0.5
    return weight.requires_grad_(True)


# ------------------------------------------------------------------------------------------------- changes of values


@dataclass(frozen=True)
class Changed:
    """A change of the values that eager gave."""

    change: Callable[[Values], Values]


def _outputs(change: Callable[[torch.Tensor], torch.Tensor]) -> Changed:
    return Changed(
        lambda values: replace(values, outputs=tuple((name, change(tensor.clone())) for name, tensor in values.outputs))
    )


def _gradient(index: int, change: Callable[[torch.Tensor], torch.Tensor | None]) -> Changed:
    def changed(values: Values) -> Values:
        gradients = list(values.gradients)
        name, tensor = gradients[index]
        assert tensor is not None
        gradients[index] = (name, change(tensor.clone()))
        return replace(values, gradients=tuple(gradients))

    return Changed(changed)


def _noise(level: float) -> Changed:
    return _outputs(lambda tensor: tensor * (1 + level * torch.randn(tensor.shape)).to(tensor.dtype))


def _at(index: int, change: Callable[[torch.Tensor], torch.Tensor]) -> Changed:
    def changed(tensor: torch.Tensor) -> torch.Tensor:
        flat = tensor.view(-1)
        flat[index] = change(flat[index])
        return tensor

    return _outputs(changed)


# ------------------------------------------------------------------------------------------------------------- wrong


def _deep_without(layer: int) -> Callable[..., torch.Tensor]:
    def missing(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        kept = list(weights)
        # The bias counts, but its gradient lacks the term of the first row.
        bias = kept[2 * layer + 1]
        rows = bias.expand(len(x), -1)
        kept[2 * layer + 1] = torch.cat([rows[:1].detach(), rows[1:]])
        for weight, row in zip(kept[::2], kept[1::2], strict=True):
            x = x + torch.tanh(F.linear(x, weight) + row)
        return x

    return missing


WRONG: dict[str, tuple[str, Callable[..., Any] | Changed]] = {
    **{f"wave, noise {level:g}": ("wave", _noise(level)) for level in (1e-1, 1e-2, 1e-3, 1e-4)},
    **{f"product, noise {level:g}": ("product", _noise(level)) for level in (1e-1, 1e-2, 1e-3)},
    **{f"deep, noise {level:g}": ("deep", _noise(level)) for level in (1e-2, 1e-3)},
    "wave of half precision, noise 0.1": ("wave16", _noise(1e-1)),
    "product of bfloat16, noise 3": ("productb", _noise(3.0)),
    "wrong constant": ("wave", lambda x, y: x.sin() * y + 1.501),
    "wrong constant of half precision": ("wave16", lambda x, y: x.sin() * y + 1.6),
    "wrong epsilon": ("normed", lambda x, w: F.gelu(F.layer_norm(x, x.shape[-1:], w, eps=3e-2))),
    "other gelu": ("normed", lambda x, w: F.gelu(F.layer_norm(x, x.shape[-1:], w) * 1.01)),
    "wrong scale": ("attention", lambda x, q, k, b: F.softmax((x @ q) @ (x @ k + b).mT / 8.1, -1) @ x),
    "swapped arguments": ("wave", lambda x, y: wave(y, x)),
    "swapped weights": ("attention", lambda x, q, k, b: attention(x, k, q, b)),
    "a missing term in one gradient of fifty": ("deep", _deep_without(LAYERS // 2)),
    "one gradient of fifty is zero": ("deep", _gradient(7, lambda tensor: tensor * 0)),
    "one gradient of fifty is missing": ("deep", _gradient(7, lambda _tensor: None)),
    "one gradient of fifty is negated": ("deep", _gradient(33, lambda tensor: -tensor)),
    "wrong dtype": ("product", _outputs(lambda tensor: tensor.to(torch.bfloat16))),
    "wider dtype": ("product", _outputs(lambda tensor: tensor.double())),
    "not a number in one element": ("wave", _at(4321, lambda element: element * float("nan"))),
    "infinite in one element": ("waveb", _at(17, lambda element: element / 0)),
    "one element of a million off by a tenth": ("wave", _at(654_321, lambda element: element * 1.1)),
    "transposed": ("product", _outputs(lambda tensor: tensor.t())),
    "a sum without its last tenth": ("total", lambda x: (x[: -len(x) // 10].sum(), x.square().mean())),
    "another index": ("pick", _at(5, lambda element: torch.logical_not(element) if element.dtype is torch.bool
                                  else element + 1)),
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- right


def _in(dtype: torch.dtype) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a function that computes in another dtype and rounds once."""

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*arguments: torch.Tensor) -> Any:
            results = function(*(argument.to(dtype) for argument in arguments))
            back = arguments[0].dtype
            if isinstance(results, torch.Tensor):
                return results.to(back)
            return tuple(result.to(back) if result.is_floating_point() else result for result in results)

        return run

    return wrapped


def _in_pieces(count: int) -> Callable[..., torch.Tensor]:
    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        parts = [one @ other for one, other in zip(a.chunk(count, 1), b.chunk(count, 0), strict=True)]
        return functools.reduce(torch.add, parts)

    return run


def _permuted(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    order = torch.randperm(a.shape[1])
    return a[:, order] @ b[order]


def _naive_attention(x: torch.Tensor, q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    scores = torch.exp((x @ q) @ (x @ k + bias).transpose(-1, -2) / 8.0)
    return (scores / scores.sum(-1, keepdim=True)) @ x


def _other_attention(x: torch.Tensor, q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x @ q, x @ k + bias, x, scale=0.125)


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


def _sum_in_rows(width: int) -> Callable[..., Any]:
    return lambda x: (x.view(-1, width).sum(1).sum(), x.view(-1, width).square().mean(1).mean())


def _deep_by_products(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        x = torch.tanh(torch.einsum("bi,oi->bo", x, weight) + bias) + x
    return x


def _deep_by_exponents(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        x = x + (2 * torch.sigmoid(2 * (bias + x @ weight.t())) - 1)
    return x


DOUBLE, SINGLE = _in(torch.float64), _in(torch.float32)

RIGHT: dict[str, tuple[str, Callable[..., Any] | Changed]] = {
    **{f"{name}, again": (name, program.function) for name, program in PROGRAMS.items() if name != "pick"},
    **{f"{name}, in float64": (name, DOUBLE(PROGRAMS[name].function)) for name in ("wave", "product", "deep", "total")},
    "attention, in float64": ("attention", DOUBLE(attention)),
    "normed, in float64": ("normed", DOUBLE(normed)),
    **{f"{name}, rounded once": (name, SINGLE(PROGRAMS[name].function)) for name in ("wave16", "waveb", "productb")},
    "wave, by cosines": ("wave", lambda x, y: torch.cos(x - torch.pi / 2) * y + 1.5),
    "product, in pieces": ("product", _in_pieces(8)),
    "product of bfloat16, in another order": ("productb", _permuted),
    "product, in another order": ("product", _permuted),
    "attention, naive softmax": ("attention", _naive_attention),
    "attention, in one kernel": ("attention", _other_attention),
    "attention, reordered": ("attention", _reordered_attention),
    "normed, by moments": ("normed", _norm_by_moments),
    "normed, in steps": ("normed", _norm_in_steps),
    "sums in rows": ("total", _sum_in_rows(1000)),
    "deep, by products": ("deep", _deep_by_products),
}  # fmt: skip
