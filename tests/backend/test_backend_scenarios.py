"""The results of compiled code: for the programs of upstream's tests, and for numbers that a call computes."""

import math

import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace
from torch import nn
from torch.fx.traceback import annotate, annotate_fn

import regional_explorer as rx
from benchmarks.campaign.program import Programs, tensor
from benchmarks.campaign.programs import PROGRAMS
from regional_explorer.record.plan import CutRule
from tests.shared import programs
from tests.shared.checks import only

pytestmark = pytest.mark.compiles

SCENARIOS = Programs()


def annotation(region, **configs):
    return {"compile_with_inductor": {"inductor_configs": configs, "inductor_region": region}}


@SCENARIOS(lambda: (tensor(8, 8), tensor(8, 8)))
def annotated(x, y):
    z = x.sin()
    with annotate(annotation("middle", max_fusion_size=4)):
        z = z * y
        with annotate(annotation("inner", max_fusion_size=2)):
            z = z.sin() + z.cos()
        z = z + 1
    return z.exp()


@annotate_fn(annotation("function"))
def inner(x, y):
    return (x * y).relu() + x


@SCENARIOS(lambda: (tensor(8, 8), tensor(8, 8)))
def annotated_function(x, y):
    return inner(inner(x.sin(), y).cos(), y)


@SCENARIOS(lambda: (tensor(8, 8), tensor(8, 8)))
def dropout_in_and_between_regions(x, y):
    with annotate(annotation("drops", fallback_random=True)):
        z = F.dropout(x * y, 0.5)
    z = F.dropout(z, 0.5)
    with annotate(annotation("drops again", fallback_random=True)):
        return F.dropout(z.cos(), 0.5) + y


OF_THE_CAMPAIGN = (
    "several_graphs",
    "checkpointed",
    "checkpoint_that_keeps_products",
    "region_inside_nested_compile_region",
    "flex_attention_inside_a_region",
    "region_beside_flex_attention",
)
SCENARIOS |= {name: PROGRAMS[name] for name in OF_THE_CAMPAIGN}


def scenarios_with_and_without_gradients():
    """Yield each program with gradients and without. Without them all but one are slow tests: the ops are the same."""
    for name, program in SCENARIOS.items():
        # Flex attention has no backward on the CPU, eager or compiled (torch 2.13 to 2.15).
        if program.grad is None:
            yield name, True
        alike = program.grad is None and name != "annotated"
        yield pytest.param(name, False, marks=pytest.mark.slow if alike else ())


@pytest.mark.parametrize(("name", "grad"), list(scenarios_with_and_without_gradients()))
def test_results_and_gradients_equal_eagers(name, grad):
    """The first call and later ones."""
    torch.manual_seed(1)
    fn, args = SCENARIOS[name].make()
    leaves = [value for value in args if value.requires_grad]
    compiled = rx.compile(fn)

    def run(fn):
        torch.manual_seed(3)
        with torch.set_grad_enabled(grad):
            result = fn(*args)
        return result.detach(), *(torch.autograd.grad(result.square().sum(), leaves) if grad else ())

    expected = run(fn)
    for _ in range(3):
        torch.testing.assert_close(run(compiled), expected)
    partitions = rx.status(compiled).partitions
    assert {str(part.state) for part in partitions} == {"compiled"}
    assert any("backward" in part.graph for part in partitions) is grad


MODELS = {
    "linear": (lambda: (nn.Linear(12, 8), nn.GELU(), nn.LayerNorm(8)), 8),
    "convolution, and a norm with state": (
        lambda: (nn.Unflatten(1, (4, 3)), nn.Conv1d(4, 8, 3, padding=1), nn.BatchNorm1d(8), nn.GELU(), nn.Flatten()),
        24,
    ),
}


