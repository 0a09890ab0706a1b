"""A call that does not repeat itself: "not comparable" stands beside every speedup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import regional_explorer as rx
from regional_explorer.render.report.html import session_html
from regional_explorer.ui.control import control_of
from regional_explorer.ui.panel.panel import Panel
from tests.engine.test_wrong_traces import NOT_COMPARABLE, noisy


@pytest.mark.compiles
def test_every_speedup_in_report_and_panel_stands_beside_these_words() -> None:
    ex = rx.explore(noisy, (torch.randn(64),))
    ex.benchmark(("aot_eager", "regional"), budget_s=0.3, regions=False)
    panel = Panel(control_of(ex))
    try:
        shown = "".join(_texts(panel.box))
    finally:
        panel.close()
    for html in (session_html(ex.session), shown):
        speedups = re.split(r"\d\.\d\d×", re.sub(r"\d\.\d\d–\d\.\d\d×", "an interval", html))[1:]
        assert len(speedups) >= 3
        assert all(behind.startswith(f" {NOT_COMPARABLE}") for behind in speedups)


def _texts(widget: Any) -> Iterator[str]:
    """Yield all texts that a widget and those in it hold for the page."""
    for name in widget.keys:
        value = getattr(widget, name)
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list) and name != "layout":
            yield repr(value)
    for child in getattr(widget, "children", ()):
        yield from _texts(child)
