"""Records what Inductor reports during a compile: warnings, matched patterns, its phases, and what its caches had."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import getclosurevars, isfunction
from typing import Any, Self
from unittest import mock

import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch._dynamo import utils as dynamo_utils
from torch._dynamo.utils import counters
from torch._functorch._aot_autograd import autograd_cache
from torch._inductor import codecache, custom_graph_pass, pattern_matcher

from regional_explorer.record.artifact import ArtifactCompile, CacheResult, CompilePhase

INDUCTOR = "torch._inductor"
_SHOWN: set[str] = set()
"""The warnings that were shown to the user."""


class _Recorder(logging.Handler):
    """Records each warning of this thread once, whether given by ``warnings`` or ``logging``."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._thread = threading.get_ident()
        self.texts: dict[str, None] = {}

    def add(self, text: str) -> None:
        """Record the text of a warning, on one line."""
        if threading.get_ident() == self._thread:
            self.texts.setdefault(" ".join(text.split()))

    def emit(self, record: logging.LogRecord) -> None:
        """Record the message of a log record."""
        self.add(record.getMessage())


@contextlib.contextmanager
def recording_warnings() -> Iterator[dict[str, None]]:
    """Context manager around a compile: record Inductor's warnings; the compile lock must be held.

    Users see each warning once per process, as without this block.
    """
    recorder, warn, logger = _Recorder(), warnings.warn, logging.getLogger(INDUCTOR)

    def recording_warn(
        message: str | Warning, category: type[Warning] | None = None, stacklevel: int = 1, *args: Any, **kwargs: Any
    ) -> None:
        by_inductor = sys._getframe(1).f_globals.get("__name__", "").startswith(INDUCTOR)
        if by_inductor:
            recorder.add(str(message))
        if not by_inductor or str(message) not in _SHOWN:
            warn(message, category, stacklevel + 1, *args, **kwargs)
        if by_inductor:
            _SHOWN.add(str(message))

    _forget_warned()
    logger.addHandler(recorder)
    try:
        with mock.patch.object(warnings, "warn", recording_warn):
            yield recorder.texts
    finally:
        logger.removeHandler(recorder)


def _forget_warned() -> None:
    """Let Inductor repeat warnings that it gives once per process, because they may be about another region now.

    Such warnings are in cached functions, ``_warn_complex_not_supported`` of ``lowering`` for one (torch 2.11 to 2.15).
    """
    # Copies, because other threads may import meanwhile.
    modules = [module for name, module in sys.modules.copy().items() if name.startswith(INDUCTOR)]
    for function in (fn for module in modules for name, fn in vars(module).copy().items() if name.startswith("_warn")):
        if hasattr(function, "cache_clear"):
            function.cache_clear()


# ---------------------------------------------------------------------------------------------------- matched patterns


_KINDS = (
    pattern_matcher.LoweringPatternEntry,
    pattern_matcher.GraphPatternEntry,
    pattern_matcher.ReplacementPatternEntry,
)


@contextlib.contextmanager
def counting_patterns() -> Iterator[Counter[str]]:
    """Context manager: count each match in the block; the compile lock must be held.

    Torch's own counts by name need an environment variable, and torch 2.11 has none.
    """
    matched: Counter[str] = Counter()

    def counting(apply: Callable[..., None]) -> Callable[..., None]:
        def counted_apply(entry: Any, *args: Any, **kwargs: Any) -> None:
            matched[_name(entry)] += 1
            apply(entry, *args, **kwargs)

        return counted_apply

    with contextlib.ExitStack() as patches:
        for kind in _KINDS:
            patches.enter_context(mock.patch.object(kind, "apply", counting(kind.apply)))
        yield matched


def _name(entry: Any) -> str:
    """Return the name of the function that a pattern was traced from, else of the function that replaces its matches.

    The first name stands in the closure of the check; ``pattern_name`` (torch 2.13) differs for each dtype and mode.
    """
    check, function = entry.extra_check, getattr(entry, "handler", None)
    if function is None and isfunction(check):
        function = getclosurevars(check).nonlocals.get("search_fn")
    return str(getattr(function, "__name__", None) or type(entry.pattern).__name__)


# ------------------------------------------------------------------------------- phases, and the results of the caches


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
"""Phases by the prefixes of torch's event names, and of one event of ours; the first matching prefix counts."""

_PRE_GRAD_EVENT = "_recursive_pre_grad_passes"
_REASON_MESSAGES = (
    "Bypassing autograd cache due to: %s",
    "AOTAutograd cache unable to load compiled graph: %s",
    "Bypassing FX Graph Cache because '%s'",
)
_CUSTOM_PASS_KEYS = (
    "pre_grad_custom_pass",
    "post_grad_custom_pre_pass",
    "post_grad_custom_post_pass",
    "joint_custom_pre_pass",
    "joint_custom_post_pass",
)


