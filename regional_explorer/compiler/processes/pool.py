"""Compiles distinct partitions in several processes, where the machine has the cores and it pays.

Helpers compile pieces into Inductor's caches on disk. What comes out does not depend on them: this process compiles
every piece as it would alone, and finds in the cache what a helper has made; where one failed, ended or disagreed about
the key, it compiles cold. Threads cannot do it: two compiles at once in one process break Inductor (2.13:
"CURRENT_PATCHER is None").
"""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Self

import torch

from regional_explorer.compiler.artifacts.artifact import Artifact
from regional_explorer.compiler.processes.child import Child, can_have_children
from regional_explorer.torch_api import UNSENDABLE, Settings, caches_are_on

MOST_HELPERS = 4
"""Each takes some 450 MB of memory. With 0 this process compiles alone."""

START_S = 12.0
"""What a helper costs before its first piece, in seconds of one core: importing torch and Inductor (7 to 14 s).

With 8 s, five pieces of ResNet of 3.8 s each got a helper on two cores, and nothing was won.
"""

POLL_S = 0.1
"""So often a wait looks whether it was cancelled."""


class WorkQueue:
    """The artifacts still to make, by key: this process takes them from the front, helpers from the back."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._changed = threading.Condition()
        self._left = list(keys)
        self._lent: set[str] = set()
        self._made: deque[tuple[str, float | None]] = deque()

    @property
    def left(self) -> list[str]:
        """What nobody has taken yet."""
        with self._changed:
            return list(self._left)

    def take(self, patience_s: float, cancelled: Callable[[], bool]) -> tuple[str, float | None] | None:
        """Return what this process does next, and the seconds of a helper that has compiled it cold, if one has.

        What helpers have made comes first: it takes no time. What one is busy with is waited for, as two compiles of
        one piece would only wait for each other's locks.

        Raises:
            TimeoutError: a helper was waited for as long as ``patience_s``.
        """
        until = time.monotonic() + patience_s
        with self._changed:
            while not cancelled():
                if self._made:
                    return self._made.popleft()
                if self._left:
                    return self._left.pop(0), None
                if not self._lent:
                    return None
                if time.monotonic() > until:
                    raise TimeoutError
                self._changed.wait(POLL_S)
        return None

    def lend(self, among: Container[str]) -> str | None:
        """Return what a helper does next, None when there is nothing left for it."""
        with self._changed:
            key = next((key for key in reversed(self._left) if key in among), None)
            if key is not None:
                self._left.remove(key)
                self._lent.add(key)
            return key

    def give_back(self, key: str, seconds: float | None) -> None:
        """Take back what was lent, with the seconds of its compile, or with None if it is still to be made."""
        with self._changed:
            self._lent.discard(key)
            self._made.append((key, seconds))
            self._changed.notify_all()


class CompilePool:
    """This process and, once they pay, its helpers, over one compile; a block at whose end all helpers are gone.

    ``sendable`` returns what a helper is sent for a key, or None where only this process may compile it.
    """

    def __init__(self, keys: Iterable[str], sendable: Callable[[str], bytes | None]) -> None:
        self._work = WorkQueue(keys)
        self._sendable = sendable
        self._helpers = ExitStack()
        self._started = time.monotonic()
        self._cold: list[float] = []
        self._asked = self._helped = False

    def __enter__(self) -> Self:
        """Start nothing yet."""
        return self

    def __exit__(self, *_error: object) -> None:
        """End the helpers, whatever they are at."""
        self._helpers.close()

    def turns(self, cancelled: Callable[[], bool]) -> Iterator[tuple[str, float | None]]:
        """Yield what this process compiles next, until all is done or ``cancelled``, each with what ``take`` tells."""
        while True:
            try:
                # A helper that hangs costs at most as much again as this process has worked by then.
                turn = self._work.take(time.monotonic() - self._started, cancelled)
            except TimeoutError:
                self._helpers.close()
                continue
            if turn is None:
                return
            yield turn

    def credited(self, artifact: Artifact, ahead_s: float | None) -> Artifact:
        """Return what this process has compiled with what it really cost: ``ahead_s``, if a helper has done it.

        It is cold then too: it is in the caches only because the helper has just put it there.
        """
        if ahead_s is None:
            if artifact.cache == "cold":
                self._note_cold(artifact.seconds)
        elif artifact.cache == "warm":
            return replace(artifact, cache="cold", seconds=ahead_s)
        else:
            # The keys disagree, so that all the helpers do is done twice.
            self._helpers.close()
        return artifact

    def stop_workers(self) -> bool:
        """End the helpers; tell whether there were any: what failed beside them is worth another try without."""
        helped, self._helped = self._helped, False
        self._helpers.close()
        return helped

    def _note_cold(self, seconds: float) -> None:
        """Get help if the pieces left are worth it.

        Before the first one that was nowhere in the caches nothing is known: all may be there.
        """
        self._cold.append(seconds)
        mean = sum(self._cold) / len(self._cold)
        left = self._work.left
        if not self._asked and helpers_worth(len(left), mean, cores()) and can_help():
            self._asked = True
            pieces = {key: sent for key in left if (sent := self._sendable(key)) is not None}
            self._start(helpers_worth(len(pieces), mean, cores()), pieces)

    def _start(self, count: int, pieces: Mapping[str, bytes]) -> None:
        # Settings that cannot be sent, such as a pass of the user's, and processes that cannot be had: no help then.
        with contextlib.suppress(OSError, *UNSENDABLE):
            settings = pickle.dumps(Settings.now())
            for _ in range(count):
                self._helpers.callback(PoolWorker(self._work, pieces, settings).end)
                self._helped = True


class PoolWorker:
    """One helper process, and the thread that talks to it.

    Raises:
        OSError: it could not be started.
    """

    def __init__(self, work: WorkQueue, pieces: Mapping[str, bytes], settings: bytes) -> None:
        self._work = work
        self._pieces = pieces
        self._child = Child("regional_explorer.compiler.processes.pool_worker", answers=True)
        self._thread = threading.Thread(
            target=self._talk, args=(settings,), name="regional-explorer-helper", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """End the process, whatever it is at, and the thread with it."""
        self._child.end()
        self._thread.join()

    def _talk(self, settings: bytes) -> None:
        key = None
        try:
            self._child.send(settings)
            self._child.receive()
            while (key := self._work.lend(self._pieces)) is not None:
                self._child.send(self._pieces[key])
                self._work.give_back(key, self._child.receive())
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            # It has ended, by itself or by us, in the middle of whatever it said.
            if key is not None:
                self._work.give_back(key, None)
        finally:
            self._child.end()


def helpers_worth(pieces: int, piece_s: float, cores: int) -> int:
    """Return how many helpers pay for ``pieces`` to compile, of ``piece_s`` seconds each: none for an edit or two.

    With ``n`` helpers, work of ``w`` seconds is done after ``(w + n * START_S) / (n + 1)``. At the bound of two
    ``START_S`` that is three quarters of ``w`` with one helper, and less with more; each gets two pieces at least.
    """
    if pieces * piece_s < 2 * START_S:
        return 0
    return max(0, min(pieces // 2, cores - 1, MOST_HELPERS))


def can_help() -> bool:
    """Tell whether what another process compiles would be found here.

    With a graphics card it would not: Inductor's keys name it, and helpers do not touch it.
    """
    return can_have_children() and caches_are_on() and not torch.cuda.is_available()


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
