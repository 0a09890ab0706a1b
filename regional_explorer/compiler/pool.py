"""The compile pool: compiles distinct partitions in helper processes if the machine has the cores and it saves time.

Helper processes compile pieces into Inductor's caches on disk. The results do not depend on them: this process
compiles every piece as it would alone, and finds in the cache what a helper has compiled; if a helper failed, ended or
had another cache key, it compiles cold. Threads cannot be used: two compiles at once in one process break Inductor
(2.13:
"CURRENT_PATCHER is None").
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import threading
import time
import timeit
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Self

import torch

from regional_explorer.compiler.artifact import Artifact
from regional_explorer.compiler.child import Child, can_have_children
from regional_explorer.record.artifact import ArtifactCompile
from regional_explorer.torch_api.config import Settings, caches_are_on
from regional_explorer.torch_api.shipping import UNSENDABLE

MOST_HELPERS = 4
"""Each takes some 450 MB of memory. With 0 this process compiles alone."""

PROBE = "def add(a, b):\n    return [x + y for x, y in zip(a, b, strict=True)]\n" * 100
"""Python code whose compile time shows how fast this machine runs Python."""

HELPER_START_PROBES = 1650
"""How often a helper could compile ``PROBE`` while it starts: imports of torch and Inductor run Python mostly.

The start took 4.5 s where the probe took 2.7 ms, and 7 to 14 s on a slower machine. With 8 s there, five pieces of
ResNet of 3.8 s each got a helper on two cores, which saved nothing.
"""

CANCEL_POLL_S = 0.1
"""Seconds between checks whether a wait was cancelled."""


class WorkQueue:
    """The artifacts still to compile, by key: this process takes them from the front, helpers from the back."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._changed = threading.Condition()
        self._left = list(keys)
        self._at_helpers: set[str] = set()
        self._finished: deque[tuple[str, ArtifactCompile | None]] = deque()

    @property
    def left(self) -> list[str]:
        """The keys that are not taken yet."""
        with self._changed:
            return list(self._left)

    def take(self, patience_s: float, cancelled: Callable[[], bool]) -> tuple[str, ArtifactCompile | None] | None:
        """Return the key that this process compiles next, with the record of a helper that has compiled it cold.

        Keys that helpers have finished come first: they take no time. At the end it waits for busy helpers, as two
        compiles of one piece would only wait for each other's locks.

        Raises:
            TimeoutError: a helper was still busy after ``patience_s``.
        """
        deadline = time.monotonic() + patience_s
        with self._changed:
            while not cancelled():
                if self._finished:
                    return self._finished.popleft()
                if self._left:
                    return self._left.pop(0), None
                if not self._at_helpers:
                    return None
                if time.monotonic() > deadline:
                    raise TimeoutError
                self._changed.wait(CANCEL_POLL_S)
        return None

    def take_for_helper(self, sendable_keys: Container[str]) -> str | None:
        """Return the key that a helper compiles next, None if there is none left for it."""
        with self._changed:
            key = next((key for key in reversed(self._left) if key in sendable_keys), None)
            if key is not None:
                self._left.remove(key)
                self._at_helpers.add(key)
            return key

    def finish_for_helper(self, key: str, helper_made: ArtifactCompile | None) -> None:
        """Record a helper's compile of ``key``; with None for ``helper_made`` it still has to be compiled here."""
        with self._changed:
            self._at_helpers.discard(key)
            self._finished.append((key, helper_made))
            self._changed.notify_all()


def can_help() -> bool:
    """Return whether this process would find in the cache what a helper compiles.

    With a GPU it would not: Inductor's keys contain its name, and helpers do not use it.
    """
    return can_have_children() and caches_are_on() and not torch.cuda.is_available()