class Times:
    """Sums this thread's time in each of torch's events, without nested events (``own``) and with them (``whole``)."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._open_events: list[tuple[str, int]] = []
        self.own: dict[str, float] = defaultdict(float)
        self.whole: dict[str, float] = defaultdict(float)

    def begin(self, name: str, time_ns: int) -> None:
        """Record the start of an event."""
        if threading.get_ident() == self._thread:
            self._open_events.append((name, time_ns))

    def end(self, name: str, time_ns: int) -> None:
        """Record the end of an event, and of nested ones that are still open."""
        if threading.get_ident() != self._thread or all(name != event for event, _ in self._open_events):
            return
        while self._open_events:
            ended, began_ns = self._open_events.pop()
            took_s = (time_ns - began_ns) / 1e9
            self.own[ended] += took_s
            self.whole[ended] += took_s
            if self._open_events:
                self.own[self._open_events[-1][0]] -= took_s
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
    """The notes about one compile.

    ``reason`` is why a cache was bypassed, ``warned`` are Inductor's warnings, ``matched`` the patterns that matched.
    """

    reason: str = ""
    times: Times = field(default_factory=Times)
    warned: Iterable[str] = ()
    matched: Mapping[str, int] = field(default_factory=dict)

    def record(self, seconds: float, counts: CacheCounts) -> ArtifactCompile:
        """Return the record of the compile; ``counts`` are those of the caches before it."""
        result = counts.result()
        return ArtifactCompile(
            seconds=seconds,
            answer=result,
            reason=_uncached_reason(result, self.reason),
            phases=self.times.phases(seconds),
            pre_grad_passes=pre_grad_passes(),
            pre_grad_s=self.times.whole[_PRE_GRAD_EVENT],
            warnings=tuple(self.warned),
            patterns=counts.if_nothing_cached(self.matched),
        )


@contextlib.contextmanager
def recording_compile() -> Iterator[CompileNotes]:
    """Context manager around one compile: record notes about it; the compile lock must be held."""
    notes, events = CompileNotes(), dynamo_utils.ChromiumEventLogger
    make_key = autograd_cache.autograd_cache_key

    def recording(record: Callable[[str, int], None], log_event: Callable[..., Any]) -> Callable[..., Any]:
        def recording_event(logger: Any, event_name: str, time_ns: int, *args: Any, **kwargs: Any) -> Any:
            record(event_name, time_ns)
            return log_event(logger, event_name, time_ns, *args, **kwargs)

        return recording_event

    def recording_reason(log_info: Callable[..., None]) -> Callable[..., None]:
        def recording_message(message: str, *args: Any, **kwargs: Any) -> None:
            if message in _REASON_MESSAGES and args:
                notes.reason = str(args[0])
            log_info(message, *args, **kwargs)

        return recording_message

    def making_key(*args: Any, **kwargs: Any) -> Any:
        notes.times.begin("cache key", time.time_ns())
        try:
            return make_key(*args, **kwargs)
        finally:
            notes.times.end("cache key", time.time_ns())

    with (
        recording_warnings() as notes.warned,
        counting_patterns() as notes.matched,
        mock.patch.object(autograd_cache, "autograd_cache_key", making_key),
        mock.patch.object(events, "log_event_start", recording(notes.times.begin, events.log_event_start)),
        mock.patch.object(events, "log_event_end", recording(notes.times.end, events.log_event_end)),
        mock.patch.object(autograd_cache.log, "info", recording_reason(autograd_cache.log.info)),
        mock.patch.object(codecache.log, "info", recording_reason(codecache.log.info)),
    ):
        yield notes


def _uncached_reason(result: CacheResult, note: str) -> str:
    if result is CacheResult.OFF:
        if inductor_config.force_disable_caches:
            return "force_disable_caches is set"
        off = [
            name
            for name, is_on in (
                ("fx_graph_cache", inductor_config.fx_graph_cache),
                ("enable_autograd_cache", functorch_config.enable_autograd_cache),
            )
            if not is_on
        ]
        return f"{' and '.join(off)} {'is' if len(off) == 1 else 'are'} off" if off else "it was not consulted"
    if result is CacheResult.BYPASS and "custom" in note and (passes := _passes_without_uuid()):
        return f"{note}: {passes} has no uuid(), so that a change cannot be detected; every compile starts from scratch"
    return note


def pre_grad_passes() -> str:
    """Return when passes before autograd run under the current config, and why."""
    try:
        timing = getattr(codecache, "resolve_pre_grad_pass_timing", lambda: None)()
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


_WORST_FIRST = (CacheResult.BYPASS, CacheResult.MISS, CacheResult.HIT)


@dataclass(frozen=True)
class CacheCounts:
    """How often AOTAutograd's cache, and Inductor's cache behind it, have given each result."""

    aot: Counter[CacheResult]
    inductor: Counter[CacheResult]

    @classmethod
    def now(cls) -> Self:
        """Return the current counts."""
        aot, inductor = counters["aot_autograd"], counters["inductor"]
        return cls(
            Counter({result: int(aot[f"autograd_cache_{result}"]) for result in _WORST_FIRST}),
            Counter({result: int(inductor[f"fxgraph_cache_{result}"]) for result in _WORST_FIRST}),
        )

    def result(self) -> CacheResult:
        """Return the worst result since these counts: of AOTAutograd's cache, or else of Inductor's."""
        results = (result for counts in self._new_counts() for result in _WORST_FIRST if counts[result])
        return next(results, CacheResult.OFF)

    def warm_or_cold(self) -> str:
        """Return ``warm`` if everything compiled since these counts came from the caches, else ``cold``."""
        aot, inductor = self._new_counts()
        missed = inductor[CacheResult.BYPASS] or inductor[CacheResult.MISS]
        return "warm" if (aot[CacheResult.HIT] or inductor[CacheResult.HIT]) and not missed else "cold"

    def if_nothing_cached(self, matched: Mapping[str, int]) -> dict[str, int] | None:
        """Return the patterns that have matched since these counts; None if passes were skipped for cached code."""
        return None if any(counts[CacheResult.HIT] for counts in self._new_counts()) else dict(matched)

    def _new_counts(self) -> tuple[Counter[CacheResult], Counter[CacheResult]]:
        current = CacheCounts.now()
        return current.aot - self.aot, current.inductor - self.inductor
