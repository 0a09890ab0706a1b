"""Which patterns of Inductor's passes matched: in the trace, in regions, in torch.compile; what a plan lost."""

import pytest
import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from msgspec.structs import replace
from torch._dynamo.utils import counters

import regional_explorer as rx
from regional_explorer.diagnostics.measured import pattern_diagnostics
from regional_explorer.record.files import dump_session, load_session
from regional_explorer.record.region_code import pattern_match_counts
from regional_explorer.tables.code import patterns_table
from regional_explorer.torch_api.compile_notes import CacheCounts
from tests.shared import diagnostics_programs
from tests.shared.checks import codes, diagnostics_of
from tests.shared.sessions import measured, training_session

ATTENTION, IDLE = "_sfdp_pattern_1", "pointless_view"
DECOMPOSED = rx.Tracing(joint_passes=True, decompositions=True)


def attention(q, k, v):
    return (q @ k.transpose(-2, -1) / 8.0).softmax(-1) @ v


def heads(*, grad):
    return tuple(torch.randn(1, 2, 16, 64, requires_grad=grad) for _ in range(3))


def row_of(ex, name):
    (row,) = ex.patterns[ex.patterns.pattern == name].to_dict("records")
    return row


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
def test_joint_passes_of_a_trace_find_attention(grad):
    found = rx.explore(attention, heads(grad=grad), tracing=DECOMPOSED)
    assert row_of(found, ATTENTION)["trace"] == 1
    plain = rx.explore(attention, heads(grad=grad))
    assert plain.patterns.empty
    assert "Patterns" not in plain.text


def test_a_trace_without_patterns_has_no_row():
    assert rx.explore(lambda x: x.sin() + 1, (torch.randn(8),), tracing=DECOMPOSED).patterns.empty


@pytest.mark.compiles
def test_the_attention_pattern_matches_in_new_and_cached_code():
    ex = rx.explore(attention, heads(grad=False)).mark("all", ops="*")
    ex.compile()
    code = ex.code("all")  # reads the patterns of code from a cache, too
    row = row_of(ex, ATTENTION)
    assert row["trace"] == 0
    assert row["regions"] == {"all": 1}
    assert "Patterns that matched: attention pattern 1 (1×)" in str(code)
    assert "attention pattern 1" in ex.text


@pytest.mark.compiles
def test_the_remedy_restores_a_pattern_lost_at_a_border(tmp_path):
    with inductor_config.patch(fx_graph_cache=False), functorch_config.patch(enable_autograd_cache=False):
        ex = diagnostics_programs.run_page_program(diagnostics_programs.measured_programs()["pattern-lost"], tmp_path)
        assert row_of(ex, ATTENTION) == {"pattern": ATTENTION, "trace": 0, "regions": {"r": 0}, "torch_compile": 1}
        (found,) = diagnostics_of(ex, "pattern-lost")
        assert "attention pattern 1 (1×)" in found.message
        assert "pointless" not in found.message
        ex.apply(found)
        assert row_of(ex, ATTENTION)["trace"] == 1
        assert "pattern-lost" not in codes(ex)
    assert f"*{found.severity}" in diagnostics_programs.page_sections()["pattern-lost"]


@pytest.mark.parametrize(("cache", "key"), [("inductor", "fxgraph_cache_hit"), ("aot_autograd", "autograd_cache_hit")])
def test_pattern_counts_of_cached_code_are_unknown(cache, key, monkeypatch):
    counts = CacheCounts.now()
    assert counts.if_nothing_cached({ATTENTION: 1}) == {ATTENTION: 1}
    monkeypatch.setitem(counters[cache], key, counters[cache][key] + 1)
    assert counts.if_nothing_cached({ATTENTION: 1}) is None


def session_of(*, trace=None, region=None, full=None):
    """Return a session in which these patterns matched; None means not known."""
    base = measured(training_session())
    first, *others = base.graphs
    artifacts = {
        key: replace(made, compile=replace(made.compile, patterns=region)) for key, made in base.artifacts.items()
    }
    (cost,) = base.variant_costs
    return replace(
        base,
        graphs=(replace(first, patterns=trace or {}), *others),
        artifacts=artifacts,
        variant_costs=(replace(cost, patterns=full),),
    )


def lost_patterns(session):
    return [found.name for found in pattern_match_counts(session) if found.is_lost]


def test_a_pattern_matched_by_torch_compile_alone_is_lost():
    everywhere = {ATTENTION: 2, IDLE: 9}
    assert lost_patterns(session_of(region={}, full=everywhere)) == [ATTENTION, IDLE]
    assert lost_patterns(session_of(region={ATTENTION: 1}, full=everywhere)) == [IDLE]
    assert lost_patterns(session_of(trace={ATTENTION: 1}, region={}, full=everywhere)) == [IDLE]


def test_unknown_pattern_counts_are_not_reported_as_lost():
    unknown_region = session_of(region=None, full={ATTENTION: 2})
    assert lost_patterns(unknown_region) == []
    assert pattern_diagnostics(unknown_region) == []
    (row,) = pattern_match_counts(unknown_region)
    assert set(row.regions.values()) == {None}
    unknown_full = session_of(region={ATTENTION: 2}, full=None)
    assert [row.full for row in pattern_match_counts(unknown_full)] == [None]
    cached = "Not known for torch.compile: its code came from Inductor's cache."
    assert cached in patterns_table(unknown_full).text()
    assert cached in patterns_table(session_of(region={}, full=None)).text()


def test_pattern_matches_are_counted_in_every_partition_of_a_region():
    session = session_of(region={ATTENTION: 2}, full={})
    (row,) = pattern_match_counts(session)
    (total,) = row.regions.values()
    assert total == 2 * len(session.partitions)


def test_remedy_is_a_larger_region_where_the_trace_runs_the_passes():
    session = session_of(region={}, full={ATTENTION: 2})
    (found,) = pattern_diagnostics(session)
    assert str(found.actions[0]) == "ex.retrace(tracing=rx.Tracing(joint_passes=True, decompositions=True))"
    (found,) = pattern_diagnostics(replace(session, plan=session.plan.traced(DECOMPOSED)))
    assert found.actions == ()
    assert found.remedy.startswith("Mark a larger region")


def test_a_saved_session_keeps_pattern_counts(tmp_path):
    session = session_of(trace={ATTENTION: 1}, region={IDLE: 2}, full={ATTENTION: 1})
    path = tmp_path / "session.json"
    path.write_text(dump_session(session), encoding="utf-8")
    assert pattern_match_counts(load_session(path)) == pattern_match_counts(session)
