"""The self-test: its counting and its command; what it measures on a machine is no business of a test."""

from __future__ import annotations

import subprocess
import sys
from unittest.mock import Mock

import pytest

from regional_explorer.measure.__main__ import PIECES, PLANTED_SLOWDOWNS, main, repeated, table, trials
from regional_explorer.record.benchmark import Verdict


def test_false_alarms_and_misses_are_counted() -> None:
    methods = ("rounds", "torch.utils.benchmark")
    lines = table((planted, method, one) for planted in (0.03, 0.0) for method in methods for one in Verdict)
    others = "1 no difference, 1 inconclusive, 1 machine busy, 1 not enough data, 1 withheld, 1 no verdict"
    called = {0: f"2 of 9 22.2% 1 baseline, {others}", 3: f"1 of 9 11.1% 1 baseline, 1 faster, {others}"}
    assert [" ".join(line.split()) for line in lines.splitlines()[1:]] == [
        f"{planted}% {method} {text}" for planted, text in called.items() for method in methods
    ]


def test_the_slow_down_is_work_of_the_same_kind() -> None:
    work = Mock()
    repeated(work, round(PIECES * 1.03))()
    assert work.call_count == 103


def test_each_pair_is_judged_by_each_method() -> None:
    def as_long(first: object, second: object, *_: object, **__: object) -> Verdict:
        assert callable(first)
        assert callable(second)
        return Verdict.SAME

    methods = {"rounds": as_long, "another": as_long}
    seen = [one for planted in PLANTED_SLOWDOWNS for one in trials(3, planted, 0.5, 1, methods)]
    lines = table(seen).splitlines()
    assert len(lines) == 5
    assert all("0 of 3" in line for line in lines[1:])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(["--budget", "0"], "budget_s=0.0"), (["--pairs", "0"], "--pairs: give"), (["--threads", "0"], "--threads: give")],
)
def test_command_refuses_invalid_options(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--self-test", *arguments])
    assert text in capsys.readouterr().err


@pytest.mark.slow
def test_the_self_test_command_runs() -> None:
    command = [sys.executable, "-m", "regional_explorer.measure", "--self-test", "--pairs", "1", "--budget", "0.05"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()[1:]] == ["rounds", "rounds"]
