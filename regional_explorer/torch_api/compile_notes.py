"""Notes of a compile: the cache key, the caches' answer, and the time of each phase from torch's event logger."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch._dynamo import utils as dynamo_utils
from torch._functorch._aot_autograd import autograd_cache
from torch._inductor import codecache, custom_graph_pass

from regional_explorer.record.compiles import ArtifactCompile, CacheAnswer, CompilePhase
from regional_explorer.torch_api.cache_key import CacheKey

_PHASES_BY_PREFIX: Mapping[str, CompilePhase] = {
    "inductor_codecache_torch_key": CompilePhase.CACHE,
    "CacheBase": CompilePhase.CACHE,
    "cache key": CompilePhase.CACHE,
    "pass.": CompilePhase.TRACING,
    "create_aot_dispatcher_function": CompilePhase.TRACING,
    "aot_": CompilePhase.TRACING,
    "_recursive_": CompilePhase.TRACING,
    "additional_fake_tensor_prop": CompilePhase.TRACING,
    "GraphLowering.run": CompilePhase.LOWERING,
    "Scheduler.codegen": CompilePhase.CODE,
    "Scheduler": CompilePhase.SCHEDULING,
    "GraphLowering": CompilePhase.CODE,
    "PythonWrapperCodegen": CompilePhase.CODE,
    "CppWrapper": CompilePhase.CODE,
    "generate_kernel_code_from_nodes": CompilePhase.CODE,
    "compile_file": CompilePhase.BUILD,
    "async_compile": CompilePhase.BUILD,
    "AotCodeCompiler": CompilePhase.BUILD,
    "CachingAutotuner": CompilePhase.BUILD,
    "reload_kernel_in_parent": CompilePhase.BUILD,
    "PyCodeCache": CompilePhase.LOAD,
    "AOTAutogradCache.inductor_load": CompilePhase.LOAD,
    "TritonBundler": CompilePhase.LOAD,
}
"""Phases by the prefixes of torch's own event names, and one event of ours; the first prefix that matches counts."""

_PRE_GRAD_EVENT = "_recursive_pre_grad_passes"
_REASON_MESSAGES = ("Bypassing autograd cache due to: %s", "AOTAutograd cache unable to load compiled graph: %s")
_CUSTOM_PASS_KEYS = (
    "pre_grad_custom_pass",
    "post_grad_custom_pre_pass",
    "post_grad_custom_post_pass",
    "joint_custom_pre_pass",
    "joint_custom_post_pass",
)


