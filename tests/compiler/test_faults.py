"""Failures of a partition or around it (disk, memory, cache, compiled code): they are reported, the rest goes on."""

import errno
import os
from concurrent.futures import CancelledError
from dataclasses import replace

import pytest
import torch

import regional_explorer as rx
from regional_explorer.compiler import artifact, switch, workpiece
from regional_explorer.compiler.compilation import warm_toolchain
from regional_explorer.compiler.run import SameThread
from regional_explorer.measure import benchmark
from regional_explorer.torch_api import inductor as torch_compile
from tests.shared import programs
from tests.shared.checks import BEFORE_2_13, codes, diagnostics_of, only, states
from tests.shared.processes import assert_mended

pytestmark = pytest.mark.compiles


def invertible_matrix(*, grad=False):
    return (torch.randn(4, 4) + 4 * torch.eye(4)).requires_grad_(grad)


def failure_messages(ex):
    """Return the text of each ``region-failed``, by region."""
    return {item.region: item.message for item in diagnostics_of(ex, "region-failed")}


def assert_as_eager(ex, function, *args):
    result, expected = ex.compiled(*args), function(*args)
    torch.testing.assert_close(result, expected)
    leaves = [value for value in args if value.requires_grad]
    if leaves:
        gradients = [torch.autograd.grad(value.sum(), leaves, allow_unused=True) for value in (result, expected)]
        torch.testing.assert_close(*gradients)


def lu(x):
    factors, pivots = torch.linalg.lu_factor(x)
    return torch.linalg.lu_solve(factors, pivots, x.cos())


def normal(x):
    spread = torch.eye(4) + 0.1 * x @ x.mT
    return torch.distributions.MultivariateNormal(torch.zeros(4), spread).log_prob(x)


EFFECTFUL = {
    "inv": torch.linalg.inv,
    "two checks": lambda x: torch.linalg.inv(torch.linalg.inv(x).sin() + 9 * torch.eye(4)),
    "solve": lambda x: torch.linalg.solve(x, x.sin()),
    "cholesky": lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(4)),
    "lu_factor": lu,
    "multivariate normal": normal,
}
SHOWN = ("inv", "two checks")


