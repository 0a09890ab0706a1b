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
from tests.tuning.replay import Behaviour, ReplayBench, cost_model

JOINT = Tracing(joint_passes=True)
KEYS = ({"cpp_wrapper": True}, {"size_asserts": False}, {"max_fusion_size": 16})
LIMITS = Limits(600.0, keys=KEYS)
MODEL = cost_model({JOINT: 0.95}, {"cpp_wrapper": 0.95, "size_asserts": 0.97})
ENTRY = LedgerEntry("k1", "whole graph", Outcome.MEASURED, "", "code", Figure(1.1, 1.0, 1.2), 3.0)


def test_ledger_returns_the_last_entry_of_each_key(tmp_path: Path) -> None:
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
def test_a_torn_or_foreign_line_is_skipped(torn: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tries.jsonl"
    Ledger(path).add(ENTRY)
    with path.open("ab") as file:
        file.write(torn)
    ledger = Ledger(path)
    assert ledger.entries == {"k1": ENTRY}
    ledger.add(LedgerEntry("k2", "other", Outcome.FAILED, "why"))
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


APPEND = """
import sys
from regional_explorer.record.tuning import Outcome
from regional_explorer.tuning.tries import LedgerEntry, Ledger
ledger = Ledger(sys.argv[1])
for number in range(50):
    ledger.add(LedgerEntry(f"{sys.argv[2]} {number}", "t" * 300, Outcome.FAILED, "why"))
"""


def test_concurrent_appends_tear_no_line(tmp_path: Path) -> None:
    path = tmp_path / "tries.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", APPEND, path, name], cwd=ROOT) for name in "ab"]
    assert [writer.wait() for writer in writers] == [0, 0]
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
    assert len(bench.requests("compile")) == len(bench.requests("check")) == len(finalists) == 3
    from_now = {one.outcome for one in second.tries if one.plan is not None and not one.remembered}
    assert from_now <= {Outcome.SAME_CODE, Outcome.NOT_TRIED}


def test_a_failure_and_a_wrong_result_are_remembered(tmp_path: Path) -> None:
    def simulate(plan: Plan) -> Behaviour:
        if plan.tracing == JOINT:
            return Behaviour(0.5, wrong="off by 3")
        return Behaviour(0.5, failure="g++") if plan.tracing == AS_TORCH_COMPILE else Behaviour(1.1)

    path = tmp_path / "tries.jsonl"
    first = tune(ReplayBench(simulate), Limits(600.0), Ledger(path))
    bench = ReplayBench(simulate)
    second = tune(bench, Limits(600.0), Ledger(path))
    for tuning in (first, second):
        whys = {
            one.plan.tracing: (one.outcome, one.why)
            for one in tuning.tries
            if one.plan and not one.plan.regions[0].config
        }
        assert whys[JOINT] == (Outcome.WRONG, "off by 3")
        assert whys[AS_TORCH_COMPILE] == (Outcome.FAILED, "g++")
    assert not any(str(JOINT) in key and "config" not in key for key in bench.requests("compile"))


def test_bitwise_search_ignores_entries_for_close_results(tmp_path: Path) -> None:
    path = tmp_path / "tries.jsonl"
    tune(ReplayBench(MODEL), LIMITS, Ledger(path))
    strict = tune(ReplayBench(MODEL), Limits(600.0, NumericsRequirement.BITWISE), Ledger(path))
    assert strict.answer == EAGER
    assert strict.counts[Outcome.MEASURED] == 0


KILLED = """
import os, signal, sys
from regional_explorer.tuning import search
from regional_explorer.tuning.ledger import Ledger
from tests.tuning.replay import ReplayBench
from tests.tuning.test_ledger import LIMITS, MODEL

class KillingLedger(Ledger):
    def add(self, entry):
        super().add(entry)
        if len(self.entries) == 5:
            with self.path.open("ab") as file:
                file.write(b'{"key":"half a li')
            os.kill(os.getpid(), signal.SIGKILL)

search.tune(ReplayBench(MODEL), LIMITS, KillingLedger(sys.argv[1]))
"""


def test_a_killed_search_resumes_from_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "tries.jsonl"
    killed = subprocess.run([sys.executable, "-c", KILLED, path], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    known = set(Ledger(path).entries)
    assert len(known) == 5
    bench = ReplayBench(MODEL)
    tuning = tune(bench, LIMITS, Ledger(path))
    assert tuning.answer == tune(ReplayBench(MODEL), LIMITS, Ledger(tmp_path / "new")).answer
    again = known & set(bench.requests("compile"))
    finalists = {repr(one.plan) for one in tuning.tries if one.final}
    rivals = {repr(whole_graph(JOINT))}  # the best plan without its wrapper: new configs race it
    assert again <= finalists | rivals, "a finished try is compiled again only if others race it"
