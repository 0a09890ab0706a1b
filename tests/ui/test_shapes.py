"""The field for the shapes of the trace: choosing others traces the call again, as a job of the panel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from regional_explorer.errors import CaptureError, RefusalCode
from regional_explorer.exploration.exploration import Exploration, explore
from regional_explorer.ui.control import Control, control_of
from regional_explorer.ui.jobs import CANCELLED_NOTE
from regional_explorer.ui.panel import Panel
from tests.shared.checks import BEFORE_2_15
from tests.shared.panel import Blocked, elements, enabled, small, text, type_in


@pytest.fixture
def exploration() -> Iterator[Exploration]:
    args = torch.ones(4, 4), torch.ones(4, 4, requires_grad=True)
    with explore(small, args, dynamic=False) as ex:
        yield ex.mark("mm", ops="aten.mm*").mark("act", ops="aten.relu*")


def field(panel: Panel) -> Any:
    (found,) = elements(panel.part("header"), data_do="shapes")
    return found


def shown(panel: Panel) -> str:
    (chosen,) = (option[1]["value"] for option in field(panel)[2:] if option[1].get("selected"))
    return str(chosen)


def known(control: Control) -> set[str]:
    return {f"{graph.id}:{node.name}" for graph in control.session.graphs for node in graph.nodes}


def choose(panel: Panel, shapes: str) -> None:
    type_in(panel, "shapes", shapes)
    assert panel.control.jobs.wait(60)


@pytest.mark.parametrize(("dynamic", "word"), [(True, "dynamic"), (False, "static"), (None, "automatic")])
def test_the_field_shows_what_the_call_was_traced_with(*, dynamic: bool | None, word: str) -> None:
    with explore(torch.nn.SiLU(), (torch.randn(4),), dynamic=dynamic) as ex:
        panel = Panel(control_of(ex))
        assert shown(panel) == word
        assert [option[1]["value"] for option in field(panel)[2:]] == ["automatic", "static", "dynamic"]
        assert text(panel, "header").count("shapes") == 1
        panel.close()


def test_another_choice_traces_again_and_shows_the_new_graphs(panel: Panel, control: Control) -> None:
    panel.press("remove", "act")
    before, plan = control.session, control.state.plan
    choose(panel, "dynamic")
    assert shown(panel) == "dynamic"
    assert control.session is not before
    assert control.session.shapes == "dynamic"
    assert control.state.plan == plan
    assert not control.state.busy
    assert "0/forward" in {tab["id"] for tab in panel.tabs}
    panel.press("pick", "mm")
    assert set(panel.selection) <= known(control)
    assert panel.selection
    panel.press("undo")
    assert list(control.session.members) == ["mm", "act"]
    assert control.session.shapes == "dynamic"
    panel.press("redo")
    assert list(control.session.members) == ["mm"]


def test_it_is_a_job_whose_field_shows_what_was_chosen(panel: Panel, exploration: Exploration) -> None:
    slow = exploration.retrace = Blocked(exploration.retrace)  # type: ignore[method-assign]
    type_in(panel, "shapes", "dynamic")
    assert "Trace again" in text(panel, "progress")
    assert shown(panel) == "dynamic"
    assert "disabled" in field(panel)[1]
    assert not enabled(panel, "tools", "measure")
    panel.press("cancel")
    assert panel.control.jobs.wait(60)
    assert CANCELLED_NOTE in text(panel, "progress")
    assert shown(panel) == "static", "the trace is as it was"
    type_in(panel, "shapes", "dynamic")
    type_in(panel, "shapes", "static")  # as another front end may, before it hears that work began
    assert panel.control.session.shapes == "static"
    slow.go_on.set()
    assert panel.control.jobs.wait(60)
    assert shown(panel) == "dynamic"
    assert "disabled" not in field(panel)[1]


def test_a_failure_is_told_once_and_the_field_goes_back(panel: Panel, exploration: Exploration) -> None:
    error = CaptureError(RefusalCode.TRACE_FAILED, "It cannot be traced like that.")
    exploration.retrace = Blocked(error=error)  # type: ignore[method-assign]
    session = panel.control.session
    choose(panel, "dynamic")
    assert text(panel, "problem").count("It cannot be traced like that.") == 1
    assert shown(panel) == "static"
    assert panel.control.session is session


@pytest.mark.parametrize("value", ["static", "nonsense", ""])
def test_the_same_shapes_and_unknown_ones_start_nothing(panel: Panel, value: str) -> None:
    live = panel.control.exploration.live
    choose(panel, value)
    assert panel.control.exploration.live is live
    assert text(panel, "problem") == ""


def test_selected_nodes_that_are_gone_are_dropped(panel: Panel, control: Control) -> None:
    choose(panel, "dynamic")
    before = known(control)
    panel.press("select", value=sorted(before))
    choose(panel, "static")
    assert set(control.state.selection) == set(panel.selection) == before & known(control) != before


def test_nodes_of_a_selected_row_follow_into_the_new_graphs() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * 3).cos() * 2

    with explore(scaled, (torch.ones(4, 4),), dynamic=False).mark("scale", ops="aten.mul*") as ex:
        panel = Panel(control_of(ex))
        panel.press("pick", "scale")
        before = set(panel.selection)
        choose(panel, "dynamic")
        members = panel.control.session.members["scale"]
        after = {f"{graph}:{name}" for graph, names in members.items() for name in names}
        assert set(panel.selection) == set(panel.control.state.selection) == after
        assert (after != before) is BEFORE_2_15, "torch 2.15 gives the new nodes the same names"
        assert panel.control.state.picked == ("scale",)
        panel.close()


@pytest.mark.compiles
def test_a_measured_plan_is_used_with_its_shapes(panel: Panel, control: Control, exploration: Exploration) -> None:
    exploration.benchmark(("eager",), 0.05, regions=False)
    exploration.retrace(dynamic=True).benchmark(("eager",), 0.05, regions=False)
    control.refresh()
    assert "shapes: static" in text(panel, "plans")
    assert "shapes: dynamic" in text(panel, "plans")
    assert text(panel, "plans").count("current plan") == 1
    (other,) = elements(panel.part("plans"), data_do="take")
    panel.press("take", other[1]["data-of"])
    assert control.jobs.wait(60)
    assert shown(panel) == "static"
    assert text(panel, "plans").count("current plan") == 1


def test_a_new_trace_by_a_cell_is_shown_and_the_earlier_graphs_forgotten(
    control: Control, exploration: Exploration
) -> None:
    control.set(selection=("0/forward:mm", "0/forward:no_longer_there"))
    exploration.retrace(dynamic=True)
    control.refresh()
    assert control.state.selection == ("0/forward:mm",), "without a panel too"
    panel = Panel(control)
    assert shown(panel) == "dynamic"
    panel.close()
