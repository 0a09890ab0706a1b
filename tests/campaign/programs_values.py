"""Programs about what goes in and comes out: structures, layouts, shapes, graphs."""

import dataclasses

import torch
from torch import nn

import regional_explorer as rx
from tests.campaign.program import Programs, tensor

VALUES = Programs()


@VALUES
def outputs_that_are_inputs():
    def fn(x, y):
        with rx.region("r"):
            a = x.sin() + y
        return x, a, y, a

    return fn, (tensor(8), tensor(8, grad=False))


@VALUES
def outputs_that_are_views_of_inputs():
    def fn(x):
        with rx.region("r"):
            a = x.view(2, 4)
            b = a.sin()
        return a, b

    return fn, (tensor(8),)


@VALUES
def tuples_and_dicts():
    def fn(pair, options, *, scale):
        x, y = pair
        with rx.region("r"):
            a = x * options["weight"] + y
        return {"sum": a.sum() * scale, "parts": (a, [a.cos(), None]), "n": 3}

    def call(pair, options):
        return fn(pair, options, scale=2.0)

    return call, ((tensor(8), tensor(8)), {"weight": tensor(8)})


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    label: torch.Tensor
    name: str = "batch"


@VALUES
def dataclasses_in_and_out():
    def fn(batch):
        with rx.region("r"):
            a = batch.x.tanh() * batch.label
        return Batch(a.exp(), batch.label + 1, batch.name)

    return fn, (Batch(tensor(8), torch.ones(8)),)


@VALUES
def several_graphs():
    def fn(x, y):
        with rx.region("before"):
            a = x * y + 1
        print("a graph break")
        with rx.region("after"):
            return a.cos() * y

    return fn, (tensor(8), tensor(8))


@VALUES
def a_graph_break_in_a_callee():
    def callee(x):
        with rx.region("callee"):
            x = x.sin() * 2
        print("a graph break")
        return x.cos()

    def fn(x):
        with rx.region("caller"):
            x = x + 1
        x = callee(x.exp())
        return x * 3

    return fn, (tensor(8),)


@VALUES
def not_contiguous():
    def fn(x, y):
        with rx.region("r"):
            a = x.sin() + y
        return a.t() * 2

    return fn, (torch.randn(8, 4).t().requires_grad_(), torch.randn(4, 16)[:, ::2].requires_grad_())


@VALUES
def channels_last():
    net = nn.Conv2d(4, 4, 3, padding=1).to(memory_format=torch.channels_last)

    def fn(x):
        with rx.region("r"):
            x = net(x).relu()
        return x.sum((2, 3))

    return fn, (torch.randn(2, 4, 5, 5).to(memory_format=torch.channels_last).requires_grad_(),)


@VALUES
def zero_size():
    def fn(x, y):
        with rx.region("r"):
            a = torch.cat([x, y]).sin() * 2
        return a.sum(0)

    return fn, (tensor(0, 4), tensor(3, 4))


@VALUES
def nothing_but_zero_size():
    def fn(x):
        with rx.region("r"):
            a = x.sin() * 2
        return a, a.sum()

    return fn, (tensor(0, 4),)


@VALUES
def scalars():
    def fn(x, factor, y):
        with rx.region("r"):
            a = x * factor + y
        return a.square()

    return fn, (tensor(), 2.5, tensor())


@VALUES
def whole_numbers_and_truths():
    def fn(x, mask):
        with rx.region("r"):
            a = torch.where(mask & (x > 1), x * 2, x // 3)
        return a.sum(), a.argmax()

    return fn, (torch.arange(8), torch.arange(8) % 2 == 0)


@VALUES
def complex_numbers():
    def fn(x, y):
        a = torch.complex(x, y)
        with rx.region("r"):
            b = a * a.conj() + 1
        return torch.view_as_real(b * 2)

    return fn, (tensor(8), tensor(8))


@VALUES
def low_precision():
    def fn(x, w):
        with rx.region("r"):
            a = (x @ w).relu() * 0.5
        return a.float().sum(0)

    return fn, (torch.randn(4, 8, dtype=torch.bfloat16).requires_grad_(), torch.randn(8, 8, dtype=torch.bfloat16))


@VALUES
def constants_in_the_source():
    table = [0.5, 1.5, 2.5, 3.5]

    def fn(x):
        with rx.region("r"):
            a = x * torch.tensor(table)
        return a + torch.arange(4)

    return fn, (tensor(3, 4),)


@VALUES
def a_gradient_not_needed():
    def fn(x, y):
        with rx.region("r"):
            a = x.sin() * y.cos()
        return a.sum()

    return fn, (tensor(8), tensor(8, grad=False))


@VALUES(quick=True, dynamic=True)
def dynamic_shapes():
    def fn(x, y):
        with rx.region("r"):
            z = torch.cat([x, y]).sin() * 2
        return z[1:].sum(0)

    return fn, (tensor(5, 3), tensor(7, 3))


@VALUES(dynamic=True)
def dynamic_shapes_that_are_computed():
    def fn(x):
        n = x.shape[0]
        with rx.region("r"):
            a = x.view(n // 2, 2, -1).sum(1) / n
        with rx.region("s"):
            return a.repeat(2, 1) * x

    return fn, (tensor(6, 3),)


@VALUES(dynamic=True)
def dynamic_attention():
    def fn(q, k, v):
        with rx.region("r"):
            scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
        return scores @ v

    return fn, tuple(tensor(2, 6, 8) for _ in range(3))


@VALUES
def sizes_known_when_run():
    """An item read from a tensor is a size that nobody knows beforehand: a graph break, and a region behind it."""

    def fn(x, count):
        with rx.region("before"):
            x = x.sin() + 1
        n = int(count.item())
        with rx.region("after"):
            return x * n

    return fn, (tensor(8), torch.tensor(3))


@VALUES(dynamic=True)
def sizes_that_come_out():
    def fn(x):
        with rx.region("r"):
            n = x.shape[0] * 3 + 1
            y = x.new_zeros(n) + n
        return y.sin() * n, n, x * 2

    return fn, (tensor(5, 4),)
