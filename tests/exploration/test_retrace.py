"""``ex.retrace``: the call traced again with other shapes, in the same exploration."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

import regional_explorer as rx
from regional_explorer.errors import CaptureError, ClosedError, InvalidArgumentError
from tests.shared.checks import codes, only


def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.relu(x @ w)
    return (y.reshape(-1, 2).sin() * y.shape[0]).sum()


def pair(rows: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 4), torch.randn(4, 4, requires_grad=True)


def has_symbolic_sizes(ex: rx.Exploration) -> bool:
    """Return whether a graph has a size that is not a number."""
    shapes = [value.shape for graph in ex.session.graphs for node in graph.nodes for value in node.values]
    return any(not str(size).isdigit() for shape in shapes for size in shape)


@pytest.fixture
def ex() -> Iterator[rx.Exploration]:
    found = rx.explore(step, pair(), dynamic=False).mark("act", ops="aten.relu*").configure("act", max_fusion_size=8)
    yield found
    found.close()


def test_retrace_makes_new_graphs_and_keeps_the_plan(ex: rx.Exploration) -> None:
    plan = ex.plan
    assert not has_symbolic_sizes(ex)
    assert ex.session.shapes == "static"
    assert ex.retrace(dynamic=True) is ex
    assert has_symbolic_sizes(ex)
    assert ex.session.shapes == "dynamic"
    assert ex.plan == plan
    assert set(ex.partitions.region) == {"act"}
    ex.retrace()
    assert ex.session.shapes == "automatic"
    assert not has_symbolic_sizes(ex)


@pytest.mark.compiles
def test_retrace_keeps_results_and_artifacts(ex: rx.Exploration) -> None:
    ex.benchmark(("regional",), 0.2, regions=False)
    ex.retrace(dynamic=True)
    assert ex.timings.empty
    assert [run.shapes for run in ex.runs] == ["static"]
    ex.mark("sin", ops="aten.sin*")
    ex.benchmark(("regional",), 0.2, regions=False)
    assert [run.shapes for run in ex.runs] == ["static", "dynamic"]
    assert ex.history.changed[1].startswith("shapes static → dynamic")
    assert set(ex.numerics.verdict) == {"ok"}
    compiled, traces = ex.compiled, len(ex.live.capture.frames)
    for rows in (6, 8, 10):
        args = pair(rows)
        torch.testing.assert_close(compiled(*args), step(*args))
    assert len(ex.live.capture.frames) == traces == 1
    count = ex.live.program.store.compiles
    ex.unmark("sin").retrace(dynamic=False).compile()
    assert set(ex.partitions.state) == {"compiled"}
    assert ex.live.program.store.compiles == count
    ex.benchmark(("regional",), 0.2, regions=False)
    assert [run.shapes for run in ex.runs] == ["dynamic", "static"]


@pytest.mark.compiles
def test_functions_of_an_earlier_trace_raise_with_advice(ex: rx.Exploration) -> None:
    compiled = ex.compiled
    outputs = compiled(*pair())
    ex.retrace(dynamic=True)
    with pytest.raises(ClosedError, match=r"Use ex\.compiled to get the current one"):
        compiled(*pair())
    with pytest.raises(ClosedError, match="traced the call again"):
        outputs.backward()


def test_a_trace_that_fails_changes_nothing() -> None:
    fails = False

    def fragile(x: torch.Tensor) -> torch.Tensor:
        if fails:
            raise ValueError("not today")
        return x.sin()

    ex = rx.explore(fragile, (torch.randn(4),)).mark("s", ops="aten.sin*")
    before, session = ex.live, ex.session
    fails = True
    with pytest.raises(CaptureError, match="not today"):
        ex.retrace(dynamic=True)
    assert ex.live is before
    assert ex.session is session
    fails = False
    assert ex.retrace(dynamic=True).plan == session.plan


@pytest.mark.parametrize("answers", [[True], [False, True]])
def test_a_trace_that_is_cancelled_changes_nothing(ex: rx.Exploration, answers: list[bool]) -> None:
    before, session, doing, traced = ex.live, ex.session, [], len(answers) > 1
    ex.retrace(dynamic=True, run=rx.Run(cancelled=lambda: answers.pop(0), progress=lambda what, _: doing.append(what)))
    assert doing == (["tracing the call again"] if traced else [])
    assert ex.live is before
    assert ex.session is session
    torch.testing.assert_close(ex.live.capture.run(*(args := pair())), step(*args))


def test_impossible_retrace_is_refused(ex: rx.Exploration) -> None:
    with pytest.raises(InvalidArgumentError, match=r"dynamic='dynamic': give True, False or None"):
        ex.retrace(dynamic="dynamic")  # type: ignore[arg-type]
    ex.close()
    with pytest.raises(ClosedError):
        ex.retrace(dynamic=True)


def test_node_names_of_other_ops_after_a_retrace_are_reported(ex: rx.Exploration) -> None:
    assert not ex.diagnostics
    ex.mark("named", nodes=["0/forward:sin", "0/forward:mul"])
    ex.retrace(dynamic=True)
    found = only(ex, "plan-differs")
    assert found.region == "named"
    assert "sin instead of sin, mul" in found.message
    assert only(ex.retrace(dynamic=True), "plan-differs") == found, "they are the same wrong ops"
    assert not ex.retrace(dynamic=False).diagnostics, "they are what was marked"
    assert only(ex.retrace(dynamic=True), "plan-differs") == found
    ex.unmark("named").retrace(dynamic=False).mark("named", nodes="sin")
    with pytest.warns(UserWarning, match="traced again"):
        ex.live.capture.run(*pair(8))
    assert not ex.retrace(dynamic=False).diagnostics, "marked again; a graph of a later call repeats its ops"
    ex.unmark("named").retrace(dynamic=True)
    assert not ex.diagnostics
    name = next(node.name for node in ex.session.graph("0/forward").ops if node.target.startswith("aten.mul"))
    ex.mark("gone", nodes=f"0/forward:{name}").retrace(dynamic=False)
    assert codes(ex) == ["region-empty"]


def test_the_users_tensors_are_left_as_they_were(ex: rx.Exploration) -> None:
    x, w = pair()
    for dynamic in (True, False):
        with rx.explore(step, (x, w), dynamic=dynamic) as found:
            assert has_symbolic_sizes(found) is dynamic
    assert not vars(x)
    assert not vars(w)
    ex.retrace(dynamic=True)
    ex.live.capture.run(*ex.live.call.args)  # marks sizes of the arguments as dynamic
    assert not has_symbolic_sizes(ex.retrace(dynamic=False)), "nor are later traces dynamic for it"


def test_an_edit_of_another_thread_is_kept(ex: rx.Exploration) -> None:
    edits = [threading.Thread(target=lambda: ex.mark("sin", ops="aten.sin*"))]

    def cancelled() -> bool:
        if ex.live.call.grad and len(doing) and edits:  # the new trace is there, but not taken yet
            thread = edits.pop()
            thread.start()
            thread.join()
        return False

    doing: list[str] = []
    ex.retrace(dynamic=True, run=rx.Run(cancelled=cancelled, progress=lambda what, _: doing.append(what)))
    assert "sin" in ex.plan
    assert set(ex.partitions.region) == {"act", "sin"}
