"""A training step whose every op is marked, beside plain ``torch.compile``: what it costs to go through our call.

Both run under the same AOT partitioner, once upstream's default one and once Inductor's own min-cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch import fx
from torch._functorch.partitioners import default_partition
from torch._inductor.custom_graph_pass import CustomPartitionerFn, get_hash_for_files

import regional_explorer as rx
from benchmarks.architectures import GPT, WORDS
from benchmarks.row import Row
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.rounds import run_rounds
from regional_explorer.record.timing import Phase

BLOCKS = 4


class DefaultPartition(CustomPartitionerFn):
    """Has Inductor split forward from backward as upstream's regional path does."""

    def __call__(
        self, gm: fx.GraphModule, joint_inputs: Sequence[object], **kwargs: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Return the forward and the backward."""
        kwargs.pop("compiler", None)
        return default_partition(gm, joint_inputs, **kwargs)

    def uuid(self) -> object:
        """Return what tells it from other partitioners in Inductor's caches."""
        return get_hash_for_files((__file__,))


def rows(budget_s: float = 60.0) -> list[Row]:
    """Return a row for each partitioner: the step over the whole call, interleaved rounds."""
    return [_row("default", DefaultPartition(), budget_s), _row("min_cut", None, budget_s)]


def _row(partitioner: str, full_partitioner: CustomPartitionerFn | None, budget_s: float) -> Row:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, ids = GPT(width=256, depth=BLOCKS).eval(), torch.randint(2, WORDS, (2, 128))
    leaves: list[torch.Tensor] = list(model.parameters())
    with inductor_config.patch(custom_partitioner_fn=full_partitioner):
        full = torch.compile(model)
        torch.autograd.grad(full(ids), leaves)
    ex = rx.explore(model, (ids,), partitioner=partitioner)
    ex.mark("all", ops="*")
    pieces = len(ex.partitions)
    functions = {"full": full, "ours": ex.compiled}
    timed_calls = [TimedCall(name, partial(fn, ids), partial(_gradients, leaves)) for name, fn in functions.items()]
    result = run_rounds(timed_calls, budget_s, baseline="full")
    steps = {name: phases[Phase.STEP] for name, phases in result.samples.items()}
    what = f"a step of a GPT of {BLOCKS} blocks, every op marked: {pieces} partitions"
    return Row(what, f"torch.compile, both under the {partitioner} partitioner", steps["ours"], steps["full"], 1.02)


def _gradients(leaves: list[torch.Tensor], loss: Any) -> object:
    return torch.autograd.grad(loss, leaves)
