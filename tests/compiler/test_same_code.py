"""Configs that change nothing are reported by the compile under them; plans of equal code have one set of figures."""

import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace

import regional_explorer as rx
from regional_explorer.compiler.partition_records import inert_config_diagnostics
from regional_explorer.record.changes import run_same_code, under_plan_of
from regional_explorer.record.configs import PRESETS, speed_configs
from regional_explorer.record.partition import Partition, State, keys_of_same_code
from tests.shared.checks import codes, diagnostics_of, only
from tests.shared.sessions import measured, training_session

# ----------------------------------------------------------------------------------------------------- config-inert


def attention():
    qkv = tuple(torch.randn(1, 2, 16, 8) for _ in range(3))
    return rx.explore(F.scaled_dot_product_attention, qkv).mark("r", ops="*")


def loop():
    return rx.explore(lambda x: (x * 2).softmax(-1), (torch.randn(64, 32),)).mark("r", ops="*")


INERT = {
    "a preset on attention": (attention, "no fusion", "max_fusion_size=1 and epilogue_fusion=False have no effect"),
    "the presets' default values": (loop, "size asserts", "have no effect"),
    "a key": (attention, {"max_fusion_size": 7}, "max_fusion_size=7 has no effect"),
    "a key at its default": (loop, {"max_fusion_size": 64}, "max_fusion_size=64 has no effect"),
    "two keys": (loop, {"realize_opcount_threshold": 31, "split_reductions": False}, "and split_reductions=False have"),
    "emulated casts of float32": (loop, "eager numerics", "emulate_precision_casts=True and fallback_random=True have"),
}


@pytest.mark.compiles
@pytest.mark.parametrize(("explored", "config", "message"), INERT.values(), ids=INERT)
def test_config_without_effect_is_reported_by_compile(explored, config, message):
    ex = explored()
    ex.compile()
    assert codes(ex) == []
    table = ex.configure("r", config).compile()
    found = only(ex, "config-inert")
    assert message in found.message
    keys = PRESETS[config] if isinstance(config, str) else config
    assert table.same_code_without.tolist() == [", ".join(keys)]
    ex.apply(found)
    assert ex.plan["r"].config == {}
    assert codes(ex) == []


@pytest.mark.compiles
def test_a_config_that_changes_the_code_is_not_reported():
    ex = loop()
    ex.compile()
    table = ex.configure("r", {"max_fusion_size": 1}).compile()
    assert codes(ex) == []
    assert table.same_code_without.tolist() == [""]
    table = ex.configure("r", "no fusion").compile()
    assert table.same_code_without.tolist() == ["epilogue_fusion"]


@pytest.mark.compiles
def test_keys_without_effect_are_reported_beside_one_with_an_effect():
    ex = loop()
    ex.configure("r", {"max_fusion_size": 1, "epilogue_fusion": False, "split_reductions": False}).compile()
    texts = [found.message.split(" has ")[0] for found in diagnostics_of(ex, "config-inert")]
    assert texts == ["epilogue_fusion=False", "split_reductions=False"]
    ex.configure("r", {"max_fusion_size": rx.DEFAULT}).compile()
    assert "epilogue_fusion=False and split_reductions=False have" in only(ex, "config-inert").message


@pytest.mark.compiles
def test_a_key_without_effect_is_known_after_the_first_compile():
    ex = attention().configure("r", {"max_fusion_size": 7})
    compiles = ex.live.program.store.compiles
    ex.compile()
    assert "max_fusion_size=7 has no effect" in only(ex, "config-inert").message
    assert ex.live.program.store.compiles == compiles + 1, "the code without it is not built"


def chained(q, k):
    return torch.bmm(torch.bmm(q, k), q).relu()


def batches(*, grad=False):
    return torch.randn(32, 4, 8, requires_grad=grad), torch.randn(32, 8, 4)


TUNED = {"max_autotune": True, "max_autotune_gemm_backends": "CPP"}  # else the fastest kernel might be eager's


