"""What fails inside one partition: it is told, that region runs eagerly, and everything else goes on."""

from concurrent.futures import CancelledError

import pytest
import torch

import regional_explorer as rx
from regional_explorer.compiler import artifact, switch
from regional_explorer.compiler.run import SameThread
from regional_explorer.errors import RegionCompileError
from tests.shared.checks import BEFORE_2_13

pytestmark = pytest.mark.compiles


def invertible(*, grad=False):
    return (torch.randn(4, 4) + 4 * torch.eye(4)).requires_grad_(grad)


def failed(ex):
    """Return the text of each ``region-failed``, by region."""
    return {item.region: item.message for item in ex.diagnostics if item.code == "region-failed"}


def assert_as_eager(ex, function, *args):
    result, expected = ex.compiled(*args), function(*args)
    torch.testing.assert_close(result, expected)
    leaves = [value for value in args if value.requires_grad]
    if leaves:
        gradients = [torch.autograd.grad(value.sum(), leaves, allow_unused=True) for value in (result, expected)]
        torch.testing.assert_close(*gradients)


# ----------------------------------------------------------------------------------------------------- ops with effects


def lu(x):
    factors, pivots = torch.linalg.lu_factor(x)
    return torch.linalg.lu_solve(factors, pivots, x.cos())


def normal(x):
    spread = torch.eye(4) + 0.1 * x @ x.mT
    return torch.distributions.MultivariateNormal(torch.zeros(4), spread).log_prob(x)


EFFECTFUL = {
    "inv": torch.linalg.inv,
    "solve": lambda x: torch.linalg.solve(x, x.sin()),
    "cholesky": lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(4)),
    "lu_factor": lu,
    "multivariate normal": normal,
    "two checks": lambda x: torch.linalg.inv(torch.linalg.inv(x).sin() + 9 * torch.eye(4)),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", EFFECTFUL)
def test_an_op_with_effects_is_compiled_in_its_region(name, grad):
    op = EFFECTFUL[name]

    def f(x):
        with rx.region("r"):
            y = op(x).sin()
        return y.cos()

    x = invertible(grad=grad)
    ex = rx.explore(f, (x,))
    ex.compile()
    assert set(ex.partitions.state) == {"compiled"}, ex.partitions.error.tolist()
    assert_as_eager(ex, f, x)
    assert not failed(ex)


def checks_in_two_regions(x):
    with rx.region("a"):
        y = torch.linalg.inv(x).sin()
    z = y.exp()
    with rx.region("b"):
        z = torch.linalg.solve(x, z)
    return z.cos()


@pytest.mark.skipif(BEFORE_2_13, reason="AOTAutograd drops the checks of linalg, with plain torch.compile too")
@pytest.mark.parametrize("eager", [(), ("a",), ("b",)])
@pytest.mark.parametrize("dynamic", [None, True])
def test_what_orders_effects_passes_between_compiled_and_eager_regions(eager, dynamic):
    x = invertible(grad=True)
    ex = rx.explore(checks_in_two_regions, (x,), dynamic=dynamic)
    ex.compile()
    for region in eager:
        ex.disable(region)
    assert_as_eager(ex, checks_in_two_regions, x)
    for _ in range(2):
        with pytest.raises(torch.linalg.LinAlgError, match=r"linalg\.inv"):
            ex.compiled(torch.zeros(4, 4, requires_grad=True))
    assert_as_eager(ex, checks_in_two_regions, x)
    assert not failed(ex)
    assert set(ex.partitions.state) - {"eager"} == {"compiled"}


def test_regions_with_effects_are_checked_and_measured_alone():
    ex = rx.explore(checks_in_two_regions, (invertible(),))
    ex.benchmark(("eager", "regional"), budget_s=0.1)
    assert set(ex.numerics.verdict) == {"ok"}
    assert set(ex.region_numerics.verdict) == {"ok"}
    assert len(ex.region_numerics) == 2, "what orders effects is no result"
    assert "variant-failed" not in {item.code for item in ex.diagnostics}


# ------------------------------------------------------------------------------------------------ a variant that raises

RUNS: list[torch.Size] = []


def _a_few_times(x: torch.Tensor) -> torch.Tensor:
    RUNS.append(x.shape)
    if len(RUNS) > 3:  # traced, then run for the layouts of the inputs, and as captured
        raise RuntimeError("not again")
    return x * 3


a_few_times = torch.library.custom_op("regional_explorer_tests::a_few_times", mutates_args=())(_a_few_times)
a_few_times.register_fake(torch.empty_like)


