"""Replaces the CPU's attention ops, which no other device has, by those of CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from regional_explorer.torch_api.graphs import arguments_of

if TYPE_CHECKING:
    from torch._subclasses import FakeTensorMode

aten = torch.ops.aten
FORWARD = aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
HALF = (torch.float16, torch.bfloat16)


def replace_cpu_attention(gm: fx.GraphModule, inputs: Sequence[Any], mode: FakeTensorMode, device: str) -> None:
    """Replace the CPU's attention ops of ``gm`` by CUDA's, in place; names of nodes stay.

    As torch chooses on a GPU: flash attention for 16-bit dtypes without a mask, else memory-efficient attention.
    """
    forwards, backwards = (gm.graph.find_nodes(op="call_function", target=target) for target in (FORWARD, BACKWARD))
    if forwards or backwards:
        FakeTensorProp(gm, mode=mode).propagate_dont_convert_inputs(*inputs)
    for node in forwards:
        given = arguments_of(node)
        start = (given["query"], given["key"], given["value"])
        if _is_flash(given):
            node.target = aten._scaled_dot_product_flash_attention.default
            node.args = (*start, given["dropout_p"], given["is_causal"])
        else:
            node.target = aten._scaled_dot_product_efficient_attention.default
            # True: with the log-sum-exp that the backward needs.
            node.args = (*start, given["attn_mask"], True, given["dropout_p"], given["is_causal"])
        node.kwargs = {"scale": given["scale"]}
    for node in backwards:
        given = arguments_of(node)
        gradient = (given["grad_out"], given["query"], given["key"], given["value"])
        saved, drop, causal = (given["out"], given["logsumexp"]), given["dropout_p"], given["is_causal"]
        with gm.graph.inserting_before(node):
            # The random state that the forward returns for its backward; without dropout nothing reads it.
            seed, offset = (_empty(gm, device) for _ in range(2))
            if _is_flash(given):
                lengths = (gm.graph.call_function(aten.sym_size.int, (given[of], 2)) for of in ("query", "key"))
                node.target = aten._scaled_dot_product_flash_attention_backward.default
                node.args = (*gradient, *saved, None, None, *lengths, drop, causal, seed, offset)
            else:
                wanted = [True, True, True, False]
                node.target = aten._scaled_dot_product_efficient_attention_backward.default
                node.args = (*gradient, given["attn_mask"], *saved, seed, offset, drop, wanted, causal)
        node.kwargs = {"scale": given["scale"]}


def _is_flash(given: dict[str, Any]) -> bool:
    return given["attn_mask"] is None and given["query"].meta["val"].dtype in HALF


def _empty(gm: fx.GraphModule, device: str) -> fx.Node:
    kwargs: dict[str, Any] = {"dtype": torch.int64, "device": torch.device(device)}
    return gm.graph.call_function(aten.empty.memory_format, ([0],), kwargs)
