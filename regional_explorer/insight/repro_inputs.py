"""Writes the inputs of a repro script as code: sizes, strides, shared storages, views; real or fake ones."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from regional_explorer.compiler.artifacts.canonical import Symbols
from regional_explorer.compiler.artifacts.tensor_layout import TOKEN, Layout
from regional_explorer.errors import ReproError
from regional_explorer.record.grouping import grouped
from regional_explorer.torch_api import symbols_of


def literal(value: Any, what: str) -> str:
    """Return a value as source code, a node in it as its name.

    Raises:
        ReproError: it cannot be written as code; the message says ``what`` it is.
    """
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, slice):
        return f"slice({', '.join(literal(part, what) for part in (value.start, value.stop, value.step))})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if value is None or value is Ellipsis or type(value) in (bool, int, float, complex, str):
        return repr(value)
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return str(value)
    if isinstance(value, (tuple, list)):
        items = ", ".join(literal(item, what) for item in value)
        return f"[{items}]" if isinstance(value, list) else f"({items},)" if value else "()"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {literal(item, what)}' for key, item in value.items())}}}"
    raise ReproError(f"{what} is a {type(value).__name__}, which cannot be written down.")


def real_inputs(inputs: Sequence[Layout], symbols: Symbols) -> Iterator[str]:
    """Yield the lines that create real inputs: the sizes first, as the graph takes them, then one per input.

    Raises:
        ReproError: an input cannot be written as code.
    """
    shared = _shared_storages(inputs)
    yield "inputs = []"
    for storage, views in shared.items():
        yield f"storage_{storage} = tensor(({max(map(_extent, views))},), (1,), {views[0].dtype}, {views[0].device!r})"
    for number, layout in enumerate(inputs):
        view = f"storage_{layout.storage}.as_strided({layout.size}, {layout.stride}, {layout.offset})"
        yield f"inputs.append({view if layout.storage in shared else _real_input_code(number, layout)})"
    sizes = [f"inputs[{argument}].shape[{dim}]" for _, (argument, dim) in symbols if dim >= 0]
    yield f"return [{''.join(f'{size}, ' for size in sizes)}*inputs]"


def _shared_storages(inputs: Sequence[Layout]) -> dict[int, list[Layout]]:
    """Return the inputs that share a storage, by its number."""
    storages = grouped((layout.storage, layout) for layout in inputs if layout.storage >= 0)
    shared = {storage: views for storage, views in storages.items() if len(views) > 1}
    for views in shared.values():
        if len({view.dtype for view in views}) > 1:
            raise ReproError("inputs of several dtypes share a storage, which the script does not do.")
    return shared


def _extent(layout: Layout) -> int:
    """Return the number of elements that a storage needs for a view."""
    if 0 in layout.size:
        return layout.offset
    steps = zip(layout.size, layout.stride, strict=True)
    return layout.offset + 1 + sum((size - 1) * stride for size, stride in steps)


def _real_input_code(number: int, layout: Layout) -> str:
    if layout == TOKEN:
        return "torch.empty(0)"
    if not layout.dtype.startswith("torch."):
        return literal(layout.value, f"input {number}")
    if isinstance(layout.value, str):
        raise ReproError(f"input {number} is a tensor of layout {layout.value}, which cannot be written down.")
    offset = "" if layout.aligned else ", offset=1"
    return f"tensor({layout.size}, {layout.stride}, {layout.dtype}, {layout.device!r}{offset})"


def fake_inputs(fakes: Sequence[Any], symbols: Symbols, names: Mapping[Any, str]) -> Iterator[str]:
    """Yield the lines that create the fake inputs that the graph is compiled for.

    Raises:
        ReproError: the size of one cannot be written as code.
    """
    for symbol, _ in symbols:
        if isinstance(symbol, torch.SymInt):
            yield f"{names[symbol.node.expr]} = size({int(symbol.node.hint)}, {names[symbol.node.expr]!r})"
    yield "return ["
    for fake in fakes:
        if isinstance(fake, torch.Tensor):
            size, stride = (_sizes_code(sizes, names) for sizes in (fake.shape, fake.stride()))
            yield f"    fake({size}, {stride}, {fake.dtype}, {str(fake.device)!r}),"
        else:
            yield f"    {_size_code(fake, names)},"
    yield "]"


def _sizes_code(sizes: Sequence[Any], names: Mapping[Any, str]) -> str:
    return f"({''.join(f'{_size_code(size, names)}, ' for size in sizes)})"


def _size_code(size: Any, names: Mapping[Any, str]) -> str:
    expression = symbols_of(size)
    if expression is None:
        return literal(int(size) if isinstance(size, torch.SymInt) else size, "an input")
    text = re.sub(r"[a-z]+\d+", lambda match: next(n for s, n in names.items() if str(s) == match[0]), str(expression))
    if not re.fullmatch(r"[s\d+*/() -]+", text):
        raise ReproError(f"the size {expression} of an input cannot be written down.")
    return text
