"""Capturing: its records, and that the user's state does not change."""

import importlib
import random
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.fx.traceback import annotate
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

import regional_explorer as rx
from regional_explorer.capture.call import Call
from regional_explorer.capture.tensors import random_cotangents, tensors_in
from regional_explorer.capture.trace import Capture
from regional_explorer.capture.user_lines import is_internal, source_line
from regional_explorer.errors import CaptureError
from regional_explorer.measure.reference import Float64
from regional_explorer.page.panes import source_listing
from regional_explorer.record.graph import Role
from tests.shared import programs
from tests.shared.checks import version_of


def capture(fn, *args, **options):
    return Capture(Call(fn, args, **options))


def test_records_dynamo_forward_and_backward():
    found = capture(programs.textbook, *programs.pair())
    assert [graph.id for graph in found.graphs] == ["0/dynamo", "0/forward", "0/backward"]
    dynamo, forward, backward = found.graphs
    assert [node.target for node in forward.ops] == [
        "aten.sin.default",
        "aten.mul.Tensor",
        "aten.add.Tensor",
        "aten.sin.default",
    ]
    mul = forward.by_name["mul"]
    assert (mul.values[0].dtype, mul.values[0].shape, mul.values[0].device) == ("float32", (8, 8), "cpu")
    assert mul.source is not None
    assert mul.source.function == "textbook"
    assert mul.source.text == "b = a * y + 1"
    assert mul.annotation == {"inductor_region": "middle", "inductor_configs": {}}
    assert {node.role for node in backward.nodes} == {Role.INPUT, Role.SAVED, Role.TANGENT, Role.OP, Role.OUTPUT}
    origin = next(node.origin for node in dynamo.ops if node.target == "mul")
    assert [node.name for node in forward.ops if node.origin == origin] == ["mul"]
    assert [node.op for node in backward.ops if node.origin == origin] == ["mul", "mul"]


def test_a_module_without_ops_leaves_its_class_traceable():
    x = torch.randn(3)
    with pytest.raises(CaptureError, match="Nothing was captured"):
        capture(nn.Sequential(), x)
    torch.compile(nn.Sequential(nn.ReLU()), backend=(backend := CompileCounter()))(x)  # the user's own compile
    assert backend.frame_count == 1
    assert capture(nn.Sequential(nn.ReLU()), x).frames


def test_exploring_changes_nothing_of_the_users():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    x = torch.randn(4, 3)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    pending = model(x).square().sum()
    buffers = {name: (buffer.clone(), version_of(buffer)) for name, buffer in model.named_buffers()}
    generators = torch.get_rng_state(), random.getstate(), repr(np.random.get_state())  # noqa: NPY002
    capture(model, x)
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, buffers[name][0]), name
        assert version_of(buffer) == buffers[name][1], name
    assert torch.equal(torch.get_rng_state(), generators[0])
    assert (random.getstate(), repr(np.random.get_state())) == generators[1:]  # noqa: NPY002
    assert all(torch.equal(parameter.grad, torch.ones_like(parameter)) for parameter in model.parameters())
    assert model.training
    pending.backward()


def test_users_changes_after_first_run_stay():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    call = Call(model, (torch.randn(8, 3),))
    norm = model[1]
    model(torch.randn(8, 3))  # the user goes on training
    norm.num_batches_tracked = torch.tensor(17)
    kept, version = norm.running_mean.clone(), version_of(norm.running_mean)
    with call.restoring():
        call.forward()
        assert not torch.equal(norm.running_mean, kept)
        call.restore()
        with call.restoring():
            call.forward()
        assert torch.equal(norm.running_mean, kept)
        call.forward()
    assert torch.equal(norm.running_mean, kept)
    assert version_of(norm.running_mean) == version
    assert norm.num_batches_tracked == 17


def test_gradients_stop_at_the_users_own_graph():
    leaf = torch.randn(3, requires_grad=True)
    x = leaf * 2
    call = Call(lambda x: (x * x).sum(), (x,))
    outputs = call.forward()
    (gradient,) = call.backward(outputs)
    torch.testing.assert_close(gradient, 2 * x.detach())
    x.sum().backward()
    assert leaf.grad is not None


