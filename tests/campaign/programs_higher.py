"""Programs with higher-order ops, custom ops and autograd functions."""

import functools

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import regional_explorer as rx
from tests.campaign.program import Programs, tensor

HIGHER = Programs()


@HIGHER
def cond_inside_a_region():
    def fn(x):
        x = x * 2
        with rx.region("r"):
            y = torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() - 1, (x,))
        return y.exp()

    return fn, (tensor(8, grad=False),)


@HIGHER(quick=True)
def regions_inside_cond():
    def yes(x):
        with rx.region("yes"):
            return x.sin() + 1

    def no(x):
        x = x.exp()
        with rx.region("no"):
            return x.cos() - 1

    def fn(x):
        return torch.cond(x.sum() > 0, yes, no, (x * 2,)) * 3

    return fn, (tensor(8, grad=False),)


@HIGHER
def cond_with_gradients():
    def yes(x):
        with rx.region("yes"):
            return x.sin() + 1

    def fn(x):
        return torch.cond(x.sum() > 0, yes, lambda x: x.cos(), (x * 2,)) * 3

    return fn, (tensor(8),)


@HIGHER
def while_loop_inside_a_region():
    def fn(x):
        with rx.region("r"):
            _, y = torch.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x.sin() * 2), (torch.tensor(0), x))
        return y + 1

    return fn, (tensor(8, grad=False),)


@HIGHER
def region_inside_while_loop():
    def step(i, x):
        with rx.region("step"):
            y = x.sin() * 2
        return i + 1, y + 1

    def fn(x):
        return torch.while_loop(lambda i, _: i < 3, step, (torch.tensor(0), x))[1]

    return fn, (tensor(8, grad=False),)


@HIGHER
def nested_compile_region_inside_a_region():
    @torch.compiler.nested_compile_region
    def block(x, y):
        return (x * y).sin() + 1

    def fn(x, y):
        x = x.exp()
        with rx.region("r"):
            z = block(x, y)
        return z.cos()

    return fn, (tensor(8), tensor(8))


@HIGHER(quick=True)
def region_inside_nested_compile_region():
    @torch.compiler.nested_compile_region
    def block(x, y):
        x = x.exp()
        with rx.region("r"):
            z = (x * y).sin() + 1
        return z.cos()

    def fn(x, y):
        return block(block(block(x, y), y), y)

    return fn, (tensor(8), tensor(8))


@HIGHER
def nested_compile_regions_around_and_between():
    @torch.compiler.nested_compile_region
    def block(x):
        with rx.region("inner"):
            return x.sin() * 2

    def fn(x):
        x = block(x)
        with rx.region("between"):
            x = x.cos() + 1
        return block(x).exp()

    return fn, (tensor(8),)


@HIGHER
def checkpointed():
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def block(x):
        with rx.region("r"):
            return net(x).sin()

    def fn(x):
        return checkpoint(block, x * 2, use_reentrant=False).cos()

    return fn, (tensor(4, 8),)


@HIGHER
def region_around_a_checkpoint():
    net = nn.Linear(8, 8)

    def fn(x):
        with rx.region("r"):
            x = checkpoint(lambda x: net(x).sigmoid() * x, x * 2, use_reentrant=False)
        return x.cos()

    return fn, (tensor(4, 8),)


def _keep_products(_context, op, *_args, **_kwargs):
    kept = op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def _recompute_products(_context, op, *_args, **_kwargs):
    redone = op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_RECOMPUTE if redone else CheckpointPolicy.MUST_SAVE


def _selective(policy):
    def block(x, w):
        with rx.region("r"):
            return torch.sigmoid(x @ w) * x + 1

    def fn(x, w):
        contexts = functools.partial(create_selective_checkpoint_contexts, policy)
        for _ in range(2):
            x = checkpoint(block, x, w, use_reentrant=False, context_fn=contexts).exp()
        return x

    return fn, (tensor(4, 4), tensor(4, 4))


