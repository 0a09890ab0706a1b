"""Compiles one partition with Inductor, and loads and builds its code."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import errno
import functools
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn
from unittest import mock

import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
import torch.compiler.config as compiler_config
from msgspec.structs import replace
from torch import fx
from torch._guards import TracingContext, tracing
from torch._inductor import codecache, cpp_builder
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.cpu_vec_isa import pick_vec_isa
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime.cache_dir_utils import cache_dir
from torch._inductor.utils import fresh_cache
from torch.utils._python_dispatch import _disable_current_modes

from regional_explorer.errors import CompileEnvironmentError, NoCompilerError, RegionCompileError
from regional_explorer.record.artifact import ArtifactCompile, CacheResult, CompilePhase
from regional_explorer.record.plan import Preparation
from regional_explorer.torch_api.cheap_calls import without_wrapper
from regional_explorer.torch_api.compile_lock import compile_lock
from regional_explorer.torch_api.compile_notes import CacheCounts, recording_compile
from regional_explorer.torch_api.graphs import BoxedCall, bodies, fake_mode_with_symbols, is_carved, outside_autocast
from regional_explorer.torch_api.prepared import (
    UNCACHED,
    Constants,
    InductorGraph,
    frozen_as_it_is,
    is_lowered_as_it_is,
    lower_as_it_is,
    without_constants,
)
from regional_explorer.torch_api.shipping import PackedCode, pack_artifact, unpack
from regional_explorer.torch_api.torch_config import changed_config, read_config

if TYPE_CHECKING:
    from torch._subclasses import FakeTensorMode


POLL_S = 0.1
"""Seconds between checks whether a wait was cancelled."""


class Builds:
    """The builds that the generated modules of one compile under ``config`` start.

    A module starts its builds when it is loaded, and then waits for them. In the block ``put_off`` it does not wait:
    ``load`` waits later, and only then the module can be called.
    """

    def __init__(self, config: Mapping[str, Any], lowered: tuple[float, float] = (0.0, 0.0)) -> None:
        self._config = dict(config)
        self._waits: list[Callable[[], None]] = []
        self._futures: list[Future[Any]] = []
        self._spans: list[tuple[float, float]] = []
        self._lowered, self._loading = lowered, (0.0, 0.0)
        self._is_abandoned = self._is_incomplete = False

    @contextlib.contextmanager
    def put_off(self) -> Iterator[None]:
        """Context manager around the lowering: modules do not wait for their builds; hold the compile lock."""
        wait, submit = AsyncCompile.wait, AsyncCompile.submit

        def wait_later(compiler: AsyncCompile, scope: dict[str, Any]) -> None:
            if "__file__" not in scope:  # it is no module, but code that tunes kernels and calls them at once
                wait(compiler, scope)
                return
            self._waits.append(functools.partial(wait, compiler, scope))
            futures = (getattr(value, "future", value) for value in scope.values())
            self._futures += [future for future in futures if isinstance(future, Future)]

        def submit_build(_class: type, task: Callable[[], Any]) -> Any:
            if getattr(task, "func", None) is not codecache._worker_compile_cpp:
                return submit(task)
            future = submit(functools.partial(self._build, task))
            if isinstance(future, Future):  # with one compile thread the task is done by now
                self._futures.append(future)
            return future

        began = time.perf_counter()
        with (
            mock.patch.object(AsyncCompile, "wait", wait_later),
            mock.patch.object(AsyncCompile, "submit", classmethod(submit_build)),
            # A module is loaded again if another compile loaded it, because that compile may not have waited for it.
            mock.patch.object(codecache.PyCodeCache, "modules_no_attr", {}),
        ):
            yield
        self._lowered = began, time.perf_counter()

    def _build(self, task: Callable[[], Any]) -> None:
        """Build a kernel, on a thread of Inductor's.

        Loading the kernel repeats the task, which then finishes the work or raises the same error. Inductor keeps the
        result of a task for the rest of the process, even an error that an interrupt has caused.
        """
        if self._is_abandoned:
            self._is_incomplete = True
            return
        began = time.perf_counter()
        try:
            task()
        except Exception:  # noqa: BLE001 - raised again when the kernel is loaded
            self._is_incomplete = True
        self._spans.append((began, time.perf_counter()))

    @property
    def are_over(self) -> bool:
        """Whether no build is running or waiting."""
        return all(future.done() for future in self._futures)

    @property
    def are_complete(self) -> bool:
        """Whether everything is built."""
        return self.are_over and not self._is_incomplete

    def wait(self, cancelled: Callable[[], bool]) -> bool:
        """Wait until all builds are over; return False if cancelled meanwhile."""
        while not self.are_over:
            if cancelled():
                return False
            concurrent.futures.wait(self._futures, POLL_S)
        return True

    def abandon(self) -> None:
        """Skip the builds that have not begun."""
        self._is_abandoned = True

    def load(self) -> float:
        """Wait for the builds and load them; return the seconds of building and loading besides the lowering.

        They are the seconds of this compile alone, without those in which its builds wait for others. Hold the compile
        lock. Zero if it was loaded before.

        Raises:
            Exception: a build failed.
        """
        if not self._waits:
            return 0.0
        began = time.perf_counter()
        with inductor_config.patch(self._config):
            for wait in self._waits:
                wait()
        self._waits.clear()
        self._loading = max([began, *(end for _, end in self._spans)]), time.perf_counter()
        return covered_s(self.spans) - covered_s([self._lowered])

    @property
    def spans(self) -> Sequence[tuple[float, float]]:
        """The spans of time of lowering, building and loading, each with its beginning and end."""
        return self._lowered, *self._spans, self._loading


def covered_s(spans: Iterable[tuple[float, float]]) -> float:
    """Return the seconds covered by at least one of the spans, each given by its beginning and end."""
    total, until = 0.0, 0.0
    for began, ended in sorted(spans):
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total


# ------------------------------------------------------------------------------------------------------------ compiles


@contextlib.contextmanager
def without_autotune_reports() -> Iterator[None]:
    """Context manager: suppress the tables that ``max_autotune`` writes to stderr, one for each product."""
    from torch._inductor import select_algorithm  # a slow import, which only a compile needs

    with (
        mock.patch.object(select_algorithm, "PRINT_AUTOTUNE", new=False),
        mock.patch.object(select_algorithm, "_log_autotune_choices_stats", lambda *_: None),
    ):
        yield


@contextlib.contextmanager
def empty_caches() -> Iterator[None]:
    """Context manager: Inductor's caches are empty, in memory and on disk, and keep nothing on disk from the block.

    Files that all compiles share, such as precompiled headers, are in another directory and stay.

    Raises:
        CompileEnvironmentError: an empty cache directory cannot be created.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(fresh_cache())
        except OSError as error:
            raise CompileEnvironmentError(f"No empty cache directory can be made: {error}.") from error
        yield


