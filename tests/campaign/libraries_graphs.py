"""``torch_geometric``: convolutions in a small net of two layers, and the library's basic models."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.campaign.library_case import Build, Built

NODES, EDGES, WIDTH = 40, 120, 16

BASIC_MODELS = ("GCN", "GraphSAGE", "GIN", "GAT", "EdgeCNN", "PMLP", "GraphUNet", "DeepGCNLayer", "LightGCN")


class GraphNet(nn.Module):
    """Two convolutions with norms between."""

    def __init__(self, convolution: type[nn.Module]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(_made(convolution) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Return the classes of the nodes."""
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x, edge_index))) + x
        classes: torch.Tensor = self.head(x)
        return classes


def convolutions_and_models(draw: random.Random) -> Iterator[tuple[str, Build]]:
    """Yield convolutions and models in random order; what takes other arguments is passed over by the caller."""
    from torch_geometric.nn import conv, models

    names = [*conv.__all__, *(name for name in models.__all__ if name in BASIC_MODELS)]
    draw.shuffle(names)
    for name in names:
        found = getattr(models, name, None) if name in BASIC_MODELS else getattr(conv, name)
        yield name, _graph_model(found, whole=name in BASIC_MODELS)


def _graph_model(found: Any, *, whole: bool) -> Build:
    def build(_training: bool) -> Built:
        model = found(WIDTH, WIDTH, 2, 4) if whole else GraphNet(found)
        return Built(model, (torch.randn(NODES, WIDTH), torch.randint(0, NODES, (2, EDGES))))

    return build


def _made(convolution: Any) -> Any:
    """Return a convolution from 16 to 16 channels: most take two widths, some take one, or a net."""
    mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    wide = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU())
    for arguments in ((WIDTH, WIDTH), (WIDTH,), (WIDTH, WIDTH, 2), (mlp,), (wide,)):
        try:
            made = convolution(*arguments)
            with torch.no_grad():
                out = made(torch.randn(NODES, WIDTH), torch.randint(0, NODES, (2, EDGES)))
        except Exception:  # noqa: BLE001, S112 - whatever it raises, these are not its arguments
            continue
        if isinstance(out, torch.Tensor) and out.shape == (NODES, WIDTH):
            return made
    raise TypeError(f"{convolution.__name__} takes other arguments")
