"""Small models of several kinds, for training steps of a few milliseconds."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Gated(nn.Module):
    """Elementwise ops alone, most of them transcendental."""

    def __init__(self, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.depth = depth
        self.a, self.b = nn.Parameter(torch.randn(width)), nn.Parameter(torch.randn(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a scalar loss."""
        for _ in range(self.depth):
            x = x + torch.tanh(x * self.a) * torch.sigmoid(x * self.b) - F.softplus(x) * 0.1
        return x.square().mean()


class Norms(nn.Module):
    """Layers with normed inputs."""

    def __init__(self, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width)) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a scalar loss."""
        for layer in self.layers:
            x = x + F.gelu(layer(x))
        return x.square().mean()


class RMSNorm(nn.Module):
    """A norm as models with rotary positions write it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x``, normed."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale


class LlamaBlock(nn.Module):
    """Attention with rotary positions, and a gated MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, RMSNorm(width), RMSNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Return ``x`` with the outputs of both added."""
        b, t, d = x.shape

        def rotated(x: torch.Tensor) -> torch.Tensor:
            a, b = x.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        y = self.norm1(x)
        q, k, v = (part(y).view(b, t, self.heads, -1).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """A decoder built like Llama."""

    def __init__(self, width: int = 32, words: int = 50, heads: int = 2, depth: int = 1, length: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads) for _ in range(depth))
        angles = torch.outer(torch.arange(float(length)), 1 / 100 ** torch.arange(0, 1, 2 * heads / width))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return a scalar loss."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return x.square().mean()


class Residual(nn.Module):
    """Convolutions with a residual, as ResNet has them."""

    def __init__(self, channels: int = 8, depth: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(2, channels), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1))
            for _ in range(depth)
        )
        self.head = nn.Linear(channels, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a scalar loss."""
        x = self.conv(x)
        for layer in self.layers:
            x = F.relu(x + layer(x))
        return self.head(x.mean((2, 3))).logsumexp(-1).mean()


class Experts(nn.Module):
    """A mixture of experts in which all experts compute."""

    def __init__(self, width: int = 16, experts: int = 4) -> None:
        super().__init__()
        self.gate, self.norm = nn.Linear(width, experts), nn.LayerNorm(width)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width))
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a scalar loss."""
        y = self.norm(x)
        probabilities = self.gate(y).softmax(-1)
        weights, chosen = probabilities.topk(2, -1)
        mixed = torch.zeros_like(probabilities).scatter(-1, chosen, weights)
        z = torch.einsum("etf,efd->etd", F.silu(torch.einsum("td,edf->etf", y, self.up)), self.down)
        return (x + (mixed.t().unsqueeze(-1) * z).sum(0)).square().mean()


class Norm(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.q_norm = Norm()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = (self.q_norm(self.q(x)) @ self.k(x).transpose(-1, -2)).softmax(-1)
        mixed: torch.Tensor = self.o(weights @ self.v(x))
        return mixed


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.attn, self.mlp = Norm(), Attention(width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm(x))
        y: torch.Tensor = x + self.mlp(x)
        return y


class Nested(nn.Module):
    """Most ops of a layer are in one module of it."""

    def __init__(self, width: int = 8, layers: int = 4) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.layers = nn.ModuleList(Layer(width) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.model.get_submodule("layers").children():
            x = layer(x)
        return x.relu()
