"""Objects that torch keeps of an exploration are released when it is closed or dropped."""

import gc
import weakref
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch._inductor.codecache import PyCodeCache

import regional_explorer as rx
from regional_explorer.exploration import live
from regional_explorer.exploration.live import MAX_DROPPED
from regional_explorer.torch_api.compile_lock import compile_lock
from regional_explorer.torch_api.releasing import GeneratedCode
from tests.shared.checks import TORCH
from tests.shared.locks import held_by_another_thread, start_threads
from tests.shared.processes import python
from tests.torch_api import exploring_often
from tests.torch_api.exploring_often import Net, break_after_region, explore_and_run, pair, straight


@pytest.fixture(scope="module")
def growth() -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = python(Path(exploring_often.__file__)).json
    return found


CASES = [f"{name}, {how}" for name in ("straight", "graph break", "module") for how in ("closed", "dropped")]


@pytest.mark.parametrize("case", [*CASES, "whole compile"])
def test_closed_exploration_leaves_no_objects(growth: dict[str, dict[str, int]], case: str) -> None:
    left = {kind: count for kind, count in growth[case].items() if count >= exploring_often.CYCLES}
    assert not left, "each exploration leaves something"


def test_a_with_block_closes_the_exploration_also_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), rx.explore(straight, pair()) as ex:  # noqa: PT012 - the block is what is tested
        assert ex.live.is_open
        raise ZeroDivisionError
    assert not ex.live.is_open
    assert ex.session.graphs


def test_dropped_explorations_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_DROPPED_TRACES", [])  # other tests have dropped some
    gc.collect()
    gc.disable()
    try:
        traces = []
        for _ in range(MAX_DROPPED):
            argument, weight = pair()
            ex = rx.explore(straight, (argument, weight))
            traces.append(weakref.ref(ex.live.capture))
            arguments = weakref.ref(argument), weakref.ref(weight)
            del ex, argument, weight
            assert all(argument() is None for argument in arguments)
        assert all(trace() is not None for trace in traces), "freed by themselves: the collector need not run"
        kept = rx.explore(straight, args := pair())
        assert all(trace() is None for trace in traces)
        compiled, argument_of_kept = kept.compiled, weakref.ref(args[0])
        del kept, args
        assert argument_of_kept() is None, "nothing needs them any more, though the callable is kept"
    finally:
        gc.enable()
    torch.testing.assert_close(compiled(*(args := pair())), straight(*args))
    with pytest.warns(UserWarning, match="traced again"):
        torch.testing.assert_close(compiled(*(args := (torch.ones(2, 2), torch.ones(2, 2)))), straight(*args))


def test_the_users_own_compiled_function_stays() -> None:
    for fn in (straight, break_after_region):
        own = torch.compile(fn, backend=(backend := CompileCounter()))
        expected = own(*(args := pair()))
        traced = backend.frame_count
        for close in (True, False):
            explore_and_run(fn, close=close)
            rx.explore(lambda x, w: own(x, w) * 2, pair())
        gc.collect()
        assert torch.equal(own(*args), expected)
        assert backend.frame_count == traced > 0, "traced again"


def test_a_function_explored_often_can_still_be_compiled() -> None:
    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.sin(x @ w).sum()

    backend = CompileCounter()
    with torch._dynamo.config.patch(accumulated_recompile_limit=4):
        for _ in range(5):
            rx.explore(step, pair()).close()
        torch.compile(step, backend=backend)(*pair())
    assert backend.frame_count, "Dynamo gave up on it"


def test_release_during_collection_loses_no_code() -> None:
    before, mine, others = GeneratedCode(), ModuleType("mine"), ModuleType("others")
    with before.collecting():
        PyCodeCache.modules.append(others)
    with (code := GeneratedCode()).collecting():
        PyCodeCache.modules.append(mine)
        before.release()  # as the garbage collector may do anywhere
    assert others not in PyCodeCache.modules
    assert mine in PyCodeCache.modules
    code.release()
    assert mine not in PyCodeCache.modules


def test_closing_one_exploration_keeps_the_other() -> None:
    first, second = rx.explore(break_after_region, pair()), rx.explore(break_after_region, pair())
    compiled, args = second.compiled, pair()
    graphs = len(second.session.graphs)
    first.close()
    del first
    gc.collect()
    torch.testing.assert_close(compiled(*args), break_after_region(*args))
    assert len(second.session.graphs) == graphs, "traced again"


def test_calling_a_function_of_a_closed_exploration_is_refused() -> None:
    for fn in (straight, break_after_region, Net()):
        ex = rx.explore(fn, pair())
        compiled = ex.compiled
        ex.close()
        with pytest.raises(rx.ClosedError, match="was closed"):
            compiled(*pair())


@pytest.mark.skipif(TORCH < (2, 12), reason="a setting is that of the process there: reading all of them waits")
def test_a_session_does_not_wait_for_the_compile_of_another_thread() -> None:
    with rx.explore(lambda x: x.sin(), (torch.ones(4),)) as ex, torch._dynamo.config.patch(recompile_limit=2):
        ex.live.capture.run(torch.ones(5))  # a late frame
        with held_by_another_thread(compile_lock()):
            sessions: list[rx.Session] = []
            (reader,) = start_threads(lambda: sessions.append(ex.session))
            reader.join(30)
            assert sessions, "the session is there while the lock is held"
