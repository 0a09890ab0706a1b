"""The calls of the golden sessions: small, and each with another part of what a session can contain."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import regional_explorer as rx
from regional_explorer.record.session import Session

STEPS = ("eager", "aot_eager", "regional")


def textbook() -> Session:
    """Regions marked in the source, inference, the four variants."""
    weight, bias = torch.randn(64, 64), torch.randn(64)

    def score(x: torch.Tensor) -> torch.Tensor:
        hidden = x @ weight
        with rx.region("gate", max_fusion_size=8):
            gated = F.gelu(hidden + bias) * torch.sigmoid(hidden)
        with rx.region("norm"):
            normed = (gated - gated.mean(-1, keepdim=True)) / (gated.var(-1, keepdim=True) + 1e-5).sqrt()
        return normed.sum(-1)

    ex = rx.explore(score, (torch.randn(32, 64),))
    ex.benchmark((*STEPS, "full"), budget_s=1)
    return ex.session


class Attention(nn.Module):
    """Causal self-attention of two heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query_key_value, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the attention output of each position."""
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.query_key_value(x).chunk(3, -1))
        read: torch.Tensor = self.out(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)
        )
        return read


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention, self.norm1, self.norm2 = Attention(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the outputs of attention and MLP."""
        x = x + self.attention(self.norm1(x))
        added: torch.Tensor = x + self.mlp(self.norm2(x))
        return added


class Transformer(nn.Module):
    """A small causal transformer."""

    def __init__(self, layers: int = 2, width: int = 32) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, width), nn.Linear(width, 50)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of the next tokens."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


def training() -> Session:
    """A step of a transformer: modules, a config for the backward, profile, memory, code, kernel times."""
    model, tokens = Transformer(), torch.randint(50, (4, 17))
    ex = rx.explore(model, (tokens[:, :-1], tokens[:, 1:]))
    ex.mark("mlp", modules="blocks.*.mlp")
    ex.mark("attention", modules="blocks.*.attention")
    ex.configure("mlp", {"max_fusion_size": 16})
    ex.configure("attention", {"epilogue_fusion": False}, direction="backward")
    ex.profile()
    ex.benchmark(budget_s=2)
    ex.code("mlp")
    ex.kernel_times("mlp")
    return ex.session


def troubled() -> Session:
    """Causes of partitions and configs that differ from the requested ones."""

    def helper(x: torch.Tensor) -> torch.Tensor:
        return x.cos()

    def call(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with rx.region("split"):
            a = x.sin() + 1
        b = torch.linalg.svdvals(a).sum() + a
        with rx.region("split"):
            c = b * a
        print("a graph break")
        with rx.region("outer", max_fusion_size=4), rx.region("inner", max_fusion_size=8):
            d = helper(c) * y
        with rx.region("written"):
            y.mul_(2)
        with rx.region("twice", max_fusion_size=1):
            e = d.exp()
        with rx.region("twice", max_fusion_size=2):
            f = e.tanh()
        return f.sum()

    with contextlib.redirect_stdout(None):
        ex = rx.explore(call, (torch.randn(8, 8), torch.randn(8, 8)), grad=False)
        ex.mark("decomposed", ops="aten.*svd*")
        ex.mark("off", ops="aten.sum*")
        ex.disable("off")
        ex.benchmark(STEPS, budget_s=0.5)
        ex.configure("twice", {"max_fusion_size": 3})
    return ex.session


def repeated() -> Session:
    """Twelve layers of one body, a condition, dynamic sizes, and two measured plans."""
    weights = [torch.randn(16, 16) for _ in range(12)]

    @torch.compiler.nested_compile_region
    def layer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ weight) + x

    def stack(x: torch.Tensor) -> torch.Tensor:
        for weight in weights:
            x = layer(x, weight)
        turned: torch.Tensor = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
        return turned

    ex = rx.explore(stack, (torch.randn(8, 16),), dynamic=True)
    ex.mark("layers", ops="aten.relu*")
    ex.benchmark(STEPS, budget_s=0.5)
    ex.mark("ends", ops=["aten.sin*", "aten.cos*"])
    ex.benchmark(STEPS, budget_s=0.5)
    return ex.session


def numerics() -> Session:
    """Half precision, a trace that differs from eager, results that rounding decides, and the variants of the marks."""

    def call(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with rx.region("product"):
            y = (x @ w).softmax(-1)
        with rx.region("chosen"):
            best = (y * 3).round() / 3
        factor = 2 if torch.compiler.is_compiling() else 3
        return y * factor, best, y.argmax(-1)

    ex = rx.explore(call, (torch.randn(64, 64).bfloat16(), torch.randn(64, 64).bfloat16()))
    ex.benchmark((*STEPS, "upstream", "lite"), budget_s=1)
    return ex.session


def insight() -> Session:
    """Stages, code for a GPU, cache results and phases of the compiles."""
    scale = torch.randn(128)

    def call(x: torch.Tensor) -> torch.Tensor:
        normed = F.layer_norm(x, (128,), scale)
        return F.gelu(normed).softmax(-1) * scale

    ex = rx.explore(call, (torch.randn(64, 128),))
    ex.mark("norm", ops="aten.native_layer_norm*")
    ex.mark("rest", ops=["aten.gelu*", "aten._softmax*"])
    ex.benchmark(STEPS, budget_s=0.5)
    for name in ("norm", "rest"):
        ex.stages(name)
        ex.kernel_times(name)
    return ex.session


PROGRAMS: dict[str, Callable[[], Any]] = {
    program.__name__: program for program in (textbook, training, troubled, repeated, numerics, insight)
}