@pytest.mark.compiles
@pytest.mark.parametrize(
    "config",
    [pytest.param(TUNED, marks=pytest.mark.slow), {"max_autotune_gemm": True, "max_autotune_gemm_backends": "CPP"}],
)
def test_tuned_batched_products_are_not_called_inert(config):
    ex = rx.explore(chained, batches()).mark("r", ops="*").configure("r", config)
    assert not diagnostics_of(ex, "config-inert"), "before it is known"
    ex.compile()
    (tuned,), (plain,) = (ex.code("r", config=c).partitions for c in ({}, dict.fromkeys(config, rx.DEFAULT)))
    assert "extern_kernels.bmm(" in plain.code.text
    assert "extern_kernels.bmm(" not in tuned.code.text
    assert not any("=True" in found.message for found in diagnostics_of(ex, "config-inert"))


@pytest.mark.compiles
def test_tuned_batched_products_of_a_backward_are_not_called_inert():
    ex = rx.explore(lambda q, k: chained(q, k).sum(), batches(grad=True)).mark("r", ops="*")
    ex.configure("r", TUNED, direction="backward").compile()
    assert not diagnostics_of(ex, "config-inert")


@pytest.mark.compiles
def test_a_tuned_product_of_inputs_is_called_inert_once_its_code_is_known():
    ex = rx.explore(lambda x, y: (x @ y).relu(), (torch.randn(8, 8), torch.randn(8, 8))).mark("r", ops="*")
    ex.configure("r", {"max_autotune": True})
    assert not diagnostics_of(ex, "config-inert")
    ex.compile()
    assert "the generated code is the same" in only(ex, "config-inert").message


def test_the_search_tunes_batched_products_only_where_a_graph_has_one():
    assert {"max_autotune": True} in speed_configs("cpu", {"bmm", "relu"})
    assert {"max_autotune": True} not in speed_configs("cpu", {"mm", "relu"})
    assert {"max_autotune": True} in speed_configs("cuda", ())
    ex = rx.explore(lambda q, k: chained(q, k).sum(), batches(grad=True))
    assert "bmm" in {op.op for graph in ex.live.capture.graphs for op in graph.ops}


@pytest.mark.compiles
def test_a_value_without_effect_is_reported_though_another_value_has_one():
    ex = loop()
    ex.compile()
    ex.configure("r", {"max_fusion_size": 1}).compile()
    assert not diagnostics_of(ex, "config-inert")
    ex.configure("r", {"max_fusion_size": 60}).compile()
    assert "max_fusion_size=60 has no effect" in only(ex, "config-inert").message


@pytest.mark.compiles
def test_code_under_other_settings_is_not_compared():
    ex = loop()
    with torch._inductor.config.patch(max_fusion_size=1):
        ex.compile()
    ex.configure("r", {"max_fusion_size": 1}).compile()
    code = ex.session.partitions[0].code_hash
    assert code in [
        ex.live.program.store.code_hash(key)
        for key in ex.live.program.store.artifacts
        if key != ex.session.partitions[0].artifact
    ], "the code is the same"
    assert not diagnostics_of(ex, "config-inert"), "because the setting of the process is"


@pytest.mark.compiles
def test_a_key_with_effect_in_one_partition_is_not_inert():
    def two(x, y):
        with rx.region("r"):
            a = (x * 2).softmax(-1)
        b = a @ y
        with rx.region("r"):
            return b.relu()

    ex = rx.explore(two, (torch.randn(64, 32), torch.randn(32, 32)))
    ex.compile()
    table = ex.configure("r", {"max_fusion_size": 1}).compile()
    assert table.same_code_without.tolist() == ["", "max_fusion_size"]
    assert not diagnostics_of(ex, "config-inert")


@pytest.mark.compiles
def test_the_initial_config_is_compared():
    ex = rx.explore(rx.region("r", max_fusion_size=9)(lambda x: x.sin() * 2), (torch.randn(8),))
    ex.compile()
    assert "max_fusion_size=9 has no effect" in only(ex, "config-inert").message
    assert "config-inert" in [found.code for found in ex.diagnose("r", 0.1)]


