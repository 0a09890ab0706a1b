"""The canonical form of a partition, and the hashes made of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from regional_explorer.compiler.layouts import TOKEN, Layout
from regional_explorer.regions.cut import Piece
from regional_explorer.torch_api.config import Settings
from regional_explorer.torch_api.graphs import (
    FALLBACK,
    is_carved,
    new_size,
    rename,
    resolve,
    substitute,
    symbols_of,
    target_key,
    user_kernel,
)


def artifact_key(fingerprint: str, config: Mapping[str, Any], surroundings: str) -> str:
    """Return the key of the artifact that a piece of this fingerprint has under ``config`` in these surroundings."""
    text = f"{fingerprint}{sorted(config.items())!r}{surroundings}"
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def surroundings() -> str:
    """Return the global torch settings that affect generated code, as text."""
    return repr(Settings.now())


def fingerprint(piece: Piece, inputs: Sequence[Layout]) -> str:
    """Return a hash of a piece: its structure, the content of its constants, its layouts and symbols."""
    digest = hashlib.sha256()
    names: SymbolNames = {}
    _hash_graph(piece.gm, digest, names)
    for layout, node in zip(inputs, piece.gm.graph.find_nodes(op="placeholder"), strict=True):
        # What a compile guards on and generates follows from the sizes it sees, so those of dynamic inputs count too.
        symbolic = [_renamed_symbols(size, names) for size in _dynamic_sizes(node.meta.get("val"))]
        digest.update(f"{layout}{symbolic}".encode())
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
    indices: dict[fx.Node, int] = {}
    for node in gm.graph.nodes:
        indices[node] = len(indices)
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
"""Each dynamic size of a piece with the argument and dimension it is read from; -1 for an argument that is a number.

One that is 0 or 1 is an int: Inductor may treat such a dimension as one that is empty or broadcast.
"""


def canonical(piece: Piece, inputs: Sequence[Layout], mode: Any) -> tuple[fx.GraphModule, list[Any], Symbols]:
    """Return the piece with names that depend only on its structure, fakes for its inputs, and its symbols.

    Equal pieces are then equal for AOTAutograd's cache as well. Symbols that are known only from the size of a tensor
    become inputs of their own, in front, as in Dynamo's graphs: passes of AOTAutograd rely on it (torch 2.13, batch
    norm in tensorify_python_scalars: "KeyError: s40").
    """
    traced_values = [node.meta.get("val") for node in piece.gm.graph.find_nodes(op="placeholder")]
    fakes, symbols = _input_fakes(traced_values, inputs, mode)
    sizes = [symbol for symbol, (_, dim) in symbols if dim >= 0]
    graph = fx.Graph()
    for number in range(len(sizes)):
        graph.placeholder(f"size_{number}")
    copies: dict[fx.Node, fx.Node] = {}
    for index, node in enumerate(piece.gm.graph.nodes):
        copy = graph.node_copy(node, copies.__getitem__)
        if node.op != "output":
            rename(copy, f"{'in' if node.op == 'placeholder' else 'op'}_{index}")
        copy.meta = {"custom": {FALLBACK: True}} if is_carved(node) else {}
        copies[node] = copy
    graph_inputs = [*sizes, *fakes]
    for node, fake in zip(graph.find_nodes(op="placeholder"), graph_inputs, strict=True):
        node.target = node.name
        node.meta["val"] = fake
    return fx.GraphModule(piece.gm, graph, class_name="Piece"), graph_inputs, symbols


def _input_fakes(traced_values: Sequence[Any], inputs: Sequence[Layout], mode: Any) -> tuple[list[Any], Symbols]:
    symbols: dict[Any, Any] = {}
    symbol_places: Symbols = []

    sizes = [
        (symbols_of(size), hint, (argument, dim))
        for argument, (value, layout) in enumerate(zip(traced_values, inputs, strict=True))
        for dim, size, hint in _dims_with_hints(value, layout)
    ]
    bare_symbols = [item for item in sizes if item[0] is not None and item[0].is_symbol]
    for expression, hint, place in (*bare_symbols, *sizes):
        # A size such as s17 + s77 whose symbols never occur alone becomes a symbol of its own: Inductor could not
        # compute it ("expected ... to have been codegen-ed", torch 2.13).
        if expression is not None and expression not in symbols and not expression.free_symbols <= set(symbols):
            symbols[expression] = new_size(mode, hint, f"size_{len(symbols)}")
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


def _dims_with_hints(value: Any, layout: Layout) -> list[tuple[int, Any, int]]:
    if isinstance(value, torch.SymInt):
        return [(-1, value, layout.value)]
    if isinstance(value, torch.Tensor) and layout != TOKEN:
        return [(dim, size, hint) for dim, (size, hint) in enumerate(zip(value.shape, layout.size, strict=True))]
    return []
