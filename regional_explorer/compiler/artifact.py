"""An artifact, the compiled callable of one partition; the store of artifacts by key; why one was compiled again."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import pickle
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace
from torch import fx

from regional_explorer.compiler.artifact_folder import ArtifactFolder, DamagedError, library_path
from regional_explorer.compiler.fingerprint import TOKEN, Layout, size_at
from regional_explorer.compiler.treatment import function_of
from regional_explorer.compiler.workpiece import WantedArtifact
from regional_explorer.errors import CompileEnvironmentError, NoCompilerError, RegionCompileError
from regional_explorer.record.artifact import ArtifactCompile, CacheResult, KeyChange, PassRun, code_hash
from regional_explorer.torch_api.backends import compile_by
from regional_explorer.torch_api.compile_lock import compile_lock
from regional_explorer.torch_api.graphs import (
    BoxedCall,
    Guard,
    bodies,
    fake_mode_with_symbols,
    guard_check,
    is_operator,
)
from regional_explorer.torch_api.inductor import CompileOutput, build_command, load_compiled, start_compile, write_code
from regional_explorer.torch_api.prepared import Constants
from regional_explorer.torch_api.releasing import GeneratedCode
from regional_explorer.torch_api.shipping import PackedCode
from regional_explorer.torch_api.torch_config import Settings, config_entries


@dataclass(frozen=True)
class Artifact:
    """The compiled callable of one piece under one config.

    ``call`` takes one argument list, which it empties. ``dynamic`` says whether sizes may differ from call to call.
    ``config`` is the value of every requested key as read inside the compile. ``guard`` takes the call's arguments and
    returns whether the code may be used for them; None if it always may. ``made`` is the one compile that made it, or
    its loading from an artifact folder. ``pack`` serializes it for such a folder; None if it comes from one,
    or from another backend than Inductor. ``build``
    is the command that compiled the code. For an artifact from a folder the command is unknown, and ``build`` is the
    key. ``constants`` are the frozen weights of the code, ``passes`` what the passes of its region did with the piece.
    """

    key: str
    call: BoxedCall
    code: str
    config: Mapping[str, Any] | None
    made: ArtifactCompile
    guard: Callable[[Sequence[Any]], bool] | None = None
    dynamic: bool = False
    pack: Callable[[], PackedCode] | None = None
    build: str = ""
    constants: Constants | None = None
    passes: tuple[PassRun, ...] = ()


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
            raise DamagedError("its sizes belong to another partition")
        return sizes

    def fit(self, args: Sequence[Any]) -> bool:
        """Return whether the guard allows the sizes of a call's arguments."""
        sizes = [size_at(args[argument], place) for argument, place in self.places]
        return self.guard is None or self.guard(sizes)


