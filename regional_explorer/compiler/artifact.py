"""An artifact, the compiled callable of one partition; the store compiles, loads, keeps and packs artifacts by key."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from regional_explorer.compiler.artifact_folder import ArtifactFolder, DamagedError, library_path
from regional_explorer.compiler.fingerprint import TOKEN, Layout, size_at
from regional_explorer.compiler.key_changes import CompileContent, KnownCompiles
from regional_explorer.compiler.workpiece import Wanted
from regional_explorer.errors import CompileEnvironmentError, NoCompilerError, RegionCompileError
from regional_explorer.record.artifact import ArtifactCompile, code_hash
from regional_explorer.torch_api.compile_lock import compile_lock
from regional_explorer.torch_api.graphs import BoxedCall, Guard, fake_mode_with_symbols, guard_check
from regional_explorer.torch_api.inductor import Compiled, load_compiled, start_compile
from regional_explorer.torch_api.prepared import Constants
from regional_explorer.torch_api.releasing import GeneratedCode
from regional_explorer.torch_api.shipping import Packed
from regional_explorer.torch_api.torch_config import Settings


@dataclass(frozen=True)
class Artifact:
    """The compiled callable of one piece under one config.

    ``call`` takes one argument list, which it empties. ``dynamic`` says whether sizes may differ from call to call.
    ``config`` is the value of every requested key as read inside the compile. ``guard`` takes the call's arguments and
    returns whether the code may be used for them; None if it always may. ``made`` is the one compile that made it, or
    its loading from an artifact folder. ``pack`` serializes it for such a folder; None if it comes from one. ``build``
    is the command that compiled the code. For an artifact from a folder the command is unknown, and ``build`` is the
    key. ``constants`` are the frozen weights of the code.
    """

    key: str
    call: BoxedCall
    code: str
    config: Mapping[str, Any] | None
    made: ArtifactCompile
    guard: Callable[[Sequence[Any]], bool] | None = None
    dynamic: bool = False
    pack: Callable[[], Packed] | None = None
    build: str = ""
    constants: Constants | None = None


@dataclass(frozen=True)
class Sizes:
    """The dynamic sizes of a piece: the argument of each, the place that ``size_at`` reads, and their guard."""

    places: Sequence[tuple[int, int]] = ()
    guard: Guard | None = None

    def packed(self) -> bytes:
        """Return the sizes as bytes: a pickle of tuples and of sympy's and torch's expressions."""
        guard = self.guard and (self.guard.names, self.guard.conditions)
        return pickle.dumps((tuple(self.places), guard))

    @classmethod
    def unpacked(cls, content: bytes, inputs: Sequence[Layout]) -> Sizes:
        """Return the sizes from the bytes of ``packed``, for a piece with the given inputs.

        Raises:
            Exception: of any kind, if they are something else.
            DamagedError: they are the sizes of another piece.
        """
        places, guard = pickle.loads(content)  # noqa: S301 - artifacts are code, and the user named their directory
        sizes = cls([(argument, place) for argument, place in places], None if guard is None else Guard(*guard))
        values = [
            inputs[argument].value if place < 0 else (*inputs[argument].size, *inputs[argument].stride)[place]
            for argument, place in sizes.places
        ]
        if not all(type(value) is int for value in values) or (sizes.guard is not None and not sizes.guard(values)):
            raise DamagedError("its sizes are those of another partition")
        return sizes

    def fit(self, args: Sequence[Any]) -> bool:
        """Return whether the guard allows the sizes of a call's arguments."""
        sizes = [size_at(args[argument], place) for argument, place in self.places]
        return self.guard is None or self.guard(sizes)


class Started(NamedTuple):
    """A compile whose kernels are being built."""

    wanted: Wanted
    compiled: Compiled
    sizes: Sizes
    content: CompileContent | None


