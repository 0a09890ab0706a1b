"""A call that does not repeat itself: "not comparable" stands beside every speedup."""

from __future__ import annotations

import re

import pytest
import torch

import regional_explorer as rx
from regional_explorer.page.report import session_html
from regional_explorer.ui.control import control_of
from regional_explorer.ui.panel import PARTS, Panel
from tests.engine.test_wrong_traces import NOT_COMPARABLE, noisy
from tests.shared.fakes import TickingClock, timed_by
from tests.shared.panel import text


@pytest.mark.compiles
def test_every_speedup_in_report_and_panel_stands_beside_these_words() -> None:
    ex = rx.explore(noisy, (torch.randn(64),))
    with timed_by(TickingClock()):
        ex.benchmark(("aot_eager", "regional"), budget_s=0.3, regions=False)
    panel = Panel(control_of(ex))
    try:
        shown = " ".join(text(panel, name) for name in PARTS)
    finally:
        panel.close()
    for html in (session_html(ex.session), shown):
        speedups = re.split(r"\d\.\d\d×", re.sub(r"\d\.\d\d–\d\.\d\d×", "an interval", html))[1:]
        assert len(speedups) >= 3
        assert all(behind.startswith(f" {NOT_COMPARABLE}") for behind in speedups)