@HIGHER
def checkpoint_that_keeps_products():
    return _selective(_keep_products)


@HIGHER
def checkpoint_that_repeats_products():
    return _selective(_recompute_products)


@HIGHER
def checkpoint_with_dropout():
    def block(x):
        with rx.region("r"):
            return F.dropout(x.sin(), 0.3) * 2

    def fn(x):
        return checkpoint(block, x * 2, use_reentrant=False).cos()

    return fn, (tensor(16),)


@HIGHER(grad=False)
def flex_attention_inside_a_region():
    from torch.nn.attention.flex_attention import flex_attention

    def distance(score, _batch, _head, query, key):
        return score - (query - key).abs()

    def fn(q, k, v):
        q = q * 2
        with rx.region("r"):
            y = flex_attention(q, k, v, score_mod=distance)
        return y + 1

    return fn, tuple(torch.randn(1, 2, 32, 16) for _ in range(3))


@HIGHER(grad=False)
def region_beside_flex_attention():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(lambda _b, _h, q, k: q >= k, 1, 1, 128, 128, device="cpu")

    def fn(q, k, v):
        with rx.region("before"):
            q = (q * 2).sin()
        y = flex_attention(q, k, v, block_mask=mask)
        with rx.region("after"):
            return y.cos() + 1

    return fn, tuple(torch.randn(1, 2, 128, 16) for _ in range(3))


@torch.library.custom_op("campaign::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)
twice.register_autograd(lambda _ctx, grad: grad * 2)


@torch.library.custom_op("campaign::increase", mutates_args=("x",))
def increase(x: torch.Tensor) -> None:
    x.add_(1)


increase.register_fake(lambda _x: None)


@HIGHER(quick=True)
def custom_op_inside_a_region():
    def fn(x):
        with rx.region("r"):
            y = twice(x.sin()) + 1
        return y.cos()

    return fn, (tensor(8),)


@HIGHER
def custom_op_on_the_path():
    def fn(x):
        with rx.region("r"):
            x = x.sin() + 1
        x = twice(x)
        with rx.region("r"):
            return x.cos() + 1

    return fn, (tensor(8),)


@HIGHER
def custom_op_that_writes():
    def fn(x):
        with rx.region("r"):
            y = x.sin()
            increase(y)
            z = y * 2
        return z + y

    return fn, (tensor(8, grad=False),)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x.square() * grad


@HIGHER
def autograd_function_inside_a_region():
    def fn(x):
        with rx.region("r"):
            y = Cube.apply(x.sin()) + 1
        return y.cos()

    return fn, (tensor(8),)


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


@HIGHER
def region_inside_an_autograd_function():
    def fn(x):
        return Marked.apply(x * 2).exp()

    return fn, (tensor(8),)


@HIGHER
def a_body_called_on_two_layouts():
    @torch.compiler.nested_compile_region
    def block(x):
        with rx.region("r"):
            return x.sin() * 2 + 1

    def fn(x):
        return block(x) + block(x.t()) + block(x)

    return fn, (tensor(8, 8),)


@HIGHER
def vmap_inside_a_region():
    def fn(x):
        with rx.region("r"):
            y = torch.vmap(lambda row: row.sin() @ row)(x)
        return y * 2

    return fn, (tensor(4, 8),)


@HIGHER
def gradient_inside_a_region():
    def fn(x):
        with rx.region("r"):
            y = torch.func.grad(lambda x: (x.sin() * x).sum())(x)
        return y * 2

    return fn, (tensor(8),)


@HIGHER
def regions_beside_a_scan():
    from torch._higher_order_ops.associative_scan import associative_scan

    def fn(x):
        with rx.region("r"):
            y = x.sin() + 1
        z = associative_scan(lambda a, b: a + b, y, 0, combine_mode="generic")
        with rx.region("s"):
            return z.cos() * 2

    return fn, (tensor(4, 8, grad=False),)
