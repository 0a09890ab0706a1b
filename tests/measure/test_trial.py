"""The self-test: its counting and its command; what it measures on a machine is no business of a test."""

from __future__ import annotations

import subprocess
import sys

import pytest

from regional_explorer.measure.__main__ import (
    PIECES,
    PLANTED_SLOWDOWNS,
    Judged,
    Rate,
    main,
    rates,
    repeated,
    table,
    trials,
)
from regional_explorer.record.benchmark import Verdict


def test_any_difference_counts_between_equals_and_the_right_one_elsewhere() -> None:
    equal = [Judged("rounds", "tanh", 0.0, verdict) for verdict in Verdict]
    slowed = [Judged("rounds", "tanh", 0.03, verdict) for verdict in Verdict]
    assert rates(equal + slowed) == [Rate("rounds", 0.0, len(Verdict), 2), Rate("rounds", 0.03, len(Verdict), 1)]


def test_the_table_names_method_count_and_rate() -> None:
    lines = table([Rate("rounds", 0.0, 200, 1), Rate("torch.utils.benchmark", 0.03, 40, 10)]).splitlines()
    assert lines[1].split() == ["0%", "rounds", "1", "of", "200", "0.5%"]
    assert lines[2].split() == ["3%", "torch.utils.benchmark", "10", "of", "40", "25.0%"]


def test_the_slow_down_is_work_of_the_same_kind() -> None:
    done: list[int] = []
    repeated(lambda: done.append(1), round(PIECES * 1.03))()
    assert len(done) == 103


def test_each_pair_is_judged_by_each_method() -> None:
    def as_long(first: object, second: object, *_: object, **__: object) -> Verdict:
        assert callable(first)
        assert callable(second)
        return Verdict.SAME

    methods = {"rounds": as_long, "another": as_long}
    seen = [one for planted in PLANTED_SLOWDOWNS for one in trials(3, planted, 0.5, 1, methods)]
    lines = table(rates(seen)).splitlines()
    assert len(lines) == 5
    assert all("0 of 3" in line for line in lines[1:])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(["--budget", "0"], "budget_s=0.0"), (["--pairs", "0"], "--pairs: give"), (["--threads", "0"], "--threads: give")],
)
def test_the_command_refuses_what_cannot_be(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--self-test", *arguments])
    assert text in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_runs() -> None:
    command = [sys.executable, "-m", "regional_explorer.measure", "--self-test", "--pairs", "1", "--budget", "0.05"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()[1:]] == ["rounds", "rounds"]
