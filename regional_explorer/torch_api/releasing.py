"""Releases what torch keeps of a compile (guards, cache entries, backends, modules), now or when it is dropped.

``torch._dynamo.reset()`` would release all compiles, and drop the user's own compiled functions.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import sys
import traceback
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

from regional_explorer.torch_api.compile_lock import acquired, compile_lock

NOT_ISOLATED = -1
"""Dynamo's number for the cache entries of all compiles that are not isolated."""

_DELETED_GUARDS = DeletedGuardManagerWrapper("its exploration was closed")

_DROPPED: list[tuple[int, Any]] = []
"""The isolation numbers and backends of compiles that are to be released."""

_BACKEND_BY_COMPILED: weakref.WeakKeyDictionary[Callable[..., Any], Any] = weakref.WeakKeyDictionary()


_GIVEN_UP: weakref.WeakKeyDictionary[Callable[..., Any], bool] = weakref.WeakKeyDictionary()
"""Whether Dynamo had given up on a compile when that was last known."""


def release_when_dropped(compiled: Callable[..., Any], backend: Any) -> None:
    """Let Dynamo forget its traces for ``compiled``, a ``torch.compile`` with ``backend``, once it is dropped."""
    _BACKEND_BY_COMPILED[compiled] = backend
    weakref.finalize(compiled, _release_dropped, _isolation_id(compiled), backend).atexit = False


def release_compiled(compiled: Callable[..., Any]) -> None:
    """Let Dynamo forget its traces for ``compiled`` now: code, guards, fake tensors and graphs.

    Cache entries of any other compile of the same functions stay. When called again, ``compiled`` is traced again.
    """
    _DROPPED.append((_isolation_id(compiled), _BACKEND_BY_COMPILED[compiled]))
    with compile_lock():
        _release_all_dropped()
        _free_invalidated()


def _release_dropped(isolation_id: int, backend: Any) -> None:
    """Release a dropped compile, or leave it to the next release if another thread compiles.

    The garbage collector may run this anywhere: it must not wait, and Dynamo may be reading the entries that
    ``_free_invalidated`` would free.
    """
    _DROPPED.append((isolation_id, backend))
    with acquired(convert_frame.compile_lock, cancelled=lambda: True) as is_free:
        if is_free:
            _release_all_dropped()


def _release_all_dropped() -> None:
    while _DROPPED:
        _release_entries(*_DROPPED.pop())


def _free_invalidated() -> None:
    """Free invalidated cache entries: Dynamo counts them, and gives up on a function at 256.

    The limit is ``accumulated_recompile_limit``. The entries of a function can only be freed together, and not while it
    is compiled: Dynamo keeps a pointer to them meanwhile, even while it waits for the compile lock (docs/upstream.md).
    """
    frames = (frame for innermost in sys._current_frames().values() for frame, _ in traceback.walk_stack(innermost))
    if any(frame.f_code.co_filename == convert_frame.__file__ for frame in frames):
        return
    for code in _traced_codes():
        managers = [entry.guard_manager for entry in _cache_entries(code)]
        if _DELETED_GUARDS in managers and all(isinstance(manager, DeletedGuardManagerWrapper) for manager in managers):
            reset_code(code)


def traces_of(compiled: Callable[..., Any]) -> int:
    """Return how many traces Dynamo keeps for an isolated compile; 0 with torch 2.11, which does not count them."""
    isolation_id = _isolation_id(compiled)
    with compile_lock():
        return sum(_belongs_to(isolation_id, None, entry) for code in _traced_codes() for entry in _cache_entries(code))


def has_given_up(compiled: Callable[..., Any], *, wait: bool = True) -> bool:
    """Return whether Dynamo traced some code for a compile so often that it runs it in plain Python from now on.

    Without ``wait`` it is the last answer while another thread compiles, and False if there is none.
    """
    is_ours = functools.partial(_belongs_to, _isolation_id(compiled), _BACKEND_BY_COMPILED.get(compiled))
    with acquired(convert_frame.compile_lock, cancelled=lambda: not wait) as is_free:
        if is_free:
            traces = (sum(map(is_ours, _cache_entries(code))) for code in _traced_codes())
            _GIVEN_UP[compiled] = any(number >= dynamo_config.recompile_limit for number in traces)
    return _GIVEN_UP.get(compiled, False)


def _isolation_id(compiled: Callable[..., Any]) -> int:
    """Return the number by which Dynamo isolates the entries of a compile: torch 2.12 and newer."""
    return int(getattr(getattr(compiled, "dynamo_ctx", compiled), "_isolate_recompiles_id", NOT_ISOLATED))


