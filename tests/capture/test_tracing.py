"""The tracing of a call: the options of a plan, in files and in production, and the ops of the graphs."""

import pytest
import torch
import torch.nn.functional as F

import regional_explorer as rx
from regional_explorer.export.to_source import plan_source
from regional_explorer.record.configs import PRESETS
from regional_explorer.record.files import load_plan
from regional_explorer.record.plan import AS_TORCH_COMPILE
from regional_explorer.tables.plan import kept_text
from tests.shared import programs
from tests.shared.checks import BEFORE_2_13, train_step

MIN_CUT = rx.Tracing("min_cut")
WAYS = [
    MIN_CUT,
    rx.Tracing(joint_passes=True),
    rx.Tracing(decompositions=True),
    AS_TORCH_COMPILE,
]
MLP = programs.plan_of(mlp="layers.*.up")


def explore_with(fn, args, tracing, **options):
    return rx.explore(fn, args, plan=rx.Plan(tracing=tracing), **options)


def op_targets(ex, kind):
    return [node.target for graph in ex.session.graphs if graph.kind == kind for node in graph.ops]


def attention(q, k, v):
    scores = (q @ k.transpose(-2, -1)) / 8.0
    return scores.softmax(-1) @ v


def gelu_with_dropout(x):
    return F.dropout(F.gelu(x.sin()), 0.5).square().sum()


def test_ops_are_decomposed_before_autograd():
    x = torch.randn(4, 4, requires_grad=True)
    assert "aten.gelu.default" in op_targets(explore_with(gelu_with_dropout, (x,), rx.Tracing()), "forward")
    forward = op_targets(explore_with(gelu_with_dropout, (x,), rx.Tracing(decompositions=True)), "forward")
    assert "aten.erf.default" in forward
    assert "aten.gelu.default" not in forward


def test_joint_passes_find_attention_before_the_split():
    args = [torch.randn(1, 2, 16, 64, requires_grad=True) for _ in range(3)]
    for tracing in (MIN_CUT, rx.Tracing("min_cut", decompositions=True)):
        assert not any(
            "attention" in target for target in op_targets(explore_with(attention, args, tracing), "forward")
        )
    assert any(
        "attention" in target for target in op_targets(explore_with(attention, args, AS_TORCH_COMPILE), "forward")
    )


@pytest.mark.skipif(BEFORE_2_13, reason="a replacement knows nothing of what it replaces")
def test_op_of_joint_passes_keeps_its_origin():
    args = [torch.randn(1, 2, 16, 64, requires_grad=True) for _ in range(3)]
    ex = explore_with(attention, args, AS_TORCH_COMPILE)
    ops = [node for graph in ex.session.graphs for node in graph.ops if graph.kind == "forward"]
    assert ops
    assert [node.name for node in ops if node.origin is None] == []
    assert all(node.source is not None for node in ops)


@pytest.mark.parametrize("tracing", WAYS, ids=str)
def test_random_numbers_match_eagers(tracing):
    x = torch.randn(64, 64, requires_grad=True)
    ex = explore_with(gelu_with_dropout, (x,), tracing)
    torch.manual_seed(5)
    expected = torch.autograd.grad(gelu_with_dropout(x), x)[0]
    torch.manual_seed(5)
    torch.testing.assert_close(torch.autograd.grad(ex.compiled(x), x)[0], expected)


@pytest.mark.compiles
@pytest.mark.parametrize("tracing", WAYS, ids=str)
def test_regions_train_as_eager_under_any_tracing_in_production_too(tracing, tmp_path):
    torch._dynamo.reset()  # torch 2.11 counts the traces of all tests of this code, and gives up after eight
    net, x = programs.Stack(2), torch.randn(4, 16)
    ex, expected = (
        rx.explore(net, (x,), plan=programs.plan_of(layer="layers.*").traced(tracing)),
        train_step(net, net, x),
    )
    ex.compile()
    assert {part.state for part in ex.session.partitions} == {"compiled"}
    torch.testing.assert_close(train_step(ex.compiled, net, x), expected)
    path = ex.save_plan(tmp_path / "plan.json")
    assert load_plan(path).tracing == tracing == ex.plan.tracing
    compiled = rx.compile(net, path)
    torch.testing.assert_close(train_step(compiled, net, x), expected)
    status = rx.status(compiled)
    assert status.plan.tracing == tracing
    assert [part.nodes for part in status.partitions] == [part.nodes for part in ex.session.partitions]
    assert rx.explore(net, (x,), plan=path).plan.tracing == tracing


def test_the_option_overrides_the_plan(tmp_path):
    x = torch.randn(4, 4, requires_grad=True)
    path = rx.explore(gelu_with_dropout, (x,), tracing=MIN_CUT).save_plan(tmp_path / "plan.json")
    ex = rx.explore(gelu_with_dropout, (x,), plan=path, tracing=rx.Tracing(decompositions=True))
    assert ex.plan.tracing == rx.Tracing(decompositions=True)
    compiled = rx.compile(gelu_with_dropout, path, tracing=rx.Tracing(joint_passes=True))
    compiled(x)
    assert rx.status(compiled).plan.tracing == rx.Tracing(joint_passes=True)


def test_setting_a_plan_with_other_tracing_retraces_the_call():
    net, x = programs.Stack(2), torch.randn(4, 16)
    ex = rx.explore(net, (x,), plan=MLP)
    ex.plan = MLP.traced(AS_TORCH_COMPILE)
    assert ex.plan == MLP.traced(AS_TORCH_COMPILE)
    assert "aten.erf.default" in op_targets(ex, "forward")
    ex.retrace(tracing=rx.Tracing())
    assert ex.plan == MLP
    assert "aten.gelu.default" in op_targets(ex, "forward")


