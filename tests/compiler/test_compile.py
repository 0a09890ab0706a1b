"""Compiling: each region under its own config, only what is stale, equal pieces once."""

import copy
import gc
import json
import random
import sys
import warnings
import weakref
from dataclasses import replace

import pytest
import torch
from torch import fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch.fx.passes.regional_inductor import regional_inductor

import regional_explorer as rx
from regional_explorer.errors import ClosedError, NoCompilerError, UnknownConfigKeyError
from regional_explorer.record.changes import session_changes
from regional_explorer.torch_api import inductor
from tests.shared import programs
from tests.shared.checks import assert_compiled_is_right, change_code, codes, only
from tests.shared.work import torch_threads

pytestmark = pytest.mark.compiles


def compile_count(ex):
    """Call ``compile()``; return how many times Inductor ran."""
    before = ex.live.program.store.compiles
    ex.compile()
    return ex.live.program.store.compiles - before


def test_neighbours_are_compiled_each_under_its_own_config():
    ex = rx.explore(programs.neighbours, programs.pair())
    assert_compiled_is_right(ex)
    parts = ex.partitions
    assert set(parts.region) == {"first", "second"}
    assert parts.config_applied.notna().all(), "a compile was not seen"
    wanted = {"first": {"max_fusion_size": 1}, "second": {"max_fusion_size": 2}}
    assert [wanted[region] for region in parts.region] == parts.config_applied.tolist()


def test_compiling_under_another_autocast_does_not_change_results():
    weight, x = torch.randn(64, 64), torch.randn(64, 64)

    def product(x):
        with torch.autocast("cpu", enabled=False), rx.region("r"):
            return x @ weight

    outside = rx.explore(product, (x,))
    with torch.autocast("cpu", torch.bfloat16):
        inside = rx.explore(product, (x,))
        for ex in (outside, inside):
            ex.compile(cold=True)
    for ex in (outside, inside):
        torch.testing.assert_close(ex.compiled(x), x @ weight)


def test_a_view_of_a_result_with_other_strides_compiles():
    def f(x):
        return torch.cat([torch.empty(0), x.transpose(1, 2)], -2).view(8, 6, 3).sin()

    ex = rx.explore(f, (torch.randn(2, 6, 4, 3),))
    ex.mark("all", ops="*")
    assert_compiled_is_right(ex)


def test_editing_one_region_compiles_only_that_region():
    ex = rx.explore(programs.twelve_regions, (torch.randn(4, requires_grad=True),))
    assert ex.partitions.region.nunique() == 12
    for name in set(ex.partitions.region) - {"r03", "r04", "r05"}:  # three are enough to compile
        ex.disable(name)
    ex.compile()
    assert compile_count(ex) == 0
    ex.configure("r05", {"max_fusion_size": 7})
    stale = ex.partitions.query("state == 'stale'")
    assert set(stale.region) == {"r05"}
    assert compile_count(ex) == len(stale) == 2, "one forward, one backward"
    ex.configure("r05", {"max_fusion_size": rx.DEFAULT})
    assert compile_count(ex) == 0, "a config tried before needs no compile"
    ex.disable("r03").enable("r03")
    assert compile_count(ex) == 0
    ex.rename("r04", "renamed")
    assert compile_count(ex) == 0


def test_equal_pieces_are_compiled_once():
    ex = rx.explore(programs.Stack(depth=4), (torch.randn(4, 16),))
    ex.mark("layers", modules="layers.*")
    assert compile_count(ex) == 3, (
        "one forward piece; one backward piece, but for the first layer's: x needs no gradient"
    )
    assert len(ex.partitions) == 8
    assert_compiled_is_right(ex)


def test_thread_count_makes_artifacts_stale():
    """Dynamo guards on it too, so the compile has to be of the graph that the next call runs."""
    ex = rx.explore(programs.textbook, programs.pair())
    assert compile_count(ex) == 2
    with torch_threads(torch.get_num_threads() + 1):
        assert ex.partitions.state.tolist() == ["stale", "stale"]
        assert compile_count(ex) == 2
        with warnings.catch_warnings(action="error"):
            assert_compiled_is_right(ex)
            assert all(switch.artifact is not None for switch in ex.live.program.switches)
    assert compile_count(ex) == 0
    assert_compiled_is_right(ex)