class StartedCompile(NamedTuple):
    """A compile whose kernels are being built."""

    wanted: WantedArtifact
    compiled: CompileOutput
    sizes: Sizes
    passes: tuple[PassRun, ...]
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
    run_inductor: Callable[..., CompileOutput] = start_compile
    known: KnownCompiles | None = None

    def load(self, wanted: WantedArtifact) -> Artifact | None:
        """Return the artifact of the folder that fits; None without one."""
        if self.folder is None or wanted.treatment.backend is not None:
            return None

        def unpack(packed: PackedCode) -> Artifact:
            return dataclasses.replace(self.unpacked(wanted, packed), build=wanted.key)

        artifact = self.folder.load(wanted.label(), unpack)
        if artifact is not None:
            self.artifacts[wanted.key] = artifact
        return artifact

    def unpacked(self, wanted: WantedArtifact, packed: PackedCode) -> Artifact:
        """Return the artifact that was packed in another process. This runs its code.

        Raises:
            Exception: of any kind, if it cannot be loaded.
        """
        with compile_lock(), self.generated.collecting():
            workpiece, mode = wanted.workpiece, fake_mode_with_symbols()
            sizes = Sizes.unpacked(packed.sizes, workpiece.inputs)
            libraries = {name: library_path(content) for name, content in packed.libraries.items()}
            gm, fakes, _, passes, _ = wanted.treated(mode)
            loaded = load_compiled(gm, fakes, mode, wanted.config, workpiece.piece.prepared, packed.code, libraries)
            return _assembled_artifact(wanted, loaded, sizes, passes)

    def code_hash(self, key: str) -> str | None:
        """Return the hash of the code with this key, compiled or only generated; None if it is not known."""
        artifact = self.artifacts.get(key)
        if key not in self.hashes and artifact is not None and artifact.code:
            self.hashes[key] = code_hash(artifact.code, artifact.build)
        return self.hashes.get(key)

    def generate(self, wanted: WantedArtifact) -> None:
        """Keep the hash of the code of ``wanted`` without compiling it; an empty text if Inductor fails."""
        self.hashes[wanted.key] = ""
        with compile_lock(), self.generated.collecting(), contextlib.suppress(RegionCompileError):
            mode = fake_mode_with_symbols()
            gm, fakes, *_ = wanted.treated(mode)
            code = write_code(gm, fakes, mode, wanted.config, wanted.workpiece.piece.prepared)
            self.hashes[wanted.key] = code_hash(code, build_command(code, wanted.config))

    def artifact(self, wanted: WantedArtifact) -> Artifact:
        """Return the artifact that is kept, or compile the piece."""
        return self.artifacts.get(wanted.key) or self.compile(wanted)

    def compile(self, wanted: WantedArtifact) -> Artifact:
        """Compile a piece and keep the artifact, in the folder too if there is one.

        Raises:
            NoCompilerError: there is no C++ compiler.
            RegionCompileError: it failed; the failure is kept too, so that it is not repeated.
        """
        return self.finish(self.start(wanted))

    def start(self, wanted: WantedArtifact) -> StartedCompile:
        """Lower a piece and start the builds of its kernels."""
        backend = wanted.treatment.backend
        if self.folder is not None and backend is None:
            self.folder.add_missing_finding(wanted.label())
        self.compiles += 1
        with self._keeping_failure(wanted.key), compile_lock(), self.generated.collecting():
            mode = fake_mode_with_symbols()
            gm, fakes, symbols, passes, _ = wanted.treated(mode)
            content = None
            if self.known is not None and backend is None:
                content = CompileContent.of(gm, fakes, wanted.config, Settings.now())
            if backend is None:
                compiled = self.run_inductor(gm, fakes, mode, wanted.config, wanted.workpiece.piece.prepared)
            else:
                function, dynamic = function_of(backend), bool(symbols)
                compiled = compile_by(backend.name, function, gm, fakes, mode, wanted.config, dynamic=dynamic)
            sizes = Sizes([place for _, place in symbols], guard_check(mode, [size for size, _ in symbols]))
            return StartedCompile(wanted, compiled, sizes, passes, content)

    def finish(self, started: StartedCompile) -> Artifact:
        """Wait for the builds of a compile, and keep its artifact."""
        wanted, sizes = started.wanted, started.sizes
        with self._keeping_failure(wanted.key), compile_lock(), self.generated.collecting():
            compiled = started.compiled.finished()

            def pack() -> PackedCode:
                return dataclasses.replace(compiled.pack(), sizes=sizes.packed())

            made = compiled.made
            if self.known is not None and started.content is not None:
                made = self.known.compare_and_remember(wanted.key, made, started.content)
            assembled = _assembled_artifact(wanted, compiled, sizes, started.passes)
            artifact = dataclasses.replace(
                assembled, made=made, pack=pack if wanted.treatment.backend is None else None
            )
        self.failures.pop(wanted.key, None)
        self.retried.discard(wanted.key)
        self.artifacts[wanted.key] = artifact
        self.hashes.pop(wanted.key, None)  # tuning may have chosen other code than the last time
        if self.folder is not None and artifact.pack is not None:
            with compile_lock(), self.generated.collecting():
                self.folder.save(wanted.label(), pack)
        return artifact

    @contextlib.contextmanager
    def _keeping_failure(self, key: str) -> Iterator[None]:
        """Context manager: keep an error as the failure of the artifact with this key, unless no compiler was found."""
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


def _assembled_artifact(
    wanted: WantedArtifact, compiled: CompileOutput, sizes: Sizes, passes: tuple[PassRun, ...]
) -> Artifact:
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
        passes=passes,
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


# ------------------------------------------------------------------------------------------ why Inductor compiled again


MOST_KNOWN = 200
MOST_KNOWN_BYTES = 4 * 2**20
"""Beyond these limits the oldest compiles are forgotten. 200 compiles of 3,000 ops each take 2.5 MiB."""

LEAST_SHARED_OPS = 0.5
"""Two compiles are compared if they share at least this part of their ops."""

LONGEST_TEXT = 80
"""Longer texts are shown as a hash."""


@dataclass(frozen=True)
class CompileContent:
    """The content that determines a compile's code: ``parts`` by name, and the ``ops`` of its graph in order, as text.

    Configs at their default are left out.
    """

    parts: Mapping[str, str] = field(default_factory=dict)
    ops: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, gm: fx.GraphModule, inputs: Sequence[Any], config: Mapping[str, Any], settings: Settings
    ) -> CompileContent:
        """Return the content of a compile of ``gm`` for these fakes under ``config`` on top of ``settings``."""
        entries, inductor = config_entries(), {**settings.inductor, **config}
        values = {
            **{f"inductor config {key}": value for key, value in inductor.items() if value != entries[key].default},
            **{f"functorch config {key}": value for key, value in settings.functorch.items()},
            **settings.knobs,
            **settings.underneath,
        }
        texts = {f"input {index}": _input_text(value) for index, value in enumerate(inputs)}
        return cls({**texts, **{name: _text_or_hash(value) for name, value in values.items()}}, tuple(_op_texts(gm)))

    @cached_property
    def op_counts(self) -> Counter[str]:
        """How often each op occurs."""
        return Counter(self.ops)

    @cached_property
    def target_counts(self) -> Counter[str]:
        """How often each target of an op occurs, whatever its arguments."""
        return Counter(op.partition("(")[0] for op in self.ops)

    def distance(self, other: CompileContent) -> int | None:
        """Return how many parts and ops differ; None if the graphs have little in common."""
        changed_parts = sum(self.parts.get(part) != other.parts.get(part) for part in {*self.parts, *other.parts})
        if self.ops == other.ops:
            return changed_parts
        most = max(len(self.ops), len(other.ops))
        if (self.target_counts & other.target_counts).total() < LEAST_SHARED_OPS * most:
            return None
        return changed_parts + most - (self.op_counts & other.op_counts).total()