@pytest.mark.parametrize("used", ["a leaf", "a result"])
def test_gradients_through_users_graph_are_refused(used):
    weight = torch.ones(4, requires_grad=True)
    hidden = weight.exp()
    result = hidden.sin()
    given = (weight, hidden) if used == "a leaf" else (hidden, result)
    with pytest.raises(CaptureError, match=r"call-continues.*detach"):
        rx.explore(torch.mul, given)
    rx.explore(torch.mul, given, grad=False)
    rx.explore(torch.mul, tuple(tensor.detach().requires_grad_() for tensor in given))
    result.sum().backward()  # what it needs is there
    assert weight.grad is not None


def test_gradients_equal_autograds_for_fixed_cotangents():
    x, y = programs.pair()
    call = Call(programs.textbook, (x, y))
    gradients = call.backward(call.forward())
    (cotangent,) = random_cotangents(programs.textbook(x, y)).values()
    expected = torch.autograd.grad(programs.textbook(x, y), (x, y), cotangent)
    assert {tuple(g.flatten().tolist()) for g in gradients} == {tuple(g.flatten().tolist()) for g in expected}
    assert cotangent.std() > 0.5


async def asynchronous(x):
    return x + 1


def yields(x):
    yield x + 1


def creates_a_leaf(x):
    return (x.detach().clone().requires_grad_() * 2).sum()


REFUSED = [
    (lambda x: x.nonsense(), "The call itself raises AttributeError"),
    (lambda x: (x * 2).sum().backward(), r"runs backward\(\)"),
    (lambda x: torch.autograd.backward((x * 2).sum()), r"runs torch.autograd.backward\(\)"),
    (lambda x: torch.optim.SGD([x]).step(), "runs an optimizer step"),
    (lambda x: torch.optim.SGD([x]).zero_grad(), r"runs zero_grad\(\)"),
    (lambda x: 3, "Nothing was captured"),
    (asynchronous, "returns a coroutine of asynchronous, whose body has not run"),
    (lambda x: asynchronous(x + 0), "returns a coroutine of asynchronous, whose body has not run"),
    (yields, "returns a generator of yields, whose body has not run"),
    (lambda x: x.detach() + 1, "no-gradient.*no output depends on a tensor that requires grad"),
    (creates_a_leaf, "no-gradient.*The call creates these tensors itself"),
    (
        lambda x: torch.nested.as_nested_tensor([x[None], x[None]], layout=torch.jagged),
        r"no-gradient. The call returns a nested tensor \(output\).*grad=False",
    ),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("fn", "message"), REFUSED)
def test_calls_that_cannot_be_explored_are_refused(fn, message):
    x = torch.ones(3, requires_grad=True)
    x.grad = torch.ones(3)
    with pytest.raises(CaptureError, match=message):
        capture(fn, x, grad=True if "no output" in message else None)
    assert torch.equal(x, torch.ones(3))
    assert torch.equal(x.grad, torch.ones(3))


def test_calls_with_unusual_tensors_can_be_explored():
    assert capture(creates_a_leaf, torch.ones(3), grad=False).graphs
    assert capture(lambda: torch.arange(4.0).sin()).graphs[1].ops
    x = torch.ones(4, requires_grad=True)
    assert Call(lambda x: x.to(torch.float8_e4m3fn), (x,)).gradient_names
    (cotangent,) = random_cotangents(x.to(torch.float8_e4m3fn)).values()
    assert cotangent.dtype is torch.float8_e4m3fn
    with torch.device("meta"):
        model, x = nn.Linear(8, 8), torch.randn(2, 8)
    assert len(capture(model, x).graphs) == 3


@pytest.mark.parametrize("how", ["replaced", "frozen"])
def test_parameters_replaced_or_frozen_since_the_exploration_are_refused(how):
    model = nn.Linear(3, 3)

    def step(x):
        return model(x).sum()

    ex = rx.explore(step, (torch.ones(2, 3),))
    if how == "replaced":
        model = nn.Linear(3, 3)
    else:
        model.requires_grad_(requires_grad=False)
    with pytest.raises(CaptureError, match=r"no-gradient.*replaced or frozen"):
        ex.benchmark(variants=("eager",), budget_s=0.1)


