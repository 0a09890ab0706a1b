"""A long run: its interrupts, also those that code inside it drops, as compilers do; its reports."""

from __future__ import annotations

import io
import signal

import pytest
import torch

import regional_explorer as rx
from regional_explorer.compiler.run import PLAIN_RUN, REPORT_INTERVAL_S, LogProgress, Throttle, interruptible
from tests.shared import programs
from tests.ui.methods import METHODS


def drop_an_interrupt() -> None:
    """Raise an interrupt and drop it, as a callback of a compiler does."""
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_interrupt_handlers_of_the_user_are_called_and_kept() -> None:
    signals: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: signals.append(number))
    try:
        with interruptible(PLAIN_RUN) as run:
            signal.raise_signal(signal.SIGINT)
            assert run.cancelled()
        assert signals == [signal.SIGINT]
        with interruptible(PLAIN_RUN):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        with interruptible(PLAIN_RUN) as run:  # ignored interrupts stay ignored
            signal.raise_signal(signal.SIGINT)
            assert not run.cancelled()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.compiles
def test_a_dropped_interrupt_still_ends_every_method() -> None:
    ex = rx.explore(programs.neighbours, programs.pair(grad=False))
    steps_by_method: dict[str, list[str]] = {}
    handler = signal.getsignal(signal.SIGINT)
    for name, method in METHODS.items():
        steps = steps_by_method[name] = []

        def drop_first_interrupt(doing: str, _fraction: float, steps: list[str] = steps) -> None:
            steps.append(doing)
            if len(steps) == 1:
                drop_an_interrupt()

        with pytest.raises(KeyboardInterrupt):
            method(ex, rx.Run(progress=drop_first_interrupt))
        assert signal.getsignal(signal.SIGINT) is handler
        if name == "benchmark":
            ex.benchmark(("eager", "regional", "full"), 0.05)
    assert {name: steps for name, steps in steps_by_method.items() if len(steps) > 1} == {}


def test_a_dropped_interrupt_still_ends_exploring() -> None:
    def drop_first_interrupt(x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            drop_an_interrupt()
        return x.sin()

    with pytest.raises(KeyboardInterrupt):
        rx.explore(drop_first_interrupt, (torch.ones(8),))


# ------------------------------------------------------------------------------------------------------------- reports


def test_new_kinds_of_work_are_not_throttled() -> None:
    shown: list[str] = []
    now_s = 10.0
    throttle = Throttle(lambda doing, _: shown.append(doing), clock=lambda: now_s)
    for doing in ("compiling a", "compiling b", "round 1", "round 2"):
        throttle(doing, 0.1)
    now_s += REPORT_INTERVAL_S
    throttle("round 3", 0.3)
    throttle("round 4", 0.4)
    assert shown == ["compiling a", "compiling b", "round 1", "round 3"]


def test_a_log_gets_one_line_per_kind_of_work() -> None:
    log = io.StringIO()
    progress = LogProgress(log)
    for doing in ("compiling a", "round 1", "round 22"):
        progress(doing, 0.5)
    assert log.getvalue() == "compiling a\nround 1\n"
