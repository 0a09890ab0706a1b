"""Compiles the stale partitions of a program: each is lowered while the kernels of those before it are built."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import torch
from msgspec.structs import replace
from torch import fx

from regional_explorer.compiler.artifact import Started, Wanted
from regional_explorer.compiler.program import CutProgram, Program
from regional_explorer.compiler.run import PLAIN_RUN, ProgressCallback, Run
from regional_explorer.errors import CompileEnvironmentError, NoCompilerError, RegionCompileError
from regional_explorer.record.benchmark import CompileCost
from regional_explorer.torch_api.compile_lock import compile_lock
from regional_explorer.torch_api.graphs import fake_mode_with_symbols
from regional_explorer.torch_api.inductor import compile_piece, empty_caches


def compile_stale(program: CutProgram, run: Run = PLAIN_RUN, *, cold: bool = False) -> None:
    """Compile the stale partitions; a region that fails runs eagerly, the rest go on.

    The compile lock is held for one partition at a time, so that other compiles of the process get their turn. What is
    complete when cancelled or interrupted is kept. With ``cold`` all artifacts are compiled, existing ones again, and
    with empty caches.

    Raises:
        NoCompilerError: there is no C++ compiler; nothing can be compiled at all.
    """
    stale, store = program.stale(everything=cold), program.store
    known_failures = dict(store.failures)
    names = {key: f"{switch.piece.claim.region}: {switch.partition.name}" for key, switch in stale.items()}
    all_wanted = [program.wanted(key, switch) for key, switch in stale.items()]
    # Saved artifacts are loaded first: without a compiler the first compile ends this function.
    todo = [wanted for wanted in all_wanted if cold or store.load(wanted) is None]

    def report(doing: str, wanted: Wanted, number: int, done: float) -> None:
        run.progress(f"{doing} {names[wanted.key]} ({number} of {len(todo)})", done / len(todo))

    try:
        with empty_caches() if cold else contextlib.nullcontext(), _Building(program, cold=cold) as building:
            for index, wanted in enumerate(todo):
                if run.cancelled():
                    return
                report("compiling", wanted, index + 1, index - len(building.queue) / 2)
                with compile_lock(run.cancelled, run.waiting) as has_lock:
                    if not has_lock:
                        return
                    building.start(wanted)
                    building.finish_complete()
            while left := len(building.queue):
                first = building.queue[0]
                report("building", first.wanted, len(todo) - left + 1, len(todo) - left / 2)
                if not first.compiled.builds.wait(run.cancelled):
                    return
                with compile_lock(run.cancelled, run.waiting) as has_lock:
                    if not has_lock:
                        return
                    building.finish_next()
    except KeyboardInterrupt:
        # It reaches the C++ compiler too: a compile that it ended is not a failure of the region.
        store.failures = known_failures
        raise
    finally:
        program.apply_artifacts()


class _Building:
    """The compiles of a program whose kernels are being built, in the order of their start.

    At the end of the block those that are complete are kept, and the builds that have not begun are skipped.
    """

    def __init__(self, program: CutProgram, *, cold: bool) -> None:
        self._program, self._cold = program, cold
        self.queue: deque[Started] = deque()

    def __enter__(self) -> Self:
        """Return the queue, empty."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Keep what is complete."""
        for started in self.queue:
            started.compiled.builds.abandon()
        self.finish_complete()

    def start(self, wanted: Wanted) -> None:
        """Lower a piece, and start the builds of its kernels."""
        with _failures_are_kept():
            self.queue.append(self._program.store.start(wanted))

    def finish_complete(self) -> None:
        """Keep the artifacts of the first compiles, up to one that is not complete."""
        while self.queue and self.queue[0].compiled.builds.are_complete:
            self.finish_next()

    def finish_next(self) -> None:
        """Keep the artifact of the first compile, or its failure: of a later one with the same kernels they are built.

        Raises:
            NoCompilerError: there is no C++ compiler.
        """
        wanted, program = (started := self.queue.popleft()).wanted, self._program
        with _failures_are_kept():
            artifact = program.store.finish(started)
            program.store.artifacts[wanted.key] = dataclasses.replace(
                artifact, made=replace(artifact.made, cold=self._cold)
            )
            program.tried.setdefault(wanted.fingerprint, {})[wanted.key] = wanted.config


@contextlib.contextmanager
def _failures_are_kept() -> Iterator[None]:
    """A block that ends when a region does not compile: the store has the failure."""
    try:
        yield
    except NoCompilerError:
        raise
    except RegionCompileError:
        return


@dataclass
class Compiling:
    """Compiles the stale partitions of ``program``.

    ``toolchain`` is the cost of starting the toolchain, which is not charged to any region; None before the first
    compile.
    """

    program: Program
    device_type: str
    toolchain: CompileCost | None = None

    def compile_stale(self, run: Run, *, cold: bool = False) -> set[str]:
        """Compile the stale partitions, or with ``cold`` all, with empty caches; return the keys of the new artifacts.

        Artifacts compiled before an interrupt are kept. Compiles of other threads are waited for.

        Raises:
            NoCompilerError: there is no C++ compiler.
        """
        before = dict(self.program.store.artifacts)
        with compile_lock(run.cancelled, run.waiting) as is_free:
            pass  # not held: each partition is compiled in a turn of its own
        if is_free:
            if self.program.stale(everything=cold):
                self.start_toolchain(run.progress)
            compile_stale(self.program, run, cold=cold)
        return {key for key, artifact in self.program.store.artifacts.items() if before.get(key) is not artifact}

    def start_toolchain(self, progress: ProgressCallback) -> None:
        """Compile a tiny graph once, so that later compiles do not include the toolchain's start.

        Raises:
            NoCompilerError: there is no C++ compiler.
        """
        if self.toolchain is None:
            progress("warming up the toolchain", 0.0)
            # Each region that fails for the same reason gets a diagnostic of its own.
            with contextlib.suppress(CompileEnvironmentError):
                self.toolchain = warm_toolchain(self.device_type)


@functools.cache
def warm_toolchain(device_type: str) -> CompileCost:
    """Compile one tiny graph, so that the next compile is timed without the toolchain's start; return what it cost.

    The first C++ compile of a machine probes the instruction set and builds a precompiled header, the first of a
    process imports Inductor. Done once per process and device type.

    Raises:
        NoCompilerError: there is no working C++ compiler.
    """
    graph = fx.Graph()
    value = graph.placeholder("value")
    graph.output((graph.call_function(torch.ops.aten.add.Tensor, (value, 1)),))
    mode = fake_mode_with_symbols()
    with mode:
        fake = torch.empty(8, device=device_type)
    compiled = compile_piece(fx.GraphModule({}, graph), [fake], mode, {})
    return CompileCost("toolchain (once per process)", compiled.made.seconds, compiled.made.cache)
