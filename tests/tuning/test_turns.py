"""A search takes a turn for each step: what other threads may do between steps, and what is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import pytest

from regional_explorer.compiler.run import PLAIN_RUN, Run
from regional_explorer.errors import BusyError
from regional_explorer.exploration.exclusive_use import ExclusiveUse


def run_on_other_thread(work: Callable[[], Any]) -> Any:
    """Run ``work`` on another thread; return its result."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(timeout=30)


def edit(use: ExclusiveUse) -> str:
    with use.editing():
        return "edited"


def measure(use: ExclusiveUse) -> str:
    with use.turn(PLAIN_RUN, "benchmark"):
        return "measured"


def compile_something(use: ExclusiveUse) -> str:
    with use.turn(PLAIN_RUN):
        return "compiled"


def test_edits_and_compiles_run_between_steps_but_no_retrace() -> None:
    use = ExclusiveUse()
    with use.searching("tune"):
        with use.step(PLAIN_RUN):
            assert run_on_other_thread(lambda: edit(use)) == "edited"
        assert run_on_other_thread(lambda: compile_something(use)) == "compiled"
        with pytest.raises(BusyError, match=r"ex\.tune\(\) is searching.*but not traced again"):
            use.refuse_while_searching("traced again")
        with pytest.raises(BusyError, match="searched a second time"), use.searching("tune"):
            pass
    use.refuse_while_searching("traced again")


def test_a_timed_step_refuses_edits() -> None:
    use = ExclusiveUse()
    with use.searching("tune"), use.step(PLAIN_RUN, "tune"):
        for other in (edit, compile_something, measure):
            with pytest.raises(BusyError):
                run_on_other_thread(lambda other=other: other(use))  # type: ignore[misc]


def test_a_measurement_on_another_thread_is_refused_during_a_search() -> None:
    use = ExclusiveUse()
    with use.searching("tune"), pytest.raises(BusyError, match=r"but not measured by ex\.benchmark\(\)"):
        run_on_other_thread(lambda: measure(use))


def test_a_search_on_another_thread_waits_for_a_cells_measurement() -> None:
    use, began, order = ExclusiveUse(), threading.Event(), list[str]()

    def search() -> None:
        with use.searching("tune"):
            began.set()
            assert measured.wait(30)
            with use.step(PLAIN_RUN, "tune"):
                order.append("step")

    measured = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(search)
        assert began.wait(30)
        with use.turn(PLAIN_RUN, "benchmark"):
            measured.set()
            with pytest.raises(TimeoutError):
                future.result(timeout=0.3)
            order.append("benchmark")
        future.result(timeout=30)
    assert order == ["benchmark", "step"]


def test_a_cancelled_search_gets_no_further_step() -> None:
    use = ExclusiveUse()

    def step_of_a_cancelled_search() -> None:
        with use.step(Run(cancelled=lambda: True)):
            pytest.fail("it had a turn")

    with use.searching("tune"), use.turn(PLAIN_RUN), pytest.raises(CancelledError):
        run_on_other_thread(step_of_a_cancelled_search)


def test_a_thread_that_waits_gets_its_turn_between_two_steps() -> None:
    use, order = ExclusiveUse(), list[str]()
    waiting = threading.Event()

    def compile_once() -> None:
        with use.turn(Run(progress=lambda *_: waiting.set())):
            order.append("compile")

    with ThreadPoolExecutor(1) as pool, use.searching("tune"):
        with use.step(PLAIN_RUN):
            future = pool.submit(compile_once)
            assert waiting.wait(30)
            order.append("step")
        for _ in range(3):
            with use.step(PLAIN_RUN):
                order.append("step")
        future.result(timeout=30)
    assert order[:3] == ["step", "compile", "step"]
