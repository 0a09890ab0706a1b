"""A training step of a small GPT, as a user would write it in a notebook."""

import torch
import torch.nn.functional as F
from torch import nn

import regional_explorer as rx


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, C = x.shape
        with rx.region("norm"):
            y = self.first(x)
        with rx.region("attention"):
            q, k, v = self.query_key_value(y).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(-1, -2) / (C // self.heads) ** 0.5
            debounce = torch.ones(T, T, dtype=torch.bool).triu(1)
            weights = scores.masked_fill(debounce, float("-inf")).softmax(-1)
            x = x + self.out((weights @ v).transpose(1, 2).reshape(B, T, C))
        with rx.region("norm"):
            y = self.second(x)
        with rx.region("mlp", max_fusion_size=16):
            added: torch.Tensor = self.down(F.gelu(self.up(y)))
            return x + added


class GPT(nn.Module):
    def __init__(self, words: int = 512, width: int = 256, heads: int = 4, blocks: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        with rx.region("norm"):
            x = self.norm(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())
