"""The sizes that a graph with dynamic sizes serves, found by trying its guards on other calls' sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

import sympy
import torch
from torch import fx

from regional_explorer.torch_api.graphs import size_hint

Sizes = Mapping[str, tuple[int, ...]]
"""The sizes of the tensors that a graph takes, by the name of the input."""


@dataclass(frozen=True)
class SizeGuards:
    """The sizes that a trace was made for, and the conditions on them.

    ``seen`` are the sizes of the traced call, ``sizes`` the same as expressions of symbols, ``guards`` the conditions
    on the symbols, ``ranges`` the range of each symbol. ``code`` identifies the traced function.
    """

    seen: Sizes
    sizes: Mapping[str, tuple[sympy.Expr, ...]]
    code: tuple[str, int, str] | None = None
    guards: tuple[sympy.Basic, ...] = ()
    ranges: Mapping[sympy.Symbol, tuple[Any, Any]] | None = None

    @classmethod
    def of(cls, gm: fx.GraphModule, code: CodeType | None) -> SizeGuards:
        """Return the size guards of Dynamo's graph ``gm`` of the function ``code``."""
        traced = (code.co_filename, code.co_firstlineno, code.co_name) if code is not None else None
        # The inputs that a backend is given may be the real ones.
        values = {node.name: node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")}
        # Of a jagged tensor one size is no number.
        tensors = {name: v for name, v in values.items() if isinstance(v, torch.Tensor) and not v.is_nested}
        seen = {name: tuple(map(size_hint, tensor.shape)) for name, tensor in tensors.items()}
        sizes = {name: tuple(map(_expression, tensor.shape)) for name, tensor in tensors.items()}
        modes = (getattr(tensor, "fake_mode", None) for tensor in tensors.values())
        env = next((mode.shape_env for mode in modes if mode is not None and mode.shape_env is not None), None)
        if env is None:
            return cls(seen, sizes, traced)
        ranges = {symbol: (found.lower, found.upper) for symbol, found in env.var_to_range.items()}
        return cls(seen, sizes, traced, tuple(guard.expr for guard in env.guards), ranges)

    @property
    def are_dynamic(self) -> bool:
        """Whether the graph serves other sizes than those it was traced for."""
        return any(size.free_symbols for dims in self.sizes.values() for size in dims)

    def are_of_the_same_call(self, other: SizeGuards) -> bool:
        """Return whether two traces are of one function, with inputs of the same names."""
        return self.code == other.code and self.sizes.keys() == other.sizes.keys()

    def hold_for(self, sizes: Sizes) -> bool:
        """Return whether the graph serves a call with inputs of these sizes."""
        values: dict[sympy.Basic, int] = {}
        pairs = [
            pair for name in self.sizes if name in sizes for pair in zip(self.sizes[name], sizes[name], strict=True)
        ]
        for size, number in pairs:
            if isinstance(size, sympy.Symbol) and values.setdefault(size, number) != number:
                return False
        for symbol, (low, high) in (self.ranges or {}).items():
            if symbol in values and not low <= values[symbol] <= high:
                return False
        conditions = [sympy.Eq(size, number) for size, number in pairs] + list(self.guards)
        return all(condition.xreplace(values) != sympy.false for condition in conditions)


def _expression(size: Any) -> sympy.Expr:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def share_a_dynamic_trace(first: Sizes, later: Sizes) -> bool:
    """Return whether sizes that are equal in the first call are equal in the later call too.

    With ``dynamic=True`` equal sizes get one symbol, and 0 and 1 are no sizes like others.
    """
    now: dict[int, int] = {}
    pairs = [pair for name in first if name in later for pair in zip(first[name], later[name], strict=True)]
    return all(
        now.setdefault(before, after) == after and (before == after or min(before, after) > 1)
        for before, after in pairs
    )
