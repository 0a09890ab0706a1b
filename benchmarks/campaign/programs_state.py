"""Programs that write in place, use random numbers, or run under autocast or without gradients."""

import torch
import torch.nn.functional as F
from torch import nn

import regional_explorer as rx
from benchmarks.campaign.program import Programs, tensor

STATE = Programs()


@STATE(lambda: (tensor(4, 8),), quick=True)
def write_to_an_intermediate(x):
    with rx.region("r"):
        a = x.sin()
        a.mul_(2)
        a[0] = 1.0
        b = a.cos()
    return b * a


@STATE(lambda: (tensor(8), torch.zeros(8)))
def write_to_an_input(x, out):
    with rx.region("r"):
        out.add_(x.detach().sin())
        a = out * x
    return a.exp()


@STATE(lambda: (tensor(8, grad=False), torch.ones(8)))
def write_between_two_reads(x, out):
    before = out * 2
    with rx.region("r"):
        out.copy_(x * 3)
        middle = out.cos()
    out.add_(1)
    with rx.region("s"):
        after = out.sin()
    return before, middle, after


class MovingAverage(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x):
        with rx.region("r"):
            self.seen.mul_(0.9).add_(x.mean(0))
            a = x * self.weight + self.seen
        return a.sin()


STATE.add("write_to_a_buffer", lambda: (MovingAverage(), (torch.randn(4, 8),)))


@STATE(lambda: (tensor(4, 8),))
def write_through_a_view(x):
    with rx.region("r"):
        a = x * 2
        a.view(-1)[3:7].add_(1)
        row = a[1]
        row.mul_(3)
    return a.sum(0)


@STATE(lambda: (tensor(4, 8, grad=False), torch.ones(4, 8)))
def write_through_a_view_of_an_input(x, out):
    with rx.region("r"):
        out[1:3].mul_(x[1:3])
        a = out.cos()
    return a * 2


@STATE(lambda: (tensor(4, 8),))
def views_alone(x):
    with rx.region("views"):
        a = x.view(2, 16).t()[3:]
    return a.sin().sum(0)


@STATE(lambda: (tensor(4, 8),))
def views_in_and_out(x):
    a = x.sin()
    with rx.region("r"):
        b = a.t().reshape(-1)
        c = b.view(2, -1).expand(3, 2, -1)
    return c.cos().sum(0), b[::2]


def norm_net():
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())


@STATE(lambda: (tensor(16, 8, grad=False),), net=norm_net)
def batch_norm(net, x):
    with rx.region("net"):
        x = net(x)
    return x.sin()


def image_norm_net():
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()


@STATE(lambda: (tensor(2, 2, 6, 6, grad=False),), net=image_norm_net)
def batch_norm_in_eval_mode(net, x):
    with rx.region("net"):
        return net(x)


@STATE(lambda: (tensor(16, 8),))
def dropout(x):
    with rx.region("r"):
        x = F.dropout(x * 2, 0.4).cos()
    return x + 1


@STATE(lambda: (tensor(16), tensor(16)), upstreams_cut_is_right=False)
def dropout_between_two(x, y):
    """Upstream merges the two ends around the dropout in the middle, which then gets the last random numbers."""
    with rx.region("r"):
        a = F.dropout(x, 0.5)
    b = F.dropout(y, 0.5)
    with rx.region("r"):
        c = F.dropout(a.sin(), 0.5)
    return b, c


@STATE(lambda: (tensor(16),))
def random_like(x):
    noise = torch.randn_like(x)
    with rx.region("r"):
        y = x + 0.1 * torch.rand_like(x)
    return y * noise


@STATE(lambda: (tensor(4, 8, grad=False),), net=lambda: nn.Linear(8, 8))
def autocast_around(net, x):
    with torch.autocast("cpu", torch.bfloat16):
        with rx.region("r"):
            y = net(x).relu()
        return y.sum()


@STATE(lambda: (tensor(4, 8, grad=False),), net=lambda: nn.Linear(8, 8))
def autocast_inside(net, x):
    with rx.region("r"):
        with torch.autocast("cpu", torch.bfloat16):
            y = net(x)
        y = y.float().tanh()
    return y * 2


@STATE(lambda: (tensor(8),))
def no_grad_inside(x):
    with rx.region("r"):
        with torch.no_grad():
            scale = x.abs().max()
        y = x / scale
    return y.sin()


@STATE(lambda: (tensor(4, 8, grad=False),), net=lambda: nn.Linear(8, 8), quick=True, grad=False)
def under_no_grad(net, x):
    with rx.region("r"):
        return net(x).relu() + 1


@STATE(lambda: (tensor(4, 8, grad=False),), net=lambda: nn.Linear(8, 8))
@torch.inference_mode()
def inference_mode_inside(net, x):
    x = x.sin()
    with rx.region("r"):
        return net(x).relu() + 1


@STATE(lambda: (tensor(8),))
def detached(x):
    with rx.region("r"):
        y = x.sin()
        z = y.detach() * 2
    return (y * z).sum()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids):
        x = self.table(ids)
        with rx.region("body"):
            x = x.sin() * 2
        with rx.region("head"):
            return self.head(x).log_softmax(-1)


STATE.add("tied_weights", lambda: (Tied(), (torch.randint(0, 11, (2, 5)),)))


@STATE(lambda: (tensor(5, 4), torch.tensor([0, 2]), tensor(2, 4)))
def write_by_index(x, index, rows):
    with rx.region("r"):
        y = x.clone()
        y[index] = rows
        y.index_add_(0, index, rows)
        z = y * 2
    return z.sum(0)
