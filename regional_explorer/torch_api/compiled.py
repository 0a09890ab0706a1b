"""Functions returned by ``torch.compile``: their backend, and the call that is being traced."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._dynamo import eval_frame, external_utils


@dataclass(frozen=True)
class TracedCall:
    """The call of a compiled function that Dynamo is tracing: the original function and the arguments.

    ``at_end`` takes a function to run once the call returns; it is not run if the call raises.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    at_end: Callable[[Callable[[], object]], None]


def traced_call() -> TracedCall | None:
    """Return the call being traced, when called inside a backend; None if no ``torch.compile`` wrapper is running.

    A backend is given only a graph and its inputs. The wrapper's Python frame has the rest: it is on the stack as long
    as the call runs, and at the end runs the functions in its list ``cleanups`` (torch 2.13 to 2.15).
    """
    for frame, _ in traceback.walk_stack(sys._getframe()):
        if frame.f_code.co_filename == eval_frame.__file__:
            scope = frame.f_locals
            if isinstance(scope.get("cleanups"), list) and "fn" in scope:
                return TracedCall(_compiled_function(scope["fn"]), scope["args"], scope["kwargs"], _at_end(scope))
    return None


def _at_end(scope: Mapping[str, Any]) -> Callable[[Callable[[], object]], None]:
    cleanups = scope["cleanups"]

    def at_end(function: Callable[[], object]) -> None:
        def cleanup() -> None:
            if sys._getframe(1).f_locals.get("call_succeeded", True):
                function()

        cleanups.append(cleanup)

    return at_end


def _compiled_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the module if Dynamo was given a method of one, else the function.

    Torch's own modules are called through a closure (``wrap_inline``).
    """
    inner = fn
    if inspect.isfunction(fn) and fn.__code__.co_filename == external_utils.__file__:
        inner = inspect.getclosurevars(fn).nonlocals.get("fn", fn)
    owner = getattr(inner, "__self__", inner)
    return owner if isinstance(owner, nn.Module) else inner


def calling_wrapper() -> Any | None:
    """Return the object through which ``torch.compile`` calls its backend, when called inside that backend, or None.

    A backend given by name is one function for everything compiled with it; the wrapper identifies the compile.
    """
    code = torch._TorchCompileWrapper.__call__.__code__
    frames = traceback.walk_stack(sys._getframe())
    return next((frame.f_locals["self"] for frame, _ in frames if frame.f_code is code), None)


def backend_of(compiled: Any) -> Any | None:
    """Return the backend of what ``torch.compile`` returned, or ``Module.compile()`` left in a module; else None."""
    compiled = getattr(compiled, "_compiled_call_impl", None) or compiled
    context = getattr(compiled, "dynamo_ctx", None)
    if context is None and inspect.isfunction(compiled):
        context = inspect.getclosurevars(compiled).nonlocals.get("self")
    callback = getattr(context, "callback", None)
    return None if callback is None else eval_frame.innermost_backend(callback)


def named_backend(wrapper: Any) -> Any:
    """Return the backend that a wrapper of ``torch.compile`` calls, or ``wrapper`` if it is none."""
    return wrapper.compiler_fn if isinstance(wrapper, torch._TorchCompileWrapper) else wrapper