@pytest.mark.parametrize(("layers", "width"), MODELS.values(), ids=MODELS)
def test_losses_under_an_optimizer_match_eagers(layers, width):
    def losses(wrap):
        torch.manual_seed(0)
        model = nn.Sequential(*layers(), nn.Linear(width, 3))
        call = wrap(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        found = []
        for step in range(12):
            generator = torch.Generator().manual_seed(step)
            x, target = torch.randn(16, 12, generator=generator), torch.randint(0, 3, (16,), generator=generator)
            optimizer.zero_grad()
            loss = F.cross_entropy(call(x), target)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found, call

    found, compiled = losses(lambda model: rx.compile(model, programs.plan_of(norm="2")))
    torch.testing.assert_close(found, losses(lambda model: model)[0], rtol=1e-4, atol=1e-5)
    assert rx.status(compiled).graphs == ("0/forward", "0/backward"), "traced once"


# --------------------------------------------- numbers computed from sizes or tensors, and offsets of storages

SIZES = (4, 9, 16, 25, 36)


def clamped(x):
    limit = x.shape[0] ** 0.5
    with rx.region("r"):
        return x.clamp(max=limit)


def shifted(x):
    share = 1 / x.shape[0]
    with rx.region("r"):
        return torch.add(x, x.sin(), alpha=share).clamp(min=-share)


def scaled(x):
    scale = math.sqrt(x.shape[0])
    shifted_by_one = x + 1
    with rx.region("r"):
        return (shifted_by_one.sin() * scale).clamp(max=scale / 10)


# The second trace for one size, then for all, is the first for all.
@pytest.mark.parametrize(
    ("function", "dynamic"),
    [
        (clamped, None),
        *((function, True) for function in (clamped, shifted, scaled)),
        *(pytest.param(function, None, marks=pytest.mark.slow) for function in (shifted, scaled)),
    ],
)
def test_numbers_computed_from_sizes_are_recomputed_in_each_call(function, dynamic):
    compiled = rx.compile(function, dynamic=dynamic)
    for size in SIZES:
        x = torch.linspace(-9, 9, size)
        torch.testing.assert_close(compiled(x), function(x))
    assert {str(part.state) for part in rx.status(compiled).partitions} == {"compiled"}


def test_an_exploration_compiles_numbers_computed_from_sizes_for_all_sizes():
    ex = rx.explore(clamped, (torch.full((4,), 100.0),), dynamic=True)
    ex.compile()
    assert ex.regions["state"].tolist() == ["compiled"]
    assert [ex.compiled(torch.full((size,), 100.0))[0].item() for size in SIZES] == [2, 3, 4, 5, 6]


def test_training_with_item_is_right_and_lists_eager_ops():
    def loss(x, weight):
        sharpness = x.shape[0] ** -0.5
        with rx.region("r"):
            return F.softplus(x * weight, beta=sharpness).sum()

    compiled = rx.compile(loss)
    for size in SIZES:
        x, results = torch.linspace(-2, 2, size), []
        for function in (loss, compiled):
            weight = torch.ones(size, requires_grad=True)
            value = function(x, weight)
            value.backward()
            results.append((value.detach(), weight.grad))
        torch.testing.assert_close(*results)
    assert "leaves 1 op to eager: softplus_backward" in str(rx.status(compiled))


def test_numbers_read_from_tensors_are_read_in_each_call():
    def softened(x, sharpness):
        beta = sharpness.item()
        with rx.region("r"):
            return F.softplus(x, beta=beta) * 2

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = rx.compile(softened)
        for value in (1.0, 2.0, 4.0):
            inputs = torch.ones(3), torch.tensor(value)
            torch.testing.assert_close(compiled(*inputs), softened(*inputs))
        ex = rx.explore(softened, (torch.ones(3), torch.tensor(2.0)))
    assert only(ex, "region-shrunk").nodes == ("softplus",)
    assert ex.partitions["ops"].tolist() == [1]


def attention(q, k, v):
    scores = (q @ k.mT) / math.sqrt(q.shape[-1])
    return scores.softmax(-1) @ v


def test_division_by_root_of_dynamic_size_belongs_to_the_region_around_it():
    """AOTAutograd replaces ``item`` by ops without metadata, so no remedy proposes a selector for them."""
    ex = rx.explore(attention, tuple(torch.randn(2, 8, 16) for _ in range(3)), dynamic=True)
    ex.mark("all", lines="attention:2-3")
    assert len(ex.partitions) == 1
    assert not ex.diagnostics
    ex.plan = replace(ex.plan, cut=CutRule.MARKED)
    (found,) = ex.diagnostics
    assert (found.code, found.nodes) == ("region-split", ("div_tensor",))
    assert found.remedy == "No change is possible: torch added these ops while tracing, and no selector matches them."


@pytest.mark.parametrize("start", [0, 2, 4])
def test_as_strided_addresses_a_storage_from_its_start(start):
    def addressed(x):
        with rx.region("r"):
            return x.as_strided((2,), (1,), 6) * 2

    compiled, numbers = rx.compile(addressed), torch.arange(24.0)
    for later in (0, 0, 8):
        x = numbers[start + later :][:8]
        torch.testing.assert_close(compiled(x), addressed(x))


def unused_random(x, w):
    v = x.sin()
    with rx.region("r"):
        y = w.sin()
    return y, v + torch.rand_like(v), v


def unused_dropout(x, w):
    with rx.region("r"):
        F.dropout(x, 0.5)
        return w.sin(), x


@pytest.mark.parametrize("fn", [unused_random, unused_dropout])
def test_an_unused_random_op_runs_once_in_a_step(fn):
    """Torch's default partitioner repeats the unused op in the backward, or fails: docs/upstream.md."""

    def next_number(call):
        torch.manual_seed(0)
        call(torch.ones(2), w)[0].sum().backward()
        return torch.rand(())

    w = torch.ones(2, requires_grad=True)
    with torch._inductor.config.patch(fallback_random=True):
        compiled = rx.compile(fn)
        assert next_number(compiled) == next_number(compiled) == next_number(fn)
        assert {part.state for part in rx.status(compiled).partitions} == {"compiled"}
