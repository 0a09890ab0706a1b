"""The parts of a region's time, also where nothing can be improved; Inductor's warnings."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace

import regional_explorer as rx
from regional_explorer.insight.diagnose import region_time
from regional_explorer.record.artifact import ArtifactCode, ArtifactKernelTimes, Kernel, KernelKind, KernelTime
from regional_explorer.record.figure import QUIET, Figure, Noise
from regional_explorer.record.files import dump_session
from regional_explorer.record.graph import Node, Role
from regional_explorer.record.partition import Partition, State
from regional_explorer.record.region_code import PartitionCode
from regional_explorer.torch_api import compile_notes
from tests.insight.programs import simulate_times
from tests.shared.checks import codes, diagnostics_of

US = 1e-6
KERNELS = (
    Kernel("cpp_fused_mul_0", KernelKind.POINTWISE, ("mul",), (0,)),
    Kernel("extern_kernels.mm", KernelKind.EXTERN, ("mm",), (1,)),
    Kernel("torch.ops.aten.sort.stable", KernelKind.FALLBACK, ("mul", "sort"), (0, 2)),
)
NODES = tuple(Node(name, Role.OP, f"aten.{name}") for name in ("mul", "mm", "sort"))


def figure(value_us):
    return Figure(value_us * US, 0.9 * value_us * US, 1.1 * value_us * US)


def part(*kernels_us, between_us=0.0, code=None, **changed):
    """Return a partition of three kernels that take these times."""
    times = ArtifactKernelTimes(
        tuple(value and KernelTime(figure(value), 0.5 * value * US) for value in kernels_us),
        between=figure(between_us),
        around=figure(1),
    )
    partition = Partition("r.0", "r", 0, "0/inference", ("mul", "mm", "sort"), State.COMPILED, artifact="a")
    return PartitionCode(partition, code or ArtifactCode("x", KERNELS), NODES, replace(times, **changed))


def test_time_is_divided_by_kind_with_intervals():
    found = region_time("r", [part(60, 29, 10)], ["a=1 improves no code"])
    assert found.message == (
        "Region 'r' takes 100 µs (90.0 µs to 110 µs) in each call: "
        "60% in 1 generated kernel (mul), 60.0 µs (54.0 µs to 66.0 µs); "
        "29% in 1 library call (mm), 29.0 µs (26.1 µs to 31.9 µs); "
        "10% in 1 fallback (aten.sort.stable), 10.0 µs (9.00 µs to 11.0 µs); "
        "1% outside of the kernels, 1.00 µs (0.900 µs to 1.10 µs). "
        "The known bounds, those of 3 of 3 kernels, are 50% of that. "
        "Inductor refused no fusion of loops that share data. Configs tried: a=1 improves no code."
    )
    assert found.severity == "info"


@pytest.mark.parametrize(
    ("parts", "remedy"),
    [
        ([part(60, 29, 10)], "ex.kernel_times('r')"),
        ([part(10, 60, 29)], "Eager calls the same functions"),
        ([part(10, 29, 60)], "ex.carve('r', nodes='0/inference:sort')"),
        ([part(10, 10, 10, between_us=70)], "Mark a larger region"),
        ([part(30, 20, 10), part(30, 20, 100)], "ex.carve('r', nodes='0/inference:sort')"),
    ],
    ids=["generated", "library", "fallback", "outside", "two partitions"],
)
def test_the_remedy_concerns_the_largest_share_of_the_time(parts, remedy):
    assert remedy in region_time("r", parts, []).remedy


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"problem": "kernels on cuda are not timed"}, "kernels on cuda are not timed"),
        ({"problem": "the machine was too busy", "noise": Noise(rounds=30, disturbed=25)}, "the machine was too busy"),
        ({"between": Figure(1.0, why="too few rounds (2)")}, "too few rounds (2)"),
    ],
    ids=["not timed", "busy", "too few rounds"],
)
def test_without_times_the_kernels_are_counted_and_no_figure_is_shown(changed, problem):
    found = region_time("r", [part(60, 29, 10), part(60, 29, 10, **{"noise": QUIET, **changed})], [])
    assert f"How long the kernels of 1 of 2 pieces of region 'r' take is not known: {problem}." in found.message
    assert "2 generated kernels (mul); 2 library calls (mm); 2 fallbacks (aten.sort.stable)" in found.message
    assert "%" not in found.message
    again = "ex.diagnose('r') measures them again: press it once nothing else runs."
    assert found.remedy == ("" if changed.get("problem", "").startswith("kernels on cuda") else again)


def complex_pair():
    return tuple(torch.randn(8, 8, dtype=torch.complex64) for _ in range(2))


X = torch.randn(8, 8)
PROGRAMS = {
    "complex addition": (lambda a, b: a + b, complex_pair(), "fallbacks (aten.", "ex.disable('r')"),
    "a sort": (lambda x: (x * 2).sort()[0], (X,), "1 fallback (aten.sort.stable)", ""),
    "a Fourier transform": (torch.fft.fft, (X,), "1 fallback (aten._fft_r2c.default)", "ex.disable('r')"),
    "a product": (lambda x, y: x @ y, (X, X + 1), "1 library call (mm)", "Eager calls the same functions"),
    "a complex product": (lambda a, b: a @ b, complex_pair(), "1 library call (", "Eager calls the same functions"),
    "attention": (
        F.scaled_dot_product_attention,
        (torch.randn(1, 2, 8, 4),) * 3,
        "1 library call (aten._scaled_dot_product",
        "Eager calls the same functions",
    ),
    "a loop": (lambda x: (x * 2).relu(), (X,), "1 generated kernel (mul, relu)", "ex.kernel_times('r')"),
}


@pytest.mark.compiles
@pytest.mark.parametrize(("fn", "args", "text", "remedy"), PROGRAMS.values(), ids=PROGRAMS)
def test_diagnose_divides_the_time_of_every_region(fn, args, text, remedy, monkeypatch):
    simulate_times(monkeypatch, kernel_s=1e-3, bound_s=None, between_s=1e-5)
    ex = rx.explore(fn, args).mark("r", ops="*")
    ex.compile()
    (found,) = [one for one in ex.diagnose("r", 0.2) if one.code == "region-time"]
    assert text in found.message
    assert "Configs tried: realize_opcount_threshold=3 improves no code" in found.message
    assert remedy in found.remedy
    assert found.where
    assert found in ex.diagnostics


@pytest.mark.compiles
def test_carving_the_named_fallbacks_out_leaves_none(monkeypatch):
    simulate_times(monkeypatch, kernel_s=1e-3, bound_s=None, between_s=1e-5)
    ex = rx.explore(lambda x: (x.sort()[0].cumsum(0) + 1).cumsum(1), (X,)).mark("r", ops="*")
    ex.compile()
    carve, _benchmark = next(one.actions for one in ex.diagnose("r", 0.2) if one.code == "region-time")
    ex.apply(carve)
    ex.compile()
    assert not [kernel for kernel in ex.code("r").kernels.kind if kernel == "fallback"]


# ------------------------------------------------------------------------------------------------------------ warnings

COMPLEX = "Torchinductor does not support code generation for complex operators"
WARNED = {
    "complex addition": (lambda a, b: a + b, complex_pair(), {}, COMPLEX),
    "another complex op of the process": (lambda a, b: a * b, complex_pair(), {}, COMPLEX),
    "complex magnitude": (lambda a, _: a.abs() * 2, complex_pair(), {}, COMPLEX),
    "two kinds of halves": (
        lambda x, y: (x + 1).float() + (y * 2).float(),
        (torch.randn(64, 64).bfloat16(), torch.randn(64, 64).half()),
        {},
        "bf16 and fp16 are mixed",
    ),
    "a log message": (lambda x: torch.linalg.svdvals(x) + 1, (X,), {"cpp_wrapper": True}, "missing a c-shim"),
}


@pytest.mark.compiles
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("fn", "args", "config", "text"), WARNED.values(), ids=WARNED)
def test_a_warning_of_inductor_is_a_finding_of_the_region(fn, args, config, text):
    ex = rx.explore(fn, args).mark("r", ops="*").configure("r", config)
    ex.compile(cold=True)
    (found,) = diagnostics_of(ex, "inductor-warning")
    assert text in found.message
    assert found.region == "r"
    assert found.where
    assert text in dump_session(ex.session)


@pytest.mark.compiles
def test_equal_partitions_report_a_warning_of_their_region_once():
    def f(a, b, x):
        with rx.region("complex"):
            c = a + b
        y = x @ x
        with rx.region("complex"):
            d = y.to(torch.complex64) + b
        with rx.region("real"):
            z = y.relu() + 1
        return c, d, z

    ex = rx.explore(f, (*complex_pair(), X))
    ex.compile(cold=True)
    (found,) = diagnostics_of(ex, "inductor-warning")
    assert found.region == "complex"
    assert "(2 partitions)" in found.message


@pytest.mark.compiles
def test_warnings_of_cached_code_appear_after_lowering():
    for _ in range(2):
        ex = rx.explore(lambda a, b: a - b, complex_pair()).mark("r", ops="*")
        ex.compile()
    assert ex.partitions.cache.tolist() == ["warm"]
    assert "inductor-warning" not in codes(ex)
    ex.code("r")
    assert "inductor-warning" in codes(ex)


@pytest.mark.compiles
def test_a_user_sees_a_warning_once_per_process(monkeypatch):
    monkeypatch.setattr(compile_notes, "_SHOWN", set())
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        for _ in range(2):
            ex = rx.explore(lambda a, b: a + b, complex_pair()).mark("r", ops="*")
            ex.compile(cold=True)
            assert "inductor-warning" in codes(ex)
        ex.code("r")
        warnings.warn("of the user", stacklevel=1)
    assert sum(COMPLEX in str(one.message) for one in shown) == 1
    assert "of the user" in [str(one.message) for one in shown]


def test_warnings_of_other_threads_or_other_code_are_not_recorded():
    with warnings.catch_warnings(record=True) as shown, compile_notes.recording_warnings() as recorded:
        warnings.simplefilter("always")
        warnings.warn("of the user", stacklevel=1)
    assert [str(one.message) for one in shown] == ["of the user"]
    assert shown[0].filename == __file__
    assert not recorded
