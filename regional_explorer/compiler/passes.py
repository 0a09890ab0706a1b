"""Passes that come with the package; a search tries them, and ``ex.configure(passes=…)`` takes them."""

from __future__ import annotations

import torch
from torch import fx

aten = torch.ops.aten


def products_by_onednn(gm: fx.GraphModule) -> None:
    """Let oneDNN compute the float32 products of two matrices on the CPU, and add their bias afterwards.

    ATen computes them by MKL, which is slower on some processors: on an AMD EPYC it takes twice as long. Inductor fuses
    the addition of the bias into the code that reads the product.
    """
    from regional_explorer.torch_api.onednn import HAS_ONEDNN, onednn_mm  # loads the lowerings of Inductor

    for node in gm.graph.nodes:
        is_product = node.target in (aten.mm.default, aten.addmm.default) and not node.kwargs
        value = node.meta["val"] if is_product else None
        if not HAS_ONEDNN or value is None or (value.dtype, value.device.type) != (torch.float32, "cpu"):
            continue
        *bias, left, right = node.args
        if str(left.meta["val"].shape[1]) == "0":  # oneDNN refuses it
            continue
        with gm.graph.inserting_before(node):
            product = gm.graph.call_function(onednn_mm, (left, right))
            if bias:
                product = gm.graph.call_function(aten.add.Tensor, (product, bias[0]))
        product.meta["val"] = value
        node.replace_all_uses_with(product)