@pytest.mark.parametrize(
    ("mode", "dtype"),
    [(torch.autocast("cpu", torch.bfloat16), torch.bfloat16), (torch.inference_mode(), torch.float32)],
)
def test_repetitions_run_under_the_modes_of_the_first_run(mode, dtype):
    with mode:
        ex = rx.explore(nn.Linear(4, 4), (torch.randn(2, 4),))
    call = ex.live.call
    with call.restoring():
        outputs = [call.run(fn)[0] for fn in (call.fn, ex.live.capture.run)]
    assert [output.dtype for output in outputs] == [dtype] * 2
    assert outputs[0].is_inference() is isinstance(mode, torch.inference_mode)
    ex.benchmark(variants=("eager", "aot_eager"), budget_s=0.1)
    assert len(ex.live.capture.frames) == 1
    assert ex.numerics.dtype[0] == str(dtype).removeprefix("torch.")
    assert not torch.is_autocast_enabled("cpu")
    assert not torch.is_inference_mode_enabled()


def test_a_call_explored_without_autocast_repeats_without_it():
    ex = rx.explore(nn.Linear(4, 4), (torch.randn(2, 4),))
    with torch.autocast("cpu", torch.bfloat16):
        ex.benchmark(variants=("eager", "aot_eager"), budget_s=0.1)
    assert len(ex.live.capture.frames) == 1
    assert set(ex.numerics.dtype) == {"float32"}


def test_tensors_in_nested_outputs_are_found():
    def many(x):
        return {"a": x + 1, "b": (x.sum(), 7, "text", x), "none": None}

    call = Call(many, (torch.ones(3, requires_grad=True),))
    outputs = call.forward()
    assert [name for name, _ in tensors_in(outputs, "output")] == ["output.a", "output.b[0]", "output.b[3]"]
    assert [g.shape for g in call.backward(outputs)] == [torch.Size([3])]


def test_no_two_outputs_have_the_same_cotangent():
    """Equal cotangents would let gradients of sums and differences cancel, and hide a backward that mixes them up."""
    for shape in ((3,), ()):
        h, g = torch.randn(shape, requires_grad=True), torch.randn(shape, requires_grad=True)
        call = Call(lambda h, g: (h + g, h - g), (h, g))
        assert all(gradient.abs().min() > 1e-3 for gradient in call.backward(call.forward())), shape
    assert random_cotangents(((h + g).sum(), (h - g).expand(3)))["[0]"] == 1, "as in training"


def test_gradients_of_several_modules_have_distinct_names():
    encoder, decoder, x = nn.Linear(8, 8), nn.Linear(8, 8), torch.randn(2, 8)
    names = Call(lambda x: decoder(encoder(x)).sum(), (x,)).gradient_names
    assert sorted(names) == ["grad decoder.bias", "grad decoder.weight", "grad encoder.bias", "grad encoder.weight"]
    assert sorted(Call(lambda x: decoder(x).sum(), (x,)).gradient_names) == ["grad bias", "grad weight"]

    def twice(w):
        return lambda x: x * w

    halves = [twice(torch.ones(8, requires_grad=True)) for _ in range(2)]
    assert sorted(Call(lambda x: halves[1](halves[0](x)), (x,)).gradient_names) == ["grad w", "grad w (2)"]


def test_a_tensor_kept_on_ctx_gets_no_gradient():
    class Tripled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.variable = torch.ones(2, requires_grad=True)
            return x * 3

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    x = torch.ones(2, requires_grad=True)
    call = Call(lambda x: Tripled.apply(x).sum(), (x,))
    assert call.gradient_names == ["grad args[0]"]
    assert call.backward(call.forward())[0].tolist() == [3, 3]


RUNS: list[object] = []


def kernel_backend(gm, _inputs):
    """Backend that hides the writes of a graph from dispatch modes, as kernels do."""

    def run(*args):
        RUNS.append(gm)
        with _disable_current_modes():
            return gm(*args)

    return run


class NormNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(x)


def function_around_compiled(model):
    compiled = torch.compile(model, backend=kernel_backend)
    return lambda x: compiled(x) * 2


def compiled_in_place(model):
    model.compile(backend=kernel_backend)
    return model


COMPILED = {
    "module": lambda model: torch.compile(torch.compile(model, backend="eager"), backend=kernel_backend),
    "function": lambda model: torch.compile(lambda x: model(x) * 2, backend=kernel_backend),
    "method": lambda model: torch.compile(model.forward, backend=kernel_backend),
    "in place": compiled_in_place,
    "torch's own in place": lambda model: compiled_in_place(model.norm),
    "inside": function_around_compiled,
}


