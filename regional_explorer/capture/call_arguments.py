"""Checks the arguments of ``rx.explore`` before the call is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from regional_explorer.capture.reachable_modules import reachable_modules
from regional_explorer.errors import InvalidArgumentError, did_you_mean
from regional_explorer.errors.arguments import check_argument, check_callable, check_flag, shown_value

PARTITIONERS = ("default", "min_cut")


def check_call(fn: Any, args: Any, kwargs: Any) -> None:
    """Raise InvalidArgumentError unless these are a function and its arguments."""
    check_callable("fn", fn, "the function or module, and its arguments separately: rx.explore(fn, (x, y))")
    check_argument("args", args, (tuple, list), "a tuple, such as rx.explore(fn, (x, y))")
    check_argument("kwargs", kwargs, (Mapping, type(None)), "a dict, such as rx.explore(fn, (x,), {'mask': mask})")
    for name in kwargs or {}:
        check_argument("a name in kwargs", name, str, "strings: the names of keyword arguments")
    called_ids = (id(fn), id(getattr(fn, "__self__", None)))
    for root in reachable_modules(fn, args, kwargs or {}):
        for name, module in root.named_modules():
            # A scripted module that is called inside is a graph break; a traced one even lacks a module's attributes.
            is_called = id(module) in called_ids
            if isinstance(module, torch.jit.ScriptModule) and (is_called or "_buffers" not in vars(module)):
                raise InvalidArgumentError(
                    f"{f'The module {name!r}' if name else type(module).__name__} was made by torch.jit: TorchScript "
                    "runs it, so there is no Python to trace. Explore the module that it was made from."
                )


def check_options(grad: Any, dynamic: Any, partitioner: Any) -> None:
    """Raise InvalidArgumentError unless these are the options of a capture."""
    check_flag("grad", grad, optional=True)
    check_flag("dynamic", dynamic, optional=True)
    check_partitioner(partitioner)


def check_partitioner(partitioner: Any) -> None:
    """Raise InvalidArgumentError unless this names a way in which AOTAutograd splits forward from backward."""
    if not isinstance(partitioner, str) or partitioner not in PARTITIONERS:
        raise InvalidArgumentError(
            f"partitioner={shown_value(partitioner)}: give {' or '.join(map(repr, PARTITIONERS))}."
            f"{did_you_mean(partitioner, PARTITIONERS) if isinstance(partitioner, str) else ''}"
        )