def _release_entries(isolation_id: int, backend: Any) -> None:
    """Invalidate the cache entries of a compile."""
    is_ours = functools.partial(_belongs_to, isolation_id, backend)
    guards = []
    forget_metric_edits()
    for code in _traced_codes():
        for entry in filter(is_ours, _cache_entries(code)):
            manager: Any = entry.guard_manager
            if manager.extra_state is not None:
                guards.append(manager)
                # As Dynamo does when an object that guards depend on is freed; about a hundred bytes remain.
                manager.extra_state.invalidate(entry, _DELETED_GUARDS)
    _detach_finalizers({id(manager) for manager in guards})
    for key, cached in list(dynamo_eval_frame.cached_backends.items()):
        if backend is not None and getattr(cached, "compiler_fn", None) is backend:
            dynamo_eval_frame.cached_backends.pop(key, None)


def _traced_codes() -> list[CodeType]:
    return [code for reference in list(convert_frame.input_codes.seen) if (code := reference()) is not None]


def _cache_entries(code: CodeType) -> list[Any]:
    return list(_debug_get_cache_entry_list(code))


def forget_metric_edits() -> None:
    """Clear the list in which Dynamo records where each metric of a compile was set, for an error message.

    No torch up to 2.15 clears it. Each item is a traceback, which keeps the code of its frames alive: behind a graph
    break these frames are compiled code, which keeps everything that is released here: docs/upstream.md.
    """
    context: Any = get_metrics_context()
    if not context.in_progress():
        getattr(context, "_edits", []).clear()


def _belongs_to(isolation_id: int, backend: Any, entry: Any) -> bool:
    if isolation_id != NOT_ISOLATED:
        return bool(entry.isolate_recompiles_id == isolation_id)
    return backend is not None and getattr(entry.backend, "compiler_fn", None) is backend


def _detach_finalizers(guard_ids: set[int]) -> None:
    """Detach the finalizers of objects that guards, given by ``guard_ids``, depend on: modules, classes, functions.

    Such objects often live as long as the process, and the finalizers keep the guards alive.
    """
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # there is no public way
        peeked = finalizer.peek()
        callback = peeked[1] if peeked else None
        holder = getattr(callback.func, "__self__", None) if isinstance(callback, functools.partial) else None
        if isinstance(holder, CheckFunctionManager) and id(getattr(holder, "guard_manager", None)) in guard_ids:
            finalizer.detach()


class GeneratedCode:
    """The Python code that torch generates inside ``collecting`` blocks, and would keep until the process ends.

    It consists of the source of every version of every ``GraphModule``, for tracebacks, and each module that Inductor
    loads. It is released when this object is dropped, together with the fake tensors of the traces around these blocks.
    """

    def __init__(self) -> None:
        self._sources: set[str] = set()
        self._modules: list[ModuleType] = []
        self._fake_modes: weakref.WeakSet[Any] = weakref.WeakSet()
        weakref.finalize(self, _forget_code, self._sources, self._modules, self._fake_modes).atexit = False

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Context manager: generated code of the block belongs to this object."""
        sources_before, modules_before = set(graph_module._loader.eval_cache), list(_inductor_modules())
        context = TracingContext.try_get()
        if context is not None and context.fake_mode is not None:
            self._fake_modes.add(context.fake_mode)
        try:
            yield
        finally:
            self._sources |= graph_module._loader.eval_cache.keys() - sources_before
            known_ids = set(map(id, modules_before))  # some may have been released since
            self._modules += [module for module in _inductor_modules() if id(module) not in known_ids]

    def release(self) -> None:
        """Let torch forget the code now. Existing functions keep working, but tracebacks lose their source lines."""
        _forget_code(self._sources, self._modules, self._fake_modes)


def _forget_code(sources: set[str], modules: list[ModuleType], fake_modes: weakref.WeakSet[Any]) -> None:
    for mode in list(fake_modes):
        # A fake tensor with a gradient is part of a cycle that Python's garbage collector misses: docs/upstream.md.
        if tracked := getattr(mode.shape_env, "tracked_fakes", None):
            tracked.clear()
    for name in sources:
        graph_module._loader.eval_cache.pop(name, None)
        linecache.cache.pop(name, None)
    module_ids = {id(module) for module in modules}
    loaded = _inductor_modules()
    loaded[:] = [module for module in loaded if id(module) not in module_ids]
    for module in modules:
        if sys.modules.get(module.__name__) is module:
            del sys.modules[module.__name__]
    for collection in (sources, modules, fake_modes):
        collection.clear()


def _inductor_modules() -> list[ModuleType]:
    """Return the list in which Inductor keeps the modules it loaded; empty if Inductor is not imported."""
    codecache = sys.modules.get("torch._inductor.codecache")
    return [] if codecache is None else codecache.PyCodeCache.modules
