from __future__ import annotations

import contextlib
import signal
import threading

import pytest

from regional_explorer.command.interrupt import Interrupts


def test_an_interrupt_is_raised_and_remembered() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        assert not interrupts.seen()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert interrupts.seen()
    assert signal.getsignal(signal.SIGINT) is before


def test_one_that_was_caught_is_remembered_all_the_same() -> None:
    with Interrupts() as interrupts:
        with contextlib.suppress(BaseException):  # as a compiler does
            signal.raise_signal(signal.SIGINT)
        assert interrupts.seen()


def test_a_handler_of_the_users_own_is_asked() -> None:
    request: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: request.append(number))
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
        assert request == [signal.SIGINT]
        assert interrupts.seen()
    finally:
        signal.signal(signal.SIGINT, before)


def test_off_the_main_thread_nothing_is_done() -> None:
    seen: list[bool] = []

    def work() -> None:
        with Interrupts() as interrupts:
            seen.append(interrupts.seen())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