# The forward of a training step has the ops of the inference, and other ops have the effects of these.
@pytest.mark.parametrize("grad", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize(
    "op", [pytest.param(op, marks=() if name in SHOWN else pytest.mark.slow, id=name) for name, op in EFFECTFUL.items()]
)
def test_an_op_with_effects_is_compiled_in_its_region(op, grad):
    def f(x):
        with rx.region("r"):
            y = op(x).sin()
        return y.cos()

    x = invertible_matrix(grad=grad)
    ex = rx.explore(f, (x,))
    ex.compile()
    assert set(ex.partitions.state) == {"compiled"}, ex.partitions.error.tolist()
    assert_as_eager(ex, f, x)
    assert not failure_messages(ex)


def checks_in_two_regions(x):
    with rx.region("a"):
        y = torch.linalg.inv(x).sin()
    z = y.exp()
    with rx.region("b"):
        z = torch.linalg.solve(x, z)
    return z.cos()


@pytest.mark.skipif(BEFORE_2_13, reason="AOTAutograd drops the checks of linalg, with plain torch.compile too")
@pytest.mark.parametrize("dynamic", [None, True])
def test_effect_tokens_pass_between_regions(dynamic):
    x = invertible_matrix(grad=True)
    ex = rx.explore(checks_in_two_regions, (x,), dynamic=dynamic)
    ex.compile()
    both = ex.plan
    for eager in ([], ["a"], ["b"]):
        ex.plan = both
        for region in eager:
            ex.disable(region)
        assert_as_eager(ex, checks_in_two_regions, x)
        for _ in range(2):
            with pytest.raises(torch.linalg.LinAlgError, match=r"linalg\.inv"):
                ex.compiled(torch.zeros(4, 4, requires_grad=True))
        assert_as_eager(ex, checks_in_two_regions, x)
        assert not failure_messages(ex)
        assert set(ex.partitions.state) - {"eager"} == {"compiled"}


def test_regions_with_effects_are_checked_and_measured_alone():
    ex = rx.explore(checks_in_two_regions, (invertible_matrix(),))
    ex.benchmark(("eager", "regional"), budget_s=0.05)
    assert set(ex.numerics.verdict) == {"ok"}
    assert set(ex.region_numerics.verdict) == {"ok"}
    assert len(ex.region_numerics) == 2, "tokens that order effects are no results"
    assert "variant-failed" not in codes(ex)


RUNS: list[torch.Size] = []


@torch.library.custom_op("regional_explorer_tests::raises_after_three_runs", mutates_args=())
def raises_after_three_runs(x: torch.Tensor) -> torch.Tensor:
    RUNS.append(x.shape)
    if len(RUNS) > 3:  # traced, then run for the layouts of the inputs, and as captured
        raise RuntimeError("not again")
    return x * 3


raises_after_three_runs.register_fake(torch.empty_like)


def raises_when_traced(x):
    with rx.region("r"):
        y = x.sin()
        y = raises_after_three_runs(y) if torch.compiler.is_compiling() else y * 3
    return y.cos()


def test_failing_variant_leaves_other_results():
    RUNS.clear()
    ex = rx.explore(raises_when_traced, (torch.randn(8),))
    timings = ex.benchmark(("eager", "aot_eager", "regional"), budget_s=0.05)
    assert timings.variant.tolist() == ["eager"]
    messages = [item.message for code in ("plan-failed", "variant-failed") for item in diagnostics_of(ex, code)]
    compared = "raised RuntimeError when its results were to be compared with eager's: not again"
    assert {f"Variant 'aot_eager' {compared}", f"Variant 'regional' {compared}"} < set(messages)
    assert "Partition r.0/0/inference raised alone: RuntimeError: not again" in messages
    assert any(
        text.startswith("The cut graph with eager regions was not measured: No variant could be measured.")
        for text in messages
    )


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (lambda _ex: workpiece, "canonical"),
        (lambda ex: ex.live.program.store, "run_inductor"),
        (lambda _ex: artifact, "guard_check"),
        (lambda _ex: workpiece, "fingerprint"),
        (lambda _ex: switch, "layouts_of"),
    ],
)
def test_a_failure_in_one_partition_leaves_the_other_partitions(monkeypatch, owner, name):
    x = torch.randn(8)
    ex = rx.explore(programs.two_regions, (x,))
    original = getattr(owner(ex), name)
    injected = []

    def wrapped(*args, **kwargs):
        injected.append(args[0])
        if injected[0] is args[0]:
            raise ZeroDivisionError("injected")
        return original(*args, **kwargs)

    monkeypatch.setattr(owner(ex), name, wrapped)
    ex.compile()
    assert states(ex) == {"a": "failed", "b": "compiled"}
    assert "ZeroDivisionError: injected" in failure_messages(ex)["a"]
    assert_as_eager(ex, programs.two_regions, x)
    ex.benchmark(("eager", "regional"), budget_s=0.05)
    assert set(ex.timings.variant) == {"eager", "regional"}
    assert list(failure_messages(ex)) == ["a"]


def raise_injected(*_args):
    raise ZeroDivisionError("injected")


def test_partitions_without_a_fingerprint_are_failed_not_stale(monkeypatch):
    ex = rx.explore(programs.two_regions, (torch.randn(8),))
    assert set(ex.partitions.state) == {"stale"}
    monkeypatch.setattr(workpiece, "fingerprint", raise_injected)
    ex.compile()
    assert set(ex.partitions.state) == {"failed"}
    assert "injected" in failure_messages(ex)["b"]
    ex.disable("b")
    assert list(failure_messages(ex)) == ["a"], "as the remedy says"
    assert states(ex) == {"a": "failed", "b": "eager"}


class CancellingThread(SameThread):
    """Works on the calling thread and cancels the untimed work with this number, counted from 1."""

    def __init__(self, count):
        self.left = count

    def run_untimed(self, work):
        self.left -= 1
        if not self.left:
            raise CancelledError
        return work()