def test_stale_after_settings_change():
    """A cell may set the number of threads while a job compiles: a key would then stand for other code."""
    ex = rx.explore(programs.neighbours, programs.pair(grad=False))
    threads = torch.get_num_threads()

    def progress(doing, _done):
        if doing.startswith("compiling second"):
            torch.set_num_threads(threads + 1)

    try:
        ex.compile(run=rx.Run(progress=progress))
    finally:
        torch.set_num_threads(threads)
    assert dict(zip(ex.partitions.region, ex.partitions.state, strict=True)) == {"first": "compiled", "second": "stale"}
    ex.compile()
    assert set(ex.partitions.state) == {"compiled"}


def test_the_users_inductor_config_is_kept_and_changes_the_key():
    from torch._inductor import config

    ex = rx.explore(programs.neighbours, programs.pair(grad=False))
    with config.patch(epilogue_fusion=False):
        ex.compile()
        assert config.epilogue_fusion is False
    assert config.max_fusion_size == 64
    assert (ex.partitions.state == "stale").all(), "compiled under another ambient config"


def test_dropout_is_compared_on_a_twin():
    ex = rx.explore(programs.dropout_between_blocks, programs.pair())
    assert_compiled_is_right(ex)
    assert ex.partitions.config_applied.tolist() == [{}] * len(ex.partitions), "the twin is not left in place"


def test_dynamic_shapes_compile_once():
    def shifted(x, y):
        with rx.region("r"):
            z = torch.cat([x, y]).sin() * 2
        return z[1:]

    ex = rx.explore(shifted, (torch.randn(5, 3), torch.randn(7, 3)), dynamic=True)
    compiled = ex.compiled
    for first, second in ((5, 7), (6, 9), (30, 2)):
        x, y = torch.randn(first, 3), torch.randn(second, 3)
        torch.testing.assert_close(compiled(x, y), shifted(x, y))
    assert len(ex.live.capture.frames) == 1
    assert ex.live.program.store.compiles == 1


def test_dynamic_strides_compile_once():
    def turned(x):
        with rx.region("r"):
            return (x.t() + 1).relu()

    ex = rx.explore(turned, (torch.randn(12, 8)[::2],), dynamic=True)
    compiled = ex.compiled
    for x in (torch.randn(20, 8)[::4], torch.randn(9, 5)[::3]):
        torch.testing.assert_close(compiled(x), turned(x))
    assert len(ex.live.capture.frames) == 1
    assert ex.partitions.state.tolist() == ["compiled"]


def test_size_fixed_by_compile_is_checked_per_call():
    """The trace has the last size as ``(s0*s1)//((s0*s1)//6)``; the compile of the region guards on ``Eq(…, 6)``."""

    def rows(x, width):
        return x.reshape(-1, width).sin() * 2

    ex = rx.explore(rows, (torch.randn(4, 12), 6), dynamic=True).mark("r", ops="aten.mul*")
    compiled = ex.compiled
    for shape in ((4, 12), (5, 18), (3, 8)):
        x = torch.randn(*shape)
        torch.testing.assert_close(compiled(x, 6), rows(x, 6))
    assert not ex.diagnostics
    assert ex.partitions.state.tolist() == ["compiled"]


@pytest.mark.parametrize("number", [5, -3, 0])
def test_a_dynamic_number_may_be_zero_or_negative(number):
    def shifted(x, number):
        with rx.region("r"):
            return x.sin() * number + max(number, 2)

    x = torch.randn(8, 4)
    ex = rx.explore(shifted, (x, number), dynamic=True)
    compiled = ex.compiled
    for other in (number, 7, -2, 0, 1):
        torch.testing.assert_close(compiled(x, other), shifted(x, other))
    assert ex.partitions.state.tolist() == ["compiled"]


def explore_with_changed_artifact(**changes):
    """Return an exploration, its switch with a changed artifact, and a call of the switch."""
    ex = rx.explore(lambda x: x.sin() * 2, (torch.randn(4, 3),)).mark("r", ops="*")
    ex.compile()
    (switch,) = ex.live.program.switches
    switch.use(replace(switch.artifact, dynamic=True, **changes))
    return ex, switch, lambda x: switch.call([x])[0]


