"""Twins of modules: they share everything with the user's modules, but some of them run another forward."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn


class Twins:
    """Makes twins of what a call is made of; ``forwards`` has the new forward of a module, made of its twin's own.

    A module without a changed module inside is its own twin. The user's modules stay as they are, so that other threads
    can run them meanwhile: parameters, buffers and hooks are shared, only the tree of modules is new.
    """

    def __init__(self, forwards: Mapping[nn.Module, Callable[[Callable[..., Any]], Callable[..., Any]]]) -> None:
        self._forwards = forwards
        self._known: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        """Return the twin of a module, of its method, or of a function with modules in its closure and globals."""
        if isinstance(value, nn.Module):
            return self._of_module(value)
        if isinstance(value, types.MethodType) and isinstance(value.__self__, nn.Module):
            return types.MethodType(value.__func__, self.of(value.__self__))
        if isinstance(value, types.FunctionType):
            return self._of_function(value)
        return value

    def _of_module(self, module: nn.Module) -> nn.Module:
        if id(module) not in self._known:
            children = {name: child and self._of_module(child) for name, child in module._modules.items()}
            forward = self._forwards.get(module)
            twin = module
            if forward is not None or any(child is not module._modules[name] for name, child in children.items()):
                twin = module.__new__(type(module))
                vars(twin).update(vars(module), _modules=children)
            if forward is not None:
                vars(twin)["forward"] = forward(twin.forward)
            self._known[id(module)] = twin
        known: nn.Module = self._known[id(module)]
        return known

    def _of_function(self, function: types.FunctionType) -> Any:
        if id(function) in self._known:
            return self._known[id(function)]
        self._known[id(function)] = function  # it may refer to itself
        code, known, closure = function.__code__, function.__globals__, function.__closure__ or ()
        # Of the globals only modules get twins: the functions that it calls stay as they are.
        found = {name: self.of(known[name]) for name in code.co_names if isinstance(known.get(name), nn.Module)}
        cells = tuple(types.CellType(self.of(cell.cell_contents)) for cell in closure)
        twin = types.FunctionType(code, {**known, **found}, function.__name__, function.__defaults__, cells)
        twin.__kwdefaults__ = function.__kwdefaults__
        self._known[id(function)] = twin
        return twin
