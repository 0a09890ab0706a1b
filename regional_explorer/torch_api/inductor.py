"""Compiles one partition, and reads back its code, phases and the caches' answer."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import inspect
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self
from unittest import mock

import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
import torch.compiler.config as compiler_config
from msgspec.structs import replace
from torch import fx
from torch._dynamo import utils as dynamo_utils
from torch._dynamo.utils import counters
from torch._functorch._aot_autograd import autograd_cache
from torch._guards import TracingContext, tracing
from torch._inductor import codecache, cpp_builder, custom_graph_pass
from torch._inductor.cpu_vec_isa import pick_vec_isa
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime.cache_dir_utils import cache_dir
from torch._inductor.utils import fresh_cache
from torch.utils._python_dispatch import _disable_current_modes

from regional_explorer.errors import CompileEnvironmentError, NoCompilerError, RegionCompileError
from regional_explorer.record.artifact import ArtifactCompile, CacheAnswer, CompilePhase
from regional_explorer.record.tracing import Prepared
from regional_explorer.torch_api.builds import Builds
from regional_explorer.torch_api.cheap_calls import without_wrapper
from regional_explorer.torch_api.compile_lock import compile_lock
from regional_explorer.torch_api.compile_warnings import recording_warnings
from regional_explorer.torch_api.frozen import UNCACHED, Constants, without_constants
from regional_explorer.torch_api.graphs import BoxedCall, bodies, fake_mode_with_symbols, is_carved, outside_autocast
from regional_explorer.torch_api.patterns import counting_patterns
from regional_explorer.torch_api.prepared import (
    InductorGraph,
    frozen_as_it_is,
    is_lowered_as_it_is,
    lower_as_it_is,
)
from regional_explorer.torch_api.shipping import Packed, pack_artifact, unpack
from regional_explorer.torch_api.torch_config import changed_config, read_config

if TYPE_CHECKING:
    from torch._subclasses import FakeTensorMode


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
    """Sums this thread's time in each of torch's events, without nested events (``own``) and with (``whole``)."""

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

    ``reason`` is why a cache was bypassed, ``warned`` what Inductor warned of, ``matched`` the patterns that matched.
    """

    reason: str = ""
    times: Times = field(default_factory=Times)
    warned: Iterable[str] = ()
    matched: Mapping[str, int] = field(default_factory=dict)

    def compiled(self, seconds: float, answers: CacheAnswers) -> ArtifactCompile:
        """Return the record of the compile; ``answers`` are the counts before it."""
        answer = answers.answer()
        return ArtifactCompile(
            seconds=seconds,
            answer=answer,
            reason=_uncached_reason(answer, self.reason),
            phases=self.times.phases(seconds),
            pre_grad_passes=pre_grad_passes(),
            pre_grad_s=self.times.whole[_PRE_GRAD_EVENT],
            warnings=tuple(self.warned),
            patterns=answers.if_nothing_cached(self.matched),
        )


@contextlib.contextmanager
def noting_compile() -> Iterator[CompileNotes]:
    """Context manager around one compile: record notes about it; the compile lock must be held."""
    notes, events = CompileNotes(), dynamo_utils.ChromiumEventLogger
    make_key = autograd_cache.autograd_cache_key

    def noting(note: Callable[[str, int], None], log_event: Callable[..., Any]) -> Callable[..., Any]:
        def noting_event(logger: Any, event_name: str, time_ns: int, *args: Any, **kwargs: Any) -> Any:
            note(event_name, time_ns)
            return log_event(logger, event_name, time_ns, *args, **kwargs)

        return noting_event

    def noting_reason(log_info: Callable[..., None]) -> Callable[..., None]:
        def noting_message(message: str, *args: Any, **kwargs: Any) -> None:
            if message in _REASON_MESSAGES and args:
                notes.reason = str(args[0])
            log_info(message, *args, **kwargs)

        return noting_message

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
        mock.patch.object(events, "log_event_start", noting(notes.times.begin, events.log_event_start)),
        mock.patch.object(events, "log_event_end", noting(notes.times.end, events.log_event_end)),
        mock.patch.object(autograd_cache.log, "info", noting_reason(autograd_cache.log.info)),
        mock.patch.object(codecache.log, "info", noting_reason(codecache.log.info)),
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