def test_empty_input_runs_eagerly_once():
    def full(args):
        assert args[0].numel(), "expected size"
        return (args[0].sin() * 2,)

    ex, switch, call = explore_with_changed_artifact(call=full)
    noted = []
    switch.on_eager = noted.append
    assert call(torch.randn(0, 3)).shape == (0, 3)
    assert noted == ["an input is empty"]
    assert switch.artifact is not None
    x = torch.randn(4, 3)
    torch.testing.assert_close(call(x), x.sin() * 2)
    assert "region-failed" not in codes(ex)


def test_eager_first_call_does_not_settle_outputs():
    guard_results = [False, True, True]

    def transposed(args):
        return ((args[0].sin() * 2).t().contiguous().t(),)

    _, _, call = explore_with_changed_artifact(call=transposed, guard=lambda _args: guard_results.pop(0))
    x = torch.randn(4, 3)
    assert [call(x).stride() for _ in range(3)] == [(3, 1)] * 3


def size_from_mask(x, mask):
    found = x[mask].float()
    with rx.region("r"):
        return found.sin() * 2


def number_from_mask(x, mask):
    count = mask.sum().item()
    with rx.region("r"):
        return (x * count + torch.ones(count).sum()).sin()


def test_cached_code_is_recognized_for_other_numbers():
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        for seen in (3, 2):
            ex = rx.explore(
                number_from_mask, (torch.randn(4), torch.arange(4) < seen), tracing=rx.Tracing(decompositions=True)
            )
            ex.compile()
            assert ex.code("r").partitions[0].code.problem is None


@pytest.mark.parametrize("seen", [0, 1, 2])
@pytest.mark.parametrize("function", [size_from_mask, number_from_mask])
def test_a_computed_size_or_number_may_be_zero_or_one(function, seen):
    x = torch.randn(4)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        ex = rx.explore(function, (x, torch.arange(4) < seen))
        compiled = ex.compiled
        assert ex.partitions.state.tolist() == ["compiled"]
        assert ex.code("r").partitions[0].code.problem is None
        assert ex.repro("r")
        for others in (seen, 3, 0, 1):
            mask = torch.arange(4) < others
            torch.testing.assert_close(compiled(x, mask), function(x, mask))


def test_batch_norm_compiles_under_dynamic_shapes():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    twin = copy.deepcopy(model)
    ex = rx.explore(model, (torch.randn(8, 3, requires_grad=True),), dynamic=True).mark("norm", modules="1")
    compiled = ex.compiled
    assert ex.partitions.state.tolist() == ["compiled", "compiled"]
    for size in (8, 5):
        x = torch.randn(size, 3, requires_grad=True)
        torch.testing.assert_close(compiled(x), twin(x))
    torch.testing.assert_close(model.state_dict(), twin.state_dict())


def test_upstream_does_not_compile_batch_norm_under_dynamic_shapes():
    """The smallest program that shows it; once this fails, artifacts need no inputs for sizes on that torch."""
    norm = nn.BatchNorm1d(4)

    def normed(x):
        y = x * 2
        with rx.region("norm"):
            return norm(y)

    backend = aot_autograd(fw_compiler=regional_inductor, bw_compiler=regional_inductor)
    with pytest.raises(Exception, match="KeyError: s"), fx.traceback.preserve_node_meta():
        torch.compile(normed, backend=backend, dynamic=True)(torch.randn(8, 4))


@pytest.mark.parametrize("grad", [False, True])
def test_other_shapes_are_traced_under_the_same_plan_with_a_warning(grad):
    ex = rx.explore(programs.textbook, programs.pair(grad=grad))
    ex.configure("middle", {"max_fusion_size": 3})
    compiled = ex.compiled
    x, y = programs.pair(grad=grad, size=5)
    with pytest.warns(UserWarning, match="traced again") as caught:
        torch.testing.assert_close(compiled(x, y), programs.textbook(x, y))
    assert {warning.filename for warning in caught} == {__file__}, "at the line of the call"
    assert codes(ex) == ["recompiled"]
    dynamic = "With dynamic=True one trace serves all these sizes."
    new = "2 new partitions" if grad else "1 new partition"
    assert only(ex, "recompiled").remedy == f"Until the next ex.compile(), {new} will run eagerly. {dynamic}"
    ex.compile()
    assert only(ex, "recompiled").remedy == dynamic
    partitions = 4 if grad else 2
    assert ex.partitions.state.tolist() == ["compiled"] * partitions, "also the backward that no call has run"
    assert ex.partitions.config_applied.tolist() == [{"max_fusion_size": 3}] * partitions
    torch.testing.assert_close(compiled(x, y), programs.textbook(x, y))


