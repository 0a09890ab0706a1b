"""Sessions of other versions, machines and plans side by side: what changed, and whether the difference is real."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from regional_explorer.errors import SessionError
from regional_explorer.exploration.results import compare
from regional_explorer.record.artifact import ArtifactCode, Kernel, KernelKind
from regional_explorer.record.benchmark import NumericsVerdict
from regional_explorer.record.changes import session_changes, speed_change
from regional_explorer.record.session import Session
from tests.shared import sessions
from tests.shared.sessions import measured_in_process as measured


def test_compare_finds_slowdowns_with_few_false_alarms() -> None:
    equal = [speed_change(measured(1.3, 2 * n), measured(1.3, 2 * n + 1, machine=1.7)) for n in range(200)]
    assert sum(found.is_slower(0.03) for found in equal) <= 2
    slowed = [speed_change(measured(1.3, 2 * n), measured(1.3 / 1.08, 2 * n + 1)) for n in range(1000, 1040)]
    assert sum(found.is_slower(0.03) for found in slowed) >= 36
    assert sum(found.verdict == "slower" for found in slowed) >= 36


def test_compare_lists_changes_and_the_verdict_of_each_session() -> None:
    first = measured(1.3, 1)
    other = replace(first.environment, torch="2.15.0", device="cpu (another)", threads=8)
    slower = replace(measured(1.0, 2), environment=other, partitions=first.partitions[:2])
    frame = compare(first, slower, measured(1.3, 3))
    assert list(frame["difference"]) == ["first", "slower", "no difference"]
    assert frame["changed"][0] == frame["changed"][2] == ""
    assert frame["changed"][1] == (
        "torch 2.13.0 → 2.15.0; device cpu → cpu (another); threads 2 → 8; mlp: 4 → 2 partitions, 12 → 6 ops"
    )
    assert frame["slowdown_low"][1] > 1.1
    assert frame["slowdown_low"][1] < frame["slowdown"][1] < frame["slowdown_high"][1]


def test_graphs_and_generated_code_are_compared() -> None:
    first, longer = sessions.training_session(2), sessions.training_session(3)
    assert session_changes(first, longer)[:2] == ["0/forward: 12 → 18 ops", "0/backward: 8 → 12 ops"]
    assert session_changes(first, replace(first, graphs=first.graphs[:1], partitions=first.partitions[:2]))[0] == (
        "0/backward: 8 → 0 ops"
    )
    kernel = Kernel("k", KernelKind.POINTWISE)

    def with_code(text: str, kernels: int) -> Session:
        return sessions.with_code(first, ArtifactCode(text, kernels=(kernel,) * kernels))

    assert session_changes(with_code("# 1\ncall()", 1), with_code("# 2\ncall()", 1)) == []
    assert session_changes(with_code("call()", 1), with_code("call2()", 2)) == [
        "mlp: other generated code, 2 → 4 kernels"
    ]
    assert session_changes(with_code("call()", 1), first) == []


def test_incomparable_sessions_are_labelled_not_comparable() -> None:
    first = measured(1.3, 1)
    for timings in ((), first.timings[:1]):
        assert list(compare(first, replace(first, timings=timings))["difference"]) == ["first", "not comparable"]


def test_times_of_another_plan_are_labelled() -> None:
    first = measured(1.3, 1)
    assert first.conditions is not None
    changed = replace(first, conditions=replace(first.conditions, outdated=True))
    with pytest.raises(SessionError, match=r"B was measured for another plan, .* Call ex\.benchmark\(\)"):
        speed_change(first, changed)
    frame = compare(first, changed)
    assert list(frame["difference"]) == ["first", "measured for another plan"]
    assert frame[["eager_us", "regional_us", "speedup", "verdict", "slowdown"]].loc[1].isna().all()
    assert frame["speedup"][0] == pytest.approx(1.3, rel=0.02)
    assert list(compare(changed, first)["difference"]) == ["measured for another plan", "not comparable"]


def test_compare_without_sessions_returns_an_empty_data_frame_with_columns() -> None:
    fixed = [name for name in compare(measured(1.3, 1)).columns if name not in ("eager_us", "regional_us")]
    assert compare().empty
    assert list(compare().columns) == fixed


def test_wrong_results_are_never_faster() -> None:
    first = measured(1.3, 1)
    wrong = tuple(replace(timing, numerics=NumericsVerdict.FAILED) for timing in first.timings)
    found = speed_change(first, replace(first, timings=wrong))
    assert found.verdict == "The numerics of B failed: there is no speedup to compare."
    assert not found.is_slower(0.0)
