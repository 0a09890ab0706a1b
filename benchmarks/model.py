"""The program that the engine is timed on: a chain of residual blocks, each a region of its own or all of one name."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import regional_explorer as rx

WIDTH = 64


class Block(nn.Module):
    """A residual MLP block marked as a region; ``steps`` sets how many ops it has beyond the two products."""

    def __init__(self, region: str, config: dict[str, object], steps: int) -> None:
        super().__init__()
        self.region = region
        self.config = config
        self.steps = steps
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` plus what the region computes from it."""
        with rx.region(self.region, **self.config):
            y = F.gelu(self.up(x))
            for step in range(self.steps):
                y = torch.sin(y) * (step + 1.5)
            y = self.down(y)
        return x + y


class Chain(nn.Module):
    """``regions`` blocks, all different (``equal=False``), or ``regions`` equal blocks of one name."""

    def __init__(self, regions: int, *, equal: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            Block("block" if equal else f"r{index:02}", {}, 1 if equal else index + 1) for index in range(regions)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a scalar loss."""
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


def inputs(rows: int = 32) -> torch.Tensor:
    """Return an input that needs a gradient, so that all blocks have equal backwards."""
    return torch.randn(rows, WIDTH, requires_grad=True)