class Times:
    """Sums this thread's time in each of torch's own events: without nested events (``own``), and with (``whole``)."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._open_events: list[tuple[str, int, int]] = []
        self.own: dict[str, float] = defaultdict(float)
        self.whole: dict[str, float] = defaultdict(float)

    def begin(self, name: str, time_ns: int) -> None:
        """Record the start of an event."""
        if threading.get_ident() == self._thread:
            self._open_events.append((name, time_ns, 0))

    def end(self, name: str, time_ns: int) -> None:
        """Record the end of an event, and of nested ones that are still open."""
        if threading.get_ident() != self._thread or all(name != event for event, _, _ in self._open_events):
            return
        while self._open_events:
            ended, began_ns, inside_ns = self._open_events.pop()
            took_ns = time_ns - began_ns
            self.own[ended] += (took_ns - inside_ns) / 1e9
            self.whole[ended] += took_ns / 1e9
            if self._open_events:
                outer, outer_began_ns, outer_inside_ns = self._open_events[-1]
                self._open_events[-1] = outer, outer_began_ns, outer_inside_ns + took_ns
            if ended == name:
                return

    def phases(self, seconds: float) -> dict[str, float]:
        """Return the seconds by phase, which add up to ``seconds``."""
        phase_s: dict[CompilePhase, float] = defaultdict(float)
        for name, own_s in self.own.items():
            phase = next((phase for prefix, phase in _PHASES_BY_PREFIX.items() if name.startswith(prefix)), None)
            if phase is not None:
                phase_s[phase] += max(own_s, 0.0)
        phase_s[CompilePhase.OTHER] = max(0.0, seconds - sum(phase_s.values()))
        return {str(phase): phase_s[phase] for phase in CompilePhase if phase_s.get(phase)}


@dataclass
class CompileNotes:
    """The notes about one compile; ``key`` is that of the cache consulted first, None if none was computed."""

    key: CacheKey | None = None
    reason: str = ""
    times: Times = field(default_factory=Times)

    def compiled(self, seconds: float, answer: CacheAnswer) -> ArtifactCompile:
        """Return the record of the compile."""
        return ArtifactCompile(
            seconds=seconds,
            answer=answer,
            reason=_uncached_reason(answer, self.reason),
            phases=self.times.phases(seconds),
            pre_grad_passes=pre_grad_passes(),
            pre_grad_s=self.times.whole[_PRE_GRAD_EVENT],
        )


@contextlib.contextmanager
def noting_compile() -> Iterator[CompileNotes]:
    """A block around one compile that records notes about it; the compile lock must be held."""
    notes = CompileNotes()
    hash_of = codecache.FxGraphCachePickler.get_hash
    begin, end = dynamo_utils.ChromiumEventLogger.log_event_start, dynamo_utils.ChromiumEventLogger.log_event_end
    log_info, make_key = autograd_cache.log.info, autograd_cache.autograd_cache_key

    def hashing(pickler: Any, value: Any) -> str:
        digest = hash_of(pickler, value)
        if notes.key is None and isinstance(value, codecache.FxGraphHashDetails):
            notes.key = CacheKey(digest)  # hashing its parts calls this function again
            with contextlib.suppress(Exception):  # whatever torch may add to its keys, compiling goes on
                notes.key = CacheKey.of(digest, value, pickler)
        return digest

    def noting_start(logger: Any, event_name: str, time_ns: int, *args: Any, **kwargs: Any) -> Any:
        notes.times.begin(event_name, time_ns)
        return begin(logger, event_name, time_ns, *args, **kwargs)

    def noting_end(logger: Any, event_name: str, time_ns: int, *args: Any, **kwargs: Any) -> Any:
        notes.times.end(event_name, time_ns)
        return end(logger, event_name, time_ns, *args, **kwargs)

    def noting_reason(message: str, *args: Any, **kwargs: Any) -> None:
        if message in _REASON_MESSAGES and args:
            notes.reason = str(args[0])
        log_info(message, *args, **kwargs)

    def making_key(*args: Any, **kwargs: Any) -> Any:
        notes.times.begin("cache key", time.time_ns())
        try:
            return make_key(*args, **kwargs)
        finally:
            notes.times.end("cache key", time.time_ns())

    with (
        mock.patch.object(autograd_cache, "autograd_cache_key", making_key),
        mock.patch.object(codecache.FxGraphCachePickler, "get_hash", hashing),
        mock.patch.object(dynamo_utils.ChromiumEventLogger, "log_event_start", noting_start),
        mock.patch.object(dynamo_utils.ChromiumEventLogger, "log_event_end", noting_end),
        mock.patch.object(autograd_cache.log, "info", noting_reason),
    ):
        yield notes


def _uncached_reason(answer: CacheAnswer, note: str) -> str:
    if answer is CacheAnswer.OFF:
        if inductor_config.force_disable_caches:
            return "force_disable_caches is set"
        off = [
            name
            for name, on in (
                ("fx_graph_cache", inductor_config.fx_graph_cache),
                ("enable_autograd_cache", functorch_config.enable_autograd_cache),
            )
            if not on
        ]
        return f"{' and '.join(off)} {'is' if len(off) == 1 else 'are'} off" if off else "it was not consulted"
    if answer is CacheAnswer.BYPASS and "custom" in note and (passes := _passes_without_uuid()):
        return f"{note}: {passes} has no uuid(), so that a change cannot be detected; every compile starts from scratch"
    return note


def pre_grad_passes() -> str:
    """Return when passes before autograd run under the current config, and why."""
    resolve_timing = getattr(codecache, "resolve_pre_grad_pass_timing", None)
    try:
        timing = None if resolve_timing is None else resolve_timing()
    except RuntimeError as error:
        return str(error)
    if timing is None:
        return ""
    if timing == "late":
        return "after the look-up: skipped on a hit"
    passes = _passes_without_uuid(_CUSTOM_PASS_KEYS[:1])
    return f"before the look-up: on every compile{f', as {passes} has no uuid()' if passes else ''}"


def _passes_without_uuid(keys: tuple[str, ...] = _CUSTOM_PASS_KEYS) -> str:
    values = [getattr(inductor_config, key, None) for key in keys]
    passes = [fn for item in values for fn in (item if isinstance(item, (list, tuple)) else [item]) if fn is not None]
    without_uuid = (fn for fn in passes if not (isinstance(fn, custom_graph_pass.CustomGraphPass) and fn.uuid()))
    return ", ".join(str(getattr(fn, "__qualname__", None) or type(fn).__qualname__) for fn in without_uuid)