def test_a_cancelled_check_keeps_earlier_results():
    ex = rx.explore(lambda x: x.sin(), (torch.randn(8),))
    threads = CancellingThread(3)
    ex.benchmark(["eager", "aot_eager"], 0.05, run=rx.Run(threads=threads))
    assert threads.left == 0, "the check of aot_eager was its turn"
    assert ex.timings.empty
    assert not ex.benchmark(["eager", "aot_eager"], 0.05).empty


def test_numerics_belong_to_the_plan_they_were_checked_under():
    ex, told_of = rx.explore(programs.two_regions, (torch.randn(8),)), []
    run = rx.Run(lambda: "checking numerics: regional" in told_of, lambda doing, _: told_of.append(doing))
    ex.benchmark(("eager", "regional"), 0.05, run=run)
    assert ex.timings.empty
    assert set(ex.numerics.verdict) == {"ok"}
    ex.disable("a")
    assert ex.numerics.empty
    ex.enable("a")
    assert set(ex.numerics.verdict) == {"ok"}


def test_benchmark_failure_is_reported_until_plan_changes(monkeypatch):
    ex = rx.explore(programs.two_regions, (torch.randn(8),))
    monkeypatch.setattr(benchmark, "_numerics_rows", raise_injected)
    ex.benchmark(("eager", "regional"), 0.05, regions=False)
    assert "Variant 'regional' raised" in only(ex, "plan-failed").message
    ex.disable("a")
    assert not diagnostics_of(ex, "plan-failed")
    ex.enable("a")
    assert diagnostics_of(ex, "plan-failed")


@pytest.fixture
def ex_and_errors():
    """Return a compiled exploration of two regions, and a list: region ``a`` raises its first error."""
    errors, pieces = [], []
    original = torch_compile.compile_piece

    def compile_piece(*args):
        compiled = original(*args)
        pieces.append(compiled)
        if len(pieces) > 1:
            return compiled

        def call(arguments):
            given = list(arguments)
            arguments.clear()
            if errors:
                raise errors[0]
            return compiled.call(given)

        return replace(compiled, call=call)

    ex = rx.explore(programs.two_regions, (torch.randn(8),))
    ex.live.program.store.run_inductor = compile_piece
    ex.compile()
    assert states(ex) == {"a": "compiled", "b": "compiled"}
    return ex, errors


@pytest.mark.parametrize("error", [MemoryError, RuntimeError, torch.OutOfMemoryError])
def test_compiled_code_that_raises_fails_only_its_region(ex_and_errors, error):
    ex, errors = ex_and_errors
    errors.append(error("injected"))
    x = torch.randn(8)
    torch.testing.assert_close(ex.live.capture.run(x), programs.two_regions(x))
    assert states(ex) == {"a": "failed", "b": "compiled"}
    assert f"the compiled code raised {error.__name__}: injected" in failure_messages(ex)["a"]
    ex.benchmark(("eager", "regional"), budget_s=0.05)
    assert set(ex.timings.variant) == {"eager", "regional"}
    assert list(failure_messages(ex)) == ["a"]


def test_a_region_that_raises_later_runs_eagerly_from_then_on(ex_and_errors):
    ex, errors = ex_and_errors
    x = torch.randn(8)
    ex.compiled(x)
    errors.append(RuntimeError("injected"))
    with pytest.raises(RuntimeError, match="injected") as raised:
        ex.compiled(x)
    assert raised.value.__notes__ == ["Raised in the compiled code of region 'a', graph 0/inference."]
    torch.testing.assert_close(ex.compiled(x), programs.two_regions(x))
    assert states(ex) == {"a": "failed", "b": "compiled"}


def test_results_stay_when_compiled_code_raises_later(ex_and_errors):
    ex, errors = ex_and_errors
    ex.benchmark(("eager", "regional"), budget_s=0.05)
    (first,) = ex.runs
    errors.append(MemoryError("injected"))
    ex.benchmark(("eager", "aot_eager", "regional"), budget_s=0.05)
    assert "region-failed" in codes(ex)
    assert states(ex) == {"a": "failed", "b": "measured"}
    assert list(ex.timings.variant) == ["eager", "aot_eager", "regional"]
    assert [run.timings for run in ex.runs] == [first.timings, ex.session.timings]
    assert ex.runs[0] == first


