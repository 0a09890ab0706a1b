"""Programs with higher-order ops, custom ops and autograd functions."""

import functools

import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import regional_explorer as rx
from benchmarks.campaign.program import Programs, tensor

HIGHER = Programs()


@HIGHER(lambda: (tensor(8, grad=False),))
def cond_inside_a_region(x):
    x = x * 2
    with rx.region("r"):
        y = torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() - 1, (x,))
    return y.exp()


def yes(x):
    with rx.region("yes"):
        return x.sin() + 1


def no(x):
    x = x.exp()
    with rx.region("no"):
        return x.cos() - 1


@HIGHER(lambda: (tensor(8, grad=False),), quick=True)
def regions_inside_cond(x):
    return torch.cond(x.sum() > 0, yes, no, (x * 2,)) * 3


@HIGHER(lambda: (tensor(8),))
def cond_with_gradients(x):
    return torch.cond(x.sum() > 0, yes, lambda x: x.cos(), (x * 2,)) * 3


@HIGHER(lambda: (tensor(8, grad=False),))
def while_loop_inside_a_region(x):
    with rx.region("r"):
        _, y = torch.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x.sin() * 2), (torch.tensor(0), x))
    return y + 1


def step(i, x):
    with rx.region("step"):
        y = x.sin() * 2
    return i + 1, y + 1


@HIGHER(lambda: (tensor(8, grad=False),))
def region_inside_while_loop(x):
    return torch.while_loop(lambda i, _: i < 3, step, (torch.tensor(0), x))[1]


@torch.compiler.nested_compile_region
def product(x, y):
    return (x * y).sin() + 1


@HIGHER(lambda: (tensor(8), tensor(8)))
def nested_compile_region_inside_a_region(x, y):
    x = x.exp()
    with rx.region("r"):
        z = product(x, y)
    return z.cos()


@torch.compiler.nested_compile_region
def marked_product(x, y):
    x = x.exp()
    with rx.region("r"):
        z = (x * y).sin() + 1
    return z.cos()


@HIGHER(lambda: (tensor(8), tensor(8)))
def region_inside_nested_compile_region(x, y):
    return marked_product(marked_product(marked_product(x, y), y), y)


@torch.compiler.nested_compile_region
def inner(x):
    with rx.region("inner"):
        return x.sin() * 2


@HIGHER(lambda: (tensor(8),))
def nested_compile_regions_around_and_between(x):
    x = inner(x)
    with rx.region("between"):
        x = x.cos() + 1
    return inner(x).exp()


@HIGHER(lambda: (tensor(4, 8),), net=lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)))
def checkpointed(net, x):
    def block(x):
        with rx.region("r"):
            return net(x).sin()

    return checkpoint(block, x * 2, use_reentrant=False).cos()


@HIGHER(lambda: (tensor(4, 8),), net=lambda: nn.Linear(8, 8))
def region_around_a_checkpoint(net, x):
    with rx.region("r"):
        x = checkpoint(lambda x: net(x).sigmoid() * x, x * 2, use_reentrant=False)
    return x.cos()


def _selective(other_policy, product_policy):
    """Return a function that makes a call of two checkpointed blocks; products have a separate policy."""

    def policy(_context, op, *_args, **_kwargs):
        return product_policy if op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default) else other_policy

    def block(x, w):
        with rx.region("r"):
            return torch.sigmoid(x @ w) * x + 1

    def fn(x, w):
        contexts = functools.partial(create_selective_checkpoint_contexts, policy)
        for _ in range(2):
            x = checkpoint(block, x, w, use_reentrant=False, context_fn=contexts).exp()
        return x

    return lambda: (fn, (tensor(4, 4), tensor(4, 4)))


HIGHER.add("checkpoint_that_keeps_products", _selective(CheckpointPolicy.PREFER_RECOMPUTE, CheckpointPolicy.MUST_SAVE))
HIGHER.add("checkpoint_that_repeats_products", _selective(CheckpointPolicy.MUST_SAVE, CheckpointPolicy.MUST_RECOMPUTE))


def sin_with_dropout(x):
    with rx.region("r"):
        return F.dropout(x.sin(), 0.3) * 2


@HIGHER(lambda: (tensor(16),))
def checkpoint_with_dropout(x):
    return checkpoint(sin_with_dropout, x * 2, use_reentrant=False).cos()


def distance(score, _batch, _head, query, key):
    return score - (query - key).abs()


@HIGHER(lambda: tuple(tensor(1, 2, 32, 16, grad=False) for _ in range(3)), grad=False)
def flex_attention_inside_a_region(q, k, v):
    q = q * 2
    with rx.region("r"):
        y = flex_attention(q, k, v, score_mod=distance)
    return y + 1


def causal():
    return create_block_mask(lambda _b, _h, q, k: q >= k, 1, 1, 128, 128, device="cpu")


@HIGHER(lambda: tuple(tensor(1, 2, 128, 16, grad=False) for _ in range(3)), net=causal, grad=False)
def region_beside_flex_attention(mask, q, k, v):
    with rx.region("before"):
        q = (q * 2).sin()
    y = flex_attention(q, k, v, block_mask=mask)
    with rx.region("after"):
        return y.cos() + 1


@torch.library.custom_op("campaign::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)
twice.register_autograd(lambda _ctx, grad: grad * 2)


@torch.library.custom_op("campaign::increase", mutates_args=("x",))
def increase(x: torch.Tensor) -> None:
    x.add_(1)


increase.register_fake(lambda _x: None)


@HIGHER(lambda: (tensor(8),), quick=True)
def custom_op_inside_a_region(x):
    with rx.region("r"):
        y = twice(x.sin()) + 1
    return y.cos()


@HIGHER(lambda: (tensor(8),))
def custom_op_on_the_path(x):
    with rx.region("r"):
        x = x.sin() + 1
    x = twice(x)
    with rx.region("r"):
        return x.cos() + 1


@HIGHER(lambda: (tensor(8, grad=False),))
def custom_op_that_writes(x):
    with rx.region("r"):
        y = x.sin()
        increase(y)
        z = y * 2
    return z + y


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x.square() * grad


@HIGHER(lambda: (tensor(8),))
def autograd_function_inside_a_region(x):
    with rx.region("r"):
        y = Cube.apply(x.sin()) + 1
    return y.cos()


class Marked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        with rx.region("forth"):
            return x.sin() * 2

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return x.cos() * 2 * grad


@HIGHER(lambda: (tensor(8),))
def region_inside_an_autograd_function(x):
    return Marked.apply(x * 2).exp()


@torch.compiler.nested_compile_region
def body(x):
    with rx.region("r"):
        return x.sin() * 2 + 1


@HIGHER(lambda: (tensor(8, 8),))
def a_body_called_on_two_layouts(x):
    return body(x) + body(x.t()) + body(x)


@HIGHER(lambda: (tensor(4, 8),))
def vmap_inside_a_region(x):
    with rx.region("r"):
        y = torch.vmap(lambda row: row.sin() @ row)(x)
    return y * 2


@HIGHER(lambda: (tensor(8),))
def gradient_inside_a_region(x):
    with rx.region("r"):
        y = torch.func.grad(lambda x: (x.sin() * x).sum())(x)
    return y * 2


@HIGHER(lambda: (tensor(4, 8, grad=False),))
def regions_beside_a_scan(x):
    with rx.region("r"):
        y = x.sin() + 1
    z = associative_scan(lambda a, b: a + b, y, 0, combine_mode="generic")
    with rx.region("s"):
        return z.cos() * 2
