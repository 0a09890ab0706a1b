"""Compiles stale partitions, and accounts for the toolchain's start separately."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from regional_explorer.compiler.compilation import CompileStep, compile_stale
from regional_explorer.compiler.processes.warmup import warm_toolchain
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run_context import ProgressCallback, RunContext
from regional_explorer.errors import CompileEnvironmentError
from regional_explorer.record.timing import CompileCost
from regional_explorer.torch_api import acquired, compile_lock


class Compiling:
    """Compiles the partitions of ``program``.

    ``toolchain`` is the cost of starting the toolchain, counted for no region; None before the first compile.
    """

    def __init__(self, program: Program, device_type: str) -> None:
        self._program = program
        self._device_type = device_type
        self.toolchain: CompileCost | None = None

    def compile_stale(self, run: RunContext, *, cold: bool = False) -> set[str]:
        """Compile the stale partitions, with ``cold`` all and with empty caches; return the keys of the new artifacts.

        Artifacts compiled before an interrupt are kept. Compiles of other threads are waited for.

        Raises:
            NoCompilerError: there is no C++ compiler.
        """

        def on_wait() -> None:
            run.progress("waiting for another thread of this process that compiles", 0.0)

        with acquired(self._program.compiling, run.cancelled, on_wait) as is_free:
            before = dict(self._program.store.artifacts)
            if is_free and _wait_for_compile_lock(run.cancelled, on_wait):
                if self._program.stale(anew=cold):
                    self.start_toolchain(run.progress)
                for step in compile_stale(self._program, run.cancelled, on_wait, cold=cold):
                    run.progress(_describe(step), step.done / step.total)
            return {key for key, made in self._program.store.artifacts.items() if before.get(key) is not made}

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


def _wait_for_compile_lock(cancelled: Callable[[], bool], on_wait: Callable[[], None]) -> bool:
    """Wait until no other thread compiles; return False if cancelled meanwhile."""
    with compile_lock(cancelled, on_wait) as is_free:
        return is_free


def _describe(step: CompileStep) -> str:
    return f"compiling {step.region}: {step.partition} ({step.done + 1} of {step.total})"