_WORST_FIRST = (CacheAnswer.BYPASS, CacheAnswer.MISS, CacheAnswer.HIT)


@dataclass(frozen=True)
class CacheAnswers:
    """How often AOTAutograd's cache, and Inductor's cache behind it, have returned each answer."""

    aot: Counter[CacheAnswer]
    inductor: Counter[CacheAnswer]

    @classmethod
    def now(cls) -> Self:
        """Return the current counts."""
        aot, inductor = counters["aot_autograd"], counters["inductor"]
        return cls(
            Counter({answer: int(aot[f"autograd_cache_{answer}"]) for answer in _WORST_FIRST}),
            Counter({answer: int(inductor[f"fxgraph_cache_{answer}"]) for answer in _WORST_FIRST}),
        )

    def answer(self) -> CacheAnswer:
        """Return the worst answer since these counts, of Inductor's cache if AOTAutograd's was not consulted."""
        answers = (answer for counts in self._new_counts() for answer in _WORST_FIRST if counts[answer])
        return next(answers, CacheAnswer.OFF)

    def since(self) -> str:
        """Return ``warm`` if everything compiled since these counts came from the caches, else ``cold``."""
        aot, inductor = self._new_counts()
        missed = inductor[CacheAnswer.BYPASS] or inductor[CacheAnswer.MISS]
        return "warm" if (aot[CacheAnswer.HIT] or inductor[CacheAnswer.HIT]) and not missed else "cold"

    def if_nothing_cached(self, matched: Mapping[str, int]) -> dict[str, int] | None:
        """Return the patterns that have matched since these counts; None if passes were skipped for cached code."""
        return None if any(counts[CacheAnswer.HIT] for counts in self._new_counts()) else dict(matched)

    def _new_counts(self) -> tuple[Counter[CacheAnswer], Counter[CacheAnswer]]:
        now = CacheAnswers.now()
        return now.aot - self.aot, now.inductor - self.inductor


