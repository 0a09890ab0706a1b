"""What upstream's regional Inductor is tested on gives eager's results under ``rx.compile``, trained and not."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.traceback import annotate, annotate_fn

import regional_explorer as rx
from tests.campaign.program import Programs, tensor
from tests.campaign.programs import PROGRAMS
from tests.shared import programs

pytestmark = pytest.mark.compiles

SCENARIOS = Programs()


def marked(region, **configs):
    return {"compile_with_inductor": {"inductor_configs": configs, "inductor_region": region}}


@SCENARIOS(lambda: (tensor(8, 8), tensor(8, 8)))
def annotated(x, y):
    z = x.sin()
    with annotate(marked("middle", max_fusion_size=4)):
        z = z * y
        with annotate(marked("inner", max_fusion_size=2)):
            z = z.sin() + z.cos()
        z = z + 1
    return z.exp()


@annotate_fn(marked("function"))
def inner(x, y):
    return (x * y).relu() + x


@SCENARIOS(lambda: (tensor(8, 8), tensor(8, 8)))
def annotated_function(x, y):
    return inner(inner(x.sin(), y).cos(), y)


@SCENARIOS(lambda: (tensor(8, 8), tensor(8, 8)))
def dropped_out(x, y):
    with annotate(marked("drops", fallback_random=True)):
        z = F.dropout(x * y, 0.5)
    z = F.dropout(z, 0.5)
    with annotate(marked("drops again", fallback_random=True)):
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


# Flex attention has no backward on the CPU, eager or compiled (torch 2.13 to 2.15).
@pytest.mark.parametrize(
    ("name", "grad"),
    [(name, grad) for name, program in SCENARIOS.items() for grad in (False, True) if not grad or program.grad is None],
)
def test_results_and_gradients_are_eagers(name, grad):
    """In the first call and in later ones."""
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


def linear():
    return nn.Linear(12, 8), nn.GELU(), nn.LayerNorm(8)


def convolution():
    """What makes training loops interesting: a norm with state."""
    return nn.Unflatten(1, (4, 3)), nn.Conv1d(4, 8, 3, padding=1), nn.BatchNorm1d(8), nn.GELU(), nn.Flatten()


@pytest.mark.parametrize(("layers", "width"), [(linear, 8), (convolution, 24)])
def test_an_optimizer_follows_eagers_losses(layers, width):
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