@dataclass
class ArtifactStore:
    """All artifacts of one exploration, by key; ``compiles`` counts the runs of Inductor.

    ``retried`` are the keys of failures not caused by the region, such as a full disk: the next compile tries again.
    ``generated`` is the code behind the artifacts, which torch drops together with the store. ``folder`` is searched
    for artifacts before they are compiled, and they are saved in it afterwards. ``hashes`` are hashes of code by key,
    of artifacts and of code that was generated but not compiled. ``run_inductor`` starts the compile of a piece.
    ``known`` has the compiles that each new compile is compared with; None in production, where nobody asks for that.
    """

    artifacts: dict[str, Artifact] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    retried: set[str] = field(default_factory=set)
    compiles: int = 0
    generated: GeneratedCode = field(default_factory=GeneratedCode)
    folder: ArtifactFolder | None = None
    hashes: dict[str, str] = field(default_factory=dict)
    run_inductor: Callable[..., Compiled] = start_compile
    known: KnownCompiles | None = None

    def load(self, wanted: Wanted) -> Artifact | None:
        """Return the artifact of the folder that fits; None without one."""
        if self.folder is None:
            return None

        def unpack(packed: Packed) -> Artifact:
            return dataclasses.replace(self.unpacked(wanted, packed), build=wanted.key)

        artifact = self.folder.load(wanted.label(), unpack)
        if artifact is not None:
            self.artifacts[wanted.key] = artifact
        return artifact

    def unpacked(self, wanted: Wanted, packed: Packed) -> Artifact:
        """Return the artifact that was packed in another process. This runs its code.

        Raises:
            Exception: of any kind, if it cannot be loaded.
        """
        with compile_lock(), self.generated.collected():
            workpiece, mode = wanted.workpiece, fake_mode_with_symbols()
            sizes = Sizes.unpacked(packed.sizes, workpiece.inputs)
            libraries = {name: library_path(content) for name, content in packed.libraries.items()}
            gm, fakes, _ = workpiece.canonical(mode)
            loaded = load_compiled(gm, fakes, mode, wanted.config, workpiece.piece.prepared, packed.code, libraries)
            return _assembled_artifact(wanted, loaded, sizes)

    def code_hash(self, key: str) -> str | None:
        """Return the hash of the code with this key, compiled or only generated; None if it is not known."""
        artifact = self.artifacts.get(key)
        if key not in self.hashes and artifact is not None and artifact.code:
            self.hashes[key] = code_hash(artifact.code, artifact.build)
        return self.hashes.get(key)

    def artifact(self, wanted: Wanted) -> Artifact:
        """Return the artifact that is kept, or compile the piece."""
        return self.artifacts.get(wanted.key) or self.compile(wanted)

    def compile(self, wanted: Wanted) -> Artifact:
        """Compile a piece and keep the artifact, in the folder too if there is one.

        Raises:
            NoCompilerError: there is no C++ compiler.
            RegionCompileError: it failed; the failure is kept too, so that it is not repeated.
        """
        return self.finish(self.start(wanted))

    def start(self, wanted: Wanted) -> Started:
        """Lower a piece and start the builds of its kernels."""
        if self.folder is not None:
            self.folder.note_missing(wanted.label())
        self.compiles += 1
        with self._noting_failure(wanted.key), compile_lock(), self.generated.collected():
            mode = fake_mode_with_symbols()
            gm, fakes, symbols = wanted.workpiece.canonical(mode)
            content = None
            if self.known is not None:
                content = CompileContent.of(gm, fakes, wanted.config, Settings.now())
            compiled = self.run_inductor(gm, fakes, mode, wanted.config, wanted.workpiece.piece.prepared)
            sizes = Sizes([place for _, place in symbols], guard_check(mode, [size for size, _ in symbols]))
            return Started(wanted, compiled, sizes, content)

    def finish(self, started: Started) -> Artifact:
        """Wait for the builds of a compile, and keep its artifact."""
        wanted, sizes = started.wanted, started.sizes
        with self._noting_failure(wanted.key), compile_lock(), self.generated.collected():
            compiled = started.compiled.finished()

            def pack() -> Packed:
                return dataclasses.replace(compiled.pack(), sizes=sizes.packed())

            made = compiled.made
            if self.known is not None and started.content is not None:
                made = self.known.compared(wanted.key, made, started.content)
            artifact = dataclasses.replace(_assembled_artifact(wanted, compiled, sizes), made=made, pack=pack)
        self.failures.pop(wanted.key, None)
        self.retried.discard(wanted.key)
        self.artifacts[wanted.key] = artifact
        self.hashes.pop(wanted.key, None)  # tuning may have chosen other code than the last time
        if self.folder is not None:
            with compile_lock(), self.generated.collected():
                self.folder.save(wanted.label(), pack)
        return artifact

    @contextlib.contextmanager
    def _noting_failure(self, key: str) -> Iterator[None]:
        """Context manager: note an error as the failure of the artifact with this key, unless no compiler was found."""
        try:
            yield
        except NoCompilerError:
            raise
        except RegionCompileError as error:
            self.failures[key] = str(error)
            if isinstance(error, CompileEnvironmentError):
                self.retried.add(key)
            raise
        except Exception as error:
            self.failures[key] = failure_text(error)
            raise RegionCompileError(self.failures[key]) from error


def failure_text(error: Exception) -> str:
    """Return why a piece does not compile."""
    if isinstance(error, RegionCompileError):
        return str(error)
    # For an operator without a kernel, torch adds an empty line and lists its kernels, 50 lines of them.
    return f"{type(error).__name__}: {error}".partition("\n\n")[0]


def _assembled_artifact(wanted: Wanted, compiled: Compiled, sizes: Sizes) -> Artifact:
    places = [(argument, place) for argument, place in sizes.places if place >= 0]
    call = _with_sizes(compiled.call, places) if places else compiled.call
    tokens = [index for index, layout in enumerate(wanted.workpiece.inputs) if layout == TOKEN]
    return Artifact(
        key=wanted.key,
        call=_with_tokens(call, tokens) if tokens else call,
        code=compiled.code,
        config=compiled.config,
        made=compiled.made,
        guard=None if sizes.guard is None else sizes.fit,
        dynamic=bool(sizes.places),
        build=compiled.build,
        constants=compiled.constants,
    )


def _with_sizes(call: BoxedCall, places: Sequence[tuple[int, int]]) -> BoxedCall:
    def call_with_sizes(args: list[Any]) -> Any:
        args[:0] = [size_at(args[argument], place) for argument, place in places]
        return call(args)

    return call_with_sizes


def _with_tokens(call: BoxedCall, tokens: Sequence[int]) -> BoxedCall:
    """Pass empty tensors as effect tokens, as the trace had them.

    AOTAutograd passes None, which its own code for dynamic sizes treats as a tensor (torch 2.13: "'NoneType' object has
    no attribute '_dynamo_propagated_dynamic_indices'").
    """
    empty = torch.empty(0)

    def call_with_tokens(args: list[Any]) -> Any:
        for index in tokens:
            args[index] = empty
        return call(args)

    return call_with_tokens
