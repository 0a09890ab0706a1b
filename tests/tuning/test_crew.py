"""Pieces of a search that other processes compile: failures there, and which process takes over."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import regional_explorer as rx
from regional_explorer.compiler import shipment, workers
from regional_explorer.compiler.artifact import ArtifactStore
from regional_explorer.compiler.run import PLAIN_RUN, Run
from regional_explorer.compiler.workers import LostWorkerError, Workers, checked_executor
from regional_explorer.compiler.workpiece import WantedArtifact
from regional_explorer.errors import InvalidArgumentError
from regional_explorer.record.tuning import Outcome, Try, Tuning
from regional_explorer.tables.tuning import search_notes
from regional_explorer.tuning import crew as crews
from regional_explorer.tuning.crew import Crew
from tests.shared.fakes import TickingClock
from tests.tuning.faults import CRASH, FAULT_KEY, HANG, LOST, MEMORY, NAN, WRONG, compile_with_fault


def step(x: torch.Tensor) -> torch.Tensor:
    with rx.region("middle"):
        y = F.gelu(x) * 2
    return (y @ x).softmax(-1)


@pytest.fixture
def wanted() -> Iterator[list[WantedArtifact]]:
    """Two pieces of a call."""
    ex = rx.explore(step, (torch.randn(8, 8, requires_grad=True),))
    program = ex.live.program
    program.record_layouts()
    yield [program.wanted(key, switch) for switch, key in program.keys().items()]
    ex.close()


def fail_to_compile(_content: bytes) -> bytes:
    """Stand in for a worker that can compile no piece."""
    return shipment._HEADER + pickle.dumps(shipment.Delivery(failure="no kernel"))


class FakeWorkers(Workers):
    """Runs each task at once, in this thread.

    ``outcome_of`` takes the number of a task and returns True, an error that it raises, or None if it never ends.
    """

    def __init__(self, outcome_of: Callable[[int], Exception | bool | None] = lambda _number: True) -> None:
        self.outcome_of = outcome_of
        self.submitted = 0
        self.ended: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.submitted += 1
        outcome = self.outcome_of(self.submitted)
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        elif outcome:
            future.set_result(fail_to_compile(*args))
        else:
            future.set_running_or_notify_cancel()
        return future

    def end(self, future: Future[Any]) -> None:
        self.ended.append(future)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.submitted = -1


class ClosedWorkers(FakeWorkers):
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        raise RuntimeError("cannot schedule new futures after shutdown")


@pytest.fixture
def own_workers(monkeypatch: pytest.MonkeyPatch) -> FakeWorkers:
    """Fakes in place of the processes of our own."""
    found = FakeWorkers()
    monkeypatch.setattr(crews, "Workers", lambda _count: found)
    return found


def compile_all(
    crew: Crew, wanted: list[WantedArtifact], run: Run = PLAIN_RUN
) -> tuple[list[WantedArtifact], ArtifactStore]:
    """Return the pieces that were not compiled, and the store with the results of the others."""
    store = ArtifactStore()
    return list(crew.compile(wanted, store, lambda _wanted: {}, run)), store


def test_tasks_that_an_executor_loses_run_in_our_processes(
    wanted: list[WantedArtifact], own_workers: FakeWorkers
) -> None:
    """The piece or somebody else may have ended the executor's process: a process of ours shows which."""
    executor = FakeWorkers(lambda number: KeyError("its worker died") if number == 1 else True)
    crew = Crew(executor)
    left, store = compile_all(crew, wanted)
    assert not left
    assert [store.failures[one.key] for one in wanted] == ["no kernel", "no kernel"]
    assert (executor.submitted, own_workers.submitted) == (2, 1)
    assert dict(crew.remarks) == {"the executor failed: KeyError: 'its worker died'": 1}
    compile_all(crew, wanted)
    assert (executor.submitted, own_workers.submitted) == (4, 1)