@pytest.mark.parametrize("how", COMPILED)
def test_compiled_function_is_explored_uncompiled(how):
    model, x = NormNet(), torch.randn(8, 4)
    fn = COMPILED[how](model)
    RUNS.clear()
    ex = rx.explore(fn, (x,)).mark("norm", ops="*batch_norm*")
    assert not RUNS
    assert "OptimizedModule" not in ex.title
    assert not ex.partitions.empty
    call = ex.live.call
    assert call.stateful
    with call.restoring():
        call.forward()
    assert bool(RUNS) is (how == "inside"), "functions inside the call run as in the user's program"
    assert model.norm.num_batches_tracked == 0
    assert not model.norm.running_mean.any()


def test_gradients_pass_operators_that_compile_themselves():
    scale, x = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)
    branches = lambda x: x * scale, lambda x: x - scale
    choose = torch.compile(lambda x: torch.cond(x.sum() > 0, *branches, (x,)), backend=kernel_backend, fullgraph=True)
    assert sorted(Call(lambda x: choose(x).sum(), (x,)).gradient_names) == ["grad args[0]", "grad scale"]


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_attention_uses_random_numbers_only_with_dropout(dropout):
    def attention(query, key, value):
        return functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout)

    heads = [torch.randn(2, 2, 8, 16, requires_grad=True) for _ in range(3)]
    found = capture(attention, *heads)
    assert any(node.random for graph in found.graphs for node in graph.ops) == bool(dropout)
    if not dropout:
        _, exact = Float64(found).run().outputs[0]
        truth = attention(*(head.detach().double() for head in heads))
        torch.testing.assert_close(exact, truth, rtol=1e-12, atol=1e-12)


def test_repeated_captures_of_one_function_are_equal():
    model, args = nn.Sequential(nn.Linear(4, 4)), programs.pair()
    with torch._dynamo.config.patch(recompile_limit=2, accumulated_recompile_limit=2):
        for fn, given in (
            (programs.textbook, args),
            (programs.break_between_regions, args),
            (model, (torch.randn(2, 4),)),
        ):
            kept = [capture(fn, *given) for _ in range(4)]
            seen = {tuple((graph.id, len(graph.ops)) for graph in found.graphs) for found in kept}
            assert len(seen) == 1
            assert len(kept[0].graphs) in (3, 6)


def test_a_user_module_with_a_torch_like_name_belongs_to_the_user():
    packages = Path(torch.__file__).parent.parent
    assert is_internal(str(packages / "torch" / "nn" / "functional.py"))
    assert not is_internal(str(packages / "torchvision" / "models" / "resnet.py"))


def test_source_lines_are_read_from_the_reloaded_module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "reloaded_step.py"

    def explore_text(text):
        path.write_text(text)
        importlib.invalidate_caches()
        module = importlib.import_module("reloaded_step")
        return rx.explore(importlib.reload(module).step, (torch.ones(3),))

    explore_text("def step(x):\n    y = 1\n    return x.sin()\n").mark("r", lines="step:3")
    # The line of the op stays what it was, its function begins one line further down.
    ex = explore_text("# one line more\ndef step(x):\n    return x.sin()\n").mark("r", lines="step:2")
    assert ex.session.members["r"]["0/inference"] == ("sin",)
    ex = explore_text("# more\n\ndef step(x):\n    return x.cos() * 2  # as of now\n")
    lines = {line.text for graph in ex.session.graphs for node in graph.ops for line in node.stack}
    assert lines == {"return x.cos() * 2  # as of now"}
    assert "torch.fx.traceback.annotate" in ex.mark("r", lines="step:2").to_source()
    path.write_text("import os\n\n\ndef step(x):\n    return x + 1\n")
    line = source_line(str(path), 5, "step")
    assert (line.def_line, line.text) == (4, "return x + 1"), "without a trace, too"


class Reversible(torch.autograd.Function):
    """Computes its input again in the backward, as reversible layers do."""

    taken = "backward"

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = x.sin()
            if Reversible.taken == "grad":
                return torch.autograd.grad(y, x, gradient)[0]
            torch.autograd.backward(y, gradient)
        return x.grad


