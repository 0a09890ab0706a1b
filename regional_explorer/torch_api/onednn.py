"""Matrix products by oneDNN: an op for graphs, and how Inductor calls it."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor import ir
from torch._inductor.lowering import permute, register_lowering
from torch._inductor.mkldnn_ir import LinearUnary

_LIBRARY = torch.library.Library("regional_explorer", "FRAGMENT")
_LIBRARY.define("onednn_mm(Tensor left, Tensor right) -> Tensor")


@torch.library.impl(_LIBRARY, "onednn_mm", "CPU")
def _multiply(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(left, right.t(), None, "none", [], "")
    return product


@torch.library.impl(_LIBRARY, "onednn_mm", "Meta")
def _multiply_meta(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return left.new_empty(left.shape[0], right.shape[1])


onednn_mm = torch.ops.regional_explorer.onednn_mm.default


@register_lowering(onednn_mm, type_promotion_kind=None)
def _lower(left: Any, right: Any) -> Any:
    """Call the kernel of linear layers on the operands as they lie.

    Torch's own lowering takes constant weights only, and ``LinearUnary.create`` copies transposed operands (2.13).
    """
    left, weight = map(ir.ExternKernel.realize_input, (left, permute(right, [1, 0])))
    size = [left.get_size()[0], weight.get_size()[0]]
    layout = ir.FixedLayout(device=left.get_device(), dtype=left.get_dtype(), size=size)
    kernel = LinearUnary(layout=layout, inputs=[left, weight], constant_args=[None, "none", [-1], ""])
    return ir.TensorBox.create(kernel)
