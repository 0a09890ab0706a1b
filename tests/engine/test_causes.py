"""What failed is told with its cause: the op of an assert, the line of a failed trace, the guard of another trace."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import regional_explorer as rx
from tests.shared.checks import BEFORE_2_13, only


def custom_op(name, kernel, fake=torch.empty_like):
    op = torch.library.custom_op(f"regional_explorer_tests::{name}", kernel, mutates_args=())
    op.register_fake(fake)
    return op


def other_strides(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t()


def two_results(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.clone(), x.t().contiguous().t()


turned = custom_op("turned", other_strides)
two = custom_op("two", two_results, lambda x: (torch.empty_like(x), torch.empty_like(x)))

# ---------------------------------------------------------------------------- asserts about what a kernel returns


def quantized(x):
    return torch.quantize_per_tensor(x.t(), 0.05, 10, torch.quint8).dequantize() + 1


def turned_inside(x):
    y = x.exp()
    y = turned(y)
    return y.cos()


def second_of_two(x):
    return two(x * 2)[1] + 1


asserts_more = pytest.mark.skipif(BEFORE_2_13, reason="generated code asserts less")
RETURNS = "returns other sizes or strides than its fake kernel promises: expected size"


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("function", "config", "op", "line"),
    [
        pytest.param(quantized, {}, "aten.quantize_per_tensor.default", 1, marks=asserts_more),
        (turned_inside, {}, "regional_explorer_tests.turned.default", 2),
        pytest.param(
            turned_inside, {"cpp_wrapper": True}, "regional_explorer_tests.turned.default", 2, marks=asserts_more
        ),
        (second_of_two, {}, "regional_explorer_tests.two.default", 1),
    ],
)
def test_an_assert_about_a_result_names_the_op_and_its_line(function, config, op, line):
    x = torch.randn(8, 4)
    ex = rx.explore(function, (x,)).mark("r", ops="*").configure("r", config)
    ex.compile()
    torch.testing.assert_close(ex.compiled(x), function(x))
    found = only(ex, "region-failed")
    assert f"{op} {RETURNS}" in found.message
    assert f"(Error in op: torch.ops.{op})" in found.message, "torch's own line"
    assert "refused its inputs" not in found.message
    assert [place.line for place in found.where] == [function.__code__.co_firstlineno + line]
    nodes = {node.name: node.target for graph in ex.session.graphs for node in graph.nodes if graph.id == found.graph}
    assert [nodes[name] for name in found.nodes] == [op]
    assert f"ex.carve('r', ops='{op}')" in found.remedy


@pytest.mark.compiles
def test_the_op_of_an_assert_can_be_carved_out():
    x = torch.randn(8, 4)
    ex = rx.explore(turned_inside, (x,)).mark("r", ops="*")
    ex.compile()
    ex.compiled(x)
    remedy = only(ex, "region-failed").remedy
    eval(remedy.partition(" leaves")[0], {"ex": ex})  # noqa: S307 - the remedy is code
    ex.compile()
    torch.testing.assert_close(ex.compiled(x), turned_inside(x))
    assert ex.partitions.state.tolist() == ["compiled", "compiled"]


@pytest.mark.compiles
def test_plain_torch_compile_that_fails_on_an_op_names_it():
    ex = rx.explore(turned_inside, (torch.randn(8, 4),))
    ex.benchmark(("full",), budget_s=0.1, regions=False)
    assert "(Error in op: torch.ops.regional_explorer_tests.turned.default)" in only(ex, "full-failed").message


@pytest.mark.compiles
def test_an_assert_that_a_config_enables_names_the_op():
    ex = rx.explore(turned_inside, (torch.randn(8, 4),)).mark("r", ops="*").configure("r", "size asserts")
    ex.compile()
    with pytest.raises(rx.RegionAssertionError, match=r"a size assert failed: .*Error in op: .*turned\.default"):
        ex.compiled(torch.randn(8, 4))


@pytest.mark.compiles
@pytest.mark.parametrize("config", [{}, pytest.param({"cpp_wrapper": True}, marks=asserts_more)])
def test_an_assert_about_an_input_is_told_as_that(config):
    ex = rx.explore(lambda x: x.sin() + 1, (torch.randn(8, 4),)).mark("r", ops="*").configure("r", config)
    ex.compile()
    (switch,) = ex.live.program.switches
    switch.implementation([torch.randn(4, 8).t()])
    assert switch.refusal.startswith("the compiled code refused its inputs: expected size 8==8")
    assert "Error in op" not in switch.refusal


@pytest.mark.compiles
def test_what_else_compiled_code_raises_is_passed_on_with_its_type():
    ex = rx.explore(lambda x: x.sin() + 1, (torch.randn(8, 4),)).mark("r", ops="*")
    ex.compile()
    (switch,) = ex.live.program.switches

    def full(_args):
        raise torch.OutOfMemoryError("the device is full\nsecond line")

    switch.use(replace(switch.artifact, call=full))
    switch.implementation([torch.randn(8, 4)])
    assert switch.refusal == "the compiled code raised OutOfMemoryError: the device is full"


# ------------------------------------------------------------------------------------------ traces that fail in torch


norm = nn.LayerNorm(16)
rows = torch.nested.nested_tensor_from_jagged
jagged = (torch.randn(20, 16, requires_grad=True), torch.tensor([0, 6, 11, 20]))


def normed(v, o):
    return norm(rows(v, o)).values().sum()


def unbound(v, o):
    parts = rows(v, o).unbind()
    return torch.stack([part.sum() for part in parts]).sum()


@torch.library.custom_op("regional_explorer_tests::add_one", mutates_args=("x",))
def write(x: torch.Tensor) -> None:
    x.add_(1)


seen = torch.zeros(4)


def body(x):
    write(seen)
    return x + seen


nested_body = torch.compiler.nested_compile_region(body)


def wrote(x):
    return nested_body(x) + nested_body(x)


no_fake = custom_op("no_rank", other_strides, lambda x: x.new_empty(x.shape[7]))


def faked(x):
    return no_fake(x).sin()


@pytest.mark.parametrize(
    ("function", "args", "line", "torch_line", "text"),
    [
        (
            normed,
            jagged,
            "return norm(rows(v, o)).values().sum()",
            "torch/fx/experimental/symbolic_shapes.py:",
            "list index out of range",
        ),
        (unbound, jagged, "part.sum() for part in parts", "torch/_subclasses/fake_impls.py:", "_local_scalar_dense"),
        (wrote, (torch.randn(4),), "nested_body(x) + nested_body(x)", "torch/_", "alias annotations"),
        (faked, (torch.randn(4, 4),), "x.new_empty(x.shape[7])", "torch/", "index out of range"),
    ],
)
def test_a_failed_trace_is_told_with_the_lines_and_what_plain_torch_does(function, args, line, torch_line, text):
    with pytest.raises(rx.CaptureError) as refused:
        rx.explore(function, args)
    assert refused.value.code == "trace-failed"
    first, *others = refused.value.message.splitlines()
    assert first.startswith("torch could not trace the call: ")
    assert text in refused.value.message
    assert [where for where in others if where.startswith("It happened at test_causes.py:") and line in where]
    assert [where for where in others if where.startswith(f"Torch raised it at {torch_line}")]
    assert any('torch.compile(fn, backend="aot_eager") fails with the same error' in told for told in others)
    assert "What to try: " in others[-1]
    assert ("without the decorator nested_compile_region" in others[-1]) is (function is wrote)


def test_what_a_failed_trace_says_to_try_helps():
    def outside(v, o):
        return torch.compiler.disable(normed)(v, o).sin()

    assert rx.explore(outside, jagged).session.graphs
    assert rx.explore(lambda x: body(x) + body(x), (torch.randn(4),)).session.graphs
