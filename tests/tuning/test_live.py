"""The search on a live call: what it compiles and leaves behind, what its answer runs, and bad arguments."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import regional_explorer as rx
from regional_explorer.compiler.artifact import Artifact
from regional_explorer.compiler.run import PLAIN_RUN
from regional_explorer.errors import InvalidArgumentError, InvalidConfigValueError, MeasureError, UnknownConfigKeyError
from regional_explorer.record.benchmark import NumericsVerdict, Verdict
from regional_explorer.record.files import load_plan_file
from regional_explorer.record.plan import FROZEN, Direction, Tracing, whole_graph
from regional_explorer.record.tuning import AT_HAND, EAGER, TORCH_COMPILE, Outcome
from regional_explorer.torch_api.inductor import empty_caches
from regional_explorer.tuning import space
from regional_explorer.tuning.crew import Crew
from regional_explorer.tuning.live_bench import LiveBench
from regional_explorer.tuning.space import TUNED_PRODUCTS, with_everywhere
from tests.shared.fakes import TickingClock, timed_by

JOINT = Tracing(joint_passes=True)
INERT = {"max_fusion_size": 63}
"""A config that changes no code of so small a call."""


def step(x: torch.Tensor) -> torch.Tensor:
    with rx.region("middle"):
        y = F.gelu(x) * 2
    return (y @ x).softmax(-1)


@pytest.mark.compiles
def test_a_found_plan_can_be_applied_saved_and_compiled(slow_references: TickingClock, tmp_path: Path) -> None:
    x = torch.randn(16, 16, requires_grad=True)
    ex = rx.explore(step, (x,))
    plan, ledger = ex.plan, tmp_path / "tries.jsonl"
    found = ex.tune(20.0, keys=[INERT], ledger=ledger)
    tries = found.record.by_title
    assert ex.plan == plan
    assert [part.state for part in ex.session.partitions] == ["compiled", "compiled"]
    assert {title for title, one in tries.items() if one.final} >= {EAGER, TORCH_COMPILE, AT_HAND}
    outcomes = {one.outcome for one in tries.values() if one.plan and one.plan.regions[0].config == INERT}
    assert outcomes == {Outcome.SAME_CODE}
    assert found.plan == whole_graph(JOINT, {})
    assert all(one.peak_bytes is not None for one in tries.values() if one.outcome is Outcome.MEASURED and one.plan)

    with pytest.warns(UserWarning, match="not the one that ex.tune found"):
        ex.save_plan(tmp_path / "at hand.json")
    assert load_plan_file(tmp_path / "at hand.json").plan == plan
    saved_plan = load_plan_file(found.save(tmp_path / "found.json"))
    assert saved_plan.plan == found.plan
    assert saved_plan.explored is not None
    assert saved_plan.explored.speedup is not None

    samples = {one.variant: one.samples_s for one in found.record.timings}
    for run_plan, title in ((plan, AT_HAND), (found.plan, found.record.answer)):
        (run,) = (run for run in ex.runs if run.plan == run_plan)
        timed = {name: one.samples_s for name, one in run.whole_timings.items()}
        assert timed == {EAGER: samples[EAGER], "full": samples[TORCH_COMPILE], "regional": samples[title]}

    store, compiles = ex.live.program.store, ex.live.program.store.compiles
    ex.plan = found.plan
    assert ex.session.whole_timings["regional"].samples_s == samples[found.record.answer]
    assert not ex.session.is_outdated
    assert (ex.answer.use, ex.answer.found, ex.answer.results) == ("your plan", None, NumericsVerdict.OK)
    ex.plan = plan
    assert ex.session.whole_timings["regional"].samples_s == samples[AT_HAND]
    assert ex.answer.use == "best found"
    ex.plan = found.plan
    ex.compile()
    assert ex.live.program.store is store
    assert store.compiles == compiles, "what was found is compiled already"
    torch.testing.assert_close(ex.compiled(x), step(x))
    path = ex.save_plan(tmp_path / "plan.json")
    compiled = rx.compile(step, path)
    torch.testing.assert_close(compiled(x), ex.compiled(x), rtol=0, atol=0)
    assert [part.nodes for part in rx.status(compiled).partitions] == [part.nodes for part in ex.session.partitions][:1]

    saved = rx.load(ex.save(tmp_path / "session.json"))
    assert saved.tuning.equals(ex.tuning)
    assert found.record.answer in str(found)
    assert (saved.session.tuning, saved.session.floor is None) == (found.record, False)
    assert "Plans tried" in saved.text

    again = rx.explore(step, (x,))
    remembered = again.tune(20.0, keys=[INERT], ledger=ledger).record
    assert {one.title: one.outcome for one in remembered.tries} == {title: one.outcome for title, one in tries.items()}
    assert any(one.remembered for one in remembered.tries)


@pytest.mark.compiles
def test_a_plan_whose_results_are_wrong_is_not_timed(
    slow_references: TickingClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The compiled code of one tracing returns half of each result."""
    compile_plans = LiveBench.compile

    def compile_and_halve_results(bench: LiveBench, prepared: Any, run: Any) -> Any:
        built = compile_plans(bench, prepared, run)
        for one in prepared:
            if one.program.plan.tracing != JOINT:
                continue
            for switch in one.program.switches:
                switch.use(halve_results(switch.artifact))
        return built

    monkeypatch.setattr(LiveBench, "compile", compile_and_halve_results)
    with torch.no_grad():
        ex = rx.explore(step, (torch.randn(16, 16),), plan=rx.Plan())
        found = ex.tune(20.0, keys=[], ledger=tmp_path / "tries.jsonl").record
    whole = next(one for one in found.tries if one.plan == whole_graph(JOINT, {}))
    assert whole.outcome is Outcome.WRONG
    assert whole.why.startswith("output: off by up to ")
    assert whole.time_s is None
    assert found.plan != whole.plan


