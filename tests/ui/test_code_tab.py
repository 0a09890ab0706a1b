"""The tab with the generated code: read when it is looked at, and linked to graph and source."""

from __future__ import annotations

from typing import Any

import pytest

from regional_explorer import page
from regional_explorer.exploration.exploration import Exploration
from regional_explorer.exploration.shown import RegionCode
from regional_explorer.page.code import code_rows
from regional_explorer.style.element import words
from regional_explorer.ui.control import Control
from regional_explorer.ui.panel import Panel
from tests.shared.panel import elements, text


def shown(panel: Panel) -> str:
    return " ".join(map(words, panel.code.tree))


def test_a_region_that_was_never_compiled_says_so(panel: Panel, control: Control) -> None:
    panel.press("pane", "code")
    assert "Not compiled yet." in text(panel, "code")
    assert elements(panel.part("code"), data_do="compile code")
    assert not control.state.busy
    panel.press("remove", "mm")
    panel.press("remove", "act")
    assert "Select a region" in text(panel, "code")


@pytest.mark.compiles
def test_lines_nodes_and_kernels_light_each_other(panel: Panel, control: Control) -> None:
    panel.press("pick", "act")
    panel.press("pane", "code")
    panel.press("compile code")
    assert control.jobs.wait(120)
    assert control.state.problem is None
    assert "cpp_fused_relu" in shown(panel)
    assert "return torch.relu(x @ w).sum()" in shown(panel)
    assert not elements(panel.part("code"), data_do="code")
    panel.graph.select(["0/forward:relu"])
    rows = {key for key, word in panel.code.lit["rows"].items() if "selected" in word}
    assert rows == {"s0", "k0.1", "c0.1"}
    panel.graph.select([])
    panel.code.press("pick", "k0.1")
    assert panel.graph.selection == ["0/forward:relu"]
    assert any("chosen" in word for word in panel.source.lit["rows"].values())
    panel.code.press("point", "c0.1")
    assert panel.graph.hover == ["0/forward:relu"]
    assert any("hovered" in word for word in panel.source.lit["rows"].values())
    panel.source.press("point", "0")
    assert "hovered" in panel.code.lit["rows"]["c0.1"]
    before = control.session
    panel.press("pane", "source")
    panel.press("pane", "code")
    assert not control.state.busy  # it is known already
    assert control.session is before
    code = control.shown().code
    parts = code.partitions if code else ()
    rest = code_rows(parts)
    assert rest.nodes["c0.1"] == ("0/forward:relu",)
    small = pytest.MonkeyPatch()
    small.setattr(page.code, "CODE_LIMIT", 60)
    assert "The code goes on for" in " ".join(map(words, code_rows(parts).tree))
    small.undo()


def test_the_code_for_a_gpu_is_asked_for_once_per_plan(
    panel: Panel, control: Control, exploration: Exploration
) -> None:
    asked: list[tuple[str, str | None]] = []

    def code(name: str, *, target: str | None, **_: Any) -> RegionCode:
        asked.append((name, target))
        return RegionCode(name, (), "Generated for a GPU.")

    exploration.code = code  # type: ignore[method-assign,assignment]
    panel.press("pick", "act")
    panel.press("pane", "code")
    assert asked == []  # nothing was compiled, so there is nothing to read
    panel.press("target", value="h100")
    assert control.jobs.wait(10)
    assert asked == [("act", "h100")]
    assert "Generated for a GPU." in text(panel, "code")
    panel.press("target", value="no such thing")
    assert control.state.target == "h100"