def test_a_new_trace_keeps_regions_configs_and_tracing():
    net, x = programs.Stack(2), torch.randn(4, 16)
    ex = rx.explore(net, (x,), plan=MLP, tracing=MIN_CUT).configure("mlp", PRESETS["no fusion"])
    ex.retrace(tracing=rx.Tracing("min_cut", joint_passes=True))
    assert ex.plan == rx.explore(net, (x,), plan=MLP).configure("mlp", PRESETS["no fusion"]).plan.traced(
        rx.Tracing("min_cut", joint_passes=True)
    )
    ex.retrace(dynamic=True)
    assert ex.plan.tracing == rx.Tracing("min_cut", joint_passes=True)


def test_the_plan_as_python_keeps_its_tracing():
    net, x = programs.Stack(2), torch.randn(4, 16)
    ex = rx.explore(net, (x,), plan=MLP.traced(AS_TORCH_COMPILE))
    other = rx.explore(net, (x,))
    exec(plan_source(ex.plan), {"ex": other, "rx": rx})  # noqa: S102 - what the panel copies
    assert other.plan == ex.plan


def test_every_view_says_how_the_call_was_traced():
    x = torch.randn(4, 4, requires_grad=True)
    ex = explore_with(gelu_with_dropout, (x,), AS_TORCH_COMPILE)
    for view in (ex.text, ex.results._repr_mimebundle_()["text/html"]):
        assert "min_cut partitioner, joint passes, decompositions (as torch.compile)" in view
        assert "kept for the backward" in view


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"partitioner": "mincut"}, "Did you mean 'min_cut'"),
        ({"partitioner": 3}, "give 'default' or 'min_cut'"),
        ({"joint_passes": 1}, "joint_passes=1"),
        ({"decompositions": "yes"}, "decompositions='yes'"),
    ],
)
def test_a_wrong_tracing_is_refused(option, text):
    with pytest.raises(rx.InvalidArgumentError, match=text):
        rx.Tracing(**option)


def test_what_is_no_tracing_is_refused_by_every_function():
    x = torch.randn(4, 4, requires_grad=True)
    ex = rx.explore(gelu_with_dropout, (x,))
    for door in (
        lambda: rx.explore(gelu_with_dropout, (x,), tracing="min_cut"),
        lambda: rx.compile(gelu_with_dropout, tracing="min_cut"),
        lambda: ex.retrace(tracing="min_cut"),
    ):
        with pytest.raises(rx.InvalidArgumentError, match=r"tracing='min_cut'.*rx\.Tracing\('min_cut'\)"):
            door()
    assert ex.plan.tracing == rx.Tracing()


def gated(x, w):
    for _ in range(3):
        x = x + torch.tanh(x * w) * torch.sigmoid(x)
    return x.square().mean()


def pair_of(size=64):
    return torch.randn(size, size, requires_grad=True), torch.randn(size, requires_grad=True)


def test_kept_lists_each_saved_tensor_once_with_size_and_region():
    ex = rx.explore(gated, pair_of()).mark("tanh", ops="aten.tanh*")
    kept = ex.kept
    names = kept.tensor.tolist()
    assert len(set(names)) == len(names)
    assert {"tanh", "tanh_1", "tanh_2"} <= set(names)
    assert not any(name.startswith(("detach", "primals")) for name in names)
    assert set(kept.kept_bytes) == {64 * 64 * 4}
    assert set(kept[kept.op == "tanh"].region) == {"tanh"}
    assert kept[kept.op == "sigmoid"].region.isna().all()
    assert kept.line.str.contains("in gated").all()


def test_fewer_tensors_are_kept_if_the_backward_recomputes_them():
    kept = {
        name: rx.explore(gated, pair_of(), plan=rx.Plan(tracing=way)).kept
        for name, way in {"default": rx.Tracing(), "as torch.compile": AS_TORCH_COMPILE}.items()
    }
    assert kept["default"].kept_bytes.sum() > kept["as torch.compile"].kept_bytes.sum()
    ex = rx.explore(gated, pair_of(), plan=rx.Plan(tracing=AS_TORCH_COMPILE))
    assert "computed again" in kept_text(ex.session)


def test_parameters_and_views_of_them_are_not_kept():
    net = torch.nn.Linear(16, 16)
    ex = rx.explore(lambda x: net(x).relu().sum(), (torch.randn(4, 16, requires_grad=True),))
    assert ex.kept.op.tolist() == ["relu"]


def test_kept_tensors_of_dynamic_size_have_no_total():
    ex = rx.explore(lambda x: x.sin().exp().sum(), (torch.randn(6, 3, requires_grad=True),), dynamic=True)
    assert ex.kept.kept_bytes.isna().all()
    assert "of a size that may change" in kept_text(ex.session)


def test_call_without_backward_keeps_no_tensors():
    ex = rx.explore(gated, pair_of(), grad=False)
    assert len(ex.kept) == 0
    assert kept_text(ex.session) == ""


def test_sizes_are_not_kept_tensors():
    ex = rx.explore(lambda x: (x.sin() @ x.T).flatten().mean(), (torch.randn(4, 8, requires_grad=True),), dynamic=True)
    rows = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(5, 8)], layout=torch.jagged)
    linear = torch.nn.Linear(8, 8)
    jagged = rx.explore(lambda x: linear(x).values().exp().mean(), (rows,))
    for explored in (ex, jagged):
        assert all(explored.kept["values"])