def test_a_call_on_other_shapes_keeps_the_figures_of_the_plan(tmp_path):
    def figures():
        alone = ex.regions[["region", "eager_us", "compiled_us", "speedup", "numerics"]]
        plan = json.loads(ex.save_plan(tmp_path / "plan.json").read_text())
        return plan["explored"], *(table.to_csv() for table in (ex.timings, alone, ex.reconciliation))

    ex = rx.explore(programs.textbook, programs.pair(grad=False))
    with warnings.catch_warnings(record=True):  # the plan may be slower than eager
        ex.benchmark(variants=("regional",), budget_s=0.1)
        measured = figures()
        ex.compiled(*programs.pair(grad=False, size=5))
        assert set(ex.partitions.graph) == {"0/inference", "1/inference"}
        assert figures() == measured
        ex.compile()
        assert figures() == measured
        ex.benchmark(variants=("regional",), budget_s=0.1)
    assert len(ex.history) == 1
    assert ex.regions.eager_us.notna().all()
    assert "verdict" in measured[0]
    ex.configure("middle", {"max_fusion_size": 3})
    assert ex.session.is_outdated


def test_trace_without_tensor_inputs_is_reported():
    scale = [2]

    def scaled():
        with rx.region("r"):
            return torch.ones(3).sin() * scale[0]

    ex = rx.explore(scaled, ())
    compiled = ex.compiled
    scale[0] = 3
    with pytest.warns(UserWarning, match=r"traced again \(no tensor as input\)"):
        compiled()
    assert "trace region 'r' again (graph 1: no tensor as input)" in ex.diagnostics[0].message


def test_global_key_in_source_is_reported_and_ignored():
    def marked(x):
        with rx.region("r", fx_graph_cache=False, max_fusion_size=2):
            return x.sin() + 1

    ex = rx.explore(marked, (torch.ones(3),))
    assert ex.plan["r"].config == {"max_fusion_size": 2}
    assert codes(ex) == ["config-global"]
    assert codes(ex.configure("r", max_fusion_size=4)) == ["config-global"]
    assert not ex.unmark("r").diagnostics

    def unknown(x):
        with rx.region("r", max_fusion_sise=2):
            return x.sin() + 1

    with pytest.raises(UnknownConfigKeyError, match=r"Region 'r'.*Did you mean"):
        rx.explore(unknown, (torch.ones(3),))


def test_marks_in_the_source_that_a_plan_replaces_are_not_checked(tmp_path):
    def marked(x):
        with rx.region("r", max_fusion_sise=2, fx_graph_cache=False):
            return x.sin() + 1

    ex = rx.explore(marked, (torch.ones(3),), plan=rx.Plan())
    assert codes(ex) == []
    assert codes(rx.explore(marked, (torch.ones(3),), plan=ex.save_plan(tmp_path / "plan.json"))) == []


def test_benchmark_fills_the_tables():
    ex = rx.explore(programs.neighbours, programs.pair())
    timings = ex.benchmark(budget_s=0.5)
    assert set(zip(timings.variant, timings.phase, strict=True)) == {
        (variant, phase)
        for variant in ("eager", "aot_eager", "regional", "full")
        for phase in ("forward", "backward", "step")
    }
    assert {"median_us", "iqr_us", "speedup", "speedup_low", "speedup_high", "verdict", "samples"} <= set(timings)
    assert (timings.median_us > 0).all()
    assert set(ex.numerics.verdict) == {"ok"}
    assert ex.numerics.query("variant == 'aot_eager'").bitwise.all()
    assert ex.numerics.eager_rms_error_f64.notna().all()
    assert ex.compile_costs.what.tolist()[-1] == "full"
    assert ex.session.conditions.outdated is False
    ex.configure("first", {"max_fusion_size": 5})
    assert ex.session.conditions.outdated is True


