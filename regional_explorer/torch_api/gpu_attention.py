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
CPU_FORWARD = aten._scaled_dot_product_flash_attention_for_cpu.default
CPU_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
HALF_DTYPES = (torch.float16, torch.bfloat16)


def replace_cpu_attention(gm: fx.GraphModule, inputs: Sequence[Any], mode: FakeTensorMode, device: str) -> None:
    """Replace the CPU's attention ops of ``gm`` by CUDA's, in place; names of nodes stay.

    As torch chooses on a GPU: flash attention for 16-bit dtypes without a mask, else memory-efficient attention.
    """
    forwards, backwards = (gm.graph.find_nodes(op="call_function", target=op) for op in (CPU_FORWARD, CPU_BACKWARD))
    if forwards or backwards:
        FakeTensorProp(gm, mode=mode).propagate_dont_convert_inputs(*inputs)
    for node in forwards:
        args = arguments_of(node)
        qkv = (args["query"], args["key"], args["value"])
        if _uses_flash(args):
            node.target = aten._scaled_dot_product_flash_attention.default
            node.args = (*qkv, args["dropout_p"], args["is_causal"])
        else:
            node.target = aten._scaled_dot_product_efficient_attention.default
            # True: with the log-sum-exp that the backward needs.
            node.args = (*qkv, args["attn_mask"], True, args["dropout_p"], args["is_causal"])
        node.kwargs = {"scale": args["scale"]}
    for node in backwards:
        args = arguments_of(node)
        gradient = (args["grad_out"], args["query"], args["key"], args["value"])
        saved, drop, causal = (args["out"], args["logsumexp"]), args["dropout_p"], args["is_causal"]
        with gm.graph.inserting_before(node):
            # The random state that the forward returns for its backward; without dropout nothing reads it.
            seed, offset = (_empty_random_state(gm, device) for _ in range(2))
            if _uses_flash(args):
                lengths = (gm.graph.call_function(aten.sym_size.int, (args[name], 2)) for name in ("query", "key"))
                node.target = aten._scaled_dot_product_flash_attention_backward.default
                node.args = (*gradient, *saved, None, None, *lengths, drop, causal, seed, offset)
            else:
                grad_mask = [True, True, True, False]
                node.target = aten._scaled_dot_product_efficient_attention_backward.default
                node.args = (*gradient, args["attn_mask"], *saved, seed, offset, drop, grad_mask, causal)
        node.kwargs = {"scale": args["scale"]}


def _uses_flash(args: dict[str, Any]) -> bool:
    return args["attn_mask"] is None and args["query"].meta["val"].dtype in HALF_DTYPES


def _empty_random_state(gm: fx.GraphModule, device: str) -> fx.Node:
    kwargs: dict[str, Any] = {"dtype": torch.int64, "device": torch.device(device)}
    return gm.graph.call_function(aten.empty.memory_format, ([0],), kwargs)
