"""Finds the tensors inside arguments and results, and the inputs and cotangents of gradients."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import torch
from torch import nn
from torch.autograd.function import FunctionCtx
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from regional_explorer.errors import CaptureError, RefusalCode
from regional_explorer.torch_api.graphs import as_subclass_of
from regional_explorer.torch_api.hidden_state import is_view, sequence_number

LRU_CACHE = type(functools.lru_cache(lambda: None))
"""The class of functions under ``functools.lru_cache``."""


def is_readable(value: object) -> bool:
    """Return whether a value's class can be read; the proxy of a freed object raises, and so do some lazy objects."""
    try:
        return value.__class__ is not None
    except Exception:  # noqa: BLE001 - a property of the user's may raise anything
        return False


def slot_names(cls: type) -> list[str]:
    """Return the names of the slots of a class and its bases, without those for the ``__dict__`` and weak references.

    They are read from the descriptors: ``__slots__`` has private names as they are written, ``__cache`` for
    ``_Model__cache``.
    """
    return [
        name
        for base in cls.__mro__
        if "__slots__" in vars(base)
        for name, attribute in vars(base).items()
        if isinstance(attribute, types.MemberDescriptorType)
    ]


def attributes_of(value: object) -> dict[Any, Any]:
    """Return the attributes that an object has itself, in its slots and its ``__dict__``."""
    in_slots = {name: getattr(value, name) for name in slot_names(type(value)) if hasattr(value, name)}
    return in_slots | getattr(value, "__dict__", {})


TENSOR_SEARCH_DEPTH = 16
TENSOR_SEARCH_OBJECTS = 20_000
"""The limits of the search of a value: depth, and number of objects."""

