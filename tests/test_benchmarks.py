"""The rows of ``make bench``: ratios turn by turn, with their interval."""

import sys
from unittest.mock import Mock

import pytest

from benchmarks import __main__ as bench
from benchmarks.__main__ import line
from benchmarks.row import Row


def row(*ratios: float, goal: float = 1.02) -> Row:
    return Row("a step", "torch.compile", ratios, [1.0] * len(ratios), goal)


def test_a_machine_that_slows_down_for_a_while_slows_both() -> None:
    slow = Row("a step", "torch.compile", (1.0, 5.0, 1.0), (1.0, 5.0, 1.0), 1.02)
    assert slow.ratio == 1.0
    assert slow.result == "met"


def test_a_ratio_comes_with_its_interval() -> None:
    found = row(*[0.9, 1.0, 1.1] * 30)
    low, high = found.interval or (0.0, 0.0)
    assert 0.9 <= low <= found.ratio <= high <= 1.1
    assert f"1.00 ({low:.2f}–{high:.2f})" in line(found)


def test_a_result_whose_interval_includes_the_goal_is_not_sure() -> None:
    assert row(*[0.98, 0.99, 1.0] * 30).result == "met"
    assert row(*[1.1, 1.2, 1.3] * 30).result == "missed"
    assert row(0.9, 1.0, 1.2).result == "met, not sure"
    assert row(0.9, 1.1, 1.2).result == "missed, not sure"
    assert row(1.1).result == "missed"
    assert row(1.1).interval is None


def test_an_unmeasurable_row_leaves_the_other_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Mock(side_effect=RuntimeError("there is no Chromium"))
    monkeypatch.setattr(bench, "ROWS", {"drawing": broken, "memory": lambda: [row(0.5)]})
    monkeypatch.setattr(sys, "argv", ["benchmarks", "drawing", "memory"])
    assert bench.main() == 1
    out = capsys.readouterr().out
    assert "drawing: RuntimeError: there is no Chromium" in out
    assert "| a step | torch.compile |" in out
