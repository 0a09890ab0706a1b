"""Remembers keyboard interrupts: compilers catch what is raised while they run."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self


class Interrupts:
    """A block that remembers an interrupt from the keyboard, which is raised as ever.

    Dynamo and Inductor run callbacks in which Python drops whatever is raised; work that asks ``seen`` ends all the
    same. Off the main thread, where no signal arrives, nothing is done.
    """

    def __init__(self) -> None:
        self._seen = False
        self._before: Any = None

    def __enter__(self) -> Self:
        """Begin to listen."""
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        """Listen no longer; who listened before does again."""
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def seen(self) -> bool:
        """Whether there was an interrupt."""
        return self._seen

    def raise_again(self) -> None:
        """Raise the interrupt again, if there was one.

        Raises:
            KeyboardInterrupt: there was one.
        """
        if self._seen:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._seen = True
        pass_on = self._before if callable(self._before) else signal.default_int_handler
        pass_on(number, frame)
