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
    from regional_explorer.torch_api.onednn import onednn_mm  # loads the lowerings of Inductor

    for node in gm.graph.nodes:
        if not is_for_onednn(node):
            continue
        *bias, left, right = node.args
        with gm.graph.inserting_before(node):
            product = gm.graph.call_function(onednn_mm, (left, right))
            if bias:
                product = gm.graph.call_function(aten.add.Tensor, (product, bias[0]))
        product.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(product)


def is_for_onednn(node: fx.Node) -> bool:
    """Return whether ``products_by_onednn`` lets oneDNN compute a node."""
    if node.target not in (aten.mm.default, aten.addmm.default) or node.kwargs:
        return False
    value, left = (of.meta["val"] for of in (node, node.args[-2]))  # type: ignore[union-attr]
    is_empty = str(left.shape[1]) == "0"  # oneDNN refuses it
    is_float = (value.dtype, value.device.type) == (torch.float32, "cpu")
    return torch.backends.mkldnn.is_available() and is_float and not is_empty