@pytest.mark.parametrize("executor", [ClosedWorkers(), FakeWorkers(lambda _number: BrokenExecutor("terminated"))])
def test_a_broken_executor_gets_no_further_tasks(
    wanted: list[WantedArtifact], own_workers: FakeWorkers, executor: FakeWorkers
) -> None:
    crew = Crew(executor)
    assert compile_all(crew, wanted)[0] == []
    assert own_workers.submitted == len(wanted)
    assert sum(crew.remarks.values()) == len(wanted)
    submitted = executor.submitted
    assert compile_all(crew, wanted)[0] == []
    assert (executor.submitted, own_workers.submitted) == (submitted, 2 * len(wanted))


def test_tasks_that_an_executor_loses_fail_if_workers_cannot_start(
    wanted: list[WantedArtifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crews, "can_have_workers", lambda: False)
    crew = Crew(FakeWorkers(lambda _number: KeyError("its worker died")))
    left, store = compile_all(crew, wanted)
    assert not left
    assert set(store.failures.values()) == {"KeyError: 'its worker died'"}
    assert crew.given_up == store.failures.keys()


@pytest.mark.parametrize("is_crash", [True, False])
def test_a_task_fails_when_its_worker_is_lost(
    wanted: list[WantedArtifact], own_workers: FakeWorkers, is_crash: bool
) -> None:
    own_workers.outcome_of = lambda number: LostWorkerError("it ended", crashed=is_crash) if number == 1 else True
    crew = Crew(1)
    left, store = compile_all(crew, wanted)
    assert not left
    assert [store.failures[one.key] for one in wanted] == ["it ended", "no kernel"]
    assert crew.given_up == (set() if is_crash else {wanted[0].key})


@pytest.mark.parametrize(("least_s", "longest_s"), [(0.3, 0.0), (0.1, 0.3 / crews.TIMEOUT_FACTOR)])
def test_tasks_without_a_result_in_time_are_given_up(
    wanted: list[WantedArtifact],
    own_workers: FakeWorkers,
    monkeypatch: pytest.MonkeyPatch,
    least_s: float,
    longest_s: float,
) -> None:
    """The time allowed is a multiple of the longest task so far, and at least ``LEAST_PATIENCE_S``."""
    monkeypatch.setattr(crews, "LEAST_TIMEOUT_S", least_s)
    own_workers.outcome_of = lambda number: None if number == 1 else True
    crew = Crew(2)
    crew.longest_s = longest_s
    left, store = compile_all(crew, wanted)
    assert not left
    assert store.failures[wanted[0].key] == "given up: no result for 300 ms"
    assert store.failures[wanted[1].key] == "no kernel"
    assert crew.given_up == {wanted[0].key}
    assert len(own_workers.ended) == 1


def test_a_cancelled_search_ends_running_tasks(wanted: list[WantedArtifact], own_workers: FakeWorkers) -> None:
    own_workers.outcome_of = lambda _number: None
    left, store = compile_all(Crew(2), wanted, Run(cancelled=lambda: own_workers.submitted == len(wanted)))
    assert left == wanted
    assert not store.failures
    assert len(own_workers.ended) == len(wanted)


def test_invalid_executors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = FakeWorkers()
    assert checked_executor(executor) is executor
    assert [checked_executor(number) for number in (0, 3)] == [0, 3]
    for wrong in (-1, True, "dask", 2.0, None):
        with pytest.raises(InvalidArgumentError, match=r"Client.get_executor\(\)"):
            checked_executor(wrong)
    monkeypatch.setattr(workers, "can_have_workers", lambda: False)
    assert checked_executor(0) == 0
    with pytest.raises(InvalidArgumentError, match="Linux and macOS"):
        checked_executor(2)


def test_notes_say_which_pieces_the_executor_could_not_compile() -> None:
    text = " ".join(search_notes(Tuning((), remarks={"it has dynamic sizes": 2, "it runs on cuda": 1})))
    assert "The executor could not compile 3 pieces" in text
    assert "it has dynamic sizes (2); it runs on cuda (1)" in text


# ------------------------------------------------------------------------------------------------------ real processes

OUTCOMES = {
    CRASH: (Outcome.FAILED, "its process ended by SIGABRT"),
    LOST: (Outcome.FAILED, "its process ended by SIGKILL"),
    MEMORY: (Outcome.FAILED, "MemoryError"),
    WRONG: (Outcome.WRONG, "output: off by up to"),
    NAN: (Outcome.WRONG, "output: "),
    HANG: (Outcome.FAILED, "given up: no result for"),
}
INERT = {FAULT_KEY: 60}


def search_for_plan(keys: list[dict[str, Any]], folder: Path, **arguments: Any) -> Tuning:
    with torch.no_grad():
        ex = rx.explore(step, (torch.randn(16, 16),), plan=rx.Plan())
        found = ex.tune(20.0, keys=keys, ledger=folder / "tries.jsonl", **arguments).record
        assert found.plan is not None
        ex.plan = found.plan
        torch.testing.assert_close(ex.compiled(*ex.live.call.args), step(*ex.live.call.args))
        ex.close()
    return found


def tries_by_fault(found: Tuning) -> dict[int, Try]:
    """Return the tries with a fault, by fault."""
    configs = ((one, one.plan.regions[0].config) for one in found.tries if one.plan)
    return {config[FAULT_KEY]: one for one, config in configs if FAULT_KEY in config}


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("processes", "faults"),
    [(1, (WRONG,)), pytest.param(2, (CRASH, LOST, MEMORY, NAN, HANG), marks=pytest.mark.slow)],
)
def test_a_failure_in_a_process_fails_only_that_try(
    slow_references: TickingClock,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    processes: int,
    faults: tuple[int, ...],
) -> None:
    monkeypatch.setattr(crews, "compile_shipment", compile_with_fault)
    if HANG in faults:
        monkeypatch.setattr(crews, "LEAST_TIMEOUT_S", 30.0)
        monkeypatch.setattr(crews, "TIMEOUT_FACTOR", 0.0)
    found = search_for_plan([*({FAULT_KEY: one} for one in faults), INERT], tmp_path, executor=processes)
    tries = tries_by_fault(found)
    for one in faults:
        outcome, why = OUTCOMES[one]
        assert tries[one].outcome is outcome, tries[one]
        assert tries[one].why.startswith(why)
        assert found.plan != tries[one].plan
    assert tries[INERT[FAULT_KEY]].outcome is Outcome.SAME_CODE
    assert not found.remarks


