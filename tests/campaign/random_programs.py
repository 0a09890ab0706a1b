"""Random programs: a few ops over a few square matrices, each inside a region or in none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from hypothesis import strategies as st

import regional_explorer as rx

SIZE = 4
INPUTS = 3
OUTPUTS = 3
REGIONS = ("a", "b", "c")

Op = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _set_row(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[2] = y[0] * 1
    return x


def _write_through(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.t().mul_(y * 1)  # torch refuses what overlaps only in part
    return x


def _writable(x: torch.Tensor) -> torch.Tensor:
    return x * 1 if 0 in x.stride() else x


PURE: dict[str, Op] = {
    "sin": lambda x, _: x.sin(),
    "relu": lambda x, _: x.relu(),
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y * 0.5,
    "mm": lambda x, y: (x @ y).tanh(),
    "softmax": lambda x, _: x.softmax(-1),
    "where": lambda x, y: torch.where(x > y, x, y),
    "detach": lambda x, y: x.detach() + y,
    "range": lambda x, _: x + torch.arange(SIZE),
    "table": lambda x, _: x * torch.tensor([1.0, 2.0, 3.0, 4.0]),
    # views
    "transpose": lambda x, _: x.t(),
    "reshape": lambda x, _: x.reshape(-1).view(SIZE, SIZE),
    "row": lambda x, _: x[1].expand(SIZE, SIZE),
    "same": lambda x, _: x,
    # several results
    "halves": lambda x, y: torch.cat([x.chunk(2)[1], y.chunk(2)[0]]),
    "rows": lambda x, _: torch.stack(x.unbind()[::-1]),
    "highest": lambda x, _: x.max(dim=0, keepdim=True)[0] - x,
    "sorted": lambda x, _: torch.sort(x, dim=-1)[0],
    "norm": lambda x, _: F.layer_norm(x, (SIZE,)),
    # random numbers
    "dropout": lambda x, _: F.dropout(x, 0.4),
    "noise": lambda x, _: x + torch.rand_like(x),
    "coins": lambda x, _: x * torch.bernoulli(torch.full((SIZE, SIZE), 0.5)),
    # writes in place
    "add_": lambda x, y: (x * 1).add_(y),
    "row_": lambda x, y: _set_row(x + 0, y),
    "transposed_": lambda x, y: _write_through(x * 1, y),
}
WRITES: dict[str, Op] = {
    "shared_add_": lambda x, y: _writable(x).add_(y * 1),  # torch refuses a transpose of itself
    "shared_row_": lambda x, y: _set_row(_writable(x), y),
    "shared_transposed_": lambda x, y: _write_through(_writable(x), y),
}
"""Writes to whatever came before, inputs included: autograd would refuse most of them."""

OPS = PURE | WRITES


@dataclass(frozen=True)
class Step:
    """One op over two of the values so far, counted from the last."""

    op: str
    x: int
    y: int
    region: str | None


def programs(*, writes: bool, shortest: int = 1, longest: int = 14) -> st.SearchStrategy[list[Step]]:
    step = st.builds(
        Step,
        op=st.sampled_from(list(OPS if writes else PURE)),
        x=st.integers(0, 6),
        y=st.integers(0, 6),
        region=st.sampled_from([None, *REGIONS]),
    )
    return st.lists(step, min_size=shortest, max_size=longest)


def function(steps: Sequence[Step]) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Return the program as a function of ``INPUTS`` matrices."""
    plan = [(OPS[step.op], step.x, step.y, step.region) for step in steps]

    def run(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = list(inputs)
        for op, x, y, region in plan:
            with nullcontext() if region is None else rx.region(region):
                values.append(op(values[-1 - x % len(values)], values[-1 - y % len(values)]))
        return tuple(values[INPUTS:][-OUTPUTS:])

    return run


def inputs(*, grad: bool) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(SIZE, SIZE, generator=generator).requires_grad_(grad) for _ in range(INPUTS))
