"""Kernel builds of one compile, on Inductor's own threads: they go on while the next partition is lowered."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any
from unittest import mock

import torch._inductor.config as inductor_config
from torch._inductor import codecache
from torch._inductor.async_compile import AsyncCompile

POLL_S = 0.1
"""Seconds between checks whether a wait was cancelled."""


class Builds:
    """The builds that the generated modules of one compile under ``config`` start.

    A module starts them when it is loaded, and then waits for them. In the block ``put_off`` it does not wait: ``load``
    does so later, and only then the module can be called.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = dict(config)
        self._waits: list[Callable[[], None]] = []
        self._futures: list[Future[Any]] = []
        self._spans: list[tuple[float, float]] = []
        self._lowered = self._loading = (0.0, 0.0)
        self._is_abandoned = self._is_incomplete = False

    @contextlib.contextmanager
    def put_off(self) -> Iterator[None]:
        """Context manager around the lowering: let modules not wait for their builds; hold the compile lock."""
        wait, submit = AsyncCompile.wait, AsyncCompile.submit

        def wait_later(compiler: AsyncCompile, scope: dict[str, Any]) -> None:
            if "__file__" not in scope:  # no module, but code that tunes kernels and calls them at once
                wait(compiler, scope)
                return
            self._waits.append(functools.partial(wait, compiler, scope))
            futures = (getattr(value, "future", value) for value in scope.values())
            self._futures += [future for future in futures if isinstance(future, Future)]

        def submit_build(_class: type, task: Callable[[], Any]) -> Any:
            if getattr(task, "func", None) is not codecache._worker_compile_cpp:
                return submit(task)
            future = submit(functools.partial(self._build, task))
            if isinstance(future, Future):  # with one compile thread the task is done by now
                self._futures.append(future)
            return future

        began = time.perf_counter()
        with (
            mock.patch.object(AsyncCompile, "wait", wait_later),
            mock.patch.object(AsyncCompile, "submit", classmethod(submit_build)),
            # A module that another compile has loaded, and maybe never waited for, is loaded anew.
            mock.patch.object(codecache.PyCodeCache, "modules_no_attr", {}),
        ):
            yield
        self._lowered = began, time.perf_counter()

    def _build(self, task: Callable[[], Any]) -> None:
        """Build a kernel, on a thread of Inductor's.

        Loading it repeats the task, which does what is left to do or raises what this one has raised: Inductor keeps
        the result for the rest of the process, and with it an error that an interrupt has caused.
        """
        if self._is_abandoned:
            self._is_incomplete = True
            return
        began = time.perf_counter()
        try:
            task()
        except Exception:  # noqa: BLE001 - raised when it is loaded
            self._is_incomplete = True
        self._spans.append((began, time.perf_counter()))

    @property
    def are_over(self) -> bool:
        """Whether no build is running or waiting."""
        return all(future.done() for future in self._futures)

    @property
    def are_complete(self) -> bool:
        """Whether everything is built."""
        return self.are_over and not self._is_incomplete

    def wait(self, cancelled: Callable[[], bool]) -> bool:
        """Wait until all builds are over; return False if cancelled meanwhile."""
        while not self.are_over:
            if cancelled():
                return False
            concurrent.futures.wait(self._futures, POLL_S)
        return True

    def abandon(self) -> None:
        """Skip the builds that have not begun."""
        self._is_abandoned = True

    def load(self) -> float:
        """Wait for the builds and load them; return the seconds of building and loading besides the lowering.

        They are those of this compile alone: not those in which its builds wait for others. Hold the compile lock.
        Zero if that is done already.

        Raises:
            Exception: a build failed.
        """
        if not self._waits:
            return 0.0
        began = time.perf_counter()
        with inductor_config.patch(self._config):
            for wait in self._waits:
                wait()
        self._waits.clear()
        self._loading = max([began, *(end for _, end in self._spans)]), time.perf_counter()
        return covered_s(self.spans) - covered_s([self._lowered])

    @property
    def spans(self) -> Sequence[tuple[float, float]]:
        """The spans of time of lowering, building and loading, each with its beginning and end."""
        return self._lowered, *self._spans, self._loading


def covered_s(spans: Iterable[tuple[float, float]]) -> float:
    """Return the seconds covered by at least one of the spans, each given by its beginning and end."""
    total, until = 0.0, 0.0
    for began, ended in sorted(spans):
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total
