"""Measuring from a button: what is timed runs on the main thread, in turns with it, and the rest beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError

import pytest
import torch

from regional_explorer.capture.undo import silent
from regional_explorer.errors import BusyError
from regional_explorer.exploration.exploration import explore
from regional_explorer.ui.control import control_of
from regional_explorer.ui.jobs import MainThread
from regional_explorer.ui.panel import Panel
from tests.ui.conftest import make, text
from tests.ui.main_loop import MainLoop


def never() -> bool:
    return False


class Other:
    """A thread that asks for ``work`` to be done at a place, and what became of it."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.result: object = None
        self.error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001 - what it is, is what the tests ask
            self.error = error

    def done(self) -> bool:
        return not self._thread.is_alive()


def test_what_is_timed_runs_on_the_main_thread_and_the_rest_on_one_that_ends() -> None:
    loop = MainLoop()
    executor = MainThread(loop, never)
    threads: list[threading.Thread] = []

    def request() -> None:
        threads.append(executor.run_timed(threading.current_thread))
        threads.append(executor.run_untimed(threading.current_thread))

    loop.run_until(Other(request).done)
    timed, run_untimed = threads
    assert timed is threading.main_thread()
    assert not run_untimed.is_alive()
    assert executor.run_timed(threading.current_thread) is threading.main_thread()  # asked there, nobody waits


def test_work_has_the_modes_of_who_asked_and_leaves_those_of_the_main_thread() -> None:
    loop = MainLoop()
    executor = MainThread(loop, never)

    def modes() -> tuple[bool, bool, torch.device]:
        return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_default_device()

    def request() -> list[object]:
        with torch.no_grad():
            return [executor.run_timed(modes), executor.run_untimed(modes)]

    with torch.device("meta"), torch.autocast("cpu"):
        mine = modes()
        other = Other(request)
        loop.run_until(other.done)
        assert modes() == mine == (True, True, torch.device("meta"))
    assert other.result == [(False, False, torch.device("cpu"))] * 2
    torch.set_default_device("meta")
    assert torch.get_default_device() == torch.device("meta")
    torch.set_default_device(None)
    assert torch.get_default_device() == torch.device("cpu"), "as if nothing had been set before"


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_what_is_raised_goes_to_who_asked_also_an_interrupt_of_the_kernel(error: BaseException) -> None:
    loop = MainLoop()

    def work() -> None:
        raise error

    other = Other(lambda: MainThread(loop, never).run_timed(work))
    loop.run_until(other.done)
    assert other.error is error


def test_while_the_main_thread_is_busy_a_measurement_can_be_cancelled() -> None:
    loop, cancelled, done = MainLoop(), threading.Event(), []
    other = Other(lambda: MainThread(loop, cancelled.is_set).run_timed(lambda: done.append(1)))
    cancelled.set()
    other._thread.join(10)
    assert isinstance(other.error, CancelledError)
    loop.run_until(loop._asked.empty)
    assert done == []  # its turn comes, and it is no longer wanted


def test_what_is_done_for_a_muted_block_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    loop = MainLoop()
    executor = MainThread(loop, never)

    def request() -> None:
        with silent():
            executor.run_timed(lambda: print("timed"))  # noqa: T201 - as the user's function does
            executor.run_untimed(lambda: print("aside"))  # noqa: T201
            print("asked")  # noqa: T201

    other = Other(request)
    loop.add_callback(lambda: print("a cell"))  # noqa: T201
    loop.run_until(other.done)
    assert other.error is None
    assert capsys.readouterr().out == "a cell\n"


def test_the_button_times_on_the_main_thread() -> None:
    seen: dict[str, int] = {}

    def work(x: torch.Tensor) -> torch.Tensor:
        name = threading.current_thread().name
        seen[name] = seen.get(name, 0) + 1
        return x.sin()

    # Nothing to trace: a function that Dynamo leaves alone is called as it is.
    exploration = explore(torch.sin, (torch.randn(8),), grad=False)
    exploration.live.call.fn = work
    panel, loop = Panel(control_of(exploration)), MainLoop()
    panel.control.main_loop = lambda: loop
    for name in ("aot_eager", "regional", "full"):
        panel.press("variant", name, value=False)
    panel.press("budget", value="0.2")
    panel.press("measure")
    loop.run_until(lambda: panel.control.jobs.wait(0.0))
    assert panel.control.state.problem is None
    assert seen["MainThread"] > 50
    assert all(name in ("MainThread", "regional_explorer untimed") for name in seen)
    panel.close()
    exploration.close()


def test_cells_between_two_rounds_of_a_button_cannot_change_what_is_measured() -> None:
    exploration = make()
    plan = exploration.plan
    panel, loop = Panel(control_of(exploration)), MainLoop()
    panel.control.main_loop = lambda: loop
    for name in ("aot_eager", "regional", "full"):
        panel.press("variant", name, value=False)
    panel.press("budget", value="60")
    panel.press("measure")
    loop.run_until(lambda: "round" in text(panel, "progress"))
    cells: list[Callable[[], object]] = [
        lambda: exploration.configure("mm", max_fusion_size=16),
        exploration.compile,
        lambda: exploration.benchmark(("eager",), 0.05),
    ]
    for cell in cells:
        with pytest.raises(BusyError, match="wait for it, or cancel it where it was started"):
            cell()
    panel.press("cancel")
    loop.run_until(lambda: panel.control.jobs.wait(0.0))
    assert exploration.plan == plan
    assert panel.control.state.problem is None
    assert set(exploration.timings.variant) == {"eager"}
    assert exploration.configure("mm", max_fusion_size=16).plan != plan
    panel.close()
    exploration.close()