def halve_results(right: Artifact) -> Artifact:
    """Return an artifact that returns half of each result."""

    def call(args: Any) -> Any:
        return [value / 2 for value in right.call(args)]

    return dataclasses.replace(right, code=f"{right.code}\nhalved", call=call)


@pytest.mark.compiles
def test_plans_of_one_cut_share_a_run_and_race_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other_code, wrong = {"size_asserts": False}, {"size_asserts": False, "max_fusion_size": 62}
    ex = rx.explore(step, (torch.randn(16, 16, requires_grad=True),))
    with timed_by(TickingClock()):
        bench = LiveBench(ex.live.variants, ex.live.environment, PLAIN_RUN, lambda _timed: nullcontext(), Crew(0))
    calls, run_call = list[Any](), ex.live.call.run

    def count_run(*args: Any) -> Any:
        calls.append(args)
        return run_call(*args)

    monkeypatch.setattr(ex.live.call, "run", count_run)
    with bench.closing(), timed_by(TickingClock()):
        with bench.step(timed=False):
            now = bench.prepare(ex.plan)
            assert len(calls) == 1
            others = {str(more): bench.prepare(with_everywhere(ex.plan, more)) for more in (INERT, other_code, wrong)}
            assert len(calls) == 1
            assert all(built and not built.failure for built in bench.compile([now, *others.values()], PLAIN_RUN))
            artifacts, program = now.program.store.artifacts, others[str(wrong)].program
            for key in program.keys().values():
                artifacts[key] = halve_results(artifacts[key])
                program.store.hashes.pop(key, None)
        ex.plan = rx.Plan()  # the plan at hand may have other regions than the plans of a search
        with bench.step(timed=True):
            pieces = bench.pieces(now, 0.5)
            raced = [bench.race_piece(piece, others, 0.5) for piece in pieces]
    assert {(piece.region, piece.direction, piece.runs) for piece in pieces} == {
        ("middle", Direction.FORWARD, 1),
        ("middle", Direction.BACKWARD, 1),
    }
    for results in raced:
        assert results.keys() == {str(INERT), str(other_code)}
        assert results[str(INERT)].verdict is Verdict.BASELINE
        assert results[str(other_code)].verdict is not Verdict.BASELINE
    assert all(piece.seconds > 0 for piece in pieces)