@pytest.mark.compiles
@pytest.mark.slow
def test_any_number_of_processes_finds_the_same_plan(slow_references: TickingClock, tmp_path: Path) -> None:
    found = []
    for number in range(3):
        slow_references.time_s = 0.0
        folder = tmp_path / str(number)
        folder.mkdir()
        found.append(search_for_plan([INERT, {"size_asserts": False}], folder, executor=number))
    for one in found[1:]:
        assert one.plan == found[0].plan
        assert {title: tried.outcome for title, tried in one.by_title.items()} == {
            title: tried.outcome for title, tried in found[0].by_title.items()
        }


@pytest.mark.compiles
@pytest.mark.slow
def test_a_killed_dask_worker_loses_only_its_try(
    slow_references: TickingClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Dask gives up a piece that has ended two of its workers; a process of ours shows how."""
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    monkeypatch.setattr(crews, "compile_shipment", compile_with_fault)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        found = search_for_plan([{FAULT_KEY: LOST}, INERT], tmp_path, executor=client.get_executor())
    tries = tries_by_fault(found)
    assert (tries[LOST].outcome, tries[LOST].why) == (Outcome.FAILED, "its process ended by SIGKILL")
    assert tries[INERT[FAULT_KEY]].outcome is Outcome.SAME_CODE
    ((why, number),) = found.remarks.items()
    assert "KilledWorker" in why
    assert number == 1
