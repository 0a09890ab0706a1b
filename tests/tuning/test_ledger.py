"""The ledger: what it keeps, who may write it at once, what a killed process leaves; searches that go on from it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from regional_explorer.errors import InvalidArgumentError
from regional_explorer.record.figure import Figure
from regional_explorer.record.plan import Tracing, whole_graph
from regional_explorer.record.tuning import EAGER, NumericsRequirement, Outcome, Tuning
from regional_explorer.tuning.budget import Limits
from regional_explorer.tuning.ledger import Ledger, LedgerEntry
from regional_explorer.tuning.search import tune
from tests.tuning.replay import Behaviour, ReplayBench, cost_model

JOINT = Tracing(joint_passes=True)
KEYS = ({"cpp_wrapper": True}, {"size_asserts": False}, {"max_fusion_size": 16})
LIMITS = Limits(600.0, keys=KEYS)
MODEL = cost_model({JOINT: 0.95}, {"cpp_wrapper": 0.95, "size_asserts": 0.97})
FORKS = "ignore:.*multi-threaded, use of fork"
ENTRY = LedgerEntry("k1", "whole graph", Outcome.MEASURED, "code", Figure(1.1, 1.0, 1.2), 3.0)


def test_ledger_returns_the_last_entry_of_each_key(tmp_path: Path) -> None:
    path = tmp_path / "new" / "tries.jsonl"
    ledger = Ledger(path)
    ledger.add(ENTRY)
    ledger.add(LedgerEntry("k2", "other", Outcome.SLOWER, "code"))
    ledger.add(LedgerEntry("k1", "whole graph", Outcome.SLOWER, "other code"))
    assert Ledger(path).entries == {
        "k1": LedgerEntry("k1", "whole graph", Outcome.SLOWER, "other code"),
        "k2": LedgerEntry("k2", "other", Outcome.SLOWER, "code"),
    }
    assert all(json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.parametrize(
    "torn", [b'{"key":"k9","tit', b"\xff\xfe", b"{}", b'{"key":"k9","title":"","outcome":"measured","format":99}']
)
def test_a_torn_or_foreign_line_is_skipped(torn: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tries.jsonl"
    Ledger(path).add(ENTRY)
    with path.open("ab") as file:
        file.write(torn)
    ledger = Ledger(path)
    assert ledger.entries == {"k1": ENTRY}
    ledger.add(LedgerEntry("k2", "other", Outcome.SLOWER, "code"))
    assert set(Ledger(path).entries) == {"k1", "k2"}


@pytest.mark.parametrize("path", ["", 3, None])
def test_ledger_must_be_a_path(path: object) -> None:
    with pytest.raises(InvalidArgumentError, match="give the path of a file"):
        Ledger(path)  # type: ignore[arg-type]


def test_unreadable_ledger_is_refused_and_unwritable_one_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="it cannot be read"):
        Ledger(tmp_path)
    (tmp_path / "file").touch()
    ledger = Ledger(tmp_path / "file" / "below")
    assert tune(ReplayBench(MODEL), LIMITS, ledger).answer
    assert "cannot be written" in ledger.problem


def in_a_copy(work: Callable[[], object]) -> int:
    """Run ``work`` in a copy of this process; return its number."""
    if child := os.fork():
        return child
    try:
        work()
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.filterwarnings(FORKS)
def test_concurrent_appends_tear_no_line(tmp_path: Path) -> None:
    path = tmp_path / "tries.jsonl"

    def append(name: str) -> None:
        ledger = Ledger(path)
        for number in range(50):
            ledger.add(LedgerEntry(f"{name} {number}", "t" * 300, Outcome.SLOWER, "code"))

    writers = [in_a_copy(lambda name=name: append(name)) for name in "ab"]  # type: ignore[misc]
    assert [os.waitpid(writer, 0)[1] for writer in writers] == [0, 0]
    assert set(Ledger(path).entries) == {f"{name} {number}" for name in "ab" for number in range(50)}


# ----------------------------------------------------------------------------------------------- searches that go on


def test_a_second_search_repeats_nothing_but_the_final_comparison(tmp_path: Path) -> None:
    path = tmp_path / "tries.jsonl"
    first = tune(ReplayBench(MODEL), LIMITS, Ledger(path))
    bench = ReplayBench(MODEL)
    second = tune(bench, LIMITS, Ledger(path))
    assert second.answer == first.answer
    assert {one.title: one.outcome for one in second.tries} == {one.title: one.outcome for one in first.tries}
    assert len(bench.requests("race")) == 1
    finalists = [one for one in second.tries if one.final and one.plan]
    assert len(bench.requests("compile")) == len(bench.requests("check")[1:]) == len(finalists) == 1
    from_now = {one.outcome for one in second.tries if one.plan is not None and not one.remembered}
    assert from_now <= {Outcome.SAME_CODE, Outcome.NOT_TRIED}


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        (Behaviour(0.5, wrong="off by 3"), Outcome.WRONG),
        (Behaviour(0.5, chaotic="off by 3"), Outcome.CHAOTIC),
        (Behaviour(0.5, failure="no space left on device"), Outcome.FAILED),
        (Behaviour(0.5, refusal="it cannot be traced"), Outcome.FAILED),
        (Behaviour(0.5, raises="check"), Outcome.FAILED),
        (Behaviour(0.5, raises="call"), Outcome.FAILED),
        (Behaviour(0.5, raises="trouble"), Outcome.FAILED),
    ],
    ids=["wrong", "chaotic", "full disk", "not traced", "raises when checked", "raises when timed", "traced again"],
)
def test_what_values_or_a_full_disk_decide_is_tried_again(then: Behaviour, expected: Outcome, tmp_path: Path) -> None:
    """The key of a plan has neither the values of inputs and weights nor what else its outcome depends on."""
    path, whole = tmp_path / "tries.jsonl", whole_graph(JOINT)

    def search(behaviour: Behaviour) -> Tuning:
        bench = ReplayBench(lambda plan: behaviour if plan == whole else Behaviour(1.1))
        return tune(bench, LIMITS, Ledger(path))

    first, second = search(then), search(Behaviour(0.5))
    outcomes = [next(one.outcome for one in found.tries if one.plan == whole) for found in (first, second)]
    assert outcomes == [expected, Outcome.MEASURED]
    assert [found.plan == whole for found in (first, second)] == [False, True]
    third = search(then)
    assert third.plan is None, "a speed of an earlier search does not stand for right results"


@pytest.mark.parametrize("full", [Behaviour(wrong="off by 3"), Behaviour(failure="no lowering")])
def test_speeds_beside_torch_compile_are_not_relied_on_if_it_is_not_right(full: Behaviour, tmp_path: Path) -> None:
    path = tmp_path / "tries.jsonl"
    tune(ReplayBench(MODEL), LIMITS, Ledger(path))
    tuning = tune(ReplayBench(MODEL, torch_compile=full), LIMITS, Ledger(path))
    assert tuning.rival == EAGER
    assert not any(one.remembered for one in tuning.tries)


def test_bitwise_equality_is_checked_again(tmp_path: Path) -> None:
    path = tmp_path / "tries.jsonl"
    tune(ReplayBench(MODEL), LIMITS, Ledger(path))
    strict = tune(ReplayBench(MODEL), Limits(600.0, NumericsRequirement.BITWISE), Ledger(path))
    assert strict.answer == EAGER
    assert strict.counts[Outcome.MEASURED] == 0
    equal = cost_model({JOINT: 0.95}, {"cpp_wrapper": 0.95}, bitwise=True)
    later = tune(ReplayBench(equal), Limits(600.0, NumericsRequirement.BITWISE), Ledger(path))
    assert later.plan is not None


class KillingLedger(Ledger):
    """Kills the process in its sixth entry."""

    def add(self, entry: LedgerEntry) -> None:
        super().add(entry)
        if len(self.entries) == 5:
            with self.path.open("ab") as file:
                file.write(b'{"key":"half a li')
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.filterwarnings(FORKS)
def test_a_killed_search_resumes_from_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "tries.jsonl"
    killed = in_a_copy(lambda: tune(ReplayBench(MODEL), LIMITS, KillingLedger(path)))
    assert os.waitpid(killed, 0)[1] == signal.SIGKILL
    known = set(Ledger(path).entries)
    assert len(known) == 5
    bench = ReplayBench(MODEL)
    tuning = tune(bench, LIMITS, Ledger(path))
    assert tuning.answer == tune(ReplayBench(MODEL), LIMITS, Ledger(tmp_path / "new")).answer
    again = known & set(bench.requests("compile"))
    finalists = {repr(one.plan) for one in tuning.tries if one.final}
    rivals = {repr(whole_graph(JOINT, config)) for config in ({}, {"cpp_wrapper": True})}  # new plans race these
    assert again <= finalists | rivals, "a finished try is compiled again only if others race it"