@pytest.mark.compiles
def test_a_search_keeps_the_plan_trace_and_edits(
    slow_references: TickingClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The plan is edited between two steps; the search keeps to the plan at its beginning."""
    monkeypatch.setattr(space, "WAYS", (Tracing(), JOINT))
    with torch.no_grad():
        x = torch.randn(16, 16)
        ex = rx.explore(step, (x,))
        plan, captures, prepare = ex.plan, [ex.live.capture], LiveBench.prepare

        def edit_and_prepare(bench: LiveBench, requested: rx.Plan) -> Any:
            if requested == plan:
                ex.configure("middle", {"max_fusion_size": 4})
            prepared = prepare(bench, requested)
            captures.append(prepared.program.capture)
            return prepared

        monkeypatch.setattr(LiveBench, "prepare", edit_and_prepare)
        found = ex.tune(20.0, keys=[], ledger=tmp_path / "tries.jsonl").record
        assert found.by_title[AT_HAND].plan == plan
        assert ex.plan["middle"].config == {"max_fusion_size": 4}
        assert {capture for capture in captures if capture.tracing == plan.tracing} == {ex.live.capture}
        assert JOINT in {capture.tracing for capture in captures}
        assert not ex.live.capture.closed
        torch.testing.assert_close(ex.compiled(x), step(x))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"budget_s": 0}, MeasureError, "budget_s=0"),
        ({"numerics": "bitwsie"}, InvalidArgumentError, "Did you mean 'bitwise'"),
        ({"max_memory": "1 GB"}, InvalidArgumentError, "give a number of bytes"),
        ({"max_compile_s": -1}, InvalidArgumentError, "give a number of seconds"),
        ({"keys": {"max_fusion_size": 8}}, InvalidArgumentError, "give a list of configs"),
        ({"keys": [{"max_fusion_sise": 8}]}, UnknownConfigKeyError, "max_fusion_size"),
        ({"keys": [{"max_fusion_size": "eight"}]}, InvalidConfigValueError, "takes an int"),
        ({"ledger": 3}, InvalidArgumentError, "give the path of a file"),
        ({"executor": "dask"}, InvalidArgumentError, "give a number of processes to start"),
        ({"apply": "yes"}, InvalidArgumentError, "apply"),
    ],
    ids=lambda value: str(next(iter(value))) if isinstance(value, dict) else "",
)
def test_bad_arguments_are_refused_before_anything_is_compiled(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    ex = rx.explore(step, (torch.randn(4, 4),))
    with pytest.raises(error, match=text):
        ex.tune(**arguments)
    assert ex.live.program.store.compiles == 0
    assert ex.session.tuning is None


@pytest.mark.compiles
def test_a_search_prints_no_table_of_autotuning(capfd: pytest.CaptureFixture[str]) -> None:
    model, x = torch.nn.Linear(64, 64).eval(), torch.randn(32, 64)
    with rx.explore(model, (x,), grad=False) as ex, empty_caches():  # what a cache has is not tuned again
        bench = LiveBench(ex.live.variants, ex.live.environment, PLAIN_RUN, lambda _timed: nullcontext(), Crew(0))
        with bench.closing():
            plan = bench.prepare(with_everywhere(whole_graph(FROZEN), TUNED_PRODUCTS))
            (built,) = bench.compile([plan], PLAIN_RUN)
    assert built is not None
    assert not built.failure
    assert "AUTOTUNE" not in capfd.readouterr().err.upper()
