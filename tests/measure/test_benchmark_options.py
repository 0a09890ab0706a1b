"""The limits of a run are checked before anything runs."""

from __future__ import annotations

import pytest

from regional_explorer.errors import MeasureError
from regional_explorer.measure.rounds import BenchmarkOptions


@pytest.mark.parametrize("budget", [0, 0.0, -1, float("nan"), float("inf"), "5", None, True, 1j])
def test_a_budget_that_is_no_time_is_refused(budget: object) -> None:
    with pytest.raises(MeasureError, match=r"budget_s=.*positive, finite number") as caught:
        BenchmarkOptions(budget)  # type: ignore[arg-type]
    assert repr(budget) in str(caught.value)


@pytest.mark.parametrize("limits", [{"precision": 0.0}, {"precision": "1 %"}, {"confidence": 1.0}])
def test_other_limits_are_checked_too(limits: dict[str, object]) -> None:
    with pytest.raises(MeasureError, match=next(iter(limits))):
        BenchmarkOptions(**limits)  # type: ignore[arg-type]


def test_every_look_of_a_run_pays_for_the_confidence() -> None:
    assert BenchmarkOptions(1).verdict_confidence == pytest.approx(0.998)
