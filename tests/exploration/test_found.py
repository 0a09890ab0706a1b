"""Faults that random programs and campaigns found, each with the smallest program that shows it."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import regional_explorer as rx
from regional_explorer.compiler.artifact import Artifact
from regional_explorer.compiler.fingerprint import copy_in_layout, has_strides_of, layouts_of
from regional_explorer.record.artifact import ArtifactCompile, CacheResult
from tests.shared import programs
from tests.shared.checks import codes, states


@pytest.mark.compiles
def test_close_frees_dynamos_references():
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


def test_raising_backward_is_reported_at_once():
    with pytest.raises(rx.CaptureError, match=r"backward of the call raises RuntimeError.*use_reentrant=False"):
        rx.explore(lambda x: checkpoint(torch.sin, x * 2, use_reentrant=True), (torch.randn(4, requires_grad=True),))


def test_writes_of_the_backward_are_restored():
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
    assert has_strides_of(torch.empty(4, 8), layout)
    assert not has_strides_of(torch.empty(8, 4).t(), layout)
    assert has_strides_of(torch.empty(5, 9), layout)
    assert has_strides_of(torch.empty(9, 1).t(), layout)
    assert not has_strides_of(torch.empty(9, 5).t(), layout)


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
def test_results_have_eagers_strides(asked):
    """Inductor's code returns slices packed, which code compiled for the slice would refuse."""
    (layout,) = layouts_of([asked])
    made = copy_in_layout(asked.contiguous(), layout)
    assert torch.equal(made, asked)
    assert has_strides_of(made, layout) is (asked.stride() != (2, 1)), "an unfolded one cannot be written to"


@pytest.mark.compiles
def test_results_have_eagers_dtype():
    """Inductor makes the statistics of this norm in bfloat16; the code that reads them was compiled for float32."""
    norm, x = nn.LayerNorm(16), torch.randn(6, 16, requires_grad=True)

    def fn(x):
        with torch.autocast("cpu", torch.bfloat16):
            return norm(x.bfloat16())

    ex = rx.explore(fn, (x,)).mark("norm", ops="aten.native_layer_norm*")
    switch = next(switch for switch in ex.live.program.switches if switch.piece.graph_id == "0/backward")
    ex.compile()
    cotangent = torch.randn(6, 16).bfloat16()

    def gradients(fn):
        return torch.autograd.grad(fn(x), (x, *norm.parameters()), cotangent)

    compiled = gradients(ex.live.capture.run)
    switch.use_eager()
    for found in (compiled, gradients(ex.live.capture.run)):
        torch.testing.assert_close(found, gradients(fn), rtol=0.05, atol=0.05)


def test_code_for_other_dtypes_is_not_called():
    """Generated code checks only sizes and strides."""
    ex = rx.explore(lambda x: x.sin() + 1, (torch.ones(4),)).mark("r", ops="*sin*")
    (switch,) = ex.live.program.switches
    ex.live.program.record_layouts()
    switch.use(Artifact("key", lambda *_: pytest.fail("called"), "", {}, ArtifactCompile(0.0, CacheResult.MISS)))
    whole = torch.ones(4, dtype=torch.int32)
    assert torch.equal(switch.call([whole])[0], whole.sin())
    assert "compiled for other dtypes than torch.int32" in switch.refusal


@pytest.mark.compiles
def test_a_view_with_the_negative_bit_keeps_its_sign():
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
        compiled = ex.configure("r", max_fusion_size=1).compiled
        assert states(ex) == {"r": "compiled"}
        assert torch.equal(compiled(z), fn(z))
    assert states(ex) == {"r": "failed"}, "for the same reason"
