"""Lets one thread at a time trace, compile or measure an exploration, and protects a plan from edits meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from regional_explorer.compiler.run import Run, interruptible
from regional_explorer.errors import BusyError
from regional_explorer.torch_api.compile_lock import acquired

_LET_IN_S = 0.5
"""The maximum seconds that a search waits before its next turn, so that waiting threads get theirs."""
_POLL_S = 0.05


class ExclusiveUse:
    """The right of one thread at a time to trace, compile or measure an exploration.

    A turn waits for traces and compiles of other threads, but not for a measurement: timed work of a button runs on
    the main thread between cells, so a cell that waited for it would wait forever. During a measurement the plan cannot
    be edited either: its samples would be of two plans.

    A search takes a turn for each of its steps. Between the steps the plan can be edited, and other threads may compile
    and measure. Only a call that would replace the search's trace is refused until the search ends.

    ``give_way`` cancels a running measurement that nobody asked for; the turn then waits until that has ended.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._editing = threading.RLock()
        self._measuring = ""
        self._waiting: set[int] = set()
        self._searching: tuple[str, int] | None = None
        self.give_way: Callable[[], None] | None = None

    @contextmanager
    def turn(self, run: Run, measuring: str = "") -> Iterator[Run]:
        """Context manager: the turn to trace or compile, or to measure in the method ``measuring`` of the exploration.

        It yields ``run``, which a keyboard interrupt cancels too; a run that was cancelled before its turn stays
        cancelled. If the method calls another method of the exploration, messages name the first.

        Raises:
            BusyError: another thread measures.
            KeyboardInterrupt: at the end, if an interrupt was dropped inside.
        """
        me = threading.get_ident()

        def on_wait() -> None:
            self._refuse_while_measuring()
            self._waiting.add(me)
            run.waiting()

        if measuring:
            self._refuse_while_the_main_thread_searches(measuring)
        with interruptible(run) as run, ExitStack() as at_the_end:
            at_the_end.callback(self._waiting.discard, me)

            def cancelled() -> bool:
                self._refuse_while_measuring()
                return run.cancelled()

            with acquired(self._lock, cancelled, on_wait) as may_begin:
                self._waiting.discard(me)
                if not may_begin:
                    yield replace(run, cancelled=lambda: True)
                    return
                outer = self._measuring
                with self._editing:  # an edit that has begun is completed first
                    self._measuring = outer or measuring
                try:
                    yield run
                finally:
                    self._measuring = outer

    @contextmanager
    def searching(self, method: str) -> Iterator[None]:
        """Context manager for the search of ``method``, which takes a turn for each step; a second search is refused.

        Raises:
            BusyError: another search is under way.
        """
        self.refuse_while_searching("searched a second time")
        self._searching = method, threading.get_ident()
        try:
            yield
        finally:
            self._searching = None

    @contextmanager
    def step(self, run: Run, measuring: str = "") -> Iterator[None]:
        """Context manager: a turn of a search; waiting threads and measurements of other threads come first.

        Raises:
            BusyError: another thread measures and waits for the main thread, which is the calling thread.
            concurrent.futures.CancelledError: the search was cancelled before its turn came.
        """
        until_s = time.monotonic() + _LET_IN_S
        while self._waiting and time.monotonic() < until_s:
            time.sleep(_POLL_S)
        with ExitStack() as turn:
            while True:
                try:
                    taken = turn.enter_context(self.turn(run, measuring))
                    break
                except BusyError:
                    if _is_main(threading.get_ident()):
                        raise
                if run.cancelled():
                    raise CancelledError
                time.sleep(_POLL_S)
            if taken.cancelled():
                raise CancelledError
            yield

    def refuse_while_searching(self, refused: str) -> None:
        """Raise BusyError while a search runs, because ``refused`` (a participle) would take away its trace."""
        if self._searching is not None:
            raise BusyError(
                f"ex.{self._searching[0]}() is searching. Until it ends, the exploration can be edited and compiled, "
                f"but not {refused}: wait for it, or cancel it where it was started, then try again."
            )

    def _refuse_while_the_main_thread_searches(self, measuring: str) -> None:
        """Raise BusyError if the main thread searches and the calling thread is another.

        Another thread's measurement runs on the main thread, between cells: the search would wait for the measurement,
        and the measurement for the end of the search's cell.
        """
        search = self._searching
        if search is not None and _is_main(search[1]) and threading.get_ident() != search[1]:
            self.refuse_while_searching(f"measured by ex.{measuring}()")

    @contextmanager
    def editing(self) -> Iterator[None]:
        """Context manager: while the block changes the plan, from reading to replacing it, edits of other threads wait.

        Raises:
            BusyError: a measurement is running.
        """
        if self._cancel_if_it_gives_way():
            with self._lock:  # before the plan's lock: a measurement that begins takes both in this order
                pass
        with self._editing:
            self._refuse_while_measuring()
            yield

    def _cancel_if_it_gives_way(self) -> bool:
        """Cancel the running measurement if it gives way; return whether it does."""
        give_way = self.give_way
        if give_way is not None:
            give_way()
        return give_way is not None

    def _refuse_while_measuring(self) -> None:
        if self._measuring and not self._cancel_if_it_gives_way():
            raise BusyError(
                f"ex.{self._measuring}() is measuring. Until it ends, nothing else can edit, trace, compile, measure "
                "or close the exploration: wait for it, or cancel it where it was started, then try again."
            )


def _is_main(thread: int) -> bool:
    return thread == threading.main_thread().ident
