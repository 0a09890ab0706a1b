"""Programs about which ops become one partition."""

import torch
import torch.nn.functional as F
from torch import nn

import regional_explorer as rx
from benchmarks.campaign.program import Programs, tensor
from tests.shared.programs import textbook

CUTTING = Programs()
CUTTING.add("one_block", lambda: (textbook, (tensor(8), tensor(8))))


@CUTTING(lambda: (tensor(8, 8), tensor(8, 8)), quick=True)
@rx.region("all")
def whole_function(x, y):
    return (x @ y).softmax(-1).sum(0)


def linears(count):
    return lambda: nn.ModuleList(nn.Linear(8, 8) for _ in range(count))


@CUTTING(lambda: (tensor(4, 8, grad=False),), net=linears(4))
def repeated_blocks_of_one_name(layers, x):
    """Upstream's first piece takes ops of the other blocks along, sideways."""
    for layer in layers:
        with rx.region("layer"):
            x = layer(x).relu()
        x = x.sin()
    return x


@CUTTING(lambda: (tensor(4, 8, grad=False),), net=linears(3), quick=True)
def repeated_blocks_that_touch(layers, x):
    for layer in layers:
        with rx.region("layer"):
            x = layer(x).tanh()
    return x


@CUTTING(lambda: (tensor(4, 8, grad=False),), net=linears(4))
def repeated_blocks_of_their_own_names(layers, x):
    for index, layer in enumerate(layers):
        with rx.region(f"layer{index}"):
            x = layer(x).relu()
    return x


@CUTTING(lambda: (tensor(8),))
def nested_blocks(x):
    with rx.region("outer"):
        x = x.sin() + 1
        with rx.region("inner"):
            x = x.exp() * 2
        x = x.cos() - 1
    return x * 3


@CUTTING(lambda: (tensor(8),))
def nested_blocks_of_one_name(x):
    with rx.region("r"):
        x = x.sin()
        with rx.region("r"):
            x = x.exp()
        x = x.cos()
    return x * 3


@CUTTING(lambda: (tensor(8), tensor(8)))
def inner_block_beside_the_path(x, y):
    with rx.region("outer"):
        a = x.sin()
        with rx.region("inner"):
            b = y.exp() * 2
        a = a.cos() - 1
    return a, b


@CUTTING(lambda: (tensor(8), tensor(8)))
def independent_op_in_the_middle(x, y):
    with rx.region("r"):
        a = x.sin()
    b = y.exp()
    with rx.region("r"):
        c = a.cos()
    return b, c


@CUTTING(lambda: (tensor(8),))
def path_op_in_the_middle(x):
    with rx.region("r"):
        a = x.sin()
    b = a.exp()
    with rx.region("r"):
        return b.cos() * 2


@CUTTING(lambda: (tensor(8),))
def path_op_and_a_direct_edge(x):
    with rx.region("r"):
        a = x.sin()
    b = a.exp()
    with rx.region("r"):
        return b.cos() + a * 2


@CUTTING(lambda: (tensor(8), tensor(8)))
def parallel_branches(x, y):
    with rx.region("r"):
        a = x.sin() * 2
    with rx.region("r"):
        b = y.cos() * 3
    return a.exp() + b.exp()


@CUTTING(lambda: (tensor(8),))
def there_and_back(x):
    """The first region feeds the second, which feeds the first: no cycle of partitions."""
    with rx.region("a"):
        x = x.sin() + 1
    with rx.region("b"):
        x = x.cos() * 2
    with rx.region("a"):
        return x.exp() - 1


@CUTTING(lambda: (tensor(8),))
def ladder(x):
    for index in range(6):
        with rx.region("even" if index % 2 == 0 else "odd"):
            x = (x * 1.5).sin()
    return x


@CUTTING(lambda: (tensor(8),))
def fan_out(x):
    with rx.region("r"):
        a = x.sin()
        b, c, d = a * 2, a * 3, a * 4
    return b.exp(), c, d.cos() + c


@CUTTING(lambda: (tensor(4, 8),))
def several_results_of_one_op(x):
    """One of an op's two results is read inside the region, the other outside."""
    with rx.region("r"):
        found = torch.topk(x, 3)
        values = found[0] * 2
    return values, found[1] + 1


@CUTTING(lambda: (tensor(4, 9),))
def split_and_join(x):
    with rx.region("r"):
        a, b, c = x.chunk(3, dim=-1)
    d = a.exp()
    with rx.region("s"):
        return torch.cat([d * b, c], -1).sum()


@CUTTING(lambda: tuple(tensor(2, 4, 8) for _ in range(3)))
def attention(q, k, v):
    with rx.region("scores"):
        scores = (q @ k.transpose(-1, -2) / 4).softmax(-1)
    with rx.region("mix"):
        return scores @ v


@CUTTING(lambda: tuple(tensor(1, 2, 4, 8) for _ in range(3)))
def fused_attention(q, k, v):
    with rx.region("attention"):
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return a.sin()


@CUTTING(lambda: (tensor(4, 8), tensor(8), tensor(8)))
def norms(x, w, b):
    with rx.region("layer"):
        x = F.layer_norm(x, (8,), w, b)
    with rx.region("rms"):
        return F.rms_norm(x, (8,), w) * 2


def pictures():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(), nn.MaxPool2d(2), nn.Conv2d(4, 2, 1))


@CUTTING(lambda: (tensor(2, 3, 8, 8, grad=False),), net=pictures)
def convolution(net, x):
    with rx.region("conv"):
        x = net[:3](x)
    x = net[3](x)
    with rx.region("head"):
        return net[4](x).mean((2, 3))


@CUTTING(lambda: (torch.randint(0, 11, (2, 5)),), net=lambda: (nn.Embedding(11, 8), nn.Linear(8, 11)))
def embedding_and_loss(net, ids):
    table, head = net
    with rx.region("embed"):
        x = table(ids) * 2
    x = x.sin()
    with rx.region("loss"):
        return F.cross_entropy(head(x).flatten(0, 1), ids.flatten())
