"""200 training steps under ``rx.compile``: the losses match eager's, nothing is traced again, memory is flat."""

import copy
import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regional_explorer as rx
from regional_explorer.record.plan import SelectorKind
from tests.shared.diagnostics_programs import gpt_of_neighbours
from tests.shared.processes import resident_mib

pytestmark = [pytest.mark.compiles, pytest.mark.slow]
STEPS, WARM = 200, 5


class Convolutions(nn.Module):
    """Batch norms keep state from step to step."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(2))
        self.last = nn.Linear(8, 4)

    def forward(self, x, targets):
        x = F.relu(self.norms[0](self.first(x)))
        x = F.relu(self.norms[1](self.second(x)))
        return F.cross_entropy(self.last(x.mean((2, 3))), targets)


class Recurrent(nn.Module):
    """A gated cell, unrolled: one weight used many times."""

    def __init__(self):
        super().__init__()
        self.cell, self.last = nn.GRUCell(8, 16), nn.Linear(16, 4)

    def forward(self, x, targets):
        state = x.new_zeros(x.shape[0], 16)
        for place in range(x.shape[1]):
            state = self.cell(x[:, place], state)
        return F.cross_entropy(self.last(state), targets)


def token_batch(generator):
    first = torch.randint(0, 64, (4, 1), generator=generator)
    counted = (first + 3 * torch.arange(9)) % 64
    return counted[:, :-1], counted[:, 1:]


def around_targets(*shape):
    """Return a function that makes batches whose inputs lie around their targets."""

    def batch(generator):
        targets = torch.randint(0, 4, (8,), generator=generator)
        return torch.randn(8, *shape, generator=generator) + targets.view(8, *(1 for _ in shape)), targets

    return batch


def module_plan(name, pattern):
    return rx.Plan((rx.Region(name, (rx.Selector(SelectorKind.MODULES, (pattern,)),)),))


CASES = {
    "gpt, marked in its source": (gpt_of_neighbours, token_batch, None),
    "batch norms": (Convolutions, around_targets(1, 6, 6), module_plan("norms", "norms.*")),
    "an unrolled cell": (Recurrent, around_targets(5, 8), module_plan("cell", "cell")),
}


def train(model, call, batches, watch=lambda _step: None):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(STEPS):
        loss = call(*batches(torch.Generator().manual_seed(step)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        watch(step)
    return torch.tensor(losses, dtype=torch.float64)


def rms(values):
    return values.square().mean().sqrt().item()


def memory_use():
    """Return the number of live tensors, and the memory of this process in MiB."""
    megabytes = resident_mib()  # collects garbage first
    return sum(isinstance(one, torch.Tensor) for one in gc.get_objects()), megabytes


@pytest.mark.parametrize("name", CASES)
def test_200_training_steps_match_eager(name):
    make, batches, plan = CASES[name]
    torch.manual_seed(0)
    model = make()
    eager, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    compiled = rx.compile(model, plan, strict=True)
    seen = {}

    def watch(step):
        if step in (WARM, STEPS - 1):
            seen[step] = (*memory_use(), rx.status(compiled).graphs)

    found = train(model, compiled, batches, watch)
    expected = train(eager, eager, batches)

    def double_batches(generator):
        return tuple(value.double() if value.is_floating_point() else value for value in batches(generator))

    truth = train(exact, exact, double_batches)
    assert expected[-1] < 0.9 * expected[0], "it learns something"
    mine, theirs = rms(found - truth), rms(expected - truth)
    unit = torch.finfo(torch.float32).eps * rms(truth)
    print(f"{name}: loss {found[0]:.3f} to {found[-1]:.3f}, off float64 by {mine:.1e}, eager by {theirs:.1e}; {seen}")
    assert mine <= 4 * max(theirs, unit), "the rule of docs/numerics.md"
    assert {str(part.state) for part in rx.status(compiled).partitions} == {"compiled"}
    (tensors, before, graphs), (tensors_after, after, graphs_after) = seen[WARM], seen[STEPS - 1]
    assert graphs_after == graphs
    assert len(graphs) == 2, "traced once"
    assert tensors_after <= tensors
    assert after - before < 32
