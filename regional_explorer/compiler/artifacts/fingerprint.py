"""Hashes that identify partitions (fingerprints) and their artifacts (keys): equal ones share compiled code."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from regional_explorer.compiler.artifacts.tensor_layout import Layout
from regional_explorer.regions.cutting.cut import Piece
from regional_explorer.torch_api import FALLBACK, Settings, is_carved, resolve, symbols_of, target_key, user_kernel


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
