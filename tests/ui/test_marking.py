"""Marking: what is selected, typed and suggested."""

from __future__ import annotations

import torch
from torch import nn

from regional_explorer.exploration.exploration import explore
from regional_explorer.ui.control import Control, control_of
from regional_explorer.ui.marking import suggestions
from regional_explorer.ui.panel import Panel
from tests.ui.conftest import text, type_in


def test_selecting_nodes_switches_to_selection(panel: Panel, control: Control) -> None:
    type_in(panel, "kind", "ops")
    type_in(panel, "pattern", "aten.s")
    panel.press("pick", "act")  # a region's row: nothing new to mark
    assert control.state.mark.kind == "ops"
    panel.graph.select(["0/forward:relu"])
    assert (control.state.mark.kind, control.state.mark.pattern) == ("selection", "")
    panel.graph.select([])
    assert control.state.mark.kind == "selection"


def test_what_a_pattern_matches_is_lit_while_it_is_typed(panel: Panel, control: Control) -> None:
    type_in(panel, "kind", "ops")
    type_in(panel, "pattern", "sum")
    control.previews.wait(10)
    assert "0/forward:sum_1" in panel.graph.marked
    type_in(panel, "pattern", "summ")
    control.previews.wait(10)
    assert panel.graph.marked == []
    assert "matches no operation" in text(panel, "preview")
    panel.press("mark")
    assert "matches no operation" in text(panel, "marking")
    assert panel.part("preview") == []  # it is told once
    type_in(panel, "pattern", "sum")
    assert "matches no operation" not in text(panel, "marking")


def test_globs_over_equal_layers_are_suggested_first() -> None:
    layers = (nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(2))
    net = nn.Sequential(*layers, nn.Linear(4, 2))
    ex = explore(net, (torch.ones(2, 4),), grad=False)
    found = suggestions(control_of(ex).session)["modules"]
    ex.close()
    assert found == ["*", "*.*", "0", "0.0", "0.1", "1", "1.0", "1.1", "2"]
