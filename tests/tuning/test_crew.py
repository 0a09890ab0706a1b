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
from tests.tuning.planted import CRASH, HANG, KEY, LOST, MEMORY, NAN, WRONG, compile_planted


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


def delivering(_content: bytes) -> bytes:
    """Stand for a worker: find fault with any piece."""
    return shipment._HEADER + pickle.dumps(shipment.Delivery(failure="no kernel"))


class Planted(Workers):
    """Does each piece in this thread, but those of which ``plant`` returns an error, or None for no answer at all."""

    def __init__(self, plant: Callable[[int], Exception | bool | None] = lambda _number: True) -> None:
        self.plant = plant
        self.asked = 0
        self.ended: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.asked += 1
        outcome = self.plant(self.asked)
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        elif outcome:
            future.set_result(delivering(*args))
        else:
            future.set_running_or_notify_cancel()
        return future

    def end(self, future: Future[Any]) -> None:
        self.ended.append(future)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.asked = -1


class Full(Planted):
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        raise RuntimeError("cannot schedule new futures after shutdown")


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Planted:
    """What stands for our own processes."""
    found = Planted()
    monkeypatch.setattr(crews, "Workers", lambda _count: found)
    return found


def compiled(
    crew: Crew, wanted: list[WantedArtifact], run: Run = PLAIN_RUN
) -> tuple[list[WantedArtifact], ArtifactStore]:
    store = ArtifactStore()
    return list(crew.compile(wanted, store, lambda _wanted: {}, run)), store


def test_tasks_that_an_executor_loses_run_in_own_processes(wanted: list[WantedArtifact], own: Planted) -> None:
    """Perhaps the piece ended its process, perhaps somebody else did: an own process shows which."""
    given = Planted(lambda number: KeyError("its worker died") if number == 1 else True)
    crew = Crew(given)
    left, store = compiled(crew, wanted)
    assert not left
    assert [store.failures[one.key] for one in wanted] == ["no kernel", "no kernel"]
    assert (given.asked, own.asked) == (2, 1)
    assert dict(crew.remarks) == {"the executor failed: KeyError: 'its worker died'": 1}
    compiled(crew, wanted)
    assert (given.asked, own.asked) == (4, 1)


@pytest.mark.parametrize("given", [Full(), Planted(lambda _number: BrokenExecutor("terminated"))])
def test_a_broken_executor_is_not_asked_again(wanted: list[WantedArtifact], own: Planted, given: Planted) -> None:
    crew = Crew(given)
    assert compiled(crew, wanted)[0] == []
    assert own.asked == len(wanted)
    assert sum(crew.remarks.values()) == len(wanted)
    asked = given.asked
    assert compiled(crew, wanted)[0] == []
    assert (given.asked, own.asked) == (asked, 2 * len(wanted))


