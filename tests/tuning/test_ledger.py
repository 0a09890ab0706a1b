"""The ledger: what it keeps, who may write it at once, what a killed process leaves; searches that go on from it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from regional_explorer.errors import InvalidArgumentError
from regional_explorer.record.figure import Figure
from regional_explorer.record.plan import AS_TORCH_COMPILE, Plan, Tracing
from regional_explorer.record.tuning import EAGER, NumericsRequirement, Outcome
from regional_explorer.tuning.budget import Limits
from regional_explorer.tuning.ledger import Ledger, LedgerEntry
from regional_explorer.tuning.search import tune
from regional_explorer.tuning.space import whole_graph
from tests.shared.processes import ROOT
from tests.tuning.replay import Planted, ReplayBench, by_parts

JOINT = Tracing(joint_passes=True)
KEYS = ({"cpp_wrapper": True}, {"size_asserts": False}, {"max_fusion_size": 16})
LIMITS = Limits(600.0, keys=KEYS)
PARTS = by_parts({JOINT: 0.95}, {"cpp_wrapper": 0.95, "size_asserts": 0.97})
ENTRY = LedgerEntry("k1", "whole graph", Outcome.MEASURED, "", "code", Figure(1.1, 1.0, 1.2), 3.0)


def test_entries_are_read_back_and_the_last_one_of_a_key_holds(tmp_path: Path) -> None:
    path = tmp_path / "new" / "tries.jsonl"
    ledger = Ledger(path)
    ledger.add(ENTRY)
    ledger.add(LedgerEntry("k2", "other", Outcome.FAILED, "why"))
    ledger.add(LedgerEntry("k1", "whole graph", Outcome.WRONG, "off"))
    assert Ledger(path).entries == {
        "k1": LedgerEntry("k1", "whole graph", Outcome.WRONG, "off"),
        "k2": LedgerEntry("k2", "other", Outcome.FAILED, "why"),
    }
    assert all(json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.parametrize(
    "torn", [b'{"key":"k9","tit', b"\xff\xfe", b"{}", b'{"key":"k9","title":"","outcome":"measured","format":99}']
)
def test_a_torn_or_foreign_line_is_left_out_and_the_next_line_is_read(torn: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tries.jsonl"
    Ledger(path).add(ENTRY)
    with path.open("ab") as file:
        file.write(torn)
    ledger = Ledger(path)
    assert ledger.entries == {"k1": ENTRY}
    ledger.add(LedgerEntry("k2", "other", Outcome.FAILED, "why"))
    assert set(Ledger(path).entries) == {"k1", "k2"}


@pytest.mark.parametrize("path", ["", 3, None])
def test_a_ledger_that_is_no_path_is_refused(path: object) -> None:
    with pytest.raises(InvalidArgumentError, match="give the path of a file"):
        Ledger(path)  # type: ignore[arg-type]


def test_a_ledger_that_cannot_be_read_is_refused_and_one_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="it cannot be read"):
        Ledger(tmp_path)
    (tmp_path / "file").touch()
    ledger = Ledger(tmp_path / "file" / "below")
    assert tune(ReplayBench(PARTS), LIMITS, ledger).answer
    assert "cannot be written" in ledger.problem


APPEND = """
import sys
from regional_explorer.record.tuning import Outcome
from regional_explorer.tuning.tries import LedgerEntry, Ledger
ledger = Ledger(sys.argv[1])
for number in range(50):
    ledger.add(LedgerEntry(f"{sys.argv[2]} {number}", "t" * 300, Outcome.FAILED, "why"))
"""


def test_two_processes_that_append_at_once_tear_no_line(tmp_path: Path) -> None:
    path = tmp_path / "tries.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", APPEND, path, name], cwd=ROOT) for name in "ab"]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert set(Ledger(path).entries) == {f"{name} {number}" for name in "ab" for number in range(50)}


# ----------------------------------------------------------------------------------------------- searches that go on


def test_a_second_search_repeats_nothing_but_the_final_comparison(tmp_path: Path) -> None:
    path = tmp_path / "tries.jsonl"
    first = tune(ReplayBench(PARTS), LIMITS, Ledger(path))
    bench = ReplayBench(PARTS)
    second = tune(bench, LIMITS, Ledger(path))
    assert second.answer == first.answer
    assert {one.title: one.outcome for one in second.tries} == {one.title: one.outcome for one in first.tries}
    assert len(bench.asked("race")) == 1
    finalists = [one for one in second.tries if one.final and one.plan]
    assert len(bench.asked("compile")) == len(bench.asked("check")) == len(finalists) == 3
    from_now = {one.outcome for one in second.tries if one.plan is not None and not one.remembered}
    assert from_now <= {Outcome.SAME_CODE, Outcome.NOT_TRIED}


def test_a_failure_and_a_wrong_result_are_remembered(tmp_path: Path) -> None:
    def plant(plan: Plan) -> Planted:
        if plan.tracing == JOINT:
            return Planted(0.5, wrong="off by 3")
        return Planted(0.5, failure="g++") if plan.tracing == AS_TORCH_COMPILE else Planted(1.1)

    path = tmp_path / "tries.jsonl"
    first = tune(ReplayBench(plant), Limits(600.0), Ledger(path))
    bench = ReplayBench(plant)
    second = tune(bench, Limits(600.0), Ledger(path))
    for tuning in (first, second):
        whys = {
            one.plan.tracing: (one.outcome, one.why)
            for one in tuning.tries
            if one.plan and not one.plan.regions[0].config
        }
        assert whys[JOINT] == (Outcome.WRONG, "off by 3")
        assert whys[AS_TORCH_COMPILE] == (Outcome.FAILED, "g++")
    assert not any(str(JOINT) in key and "config" not in key for key in bench.asked("compile"))


def test_entries_for_close_results_are_not_used_for_bitwise(tmp_path: Path) -> None:
    path = tmp_path / "tries.jsonl"
    tune(ReplayBench(PARTS), LIMITS, Ledger(path))
    strict = tune(ReplayBench(PARTS), Limits(600.0, NumericsRequirement.BITWISE), Ledger(path))
    assert strict.answer == EAGER
    assert strict.counts[Outcome.MEASURED] == 0


KILLED = """
import os, signal, sys
from regional_explorer.tuning import search
from regional_explorer.tuning.tries import Ledger
from tests.tuning.replay import ReplayBench
from tests.tuning.test_ledger import LIMITS, PARTS

class Killed(Ledger):
    def add(self, entry):
        super().add(entry)
        if len(self.entries) == 5:
            with self.path.open("ab") as file:
                file.write(b'{"key":"half a li')
            os.kill(os.getpid(), signal.SIGKILL)

search.tune(ReplayBench(PARTS), LIMITS, Killed(sys.argv[1]))
"""


def test_a_killed_search_resumes_from_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "tries.jsonl"
    killed = subprocess.run([sys.executable, "-c", KILLED, path], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    known = set(Ledger(path).entries)
    assert len(known) == 5
    bench = ReplayBench(PARTS)
    tuning = tune(bench, LIMITS, Ledger(path))
    assert tuning.answer == tune(ReplayBench(PARTS), LIMITS, Ledger(tmp_path / "new")).answer
    again = known & set(bench.asked("compile"))
    finalists = {repr(one.plan) for one in tuning.tries if one.final}
    raced_beside = {repr(whole_graph(JOINT))}  # the best plan without its wrapper: new configs race it
    assert again <= finalists | raced_beside, "a finished try is compiled again only where others take turns with it"
