"""Identifies partitions by the layouts of their tensors and their canonical form, and hashes these.

The fakes of the trace do not always have the right strides (a backward input may arrive in another layout), and
a compiled piece may return other strides than the eager one, which its compiled consumer would reject. The same holds
for dtypes: trace and Inductor expect the statistics of a layer norm of bfloat16 to be bfloat16, but the kernel returns
float32, and code compiled for bfloat16 misreads these float32 values.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from regional_explorer.regions.cut import Piece
from regional_explorer.torch_api.cheap_calls import layout_matcher, picker
from regional_explorer.torch_api.graphs import (
    FALLBACK,
    is_carved,
    is_effect_token,
    is_kept_by_caller,
    new_size,
    rename,
    resolve,
    size_hint,
    substitute,
    symbols_of,
    target_key,
    user_kernel,
)
from regional_explorer.torch_api.hidden_state import storage_key


@dataclass(frozen=True, slots=True)
class Layout:
    """One input or output of a piece.

    For a tensor: ``dtype``, ``size``, ``stride`` and ``device``, whether its data is 16-byte aligned, its storage
    offset, and ``storage``, equal for tensors that share one. For a plain number ``value``.
    """

    dtype: str
    size: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    device: str = ""
    aligned: bool = True
    offset: int = 0
    storage: int = -1
    value: Any = None


TOKEN = Layout(dtype="token")
"""The layout of an effect token, which is passed as None or as the empty tensor that an eager op returns."""


def layouts_of(values: Sequence[Any], nodes: Sequence[fx.Node] = ()) -> tuple[Layout, ...]:
    """Return the layouts of ``values``, storages numbered in order of appearance; ``nodes`` say which are tokens."""
    tokens = {index for index, node in enumerate(nodes) if is_effect_token(node)}
    storages: dict[int, int] = {}
    return tuple(TOKEN if index in tokens else _layout_of(value, storages) for index, value in enumerate(values))


def traced_layouts(nodes: Sequence[fx.Node]) -> tuple[Layout, ...] | None:
    """Return the layouts that ``nodes`` have in the trace, or None if it left a value or a size unknown."""
    storages: dict[int, int] = {}
    try:
        return tuple(
            TOKEN if is_effect_token(node) else _layout_of(node.meta["val"], storages, traced=True) for node in nodes
        )
    except (KeyError, ValueError):
        return None


def _layout_of(value: Any, storages: dict[int, int], *, traced: bool = False) -> Layout:
    if not isinstance(value, torch.Tensor):
        number = size_hint(value) if isinstance(value, torch.SymInt) else value
        return Layout(dtype=type(number).__name__, value=number)
    size = tuple(map(size_hint, value.shape))
    if value.layout is not torch.strided:
        return Layout(dtype=str(value.dtype), size=size, device=str(value.device), value=str(value.layout))
    storage = storages.setdefault(storage_key(value), len(storages))
    return Layout(
        dtype=str(value.dtype),
        size=size,
        stride=tuple(map(size_hint, value.stride())),
        device=str(value.device),
        aligned=traced or value.data_ptr() % 16 == 0,
        offset=size_hint(value.storage_offset()),
        storage=storage,
    )


def layout_check(
    layouts: Sequence[Layout], seen: Sequence[Any], places: Sequence[int]
) -> Callable[[Sequence[Any]], bool]:
    """Return a function that quickly checks whether values at ``places`` have the sizes and strides of ``layouts``.

    ``seen`` are values with these layouts.
    """
    if not places:
        return lambda _values: True
    pick = picker(places)
    expected = [(layout.size, layout.stride) for layout in pick(layouts)]
    are_like_seen = layout_matcher(pick(seen))

    def fits(values: Sequence[Any]) -> bool:
        picked = pick(values)
        if are_like_seen is not None and are_like_seen(*picked):
            return True
        for value, (size, stride) in zip(picked, expected, strict=True):
            if stride and (value.shape != size or value.stride() != stride):
                return False
        return True

    return fits


def has_dtype_and_strides_of(value: Any, layout: Layout) -> bool:
    """Return whether ``value`` has the dtype and the strides of ``layout``."""
    return has_dtype_of(value, layout) and has_strides_of(value, layout)


def has_dtype_of(value: Any, layout: Layout) -> bool:
    """Return whether ``value`` has the dtype of ``layout``, or is no tensor."""
    return not isinstance(value, torch.Tensor) or layout == TOKEN or str(value.dtype) == layout.dtype


def layout_problem(values: Sequence[Any], layouts: Sequence[Layout]) -> str:
    """Return why compiled code, which checks only sizes and strides, would misread ``values``, or an empty text."""
    pairs = zip(values, layouts, strict=False)
    if other_dtypes := [str(value.dtype) for value, layout in pairs if not has_dtype_of(value, layout)]:
        return f"it was compiled for other dtypes than {', '.join(other_dtypes)}"
    # z.conj().imag is a view with the negative bit set, which Inductor ignores. Complex numbers, whose conjugation is a
    # bit too, it leaves to the eager kernels, which respect it (torch 2.13).
    if any(value.is_neg() for value in values if isinstance(value, torch.Tensor)):
        return "it would read a negated view without its sign"
    return ""


def has_strides_of(value: Any, layout: Layout) -> bool:
    """Return whether ``value`` has the strides of ``layout``, as far as a difference could be observed.

    For a value of another size, which dynamic sizes allow, only the order of its dimensions is compared.
    """
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.numel() == 0:
        return True
    wide_dims = [dim for dim, size in enumerate(value.shape) if size > 1]
    if tuple(value.shape) == layout.size:
        return all(value.stride(dim) == layout.stride[dim] for dim in wide_dims)
    strides = [value.stride(dim) for dim in sorted(wide_dims, key=lambda dim: layout.stride[dim], reverse=True)]
    return strides == sorted(strides, reverse=True)


def copy_in_layout(value: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Return a copy of ``value`` with the dtype and strides of ``layout``, including gaps: it may be a slice.

    For a value of another size, which dynamic sizes allow, only the order of the dimensions is the same.
    """
    if not has_dtype_of(value, layout):
        value = value.to(getattr(torch, layout.dtype.removeprefix("torch.")))
    if tuple(value.shape) != layout.size:
        return _in_stride_order(value, layout.stride)
    repeated = [step == 0 and size > 1 for size, step in zip(layout.size, layout.stride, strict=True)]
    unrepeated = value[tuple(slice(0, 1) if is_repeated else slice(None) for is_repeated in repeated)]
    if _has_overlaps(unrepeated.shape, layout.stride):
        return _in_stride_order(value, layout.stride)
    return unrepeated.new_empty_strided(unrepeated.shape, layout.stride).copy_(unrepeated).expand(value.shape)


