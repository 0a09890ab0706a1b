"""Fake modes, dynamic sizes and guards on sizes, for compiling partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._functorch._aot_autograd import runtime_wrappers
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv


def fake_mode_with_symbols() -> FakeTensorMode:
    """Return a fresh fake mode with a ShapeEnv of its own.

    The mode of the trace cannot be used: its ShapeEnv is frozen, and guards that a later compile adds to it are never
    checked; and two compiles must not share one.
    """
    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=False)


def new_size(mode: FakeTensorMode, hint: int, name: str) -> torch.SymInt | int:
    """Return a new dynamic size with value ``hint`` in the ShapeEnv of ``mode``; torch has 0 and 1 static."""
    from torch._dynamo.source import ConstantSource

    env = mode.shape_env
    assert env is not None  # noqa: S101 - made by fake_mode_with_symbols
    source = ConstantSource(name)
    symbol = env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
    return env.create_symintnode(symbol, hint=hint, source=source)


# Torch 2.11 writes into the attribute of torch._dynamo.maybe_mark_dynamic.
_HAS_OWN_MARK = hasattr(runtime_wrappers, "mark_dynamo_propagated_dynamic_indices")
_DYNAMIC_MARK = "_dynamo_propagated_dynamic_indices" if _HAS_OWN_MARK else "_dynamo_weak_dynamic_indices"


def is_marked_dynamic(tensor: torch.Tensor) -> bool:
    """Return whether compiled code has marked sizes of a tensor as dynamic, for the next graph that takes it."""
    return hasattr(tensor, _DYNAMIC_MARK)


def unmark_dynamic(tensors: Iterable[torch.Tensor]) -> None:
    """Remove these marks, which AOTAutograd leaves on inputs that it saves for the backward: docs/upstream.md."""
    for tensor in tensors:
        if hasattr(tensor, _DYNAMIC_MARK):
            delattr(tensor, _DYNAMIC_MARK)


def substitute(
    size: torch.SymInt, sizes: Mapping[Any, torch.SymInt | int], mode: FakeTensorMode
) -> torch.SymInt | int | None:
    """Return ``size`` rewritten in the symbols of ``sizes`` (old sympy symbol to new size); None if one is missing."""
    expr = size.node.expr
    if not expr.free_symbols <= set(sizes):
        return None
    env = mode.shape_env
    assert env is not None  # noqa: S101 - made by fake_mode_with_symbols
    hint = int(expr.xreplace({old: size_hint(new) for old, new in sizes.items()}))
    exprs = {old: new if isinstance(new, int) else new.node.expr for old, new in sizes.items()}
    return env.create_symintnode(expr.xreplace(exprs), hint=hint)


def symbols_of(size: Any) -> Any | None:
    """Return the sympy expression behind a symbolic size, or None for a plain int."""
    return size.node.expr if isinstance(size, torch.SymInt) and not size.node.expr.is_number else None


def size_hint(size: int | torch.SymInt) -> int:
    """Return the size seen while tracing.

    Raises:
        ValueError: it is known only at run time.
    """
    if not isinstance(size, torch.SymInt):
        return size
    if not size.node.has_hint():
        raise ValueError(f"nothing is known of {size} before a run")
    return int(size.node.hint)


def guard_check(mode: FakeTensorMode, sizes: Sequence[torch.SymInt | int]) -> Guard | None:
    """Return a test of the guards that a compile left in the ShapeEnv of ``mode``, or None when there are none.

    The test takes the current values of ``sizes``, as ``new_size`` made them; static ones have to be as they were.
    Dynamo does not know these guards (2.13), so the caller of the artifact has to check them.
    """
    import sympy

    env = mode.shape_env
    if env is None or not sizes:
        return None
    # ``node.expr`` is a number where the compile found that the size has only one value: the guard is ``Eq(s40, 6)``.
    exprs = [
        sympy.Symbol(f"static_{index}") if isinstance(size, int) else size.node._expr
        for index, size in enumerate(sizes)
    ]
    conditions = [guard.expr for guard in env.guards]
    conditions += [sympy.Eq(expr, size) for expr, size in zip(exprs, sizes, strict=True) if isinstance(size, int)]
    for expr in exprs:
        bounds = env.var_to_range.get(expr)
        if bounds is not None:
            conditions.append(sympy.Ge(expr, bounds.lower))
            if bounds.upper.is_number and bounds.upper < 2**62:
                conditions.append(sympy.Le(expr, bounds.upper))
    conditions = [condition for condition in conditions if condition is not sympy.true]
    return Guard(tuple(exprs), tuple(conditions)) if conditions else None


class Guard:
    """A conjunction of sympy conditions on the symbols ``names``, evaluated once per distinct tuple of sizes."""

    def __init__(self, names: tuple[Any, ...], conditions: tuple[Any, ...]) -> None:
        self.names = names
        self.conditions = conditions
        self._known: dict[tuple[int, ...], bool] = {}

    def __call__(self, values: Sequence[int]) -> bool:
        """Return whether all conditions hold for these values of ``names``."""
        key = tuple(values)
        if key not in self._known:
            sizes = dict(zip(self.names, key, strict=True))
            self._known[key] = all(bool(condition.xreplace(sizes)) for condition in self.conditions)
        return self._known[key]
