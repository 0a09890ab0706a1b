"""A shorter call: of the modules that a call repeats, one of each kind runs; the others pass their inputs on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from regional_explorer.capture.call import Call
from regional_explorer.record.grouping import grouped
from regional_explorer.torch_api.module_twins import Twins

Source = int | str | tuple["Source", ...]
"""What a module that is passed over returns: the argument of this position or name, or ``_NOTHING``."""
_NOTHING = -1
"""The source of None."""


@dataclass(frozen=True)
class Repeats:
    """The modules of one kind that a call runs one after the other: ``first`` speaks for ``others``."""

    first: nn.Module
    others: Sequence[nn.Module]
    passes: Callable[..., Any]

    def __str__(self) -> str:
        """Return for example ``1 of 8 Block``."""
        return f"1 of {1 + len(self.others)} {type(self.first).__name__}"


def repeats_of(call: Call) -> list[Repeats]:
    """Run a call eagerly, and return its repeated modules whose outputs look like some of their inputs.

    Modules are of one kind if they have the same structure, and get and return tensors of the same layouts. A module
    without children counts only in a list: the projections of an attention do not follow each other. Of modules inside
    each other, the outer ones are returned.
    """
    parts = [part for _, root in call.modules for part in root.modules()]
    lists = [part for part in parts if isinstance(part, (nn.Sequential, nn.ModuleList))]
    list_of = {id(child): id(one) for one in lists for child in one.children()}
    runs: dict[nn.Module, list[tuple[Any, Source | None]]] = {}

    def recording(module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            outputs, source = forward(*args, **kwargs), None
            with contextlib.suppress(LookupError):
                source = _source_of(outputs, args, kwargs)
            kind = list_of.get(id(module)), _structure(module), _layouts((args, kwargs, outputs))
            runs.setdefault(module, []).append((kind, source))
            return outputs

        return run

    candidates = [part for part in parts if id(part) in list_of or any(part.children())]
    if not candidates:
        return []
    twins = Twins({module: partial(recording, module) for module in candidates})
    with call.restoring():
        call.forward(lambda *args, **kwargs: _with_twins(twins, call.fn, args, kwargs))
    once = {module: runs_[0] for module, runs_ in runs.items() if len(runs_) == 1}
    kinds = grouped(((kind, source), module) for module, (kind, source) in once.items() if source is not None)
    found = [Repeats(first, others, _passing(source)) for (_, source), (first, *others) in kinds.items() if others]
    repeated = [module for one in found for module in (one.first, *one.others)]
    inside = {part for module in repeated for part in module.modules() if part is not module}
    return [one for one in found if one.first not in inside]


def _structure(module: nn.Module) -> tuple[Any, ...]:
    tensors = (*module.named_parameters(), *module.named_buffers())
    return (
        str(module),
        tuple(type(part) for part in module.modules()),
        tuple((name, _layouts(tensor), tensor.requires_grad) for name, tensor in tensors),
        tuple(part.training for part in module.modules()),
    )


def _layouts(values: Any) -> Any:
    """Return the values with their tensors' layouts in place of the tensors, and other objects' types."""
    if isinstance(values, torch.Tensor):
        return values.shape, values.dtype, values.device, values.requires_grad
    if isinstance(values, (tuple, list)):
        return tuple(map(_layouts, values))
    if isinstance(values, Mapping):
        return tuple((name, _layouts(value)) for name, value in values.items())
    return values if isinstance(values, (int, float, str, type(None))) else type(values)


def _source_of(output: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Source:
    """Return the argument with the layout of each output.

    Raises:
        LookupError: there is none.
    """
    if output is None:
        return _NOTHING
    if type(output) is tuple:
        return tuple(_source_of(part, args, kwargs) for part in output)
    if isinstance(output, torch.Tensor):
        given: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
        for name, value in given:
            if isinstance(value, torch.Tensor) and _layouts(value)[:3] == _layouts(output)[:3]:
                return name
    raise LookupError


def _passing(source: Source) -> Callable[..., Any]:
    """Return what a module that is passed over does instead: it returns some of its arguments."""

    def passes(*args: Any, **kwargs: Any) -> Any:
        return _taken(source, args, kwargs)

    return passes


def _taken(source: Source, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if isinstance(source, tuple):
        return tuple(_taken(part, args, kwargs) for part in source)
    if source == _NOTHING:
        return None
    return args[source] if isinstance(source, int) else kwargs[source]


def _with_twins(twins: Twins, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    given = map(twins.of, args)
    return twins.of(fn)(*given, **{name: twins.of(value) for name, value in kwargs.items()})


class ShorterCall(Call):
    """A call in which only the first of each kind of repeated modules runs, under the modes of ``call``."""

    def __init__(self, call: Call, repeats: Sequence[Repeats]) -> None:
        self.repeats = repeats
        twins = Twins({module: partial(_instead, one.passes) for one in repeats for module in one.others})
        kwargs = {name: twins.of(value) for name, value in call.kwargs.items()}
        with call.restoring():
            super().__init__(twins.of(call.fn), [*map(twins.of, call.args)], kwargs)


def _instead(passes: Callable[..., Any], _forward: Callable[..., Any]) -> Callable[..., Any]:
    return passes
