"""The seconds that a compile is expected to take."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from regional_explorer.record.benchmark import CompileCost
from regional_explorer.record.expected import compile_rate, compiles_seen, expected_compile_s, expected_plan_s
from regional_explorer.record.partition import State
from tests.shared import sessions


def test_equal_instances_are_compiled_once() -> None:
    one, four = (sessions.training_session(count, state=State.STALE) for count in (1, 4))
    assert expected_plan_s(four) == expected_plan_s(one)


def test_the_whole_call_takes_longer_with_each_layer_and_longer_than_its_regions() -> None:
    one, four = (sessions.training_session(count) for count in (1, 4))
    assert (expected_compile_s(one) or 0.0) < (expected_compile_s(four) or 0.0)
    assert (expected_compile_s(four, four.partitions) or 0.0) < (expected_compile_s(four) or 0.0)


def test_a_compiled_plan_and_a_call_without_graphs_take_no_compile() -> None:
    assert expected_plan_s(sessions.training_session()) is None
    assert expected_compile_s(sessions.session()) is None


def test_graphs_of_later_calls_do_not_count() -> None:
    session = sessions.training_session()
    late = replace(session.graphs[0], id="1/forward")
    repeated = replace(session, graphs=(*session.graphs, late), late_graphs=(late.id,))
    assert expected_compile_s(repeated) == expected_compile_s(session)


def test_what_was_compiled_before_sets_the_rate() -> None:
    session = sessions.training_session()
    predicted_s = sum(expected for expected, _ in compiles_seen(session).values())
    rate = compile_rate(compiles_seen(session))
    assert rate == pytest.approx(3.0 / predicted_s)  # forward and backward took 1.5 s each
    at_rate = replace(session, compile_rate=rate)
    assert expected_compile_s(at_rate) == pytest.approx(rate * (expected_compile_s(session) or 0.0))


def test_only_compiles_without_a_cache_set_the_rate() -> None:
    warm, cold = (
        replace(sessions.session(sessions.training_session().graphs), variant_costs=(CompileCost("full", 9.0, cache),))
        for cache in ("warm", "cold")
    )
    assert compile_rate(compiles_seen(warm)) == 1.0
    assert compile_rate(compiles_seen(cold)) == pytest.approx(9.0 / (expected_compile_s(cold) or 0.0))