def test_raising_region_stays_eager_after_undo(ex_and_errors):
    ex, errors = ex_and_errors
    errors.append(MemoryError("injected"))
    ex.live.capture.run(torch.randn(8))
    ex.configure("a", max_fusion_size=1)
    ex.compile()
    assert states(ex) == {"a": "compiled", "b": "compiled"}
    ex.reset("a")
    assert states(ex) == {"a": "failed", "b": "compiled"}
    a, b = ex.live.program.switches
    assert a.artifact is None, "no call runs the code of the other config"
    assert b.artifact is not None


def test_errors_that_eager_raises_too_do_not_fail_the_region():
    def f(table, index):
        with rx.region("r"):
            return torch.nn.functional.embedding(index, table).sin()

    table, index = torch.randn(4, 4), torch.tensor([1, 2])
    ex = rx.explore(f, (table, index))
    ex.compile()
    for _ in range(3):
        with pytest.raises((IndexError, RuntimeError)):
            ex.compiled(table, torch.tensor([1, 7]))
        torch.testing.assert_close(ex.compiled(table, index), f(table, index))
    assert states(ex) == {"r": "compiled"}


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), PermissionError(errno.EACCES, "denied"), MemoryError("full")],
    ids=["disk full", "cache directory", "memory"],
)
def test_disk_and_memory_failures_are_reported_and_retried(monkeypatch, error):
    original, injected = torch._inductor.standalone_compile, [error]

    def standalone_compile(*args, **kwargs):
        if injected:
            raise injected[0]
        return original(*args, **kwargs)

    monkeypatch.setattr(torch._inductor, "standalone_compile", standalone_compile)
    warm_toolchain.cache_clear()
    x = torch.randn(8)
    ex = rx.explore(programs.two_regions, (x,))
    ex.compile()
    assert states(ex) == {"a": "failed", "b": "failed"}
    assert type(error).__name__ in failure_messages(ex)["a"]
    assert "TORCHINDUCTOR_CACHE_DIR" in failure_messages(ex)["a"]
    torch.testing.assert_close(ex.compiled(x), programs.two_regions(x))
    ex.benchmark(("eager", "aot_eager", "regional"), budget_s=0.05)
    assert set(ex.timings.variant) == {"eager", "aot_eager", "regional"}
    injected.clear()
    ex.compile()
    assert states(ex) == {"a": "compiled", "b": "compiled"}
    assert not failure_messages(ex)


def test_a_compiler_without_disk_space_is_reported_as_a_full_disk():
    text = "C++ compile error: fatal error: error writing to /tmp/x.s: No space left on device"
    error = torch_compile._compile_error(RuntimeError(text))
    assert isinstance(error, rx.errors.CompileEnvironmentError)
    assert "No space left on device" in str(error)


FULL = """
import torch
import regional_explorer as rx

def f(x):
    with rx.region("r"):
        return (x.sin() * {constant} + x.cos()).exp()

x = torch.randn(8)
ex = rx.explore(f, (x,))
{break_it}
ex.compile()
(found,) = [item for item in ex.diagnostics if item.code == "region-failed"]
print(found.message)
assert torch.equal(ex.compiled(x), f(x))
ex.benchmark(budget_s=0.05)
assert {{"eager", "aot_eager", "regional"}} <= set(ex.timings.variant), ex.timings
assert "full-failed" in [item.code for item in ex.diagnostics]
ex.disable("r")
assert "full-failed" in [item.code for item in ex.diagnostics], "whole-graph Inductor knows no plan"
ex.enable("r")
{mend_it}
ex.compile()
assert set(ex.partitions.state) == {{"compiled"}}, ex.partitions.error.tolist()
print("mended")
"""


@pytest.mark.skipif(os.name != "posix", reason="limits as POSIX has them")
@pytest.mark.parametrize("how", [pytest.param("full", marks=pytest.mark.slow), "no directory"])
def test_compiling_recovers_from_an_unwritable_disk(how, tmp_path):
    """No file may grow, as on a full disk; or Inductor's cache directory is below a file."""
    assert_mended(FULL, how, tmp_path)
