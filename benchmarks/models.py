"""Training steps of models: with every op marked, beside plain ``torch.compile``, and with sums of gradients or not.

Sums of gradients inside regions belong to them by default; ``cut="marked"`` leaves them eager, as upstream does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
import torch._inductor.config as inductor_config
from msgspec.structs import replace
from torch import fx
from torch._functorch.partitioners import default_partition
from torch._inductor.custom_graph_pass import CustomPartitionerFn, get_hash_for_files

import regional_explorer as rx
from benchmarks.row import Row, regional_steps, training_steps
from regional_explorer.record.plan import CutRule
from tests.shared.models import GPT, WORDS, explore

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
        """Return the text that identifies the partitioner in Inductor's caches."""
        return get_hash_for_files((__file__,))


def whole_rows(budget_s: float = 60.0) -> Iterator[Row]:
    """Time a step whose every op is marked, under either AOT partitioner: the cost of going through our call."""
    partitioners: dict[str, CustomPartitionerFn | None] = {"default": DefaultPartition(), "min_cut": None}
    for name, full_partitioner in partitioners.items():
        torch.manual_seed(0)
        torch._dynamo.reset()
        model, ids = GPT(width=256, depth=BLOCKS).eval(), torch.randint(2, WORDS, (2, 128))
        leaves: list[torch.Tensor] = list(model.parameters())
        with inductor_config.patch(custom_partitioner_fn=full_partitioner):
            full = torch.compile(model)
            torch.autograd.grad(full(ids), leaves)
        ex = rx.explore(model, (ids,), tracing=rx.Tracing(name))
        ex.mark("all", ops="*")
        what = f"a step of a GPT of {BLOCKS} blocks, every op marked: {len(ex.partitions)} partitions"
        steps = training_steps({"ours": ex.compiled, "full": full}, ids, leaves, budget_s)
        yield Row(what, f"torch.compile, both under the {name} partitioner", steps["ours"], steps["full"], 1.02)


def sum_rows(models: Iterable[str] = ("gpt", "bert", "llama", "vit", "mamba"), budget_s: float = 30.0) -> Iterator[Row]:
    """Time a step whose regions include their sums of gradients, beside a step whose sums run eagerly."""
    for name in models:
        explorations: dict[str, rx.Exploration] = {cut: explore(name) for cut in (CutRule.INSTANCES, CutRule.MARKED)}
        for cut, ex in explorations.items():
            ex.plan = replace(ex.plan, cut=CutRule(cut))
            ex.compile()
        with_sums, eager = (len(ex.partitions) for ex in explorations.values())
        ours, theirs = regional_steps(explorations, budget_s)
        what = f"a training step of {name}: {with_sums} partitions"
        yield Row(what, f"sums of gradients eager: {eager} partitions", ours, theirs, 1.0)
