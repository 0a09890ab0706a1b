"""A failure is reported with its cause: the op of an assert, the line of a failed trace, the guard of another trace."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import regional_explorer as rx
from tests.shared.checks import BEFORE_2_13, BEFORE_2_15, diagnostics_of, only


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
def test_the_message_of_a_result_assert_names_op_and_line(function, config, op, line):
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
    ex.apply(only(ex, "region-failed"))
    ex.compile()
    torch.testing.assert_close(ex.compiled(x), turned_inside(x))
    assert ex.partitions.state.tolist() == ["compiled", "compiled"]


@pytest.mark.compiles
def test_the_message_names_the_op_on_which_torch_compile_fails():
    ex = rx.explore(turned_inside, (torch.randn(8, 4),))
    ex.benchmark(("full",), budget_s=0.1, regions=False)
    assert "(Error in op: torch.ops.regional_explorer_tests.turned.default)" in only(ex, "full-failed").message


@pytest.mark.compiles
def test_the_error_of_an_enabled_assert_names_the_op():
    ex = rx.explore(turned_inside, (torch.randn(8, 4),)).mark("r", ops="*").configure("r", "size asserts")
    ex.compile()
    with pytest.raises(rx.RegionAssertionError, match=r"a size assert failed: .*Error in op: .*turned\.default"):
        ex.compiled(torch.randn(8, 4))


@pytest.mark.compiles
@pytest.mark.parametrize("config", [{}, pytest.param({"cpp_wrapper": True}, marks=asserts_more)])
def test_an_input_assert_is_reported_as_refused_inputs(config):
    ex = rx.explore(lambda x: x.sin() + 1, (torch.randn(8, 4),)).mark("r", ops="*").configure("r", config)
    ex.compile()
    (switch,) = ex.live.program.switches
    switch.call([torch.randn(4, 8).t()])
    assert switch.refusal.startswith("the compiled code refused its inputs: expected size 8==8")
    assert "Error in op" not in switch.refusal


@pytest.mark.compiles
def test_errors_other_than_asserts_keep_their_type():
    ex = rx.explore(lambda x: x.sin() + 1, (torch.randn(8, 4),)).mark("r", ops="*")
    ex.compile()
    (switch,) = ex.live.program.switches

    def full(_args):
        raise torch.OutOfMemoryError("the device is full\nsecond line")

    switch.use(replace(switch.artifact, call=full))
    switch.call([torch.randn(8, 4)])
    assert switch.refusal == "the compiled code raised OutOfMemoryError: the device is full"


# ------------------------------------------------------------------------------------------ traces that fail in torch


mended_in_2_15 = pytest.mark.skipif(not BEFORE_2_15, reason="torch traces this")
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


def writes_in_bodies(x):
    return nested_body(x) + nested_body(x)


no_fake = custom_op("no_rank", other_strides, lambda x: x.new_empty(x.shape[7]))


def calls_op_without_fake(x):
    return no_fake(x).sin()


@pytest.mark.parametrize(
    ("function", "args", "line", "torch_line", "text"),
    [
        pytest.param(
            normed,
            jagged,
            "return norm(rows(v, o)).values().sum()",
            "torch/fx/experimental/symbolic_shapes.py:",
            "list index out of range",
            marks=mended_in_2_15,
        ),
        (unbound, jagged, "part.sum() for part in parts", "torch/_subclasses/fake_impls.py:", "_local_scalar_dense"),
        pytest.param(
            writes_in_bodies,
            (torch.randn(4),),
            "nested_body(x) + nested_body(x)",
            "torch/_",
            "alias annotations",
            marks=mended_in_2_15,
        ),
        pytest.param(
            calls_op_without_fake,
            (torch.randn(4, 4),),
            "x.new_empty(x.shape[7])",
            "torch/",
            "index out of range",
            marks=pytest.mark.skipif(BEFORE_2_13, reason="the error has no line of the user's"),
        ),
    ],
)
def test_the_error_of_failed_traces_names_lines_and_a_repro(function, args, line, torch_line, text):
    with pytest.raises(rx.CaptureError) as refused:
        rx.explore(function, args)
    assert refused.value.code == "trace-failed"
    first, *others = refused.value.message.splitlines()
    assert first.startswith("torch could not trace the call: ")
    assert text in refused.value.message
    assert [where for where in others if where.startswith("It happened at test_causes.py:") and line in where]
    assert [where for where in others if where.startswith(f"Torch raised it at {torch_line}")]
    assert any('torch.compile(fn, backend="aot_eager") fails with the same error' in other for other in others)
    assert "What to try: " in others[-1]
    assert ("without the decorator nested_compile_region" in others[-1]) is (function is writes_in_bodies)


def test_advice_for_failed_trace_works():
    def outside(v, o):
        return torch.compiler.disable(normed)(v, o).sin()

    assert rx.explore(outside, jagged).session.graphs
    assert rx.explore(lambda x: body(x) + body(x), (torch.randn(4),)).session.graphs


# ------------------------------------------------------------------------------------------- another trace, and why


mix = nn.Linear(8, 8)


def chunked(x):
    return torch.cat([mix(part).relu() for part in x.chunk(4)]).sum()


def relu_sin(x):
    return x.relu().sin()


def branches_on_size(x):
    return x.relu().sin() if x.shape[0] > 6 else x.relu().cos()


def viewed(x):
    return x.relu().view(-1, 2).sum(0) if x.shape[0] % 2 == 0 else x.relu().sum()


ALL, SPECIAL, EQUAL = "one trace serves all these sizes", "does something else for some", "stay equal in its trace"


def traces_of(function, sizes, *, dynamic):
    """Explore a function for the first size, run it for the others, and return the exploration."""
    ex = rx.explore(function, (torch.randn(sizes[0]),), dynamic=dynamic).mark("act", ops="*relu*")
    for size in sizes[1:]:
        ex.live.capture.run(torch.randn(size))
    return ex


@pytest.mark.parametrize(
    ("function", "sizes", "advice", "traces"),
    [
        (chunked, [(16, 8), (5, 8), (6, 8), (7, 8)], SPECIAL, 4),
        (branches_on_size, [(16,), (5,)], SPECIAL, 2),
        (viewed, [(16,), (5,)], SPECIAL, 2),
        (relu_sin, [(8, 8), (5, 8)], EQUAL, 2),
        (relu_sin, [(8,), (1,)], EQUAL, 2),
        (relu_sin, [(8, 8), (5, 5)], ALL, 1),
        (relu_sin, [(16,), (5,)], ALL, 1),
        (relu_sin, [(16, 4), (5, 4), (5, 3)], ALL, 1),
    ],
)
def test_advice_on_dynamic_matches_a_dynamic_trace(function, sizes, advice, traces):
    ex = traces_of(function, sizes, dynamic=None)
    found = diagnostics_of(ex, "recompiled")
    assert found
    assert all(advice in item.remedy for item in found)
    tried = traces_of(function, sizes, dynamic=True)
    assert len(tried.live.capture.frames) == traces
    assert (traces < len(ex.live.capture.frames)) is (advice is ALL)


def test_the_message_of_a_later_trace_names_the_failed_guard():
    ex = traces_of(chunked, [(16, 8), (5, 8), (6, 8), (7, 8)], dynamic=None)
    # A call on the first sizes makes Dynamo look at their trace first.
    ex.live.capture.run(torch.randn(16, 8))
    ex.live.capture.run(torch.randn(4, 8))
    first, *others = [item.message for item in diagnostics_of(ex, "recompiled")]
    assert "size mismatch at index 0. expected 16, actual 5" in first
    assert others
    assert all("x.size()[0]" in message and "size mismatch" not in message for message in others)


def test_static_traces_do_not_tell_if_dynamic_sizes_would_help():
    ex = traces_of(relu_sin, [(16,), (5,), (6,)], dynamic=False)
    assert "is not known: none had dynamic sizes" in only(ex, "recompiled").remedy
    assert "expected 5, actual 6" in only(ex, "recompiled").message


def test_the_remedy_for_another_dtype_is_not_dynamic_sizes():
    ex = rx.explore(relu_sin, (torch.randn(8),))
    ex.live.capture.run(torch.randn(8, dtype=torch.float64))
    assert "dynamic=True" not in only(ex, "recompiled").remedy


@pytest.mark.compiles
def test_a_forgotten_trace_is_not_reported_as_an_untaken_branch():
    ex = rx.explore(relu_sin, (torch.randn(8),)).mark("act", ops="*relu*")
    ex.compile()
    ex.code("act")
    torch._dynamo.reset()
    assert "since torch._dynamo.reset(), which made Dynamo forget this one" in ex.kernel_times("act").problem[0]


@pytest.mark.compiles
@pytest.mark.parametrize("reset", [False, True])
def test_a_superseded_trace_is_not_reported_as_an_untaken_branch(reset):
    ex = rx.explore(relu_sin, (torch.randn(8),)).mark("act", ops="*relu*")
    ex.compile()
    ex.compiled(torch.randn(5))
    if reset:
        torch._dynamo.reset()
    ex.benchmark(("regional",), budget_s=0.1)
    warnings = [text for timing in ex.session.partition_timings if not timing.runs for text in timing.warnings]
    assert any("the call runs another trace" in text for text in warnings)
    assert not any("a branch not taken" in text for text in warnings)


@pytest.mark.compiles
def test_an_untaken_branch_is_reported_as_not_reached():
    def either(x):
        return torch.cond(x.sum() > 0, lambda x: x.relu(), lambda x: x.relu().cos(), (x,))

    ex = rx.explore(either, (torch.ones(8),)).mark("act", ops=["*relu*", "*cos*"])
    ex.benchmark(("regional",), budget_s=0.1)
    assert ("the call does not reach it: a branch not taken",) in [
        timing.warnings for timing in ex.session.partition_timings if not timing.runs
    ]