def test_the_largest_key_sets_without_effect_in_all_partitions_are_reported():
    def partition(*sets):
        return Partition("r", "r", 0, "0/inference", (), State.COMPILED, same_without=sets)

    assert keys_of_same_code([]) == []
    assert keys_of_same_code([partition(("a",), ("b",), ("a", "b"))]) == [("a", "b")]
    assert keys_of_same_code([partition(("a",), ("a", "b")), partition(("a",))]) == [("a",)]
    assert keys_of_same_code([partition(("a",), ("b",)), partition(("b",), ("a",))]) == [("a",), ("b",)]
    assert keys_of_same_code([partition(("a",)), partition()]) == []


def test_cuda_graphs_are_never_without_effect():
    config = {"triton.cudagraphs": True, "max_fusion_size": 9}
    ex = loop().configure("r", config)
    (part,) = ex.session.partitions
    for keys, device, count in (
        (tuple(config), "cuda", 0),
        (("max_fusion_size",), "cuda", 1),
        (tuple(config), "cpu", 2),  # for one the reason is known
    ):
        found = list(inert_config_diagnostics(ex.live.program, [replace(part, same_without=(keys,))], device))
        assert len(found) == count


# -------------------------------------------------------------------------------------------------- one set of figures


@pytest.mark.compiles
def test_plans_of_equal_code_share_figures_and_name_each_other():
    ex = attention()
    ex.benchmark(("regional",), budget_s=0.05)
    first = ex.session
    ex.configure("r", "no fusion").compile()
    assert ex.session.timings == first.timings, "before it is measured itself"
    ex.benchmark(("regional",), budget_s=0.05)
    assert ex.session.timings != first.timings
    assert [run.plan for run in ex.runs] == [first.plan, ex.plan]
    for results in ("timings", "numerics", "partition_timings", "reconciliation", "memory", "conditions"):
        assert getattr(ex.runs[0], results) == getattr(ex.runs[1], results)
    history = ex.history
    assert history.same_code_as.tolist() == ["", "plan 1"]
    assert history.regional_us.nunique() == 1
    assert codes(ex.runs[0]) == [code for code in codes(ex.runs[1]) if code != "config-inert"]
    assert history.compile_s.nunique() == 2, "each has its own compile"


@pytest.mark.compiles
def test_plans_of_different_code_keep_their_own_figures():
    ex = loop()
    ex.benchmark(("regional",), budget_s=0.05)
    first = ex.session
    ex.configure("r", "no fusion").benchmark(("regional",), budget_s=0.05)
    assert ex.runs[0] == first
    assert ex.history.same_code_as.tolist() == ["", ""]
    ex.configure("r", {"epilogue_fusion": rx.DEFAULT}).benchmark(("regional",), budget_s=0.05)
    assert ex.runs[0] == first
    assert ex.history.same_code_as.tolist() == ["", "", "plan 2"]


def with_code(session, config, *hashes):
    """Return a session whose partitions have this config, and code of these hashes."""
    parts = [
        replace(part, code_hash=code, artifact=f"{code} {config}", config_requested=config)
        for part, code in zip(session.partitions, hashes, strict=True)
    ]
    plan = session.plan.changed(session.plan.regions[0].name, config=config)
    return replace(session, plan=plan, partitions=tuple(parts))


def test_same_code_compares_plans_by_their_code():
    base = measured(training_session(2))
    hashes = [f"code {number}" for number in range(len(base.partitions))]
    one, other = (with_code(base, config, *hashes) for config in ({}, {"max_fusion_size": 9}))
    assert run_same_code(one, other)
    assert not run_same_code(one, one), "it is the same plan"
    assert not run_same_code(one, with_code(base, {"max_fusion_size": 9}, *hashes[:-1], "another"))
    assert not run_same_code(one, replace(other, dynamic=True))
    eager = [replace(part, state=State.EAGER) for part in other.partitions]
    assert not run_same_code(one, replace(other, partitions=tuple(eager)))
    stale = replace(one.partitions[0], state=State.STALE, code_hash=None, artifact=None)
    assert not run_same_code(*(replace(run, partitions=(stale,)) for run in (one, other))), "it is not known yet"
    newest = replace(one, title="newest")
    assert under_plan_of(other, newest).plan == other.plan
    assert under_plan_of(other, newest).partitions == other.partitions
    assert under_plan_of(other, newest).title == "newest"
