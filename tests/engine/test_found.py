"""What random programs and campaigns found, each with the smallest program that shows it."""

import gc
import weakref

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.utils.checkpoint import checkpoint

import regional_explorer as rx
from regional_explorer.compiler.artifact import Artifact
from regional_explorer.compiler.fingerprint import laid_out, layouts_of, same_strides
from regional_explorer.record.artifact import ArtifactCompile, CacheAnswer
from regional_explorer.record.plan import Cut
from regional_explorer.torch_api.graphs import inductor_knows_fallback
from tests.shared import programs
from tests.shared.checks import assert_eager_pieces_are_bitwise, codes


@pytest.mark.compiles
def test_upstreams_cut_leaves_carved_ops_to_inductor():
    ex = rx.explore(programs.carved, (torch.randn(8),))
    assert len(ex.partitions) == 2
    ex.plan = replace(ex.plan, cut=Cut.UPSTREAM)
    assert len(ex.partitions) == (1 if inductor_knows_fallback() else 2)
    ex.compile()
    if inductor_knows_fallback():
        assert "aten.exp" in ex.code("r").partitions[0].text, "Inductor has to call the eager kernel"


@pytest.mark.compiles
@pytest.mark.skipif(not inductor_knows_fallback(), reason="Inductor compiles carved ops")
def test_a_carved_piece_is_not_given_the_cached_code_of_the_same_piece_uncarved():
    ex = rx.explore(lambda x: x.sin().exp().cos(), (torch.randn(8),)).mark("r", ops="*")
    ex.plan = replace(ex.plan, cut=Cut.UPSTREAM)
    ex.compile()
    ex.carve("r", ops="aten.exp*").compile()
    assert "aten.exp" in ex.code("r").partitions[0].text


@pytest.mark.compiles
def test_a_branch_not_taken_is_compiled_too():
    def yes(x):
        with rx.region("yes"):
            return x.sin() + 1

    def no(x):
        with rx.region("no"):
            return x.cos() - 1

    def fn(x):
        return torch.cond(x.sum() > 0, yes, no, (x,))

    ex = rx.explore(fn, (torch.ones(8),))
    compiled = ex.compiled
    assert ex.partitions.state.tolist() == ["compiled", "compiled"]
    torch.testing.assert_close(compiled(-torch.ones(8)), fn(-torch.ones(8)))


