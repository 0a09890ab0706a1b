"""Compiles the pieces of a search in other processes, on this machine or on others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass, field

from regional_explorer.compiler.artifact import ArtifactStore, failure_text
from regional_explorer.compiler.compilation import record_overlap, warm_toolchain
from regional_explorer.compiler.run import Run
from regional_explorer.compiler.shipment import Delivery, Values, compile_shipment, receive, shipment_of, unload
from regional_explorer.compiler.workers import (
    AnyExecutor,
    GivenUpError,
    LostWorkerError,
    Workers,
    can_have_workers,
    cores,
    results,
)
from regional_explorer.compiler.workpiece import WantedArtifact
from regional_explorer.style.formats import duration
from regional_explorer.torch_api.shipping import ShipmentError
from regional_explorer.torch_api.torch_config import Settings

MOST_PROCESSES = 4
"""The maximum number of processes started in place of a broken executor."""
TIMEOUT_FACTOR = 5.0
LEAST_TIMEOUT_S = 60.0
"""A piece is given up if no task is completed for this time and for ``TIMEOUT_FACTOR`` times the longest compile."""

Sent = Mapping[str, tuple[WantedArtifact, bytes]]
"""The items that were sent, by the key of their artifact."""


@dataclass
class Crew:
    """Compiles pieces in other processes, where a crash, a hang or too much memory costs one piece only.

    A process of our own compiles what a given executor loses or cannot compile, and everything once the executor is
    broken. Pieces that cannot be sent are left to this process; ``remarks`` counts them by reason. ``given_up`` has the
    keys of failures that may not be the fault of the piece. ``longest_s`` is the longest compile so far. Call ``close``
    at the end.
    """

    executor: AnyExecutor
    longest_s: float = 0.0
    remarks: Counter[str] = field(default_factory=Counter)
    given_up: set[str] = field(default_factory=set)
    _own: Workers | None = None

    def close(self) -> None:
        """End our own processes; a given executor is left as it is."""
        if self._own is not None:
            self._own.shutdown()

    def start(self) -> None:
        """Let our own processes start Inductor in the background."""
        for _ in range(self.executor if isinstance(self.executor, int) else 0):
            self._workers().submit(warm_toolchain, "cpu")

    def compile(
        self,
        todo: Sequence[WantedArtifact],
        store: ArtifactStore,
        values_of: Callable[[WantedArtifact], Values | None],
        run: Run,
    ) -> Sequence[WantedArtifact]:
        """Compile pieces, and keep their artifacts or failures; return the pieces that have to be compiled here.

        These include the pieces that were not reached before ``run`` was cancelled.
        """
        if self.executor == 0 or not todo:
            return todo
        began_s, settings, delivered, sent = (
            time.monotonic(),
            Settings.now(),
            list[str](),
            dict[str, tuple[WantedArtifact, bytes]](),
        )
        for wanted in todo:
            try:
                sent[wanted.key] = wanted, shipment_of(wanted, settings, values_of)
            except ShipmentError as why:
                self.remarks[str(why)] += 1
        for wanted, delivery in self._deliveries(sent, run):
            try:
                unload(delivery, wanted, store)
            except Exception as error:  # noqa: BLE001 - loaded code may raise anything; it is compiled here
                self.remarks[failure_text(error)] += 1
                continue
            if delivery.made is not None:
                self.longest_s = max(self.longest_s, delivery.made.seconds)
                delivered.append(wanted.key)
        record_overlap(store, delivered, time.monotonic() - began_s)
        return [item for item in todo if item.key not in store.artifacts and item.key not in store.failures]

    def _deliveries(self, sent: Sent, run: Run) -> Iterator[tuple[WantedArtifact, Delivery]]:
        """Yield deliveries in the order in which they arrive."""
        left = dict(sent)
        if isinstance(self.executor, Executor):
            for key, result in self._results(self.executor, sent, run):
                wanted, _ = left[key]
                if isinstance(result, bytes):
                    yield wanted, receive(result)
                elif isinstance(result, GivenUpError) or not can_have_workers():
                    yield wanted, self._failed_delivery(key, result)
                else:
                    self.remarks[f"the executor failed: {failure_text(result)}"] += 1
                    if isinstance(result, BrokenExecutor):
                        self.executor = min(cores(), MOST_PROCESSES)
                    continue
                del left[key]
        for key, result in self._results(self._workers(), left, run):
            wanted, _ = left[key]
            if isinstance(result, bytes):
                yield wanted, receive(result)
            elif isinstance(result, LostWorkerError | GivenUpError):
                yield wanted, self._failed_delivery(key, result)
            else:
                yield wanted, Delivery(refusal=failure_text(result))

    def _failed_delivery(self, key: str, error: Exception) -> Delivery:
        if not (isinstance(error, LostWorkerError) and error.crashed):
            self.given_up.add(key)
        if isinstance(error, GivenUpError):
            return Delivery(failure=f"given up: no result for {duration(error.seconds)}")
        return Delivery(failure=str(error) if isinstance(error, LostWorkerError) else failure_text(error))

    def _results(self, executor: Executor, sent: Sent, run: Run) -> Iterator[tuple[str, bytes | Exception]]:
        contents = {key: content for key, (_, content) in sent.items()}
        return results(executor, compile_shipment, contents, run, lambda: self._timeout_s)

    @property
    def _timeout_s(self) -> float:
        return max(LEAST_TIMEOUT_S, TIMEOUT_FACTOR * self.longest_s)

    def _workers(self) -> Workers:
        if self._own is None:
            self._own = Workers(self.executor if isinstance(self.executor, int) else 1)
        return self._own