def test_plain_torch_compile_is_not_charged_for_the_toolchain():
    ex = rx.explore(programs.textbook, programs.pair(grad=False), plan=rx.Plan())
    ex.benchmark(variants=("eager", "full"), budget_s=0.2)
    assert ex.compile_costs.what.tolist() == ["toolchain (once per process)", "full"]


def break_between_ops(x):
    x = x.sin() * 2
    torch._dynamo.graph_break()
    return x.cos() + BROKEN["constant"]


BROKEN = {"constant": 1.0}


def test_full_compile_is_cold_if_any_graph_is():
    def cost():
        ex = rx.explore(break_between_ops, (torch.randn(3, 5, 7),), plan=rx.Plan())
        ex.benchmark(variants=("eager", "full"), budget_s=0.2)
        return ex.compile_costs.cache.tolist()[-1]

    BROKEN["constant"] = random.SystemRandom().random()
    assert [cost(), cost()] == ["cold", "warm"]
    BROKEN["constant"] = random.SystemRandom().random()
    assert cost() == "cold", "the graph before the break is in the cache, the graph after it is not"


def test_all_variants_run_with_one_number_of_threads():
    ex = rx.explore(programs.textbook, programs.pair(grad=False))
    explored_with = torch.get_num_threads()
    for name in ("eager", "aot_eager", "regional"):
        seat = ex.live.variants.get(name)
        with torch_threads(explored_with + 1):  # as the user's code may do
            seat.select()
            assert torch.get_num_threads() == explored_with


def test_a_run_records_its_number_of_threads(tmp_path):
    ex, threads = rx.explore(programs.textbook, programs.pair(grad=False)), torch.get_num_threads()
    ex.benchmark(("regional",), 0.05, regions=False)
    with torch_threads(threads + 1), warnings.catch_warnings(record=True):  # the plan may be slower than eager
        ex.benchmark(("regional",), 0.05, regions=False)
        saved = json.loads(ex.save_plan(tmp_path / "plan.json").read_text())
    assert saved["explored"]["environment"]["threads"] == threads + 1
    assert f"threads {threads} → {threads + 1}" in session_changes(*ex.runs)


def test_wrong_gradients_withhold_the_speedup():
    ex = rx.explore(programs.textbook, programs.pair())
    ex.compile()
    change_code(ex, lambda right: lambda args: tuple(v * 1.01 for v in right(args)), "0/backward")
    timings = ex.benchmark(variants=("eager", "regional"), budget_s=0.3)
    assert timings.query("variant == 'regional'").speedup.isna().all()
    assert set(timings.query("variant == 'regional'").numerics) == {"failed"}
    failed = ex.numerics.query("verdict == 'failed'")
    assert failed.tensor.str.startswith("grad").all()


def chain(x):
    with rx.region("first"):
        a = torch.sin(x) * 2
    with rx.region("second"):
        b = torch.cos(a.cumsum(0))
    return b + 1


def test_inputs_of_a_piece_are_freed():
    """A piece that empties its argument list can free its inputs while it runs; upstream's pieces cannot."""
    ex = rx.explore(chain, (torch.randn(64),))
    ex.compile()
    call, second, seen = ex.compiled, ex.live.program.switches[-1], []
    run_code = second.artifact.call

    def counting(args):
        seen.append(sys.getrefcount(args[0]))
        results = run_code(args)
        seen.append(len(args))
        return results

    second.use(replace(second.artifact, call=counting))
    for _ in range(2):  # the first call checks the code, and keeps its inputs
        call(torch.randn(64))
    assert second.artifact is not None
    assert seen[2] <= 2, "the list and getrefcount itself"
    assert seen[3] == 0


@pytest.mark.parametrize("by", ["rename", "mark"])
def test_a_function_kept_from_before_an_edit_runs_the_compiled_code(by):
    x, ran = torch.randn(64), []
    ex = rx.explore(chain, (x,))
    kept = ex.compiled

    def with_log(artifact):
        return replace(artifact, call=lambda args: ran.append(artifact) or artifact.call(args))

    store = ex.live.program.store
    store.artifacts = {key: with_log(artifact) for key, artifact in store.artifacts.items()}
    if by == "rename":
        ex.rename("first", "front")
    else:
        ex.mark("last", ops="aten.add.*")
    for _ in range(2):
        torch.testing.assert_close(kept(x), chain(x))
    assert len(ran) == 4, "both regions in each call; what is new runs eagerly"


