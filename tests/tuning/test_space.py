"""The configs that a search tries: each changes the code of some program under the running torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import regional_explorer as rx
from regional_explorer.record.configs import speed_configs
from regional_explorer.record.diagnostic import DiagnosticCode
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


PROGRAMS: tuple[Callable[..., Any], ...] = (small, transposed, normed, batched, many)


NEVER_SEEN = ("score_fusion_memory_threshold", "cpp.enable_tiling_heuristics")
"""Keys that change the code of none of these programs; a test that passes all the same says so."""


def configs() -> Iterator[Any]:
    for config in known_configs(speed_configs("cpu", {"bmm"})):
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
