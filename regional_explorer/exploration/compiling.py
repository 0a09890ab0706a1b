"""Compiles what is stale, with the toolchain's start paid for apart."""

from __future__ import annotations

from collections.abc import Callable

from regional_explorer.compiler.processes.warmup import warm_toolchain
from regional_explorer.compiler.program import CompileStep, Program
from regional_explorer.measure.benchmark import ProgressCallback
from regional_explorer.record.timing import CompileCost


class Compiling:
    """Compiles the partitions of ``program``.

    ``toolchain`` is what starting the toolchain cost, which no region is charged for; None before the first compile.
    """

    def __init__(self, program: Program, device_type: str) -> None:
        self._program = program
        self._device_type = device_type
        self.toolchain: CompileCost | None = None

    def compile_stale(self, cancelled: Callable[[], bool], progress: ProgressCallback) -> None:
        """Compile the partitions that are stale; an interrupt keeps what is compiled.

        Raises:
            NoCompilerError: there is no C++ compiler.
        """
        if self._program.stale():
            self.start_toolchain(progress)
        for step in self._program.compile(cancelled):
            progress(_describe(step), step.done / step.total)

    def start_toolchain(self, progress: ProgressCallback) -> None:
        """Compile a tiny graph once, so that no compile after it is charged for the toolchain.

        Raises:
            NoCompilerError: there is no C++ compiler.
        """
        if self.toolchain is None:
            progress("warming up the toolchain", 0.0)
            self.toolchain = warm_toolchain(self._device_type)


def _describe(step: CompileStep) -> str:
    return f"compiling {step.region}: {step.partition} ({step.done + 1} of {step.total})"
