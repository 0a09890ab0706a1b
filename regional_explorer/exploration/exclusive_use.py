"""Lets one thread at a time trace, compile or measure an exploration, and keeps the plan while it is measured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from regional_explorer.compiler.run import Run, interruptible
from regional_explorer.errors import BusyError
from regional_explorer.torch_api.compile_lock import acquired


class ExclusiveUse:
    """The right of one thread at a time to trace, compile or measure an exploration.

    Traces and compiles of other threads are waited for. A measurement is not: timed work of a button runs on the main
    thread between cells, so a cell that waited for it would wait forever. While one runs the plan cannot be edited
    either, or its samples would be of two plans.

    ``give_way`` cancels the measurement that is running, if that was asked for by nobody: it is waited for.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._editing = threading.RLock()
        self._measuring = ""
        self.give_way: Callable[[], None] | None = None

    @contextmanager
    def turn(self, run: Run, measuring: str = "") -> Iterator[Run]:
        """Context manager: trace or compile, or, in the method ``measuring`` of the exploration, measure.

        It yields ``run``, which a keyboard interrupt cancels too, and which is cancelled for good if it was before its
        turn came. A method that calls another one keeps its name: it is the one that was called.

        Raises:
            BusyError: another thread measures.
            KeyboardInterrupt: at the end, if one was dropped inside.
        """

        def on_wait() -> None:
            self._refuse_while_measuring()
            run.waiting()

        with interruptible(run) as run:

            def cancelled() -> bool:
                self._refuse_while_measuring()
                return run.cancelled()

            with acquired(self._lock, cancelled, on_wait) as may_begin:
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
    def editing(self) -> Iterator[None]:
        """Context manager: change the plan, from reading it to replacing it; edits of other threads wait.

        Raises:
            BusyError: a measurement is running.
        """
        if self._gives_way():
            with self._lock:  # before the plan's: a measurement that begins takes both in this order
                pass
        with self._editing:
            self._refuse_while_measuring()
            yield

    def _gives_way(self) -> bool:
        """Cancel the measurement that is running, if it gives way; return whether it does."""
        give_way = self.give_way
        if give_way is not None:
            give_way()
        return give_way is not None

    def _refuse_while_measuring(self) -> None:
        if self._measuring and not self._gives_way():
            raise BusyError(
                f"ex.{self._measuring}() is measuring. Until it ends, nothing else can edit, trace, compile, measure "
                "or close the exploration: wait for it, or cancel it where it was started, then try again."
            )
