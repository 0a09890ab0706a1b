"""Small programs that more than one test captures."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.traceback import annotate

import regional_explorer as rx
from regional_explorer.record.plan import SelectorKind


def textbook(x, y):
    a = torch.sin(x)
    with rx.region("middle"):
        b = a * y + 1
    return torch.sin(b)


def two_regions(x):
    with rx.region("a"):
        y = x.sin() * 2
    y = y.exp()
    with rx.region("b"):
        return y.cos() + 1


def neighbours(x, y):
    """Two regions of different configs, the second fed directly by the first."""
    with rx.region("first", max_fusion_size=1):
        a = torch.sin(x) * y
    with rx.region("second", max_fusion_size=2):
        b = torch.cos(a) + y
    return b.exp()


def dropout_between_blocks(x, y):
    """A region whose random numbers would change order if its two blocks were merged around the dropout between."""
    with rx.region("drops"):
        a = F.dropout(x * y + 1, 0.5)
    a = F.dropout(a, 0.5)
    with rx.region("drops"):
        b = F.dropout(a, 0.5).cos()
    return b.sin()


def op_carved_in_source(x):
    """A region whose source carves an op out of it."""
    with rx.region("r"):
        a = x.sin()
        with annotate({"fallback_to_eager": True}):
            a = a.exp()
        return a.cos()


def break_between_regions(x, y):
    with rx.region("before"):
        a = x * y + 1
    print("a graph break")
    with rx.region("after"):
        b = a.cos() * y
    return b


def plan_of(**patterns):
    """Return a plan with a region for each pattern of modules."""
    selectors = {name: (rx.Selector(SelectorKind.MODULES, (pattern,)),) for name, pattern in patterns.items()}
    return rx.Plan(tuple(rx.Region(name, selector) for name, selector in selectors.items()))


def pair(*, grad: bool = True, size: int = 8):
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randn(size, size, generator=generator).requires_grad_(grad) for _ in range(2))


class Layer(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Stack(nn.Module):
    """Equal layers without marks in the source."""

    def __init__(self, depth: int = 3, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


def twelve_regions(x):
    """Twelve regions that share no structure, so that each needs an artifact of its own."""
    for index in range(12):
        with rx.region(f"r{index:02}"):
            for _ in range(index % 4 + 1):
                x = torch.sin(x * (index + 1.5))
            x = x + math.pi * index
        x = x.exp().log1p()
    return x