@contextlib.contextmanager
def empty_caches() -> Iterator[None]:
    """Context manager: Inductor's caches are empty, in memory and on disk, and keep nothing on disk from the block.

    What all compiles share, such as precompiled headers, is in another directory and stays.

    Raises:
        CompileEnvironmentError: an empty cache directory cannot be created.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(fresh_cache())
        except OSError as error:
            raise CompileEnvironmentError(f"No empty cache directory can be made: {error}.") from error
        yield


_REMATERIALISATION = "remat_using_tags_for_fwd_loss_bwd_graph"


@dataclass(frozen=True)
class Compiled:
    """The result of one run of Inductor over one piece.

    ``config`` maps every requested key to the value read inside the compile, at the moment code was produced or loaded;
    it is None if that moment never came. ``made`` has the time and the caches' answer. ``pack`` serializes it to be
    saved. ``call`` can be used after ``finished``, which waits for the ``builds``; ``build`` is their command.
    ``constants`` are those of frozen code.
    """

    call: BoxedCall
    code: str
    config: Mapping[str, Any] | None
    made: ArtifactCompile
    pack: Callable[[], Packed]
    builds: Builds = field(default_factory=lambda: Builds({}))
    build: str = ""
    constants: Constants | None = None

    def finished(self) -> Compiled:
        """Wait for the builds; the result knows how long they took.

        Raises:
            RegionCompileError: one of them failed; the text is the C++ compiler's, trimmed.
        """
        with compile_lock():
            try:
                build_s = self.builds.load()
            except Exception as error:
                raise _compile_error(error) from error
        phases = {**self.made.phases, str(CompilePhase.BUILD): self.made.phases.get(CompilePhase.BUILD, 0.0) + build_s}
        return dataclasses.replace(self, made=replace(self.made, seconds=self.made.seconds + build_s, phases=phases))


def start_compile(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    mode: FakeTensorMode,
    config: Mapping[str, Any],
    prepared: Prepared | None = None,
) -> Compiled:
    """Run Inductor over ``gm`` with fake ``inputs`` of ``mode``, under ``config`` only; do not wait for its builds.

    ``prepared`` is what the trace has done with the graph. Inductor does not take the compile lock by itself; waiting
    for it is not part of the time.

    Raises:
        NoCompilerError: there is no working C++ compiler.
        RegionCompileError: Inductor failed; the text is its own, trimmed.
    """
    builds = Builds(config)

    def lower(at_code: Callable[[str], None]) -> Any:
        with builds.put_off():
            return run_inductor(gm, inputs, mode, config, at_code, prepared)

    with compile_lock():
        compiled = _noted_compile(lower, gm, config)
        return dataclasses.replace(compiled, builds=builds, build=build_command(compiled.code, config))


def compile_piece(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    mode: FakeTensorMode,
    config: Mapping[str, Any],
    prepared: Prepared | None = None,
) -> Compiled:
    """Run Inductor over ``gm`` as ``start_compile`` does, and wait for the builds.

    Raises:
        NoCompilerError: there is no working C++ compiler.
        RegionCompileError: Inductor failed; the text is its own, trimmed.
    """
    return start_compile(gm, inputs, mode, config, prepared).finished()


def load_compiled(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    mode: FakeTensorMode,
    config: Mapping[str, Any],
    prepared: Prepared | None,
    code: bytes,
    libraries: Mapping[str, Path],
) -> Compiled:
    """Load the artifact that ``start_compile`` would make, and that was packed elsewhere, without a compiler.

    This runs its code. Constants are folded and packed again: they are not in the artifact.

    Raises:
        ShipmentError: it cannot be loaded.
    """

    def load(at_code: Callable[[str], None]) -> Any:
        with _compile_context(config, mode, at_code):
            frozen = None
            if prepared is not None and prepared.frozen and is_lowered_as_it_is(gm, config):
                frozen = frozen_as_it_is(gm, inputs, mode, prepared)
            return unpack(code, libraries, frozen)

    with compile_lock():
        loaded = _noted_compile(load, gm, config)
    return dataclasses.replace(loaded, made=replace(loaded.made, answer=CacheAnswer.SHIPPED, reason=""))


def _noted_compile(
    make: Callable[[Callable[[str], None]], Any], gm: fx.GraphModule, config: Mapping[str, Any]
) -> Compiled:
    configs: list[dict[str, Any]] = []
    codes: list[str] = []

    def at_code(code: str) -> None:
        configs.append(read_config(config))
        codes.append(code)

    answers = CacheAnswers.now()
    with noting_compile() as notes:
        started = time.perf_counter()
        artifact = make(at_code)
        seconds = time.perf_counter() - started
    with inductor_config.patch(dict(config)):
        record = notes.compiled(seconds, answers)
    settings = {**changed_config(), **config}
    is_as_it_is = isinstance(artifact, InductorGraph)
    if is_as_it_is:  # which comes after those passes
        record = replace(record, pre_grad_passes="", reason=UNCACHED if artifact.frozen else record.reason)

    def pack() -> Packed:
        with compile_lock(), _compile_context({}, fake_mode_with_symbols(), lambda _code: None):
            return pack_artifact(artifact, settings)

    return Compiled(
        call=artifact.call if is_as_it_is else _cheapest_call(artifact, gm),
        code="\n".join(codes),
        config=configs[-1] if configs else None,
        made=record,
        pack=pack,
        constants=artifact.constants if is_as_it_is else None,
    )


def run_inductor(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    mode: FakeTensorMode,
    config: Mapping[str, Any],
    at_code: Callable[[str], None],
    prepared: Prepared | None = None,
) -> Any:
    """Return Inductor's compiled ``gm`` under ``config``; ``at_code`` is called with the code.

    The result is an ``InductorGraph`` if the piece is lowered as it is, else that of ``standalone_compile``.

    Raises:
        NoCompilerError: there is no working C++ compiler.
        RegionCompileError: Inductor failed; the text is its own, trimmed.
    """
    try:
        with (
            _compile_context(config, mode, at_code),
            compiler_config.patch(cache_key_tag=compiler_config.cache_key_tag + _carved_names(gm)),  # type: ignore[attr-defined]  # made at import
        ):
            if prepared is not None and is_lowered_as_it_is(gm, config):
                return lower_as_it_is(gm, inputs, mode, prepared)
            fakes = without_constants(gm, inputs)
            return torch._inductor.standalone_compile(gm, fakes, dynamic_shapes="from_tracing_context", aot=True)
    except Exception as error:
        raise _compile_error(error) from error


@contextlib.contextmanager
def _compile_context(config: Mapping[str, Any], mode: FakeTensorMode, at_code: Callable[[str], None]) -> Iterator[None]:
    """Context manager: compile or load a piece under ``config``, independently of the surrounding code."""
    with (
        torch.fx.traceback.preserve_node_meta(enable=False),
        inductor_config.patch(dict(config)),
        # Graph rematerialisation ran before the pieces were cut and must not run again (pytorch #180251).
        functorch_config.patch({_REMATERIALISATION: False} if hasattr(functorch_config, _REMATERIALISATION) else {}),
        mock.patch.object(GraphLowering, "save_output_code", staticmethod(at_code)),
        tracing(TracingContext(mode)),
        # So that AOTAutograd can trace while a compiled graph is running. In training, it runs a graph for the first
        # time under a dispatch mode of its own, which checks what custom ops return (_AnalyzeCustomOpInputOutputMode,
        # torch 2.13); a trace inside it ends in "Attempting to use FunctionalTensor on its own": docs/upstream.md. The
        # user may have such modes open too, or inference mode.
        torch.inference_mode(mode=False),
        _disable_current_modes(),
        # AOTAutograd would add its casts to the graph, which has those of its call already.
        outside_autocast(),
        torch.no_grad(),
    ):
        yield


def _cheapest_call(artifact: Any, gm: fx.GraphModule) -> BoxedCall:
    """Return the cheapest call of an artifact of ``standalone_compile``, without wrappers that pass arguments on."""
    wrapped = getattr(getattr(artifact, "inner_fn", None), "compiled_fn", artifact)
    return without_wrapper(wrapped, gm) or _boxed_call(wrapped)


def _boxed_call(call: Callable[..., Any]) -> BoxedCall:
    """Return ``call`` as a function of one argument list, which it empties.

    AOTAutograd compiles such a function, and wraps it into one that takes its arguments one by one and so keeps them
    alive until it returns (as torch 2.13 says in ``aot_module_simplified``). The wrapped function is called instead.
    """
    entry = getattr(call, "_torchdynamo_orig_callable", call)
    inner: BoxedCall | None = getattr(entry, "__wrapped__", None)
    constants = inspect.getclosurevars(entry).nonlocals.get("params_buffers_flat") if inner else None
    if inner is None or constants is None or not getattr(inner, "_boxed_call", False):

        def unboxed(args: list[Any]) -> Any:
            arguments = tuple(args)
            args.clear()
            return call(*arguments)

        return unboxed

    def with_constants(args: list[Any]) -> Any:
        arguments = [*constants, *args]
        args.clear()
        return inner(arguments)

    return with_constants if constants else inner


def _carved_names(gm: fx.GraphModule) -> str:
    """Return the names of the ops of ``gm`` that are carved out, as text for the cache key; empty if there are none.

    The keys of Inductor's caches leave out node metadata (torch 2.13 and 2.15, docs/upstream.md): without this, a piece
    with carved ops would get the code of the same piece without.
    """
    names = [node.name for node in gm.graph.nodes if is_carved(node)]
    in_bodies = [f"{node.name}({text})" for node, body in bodies(gm) if (text := _carved_names(body))]
    return ",".join((*names, *in_bodies))


def _compile_error(error: Exception) -> RegionCompileError:
    text = f"{type(error).__name__}: {error}"
    if "InvalidCxxCompiler" in text or ("FileNotFoundError" in text and "'g++'" in text):
        return NoCompilerError(NO_COMPILER)
    if (cause := _environment_error(error)) is not None:
        return CompileEnvironmentError(
            f"Inductor could not work on this machine: {type(cause).__name__}: {cause}. Its cache directory is "
            f"{os.environ.get('TORCHINDUCTOR_CACHE_DIR') or 'below ' + tempfile.gettempdir()}: make room, or set "
            "TORCHINDUCTOR_CACHE_DIR to a directory that can be written; the next compile then tries again."
        )
    lines = [line for line in str(error).splitlines() if line.strip()]
    excerpt = "\n".join(lines[:12]) + ("\n…" if len(lines) > 12 else "")  # noqa: PLR2004 - lines shown
    return RegionCompileError(f"Inductor raised {type(error).__name__}: {excerpt}")


def _environment_error(error: BaseException | None) -> BaseException | None:
    """Return the operating system's error among an error and its causes, or None."""
    while error is not None:
        disk_full = "No space left on device" in str(error)  # from the C++ compiler: there is only its output
        if disk_full or isinstance(error, MemoryError | OSError):
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if disk_full else error
        error = error.__cause__ or getattr(error, "inner_exception", None)  # an InductorError has no cause
    return None


