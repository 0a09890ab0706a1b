"""What upstream's regional Inductor is tested on gives eager's results under ``rx.compile``, trained and not."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.traceback import annotate, annotate_fn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import regional_explorer as rx
from regional_explorer.record.plan import SelectorKind

pytestmark = pytest.mark.compiles


def marked(region, **configs):
    return {"compile_with_inductor": {"inductor_configs": configs, "inductor_region": region}}


def annotated(x, y):
    z = x.sin()
    with annotate(marked("middle", max_fusion_size=4)):
        z = z * y + z.cos()
    return z.exp()


@annotate_fn(marked("function"))
def inner(x, y):
    return (x * y).relu() + x


def annotated_function(x, y):
    return inner(inner(x.sin(), y).cos(), y)


def nested(x, y):
    with annotate(marked("outer")):
        z = x * y
        with annotate(marked("inner", max_fusion_size=2)):
            z = z.sin() + 1
        return z.cos()


def several_frames(x, y):
    with annotate(marked("before")):
        z = x * y + 1
    torch._dynamo.graph_break()
    with annotate(marked("after")):
        z = z.cos() * y
    torch._dynamo.graph_break()
    return z.exp() + x


def checkpointed(x, y):
    def body(x, y):
        with annotate(marked("inside")):
            return (x.sin() * y).cos()

    return checkpoint(body, x, y, use_reentrant=False).exp()


def selectively_checkpointed(x, y):
    def save_products(_context, op, *_args, **_kwargs):
        saved = op is torch.ops.aten.mm.default
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    def body(x, y):
        with annotate(marked("inside")):
            return (x.sin() @ y).cos().relu()

    contexts = functools.partial(create_selective_checkpoint_contexts, save_products)
    return checkpoint(body, x, y, use_reentrant=False, context_fn=contexts).exp()


def invoked_subgraph(x, y):
    @torch.compiler.nested_compile_region
    def layer(x, y):
        with annotate(marked("layer")):
            return (x * y).sin() + x

    return layer(layer(x, y), y).cos()


def dropped_out(x, y):
    with annotate(marked("drops", fallback_random=True)):
        z = F.dropout(x * y, 0.5)
    z = F.dropout(z, 0.5)
    with annotate(marked("drops again", fallback_random=True)):
        return F.dropout(z.cos(), 0.5) + y


CAUSAL = create_block_mask(lambda _b, _h, q, k: q >= k, 1, 1, 128, 128, device="cpu")


def attended(x, y):
    with annotate(marked("before")):
        q = (x * 2).sin()
    with annotate(marked("attention")):
        z = flex_attention(q, y, x, score_mod=lambda score, _b, _h, query, key: score - (query - key).abs())
    z = flex_attention(z, y, x, block_mask=CAUSAL)
    with annotate(marked("after")):
        return z.cos() + 1


def pair(program):
    generator = torch.Generator().manual_seed(1)
    shape = (1, 2, 128, 16) if program is attended else (8, 8)
    return tuple(torch.randn(*shape, generator=generator) for _ in range(2))


def seeded(fn, *args):
    torch.manual_seed(3)
    return fn(*args)


PROGRAMS = [
    annotated,
    annotated_function,
    nested,
    several_frames,
    checkpointed,
    selectively_checkpointed,
    invoked_subgraph,
    dropped_out,
    attended,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_inference_gives_eagers_results(program):
    x, y = pair(program)
    compiled = rx.compile(program)
    expected = seeded(program, x, y)
    for _ in range(3):
        torch.testing.assert_close(seeded(compiled, x, y), expected)
    assert {str(part.state) for part in rx.status(compiled).partitions} == {"compiled"}


# Flex attention has no backward on the CPU, eager or compiled (torch 2.13 to 2.15).
@pytest.mark.parametrize("program", [program for program in PROGRAMS if program is not attended])
def test_training_gives_eagers_results(program):
    x, y = (value.requires_grad_() for value in pair(program))

    def trained(fn):
        loss = seeded(fn, x, y)
        return loss.detach(), *torch.autograd.grad(loss.square().sum(), (x, y))

    compiled = rx.compile(program)
    expected = trained(program)
    for _ in range(3):
        torch.testing.assert_close(trained(compiled), expected)
    status = rx.status(compiled)
    assert {str(part.state) for part in status.partitions} == {"compiled"}
    assert any("backward" in part.graph for part in status.partitions)


class Small(nn.Module):
    """A network with what makes training loops interesting: norms with state, and dropout."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first = nn.Conv1d(4, 8, 3, padding=1) if kind == "convolution" else nn.Linear(12, 8)
        self.norm = nn.BatchNorm1d(8) if kind == "convolution" else nn.LayerNorm(8)
        self.last = nn.Linear(8, 3)

    def forward(self, x, target):
        x = x.reshape(-1, 4, 3) if self.kind == "convolution" else x
        x = F.gelu(self.norm(self.first(x)))
        x = x.mean(-1) if self.kind == "convolution" else x
        return F.cross_entropy(self.last(x), target)


@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_an_optimizer_follows_eagers_losses(kind):
    def losses(wrap):
        torch.manual_seed(0)
        model = Small(kind)
        call = wrap(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        found = []
        for step in range(12):
            generator = torch.Generator().manual_seed(step)
            x, target = torch.randn(16, 12, generator=generator), torch.randint(0, 3, (16,), generator=generator)
            optimizer.zero_grad()
            loss = call(x, target)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found, call

    plan = rx.Plan((rx.Region("norm", (rx.Selector(SelectorKind.MODULES, ("norm",)),)),))
    found, compiled = losses(lambda model: rx.compile(model, plan))
    torch.testing.assert_close(found, losses(lambda model: model)[0], rtol=1e-4, atol=1e-5)
    assert rx.status(compiled).graphs == ("0/forward", "0/backward"), "traced once"
