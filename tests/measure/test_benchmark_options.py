"""The limits of a run are checked before anything runs."""

from __future__ import annotations

import pytest

from regional_explorer.errors import MeasureError
from regional_explorer.measure.rounds import VERDICT_CONFIDENCE, BenchmarkOptions


@pytest.mark.parametrize("budget", [0, 0.0, -1, float("nan"), float("inf"), "5", None, True, 1j])
def test_a_budget_that_is_no_time_is_refused(budget: object) -> None:
    with pytest.raises(MeasureError, match=r"budget_s=.*positive, finite number") as caught:
        BenchmarkOptions(budget)  # type: ignore[arg-type]
    assert repr(budget) in str(caught.value)


def test_every_look_of_a_run_pays_for_the_confidence() -> None:
    assert pytest.approx(0.998) == VERDICT_CONFIDENCE
