"""Code for a GPU that is not here: Triton, registers, bounds; and that this process does not notice."""

import pytest
import torch
import torch._inductor.config as inductor_config
import torch.nn.functional as F

import regional_explorer as rx
from regional_explorer.exploration.results import _gpu_note
from regional_explorer.insight import code_store
from regional_explorer.record.artifact import KernelKind
from regional_explorer.record.gpu_targets import GPU_TARGETS
from regional_explorer.torch_api.virtual_gpu import occupancy
from tests.insight.programs import block, training_step
from tests.shared.checks import torch_setting

pytestmark = pytest.mark.compiles

SIZE = 256


@pytest.fixture(scope="module")
def ex():
    pytest.importorskip("triton")
    return rx.explore(block, (torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)))


@pytest.mark.parametrize("target", ["h100", "a100"])
@pytest.mark.slow
def test_triton_code_with_registers_and_bounds(ex, target):
    (part,) = ex.code("r", target=target)
    assert part.code.problem is None
    assert part.code.language == "Triton"
    assert "tl.load" in part.text
    assert part.coverage.share == 1.0
    kinds = [linked.kernel.kind for linked in part.kernels]
    assert kinds == [KernelKind.POINTWISE, KernelKind.EXTERN, KernelKind.REDUCTION]
    for linked in part.kernels:
        gpu = linked.kernel.gpu
        if linked.kernel.kind is KernelKind.EXTERN:
            assert gpu is None
            continue
        assert gpu.registers
        assert gpu.spilled_bytes == 0
        assert 0 < gpu.occupancy <= 1
        assert f".target {GPU_TARGETS[target].architecture}" in gpu.assembly
    first = part.kernels[0].kernel
    assert first.bytes_moved == 2 * 4 * SIZE * SIZE
    bound = GPU_TARGETS[target].bound_s(first.bytes_moved, first.operations, first.dtype)
    assert bound == pytest.approx(2 * 4 * SIZE * SIZE / (GPU_TARGETS[target].memory_gb_s * 1e9))


@pytest.mark.slow
def test_unknown_times_are_reported_and_configs_compared(ex):
    code = ex.code("r", target="h100")
    for shown in code._repr_mimebundle_().values():
        for text in ("not run", "nothing was measured", "≥ "):
            assert text in shown
    assert code.diff(code).same
    assert not code.diff(ex.code("r", config={"max_fusion_size": 1}, target="h100")).same


@pytest.mark.slow
def test_generating_gpu_code_leaves_the_process_unchanged(ex):
    ex.code("r", target="h100")
    assert not torch.cuda.is_available()
    ex.compile()
    x, w = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    torch.testing.assert_close(ex.compiled(x, w), block(x, w))
    (part,) = ex.code("r")
    assert part.code.language == "C++"
    assert part.code.problem is None


@pytest.mark.slow
def test_registers_are_read_from_the_code_that_triton_assembled(ex):
    """Triton's flags change registers and spills, so ptxas must not run again without them."""
    from triton import knobs

    before = knobs.compilation.always_compile
    for _from_the_cache_too in range(2):
        frame = ex.code("r", target="b200").kernels
        assert frame.registers.notna().tolist() == [True, False, True], "an extern call has none"
        assert (frame.spilled_bytes.dropna() == 0).all()
        assert frame.bound_us.gt(0).all()
    assert knobs.compilation.always_compile == before
    ex.compile()
    assert "registers" not in ex.code("r").kernels


def test_the_note_names_a_cache_between_l2_and_memory():
    assert "4.00 MiB of L2 cache or 256 MiB of Infinity Cache moves faster" in _gpu_note(GPU_TARGETS["mi300x"])
    assert "50.0 MiB of L2 cache moves faster" in _gpu_note(GPU_TARGETS["h100"])


@pytest.mark.slow
def test_impossible_targets_are_refused_and_cancel_cleans_up(ex, monkeypatch):
    with pytest.raises(rx.InvalidArgumentError, match=r"No target is called 'h1000'.*Did you mean 'h100'.*mi300x"):
        ex.code("r", target="h1000")
    assert not list(ex.code("r", target="l4", run=rx.Run(cancelled=lambda: True)))
    unsendable = pytest.raises(rx.RegionCompileError, match="such as a pass of yours, cannot be sent")
    with inductor_config.patch(post_grad_custom_post_pass=lambda _graph: None), unsendable:
        ex.code("r", target="l4")
    monkeypatch.setattr(code_store, "cxx_compiler", lambda: None)
    with pytest.raises(rx.RegionalExplorerError, match=r"No code for NVIDIA L4.* C\+\+ compiler.*apt-get"):
        ex.code("r", target="l4")


