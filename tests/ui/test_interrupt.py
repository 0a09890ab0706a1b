"""Interrupts that something inside a long run drops, as compilers do: the run ends all the same, and says so."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable

import pytest
import torch

import regional_explorer as rx
from regional_explorer.compiler.run import PLAIN_RUN, interruptible


def test_an_interrupt_is_raised_at_once_cancels_and_is_raised_again() -> None:
    before = signal.getsignal(signal.SIGINT)
    cancelled: list[bool] = []

    def work() -> None:
        with interruptible(PLAIN_RUN) as run:
            cancelled.append(run.cancelled())
            with pytest.raises(KeyboardInterrupt):  # dropped, as a compiler does
                signal.raise_signal(signal.SIGINT)
            cancelled.append(run.cancelled())

    with pytest.raises(KeyboardInterrupt):
        work()
    assert cancelled == [False, True]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_of_the_users_own_is_asked() -> None:
    request: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: request.append(number))
    try:
        with interruptible(PLAIN_RUN) as run:
            signal.raise_signal(signal.SIGINT)
            assert run.cancelled()
        assert request == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_off_the_main_thread_nothing_is_done() -> None:
    cancelled: list[bool] = []

    def work() -> None:
        with interruptible(PLAIN_RUN) as run:
            cancelled.append(run.cancelled())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert cancelled == [False]


def test_where_interrupts_are_ignored_they_stay_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible(PLAIN_RUN) as run:
            signal.raise_signal(signal.SIGINT)
            assert not run.cancelled()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_was_set_inside_stays() -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        with interruptible(PLAIN_RUN):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def two(x: torch.Tensor) -> torch.Tensor:
    with rx.region("a"):
        y = x.sin() * 2
    y = y.exp()
    with rx.region("b"):
        return y.cos() + 1


METHODS: dict[str, Callable[[rx.Exploration, rx.Run], object]] = {
    "profile": lambda ex, run: ex.profile(0.05, run=run),
    "compile": lambda ex, run: ex.compile(run=run),
    "benchmark": lambda ex, run: ex.benchmark(("eager", "regional"), 0.05, run=run),
    "code": lambda ex, run: ex.code("a", run=run),
    "code under a config": lambda ex, run: ex.code("a", config={"max_fusion_size": 3}, run=run),
    "stages": lambda ex, run: ex.stages("b", run=run),
    "kernel times": lambda ex, run: ex.kernel_times("a", 0.05, run=run),
    "diagnose": lambda ex, run: ex.diagnose("a", 0.05, run=run),
    "roofline": lambda ex, run: ex.roofline(run=run),
    "retrace": lambda ex, run: ex.retrace(run=run),
}


@pytest.mark.compiles
def test_an_interrupt_that_is_dropped_ends_every_method() -> None:
    ex = rx.explore(two, (torch.ones(8),))
    came_on: dict[str, list[str]] = {}
    handler = signal.getsignal(signal.SIGINT)
    for name, method in METHODS.items():
        steps = came_on[name] = []

        def drops(doing: str, _fraction: float, steps: list[str] = steps) -> None:
            steps.append(doing)
            if len(steps) == 1:
                with contextlib.suppress(KeyboardInterrupt):  # as a callback of a compiler does
                    signal.raise_signal(signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            method(ex, rx.Run(progress=drops))
        assert signal.getsignal(signal.SIGINT) is handler
        if name == "benchmark":
            ex.benchmark(("eager", "regional", "full"), 0.05)
    assert {name: steps for name, steps in came_on.items() if len(steps) > 2} == {}


def test_an_interrupt_that_is_dropped_ends_exploring() -> None:
    def drops(x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        return x.sin()

    with pytest.raises(KeyboardInterrupt):
        rx.explore(drops, (torch.ones(8),))
