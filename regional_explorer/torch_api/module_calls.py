"""How torch calls modules: which module a Python frame runs, and which hooks run around it."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from regional_explorer.torch_api.dynamo import code_of
from torch import nn
from torch.nn.modules import module as module_calls

_HOOKS = {
    "_forward_pre_hooks": "forward pre-hook",
    "_forward_hooks": "forward hook",
    "_backward_pre_hooks": "full backward pre-hook",
    "_backward_hooks": "backward hook",
}
"""What the hooks in each attribute of a module are called."""


@dataclass(frozen=True)
class Hook:
    """A hook: its ``kind``, its module, None for one of all modules, and its code, None if it is not in Python."""

    kind: str
    module: nn.Module | None
    code: types.CodeType | None

    @property
    def is_backward(self) -> bool:
        """Whether it runs in the backward: Dynamo traces no module that has one."""
        return "backward" in self.kind


def called_module(frame: types.FrameType) -> nn.Module | None:
    """Return the module that a Python frame calls, its hooks included; None for a frame that calls none."""
    return frame.f_locals["self"] if frame.f_code is nn.Module._call_impl.__code__ else None


def hooks_of(modules: Iterable[nn.Module]) -> Iterator[Hook]:
    """Yield the hooks of the modules and those of all modules."""
    for store, kind in _HOOKS.items():
        for hook in getattr(module_calls, f"_global{store}", {}).values():
            yield Hook(f"global {kind}", None, _code_behind(hook))
    for module in modules:
        for store, kind in _HOOKS.items():
            for hook in getattr(module, store, {}).values():
                yield Hook(kind, module, _code_behind(hook))


def _code_behind(hook: Callable[..., Any]) -> types.CodeType | None:
    """Return the code of a hook: of the function in a partial, or of the method that calls an object."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    return code_of(hook) or code_of(type(hook).__call__)
