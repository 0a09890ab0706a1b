"""Compiles what is stale, one artifact after the other, with help from the compile pool."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from regional_explorer.compiler.artifacts.artifact import Artifact
from regional_explorer.compiler.artifacts.canonical import portable
from regional_explorer.compiler.cut_program import CutProgram
from regional_explorer.compiler.processes.pool import CompilePool
from regional_explorer.compiler.switch import Switch
from regional_explorer.errors import NoCompilerError, RegionCompileError
from regional_explorer.torch_api import compile_lock, empty_caches


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
    """Compile what is stale, yielding before each compile; a region that fails runs eagerly, the rest go on.

    The compile lock is held for one artifact at a time, so that other compiles of the process get their turn;
    ``on_wait`` is called where there is to wait for one. With ``cold`` all artifacts are compiled, anew if they are
    there, with empty caches.

    Raises:
        NoCompilerError: there is no C++ compiler; nothing can be compiled at all.
    """
    stale, store = program.stale(anew=cold), program.store
    known_failures = dict(store.failures)
    requested = {key: program.config_for(switch) for key, switch in stale.items()}
    # All that is saved comes first: without a compiler the first compile is the end.
    wanted = {key: switch for key, switch in stale.items() if cold or not _loaded(program, key, switch, requested[key])}

    def sendable(key: str) -> bytes | None:
        try:
            with compile_lock():
                return portable(wanted[key].piece, wanted[key].inputs or (), requested[key])
        except Exception:  # noqa: BLE001 - what cannot be made ready to be sent is compiled, or fails, here
            return None

    try:
        with empty_caches() if cold else contextlib.nullcontext(), CompilePool(wanted, sendable) as compile_pool:
            for done, (key, ahead) in enumerate(compile_pool.jobs(cancelled)):
                switch = wanted[key]
                yield CompileStep(done, len(wanted), switch.partition.name, switch.piece.claim.region)
                with compile_lock(cancelled, on_wait) as held:
                    if not held:
                        return
                    try:
                        artifact = _artifact(program, key, switch, requested[key], compile_pool)
                    except NoCompilerError:
                        store.failures.pop(key, None)
                        raise
                    except RegionCompileError:
                        continue
                artifact = compile_pool.with_cold_cost(artifact, ahead)
                store.artifacts[key] = replace(artifact, made=replace(artifact.made, cold=cold))
                program.tried.setdefault(switch.fingerprint(), {})[key] = requested[key]
    except (KeyboardInterrupt, GeneratorExit):
        # An interrupt reaches the C++ compiler too: what it broke off is no failure of the region's.
        store.failures = known_failures
        raise
    finally:
        program.apply_artifacts()


def _loaded(program: CutProgram, key: str, switch: Switch, config: Mapping[str, Any]) -> bool:
    """Load an artifact that an earlier process saved; tell whether there was one."""
    assert switch.inputs is not None  # noqa: S101 - what is stale has had its layouts recorded
    return program.store.load(key, switch.piece, switch.inputs, config) is not None


def _artifact(
    program: CutProgram, key: str, switch: Switch, config: Mapping[str, Any], compile_pool: CompilePool
) -> Artifact:
    """Compile a partition; a failure beside helpers is believed only if it comes again without them."""
    assert switch.inputs is not None  # noqa: S101 - what is stale has had its layouts recorded
    try:
        return program.store.make(key, switch.piece, switch.inputs, config)
    except RegionCompileError:
        if not compile_pool.stop_workers():
            raise
        return program.store.make(key, switch.piece, switch.inputs, config)
