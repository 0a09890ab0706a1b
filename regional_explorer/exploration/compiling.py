"""Compiles what is stale, with the toolchain's start paid for apart."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from regional_explorer.compiler.compilation import CompileStep, compile_stale
from regional_explorer.compiler.processes.warmup import warm_toolchain
from regional_explorer.compiler.program import Program
from regional_explorer.errors import CompileEnvironmentError
from regional_explorer.measure.benchmark import ProgressCallback
from regional_explorer.record.timing import CompileCost
from regional_explorer.torch_api import acquired, compile_lock


class Compiling:
    """Compiles the partitions of ``program``.

    ``toolchain`` is what starting the toolchain cost, which no region is charged for; None before the first compile.
    """

    def __init__(self, program: Program, device_type: str) -> None:
        self._program = program
        self._device_type = device_type
        self.toolchain: CompileCost | None = None

    def compile_stale(self, cancelled: Callable[[], bool], progress: ProgressCallback) -> set[str]:
        """Compile the partitions that are stale, and return the keys of the artifacts made.

        An interrupt keeps what is compiled. What another thread compiles meanwhile is waited for.

        Raises:
            NoCompilerError: there is no C++ compiler.
        """

        def on_wait() -> None:
            progress("waiting for another thread of this process that compiles", 0.0)

        with acquired(self._program.compiling, cancelled, on_wait) as held:
            before = set(self._program.store.artifacts)
            if held and _is_free_to_compile(cancelled, on_wait):
                if self._program.stale():
                    self.start_toolchain(progress)
                for step in compile_stale(self._program, cancelled, on_wait):
                    progress(_describe(step), step.done / step.total)
            return set(self._program.store.artifacts) - before

    def start_toolchain(self, progress: ProgressCallback) -> None:
        """Compile a tiny graph once, so that no compile after it is charged for the toolchain.

        Raises:
            NoCompilerError: there is no C++ compiler.
        """
        if self.toolchain is None:
            progress("warming up the toolchain", 0.0)
            # What it needs and cannot have is told of each region, which needs the same.
            with contextlib.suppress(CompileEnvironmentError):
                self.toolchain = warm_toolchain(self._device_type)


def _is_free_to_compile(cancelled: Callable[[], bool], on_wait: Callable[[], None]) -> bool:
    """Wait until nothing else compiles, and tell whether that came: the call is run next, and may be traced again."""
    with compile_lock(cancelled, on_wait) as held:
        return held


def _describe(step: CompileStep) -> str:
    return f"compiling {step.region}: {step.partition} ({step.done + 1} of {step.total})"