def can_compile_in_copy() -> bool:
    """Return whether a copy of this process, made by ``fork``, can compile: on Linux, unless a GPU is in use."""
    return sys.platform == "linux" and not torch.cuda.is_initialized()


def forget_compile_threads() -> None:
    """Have Inductor start its threads again: in a copy of a process they do not run."""
    AsyncCompile.pool.cache_clear()


_REMATERIALISATION = "remat_using_tags_for_fwd_loss_bwd_graph"


@dataclass(frozen=True)
class CompileOutput:
    """The result of one run of Inductor over one piece.

    ``config`` maps every requested key to the value read inside the compile, at the moment code was produced or loaded;
    None if the compile never came that far. ``made`` has the time and what the caches had. ``pack`` serializes the code
    to be saved. ``call`` can be used after ``finished``, which waits for the ``builds``; ``build`` is their command.
    ``constants`` are those of frozen code.
    """

    call: BoxedCall
    code: str
    config: Mapping[str, Any] | None
    made: ArtifactCompile
    pack: Callable[[], PackedCode]
    builds: Builds = field(default_factory=lambda: Builds({}))
    build: str = ""
    constants: Constants | None = None

    def finished(self) -> CompileOutput:
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
    prepared: Preparation | None = None,
) -> CompileOutput:
    """Run Inductor over ``gm`` with fake ``inputs`` of ``mode``, under ``config`` only; do not wait for its builds.

    ``prepared`` is what the trace has done with the graph. Inductor does not take the compile lock by itself; waiting
    for the lock is not part of the time.
    """
    builds = Builds(config)

    def lower(at_code: Callable[[str], None]) -> Any:
        with builds.put_off():
            return run_inductor(gm, inputs, mode, config, at_code, prepared)

    with compile_lock():
        compiled = _recorded_compile(lower, gm, config)
        return dataclasses.replace(compiled, builds=builds, build=build_command(compiled.code, config))