def _has_overlaps(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Return whether elements of a tensor with this layout overlap in memory, as after ``unfold``."""
    extent = 1
    for step, size in sorted(zip(stride, shape, strict=True)):
        if size > 1 and step < extent:
            return True
        extent += step * (size - 1)
    return False


def _in_stride_order(value: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    order = sorted(range(value.dim()), key=lambda dim: stride[dim], reverse=True)
    copy = value.new_empty([value.shape[dim] for dim in order])
    inverse = [order.index(dim) for dim in range(value.dim())]
    return copy.permute(inverse).copy_(value)


def artifact_key(fingerprint: str, config: Mapping[str, Any], settings_text: str) -> str:
    """Return the key of a piece's artifact, from its fingerprint, its config and the global settings."""
    text = f"{fingerprint}{sorted(config.items())!r}{settings_text}"
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def fingerprint(piece: Piece, inputs: Sequence[Layout]) -> str:
    """Return a hash of a piece: its structure, the content of its constants, its layouts and symbols."""
    digest = hashlib.sha256()
    names: SymbolNames = {}
    if piece.prepared is not None:  # Inductor lowers it differently than an equal graph of another trace
        digest.update(repr(piece.prepared).encode())
    _hash_graph(piece.gm, digest, names)
    for layout, node in zip(inputs, piece.gm.graph.find_nodes(op="placeholder"), strict=True):
        # The guards and code of a compile follow from the sizes it sees, so the key has the sizes of dynamic inputs.
        symbolic = [_renamed_symbols(size, names) for size in _dynamic_sizes(node.meta.get("val"))]
        kind = _kind_of_name(piece, node).removeprefix("in")
        digest.update(f"{layout}{symbolic}{kind}".encode())
    return digest.hexdigest()[:20]


SymbolNames = dict[str, str]
"""The names that symbols get in order of appearance, so that equal relations between sizes get equal texts."""


def _renamed_symbols(size: Any, names: SymbolNames) -> str:
    expression = symbols_of(size)
    if expression is None:
        return "" if isinstance(size, torch.SymInt) else str(size)
    return re.sub(r"[a-z]+\d+", lambda match: names.setdefault(match[0], f"n{len(names)}"), str(expression))


def _dynamic_sizes(value: Any) -> list[Any]:
    if isinstance(value, torch.SymInt):
        return [value]
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return []
    sizes = [*value.shape, *value.stride(), value.storage_offset()]
    return sizes if any(isinstance(size, torch.SymInt) for size in sizes) else []


def _hash_graph(gm: fx.GraphModule, digest: Any, names: SymbolNames) -> None:
    indices = {node: index for index, node in enumerate(gm.graph.nodes)}
    for node in gm.graph.nodes:
        keywords = {**node.kwargs, **user_kernel(node)}
        arguments = fx.node.map_arg((node.args, keywords), lambda source: f"%{indices[source]}")
        target = "" if node.op in ("placeholder", "get_attr") else target_key(node)
        carved = FALLBACK if is_carved(node) else ""
        digest.update(f"{node.op}|{target}|{_argument_text(arguments, names)}|{carved}".encode())
        if node.op == "get_attr":
            constant = resolve(gm, node)
            if isinstance(constant, fx.GraphModule):
                _hash_graph(constant, digest, names)
            elif isinstance(constant, torch.Tensor):
                digest.update(f"{constant.dtype}{constant.shape}{constant.stride()}{constant.device}".encode())
                digest.update(constant.detach().contiguous().cpu().flatten().view(torch.uint8).numpy().tobytes())
            else:
                digest.update(repr(constant).encode())


def _argument_text(value: Any, names: SymbolNames) -> str:
    if isinstance(value, (tuple, list)):
        return f"({','.join(_argument_text(item, names) for item in value)})"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{_argument_text(item, names)}' for key, item in value.items())}}}"
    if isinstance(value, torch.SymInt):
        return _renamed_symbols(value, names)
    return f"{type(value).__name__}:{value!r}"


Symbols = list[tuple[torch.SymInt | int, tuple[int, int]]]
"""Each dynamic size of a piece, with the argument and the place at which ``size_at`` reads it.

A size of 0 or 1 is an int: Inductor may treat the dimension as empty or broadcast.
"""


def canonical(
    piece: Piece, inputs: Sequence[Layout], mode: Any, constants: Mapping[int, torch.Tensor] = MappingProxyType({})
) -> tuple[fx.GraphModule, list[Any], Symbols]:
    """Return the piece with names that depend only on its structure, the fakes of its inputs, and its symbols.

    Equal pieces are then equal for AOTAutograd's cache as well. Symbols that are known only from a tensor's layout
    become inputs of their own, in front, as in Dynamo's graphs: passes of AOTAutograd rely on it (torch 2.13, batch
    norm in tensorify_python_scalars: "KeyError: s40"). ``constants`` has, by place, the tensors of the inputs that get
    no fake.
    """
    traced_values = [node.meta.get("val") for node in piece.gm.graph.find_nodes(op="placeholder")]
    fakes, symbols = _input_fakes(traced_values, inputs, mode)
    sizes = [symbol for symbol, (_, place) in symbols if place >= 0]
    graph = fx.Graph()
    for number in range(len(sizes)):
        graph.placeholder(f"size_{number}")
    copies: dict[fx.Node, fx.Node] = {}
    for index, node in enumerate(piece.gm.graph.nodes):
        copy = graph.node_copy(node, copies.__getitem__)
        if node.op != "output":
            rename(copy, f"{_kind_of_name(piece, node)}_{index}")
        if piece.prepared is None and node.target is torch.ops.aten.view.default:
            # Inductor's decompositions give some results other strides than the trace, so that a view of them fails
            # (torch 2.11 to 2.15, docs/upstream.md).
            copy.target = torch.ops.aten.reshape.default
        copy.meta = {"custom": {FALLBACK: True}} if is_carved(node) else {}
        if piece.prepared is not None and "original_aten" in node.meta:  # Inductor names kernels by it
            copy.meta["original_aten"] = node.meta["original_aten"]
        copies[node] = copy
    for node, fake in zip(graph.find_nodes(op="placeholder"), [*sizes, *fakes], strict=True):
        node.target = node.name
        node.meta["val"] = fake
    graph_inputs = [*sizes, *(constants.get(place, fake) for place, fake in enumerate(fakes))]
    return fx.GraphModule(piece.gm, graph, class_name="Piece"), graph_inputs, symbols


def _kind_of_name(piece: Piece, node: fx.Node) -> str:
    """Return the prefix of a node's name; inputs that the caller keeps get AOTAutograd's prefix.

    By the prefix, Inductor knows which inputs the caller keeps; it does not free their memory after the last read.
    """
    if node.op != "placeholder":
        return "op"
    return "arg" if piece.prepared is not None and is_kept_by_caller(node) else "in"


def _input_fakes(traced_values: Sequence[Any], inputs: Sequence[Layout], mode: Any) -> tuple[list[Any], Symbols]:
    symbols: dict[Any, Any] = {}
    symbol_places: Symbols = []

    sizes = [
        (symbols_of(size), hint, (argument, place))
        for sizes_at in (_sizes_with_hints, _strides_with_hints)  # a stride is mostly known from the sizes
        for argument, (value, layout) in enumerate(zip(traced_values, inputs, strict=True))
        for place, size, hint in sizes_at(value, layout)
    ]
    bare_symbols = [item for item in sizes if item[0] is not None and item[0].is_symbol]
    for expression, hint, place in (*bare_symbols, *sizes):
        # A size such as s17 + s77 whose symbols never occur alone becomes a symbol of its own: Inductor could not
        # compute it ("expected ... to have been codegen-ed", torch 2.13).
        if expression is not None and expression not in symbols and not expression.free_symbols <= set(symbols):
            is_number = place[1] < 0 and not expression.is_nonnegative
            symbols[expression] = new_size(mode, hint, f"size_{len(symbols)}", is_number=is_number)
            symbol_places.append((symbols[expression], place))

    def size_of(size: Any, hint: int) -> Any:
        expression = symbols_of(size)
        if expression is None:
            return hint
        if expression in symbols:
            return symbols[expression]
        return substitute(size, symbols, mode) or hint

    fakes: list[Any] = []
    for value, layout in zip(traced_values, inputs, strict=True):
        if layout == TOKEN:
            with mode:
                fakes.append(torch.empty(value.shape, dtype=value.dtype, device=value.device))
        elif isinstance(value, torch.Tensor) and layout.stride is not None and layout.dtype.startswith("torch."):
            dtype = getattr(torch, layout.dtype.removeprefix("torch."))
            shape = [size_of(size, hint) for size, hint in zip(value.shape, layout.size, strict=True)]
            stride = [size_of(step, hint) for step, hint in zip(value.stride(), layout.stride, strict=True)]
            with mode:
                fakes.append(torch.empty_strided(shape, stride, dtype=dtype, device=layout.device))
        else:
            fakes.append(size_of(value, layout.value))
    return fakes, symbol_places


def _sizes_with_hints(value: Any, layout: Layout) -> Iterator[tuple[int, Any, int]]:
    if isinstance(value, torch.SymInt):
        yield -1, value, layout.value
    elif isinstance(value, torch.Tensor) and layout != TOKEN:
        for dim, (size, hint) in enumerate(zip(value.shape, layout.size, strict=True)):
            yield dim, size, hint


def _strides_with_hints(value: Any, layout: Layout) -> Iterator[tuple[int, Any, int]]:
    if isinstance(value, torch.Tensor) and layout.stride:
        for dim, (stride, hint) in enumerate(zip(value.stride(), layout.stride, strict=True)):
            yield value.ndim + dim, stride, hint


def size_at(value: Any, place: int) -> int:
    """Return the size or stride of a tensor at ``place``, which counts sizes first; at -1 ``value`` is the number."""
    if place < 0:
        return int(value)
    dims = value.dim()
    return int(value.shape[place] if place < dims else value.stride(place - dims))