def raises_when_traced(x):
    with rx.region("r"):
        y = x.sin()
        y = a_few_times(y) if torch.compiler.is_compiling() else y * 3
    return y.cos()


def test_a_variant_that_raises_before_it_is_measured_leaves_the_others_their_results():
    RUNS.clear()
    ex = rx.explore(raises_when_traced, (torch.randn(8),))
    timings = ex.benchmark(("eager", "aot_eager", "regional"), budget_s=0.1)
    assert timings.variant.tolist() == ["eager"]
    told = [item.message for item in ex.diagnostics if item.code == "variant-failed"]
    compared = "raised RuntimeError when its results were to be compared with eager's: not again"
    assert {f"Variant 'aot_eager' {compared}", f"Variant 'regional' {compared}"} < set(told)
    assert "Partition r.0/0/inference alone: RuntimeError: not again" in told
    assert any(text.startswith("The cut graph with eager regions: No variant could be measured.") for text in told)


# ---------------------------------------------------------------------------------------- any failure, one partition


def two(x):
    with rx.region("bad"):
        y = x.sin() * 2
    y = y.exp()
    with rx.region("good"):
        return y.cos() + 1


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (lambda _ex: artifact, "canonical"),
        (lambda ex: ex.live.program.store, "run_inductor"),
        (lambda _ex: artifact, "guard_check"),
        (lambda _ex: switch, "fingerprint"),
    ],
)
def test_a_failure_anywhere_in_one_partition_leaves_the_others(monkeypatch, owner, name):
    x = torch.randn(8)
    ex = rx.explore(two, (x,))
    original = getattr(owner(ex), name)
    planted = []

    def wrapped(*args, **kwargs):
        if not planted or planted == [args[0]]:
            planted[:] = [args[0]]
            raise ZeroDivisionError("planted")
        return original(*args, **kwargs)

    monkeypatch.setattr(owner(ex), name, wrapped)
    ex.compile()
    assert dict(zip(ex.partitions.region, ex.partitions.state, strict=True)) == {"bad": "failed", "good": "compiled"}
    assert "ZeroDivisionError: planted" in failed(ex)["bad"]
    assert_as_eager(ex, two, x)
    ex.benchmark(("eager", "regional"), budget_s=0.1)
    assert set(ex.timings.variant) == {"eager", "regional"}
    assert list(failed(ex)) == ["bad"]


def test_inputs_that_cannot_be_described_cost_their_partition_alone(monkeypatch):
    original, calls = switch.layouts_of, []

    def layouts_of(values, *rest):
        calls.append(values)
        if len(calls) == 1:
            raise ZeroDivisionError("planted")
        return original(values, *rest)

    monkeypatch.setattr(switch, "layouts_of", layouts_of)
    x = torch.randn(8)
    ex = rx.explore(two, (x,))
    ex.compile()
    assert dict(zip(ex.partitions.region, ex.partitions.state, strict=True)) == {"bad": "failed", "good": "compiled"}
    assert "planted" in failed(ex)["bad"]
    assert_as_eager(ex, two, x)


def test_partitions_that_cannot_be_described_are_no_longer_shown_as_stale(monkeypatch):
    ex = rx.explore(two, (torch.randn(8),))
    assert set(ex.partitions.state) == {"stale"}

    def planted(*_args):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(switch, "fingerprint", planted)
    ex.compile()
    assert set(ex.partitions.state) == {"failed"}
    assert "planted" in failed(ex)["good"]


def test_what_the_store_raises_is_ours_and_names_the_error(monkeypatch):
    def canonical(*_args):
        raise ZeroDivisionError("planted")

    ex = rx.explore(two, (torch.randn(8),))
    (key, switch), *_ = ex.live.program.stale().items()
    monkeypatch.setattr(artifact, "canonical", canonical)
    with pytest.raises(RegionCompileError, match="ZeroDivisionError: planted") as raised:
        ex.live.program.store.compile(ex.live.program.wanted(key, switch))
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


class CancelledAt(SameThread):
    """An executor that is cancelled at the given piece of untimed work."""

    def __init__(self, count):
        self.left = count

    def run_untimed(self, work):
        self.left -= 1
        if not self.left:
            raise CancelledError
        return work()


def test_a_check_that_is_cancelled_keeps_the_results_before_it():
    ex = rx.explore(lambda x: x.sin(), (torch.randn(8),))
    executor = CancelledAt(3)
    ex.benchmark(["eager", "aot_eager"], 0.1, run=rx.Run(executor=executor))
    assert executor.left == 0, "the check of aot_eager was its turn"
    assert ex.timings.empty
    assert not ex.benchmark(["eager", "aot_eager"], 0.1).empty
