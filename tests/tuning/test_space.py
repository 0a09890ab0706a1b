"""The configs that a search tries: each changes the code of some program under the running torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import regional_explorer as rx
from regional_explorer.record.configs import may_matter, speed_configs
from regional_explorer.record.diagnostic import DiagnosticCode
from regional_explorer.record.plan import FROZEN
from regional_explorer.tuning.budget import known_configs

pytestmark = [pytest.mark.slow, pytest.mark.compiles]


def normed(x: torch.Tensor) -> torch.Tensor:
    y = F.layer_norm(x, (256,))
    return (y.tanh() * x.sigmoid() + y.exp()).softmax(-1) + F.gelu(x).cumsum(0)


def batched(x: torch.Tensor) -> torch.Tensor:
    y = x.view(8, -1, 256)
    return (y @ y.transpose(1, 2)).softmax(-1) @ y


def many(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Loops over the same data in several orders, and chains that are longer than a fusion may be."""
    y = x
    for power in range(70):
        y = y * x + power
    return (y.t() + x[:256].sum(0), *(x.sin() * scale + y.sum(1, keepdim=True) for scale in range(20)), x.amax(0))


def small(x: torch.Tensor) -> torch.Tensor:
    """A loop of 2,048 elements: some settings give it to one thread."""
    return x[:8].sin() * 2


def transposed(x: torch.Tensor) -> torch.Tensor:
    """Loops over the same data in the order of rows and of columns."""
    y = x.t() * 2 + x
    return y.t().contiguous() + x.view(64, 4, 256).permute(2, 0, 1).reshape(256, 256).sum(1, keepdim=True)


def convolved(x: torch.Tensor) -> torch.Tensor:
    weight = torch.ones(64, 64, 3, 3) / 9
    return F.conv2d(F.conv2d(x.view(4, 64, 16, 16), weight, padding=1).relu(), weight, padding=1)


PROGRAMS: tuple[Callable[..., Any], ...] = (small, transposed, normed, batched, many, convolved)


NEVER_SEEN = ("score_fusion_memory_threshold", "cpp.enable_tiling_heuristics")
"""Keys that change the code of none of these programs; a test that passes all the same says so."""


def configs() -> Iterator[Any]:
    for config in known_configs(speed_configs("cpu", {"bmm", "convolution"})):
        if not may_matter(config, constants=False):
            continue
        unseen = any(key in config for key in NEVER_SEEN)
        yield pytest.param(config, marks=[pytest.mark.xfail(strict=True)] if unseen else [])


@pytest.mark.parametrize("config", configs(), ids=str)
def test_a_config_changes_code(config: Mapping[str, Any]) -> None:
    def is_inert(program: Callable[..., Any]) -> bool:
        with rx.explore(program, (torch.randn(256, 256, requires_grad=True),)) as ex:
            ex.mark("all", ops="*").configure("all", config)
            ex.compile()
            return any(finding.code is DiagnosticCode.CONFIG_INERT for finding in ex.session.diagnostics)

    assert not all(map(is_inert, PROGRAMS))  # it stops at the first whose code changes


class Heads(torch.nn.Module):
    """Three linear layers of the same input."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (layer(x) for layer in self.layers)
        result: torch.Tensor = q.sin() + k * v
        return result


def test_a_config_for_constant_weights_changes_code() -> None:
    (config,) = (one for one in speed_configs("cpu", ()) if not may_matter(one, constants=False))
    with torch.no_grad(), rx.explore(Heads().eval(), (torch.randn(256, 256),), tracing=FROZEN) as ex:
        ex.mark("all", ops="*").configure("all", config)
        ex.compile()
        assert DiagnosticCode.CONFIG_INERT not in {finding.code for finding in ex.session.diagnostics}
