"""Compiling one piece, and knowing when two pieces are the same."""

from __future__ import annotations

import hashlib
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from regional_explorer.compiler.layout import Layout
from regional_explorer.record.region import DEFAULT
from regional_explorer.regions.cut import Piece
from regional_explorer.torch_api import (
    FALLBACK,
    UNSENDABLE,
    BoxedCall,
    Settings,
    compile_piece,
    dump_piece,
    fake_mode_with_symbols,
    guard_check,
    new_symbol,
    rename,
    resolve,
    substitute,
    symbols_of,
    target_key,
)


@dataclass(frozen=True)
class Artifact:
    """The compiled callable of one piece under one config.

    ``call`` takes one argument list, which it empties. ``dynamic`` tells whether sizes may differ from call to call.
    ``config`` is what was read inside the compile for every key asked for. ``guard`` takes the call's arguments and
    tells whether the code may be used for them; None when it always may. ``seconds`` and ``cache`` (``cold`` or
    ``warm``) belong to the one compile that made it, in whichever process.
    """

    key: str
    call: BoxedCall
    code: str
    config: Mapping[str, Any] | None
    seconds: float
    cache: str
    guard: Callable[[Sequence[Any]], bool] | None = None
    dynamic: bool = False


@dataclass
class ArtifactStore:
    """All artifacts of one exploration, by key; ``compiles`` counts the runs of Inductor."""

    artifacts: dict[str, Artifact] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    compiles: int = 0

    def compile(self, key: str, piece: Piece, inputs: Sequence[Layout], config: Mapping[str, Any]) -> Artifact:
        """Compile ``piece`` under ``config`` and keep the artifact under ``key``.

        Raises:
            RegionCompileError: Inductor failed; the failure is kept too, so that it is not repeated.
        """
        self.compiles += 1
        mode = fake_mode_with_symbols()
        gm, fakes, symbols = _canonical(piece, inputs, mode)
        sizes = [(argument, dim) for _, (argument, dim) in symbols if dim >= 0]
        try:
            compiled = compile_piece(gm, fakes, mode, config)
        except Exception as error:
            self.failures[key] = str(error)
            raise
        check = guard_check(mode, [size for size, _ in symbols])
        artifact = Artifact(
            key=key,
            call=_with_sizes(compiled.call, sizes) if sizes else compiled.call,
            code=compiled.code,
            config=compiled.config,
            seconds=compiled.seconds,
            cache=compiled.cache,
            guard=None if check is None else _guard(check, [place for _, place in symbols]),
            dynamic=bool(symbols),
        )
        self.artifacts[key] = artifact
        return artifact


def portable(piece: Piece, inputs: Sequence[Layout], config: Mapping[str, Any]) -> bytes | None:
    """Return what another process needs to compile ``piece`` to the same entry of Inductor's caches.

    None if it cannot be sent, or is not known to be the same there.
    """
    gm, fakes, _ = _canonical(piece, inputs, fake_mode_with_symbols())
    dumped = dump_piece(gm, fakes)
    try:
        return None if dumped is None else pickle.dumps((dumped, dict(config)))
    except UNSENDABLE:
        return None


def asked_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config to compile under: keys set to ``DEFAULT`` are left to Inductor."""
    return {key: value for key, value in sorted(config.items()) if value is not DEFAULT}


def artifact_key(fingerprint: str, config: Mapping[str, Any], surroundings: str) -> str:
    """Return the key of the artifact that a piece of this fingerprint has under ``config`` in these surroundings."""
    text = f"{fingerprint}{sorted(config.items())!r}{surroundings}"
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def surroundings() -> str:
    """Return everything outside of piece and config that reaches the generated code, as a text."""
    return repr(Settings.now())


def fingerprint(piece: Piece, inputs: Sequence[Layout]) -> str:
    """Return a hash of all that makes two pieces the same: structure, constants by content, layouts, symbols."""
    digest = hashlib.sha256()
    names = _SymbolNames()
    _describe(piece.gm, digest, names)
    for layout, node in zip(inputs, piece.gm.graph.find_nodes(op="placeholder"), strict=True):
        # What a compile guards on and generates follows from the sizes it sees, so those of dynamic inputs count too.
        symbolic = [names.rename(size) for size in _sizes(node.meta.get("val"))]
        digest.update(f"{layout}{symbolic}".encode())
    return digest.hexdigest()[:20]


Symbols = list[tuple[torch.SymInt, tuple[int, int]]]
"""Each dynamic size of a piece, and where in a call its value is found: argument and dimension, -1 for no dimension."""


class _SymbolNames:
    """Names symbols in order of appearance, so that equal relations between sizes look equal."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def rename(self, size: Any) -> str:
        expression = symbols_of(size)
        if expression is None:
            return "" if isinstance(size, torch.SymInt) else str(size)
        return re.sub(
            r"[a-z]+\d+", lambda match: self._known.setdefault(match[0], f"n{len(self._known)}"), str(expression)
        )


def _sizes(value: Any) -> list[Any]:
    if isinstance(value, torch.SymInt):
        return [value]
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return []
    sizes = [*value.shape, *value.stride(), value.storage_offset()]
    return sizes if any(isinstance(size, torch.SymInt) for size in sizes) else []


