"""Compiles the stale partitions of a program, one artifact after the other, with help from the compile pool."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from regional_explorer.compiler.artifact import Artifact
from regional_explorer.compiler.fingerprint import portable
from regional_explorer.compiler.pool import CompilePool
from regional_explorer.compiler.program import CutProgram, Program
from regional_explorer.compiler.run import ProgressCallback, Run
from regional_explorer.compiler.switch import Switch
from regional_explorer.compiler.warmup import warm_toolchain
from regional_explorer.errors import CompileEnvironmentError, NoCompilerError, RegionCompileError
from regional_explorer.record.timing import CompileCost
from regional_explorer.torch_api.environment import compile_lock
from regional_explorer.torch_api.inductor import empty_caches


@dataclass(frozen=True)
class CompileStep:
    """Progress of a compile: ``done`` of ``total`` artifacts, and the partition that is compiled now."""

    done: int
    total: int
    partition: str
    region: str


def compile_stale(
    program: CutProgram,
    cancelled: Callable[[], bool] = lambda: False,
    on_wait: Callable[[], object] = lambda: None,
    *,
    cold: bool = False,
) -> Iterator[CompileStep]:
    """Compile the stale partitions, yielding before each compile; a region that fails runs eagerly, the rest go on.

    The compile lock is held for one artifact at a time, so that other compiles of the process get their turn;
    ``on_wait`` is called if one has to be waited for. With ``cold`` all artifacts are compiled, existing ones again,
    and with empty caches.

    Raises:
        NoCompilerError: there is no C++ compiler; nothing can be compiled at all.
    """
    stale, store = program.stale(everything=cold), program.store
    known_failures = dict(store.failures)
    configs = {key: program.config_for(switch) for key, switch in stale.items()}
    # Saved artifacts are loaded first: without a compiler the first compile ends this function.
    todo = {key: switch for key, switch in stale.items() if cold or not _load_saved(program, key, switch, configs[key])}

    def sendable_piece(key: str) -> bytes | None:
        try:
            with compile_lock():
                return portable(todo[key].piece, todo[key].inputs or (), configs[key])
        except Exception:  # noqa: BLE001 - what cannot be serialized is compiled, or fails, in this process
            return None

    try:
        with empty_caches() if cold else contextlib.nullcontext(), CompilePool(todo, sendable_piece) as compile_pool:
            for done, (key, helper_made) in enumerate(compile_pool.jobs(cancelled)):
                switch = todo[key]
                yield CompileStep(done, len(todo), switch.partition.name, switch.piece.claim.region)
                with compile_lock(cancelled, on_wait) as has_lock:
                    if not has_lock:
                        return
                    try:
                        artifact = _compile_artifact(program, key, switch, configs[key], compile_pool)
                    except NoCompilerError:
                        store.failures.pop(key, None)
                        raise
                    except RegionCompileError:
                        continue
                artifact = compile_pool.with_cold_cost(artifact, helper_made)
                store.artifacts[key] = replace(artifact, made=replace(artifact.made, cold=cold))
                program.tried.setdefault(switch.fingerprint(), {})[key] = configs[key]
    except (KeyboardInterrupt, GeneratorExit):
        # An interrupt reaches the C++ compiler too: a compile that it ended is not a failure of the region.
        store.failures = known_failures
        raise
    finally:
        program.apply_artifacts()


def _load_saved(program: CutProgram, key: str, switch: Switch, config: Mapping[str, Any]) -> bool:
    """Load an artifact that an earlier process saved; return whether there was one."""
    assert switch.inputs is not None  # noqa: S101 - the layouts of a stale partition are recorded
    return program.store.load(key, switch.piece, switch.inputs, config, switch.fingerprint()) is not None


def _compile_artifact(
    program: CutProgram, key: str, switch: Switch, config: Mapping[str, Any], compile_pool: CompilePool
) -> Artifact:
    """Compile a partition; after a failure while helper processes run, try again without them."""
    assert switch.inputs is not None  # noqa: S101 - the layouts of a stale partition are recorded
    make = functools.partial(program.store.make, key, switch.piece, switch.inputs, config, switch.fingerprint())
    try:
        return make()
    except RegionCompileError:
        if not compile_pool.stop_helpers():
            raise
        return make()


class Compiling:
    """Compiles the stale partitions of ``program``.

    ``toolchain`` is the cost of starting the toolchain, which is not charged to any region; None before the first
    compile.
    """

    def __init__(self, program: Program, device_type: str) -> None:
        self._program = program
        self._device_type = device_type
        self.toolchain: CompileCost | None = None

    def compile_stale(self, run: Run, *, cold: bool = False) -> set[str]:
        """Compile the stale partitions, or with ``cold`` all, with empty caches; return the keys of the new artifacts.

        Artifacts compiled before an interrupt are kept. Compiles of other threads are waited for.

        Raises:
            NoCompilerError: there is no C++ compiler.
        """
        before = dict(self._program.store.artifacts)
        if _is_free_to_compile(run):
            if self._program.stale(everything=cold):
                self.start_toolchain(run.progress)
            for step in compile_stale(self._program, run.cancelled, run.waiting, cold=cold):
                doing = f"compiling {step.region}: {step.partition} ({step.done + 1} of {step.total})"
                run.progress(doing, step.done / step.total)
        return {key for key, artifact in self._program.store.artifacts.items() if before.get(key) is not artifact}

    def start_toolchain(self, progress: ProgressCallback) -> None:
        """Compile a tiny graph once, so that later compiles do not include the toolchain's start.

        Raises:
            NoCompilerError: there is no C++ compiler.
        """
        if self.toolchain is None:
            progress("warming up the toolchain", 0.0)
            # Each region that fails for the same reason gets a diagnostic of its own.
            with contextlib.suppress(CompileEnvironmentError):
                self.toolchain = warm_toolchain(self._device_type)


def _is_free_to_compile(run: Run) -> bool:
    """Wait until no other thread compiles; return False if cancelled meanwhile."""
    with compile_lock(run.cancelled, run.waiting) as is_free:
        return is_free
