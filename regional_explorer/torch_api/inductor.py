"""Compiles one partition with Inductor under a config, reads back code and times, and finds the C++ compiler."""

from __future__ import annotations

import contextlib
import errno
import inspect
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
import torch.compiler.config as compiler_config
from torch import fx
from torch._guards import TracingContext, tracing
from torch._inductor.graph import GraphLowering
from torch.utils._python_dispatch import _disable_current_modes

from regional_explorer.errors import CompileEnvironmentError, NoCompilerError, RegionCompileError
from regional_explorer.record.compiles import ArtifactCompile, CacheAnswer
from regional_explorer.torch_api.cache_answers import CacheAnswers
from regional_explorer.torch_api.cache_key import CacheKey
from regional_explorer.torch_api.compile_notes import noting_compile
from regional_explorer.torch_api.config import read_config
from regional_explorer.torch_api.graphs import bodies, is_carved
from regional_explorer.torch_api.lock import compile_lock
from regional_explorer.torch_api.shapes import fake_mode_with_symbols
from regional_explorer.torch_api.shipping import Shipment, packer, unpack
from regional_explorer.torch_api.versions import BoxedCall

if TYPE_CHECKING:
    from torch._subclasses import FakeTensorMode


_REMATERIALISATION = "remat_using_tags_for_fwd_loss_bwd_graph"


@dataclass(frozen=True)
class Compiled:
    """The result of one run of Inductor over one piece.

    ``config`` maps every requested key to the value read inside the compile, at the moment code was produced or loaded;
    it is None if that moment never came. ``made`` has the wall time and the caches' answer, ``key`` the cache key.
    ``pack`` serializes it to be saved.
    """

    call: BoxedCall
    code: str
    config: Mapping[str, Any] | None
    made: ArtifactCompile
    key: CacheKey | None
    pack: Callable[[], Shipment]


def compile_piece(
    gm: fx.GraphModule, inputs: Sequence[Any], mode: FakeTensorMode, config: Mapping[str, Any]
) -> Compiled:
    """Run Inductor over ``gm`` with fake ``inputs`` of ``mode``, under ``config`` only.

    ``standalone_compile`` does not take the compile lock by itself; waiting for it is not part of ``seconds``.

    Raises:
        NoCompilerError: there is no working C++ compiler.
        RegionCompileError: Inductor failed; the text is its own, trimmed.
    """
    with compile_lock():
        return _noted_compile(lambda at_code: run_inductor(gm, inputs, mode, config, at_code), config)


def load_compiled(code: bytes, libraries: Mapping[str, Path], config: Mapping[str, Any]) -> Compiled:
    """Load an artifact that was compiled under ``config`` and packed elsewhere; this runs its code, without a compiler.

    Raises:
        ShipmentError: it cannot be loaded.
    """

    def load(at_code: Callable[[str], None]) -> Any:
        with _compile_context(config, fake_mode_with_symbols(), at_code):
            return unpack(code, libraries)

    with compile_lock():
        loaded = _noted_compile(load, config)
    return replace(loaded, made=replace(loaded.made, answer=CacheAnswer.SHIPPED, reason=""), key=None)


def _noted_compile(make: Callable[[Callable[[str], None]], Any], config: Mapping[str, Any]) -> Compiled:
    configs: list[dict[str, Any]] = []
    codes: list[str] = []

    def at_code(code: str) -> None:
        configs.append(read_config(list(config)))
        codes.append(code)

    answers = CacheAnswers.now()
    with noting_compile() as notes:
        started = time.perf_counter()
        artifact = make(at_code)
        seconds = time.perf_counter() - started
    with inductor_config.patch(dict(config)):
        record = notes.compiled(seconds, answers.answer())
    pack = packer(artifact, config)

    def pack_alone() -> Shipment:
        with compile_lock(), _compile_context({}, fake_mode_with_symbols(), lambda _code: None):
            return pack()

    return Compiled(
        # Skips two layers of Python calls of the artifact, which only pass the arguments on.
        call=_boxed_call(getattr(getattr(artifact, "inner_fn", None), "compiled_fn", artifact)),
        code="\n".join(codes),
        config=configs[-1] if configs else None,
        made=record,
        key=notes.key,
        pack=pack_alone,
    )


def run_inductor(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    mode: FakeTensorMode,
    config: Mapping[str, Any],
    at_code: Callable[[str], None],
) -> Any:
    """Return the result of ``standalone_compile`` for ``gm`` under ``config``; ``at_code`` is called with the code.

    Raises:
        NoCompilerError: there is no working C++ compiler.
        RegionCompileError: Inductor failed; the text is its own, trimmed.
    """
    try:
        with (
            _compile_context(config, mode, at_code),
            compiler_config.patch(cache_key_tag=compiler_config.cache_key_tag + _carved_names(gm)),  # type: ignore[attr-defined]  # made at import
        ):
            return torch._inductor.standalone_compile(gm, list(inputs), dynamic_shapes="from_tracing_context", aot=True)
    except Exception as error:
        raise _compile_error(error) from error


@contextlib.contextmanager
def _compile_context(config: Mapping[str, Any], mode: FakeTensorMode, at_code: Callable[[str], None]) -> Iterator[None]:
    """A block in which a piece is compiled, or loaded, under ``config`` and independently of the surrounding code."""
    with (
        torch.fx.traceback.preserve_node_meta(enable=False),
        inductor_config.patch(dict(config)),
        # Graph rematerialisation ran before the pieces were cut and must not run again (pytorch #180251).
        functorch_config.patch({_REMATERIALISATION: False} if hasattr(functorch_config, _REMATERIALISATION) else {}),
        mock.patch.object(GraphLowering, "save_output_code", staticmethod(at_code)),
        tracing(TracingContext(mode)),
        _outside_of_calls(),
        torch.no_grad(),
    ):
        yield


@contextlib.contextmanager
def _outside_of_calls() -> Iterator[None]:
    """A block in which AOTAutograd can trace while a compiled graph is running.

    In training, AOTAutograd runs a graph for the first time under a dispatch mode of its own, which checks what custom
    ops return (``_AnalyzeCustomOpInputOutputMode``, torch 2.13); a trace inside it ends in "Attempting to use
    FunctionalTensor on its own": docs/upstream.md. The user may have such modes open too, or inference mode.
    """
    with torch.inference_mode(mode=False), _disable_current_modes():
        yield


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


def inductor_cache_directory() -> str:
    """Return the directory of Inductor's caches."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return str(cache_dir())


def compiler_version() -> str | None:
    """Return the first line of ``--version`` of Inductor's C++ compiler; None if none can be run."""
    from torch._inductor import cpp_builder

    try:
        done = subprocess.run([cpp_builder.get_cpp_compiler(), "--version"], capture_output=True, text=True, check=True)  # noqa: S603 - the compiler that Inductor itself would run
    except Exception:  # noqa: BLE001 - Inductor raises errors of its own if it finds none
        return None
    return done.stdout.partition("\n")[0]


def probe_instruction_set() -> None:
    """Have Inductor detect the vector instructions of this CPU; it caches them for the rest of the process."""
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    if cxx_compiler() is not None:
        pick_vec_isa()
