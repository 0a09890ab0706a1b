"""The plans that ``ex.tune`` finds, beside the better of eager and plain ``torch.compile``, timed again."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

import regional_explorer as rx
from benchmarks.programs import DiffusionTransformer
from benchmarks.row import Row, training_steps
from benchmarks.traced import MODELS as TRACED
from benchmarks.traced import PLAIN, Make, made_anew
from regional_explorer.record.tuning import TORCH_COMPILE

SEARCH_S = 120.0
"""The budget of each search."""


class Denoising(nn.Module):
    """A step of a diffusion transformer at fixed times, with fixed labels."""

    def __init__(self) -> None:
        super().__init__()
        self.model = DiffusionTransformer(128)
        self.register_buffer("time", torch.rand(4) * 1000)
        self.register_buffer("label", torch.arange(4))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return a scalar loss."""
        return self.model(image, self.time, self.label)


MODELS: Mapping[str, Make] = {**TRACED, "dit": lambda: (Denoising(), torch.randn(4, 3, 32, 32))}


def tuning_rows(models: Sequence[str] = tuple(MODELS), search_s: float = SEARCH_S) -> Iterator[Row]:
    """Search for the plan of each model, then take training steps with it in rounds of their own."""
    ratios = []
    for name in models:
        model, x, leaves = made_anew(MODELS[name])
        with rx.explore(model, (x,)) as ex:
            found = ex.tune(search_s, apply=True)
            functions: dict[str, Callable[..., Any]] = {"eager": model, PLAIN: torch.compile(model)}
            if found.plan is not None:
                ex.compile()
                functions[found.record.answer] = ex.compiled
            steps = training_steps(functions, x, leaves, budget_s=30.0)
        best = min(("eager", PLAIN), key=lambda one: statistics.median(steps[one]))
        answer = PLAIN if found.record.answer == TORCH_COMPILE else found.record.answer
        row = Row(f"a step of {name} by the plan found: {answer}", best, steps[answer], steps[best], 1.01)
        ratios.append(row.ratio)
        yield row
    if len(ratios) > 1:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        yield Row(f"the geometric mean of these {len(ratios)}", "the better reference", [mean], [1.0], 0.88, unit="×")