def compile_piece(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    mode: FakeTensorMode,
    config: Mapping[str, Any],
    prepared: Preparation | None = None,
) -> CompileOutput:
    """Run Inductor over ``gm`` as ``start_compile`` does, and wait for the builds."""
    return start_compile(gm, inputs, mode, config, prepared).finished()


def load_compiled(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    mode: FakeTensorMode,
    config: Mapping[str, Any],
    prepared: Preparation | None,
    code: bytes,
    libraries: Mapping[str, Path],
) -> CompileOutput:
    """Load the artifact that ``start_compile`` would make, and that was packed elsewhere, without a compiler.

    This runs its code. Constants are folded and packed again: they are not in the artifact.

    Raises:
        ShipmentError: it cannot be loaded.
    """

    def load(at_code: Callable[[str], None]) -> Any:
        with compile_context(config, mode, at_code):
            frozen = None
            if prepared is not None and prepared.frozen and is_lowered_as_it_is(gm, config):
                frozen = frozen_as_it_is(gm, inputs, mode, prepared)
            return unpack(code, libraries, frozen)

    with compile_lock():
        loaded = _recorded_compile(load, gm, config)
    return dataclasses.replace(loaded, made=replace(loaded.made, answer=CacheResult.SHIPPED, reason=""))


def _recorded_compile(
    make: Callable[[Callable[[str], None]], Any], gm: fx.GraphModule, config: Mapping[str, Any]
) -> CompileOutput:
    configs: list[dict[str, Any]] = []
    codes: list[str] = []

    def at_code(code: str) -> None:
        configs.append(read_config(config))
        codes.append(code)

    counts = CacheCounts.now()
    with recording_compile() as notes:
        started = time.perf_counter()
        artifact = make(at_code)
        seconds = time.perf_counter() - started
    with inductor_config.patch(dict(config)):
        record = notes.record(seconds, counts)
    settings = {**changed_config(), **config}
    is_as_it_is = isinstance(artifact, InductorGraph)
    if is_as_it_is:  # it is lowered after those passes
        record = replace(record, pre_grad_passes="", reason=UNCACHED if artifact.frozen else record.reason)

    def pack() -> PackedCode:
        with compile_lock(), compile_context({}, fake_mode_with_symbols(), lambda _code: None):
            return pack_artifact(artifact, settings)

    return CompileOutput(
        call=artifact.call if is_as_it_is else _unwrapped_call(artifact, gm),
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
    prepared: Preparation | None = None,
) -> Any:
    """Return Inductor's compiled ``gm`` under ``config``; ``at_code`` is called with the code.

    The result is an ``InductorGraph`` if the piece is lowered as it is, else that of ``standalone_compile``.

    Raises:
        NoCompilerError: there is no working C++ compiler.
        RegionCompileError: Inductor failed; the text is its own, trimmed.
    """
    try:
        with (
            compile_context(config, mode, at_code),
            compiler_config.patch(cache_key_tag=compiler_config.cache_key_tag + _carved_names(gm)),  # type: ignore[attr-defined]  # made at import
        ):
            if prepared is not None and is_lowered_as_it_is(gm, config):
                return lower_as_it_is(gm, inputs, mode, prepared)
            is_frozen = prepared is not None and prepared.frozen
            fakes = without_constants(gm, inputs) if is_frozen else list(inputs)
            return torch._inductor.standalone_compile(gm, fakes, dynamic_shapes="from_tracing_context", aot=True)
    except Exception as error:
        raise _compile_error(error) from error