@pytest.mark.slow
def test_training_has_gpu_code_for_forward_and_backward():
    pytest.importorskip("triton")
    code = rx.explore(training_step(), (torch.randn(8, 64),)).code("r", target="h100")
    assert [part.code.problem for part in code] == [None, None]
    assert code.coverage.share == 1.0


@pytest.mark.slow
def test_amd_targets_have_amdgcn_assembly(ex):
    (part,) = ex.code("r", target="mi300x")
    assert part.code.problem is None
    gpu = part.kernels[0].kernel.gpu
    assert gpu.registers
    assert "amdgcn" in gpu.assembly


@pytest.mark.parametrize("name", ["h100", "a100", "mi300x"])
def test_peaks_agree_with_torchs(name):
    from torch._inductor.analysis.device_info import lookup_device_info

    target = GPU_TARGETS[name]
    info = lookup_device_info(target.title)
    assert target.memory_gb_s == info.dram_bw_gbs
    # Where torch has no such factor, its figures of the H100 include sparsity.
    factor = getattr(info, "tops_sparsity_factor", 2 if name == "h100" else 1)
    for dtype in ("bfloat16", "float16"):
        assert target.dense_tflops[dtype] == pytest.approx(info.tops[getattr(torch, dtype)] / factor, rel=0.002)


def test_torch_has_the_bandwidth_of_an_h100_for_an_l4():
    """docs/upstream.md: the data sheet says 300 GB/s. When this fails, torch has fixed it."""
    from torch._inductor.analysis.device_info import lookup_device_info

    assert lookup_device_info("NVIDIA L4").dram_bw_gbs == 3350
    assert GPU_TARGETS["l4"].memory_gb_s == 300


@pytest.mark.parametrize(
    ("target", "registers", "shared", "warps", "expected"),
    [
        ("h100", 32, 0, 4, 1.0),
        ("h100", 40, 0, 4, 48 / 64),
        ("h100", 255, 0, 8, 8 / 64),
        ("h100", 16, 0, 1, 32 / 64),
        ("l4", 16, 0, 1, 24 / 48),
        ("h100", 32, 114 * 1024, 8, 8 / 64),
        ("a100", 32, 40 * 1024, 4, 16 / 64),
        ("mi300x", 64, 0, 4, 1.0),
        ("mi300x", 128, 0, 4, 0.5),
    ],
)
def test_occupancy_matches_the_vendors_calculators(target, registers, shared, warps, expected):
    """Counted by the rules of NVIDIA's occupancy calculator, and for AMD waves per SIMD by vector registers."""
    assert occupancy(GPU_TARGETS[target], registers, shared, warps) == expected


@pytest.mark.slow
def test_float32_products_that_may_be_rounded_have_the_peak_of_tf32(ex):
    """The lowering process takes over the settings of this one. Dynamo traces the call again: two partitions."""
    exact = ex.code("r", target="h100")
    with torch_setting("float32_matmul_precision", "high"):
        rounded = ex.code("r", target="h100")
    assert [{part.kernels[1].kernel.dtype for part in code} for code in (exact, rounded)] == [{"float32"}, {"tf32"}]


@pytest.mark.parametrize(
    ("dtype", "masked"),
    [
        (torch.float32, True),
        pytest.param(torch.bfloat16, False, marks=pytest.mark.slow),
        pytest.param(torch.float32, False, marks=pytest.mark.slow),
        pytest.param(torch.bfloat16, True, marks=pytest.mark.slow),
    ],
)
def test_attention_uses_the_op_that_the_gpu_has(dtype, masked):
    pytest.importorskip("triton")
    mask = torch.zeros(16, 16, dtype=dtype) if masked else None

    def attend(x):
        with rx.region("r"):
            y = x * 2
            y = F.scaled_dot_product_attention(y, y, y, attn_mask=mask) + 1
        return y.float().sum()

    code = rx.explore(attend, (torch.randn(2, 4, 16, 16, dtype=dtype, requires_grad=True),)).code("r", target="h100")
    assert [part.code.problem for part in code] == [None, None]
    expected = "flash" if dtype is torch.bfloat16 and not masked else "efficient"
    kernels = [one.kernel for part in code for one in part.kernels]
    found = [kernel.name for kernel in kernels if kernel.kind is KernelKind.EXTERN and "attention" in kernel.name]
    assert len(found) == 2, "forward and backward"
    assert all(expected in name for name in found)
    assert code.coverage.share == 1.0


@pytest.mark.slow
def test_sizes_that_inductor_would_pad_on_a_gpu_have_code():
    """Inductor would time padded products on the GPU, which is not here."""
    pytest.importorskip("triton")
    ex = rx.explore(rx.region("r")(lambda x, w: torch.relu(x @ w)), (torch.randn(1023, 1023), torch.randn(1023, 1023)))
    (part,) = ex.code("r", target="a100")
    assert part.code.problem is None
