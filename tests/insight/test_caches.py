"""The cache result of each artifact and its reason, the difference from the nearest, and where compile time goes."""

import contextlib
import pickle
from dataclasses import replace

import pytest
import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass

import regional_explorer as rx
from regional_explorer.compiler import artifact
from regional_explorer.compiler.artifact import KNOWN_COMPILES, CompileContent, KnownCompiles, changes_of_key
from regional_explorer.record.artifact import ArtifactCompile, CacheResult, CompilePhase, KeyChange
from regional_explorer.torch_api.compile_notes import Times
from regional_explorer.torch_api.graphs import fake_mode_with_symbols
from regional_explorer.torch_api.torch_config import Settings
from tests.shared.checks import BEFORE_2_13, torch_setting

ATEN = torch.ops.aten


def content_of(op=ATEN.add.Tensor, argument=2, shape=(8, 4), stride=(4, 1), dtype=torch.float32, **config):
    """Return the content of the compile of a small graph; nothing is compiled."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    first = graph.create_node("call_function", op, (x, argument), name="op_1")
    graph.output((graph.create_node("call_function", ATEN.sin.default, (first,), name="op_2"),))
    with fake_mode_with_symbols():
        fake = torch.empty_strided(shape, stride, dtype=dtype)
    return CompileContent.of(fx.GraphModule({}, graph), [fake], config, Settings.now())


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


FLOATS = "input 0: float32 [8, 4] strides [4, 1] on cpu"
CHANGES = {
    "config": (
        {"max_fusion_size": 8},
        None,
        {f"inductor config max_fusion_size: {inductor_config.max_fusion_size} → 8"},
    ),
    "inductor": ({}, inductor_config.patch({"cpp.simdlen": 0}), {"inductor config cpp.simdlen: None → 0"}),
    "functorch": (
        {},
        functorch_config.patch(activation_memory_budget=0.5),
        {"functorch config activation_memory_budget: nothing → 0.5"},
    ),
    "op": ({"op": ATEN.sub.Tensor}, None, {"op 0: aten.add.Tensor(x, 2) → aten.sub.Tensor(x, 2)"}),
    "argument": ({"argument": 3}, None, {"op 0: aten.add.Tensor(x, 2) → aten.add.Tensor(x, 3)"}),
    "shape": ({"shape": (16, 4)}, None, {f"{FLOATS} → float32 [16, 4] strides [4, 1] on cpu"}),
    "stride": ({"stride": (1, 8)}, None, {f"{FLOATS} → float32 [8, 4] strides [1, 8] on cpu"}),
    "dtype": ({"dtype": torch.float64}, None, {f"{FLOATS} → float64 [8, 4] strides [4, 1] on cpu"}),
    "default dtype": (
        {},
        torch_setting("default_dtype", torch.float64),
        {"default dtype: torch.float32 → torch.float64"},
    ),
    "deterministic": (
        {},
        deterministic(),
        {"deterministic: (False, False) → (True, True)", "inductor config deterministic: False → True"},
    ),
}


@pytest.mark.parametrize(("changed", "around", "expected"), CHANGES.values(), ids=CHANGES)
def test_a_changed_part_is_listed_with_both_values(changed, around, expected):
    before = content_of()
    assert before == content_of()
    with around or contextlib.nullcontext():
        after = content_of(**changed)
    assert set(map(str, changes_of_key(before, after))) == expected


def anonymous_pass(graph):
    """A pass without uuid()."""


class PassWithUuid(CustomGraphPass):
    def __call__(self, graph):
        pass

    def uuid(self):
        return b"known"


def test_a_config_at_its_default_does_not_change_the_key():
    assert not [*changes_of_key(content_of(), content_of(max_fusion_size=inductor_config.max_fusion_size))]
    first, second = (content_of(pre_grad_custom_pass=PassWithUuid()) for _ in range(2))
    assert first == second
    (change,) = changes_of_key(first, content_of(pre_grad_custom_pass=anonymous_pass))
    assert change.part == "inductor config pre_grad_custom_pass"


MISS, HIT, BYPASS, OFF = (
    ArtifactCompile(1.0, answer) for answer in (CacheResult.MISS, CacheResult.HIT, CacheResult.BYPASS, CacheResult.OFF)
)


def test_the_nearest_known_compile_is_the_one_with_fewest_changes():
    known = KnownCompiles()
    content = CompileContent({"x": "1", "y": "1"}, ("add(x)", "mul(y)"))
    assert known.compare_and_remember("first", MISS, content).nearest is None
    known.compare_and_remember("far", MISS, CompileContent({"x": "2", "y": "2"}, ("add(x)", "mul(y)")))
    known.compare_and_remember(
        "other graph", MISS, CompileContent({"x": "3", "y": "1"}, ("sin(x)", "cos(y)", "tan(z)"))
    )
    found = known.compare_and_remember("new", MISS, CompileContent({"x": "3", "y": "1"}, ("add(x)", "mul(y)")))
    assert (found.nearest, found.changes) == ("first", (KeyChange("x", "1", "3"),))
    more = known.compare_and_remember(
        "more", MISS, CompileContent({"x": "3", "y": "1"}, ("add(x)", "mul(y)", "exp(z)"))
    )
    assert (more.nearest, more.changes) == ("new", (KeyChange("ops", "2", "3, with exp"),))


def test_miss_of_known_compile_says_entry_is_gone():
    known, content = KnownCompiles(), CompileContent({}, ("add(x)",))
    for made in (BYPASS, OFF):
        assert known.compare_and_remember("one", made, content).nearest is None
    assert not known.artifacts
    known.compare_and_remember("one", MISS, content)
    assert "gone" in known.compare_and_remember("one", MISS, content).why
    assert known.compare_and_remember("one", HIT, content).why == ""


def big_content(number, ops=3000):
    """Return the content of a graph as large as a whole model; one of its ops differs from the others."""
    texts = [f"aten.add.Tensor(op_{index}, in_{index * 7 % 50})" for index in range(ops)]
    texts[number] = f"aten.mul.Tensor(op_{number}, {number})"
    parts = {f"input {index}": f"float32 [{index}, 8] strides [8, 1] on cpu" for index in range(50)}
    return CompileContent(parts, tuple(texts))


def test_known_compiles_take_little_memory():
    known = KnownCompiles()
    for number in range(10):
        known.compare_and_remember(f"artifact {number}", MISS, big_content(number))
    assert len(pickle.dumps(known)) < 10 * 2**15
    found = known.compare_and_remember("new", MISS, replace(big_content(7), ops=("sin(x)", *big_content(7).ops[1:])))
    assert found.nearest == "artifact 7"
    assert found.why == "op 0: aten.add.Tensor(op_0, in_0) → sin(x)"


def test_the_oldest_compiles_are_dropped_beyond_the_limit(monkeypatch):
    known = KnownCompiles()
    for number in range(artifact.MOST_KNOWN + 5):
        known.compare_and_remember(str(number), MISS, CompileContent({"x": str(number)}, ("add(x)",)))
    assert [*known.artifacts.values()] == list(map(str, range(5, 205)))
    known.compare_and_remember("again", MISS, CompileContent({"x": "5"}, ("add(x)",)))
    assert len(known.artifacts) == artifact.MOST_KNOWN, "a known compile takes no more room"
    monkeypatch.setattr(artifact, "MOST_KNOWN_BYTES", 100)
    known.compare_and_remember("last", MISS, CompileContent({"x": "1"}, ("add(x)",)))
    assert 1 <= len(known.artifacts) < 5
    assert [*known.artifacts.values()][-1] == "last"


def test_nested_event_time_is_counted_once():
    times = Times()
    for name, begin in (("GraphLowering.codegen", 0), ("Scheduler.__init__", 10), ("unheard of", 20)):
        times.begin(name, begin * 10**9)
    for name, end in (("unheard of", 25), ("Scheduler.__init__", 30), ("GraphLowering.codegen", 60)):
        times.end(name, end * 10**9)
    times.end("never begun", 70 * 10**9)
    assert times.phases(100.0) == {"scheduling": 15.0, "code generation": 40.0, "other": 45.0}
    assert times.whole["GraphLowering.codegen"] == 60.0


# ------------------------------------------------------------------------------------------------------- explorations

twice_sine = rx.region("r")(lambda x: torch.sin(x) * 2)


def explore():
    return rx.explore(twice_sine, (torch.randn(64, 16),))


def compiled_ex():
    ex = explore()
    ex.compile()
    return ex


def compiles(ex):
    """Return the rows of partitions."""
    return ex.compile_costs.dropna(subset="region")


def cache_row():
    """Compile the region; return its row of the compiles."""
    (row,) = compiles(compiled_ex()).to_dict("records")
    return row


@pytest.mark.compiles
def test_cold_compile_is_a_miss_and_its_phases_add_up():
    ex = explore()
    ex.compile(cold=True)
    assert list(compiles(ex).answer) == ["miss"]
    assert list(compiles(ex).why) == ["compiled with empty caches, as requested"]
    assert list(ex.partitions.cache) == ["cold"]
    before = ex.live.program.store.compiles
    ex.compile()
    assert ex.live.program.store.compiles == before, "otherwise nothing is compiled again"
    (row,) = compiles(ex).to_dict("records")
    phases = [row[f"{phase.name.lower()}_s"] for phase in CompilePhase]
    assert sum(phases) == pytest.approx(row["compile_s"])
    assert row["compile_s"] == pytest.approx(ex.partitions.compile_s.sum())
    for phase in ("lowering_s", "scheduling_s", "code_s", "build_s"):
        assert row[phase] > 0
    assert row["build_s"] > row["load_s"]
    x = torch.randn(64, 16)
    torch.testing.assert_close(ex.compiled(x), twice_sine(x))


@pytest.mark.compiles
def test_cached_compile_lowers_nothing():
    compiled_ex()
    again = compiled_ex()
    assert list(compiles(again).answer) == ["hit"]
    assert compiles(again).lowering_s.sum() == 0
    KNOWN_COMPILES.artifacts.clear()
    ex = compiled_ex()
    ex.configure("r", {"realize_opcount_threshold": 31})
    with inductor_config.patch(force_disable_caches=False):
        ex.compile()
    (artifact,) = ex.session.artifacts.values()
    (change,) = artifact.compile.changes
    assert (change.part, change.after) == ("inductor config realize_opcount_threshold", "31")
    assert artifact.compile.nearest is not None


@pytest.mark.compiles
def test_a_bypassed_cache_and_disabled_caches_are_reported():
    with inductor_config.patch(post_grad_custom_pre_pass=anonymous_pass):
        row = cache_row()
    assert row["answer"] == "bypass"
    assert "anonymous_pass has no uuid()" in row["why"]
    with inductor_config.patch(fx_graph_cache=False), functorch_config.patch(enable_autograd_cache=False):
        row = cache_row()
    assert (row["answer"], row["why"]) == ("off", "fx_graph_cache and enable_autograd_cache are off")


@pytest.mark.compiles
@pytest.mark.skipif(BEFORE_2_13, reason="torch does not say yet when they run")
def test_pre_grad_passes_are_reported_before_or_after_the_lookup():
    with inductor_config.patch(pre_grad_custom_pass=PassWithUuid()):
        assert cache_row()["pre_grad_passes"] == "after the look-up: skipped on a hit"
    with inductor_config.patch(pre_grad_custom_pass=anonymous_pass):
        _, row = cache_row(), cache_row()
    assert row["pre_grad_passes"] == "before the look-up: on every compile, as anonymous_pass has no uuid()"
    assert row["answer"] == "hit"
    assert row["pre_grad_s"] > 0, "it runs on a hit too"