def test_other_strides_run_eagerly_and_are_reported():
    x = torch.randn(8, 8)
    ex = rx.explore(chain, (x,))
    ex.compile()
    last = ex.live.program.switches[-1]
    assert last.piece.inputs == ("mul",), "Dynamo guards inputs of the call alone"
    last.call([x])
    assert last.artifact is not None
    (result,) = last.call([x.t()])
    torch.testing.assert_close(result, x.t().cumsum(0).cos())
    assert last.artifact is None
    assert "refused" in last.refusal


def test_inputs_guarded_by_dynamo_are_checked_only_by_the_code():
    x = torch.randn(8, 8)
    ex = rx.explore(chain, (x,))
    ex.compile()
    first = ex.live.program.switches[0]
    first.call([x])
    with pytest.raises(AssertionError, match="expected size") as raised:
        first.call([x.t()])  # as no call can: Dynamo would trace it again
    assert raised.value.__notes__ == ["Raised in the compiled code of region 'first', graph 0/inference."]
    (result,) = first.call([x.t()])
    torch.testing.assert_close(result, torch.sin(x.t()) * 2)
    assert "refused" in first.refusal


def test_compiling_continues_without_warnings_after_a_dynamo_reset(recwarn):
    ex = rx.explore(chain, (torch.randn(64),))
    ex.compile()
    torch._dynamo.reset()
    assert compile_count(ex) == 0
    ex.mark("last", ops="aten.add.*")
    ex.compiled(torch.randn(64))
    assert not [found for found in recwarn if "traced again" in str(found.message)]
    assert (ex.partitions.query("region == 'last'").state == "compiled").all()


def test_without_a_compiler_eager_is_still_measured(monkeypatch):
    ex = rx.explore(programs.textbook, programs.pair(grad=False))

    def missing(*_args):
        raise NoCompilerError(inductor.NO_COMPILER)

    monkeypatch.setattr("regional_explorer.compiler.compilation.warm_toolchain", missing)
    timings = ex.benchmark(budget_s=0.2)
    assert set(timings.variant) == {"eager", "aot_eager"}
    found = only(ex, "no-compiler")
    assert "apt-get install g++" in found.message


def test_a_closed_exploration_keeps_its_tables_and_refuses_work():
    ex = rx.explore(programs.textbook, programs.pair(grad=False))
    ex.compile()
    before = ex.partitions
    ex.close()
    assert ex.partitions.equals(before)
    for use in (ex.compile, ex.benchmark, lambda: ex.compiled, lambda: ex.configure("middle", {})):
        with pytest.raises(ClosedError, match="was closed"):
            use()


def test_close_frees_full_compile():
    def step(x):
        return x.sin().sum()

    seen = weakref.ref(step)
    ex = rx.explore(step, (torch.ones(3),))
    ex.benchmark(variants=("full",), budget_s=0.1)
    ex.close()
    del step
    torch._dynamo.reset()
    gc.collect()
    assert seen() is None


def test_a_saved_session_is_loaded_unchanged(tmp_path):
    ex = rx.explore(programs.neighbours, programs.pair()).rename("second", "float")
    ex.benchmark(variants=("eager", "regional"), budget_s=0.2)
    for ending in ("json", "html", "svg", "csv"):
        assert ex.save(tmp_path / f"x.{ending}").stat().st_size > 100
    loaded = rx.load(tmp_path / "x.json")
    assert loaded.session == ex.session
    assert loaded.timings.equals(ex.timings)
    assert repr(loaded) == repr(ex)
    plan = ex.configure("first", {"max_fusion_size": 9}).save_plan(tmp_path / "plan.json")
    again = rx.explore(programs.neighbours, programs.pair(), plan=plan)
    assert again.plan == ex.plan
    for text in ("{", '{"kind": "plan", "regions": 3}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(rx.PlanError, match=r"bad\.json"):
            rx.explore(programs.textbook, programs.pair(), plan=tmp_path / "bad.json")
    with pytest.raises(rx.SessionError, match="must be one of"):
        ex.save(tmp_path / "x.docx")