@functools.cache
def helper_start_s() -> float:
    """Return about how long a helper takes until its first piece, in seconds of one core of this machine."""
    return HELPER_START_PROBES * min(timeit.repeat(lambda: compile(PROBE, "<probe>", "exec"), number=1, repeat=5))


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class HelperPolicy:
    """How many helper processes a compile may have, and how they are started.

    ``most`` is the maximum, ``start_s`` what one costs before its first piece, in seconds of one of the ``cores``;
    ``is_found`` returns whether this process finds what helpers compile, and ``start`` starts the process of one.
    """

    most: int = field(default_factory=lambda: MOST_HELPERS)
    start_s: Callable[[], float] = helper_start_s
    cores: int = field(default_factory=cores)
    is_found: Callable[[], bool] = can_help
    start: Callable[..., Child] = Child

    def number_for(self, pieces: int, piece_s: float) -> int:
        """Return how many helpers save time for ``pieces`` of ``piece_s`` seconds each: none after small edits.

        With ``n`` helpers, work of ``w`` seconds is done after ``(w + n * start_s) / (n + 1)``. At the bound of two
        ``start_s`` that is three quarters of ``w`` with one helper, and less with more; each gets two pieces at least.
        """
        number = max(0, min(pieces // 2, self.cores - 1, self.most))
        return number if number and pieces * piece_s >= 2 * self.start_s() else 0


class CompilePool:
    """Compiles in this process and, once that saves time, in helper processes; leaving the block ends them.

    ``sendable`` returns the serialized piece of a key for a helper, or None if only this process may compile it.
    """

    def __init__(
        self, keys: Iterable[str], sendable_piece: Callable[[str], bytes | None], policy: HelperPolicy | None = None
    ) -> None:
        self.work = WorkQueue(keys)
        self._policy = HelperPolicy() if policy is None else policy
        self._sendable_piece = sendable_piece
        self._helpers = ExitStack()
        self._started = time.monotonic()
        self._cold_seconds: list[float] = []
        self._decided = self._helped = False

    def __enter__(self) -> Self:
        """Return the pool; helpers are started later."""
        return self

    def __exit__(self, *_error: object) -> None:
        """End the helpers, busy or not."""
        self._helpers.close()

    def jobs(self, cancelled: Callable[[], bool]) -> Iterator[tuple[str, ArtifactCompile | None]]:
        """Yield each key that this process compiles, as ``take`` returns it, until done or ``cancelled``."""
        while True:
            try:
                # A helper that hangs costs at most as much time again as has passed until then.
                job = self.work.take(time.monotonic() - self._started, cancelled)
            except TimeoutError:
                self._helpers.close()
                continue
            if job is None:
                return
            yield job

    def with_cold_cost(self, artifact: Artifact, helper_made: ArtifactCompile | None) -> Artifact:
        """Return the artifact with the record of its cold compile: ``helper_made`` if a helper compiled it before.

        That counts as cold: it is in the caches only because the helper has just put it there.
        """
        made = artifact.made
        if helper_made is None:
            if made.cache == "cold":
                self._note_cold(made.seconds)
        elif made.cache == "warm":
            # This process, not the helper, has compared the key with known ones.
            return replace(
                artifact, made=replace(helper_made, artifact=made.artifact, nearest=made.nearest, changes=made.changes)
            )
        else:
            # The cache keys differ, so everything that helpers compile is compiled twice.
            self._helpers.close()
        return artifact

    def stop_helpers(self) -> bool:
        """End the helpers; return whether there were any: a compile that failed while they ran is then tried again."""
        helped, self._helped = self._helped, False
        self._helpers.close()
        return helped

    def _note_cold(self, seconds: float) -> None:
        """Record the time of a cold compile, and start helpers if the remaining pieces take long enough.

        Before the first cold compile nothing is known: all pieces may be in the caches.
        """
        self._cold_seconds.append(seconds)
        mean_s = sum(self._cold_seconds) / len(self._cold_seconds)
        keys_left = self.work.left
        if not self._decided and self._policy.number_for(len(keys_left), mean_s) and self._policy.is_found():
            self._decided = True
            pieces = {key: piece for key in keys_left if (piece := self._sendable_piece(key)) is not None}
            self._start_helpers(self._policy.number_for(len(pieces), mean_s), pieces)

    def _start_helpers(self, count: int, pieces: Mapping[str, bytes]) -> None:
        # No helpers if a setting, such as a pass of the user's, cannot be serialized, or no process can be started.
        with contextlib.suppress(OSError, *UNSENDABLE):
            settings = pickle.dumps(Settings.now())
            for _ in range(count):
                self._helpers.callback(PoolWorker(self._policy.start, self.work, pieces, settings).end)
                self._helped = True


class PoolWorker:
    """One helper process, and the thread that talks to it.

    Raises:
        OSError: it could not be started.
    """

    def __init__(
        self, start: Callable[..., Child], work: WorkQueue, pieces: Mapping[str, bytes], settings: bytes
    ) -> None:
        self._work = work
        self._pieces = pieces
        self._child = start("regional_explorer.compiler.pool_worker", answers=True)
        self._thread = threading.Thread(
            target=self._talk, args=(settings,), name="regional-explorer-helper", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """End the process, busy or not, and its thread."""
        self._child.end()
        self._thread.join()

    def _talk(self, settings: bytes) -> None:
        key = None
        try:
            self._child.send(settings)
            self._child.receive()
            while (key := self._work.take_for_helper(self._pieces)) is not None:
                self._child.send(self._pieces[key])
                self._work.finish_for_helper(key, self._child.receive())
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            # The helper has ended, by itself or by us, maybe in the middle of a message.
            if key is not None:
                self._work.finish_for_helper(key, None)
        finally:
            self._child.end()
