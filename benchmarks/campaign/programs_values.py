"""Programs about what goes in and comes out: structures, layouts, shapes, graphs."""

import dataclasses

import torch
from torch import nn

import regional_explorer as rx
from benchmarks.campaign.program import Programs, tensor
from tests.shared.programs import break_between_regions

VALUES = Programs()


@VALUES(lambda: (tensor(8), tensor(8, grad=False)))
def outputs_that_are_inputs(x, y):
    with rx.region("r"):
        a = x.sin() + y
    return x, a, y, a


@VALUES(lambda: (tensor(8),))
def outputs_that_are_views_of_inputs(x):
    with rx.region("r"):
        a = x.view(2, 4)
        b = a.sin()
    return a, b


@VALUES(lambda: ((tensor(8), tensor(8)), {"weight": tensor(8)}))
def tuples_and_dicts(pair, options, *, scale=2.0):
    x, y = pair
    with rx.region("r"):
        a = x * options["weight"] + y
    return {"sum": a.sum() * scale, "parts": (a, [a.cos(), None]), "n": 3}


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    label: torch.Tensor
    name: str = "batch"


@VALUES(lambda: (Batch(tensor(8), torch.ones(8)),))
def dataclasses_in_and_out(batch):
    with rx.region("r"):
        a = batch.x.tanh() * batch.label
    return Batch(a.exp(), batch.label + 1, batch.name)


VALUES.add("several_graphs", lambda: (break_between_regions, (tensor(8), tensor(8))))


def callee(x):
    with rx.region("callee"):
        x = x.sin() * 2
    print("a graph break")
    return x.cos()


@VALUES(lambda: (tensor(8),))
def a_graph_break_in_a_callee(x):
    with rx.region("caller"):
        x = x + 1
    x = callee(x.exp())
    return x * 3


@VALUES(lambda: (torch.randn(8, 4).t().requires_grad_(), torch.randn(4, 16)[:, ::2].requires_grad_()))
def not_contiguous(x, y):
    with rx.region("r"):
        a = x.sin() + y
    return a.t() * 2


def convolution():
    return nn.Conv2d(4, 4, 3, padding=1).to(memory_format=torch.channels_last)


@VALUES(lambda: (torch.randn(2, 4, 5, 5).to(memory_format=torch.channels_last).requires_grad_(),), net=convolution)
def channels_last(net, x):
    with rx.region("r"):
        x = net(x).relu()
    return x.sum((2, 3))


@VALUES(lambda: (tensor(0, 4), tensor(3, 4)))
def zero_size(x, y):
    with rx.region("r"):
        a = torch.cat([x, y]).sin() * 2
    return a.sum(0)


@VALUES(lambda: (tensor(0, 4),))
def nothing_but_zero_size(x):
    with rx.region("r"):
        a = x.sin() * 2
    return a, a.sum()


@VALUES(lambda: (tensor(), 2.5, tensor()))
def scalars(x, factor, y):
    with rx.region("r"):
        a = x * factor + y
    return a.square()


@VALUES(lambda: (torch.arange(8), torch.arange(8) % 2 == 0))
def integers_and_booleans(x, mask):
    with rx.region("r"):
        a = torch.where(mask & (x > 1), x * 2, x // 3)
    return a.sum(), a.argmax()


@VALUES(lambda: (tensor(8), tensor(8)))
def complex_numbers(x, y):
    a = torch.complex(x, y)
    with rx.region("r"):
        b = a * a.conj() + 1
    return torch.view_as_real(b * 2)


@VALUES(lambda: (torch.randn(4, 8, dtype=torch.bfloat16).requires_grad_(), torch.randn(8, 8, dtype=torch.bfloat16)))
def low_precision(x, w):
    with rx.region("r"):
        a = (x @ w).relu() * 0.5
    return a.float().sum(0)


@VALUES(lambda: (tensor(3, 4),))
def constants_in_the_source(x):
    with rx.region("r"):
        a = x * torch.tensor([0.5, 1.5, 2.5, 3.5])
    return a + torch.arange(4)


@VALUES(lambda: (tensor(8), tensor(8, grad=False)))
def a_gradient_not_needed(x, y):
    with rx.region("r"):
        a = x.sin() * y.cos()
    return a.sum()


@VALUES(lambda: (tensor(5, 3), tensor(7, 3)), quick=True, dynamic=True)
def dynamic_shapes(x, y):
    with rx.region("r"):
        z = torch.cat([x, y]).sin() * 2
    return z[1:].sum(0)


@VALUES(lambda: (tensor(6, 3),), dynamic=True)
def dynamic_shapes_that_are_computed(x):
    n = x.shape[0]
    with rx.region("r"):
        a = x.view(n // 2, 2, -1).sum(1) / n
    with rx.region("s"):
        return a.repeat(2, 1) * x


@VALUES(lambda: tuple(tensor(2, 6, 8) for _ in range(3)), dynamic=True)
def dynamic_attention(q, k, v):
    with rx.region("r"):
        scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
    return scores @ v


@VALUES(lambda: (tensor(8), torch.tensor(3)))
def number_read_from_a_tensor(x, count):
    """Reading the number breaks the graph; one region is before the break, one behind it."""
    with rx.region("before"):
        x = x.sin() + 1
    n = int(count.item())
    with rx.region("after"):
        return x * n


@VALUES(lambda: (tensor(5, 4),), dynamic=True)
def outputs_that_are_sizes(x):
    with rx.region("r"):
        n = x.shape[0] * 3 + 1
        y = x.new_zeros(n) + n
    return y.sin() * n, n, x * 2