def _text_or_hash(value: Any) -> str:
    """Return the ``repr`` of a value, or of a custom pass's uuid; its hash if it is long or has an address."""
    uuid = getattr(value, "uuid", None)
    text = repr(uuid() if callable(uuid) else value)
    return (
        text if len(text) <= LONGEST_TEXT and " at 0x" not in text else hashlib.sha256(text.encode()).hexdigest()[:12]
    )


def _input_text(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return str(value)
    description = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if value.layout is not torch.strided:
        return f"{description} {value.layout}"
    return f"{description} strides {list(value.stride())} on {value.device}"


def _op_texts(gm: fx.GraphModule) -> Iterator[str]:
    for node in gm.graph.nodes:
        arguments = ", ".join([*map(str, node.args), *(f"{key}={value}" for key, value in node.kwargs.items())])
        if node.op == "output":
            yield f"return({arguments})"
        elif node.op not in ("placeholder", "get_attr"):
            target = node.target
            name = str(target) if is_operator(target) else str(getattr(target, "__name__", target))
            yield f"{name}({arguments})"
    for owner, body in bodies(gm):
        yield from (f"{owner}: {op}" for op in _op_texts(body))


@dataclass
class KnownCompiles:
    """The names of the last compiles' artifacts, by their content: parts and ops, both compressed."""

    artifacts: dict[tuple[bytes, bytes], str] = field(default_factory=dict)

    def compare_and_remember(self, artifact: str, record: ArtifactCompile, content: CompileContent) -> ArtifactCompile:
        """Return the record of a compile with its changes from the nearest known compile, and remember the compile."""
        if record.answer not in (CacheResult.HIT, CacheResult.MISS):
            return record
        key = _compressed(content.parts), _compressed(content.ops)
        earlier = self.artifacts.pop(key, None)
        nearest = self._nearest(content, key[1]) if earlier is None else (earlier, content)
        self.artifacts[key] = artifact
        while len(self.artifacts) > MOST_KNOWN or self._bytes() > MOST_KNOWN_BYTES:
            del self.artifacts[next(iter(self.artifacts))]
        if nearest is None:
            return record
        name, content_before = nearest
        return replace(record, nearest=name, changes=tuple(changes_of_key(content_before, content)))

    def _nearest(self, content: CompileContent, same_ops: bytes) -> tuple[str, CompileContent] | None:
        """Return the artifact and content of the known compile with the fewest changes, the latest if several have."""
        nearest, least = None, None
        for (parts, ops), artifact in reversed(self.artifacts.items()):
            earlier = CompileContent(
                _decompressed(parts), content.ops if ops == same_ops else tuple(_decompressed(ops))
            )
            distance = earlier.distance(content)
            if distance is not None and (least is None or distance < least):
                nearest, least = (artifact, earlier), distance
        return nearest

    def _bytes(self) -> int:
        return sum(len(parts) + len(ops) for parts, ops in self.artifacts)


def _compressed(value: Mapping[str, str] | Sequence[str]) -> bytes:
    return zlib.compress(json.dumps(value).encode())


def _decompressed(content: bytes) -> Any:
    return json.loads(zlib.decompress(content))


KNOWN_COMPILES = KnownCompiles()
"""The compiles of this process: Inductor's caches are not per exploration either."""


def changes_of_key(before: CompileContent, after: CompileContent) -> Iterator[KeyChange]:
    """Yield what differs, ops first."""
    yield from _op_changes(before, after)
    for part in dict.fromkeys([*before.parts, *after.parts]):
        value_before, value_after = (content.parts.get(part, _default_text(part)) for content in (before, after))
        if value_before != value_after:
            yield KeyChange(part, value_before, value_after)


def _default_text(part: str) -> str:
    """Return the value of a missing part: for a config, its default."""
    kind, _, name = part.partition(" config ")
    entry = config_entries().get(name) if kind == "inductor" else None
    return "" if entry is None else repr(entry.default)


def _op_changes(before: CompileContent, after: CompileContent) -> Iterator[KeyChange]:
    if len(before.ops) == len(after.ops):
        for index, (op_before, op_after) in enumerate(zip(before.ops, after.ops, strict=True)):
            if op_before != op_after:
                yield KeyChange(f"op {index}", op_before, op_after)
        return
    removed, added = before.target_counts - after.target_counts, after.target_counts - before.target_counts
    yield KeyChange("ops", _ops_text(len(before.ops), removed), _ops_text(len(after.ops), added))


def _ops_text(total: int, targets: Counter[str]) -> str:
    named_targets = ", ".join(f"{count} × {op}" if count > 1 else op for op, count in targets.items())
    return f"{total}, with {named_targets}" if named_targets else str(total)