_WITHOUT_TENSORS = (
    *(type(None), bool, int, float, complex, str, bytes, enum.Enum, type),
    *(types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
)
"""Types that hold no tensors."""


def tensors_in(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor inside ``value`` with its path, such as ``[0].logits``.

    Looks into lists, tuples, mappings, dataclasses, model outputs and the attributes of other objects (a KV cache, a
    class of the user's), each once; not into modules, whose tensors are not results.
    """
    return ((path, leaf) for path, leaf in _leaves(value, name, set()) if isinstance(leaf, torch.Tensor))


def opaque_in(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the type of every object inside ``value`` that ``tensors_in`` cannot look into."""
    return (
        (path, type(leaf).__name__) for path, leaf in _leaves(value, name, set()) if not isinstance(leaf, torch.Tensor)
    )


def _leaves(value: Any, name: str, seen: set[int], depth: int = 0) -> Iterator[tuple[str, Any]]:
    if not is_readable(value):
        return
    if isinstance(value, torch.Tensor):
        yield name, value
        return
    if isinstance(value, _WITHOUT_TENSORS) or id(value) in seen:
        return
    seen.add(id(value))
    items = None if depth > TENSOR_SEARCH_DEPTH or len(seen) > TENSOR_SEARCH_OBJECTS else _keyed_items(value)
    if items is None:
        yield name, value
        return
    for key, item in items:
        yield from _leaves(item, name + key, seen, depth + 1)


def _keyed_items(value: Any) -> list[tuple[str, Any]] | None:
    """Return the items that ``value`` holds, each with its key in the path; None if they are not known."""
    if isinstance(value, nn.Module):
        return None
    if isinstance(value, Mapping):
        # Model outputs of transformers are both mapping and dataclass; as a mapping they leave out items that are None.
        return [(f".{key}" if str(key).isidentifier() else f"[{key!r}]", item) for key, item in value.items()]
    if dataclasses.is_dataclass(value):
        return [(f".{field.name}", getattr(value, field.name, None)) for field in dataclasses.fields(value)]
    if hasattr(value, "_fields") and isinstance(value, tuple):
        return [(f".{field}", getattr(value, field)) for field in value._fields]  # type: ignore[attr-defined]
    if isinstance(value, (list, tuple)):
        return [(f"[{index}]", item) for index, item in enumerate(value)]
    has_slots = any("__slots__" in vars(base) for base in type(value).__mro__)  # the slots may be empty
    if not has_slots and not hasattr(value, "__dict__"):  # its class is not written in Python, such as an iterator's
        return None
    # Sorted by name: a trace may set them in another order than the program does.
    return [(f".{key}", item) for key, item in sorted(attributes_of(value).items(), key=lambda pair: str(pair[0]))]


COTANGENT_SEED = 20_251_016
"""Seed of the generator that draws the fixed random cotangents."""

GradientInput = torch.Tensor | GradientEdge
"""An input of ``torch.autograd.grad``: a leaf, or the edge to a node of the user's own."""


def next_sequence_number() -> int:
    """Return the number that autograd gives to this thread's next node; its older nodes have smaller numbers."""
    with torch.enable_grad(), torch.inference_mode(mode=False):
        probe = torch.zeros((), requires_grad=True).view(())
    assert probe.grad_fn is not None  # noqa: S101 - grad mode is on
    return sequence_number(probe.grad_fn)


def _leaf_of(node: Node) -> torch.Tensor | None:
    """Return the leaf whose gradient a node accumulates, None for other nodes.

    The node of a custom autograd function is its ``ctx``, on which ``variable`` may be anything.
    """
    leaf: torch.Tensor | None = None if isinstance(node, FunctionCtx) else getattr(node, "variable", None)
    return leaf


def nodes_behind(tensors: Iterable[torch.Tensor]) -> set[Node]:
    """Return the autograd nodes behind tensors and their gradients, without those that accumulate into leaves."""
    grad_fns = (
        value.grad_fn
        for tensor in tensors
        for value in (tensor, tensor.grad if tensor.is_leaf else None)
        if value is not None
    )
    return {node for node in _all_behind(grad_fns) if _leaf_of(node) is None}


def _all_behind(nodes: Iterable[Node | None]) -> set[Node]:
    """Return ``nodes`` and all nodes that they lead to."""
    queue = [node for node in nodes if node is not None]
    reached = set(queue)
    for node in queue:
        new = {source for source, _ in node.next_functions if source is not None} - reached
        queue += new
        reached |= new
    return reached


def requires_grad(tensor: torch.Tensor | None) -> bool:
    """Return whether an output can be differentiated."""
    if tensor is None or not tensor.requires_grad or not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    # A view of a leaf made under no_grad says that it requires grad, but no gradient flows through it (torch 2.13).
    return tensor.grad_fn is not None or not is_view(tensor)


def _differentiable_outputs(outputs: Any) -> dict[str, torch.Tensor]:
    """Return the distinct output tensors that gradients can be taken of, by their paths."""
    by_id: dict[int, tuple[str, torch.Tensor]] = {}
    for path, tensor in tensors_in(outputs):
        if requires_grad(tensor):
            by_id.setdefault(id(tensor), (path, tensor))
    return dict(by_id.values())


def nodes_with_smaller_numbers(outputs: Any, first_number: int) -> set[Node]:
    """Return the nodes behind outputs with a smaller number than the call's first, ``first_number``.

    Such a node is older than the call, or the call made it in another thread: each thread has its own count.
    """
    nodes = nodes_behind(_differentiable_outputs(outputs).values())
    return {node for node in nodes if sequence_number(node) < first_number}


def gradient_inputs(outputs: Any, nodes_before: AbstractSet[Node]) -> list[GradientInput]:
    """Return the inputs that gradients are taken with respect to: the ends of the call's part of the autograd graph.

    These are its leaves, and the user's own nodes that are older than the call, ``nodes_before``. Gradients stop at
    these nodes, so that their buffers stay for the user's own backward.

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
        leaf = _leaf_of(edge.node)
        if leaf is not None or edge.node in nodes_before:
            ends.append(edge if leaf is None else leaf)
        else:
            queue.extend(GradientEdge(node, nr) for node, nr in edge.node.next_functions if node is not None)
    return ends


def runs_older_nodes(ends: Sequence[GradientInput]) -> bool:
    """Return whether a backward to ``ends`` runs nodes older than the call: one end leads to another."""
    edges = [end for end in ends if isinstance(end, GradientEdge)]
    behind = _all_behind(source for edge in edges for source, _ in edge.node.next_functions)
    leaf_ids = {id(leaf) for node in behind if (leaf := _leaf_of(node)) is not None}
    return any(end.node in behind if isinstance(end, GradientEdge) else id(end) in leaf_ids for end in ends)


def random_cotangents(outputs: Any) -> dict[str, torch.Tensor]:
    """Draw one fixed cotangent per differentiable output; ``sum()`` would hide wrong gradients of a softmax.

    A single loss gets 1, as in training. No two outputs get the same: in ``h + g, h - g`` the gradient of ``g`` would
    be zero.

    Raises:
        CaptureError: an output is a nested tensor, which no cotangent can be drawn for.
    """
    differentiable = _differentiable_outputs(outputs)
    one_loss = sum(tensor.dim() == 0 for tensor in differentiable.values()) == 1
    generator = torch.Generator("cpu").manual_seed(COTANGENT_SEED)  # some devices, such as "meta", do not draw
    cotangents = {}
    for path, tensor in differentiable.items():
        if tensor.is_nested:
            raise CaptureError(
                RefusalCode.NO_GRADIENT,
                f"The call returns a nested tensor (output{path}), for which no gradient can be taken here. Return its "
                "values (`.values()`), or pass grad=False.",
            )
        dtype = torch.float32 if tensor.dtype.itemsize == 1 else tensor.dtype  # float8 has no random numbers
        if tensor.dim():
            drawn = torch.randn(tensor.shape, generator=generator, dtype=dtype, device="cpu")
        elif one_loss:
            drawn = torch.ones((), dtype=dtype, device="cpu")
        else:  # from 1 to 2: near 0, the gradients of a loss would hardly count
            drawn = 1 + torch.rand((), generator=generator, dtype=dtype, device="cpu")
        cotangents[path] = as_subclass_of(tensor, drawn.to(tensor.device, tensor.dtype))
    return cotangents
