"""What a button measures is what a cell measures: both time on the main thread."""

from __future__ import annotations

import pytest
import torch

from regional_explorer.exploration.exploration import Exploration, explore
from regional_explorer.record.timing import Phase, Timing
from regional_explorer.ui.control import control_of
from regional_explorer.ui.panel import Panel
from tests.shared.panel import MainLoop

BUDGET_S = 3.0
VARIANTS = ("eager", "regional")


def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = torch.softmax(torch.nn.functional.gelu(x @ w) * 0.5 + x, -1)
    return x


@pytest.fixture
def exploration() -> Exploration:
    ex = explore(chain, (torch.randn(256, 256), torch.randn(256, 256)), grad=False)
    return ex.mark("all", ops="aten.*")


def regional(ex: Exploration) -> Timing:
    return next(one for one in ex.session.timings if one.variant == "regional" and one.phase is Phase.FORWARD)


@pytest.mark.slow
@pytest.mark.compiles
def test_a_button_and_a_cell_agree_within_their_intervals(exploration: Exploration) -> None:
    exploration.compile()
    panel, loop = Panel(control_of(exploration)), MainLoop()
    panel.control.main_loop = lambda: loop
    for name in ("aot_eager", "full"):
        panel.press("variant", name, value=False)
    panel.press("budget", value=str(BUDGET_S))
    cells, buttons = [], []
    for _ in range(4):  # in turn, so that a machine that slows down slows both
        exploration.benchmark(VARIANTS, BUDGET_S)
        cells.append(regional(exploration))
        panel.press("measure")
        loop.run_until(lambda: panel.control.jobs.wait(0.0))
        assert panel.control.state.problem is None
        buttons.append(regional(exploration))
    panel.close()
    exploration.close()

    def bounds(found: list[Timing]) -> tuple[float, float]:
        assert all(one.speedup_low is not None and one.speedup_high is not None for one in found)
        return min(one.speedup_low or 0.0 for one in found), max(one.speedup_high or 0.0 for one in found)

    (low, high), (other_low, other_high) = bounds(cells), bounds(buttons)
    assert low <= other_high, (cells, buttons)
    assert other_low <= high, (cells, buttons)
