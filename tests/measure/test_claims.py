"""Claims of all texts about random figures: no part exceeds its whole, nothing is undefined, no bound is beaten."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import regional_explorer
from regional_explorer.backend.planned_backend import worded_for_production
from regional_explorer.diagnostics.measured import plan_diagnostics, region_diagnostics, slower_speeds
from regional_explorer.exploration.results import FloorResult
from regional_explorer.page.report import page_html
from regional_explorer.record.benchmark import Phase, Verdict
from regional_explorer.record.figure import exactly
from regional_explorer.record.plan_file import ExplorationRecord, slower_when_explored
from regional_explorer.record.speeds import WORDS
from tests.shared.claims import Claim, claims_of, durations, text_claims, words
from tests.shared.pages import Page
from tests.shared.random_sessions import random_measurement
from tests.shared.sessions import measured_alone, timing


def wrong_claims(claims: Iterable[Claim]) -> list[Claim]:
    return [claim for claim in claims if not claim.holds]


@pytest.mark.parametrize("seed", range(12))
def test_sessions_make_no_impossible_claim(seed: int) -> None:
    assert not wrong_claims(claims_of(random_measurement(seed)[1]))


@pytest.mark.parametrize("seed", range(4))
def test_saved_page_has_no_undefined_values(seed: int) -> None:
    """The page draws its graphs from JSON, which has no undefined numbers."""
    page = page_html(random_measurement(seed)[1])
    text = json.dumps(Page(page).data, ensure_ascii=False)
    assert not wrong_claims(text_claims(words(page)))
    assert not wrong_claims(text_claims(text))
    assert not re.search(r"\bInfinity\b", text)


def test_parts_in_diagnostics_do_not_exceed_the_whole() -> None:
    named = 0
    for item in (item for seed in range(24) for item in random_measurement(seed)[1].diagnostics):
        of = re.search(r"[Oo]f (?:its|the) (\S+ [nµm]?s)\b", item.message)
        if of is not None:
            named += 1
            assert max(durations(item.message)) <= durations(of[1])[0] * 1.01, item.message
    assert named


@pytest.mark.parametrize("seed", range(24))
def test_no_floor_is_shown_above_a_measured_time(seed: int) -> None:
    session = random_measurement(seed)[1]
    found = FloorResult(session)
    assert not wrong_claims(text_claims(str(found)))
    right = [one for one in session.whole_timings.values() if not one.numerics.withholds_speedup]
    fastest_s = min(one.median_s.value for one in right if one.variant in WORDS)
    is_above = found.record.seconds > fastest_s
    assert found.frame.empty is is_above
    assert ("at most" in found.sentence) is not is_above


def claimed_savings(eager_s: float, speedup: float, verdict: Verdict, alone: float) -> list[str]:
    """Return the savings per call that messages claim for region 'mlp'; ``alone`` is its speedup alone."""
    variants = [
        timing("eager", eager_s, 1.0, phase=Phase.STEP, verdict=Verdict.BASELINE),
        timing("regional", eager_s / speedup, speedup, phase=Phase.STEP, verdict=verdict),
    ]
    gained = measured_alone(speedup=exactly(alone))
    messages = " ".join(item.message for item in region_diagnostics(replace(gained, timings=tuple(variants))))
    return re.findall(r"'mlp' saves (-?[\d,.]+ \S+) in each call", messages)


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-7, 10.0), st.floats(0.1, 10.0), st.sampled_from(Verdict), st.floats(0.1, 10.0))
def test_no_region_saves_more_than_the_call(eager_s: float, speedup: float, verdict: Verdict, alone: float) -> None:
    for saved in claimed_savings(eager_s, speedup, verdict, alone):
        assert verdict is Verdict.FASTER
        assert 0 <= durations(saved)[0] <= (eager_s - eager_s / speedup) * 1.01
    assert claimed_savings(1e-3, 2.0, Verdict.FASTER, 2.0), "the pattern matches the message"


# ----------------------------------------------------------------------------------------------------------- production


@pytest.mark.parametrize("seed", range(24))
def test_production_messages_call_no_exploration(seed: int) -> None:
    _, session = random_measurement(seed)
    explored = replace(ExplorationRecord.of(session), slower=slower_speeds(session))
    messages = [*slower_when_explored(explored), *map(worded_for_production, plan_diagnostics(session))]
    assert not [item for item in messages if "ex." in str(item)]
    assert not wrong_claims(claim for item in messages for claim in text_claims(str(item)))


EXPLORATION_ONLY = {"REGION_WORTH"}
"""Codes that no program reports that runs a plan."""


def test_messages_of_findings_call_no_exploration() -> None:
    """A program that runs a plan reports the message unchanged; only the remedy is replaced."""
    messages = 0
    for path in Path(regional_explorer.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match call:
                case ast.Call(func=ast.Attribute(value=code, attr="finding"), args=[message, *_]):
                    texts = [str(node.value) for node in ast.walk(message) if isinstance(node, ast.Constant)]
                    messages += bool(texts)
                    exempt = getattr(code, "attr", "") in EXPLORATION_ONLY
                    assert exempt or not any("ex." in text for text in texts), (path, call.lineno)
    assert messages > 40, "of 45 codes"


@pytest.mark.parametrize("text", ["a row of −26 %", "needs 8752% of it", "takes nan µs", "pays off after inf calls"])
def test_an_impossible_text_is_found(text: str) -> None:
    assert wrong_claims(text_claims(text))
