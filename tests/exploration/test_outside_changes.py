"""Changes from outside the plan: threads, the mode of modules; the record is of one trace and says what changed."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import regional_explorer as rx
from regional_explorer.errors import MeasureError
from regional_explorer.record.session import Session
from regional_explorer.style.element import to_html
from regional_explorer.tables.benchmark import timings_table
from regional_explorer.tables.plan import measured_plans, runs_table
from tests.shared.work import torch_threads

VARIANTS = ("eager", "regional")


class Net(torch.nn.Module):
    """A module with a dropout, which evaluation mode leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.dropout = torch.nn.Linear(8, 8), torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a loss."""
        loss: torch.Tensor = self.dropout(torch.nn.functional.gelu(self.first(x)).sin()).sum()
        return loss


@pytest.fixture
def ex() -> rx.Exploration:
    """Return an exploration with one region of one op."""
    explored = rx.explore(Net(), (torch.randn(4, 8),))
    explored.mark("gelu", ops="aten.gelu*")
    return explored


def frames(session: Session) -> set[int]:
    """Return the numbers of the frames in the record."""
    return {graph.frame for graph in session.graphs}


def test_figures_of_other_threads_are_headed_by_the_difference(ex: rx.Exploration) -> None:
    with torch_threads(2):
        ex.benchmark(VARIANTS, 0.1, regions=False)
        assert not ex.session.outdated_by
    with torch_threads(1):
        session = ex.session
        assert session.outdated_by == ("1 thread (measured with 2)",)
        assert timings_table(session).full_title == "Run time of an earlier state: 1 thread (measured with 2)"
        assert session.environment.threads == 1
        ex.configure("gelu", {"max_fusion_size": 4})
        assert ex.session.outdated_by == ("the plan", "1 thread (measured with 2)")


def test_record_is_of_the_trace_that_the_call_runs(ex: rx.Exploration) -> None:
    with torch_threads(2):
        ex.benchmark(VARIANTS, 0.1, regions=False)
        first = ex.session
    with torch_threads(1), warnings.catch_warnings(action="error"):
        ex.benchmark(VARIANTS, 0.1, regions=False)
        second = ex.session
    assert len(frames(first)) == len(frames(second)) == 1
    assert frames(first) != frames(second)
    assert [len(graph.ops) for graph in first.graphs] == [len(graph.ops) for graph in second.graphs]
    assert len(first.partitions) == len(second.partitions)
    assert (second.late_graphs, second.outdated_by) == ((), ())
    assert "recompiled" not in {finding.code for finding in second.diagnostics}
    with torch_threads(2):
        again = ex.session
        assert (again.outdated_by, again.timings, frames(again)) == ((), first.timings, frames(first))
        assert {str(part.state) for part in again.partitions} == {"compiled"}


def test_evaluation_mode_is_another_state_and_trace(ex: rx.Exploration) -> None:
    ex.benchmark(VARIANTS, 0.1, regions=False)
    in_training = ex.session
    _, net = ex.live.call.modules[0]
    net.eval()
    assert ex.session.outdated_by == ("evaluation mode (measured in training mode)",)
    ex.benchmark(VARIANTS, 0.1, regions=False)
    session = ex.session
    assert len(frames(session)) == 1
    assert len(session.graphs[1].ops) < len(in_training.graphs[1].ops), "without the dropout"


def test_measured_plans_name_their_difference_and_one_is_current(ex: rx.Exploration) -> None:
    for threads in (2, 1):
        with torch_threads(threads):
            ex.benchmark(VARIANTS, 0.1, regions=False)
            assert to_html(*measured_plans(ex.runs, ex.session)).count("current plan") == (threads == 1)
            differs = [row.differs for row in runs_table(ex.runs).rows]
    assert differs == [["2 threads"], ["1 thread"]]


def test_call_with_two_sizes_keeps_both_traces(ex: rx.Exploration) -> None:
    with pytest.warns(UserWarning, match="traced again"):
        ex.compiled(torch.randn(6, 8))
    session = ex.session
    assert len(frames(session)) == 2
    assert session.late_graphs
    assert "recompiled" in {finding.code for finding in session.diagnostics}


def test_call_with_a_graph_break_keeps_its_frames_in_each_state() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    ex = rx.explore(broken, (torch.randn(4, 8),))
    ex.mark("cos", ops="aten.cos*")
    before = len(frames(ex.session))
    with torch_threads(torch.get_num_threads() + 1):
        ex.compile()
        assert len(frames(ex.session)) == before == 2
        assert not ex.session.late_graphs


def test_profile_says_that_it_is_of_an_earlier_state(ex: rx.Exploration) -> None:
    with torch_threads(2):
        ex.profile(0.1)
    with torch_threads(1):
        assert ex.session.profile_outdated_by == ("1 thread (measured with 2)",)
        assert "Measured before a change: 1 thread (measured with 2)." in ex.text
        ex.profile(0.1)
        assert not ex.session.profile_outdated_by
        assert len(frames(ex.session)) == 1


def test_profile_ends_when_the_mode_changes_and_adds_no_trace(ex: rx.Exploration) -> None:
    _, net = ex.live.call.modules[0]
    run = at_first_calls(net.eval)
    traces = len(ex.live.capture.frames)
    with pytest.raises(MeasureError, match="settings or modes of modules were changed meanwhile"):
        ex.profile(5.0, run=run)
    assert len(ex.live.capture.frames) == traces


def at_first_calls(change: Any) -> rx.Run:
    """Return a run in which ``change`` is called before the first call."""
    return rx.Run(progress=lambda doing, _done: change() if "first calls" in doing else None)
