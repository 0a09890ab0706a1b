"""The state of a live graph says what its next call runs, in an exploration and in production."""

import pytest
import torch

import regional_explorer as rx
from regional_explorer.backend.planned_backend import planned_backend_of
from regional_explorer.capture.live_graph import GraphState
from regional_explorer.errors import ClosedError, PlanError
from tests.shared import programs

pytestmark = pytest.mark.compiles


def marked(index, weight):
    with rx.region("r"):
        return weight[index].sin() * 2


X = torch.tensor([1, 2]), torch.ones(4, 4)


def test_a_graph_of_an_exploration_is_settled_by_the_call_after_a_change():
    ex = rx.explore(marked, X)
    (graph,) = ex.live.capture.live
    assert graph.state is GraphState.UNSETTLED, "nothing has run since the call was traced"
    run = ex.compiled
    run(*X)
    assert graph.state is GraphState.CUT
    plan = ex.plan
    ex.unmark("r")
    assert graph.state is GraphState.UNSETTLED
    run(*X)
    assert graph.state is GraphState.CAPTURED
    ex.plan = plan
    with ex.live.capture.running(lambda live: live.eager):
        assert graph.state is GraphState.REPLACED
    run(*X)
    assert graph.state is GraphState.CUT
    ex.close()
    assert graph.state is GraphState.REFUSED
    with pytest.raises(ClosedError):
        graph.call([])


def test_a_graph_in_production_is_cut_once_its_first_run_ends():
    compiled = rx.compile(marked)
    with pytest.raises(IndexError):
        compiled(torch.tensor([9, 9]), X[1])
    (graph,) = planned_backend_of(compiled).traced.live
    assert graph.state is GraphState.REPLACED, "the plan is checked at the end of the next call"
    torch.testing.assert_close(compiled(*X), marked(*X))
    assert graph.state is GraphState.CUT


def test_a_graph_against_a_strict_plan_refuses_its_calls():
    compiled = rx.compile(marked, programs.plan_of(gone="no.*"), strict=True)
    for _ in range(2):
        with pytest.raises(PlanError, match="region-empty"):
            compiled(*X)
    (graph,) = planned_backend_of(compiled).traced.live
    assert graph.state is GraphState.REFUSED
