"""Inductor's decomposition of an op in a whole graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from regional_explorer.torch_api.graphs import draws_random
from regional_explorer.torch_api.kernel_nodes import computes_nothing


def decomposition_of(node: fx.Node) -> Callable[..., Any] | None:
    """Return Inductor's decomposition of an op; None if it has none, or if the op cannot be compared with it."""
    from torch._inductor.decomposition import select_decomp_table

    target = node.target
    if computes_nothing(node) or not isinstance(target, torch._ops.OpOverload):
        return None
    if target._schema.is_mutable or draws_random(node):
        return None
    decomposition: Callable[..., Any] | None = select_decomp_table().get(target)
    return decomposition