class _CodeIsWritten(BaseException):
    """Ends a lowering once the code is written. Not an Exception, because Inductor handles those."""


def write_code(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    mode: FakeTensorMode,
    config: Mapping[str, Any],
    prepared: Preparation | None = None,
    at_code: Callable[[str], object] = str,
) -> str:
    """Return the code that Inductor generates for ``gm``; ``at_code`` gets it while the lowered graph is there.

    Nothing is compiled, and no cache of Inductor's is read or written but that of autotuning, which affects the code.

    Raises:
        NoCompilerError: there is no working C++ compiler.
        RegionCompileError: Inductor failed; the text is its own, trimmed.
    """
    texts: list[str] = []

    def end(code: str) -> NoReturn:
        texts.append(code)
        at_code(code)
        raise _CodeIsWritten

    with (
        compile_lock(),
        inductor_config.patch(fx_graph_cache=False),
        functorch_config.patch(enable_autograd_cache=False),
        contextlib.suppress(_CodeIsWritten),
    ):
        run_inductor(gm, inputs, mode, config, end, prepared)
    return "".join(texts)


@contextlib.contextmanager
def compile_context(config: Mapping[str, Any], mode: FakeTensorMode, at_code: Callable[[str], None]) -> Iterator[None]:
    """Context manager: what the block compiles or loads uses only ``config``, whatever settings surround it."""
    with (
        torch.fx.traceback.preserve_node_meta(enable=False),
        inductor_config.patch(dict(config)),
        # Graph rematerialisation ran before the pieces were cut and must not run again (pytorch #180251).
        functorch_config.patch({_REMATERIALISATION: False} if hasattr(functorch_config, _REMATERIALISATION) else {}),
        mock.patch.object(GraphLowering, "save_output_code", staticmethod(at_code)),
        tracing(TracingContext(mode)),
        # AOTAutograd has to trace while a compiled graph is running. In training, it runs a graph for the first time
        # under a dispatch mode of its own, which checks what custom ops return (_AnalyzeCustomOpInputOutputMode, torch
        # 2.13); a trace inside it ends in "Attempting to use FunctionalTensor on its own": docs/upstream.md. The user
        # may have such modes open too, or inference mode.
        torch.inference_mode(mode=False),
        _disable_current_modes(),
        # AOTAutograd would add autocast's casts to the graph, which already contains those of its call.
        outside_autocast(),
        torch.no_grad(),
    ):
        yield


def _unwrapped_call(artifact: Any, gm: fx.GraphModule) -> BoxedCall:
    """Return the innermost callable of an artifact of ``standalone_compile`` that takes one argument list."""
    wrapped = getattr(getattr(artifact, "inner_fn", None), "compiled_fn", artifact)
    return without_wrapper(wrapped, gm) or _boxed_call(wrapped)


def _boxed_call(call: Callable[..., Any]) -> BoxedCall:
    """Return ``call`` as a function of one argument list, which it empties.

    AOTAutograd compiles such a function, and wraps it into one that takes its arguments one by one and so keeps them
    alive until it returns (as torch 2.13 says in ``aot_module_simplified``). So the wrapped function is called instead.
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
    message, _, build = str(error).partition("\nCommand:\n")  # of the C++ compiler; what it wrote says more
    command, _, output = build.partition("\nOutput:\n")
    lines = [line for line in f"{message}\n{output}".splitlines() if line.strip()]
    excerpt = "\n".join(lines[:12]) + ("\n…" if len(lines) > 12 else "")  # noqa: PLR2004 - lines shown
    if command.strip():
        excerpt += f"\nCommand: {command.strip()}"
    return RegionCompileError(f"Inductor raised {type(error).__name__}: {excerpt}")


def _environment_error(error: BaseException | None) -> BaseException | None:
    """Return the operating system's error among an error and its causes, or None."""
    while error is not None:
        disk_full = "No space left on device" in str(error)  # of the C++ compiler there is only the output
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
        command = [cpp_builder.get_cpp_compiler(), "--version"]
        process = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - Inductor's own compiler
    except Exception:  # noqa: BLE001 - Inductor raises errors of its own if it finds none
        return None
    return process.stdout.partition("\n")[0]


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