class Broken(nn.Module):
    """A layer with a graph break inside, so that each half is a frame of its own and its parts are called alone."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        x = self.first(x) * 2
        torch._dynamo.graph_break()
        return self.second(x).sin()


def test_modules_are_found_behind_graph_breaks():
    model = nn.ModuleDict({"layers": nn.ModuleList([Broken(), Broken()])})

    def fn(x):
        for layer in model["layers"]:
            x = layer(x)
        return x

    ex = rx.explore(fn, (torch.randn(4, 8),)).mark("layers", modules="layers.*")
    marked = {
        node.target for graph in ex.session.graphs if graph.kind == "dynamo" for node in graph.ops if node.module_path
    }
    assert marked >= {"torch._C._nn.linear", "mul", "sin"}
    assert {part.instance for part in ex.session.partitions} == {0, 1}
    assert_eager_pieces_are_bitwise(ex)


def test_a_module_that_only_holds_others_can_be_marked():
    ex = rx.explore(programs.Stack(), (torch.randn(4, 16),), grad=False).mark("all", modules="layers")
    assert len(ex.session.partitions) == 1


@pytest.mark.compiles
def test_closing_frees_what_dynamo_would_keep():
    ex = rx.explore(programs.textbook, programs.pair(grad=False))
    compiled = ex.compiled
    program = ex.live.program
    held = [program.capture.live[0].gm, program.switches[0], *program.store.artifacts.values(), ex.live.call.args[0]]
    held = [weakref.ref(thing) for thing in held]
    ex.close()
    del program
    gc.collect()
    assert [thing() for thing in held] == [None] * 4
    with pytest.raises(rx.ClosedError, match="was closed"):
        compiled(*programs.pair(grad=False))


def test_a_backward_that_raises_is_told_at_once():
    def fn(x):
        return checkpoint(torch.sin, x * 2, use_reentrant=True).cos()

    with pytest.raises(rx.CaptureError, match=r"backward of the call raises RuntimeError.*use_reentrant=False"):
        rx.explore(fn, (torch.randn(4, requires_grad=True),))


def test_what_the_backward_writes_is_put_back():
    seen = torch.zeros(())

    def count(grad):
        seen.add_(1)
        return grad

    def fn(x):
        y = x.sin()
        y.register_hook(count)
        return y * 2

    rx.explore(fn, (torch.randn(4, requires_grad=True),))
    assert seen == 0


def test_strides_of_another_size_are_compared_by_their_order():
    (layout,) = layouts_of([torch.empty(4, 8)])
    assert same_strides(torch.empty(4, 8), layout)
    assert not same_strides(torch.empty(8, 4).t(), layout)
    assert same_strides(torch.empty(5, 9), layout)
    assert same_strides(torch.empty(9, 1).t(), layout)
    assert not same_strides(torch.empty(9, 5).t(), layout)


@pytest.mark.parametrize(
    "asked",
    [
        torch.randn(2, 6, 4)[:, ::3, ::2],
        torch.randn(4, 6, 2).permute(2, 0, 1)[:, :3],
        torch.randn(3, 1).expand(3, 5),
        torch.randn(6, 1, 4)[::2].expand(3, 2, 4),
        torch.randn(8).unfold(0, 4, 2),
        torch.randn(0, 4),
        torch.tensor(1.0),
    ],
    ids=lambda asked: f"{tuple(asked.shape)}-{asked.stride()}",
)
def test_results_are_laid_out_as_eager_lays_them_out(asked):
    """Compiled code returns slices packed; what is compiled for the slice would refuse that."""
    (layout,) = layouts_of([asked])
    made = laid_out(asked.contiguous(), layout)
    assert torch.equal(made, asked)
    assert same_strides(made, layout) is (asked.stride() != (2, 1)), "an unfolded one cannot be written to"


@pytest.mark.compiles
@pytest.mark.parametrize("backward", ["compiled", "eager"])
def test_results_have_the_dtype_that_eager_gives_them(backward):
    """Inductor makes the statistics of this norm in bfloat16; what reads them was compiled for float32."""
    norm, x = nn.LayerNorm(16), torch.randn(6, 16, requires_grad=True)

    def fn(x):
        with torch.autocast("cpu", torch.bfloat16):
            return norm(x.bfloat16())

    ex = rx.explore(fn, (x,)).mark("norm", ops="aten.native_layer_norm*")
    switch = next(switch for switch in ex.live.program.switches if switch.piece.graph_id == "0/backward")
    ex.compile()
    if backward == "eager":
        switch.use_eager()
    out, cotangent = fn(x), torch.randn(6, 16).bfloat16()
    wanted = torch.autograd.grad(out, (x, *norm.parameters()), cotangent)
    got = torch.autograd.grad(ex.live.capture.run(x), (x, *norm.parameters()), cotangent)
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.05)


def test_code_for_other_dtypes_is_not_called():
    """It checks sizes and strides alone."""
    ex = rx.explore(lambda x: x.sin() + 1, (torch.ones(4),)).mark("r", ops="*sin*")
    (switch,) = ex.live.program.switches
    ex.live.program.record_layouts()
    switch.use(Artifact("key", lambda *_: pytest.fail("called"), "", {}, ArtifactCompile(0.0, CacheAnswer.MISS)))
    whole = torch.ones(4, dtype=torch.int32)
    assert torch.equal(switch.implementation([whole])[0], whole.sin())
    assert "compiled for other dtypes than torch.int32" in switch.refusal


@pytest.mark.compiles
def test_a_view_with_its_sign_in_a_bit_is_not_read_without_it():
    """Plain torch.compile misreads such an argument, too; inside a graph it is right (torch 2.13)."""

    def fn(z):
        y = z.conj().imag
        with rx.region("r"):
            return y.sin() * 2

    z = torch.randn(8, dtype=torch.complex64)
    with torch.no_grad():
        ex = rx.explore(fn, (z,))
        assert torch.equal(ex.compiled(z), fn(z))
    (switch,) = ex.live.program.switches
    assert "negated view" in switch.refusal
    assert "region-failed" in codes(ex)