INSTALL_COMPILER = (
    "Install one (Debian/Ubuntu: `apt-get install g++`, conda: `conda install cxx-compiler`, "
    "macOS: `xcode-select --install`) or set CXX to its path."
)
NO_COMPILER = (
    f"Inductor needs a C++ compiler for CPU code and found none. {INSTALL_COMPILER} Capture, drawing "
    "and eager timings work without one."
)


def cxx_compiler() -> str | None:
    """Return the path of the C++ compiler that Inductor would find by its config ``cpp.cxx``, or None."""
    candidates = inductor_config.cpp.cxx
    names = candidates if isinstance(candidates, (tuple, list)) else (candidates,)
    return next((path for name in names if name and (path := shutil.which(str(name)))), None)


def build_command(code: str, config: Mapping[str, Any]) -> str:
    """Return the command by which Inductor compiles the C++ in generated code under ``config``; empty without any."""
    if "#include" not in code:
        return ""
    with inductor_config.patch(dict(config)):
        options = cpp_builder.CppTorchOptions(vec_isa=pick_vec_isa())
        return str(cpp_builder.CppBuilder("o", "i", options).get_command_line())


def inductor_cache_directory() -> str:
    """Return the directory of Inductor's caches."""
    return str(cache_dir())


def compiler_version() -> str | None:
    """Return the first line of ``--version`` of Inductor's C++ compiler; None if none can be run."""
    try:
        done = subprocess.run([cpp_builder.get_cpp_compiler(), "--version"], capture_output=True, text=True, check=True)  # noqa: S603 - the compiler that Inductor itself would run
    except Exception:  # noqa: BLE001 - Inductor raises errors of its own if it finds none
        return None
    return done.stdout.partition("\n")[0]


def probe_instruction_set() -> None:
    """Have Inductor detect the vector instructions of this CPU; it caches them for the rest of the process."""
    if cxx_compiler() is not None:
        pick_vec_isa()


def load_code(text: str, config: Mapping[str, Any], names: Mapping[str, Any]) -> ModuleType:
    """Return the module of generated code, with ``names`` as extra globals.

    Its kernels are compiled under ``config``, or found in Inductor's cache.
    """
    with inductor_config.patch(dict(config)):
        key, path = codecache.PyCodeCache.write(text)
        return codecache.PyCodeCache.load_by_key_path(key, path, attrs=dict(names))
