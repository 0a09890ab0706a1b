"""Two plans on one trace: held, compiled and timed beside each other."""

from dataclasses import replace

import pytest
import torch

import regional_explorer as rx
from regional_explorer.compiler.compilation import compile_stale
from regional_explorer.compiler.partition_records import partitions
from regional_explorer.measure.numerics import Reference, compare_results, run_once, verdict
from regional_explorer.measure.rounds import run_rounds
from regional_explorer.measure.variants import Variants
from regional_explorer.record.benchmark import VariantName
from tests.shared import programs

pytestmark = pytest.mark.compiles


@pytest.fixture(scope="module")
def two_plans():
    """Return a compiled exploration of two regions, a second program with a third, and the list of keys that run."""
    ex, ran = rx.explore(programs.neighbours, programs.pair(grad=True)), []
    own = ex.plan
    other = ex.mark("rest", ops="aten.exp*").plan
    ex.plan = own
    ex.compile()
    program = ex.live.program

    def with_log(artifact):
        return replace(artifact, call=lambda args: ran.append(artifact.key) or artifact.call(args))

    compiles = program.store.compiles
    second = program.beside(other)
    assert len(second.stale()) == 2, (
        "what both plans have is compiled already: forward and backward of the third are not"
    )
    compile_stale(second)
    assert program.store.compiles == compiles + 2
    program.store.artifacts = {key: with_log(artifact) for key, artifact in program.store.artifacts.items()}
    second.apply_artifacts()
    return ex, second, ran


def keys_of_one_call(two_plans):
    """Run the call once; return the keys of the artifacts that ran."""
    ex, _, ran = two_plans
    ran.clear()
    run_once(ex.live.call, ex.live.capture.run)
    return set(ran)


def test_two_plans_timed_together_each_run_their_own_code(two_plans):
    ex, second, ran = two_plans
    program, variants, plan = ex.live.program, ex.live.variants, ex.plan
    own, other = set(program.keys().values()), set(second.keys().values())
    assert own < other, "artifacts are shared"
    records = partitions(program)
    reference = Reference(run_once(ex.live.call))

    assert keys_of_one_call(two_plans) == own
    with second.selected():
        assert keys_of_one_call(two_plans) == other
        assert verdict(compare_results("other", run_once(ex.live.call, ex.live.capture.run), reference)) == "ok"
    assert keys_of_one_call(two_plans) == own

    ran.clear()
    of_second = Variants(ex.live.call, second, dynamic=None).get(VariantName.REGIONAL)
    calls = [variants.get(VariantName.EAGER), variants.get(VariantName.REGIONAL), replace(of_second, name="other")]
    with ex.live.call.restoring(), program.selected():
        rounds = run_rounds(calls, 0.2)
    assert rounds.samples.keys() == {"eager", "regional", "other"}
    assert {len(phases) for phases in rounds.samples.values()} == {3}
    counts = {key: ran.count(key) for key in other}
    assert all(counts[key] > counts[third] > 0 for key in own for third in other - own), "both ran, in turn"

    assert ex.plan is plan
    assert partitions(program) == records
    assert keys_of_one_call(two_plans) == own


def test_later_graphs_are_cut_for_the_plan_of_the_exploration(two_plans):
    ex, second, _ = two_plans
    own, other = set(ex.live.program.keys().values()), set(second.keys().values())
    x, y = programs.pair(grad=True)
    with second.selected():
        with torch.no_grad(), pytest.warns(UserWarning, match="traced again"):
            torch.testing.assert_close(ex.live.capture.run(x, y), programs.neighbours(x, y))
        assert keys_of_one_call(two_plans) == other, "the graphs of the first trace still run the other plan"
    assert keys_of_one_call(two_plans) == own
    assert set(ex.partitions.state) == {"compiled", "stale"}
    ex.compile()
    assert set(ex.partitions.state) == {"compiled"}
    second.close()
    with torch.no_grad():
        torch.testing.assert_close(ex.compiled(x, y), programs.neighbours(x, y))
    assert keys_of_one_call(two_plans) == own