def _describe(gm: fx.GraphModule, digest: Any, names: _SymbolNames) -> None:
    index: dict[fx.Node, int] = {}
    for node in gm.graph.nodes:
        index[node] = len(index)
        arguments = fx.node.map_arg((node.args, node.kwargs), lambda source: f"%{index[source]}")
        target = "" if node.op in ("placeholder", "get_attr") else target_key(node)
        carved = FALLBACK if _is_carved(node) else ""
        digest.update(f"{node.op}|{target}|{_plain(arguments, names)}|{carved}".encode())
        if node.op == "get_attr":
            held = resolve(gm, node)
            if isinstance(held, fx.GraphModule):
                _describe(held, digest, names)
            elif isinstance(held, torch.Tensor):
                digest.update(f"{held.dtype}{held.shape}{held.stride()}{held.device}".encode())
                digest.update(held.detach().contiguous().cpu().flatten().view(torch.uint8).numpy().tobytes())
            else:
                digest.update(repr(held).encode())


def _is_carved(node: fx.Node) -> bool:
    return FALLBACK in (node.meta.get("custom") or {})


def _plain(value: Any, names: _SymbolNames) -> str:
    if isinstance(value, (tuple, list)):
        return f"({','.join(_plain(item, names) for item in value)})"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{_plain(item, names)}' for key, item in value.items())}}}"
    if isinstance(value, torch.SymInt):
        return names.rename(value)
    return f"{type(value).__name__}:{value!r}"


def _canonical(piece: Piece, inputs: Sequence[Layout], mode: Any) -> tuple[fx.GraphModule, list[Any], Symbols]:
    """Return the piece with names that depend on nothing but its structure, fakes for its inputs, and its symbols.

    Equal pieces then look equal to AOTAutograd's cache as well. Symbols that are known from the size of a tensor alone
    become inputs of their own, in front, as in Dynamo's graphs: passes of AOTAutograd count on it (torch 2.13, batch
    norm in tensorify_python_scalars: "KeyError: s40").
    """
    values = [node.meta.get("val") for node in piece.gm.graph.find_nodes(op="placeholder")]
    fakes, symbols = _fakes(values, inputs, mode)
    sizes = [symbol for symbol, (_, dim) in symbols if dim >= 0]
    graph = fx.Graph()
    for number in range(len(sizes)):
        graph.placeholder(f"size_{number}")
    new: dict[fx.Node, fx.Node] = {}
    for index, node in enumerate(piece.gm.graph.nodes):
        copy = graph.node_copy(node, new.__getitem__)
        if node.op != "output":
            rename(copy, f"{'in' if node.op == 'placeholder' else 'op'}_{index}")
        copy.meta = {"custom": {FALLBACK: True}} if _is_carved(node) else {}
        new[node] = copy
    given = [*sizes, *fakes]
    for node, fake in zip(graph.find_nodes(op="placeholder"), given, strict=True):
        node.target = node.name
        node.meta["val"] = fake
    return fx.GraphModule(piece.gm, graph, class_name="Piece"), given, symbols


def _fakes(values: Sequence[Any], inputs: Sequence[Layout], mode: Any) -> tuple[list[Any], Symbols]:
    known: dict[Any, Any] = {}
    places: Symbols = []

    def place(expression: Any, hint: int, where: tuple[int, int]) -> None:
        if expression is not None and expression not in known:
            known[expression] = new_symbol(mode, hint, f"size_{len(known)}")
            places.append((known[expression], where))

    sizes = [
        (symbols_of(size), hint, (argument, dim))
        for argument, (value, layout) in enumerate(zip(values, inputs, strict=True))
        for dim, size, hint in _dims(value, layout)
    ]
    bare = [item for item in sizes if item[0] is not None and item[0].is_symbol]
    for expression, hint, where in (*bare, *sizes):
        # A size such as s17 + s77 whose symbols never stand alone becomes a symbol of its own: Inductor would find
        # nothing to compute it from ("expected ... to have been codegen-ed", torch 2.13).
        if expression is not None and not expression.free_symbols <= set(known):
            place(expression, hint, where)

    def size_of(size: Any, hint: int) -> Any:
        expression = symbols_of(size)
        if expression is None:
            return hint
        if expression in known:
            return known[expression]
        return substitute(size, known, mode) or hint

    fakes: list[Any] = []
    for value, layout in zip(values, inputs, strict=True):
        if isinstance(value, torch.Tensor) and layout.stride is not None and layout.dtype.startswith("torch."):
            dtype = getattr(torch, layout.dtype.removeprefix("torch."))
            shape = [size_of(size, hint) for size, hint in zip(value.shape, layout.size, strict=True)]
            stride = [size_of(step, hint) for step, hint in zip(value.stride(), layout.stride, strict=True)]
            with mode:
                fakes.append(torch.empty_strided(shape, stride, dtype=dtype, device=layout.device))
        else:
            fakes.append(size_of(value, layout.value))
    return fakes, places


def _dims(value: Any, layout: Layout) -> list[tuple[int, Any, int]]:
    if isinstance(value, torch.SymInt):
        return [(-1, value, layout.value)]
    if isinstance(value, torch.Tensor):
        return [(dim, size, hint) for dim, (size, hint) in enumerate(zip(value.shape, layout.size, strict=True))]
    return []


def _with_sizes(call: BoxedCall, places: Sequence[tuple[int, int]]) -> BoxedCall:
    def called(args: list[Any]) -> Any:
        args[:0] = [args[argument].shape[dim] for argument, dim in places]
        return call(args)

    return called


def _guard(
    check: Callable[[Sequence[int]], bool], places: Sequence[tuple[int, int]]
) -> Callable[[Sequence[Any]], bool]:
    def allowed(args: Sequence[Any]) -> bool:
        return check([args[index] if dim < 0 else args[index].shape[dim] for index, dim in places])

    return allowed
