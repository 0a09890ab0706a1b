"""Releases what torch keeps of a compile (guards, cache entries, backends, modules), now or when it is dropped.

``torch._dynamo.reset()`` would do so for all compiles, and drop the user's own compiled functions.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import sys
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, ModuleType
from typing import Any

from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list, reset_code
from torch._dynamo import config as dynamo_config
from torch._dynamo import convert_frame
from torch._dynamo import eval_frame as dynamo_eval_frame
from torch._dynamo.guards import CheckFunctionManager, DeletedGuardManagerWrapper
from torch._dynamo.utils import get_metrics_context
from torch._guards import TracingContext
from torch.fx import graph_module

NO_REGION = -1
"""Dynamo's number for the cache entries of all compiles that are not isolated."""

_DELETED = DeletedGuardManagerWrapper("its exploration was closed")

_BACKENDS: weakref.WeakKeyDictionary[Callable[..., Any], Any] = weakref.WeakKeyDictionary()


def release_when_dropped(compiled: Callable[..., Any], backend: Any) -> None:
    """Let Dynamo forget what it traced for ``compiled``, a ``torch.compile`` with ``backend``, when that is dropped."""
    _BACKENDS[compiled] = backend
    weakref.finalize(compiled, _release, _region(compiled), backend).atexit = False


def release_compiled(compiled: Callable[..., Any]) -> None:
    """Let Dynamo forget what it traced for ``compiled`` now: code, guards, fake tensors and graphs.

    Cache entries of any other compile of the same functions stay. When called again, ``compiled`` is traced again.
    """
    for code in _release(_region(compiled), _BACKENDS[compiled]):
        # Dynamo counts invalidated entries, too, and gives up on a function at 256 (accumulated_recompile_limit). This
        # is not done for functions that are dropped: the garbage collector may run while Dynamo reads these entries.
        if all(isinstance(entry.guard_manager, DeletedGuardManagerWrapper) for entry in _entries(code)):
            reset_code(code)


def traces_of(compiled: Callable[..., Any]) -> int:
    """Return how many traces Dynamo keeps for an isolated compile; 0 with torch 2.11, which does not know."""
    region = _region(compiled)
    return sum(_is_of(region, None, entry) for code in _traced_codes() for entry in _entries(code))


def has_given_up(compiled: Callable[..., Any]) -> bool:
    """Return whether Dynamo traced some code for a compile so often that it runs it in plain Python from now on."""
    is_ours = functools.partial(_is_of, _region(compiled), _BACKENDS.get(compiled))
    return any(sum(map(is_ours, _entries(code))) >= dynamo_config.recompile_limit for code in _traced_codes())


def _region(compiled: Callable[..., Any]) -> int:
    """Return the number by which Dynamo isolates the entries of a compile: torch 2.12 and newer."""
    return int(getattr(getattr(compiled, "dynamo_ctx", compiled), "_isolate_recompiles_id", NO_REGION))


def _release(region: int, backend: Any) -> list[CodeType]:
    """Invalidate the cache entries of a compile, and return the code objects that they belonged to."""
    ours = functools.partial(_is_of, region, backend)
    guards, released = [], {}
    forget_metric_edits()
    for code in _traced_codes():
        for entry in filter(ours, _entries(code)):
            manager: Any = entry.guard_manager
            if manager.extra_state is not None:
                guards.append(manager)
                released[id(code)] = code
                # As Dynamo does when an object that guards depend on is freed; about a hundred bytes remain.
                manager.extra_state.invalidate(entry, _DELETED)
    _detach_finalizers({id(manager) for manager in guards})
    for key, kept in list(dynamo_eval_frame.cached_backends.items()):
        if backend is not None and getattr(kept, "compiler_fn", None) is backend:
            dynamo_eval_frame.cached_backends.pop(key, None)
    return list(released.values())


def _traced_codes() -> list[CodeType]:
    return [code for reference in list(convert_frame.input_codes.seen) if (code := reference()) is not None]


def _entries(code: CodeType) -> list[Any]:
    return list(_debug_get_cache_entry_list(code))


def forget_metric_edits() -> None:
    """Clear the list in which Dynamo records where each metric of a compile was set, for an error message.

    No torch up to 2.15 clears it. Each item is a traceback, which keeps the code of its frames alive: behind a graph
    break that is compiled code, and with it everything that is released here: docs/upstream.md.
    """
    context: Any = get_metrics_context()
    if not context.in_progress():
        getattr(context, "_edits", []).clear()


def _is_of(region: int, backend: Any, entry: Any) -> bool:
    if region != NO_REGION:
        return bool(entry.isolate_recompiles_id == region)
    return backend is not None and getattr(entry.backend, "compiler_fn", None) is backend


def _detach_finalizers(guards: set[int]) -> None:
    """Detach the finalizers of objects that ``guards``, given by id, depend on: modules, classes, functions.

    Such objects often live as long as the process, and the finalizers keep the guards alive.
    """
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # there is no public way
        found = finalizer.peek()
        call = found[1] if found else None
        holder = getattr(call.func, "__self__", None) if isinstance(call, functools.partial) else None
        if isinstance(holder, CheckFunctionManager) and id(getattr(holder, "guard_manager", None)) in guards:
            finalizer.detach()


class GeneratedCode:
    """The Python code that torch generates inside ``collected`` blocks, and would keep to the end of the process.

    That is the source of every version of every ``GraphModule``, for tracebacks, and each module that Inductor loads.
    It is released when this object is dropped, together with the fake tensors of the traces around these blocks.
    """

    def __init__(self) -> None:
        self._sources: set[str] = set()
        self._modules: list[ModuleType] = []
        self._traces: weakref.WeakSet[Any] = weakref.WeakSet()
        weakref.finalize(self, _forget, self._sources, self._modules, self._traces).atexit = False

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """A block whose generated code belongs to this object."""
        sources, modules = set(graph_module._loader.eval_cache), len(_inductor_modules())
        context = TracingContext.try_get()
        if context is not None and context.fake_mode is not None:
            self._traces.add(context.fake_mode)
        try:
            yield
        finally:
            self._sources |= graph_module._loader.eval_cache.keys() - sources
            self._modules += _inductor_modules()[modules:]

    def release(self) -> None:
        """Let torch forget the code now. Functions that still exist keep working; tracebacks lose source lines."""
        _forget(self._sources, self._modules, self._traces)


def _forget(sources: set[str], modules: list[ModuleType], traces: weakref.WeakSet[Any]) -> None:
    for mode in list(traces):
        # A fake tensor with a gradient is part of a cycle that Python's garbage collector misses: docs/upstream.md.
        if tracked := getattr(mode.shape_env, "tracked_fakes", None):
            tracked.clear()
    for name in sources:
        graph_module._loader.eval_cache.pop(name, None)
        linecache.cache.pop(name, None)
    ours = {id(module) for module in modules}
    loaded = _inductor_modules()
    loaded[:] = [module for module in loaded if id(module) not in ours]
    for module in modules:
        if sys.modules.get(module.__name__) is module:
            del sys.modules[module.__name__]
    for collected in (sources, modules, traces):
        collected.clear()


def _inductor_modules() -> list[ModuleType]:
    """Return the list in which Inductor keeps the modules it loaded; empty if Inductor is not imported."""
    codecache = sys.modules.get("torch._inductor.codecache")
    return [] if codecache is None else codecache.PyCodeCache.modules
