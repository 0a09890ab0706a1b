"""Which gradients of a call are taken: the autograd leaves that it depends on, and fixed cotangents of its outputs."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from regional_explorer.capture.tensors import tensors_in
from regional_explorer.errors import CaptureError, RefusalCode
from regional_explorer.torch_api import as_subclass_of

COTANGENT_SEED = 20_251_016
"""Seed of the generator that draws the fixed random cotangents."""

GradientInput = torch.Tensor | GradientEdge
"""What ``torch.autograd.grad`` takes as an input: a leaf, or the edge to a node of the user's own."""


def next_sequence_number() -> int:
    """Return the number that autograd gives to the next node; nodes with a smaller one existed before the call."""
    with torch.enable_grad(), torch.inference_mode(mode=False):
        probe = torch.zeros((), requires_grad=True).view(())
    assert probe.grad_fn is not None  # noqa: S101 - grad mode is on
    return int(probe.grad_fn._sequence_nr())


def requires_grad(tensor: torch.Tensor | None) -> bool:
    """Return whether gradients can be taken of an output."""
    if tensor is None or not tensor.requires_grad or not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    # A view of a leaf made under no_grad says that it requires grad, but no gradient flows through it (torch 2.13).
    return tensor.grad_fn is not None or not tensor._is_view()  # noqa: SLF001 - there is no public way to ask


def _differentiable_outputs(outputs: Any) -> dict[str, torch.Tensor]:
    """Return the distinct output tensors that gradients can be taken of, by their paths."""
    by_id: dict[int, tuple[str, torch.Tensor]] = {}
    for path, tensor in tensors_in(outputs):
        if requires_grad(tensor):
            by_id.setdefault(id(tensor), (path, tensor))
    return dict(by_id.values())


def gradient_inputs(outputs: Any, first_number: int) -> list[GradientInput]:
    """Return what gradients are taken of: where the call's part of the autograd graph ends.

    These are its leaves, and the user's own nodes that are older than the call: gradients stop there, so their
    buffers stay for the user's own backward. ``first_number`` is the number of the call's first node.

    A leaf is given as the tensor, not as the edge to its node: with a Python object of the node alive, two threads that
    use the tensor can deadlock (docs/upstream.md).
    """
    queue = [get_gradient_edge(tensor) for tensor in _differentiable_outputs(outputs).values()]
    seen_edges: set[tuple[Any, int]] = set()
    ends: list[GradientInput] = []
    for edge in queue:
        if (edge.node, edge.output_nr) in seen_edges:
            continue
        seen_edges.add((edge.node, edge.output_nr))
        leaf = getattr(edge.node, "variable", None)
        if leaf is not None or edge.node._sequence_nr() < first_number:
            ends.append(edge if leaf is None else leaf)
        else:
            queue.extend(GradientEdge(node, nr) for node, nr in edge.node.next_functions if node is not None)
    return ends


def draw_cotangents(outputs: Any) -> dict[str, torch.Tensor]:
    """Draw one fixed cotangent per differentiable output; ``sum()`` would hide wrong gradients of a softmax.

    A single loss gets 1, as in training. No two outputs get the same: in ``h + g, h - g`` the gradient of ``g`` would
    be zero.

    Raises:
        CaptureError: an output is a nested tensor, which no cotangent can be drawn for.
    """
    differentiable = _differentiable_outputs(outputs)
    one_loss = sum(tensor.dim() == 0 for tensor in differentiable.values()) == 1
    generator = torch.Generator("cpu").manual_seed(COTANGENT_SEED)  # not every device draws: "meta" does not
    cotangents = {}
    for path, tensor in differentiable.items():
        if tensor.is_nested:
            raise CaptureError(
                RefusalCode.NO_GRADIENT,
                f"The call returns a nested tensor (output{path}), for which no gradient can be taken here. Return its "
                "values (`.values()`), or pass grad=False.",
            )
        if tensor.dim():
            drawn = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype, device="cpu")
        elif one_loss:
            drawn = torch.ones((), dtype=tensor.dtype, device="cpu")
        else:  # from 1 to 2: near 0, the gradients of a loss would hardly count
            drawn = 1 + torch.rand((), generator=generator, dtype=tensor.dtype, device="cpu")
        cotangents[path] = as_subclass_of(tensor, drawn.to(tensor.device))
    return cotangents
