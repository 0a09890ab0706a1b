"""Outputs inside objects: found, compared, differentiated; those that cannot be compared are listed."""

import itertools

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

import regional_explorer as rx
from regional_explorer.capture.tensors import opaque_in, tensors_in
from regional_explorer.measure.numerics import compare_results, run_once, verdict
from regional_explorer.measure.reference import find_reference
from regional_explorer.tables.benchmark import numerics_table
from regional_explorer.torch_api.dynamo import ISOLATES
from tests.shared.fakes import TickingClock, timed_by


class Cache:
    def __init__(self, keys, values):
        self.values = values
        self.keys = keys
        self.seen = 3


class SlottedObject:
    __slots__ = ("__private", "held", "unset")

    def __init__(self, held, private=None):
        self.held = held
        self.__private = private


def return_caches(x):
    with rx.region("r"):
        y = x.sin() * 2
    return {"out": y + 1, "caches": [Cache(y, x.cos())]}


def test_tensors_inside_objects_are_compared_under_their_attribute_names():
    one = Cache(torch.ones(1), (torch.zeros(2), SlottedObject(torch.ones(3))))
    one.itself = one
    assert [name for name, _ in tensors_in(one, "o")] == ["o.keys", "o.values[0]", "o.values[1].held"]
    assert not list(opaque_in(one))
    assert [name for name, _ in tensors_in(SlottedObject(None, torch.ones(3)))] == ["._SlottedObject__private"]
    value = {"module": nn.Linear(2, 2), "some": iter([torch.ones(1)]), "text": "x", "kind": Cache}
    assert list(opaque_in(value, "o")) == [("o.module", "Linear"), ("o.some", "list_iterator")]
    assert not list(tensors_in(value))


def test_a_wrong_cache_is_found():
    ex = rx.explore(return_caches, (torch.randn(8, 8),))
    reference = find_reference(ex.live.call, ex.live.program)

    def wrong_keys(x):
        found = return_caches(x)
        found["caches"][0].keys = found["caches"][0].keys * 1.01
        return found

    assert verdict(compare_results("regional", run_once(ex.live.call, ex.live.capture.run), reference)) == "ok"
    rows = compare_results("regional", run_once(ex.live.call, wrong_keys), reference)
    assert [row.tensor for row in rows if row.verdict == "failed"] == ["output.caches[0].keys"]

    def without_keys(x):
        found = return_caches(x)
        del found["caches"][0].keys
        return found

    rows = compare_results("regional", run_once(ex.live.call, without_keys), reference)
    assert any("output.caches[0].keys is missing" in row.note for row in rows)


def test_gradients_go_through_objects():
    x = torch.randn(8, requires_grad=True)
    ex = rx.explore(lambda x: Cache(x.sin(), 3), (x,))
    assert ex.live.call.grad
    assert [graph.kind for graph in ex.session.graphs] == ["dynamo", "forward", "backward"]


@pytest.mark.slow
def test_the_kv_cache_of_a_model_is_compared():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=97, num_key_value_heads=1, **sizes)
    model = transformers.LlamaModel(config).eval()
    ex = rx.explore(model, (), {"input_ids": torch.randint(0, 97, (2, 8)), "use_cache": True}, grad=False)
    found = find_reference(ex.live.call, ex.live.program)
    rows = compare_results("captured", run_once(ex.live.call, ex.live.capture.run), found)
    assert sum("past_key_values" in row.tensor for row in rows if row.verdict == "ok") == 4
    assert verdict(rows) == "ok"


def test_uncompared_outputs_are_listed():
    def f(x):
        y = x.sin()
        return y, iter([y])

    ex = rx.explore(f, (torch.randn(8),))
    ex.benchmark(("aot_eager",), budget_s=0.2)
    assert ex.numerics.verdict.tolist() == ["ok", "not compared"]
    assert set(ex.timings.numerics) == {"reference", "ok"}
    assert "Not compared: output[1]" in " ".join(numerics_table(ex.session).notes())


def test_sparse_outputs_and_gradients_are_compared():
    w, table = torch.randn(8, 8), nn.Embedding(32, 8, sparse=True)
    ex = rx.explore(lambda x: torch.relu(x @ w).to_sparse(), (torch.randn(8, 8),))
    ex.benchmark(("aot_eager",), budget_s=0.2)
    assert ex.numerics.verdict.tolist() == ["ok"]
    ex = rx.explore(lambda tokens: table(tokens).square().sum(), (torch.arange(12) % 5,))
    ex.benchmark(("aot_eager",), budget_s=0.2)
    assert dict(zip(ex.numerics.tensor, ex.numerics.verdict, strict=True)) == {"output": "ok", "grad weight": "ok"}
    call = ex.live.call
    reference = find_reference(call, ex.live.program)
    rows = compare_results("regional", run_once(call, lambda tokens: table(tokens).square().sum() * 1.01), reference)
    assert verdict(rows) == "failed"


@pytest.mark.compiles
@pytest.mark.skipif(not ISOLATES, reason="torch 2.11 does not tell its traces apart")
def test_retracing_variant_gets_no_verdict():
    turns = itertools.count()

    @torch.compiler.disable
    def label():
        return f"call {next(turns)}"

    def traced_each_time(x):
        y = x.sin() + 1
        return y.cos() * (2 if label() != "" else 3)

    def verdict_and_warnings(ex, variant):
        with timed_by(TickingClock()):  # as many rounds however busy the machine is
            row = ex.benchmark((variant,), 0.1).set_index("variant").loc[variant]
        return row.verdict, row.warnings

    ex = rx.explore(traced_each_time, (torch.randn(8),))
    for variant, gave_up in (("full", "runs in plain Python"), ("aot_eager", "")):
        verdict, warnings = verdict_and_warnings(ex, variant)
        assert verdict == "no verdict"
        assert "traced the call again" in warnings
        assert variant == "aot_eager" or "the samples include compiles" in warnings
        verdict, warnings = verdict_and_warnings(ex, variant)
        assert verdict == "no verdict", "Dynamo gave up on it: nothing new was traced"
        assert gave_up in warnings
    assert len(ex.live.capture.frames) > 2, "otherwise nothing is tested"
    verdict, warnings = verdict_and_warnings(rx.explore(lambda x: x.sin().cos(), (torch.randn(64),)), "full")
    assert verdict == "no difference"
    assert "traced the call again" not in warnings


def test_gradients_of_a_tensor_subclass_are_compared():
    args = TwoTensor(torch.randn(3, 3), torch.randn(3, 3)), torch.randn(3, 3, requires_grad=True)
    for function in (lambda x, weight: (x @ weight).sin().sum(), lambda x, weight: (x @ weight).sin()):
        ex = rx.explore(function, args).mark("all", ops="*")
        ex.benchmark(variants=["regional"], budget_s=0.1)
        assert ex.numerics[["tensor", "verdict"]].values.tolist() == [["output", "ok"], ["grad args[1]", "ok"]]
