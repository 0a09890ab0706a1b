"""Lets one thread at a time trace, compile or measure an exploration, and keeps the plan while it is measured."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from regional_explorer.compiler.run import Run
from regional_explorer.errors import BusyError
from regional_explorer.torch_api.environment import acquired


class ExclusiveUse:
    """The right of one thread at a time to trace, compile or measure an exploration.

    Traces and compiles of other threads are waited for. A measurement is not: timed work of a button runs on the main
    thread between cells, so a cell that waited for it would wait forever. While one runs the plan cannot be edited
    either, or its samples would be of two plans.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._editing = threading.RLock()
        self._measuring = ""

    @contextmanager
    def compiling(self, run: Run) -> Iterator[bool]:
        """Context manager: trace or compile. It yields False if ``run`` was cancelled before it could begin.

        Raises:
            BusyError: another thread measures.
            KeyboardInterrupt: at the end, if one was dropped inside.
        """

        def on_wait() -> None:
            self._refuse_while_measuring()
            run.waiting()

        def cancelled() -> bool:
            self._refuse_while_measuring()
            return run.cancelled()

        with run.interrupts.raised_at_the_end(), acquired(self._lock, cancelled, on_wait) as may_begin:
            yield may_begin

    @contextmanager
    def measuring(self, method: str, run: Run) -> Iterator[bool]:
        """Context manager: measure, in a ``method`` of the exploration. It yields False as ``compiling`` does.

        A method that calls another one keeps its name: it is the one that was called.

        Raises:
            BusyError: another thread measures.
        """
        with self.compiling(run) as may_begin:
            if not may_begin:
                yield False
                return
            with self._editing:  # an edit that has begun is completed first
                outer, self._measuring = self._measuring, self._measuring or method
            try:
                yield True
            finally:
                self._measuring = outer

    @contextmanager
    def editing(self) -> Iterator[None]:
        """Context manager: change the plan, from reading it to replacing it; edits of other threads wait.

        Raises:
            BusyError: a measurement is running.
        """
        with self._editing:
            self._refuse_while_measuring()
            yield

    def _refuse_while_measuring(self) -> None:
        if self._measuring:
            raise BusyError(
                f"ex.{self._measuring}() is measuring. Until it ends, nothing else can edit, trace, compile, measure "
                "or close the exploration: wait for it, or cancel it where it was started, then try again."
            )
