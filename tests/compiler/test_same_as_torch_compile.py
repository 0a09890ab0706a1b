"""A plan that is traced as ``torch.compile`` traces, every op in one region, has the code of ``torch.compile``."""

import contextlib
import re
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.compile_fx import compile_fx
from torch._inductor.graph import GraphLowering

import regional_explorer as rx
from regional_explorer.record.plan import AS_TORCH_COMPILE, FROZEN
from regional_explorer.torch_api import inductor
from tests.shared.checks import BEFORE_2_13
from tests.shared.small_models import Experts, Gated, Llama, Norms, Residual

# ---------------------------------------------------------------------------------------------------------- the models


class Attention(nn.Module):
    def __init__(self, width=32, heads=2):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(b, t, d))


class GPT(nn.Module):
    def __init__(self, width=32, words=50):
        super().__init__()
        self.embed, self.attention, self.norm = nn.Embedding(words, width), Attention(width), nn.LayerNorm(width)
        self.up, self.down, self.head = nn.Linear(width, 64), nn.Linear(64, width), nn.Linear(width, words)

    def forward(self, tokens):
        x = self.attention(self.embed(tokens))
        x = x + self.down(F.gelu(self.up(self.norm(x))))
        return F.cross_entropy(self.head(x)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


class Recurrent(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.cell, self.out = nn.Linear(2 * width, 4 * width), nn.Linear(width, 1)

    def forward(self, x):
        h = c = torch.zeros_like(x[:, 0])
        for step in x.unbind(1):
            i, f, g, o = self.cell(torch.cat([step, h], -1)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return self.out(h).mean()


def manual_attention(x):
    q, k, v = x.unbind(1)
    return (((q @ k.transpose(-2, -1)) / 8.0).softmax(-1) @ v).square().mean()


def distances(x, y):
    return (x.unsqueeze(1) - y.unsqueeze(0)).square().sum(-1).sqrt().min(1).values.cumsum(0).mean()


def floats(*sizes):
    return torch.randn(*sizes, requires_grad=True)


MODELS: dict[str, tuple[Any, Any]] = {
    "gated": (Gated, lambda: (floats(12, 64),)),
    "norms": (Norms, lambda: (floats(12, 32),)),
    "GPT": (GPT, lambda: (torch.randint(0, 50, (2, 16)),)),
    "Llama": (Llama, lambda: (torch.randint(0, 50, (2, 16)),)),
    "residual": (Residual, lambda: (floats(2, 3, 8, 8),)),
    "experts": (Experts, lambda: (floats(12, 16),)),
    "recurrent": (Recurrent, lambda: (floats(4, 3, 16),)),
    "attention": (Attention, lambda: (floats(2, 16, 32),)),
    "manual attention": (lambda: manual_attention, lambda: (floats(2, 3, 2, 16, 64),)),
    "distances": (lambda: distances, lambda: (floats(6, 8), floats(6, 8))),
}
"""Models and their arguments."""

# ------------------------------------------------------------------------------------------------------------ the code


@contextlib.contextmanager
def without_building(codes):
    """Context manager: let Inductor generate code, added to ``codes``, without building it."""

    def not_built(*_args, **_kwargs):
        return lambda *_: None

    with (
        inductor_config.patch(force_disable_caches=True),
        functorch_config.patch(force_non_lazy_backward_lowering=True, donated_buffer=False),
        mock.patch.object(GraphLowering, "save_output_code", staticmethod(codes.append)),
        mock.patch.multiple(AsyncCompile, cpp_pybinding=not_built, cpp=not_built),
    ):
        yield


def code_of_torch_compile(fn, args):
    codes = []

    def lower(gm, inputs):
        forward = gm.forward
        with without_building(codes):
            compile_fx(gm, inputs)
        return forward

    torch._dynamo.reset()
    torch.compile(fn, backend=lower)(*args)
    return codes


def code_of_region(fn, args, *, grad, tracing=AS_TORCH_COMPILE):
    ex = rx.explore(fn, args, grad=grad, plan=rx.Plan(tracing=tracing)).mark("r", ops="*")
    return [part.text for part in ex.code("r", config={}).partitions]


def normalized(code):
    """Return the lines of generated code, without what follows from how a graph is called.

    Inputs, constants and dynamic sizes are named by their first use; asserts about inputs and results have no order;
    inputs that the graph only passes on are no results of a region, and are freed by who calls it. What is freed just
    before the return goes by the order of names.
    """
    code = code.partition("\ndef get_args(")[0]
    lines = [line.rstrip() for line in code.splitlines() if line.strip() and not line.lstrip().startswith(("#", "//"))]
    # Asserts about the results of a pattern name its ops.
    lines = [re.sub(r'"torch\._inductor\.fx_passes\.[^"]*"', "", line) for line in lines if line[:7] != "_frozen"]
    unpacked = next(line for line in lines if line.endswith(" = args"))
    inputs = {name.strip() for name in unpacked.removesuffix(" = args").split(",")} - {""}
    checks, results, rest = [], [], []
    for line in lines:
        text = line.strip()
        if text.startswith("assert_size_stride(") and text.split("(")[1].split(",")[0] in inputs:
            checks.append(text)
        elif text.startswith("return (") and line.startswith("    "):
            passed_on = {*inputs, "None", *re.findall(r"\bs\d+\b", text)}
            results += [one for one in _parts(text.removeprefix("return (")[:-1]) if one not in passed_on]
            while rest[-1].strip().startswith("del "):
                rest.pop()
        elif line is not unpacked and not (text.startswith("del ") and text.removeprefix("del ") in inputs):
            rest.append(line)
    names = {}

    def name(match):
        is_own = match[0] in inputs or re.fullmatch(r"s\d+|_frozen_param\d+", match[0])
        return names.setdefault(match[0], f"x{len(names)}") if is_own else match[0]

    def renamed(text):
        return re.sub(r"(?<![\w.])\w+", name, text)

    return [*map(renamed, rest), *sorted(map(renamed, checks)), *sorted(set(map(renamed, results)))]


def _parts(text):
    """Return the elements of a tuple in code."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


# ----------------------------------------------------------------------------------------------------------- the tests


SHOWN = {("GPT", True, False), ("residual", False, False), ("attention", False, False)}
"""Cases that are not slow, beside the cases of ``gated``."""

CASES = [
    pytest.param(
        name,
        grad,
        dynamic,
        marks=() if name == "gated" or (name, grad, dynamic) in SHOWN else pytest.mark.slow,
        id=f"{name}, {'training' if grad else 'inference'}, {'dynamic' if dynamic else 'static'}",
    )
    for name in MODELS
    for grad in (False, True)
    for dynamic in (False, True)
    if (name, grad, dynamic)
    != ("manual attention", True, True)  # torch.compile's pattern fixes the size, ours does not
]


@pytest.mark.skipif(BEFORE_2_13, reason="the code was not compared with that of this torch")
@pytest.mark.compiles  # the C++ compiler is asked what it can do
@pytest.mark.parametrize(("name", "grad", "dynamic"), CASES)
def test_a_region_of_the_whole_call_compiles_to_the_code_of_torch_compile(name, grad, dynamic):
    make, arguments = MODELS[name]
    fn, args = make(), arguments()
    if dynamic:  # one size: with several, Inductor sorts products and arguments by their names
        torch._dynamo.maybe_mark_dynamic(args[0], 0)
    # torch.compile may choose the layout of convolutions saved for the backward; a region keeps the traced layout.
    keeps_layouts = inductor_config.patch(layout_optimization=False) if grad else contextlib.nullcontext()
    with keeps_layouts, contextlib.nullcontext() if grad else torch.no_grad():
        theirs, ours = code_of_torch_compile(fn, args), code_of_region(fn, args, grad=grad)
    assert list(map(normalized, ours)) == list(map(normalized, theirs))
    has_sizes = re.search(r"\bs\d+\b", ours[0]) is not None
    assert has_sizes is dynamic or name == "manual attention", "its pattern fixes the size"


@pytest.mark.skipif(BEFORE_2_13, reason="the code was not compared with that of this torch")
@pytest.mark.compiles  # the C++ compiler is asked what it can do
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("residual", torch.float32),
        ("GPT", torch.bfloat16),
        *(pytest.param(name, torch.float32, marks=pytest.mark.slow) for name in ("norms", "GPT", "Llama", "attention")),
    ],
)
def test_frozen_regions_have_the_code_of_torch_compile_with_freezing(name, dtype):
    make, arguments = MODELS[name]
    fn = make().eval().to(dtype)
    args = [value.to(dtype) if value.is_floating_point() else value for value in arguments()]
    with torch.no_grad():
        with inductor_config.patch(freezing=True):
            theirs = code_of_torch_compile(fn, args)
        ours = code_of_region(fn, args, grad=False, tracing=FROZEN)
    assert "_frozen_param" in ours[0]
    assert list(map(normalized, ours)) == list(map(normalized, theirs))


# ------------------------------------------------------------------------------------------- what it takes besides code


def transposed(x, w):
    return (x @ w.t()).sin().sum()


def returned_and_kept(x, w):
    y = x @ w.t()
    return y, (y.t() @ y).sin()


def parts_kept(x, w):
    y, z = (x @ w.t()).unsqueeze(0).expand(2, 4, 6).contiguous().unbind()
    return (y.sin() * z.cos()).sum()


def explore_as_torch_compile(fn, args, config=None):
    ex = rx.explore(fn, args, plan=rx.Plan(tracing=AS_TORCH_COMPILE)).mark("r", ops="*").configure("r", config or {})
    ex.compile()
    assert {part.state for part in ex.session.partitions} == {"compiled"}
    return ex


@pytest.mark.compiles
def test_autograd_detects_writes_to_saved_weights():
    """Inductor's code alone would hide them: it returns views of the weight, which the backward uses unchecked."""
    x, w = torch.randn(4, 8), torch.randn(6, 8, requires_grad=True)
    for function in (transposed, explore_as_torch_compile(transposed, (x.requires_grad_(), w)).compiled):
        loss = function(x, w)
        with torch.no_grad():
            w += 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@pytest.mark.compiles
def test_autograd_detects_writes_to_results_with_saved_views():
    x, w = torch.randn(4, 8, requires_grad=True), torch.randn(6, 8, requires_grad=True)
    for function in (returned_and_kept, explore_as_torch_compile(returned_and_kept, (x, w)).compiled):
        y, z = function(x, w)
        with torch.no_grad():
            y += 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()


@pytest.mark.compiles
def test_only_results_that_can_be_written_are_made_views():
    args = (floats(4, 8), floats(6, 8))
    ex = explore_as_torch_compile(parts_kept, args)
    expected = torch.autograd.grad(parts_kept(*args), args)
    torch.testing.assert_close(torch.autograd.grad(ex.compiled(*args), args), expected)
    forward = ex.live.program.switches[0]
    assert len(forward.piece.unseen) == len(forward.piece.outputs) - 1
    assert [alias.of_input for alias in forward.artifact.call.aliases] == [False, True]
    assert [alias.of_input for alias in forward.artifact.call.settled(forward.piece.unseen).aliases] == [True]


@pytest.mark.compiles
@pytest.mark.parametrize("config", [{}, pytest.param({"cpp_wrapper": True}, marks=pytest.mark.slow)])
def test_undecomposed_ops_are_saved_and_loaded(tmp_path, monkeypatch, config):
    args = (floats(4, 8), floats(6, 8))
    ex = explore_as_torch_compile(transposed, args, config)
    assert all(("CppWrapper" in artifact.code) is bool(config) for artifact in ex.live.program.store.artifacts.values())
    folder, plan = ex.save_artifacts(tmp_path / "artifacts"), ex.save_plan(tmp_path / "plan.json")
    monkeypatch.setattr(inductor, "lower_as_it_is", mock.Mock(side_effect=AssertionError("nothing is to be compiled")))
    compiled = rx.compile(transposed, plan, artifacts=folder)
    expected = torch.autograd.grad(transposed(*args), args)
    torch.testing.assert_close(torch.autograd.grad(compiled(*args), args), expected)
    assert {part.state for part in rx.status(compiled).partitions} == {"compiled"}


def test_equal_graphs_of_different_tracings_are_compiled_separately():
    x = torch.randn(8)
    one, other = (
        rx.explore(torch.sin, (x,), tracing=rx.Tracing(decompositions=way)).mark("r", ops="*") for way in (False, True)
    )
    prints = [
        [switch.known_workpiece.fingerprint for switch in ex.live.program.stale().values()] for ex in (one, other)
    ]
    assert prints[0] != prints[1]


@pytest.mark.compiles
@pytest.mark.slow
def test_gpu_kernels_are_named_by_decomposed_ops():
    pytest.importorskip("triton")

    def rounded(x):
        return F.gelu(x).softmax(-1)

    for tracing, ops in ((AS_TORCH_COMPILE, "gelu"), (rx.Tracing(), "_softmax_gelu")):
        ex = rx.explore(rounded, (floats(64, 128),), grad=False, plan=rx.Plan(tracing=tracing)).mark("r", ops="*")
        (part,) = ex.code("r", target="h100").partitions
        assert any(ops in linked.kernel.name for linked in part.kernels)