def test_backward_inside_autograd_function_is_refused_with_advice(monkeypatch):
    def call(x):
        return Reversible.apply(x).sum()

    x = torch.ones(4, requires_grad=True)
    with pytest.raises(CaptureError, match=r"call-trains.*torch\.autograd\.grad.*grad=False") as raised:
        rx.explore(call, (x,))
    assert "Pass the function that returns the loss" not in str(raised.value)
    assert rx.explore(call, (x,), grad=False).session.graphs
    monkeypatch.setattr(Reversible, "taken", "grad")
    assert rx.explore(call, (x,)).live.call.gradient_names


BEFORE = """import torch

def helper(x):
    return x.sin()

class Model(torch.nn.Module):
    def forward(self, x):
        y = helper(x)
        torch._dynamo.graph_break()
        return [y * n for n in range(2)], y.exp()
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [("import torch", "# new\nimport torch"), ("helper(x)\n", "helper(x)\n        # new\n"), ("y * n", "y / n")],
    ids=["a line above", "a comment inside", "another operator"],
)
def test_source_edited_since_its_import_is_not_shown(tmp_path, monkeypatch, old, new):
    monkeypatch.syspath_prepend(tmp_path)
    name = f"edited_{len(new)}"
    path = tmp_path / f"{name}.py"
    before = BEFORE.replace("range(2)", f"range({len(new)})")  # Dynamo mixes up the files of equal code
    path.write_text(before)
    module = importlib.import_module(name)
    path.write_text(before.replace(old, new, 1))
    ex = rx.explore(module.Model(), (torch.ones(3),))
    stacks = {line for graph in ex.session.graphs for node in graph.ops for line in node.stack}
    assert {line.line for line in stacks if line.function == "forward"} == {8, 10}
    assert not any(line.text for line in stacks if line.function == "forward")
    then = [text.strip() for text in before.splitlines()]
    assert all(line.text in {"", then[line.line - 1]} for line in stacks)
    shown = [line for function in source_listing(ex.session) for line in function.lines]
    assert all(line.text.strip() in {"…", then[line.number - 1]} for line in shown)
    (found,) = (item for item in ex.diagnostics if item.code == "source-changed")
    assert f"{name}.py:7 in forward" in found.message
    assert ("in helper" in found.message) is (old == "import torch")
    ex.mark("r", ops="aten.exp*")
    assert f"{path} has changed since the call was traced" in str(ex.to_source())
    again = rx.explore(importlib.reload(module).Model(), (torch.ones(3),))
    assert not [item for item in again.diagnostics if item.code == "source-changed"]
    assert all(line.text for graph in again.session.graphs for node in graph.ops for line in node.stack)


def test_cells_run_one_by_one_are_not_reported_as_edited(tmp_path, monkeypatch):
    path = tmp_path / "cells.py"
    path.write_text("def cell():\n    def step(x):\n        return x.sin()\n    return step\n")
    module = types.ModuleType("cells")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "cells", module)
    exec(compile("\ndef step(x):\n    return x.sin()\n", str(path), "exec"), vars(module))  # noqa: S102 - as marimo does
    ex = rx.explore(module.step, (torch.ones(3),))
    assert not [item for item in ex.diagnostics if item.code == "source-changed"]


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


ROWS = torch.nn.Linear(8, 8)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ROWS(x).values().square().mean(),
        lambda x: Square.apply(functional.gelu(ROWS(x)).values()).mean(),
        lambda x: (x * 2).values(),
        lambda x: torch.cat([part.sum(0) for part in x.unbind()]),
    ],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_jagged_arguments_are_explored(call, dynamic):
    rows = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(5, 8)], layout=torch.jagged)
    ex = rx.explore(call, (rows,), dynamic=dynamic)
    assert any(graph.ops for graph in ex.session.graphs)


def test_annotations_of_the_users_code_are_recorded_in_all_graphs():
    def step(x):
        with annotate({"stage": 1}):
            y = x.sin()
        with annotate({"stage": 2, "compile_with_inductor": {"inductor_region": "r"}}):
            return (y * x.exp()).sum()

    graphs = rx.explore(step, (torch.ones(3, requires_grad=True),)).session.graphs
    stages = {graph.kind: {node.op: dict(node.annotations) for node in graph.ops} for graph in graphs}
    for kind in ("dynamo", "forward"):
        assert stages[kind]["sin"] == {"stage": "1"}
        assert stages[kind]["exp"] == {"stage": "2"}
    assert stages["backward"]["cos"] == {"stage": "1"}