def test_tasks_that_an_executor_loses_fail_without_own_processes(
    wanted: list[WantedArtifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crews, "can_have_workers", lambda: False)
    crew = Crew(Planted(lambda _number: KeyError("its worker died")))
    left, store = compiled(crew, wanted)
    assert not left
    assert set(store.failures.values()) == {"KeyError: 'its worker died'"}
    assert crew.given_up == store.failures.keys()


@pytest.mark.parametrize("is_crash", [True, False])
def test_a_task_fails_when_its_own_process_is_lost(wanted: list[WantedArtifact], own: Planted, is_crash: bool) -> None:
    own.plant = lambda number: LostWorkerError("it ended", crashed=is_crash) if number == 1 else True
    crew = Crew(1)
    left, store = compiled(crew, wanted)
    assert not left
    assert [store.failures[one.key] for one in wanted] == ["it ended", "no kernel"]
    assert crew.given_up == (set() if is_crash else {wanted[0].key})


@pytest.mark.parametrize(("least_s", "longest_s"), [(0.3, 0.0), (0.1, 0.3 / crews.TIMEOUT_FACTOR)])
def test_tasks_without_an_answer_are_given_up(
    wanted: list[WantedArtifact], own: Planted, monkeypatch: pytest.MonkeyPatch, least_s: float, longest_s: float
) -> None:
    """After a multiple of the longest answer so far, and not before the least time."""
    monkeypatch.setattr(crews, "LEAST_TIMEOUT_S", least_s)
    own.plant = lambda number: None if number == 1 else True
    crew = Crew(2)
    crew.longest_s = longest_s
    left, store = compiled(crew, wanted)
    assert not left
    assert store.failures[wanted[0].key] == "given up: no result for 300 ms"
    assert store.failures[wanted[1].key] == "no kernel"
    assert crew.given_up == {wanted[0].key}
    assert len(own.ended) == 1


def test_a_cancelled_search_ends_running_tasks(wanted: list[WantedArtifact], own: Planted) -> None:
    own.plant = lambda _number: None
    left, store = compiled(Crew(2), wanted, Run(cancelled=lambda: own.asked == len(wanted)))
    assert left == wanted
    assert not store.failures
    assert len(own.ended) == len(wanted)


def test_executors_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Planted()
    assert checked_executor(given) is given
    assert [checked_executor(number) for number in (0, 3)] == [0, 3]
    for wrong in (-1, True, "dask", 2.0, None):
        with pytest.raises(InvalidArgumentError, match=r"Client.get_executor\(\)"):
            checked_executor(wrong)
    monkeypatch.setattr(workers, "can_have_workers", lambda: False)
    assert checked_executor(0) == 0
    with pytest.raises(InvalidArgumentError, match="Linux and macOS"):
        checked_executor(2)


def test_notes_say_which_pieces_the_executor_could_not_compile() -> None:
    told = " ".join(search_notes(Tuning((), remarks={"it has dynamic sizes": 2, "it runs on cuda": 1})))
    assert "The executor could not compile 3 pieces" in told
    assert "it has dynamic sizes (2); it runs on cuda (1)" in told


# ------------------------------------------------------------------------------------------------------ real processes

WHYS = {
    CRASH: (Outcome.FAILED, "its process ended by SIGABRT"),
    LOST: (Outcome.FAILED, "its process ended by SIGKILL"),
    MEMORY: (Outcome.FAILED, "MemoryError"),
    WRONG: (Outcome.WRONG, "numerics failed: output: off by up to"),
    NAN: (Outcome.WRONG, "numerics failed: output: "),
    HANG: (Outcome.FAILED, "given up: no result for"),
}
INERT = {KEY: 60}


def searched(keys: list[dict[str, Any]], folder: Path, **arguments: Any) -> Tuning:
    with torch.no_grad():
        ex = rx.explore(step, (torch.randn(16, 16),), plan=rx.Plan())
        found = ex.tune(20.0, keys=keys, ledger=folder / "tries.jsonl", **arguments).record
        assert found.plan is not None
        ex.plan = found.plan
        torch.testing.assert_close(ex.compiled(*ex.live.call.args), step(*ex.live.call.args))
        ex.close()
    return found


def by_key(found: Tuning) -> dict[int, Try]:
    """Return the tries of planted candidates."""
    configs = ((one, one.plan.regions[0].config) for one in found.tries if one.plan)
    return {config[KEY]: one for one, config in configs if KEY in config}


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("processes", "planted"),
    [(1, (WRONG,)), pytest.param(2, (CRASH, LOST, MEMORY, NAN, HANG), marks=pytest.mark.slow)],
)
def test_a_failure_in_a_process_fails_that_try_alone(
    slow_references: TickingClock,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    processes: int,
    planted: tuple[int, ...],
) -> None:
    monkeypatch.setattr(crews, "compile_shipment", compile_planted)
    if HANG in planted:
        monkeypatch.setattr(crews, "LEAST_TIMEOUT_S", 30.0)
        monkeypatch.setattr(crews, "TIMEOUT_FACTOR", 0.0)
    found = searched([*({KEY: one} for one in planted), INERT], tmp_path, executor=processes)
    tries = by_key(found)
    for one in planted:
        outcome, why = WHYS[one]
        assert tries[one].outcome is outcome, tries[one]
        assert tries[one].why.startswith(why)
        assert found.plan != tries[one].plan
    assert tries[INERT[KEY]].outcome is Outcome.SAME_CODE
    assert not found.remarks


@pytest.mark.compiles
@pytest.mark.slow
def test_any_number_of_processes_finds_the_same_plan(slow_references: TickingClock, tmp_path: Path) -> None:
    found = []
    for number in range(3):
        slow_references.time_s = 0.0
        folder = tmp_path / str(number)
        folder.mkdir()
        found.append(searched([INERT, {"size_asserts": False}], folder, executor=number))
    for one in found[1:]:
        assert one.plan == found[0].plan
        assert {title: tried.outcome for title, tried in one.by_title.items()} == {
            title: tried.outcome for title, tried in found[0].by_title.items()
        }


@pytest.mark.compiles
@pytest.mark.slow
def test_a_dask_worker_that_is_killed_loses_its_try_alone(
    slow_references: TickingClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Dask gives up a piece that has ended two of its workers; a process of our own shows how."""
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    monkeypatch.setattr(crews, "compile_shipment", compile_planted)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        found = searched([{KEY: LOST}, INERT], tmp_path, executor=client.get_executor())
    tries = by_key(found)
    assert (tries[LOST].outcome, tries[LOST].why) == (Outcome.FAILED, "its process ended by SIGKILL")
    assert tries[INERT[KEY]].outcome is Outcome.SAME_CODE
    ((why, number),) = found.remarks.items()
    assert "KilledWorker" in why
    assert number == 1
