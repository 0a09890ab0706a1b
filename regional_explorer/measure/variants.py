"""Selects the variants to compare, has torch compile full and upstream's, and diagnoses a compile that fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from regional_explorer.capture.call import Call
from regional_explorer.capture.trace import traceable
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run import never_cancelled
from regional_explorer.compiler.upstream_marks import Marks
from regional_explorer.compiler.workers import in_a_copy
from regional_explorer.errors import RegionalExplorerError
from regional_explorer.measure.clock import TimedCall, do_nothing
from regional_explorer.record.benchmark import BY_TORCH, CompileCost, VariantName
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.torch_api.compile_lock import compile_lock, compile_lock_for_user_code
from regional_explorer.torch_api.compile_notes import CacheCounts, counting_patterns
from regional_explorer.torch_api.dynamo import as_first_call, compile_isolated
from regional_explorer.torch_api.inductor import can_compile_in_copy, forget_compile_threads
from regional_explorer.torch_api.releasing import has_given_up, release_compiled, traces_of
from regional_explorer.torch_api.torch_config import settings_text, under_config
from regional_explorer.torch_api.torch_errors import torch_error_line
from regional_explorer.torch_api.upstream_compilers import HAS_LITE_MODE


@dataclass(frozen=True)
class CompiledVariant:
    """The call as torch compiled it for one variant, the cost of its first call, and its differences from the plan.

    ``content`` identifies what it was compiled from; another plan, or another setting, needs another compile.
    """

    function: Callable[..., Any]
    cost: CompileCost
    content: Any
    findings: tuple[Diagnostic, ...] = ()


TWIN_OF_FULL = "full, a twin that draws eager's random numbers"


class Variants:
    """Makes the variants of ``call``, which ``program`` runs, and keeps what torch compiled for them.

    The variants of several programs on one capture can be timed in one run: each selects what it runs.

    ``_twin`` is a second compile of ``full``, which draws the random numbers that eager draws. ``expected_s`` are the
    seconds that the compile of ``full`` is expected to take.
    """

    def __init__(self, call: Call, program: Program, *, dynamic: bool | None) -> None:
        self.call = call
        self.program = program
        self.dynamic = dynamic
        self.expected_s: float | None = None
        self._compiled: dict[VariantName, CompiledVariant] = {}
        self._twin: CompiledVariant | None = None
        self._retraced: set[VariantName] = set()

    def measurable(self, names: Sequence[VariantName]) -> list[VariantName]:
        """Return the variants of ``names`` that can run and differ from each other."""
        excluded: set[VariantName] = set()
        if self.program.capture.failed_ops:  # reported as aot-eager-failed
            excluded = {VariantName.AOT_EAGER}
        elif VariantName.AOT_EAGER in names and not self.program.switches:
            # With nothing cut out, they would run the same code as aot_eager.
            excluded = {VariantName.REGIONAL, VariantName.UPSTREAM, VariantName.LITE}
        return [name for name in names if name not in excluded]

    def get(self, name: VariantName) -> TimedCall:
        """Return the variant ``name`` as a call to time; a variant of ``BY_TORCH`` needs ``compile`` first."""
        call, function, threads = self.call, self.function(name), torch.get_num_threads()
        # Autocast keeps casts of weights until its outermost block ends. Here each call casts again, as each step of a
        # training loop does; else only the first variant of a round would cast.
        casting = call.modes.has_autocast

        def before() -> None:
            if casting:
                torch.clear_autocast_cache()
            if call.stateful:
                call.restore()

        def select() -> None:
            self.select(name)
            # The user's code may set another number of threads: all variants run with the same.
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)

        return TimedCall(
            name=name,
            forward=lambda: call.forward(function),
            backward=call.backward if call.grad else None,
            # Else there is nothing to restore: the call neither changes tensors nor draws random numbers.
            before=before if casting or call.stateful else do_nothing,
            select=select,
        )

    def select(self, name: VariantName) -> None:
        """Let the captured graphs run as in the variant ``name``."""
        self.program.select_regional(on=name != VariantName.AOT_EAGER)

    def function(self, name: VariantName) -> Callable[..., Any]:
        """Return the function that makes the call as the variant ``name``, once the variant is selected."""
        if name == VariantName.EAGER:
            return self.call.fn
        return self._compiled[name].function if name in BY_TORCH else self.program.capture.run

    def is_full_compiled(self) -> bool:
        """Return whether plain ``torch.compile`` has compiled the call under the current settings."""
        full = self._compiled.get(VariantName.FULL)
        return full is not None and full.content == (settings_text(), None)

    def compile(self, name: VariantName, cancelled: Callable[[], bool] = never_cancelled) -> CompiledVariant:
        """Compile the call for a variant of ``BY_TORCH``, unless it was compiled for this plan, and record the cost.

        Dynamo does not guard on Inductor's config: under other settings the call is compiled again, as a region is. An
        interrupt stops a compile on the main thread. On another thread, a copy of this process compiles first, which
        can be ended at any time; what it leaves in the caches makes the compile here short.

        Raises:
            concurrent.futures.CancelledError: it was cancelled before this process began to compile.
        """
        marks = None if name is VariantName.FULL else Marks.of(self.program)
        content = settings_text(), None if marks is None else marks.content()
        existing = self._compiled.get(name)
        if existing is not None and existing.content == content:
            return existing
        function, backend = self.call.fn, "inductor"
        if marks is not None:
            function, backend = traceable(self.call.fn), self._upstream_backend(name, marks)
        watched = marks.watching(name) if marks is not None else nullcontext()
        cost_of_copy = self._cost_of_copy(cancelled) if name is VariantName.FULL else None
        compiled, cost = self._first_run(name, function, backend, watched)
        cost = cost_of_copy or cost
        self._release_variant(name)
        self._compiled[name] = CompiledVariant(
            compiled, cost, content, tuple(marks.findings(name)) if marks is not None else ()
        )
        return self._compiled[name]

    def _cost_of_copy(self, cancelled: Callable[[], bool]) -> CompileCost | None:
        """Have a copy of this process compile ``full``; return the cost there, None if no copy can."""
        if threading.current_thread() is threading.main_thread() or not can_compile_in_copy():
            return None

        def compile_there() -> CompileCost:
            forget_compile_threads()
            return self._first_run(VariantName.FULL, self.call.fn, "inductor", nullcontext())[1]

        return in_a_copy(compile_there, cancelled, at_rest=compile_lock())

    @contextmanager
    def twin_of_full(self, config: Mapping[str, Any]) -> Iterator[CompiledVariant]:
        """Context manager: yield the call compiled as for ``full``, but under ``config``; run it inside the block."""
        with under_config(config):
            content = settings_text()
            if self._twin is None or self._twin.content != content:
                compiled, cost = self._first_run(TWIN_OF_FULL, self.call.fn, "inductor", nullcontext())
                self._release_twin()
                self._twin = CompiledVariant(compiled, cost, content)
            yield self._twin

    def _first_run(
        self, title: str, function: Callable[..., Any], backend: Any, watched: AbstractContextManager[Any]
    ) -> tuple[Callable[..., Any], CompileCost]:
        """Compile the call by running it; return the compiled function and the cost."""
        compiled = compile_isolated(function, backend, dynamic=self.dynamic)
        counts = CacheCounts.now()
        started = time.perf_counter()
        try:
            with (
                compile_lock_for_user_code(),
                self.program.capture.generated.collecting(),
                self.call.restoring(),
                as_first_call(self.call.fn),
                counting_patterns() as matched,
                watched,
            ):
                self.call.run(compiled)
        except BaseException:
            release_compiled(compiled)
            raise
        seconds, patterns = time.perf_counter() - started, counts.if_nothing_cached(matched)
        return compiled, CompileCost(title, seconds, counts.warm_or_cold(), patterns=patterns)

    def _upstream_backend(self, name: VariantName, marks: Marks) -> Any:
        if name is VariantName.UPSTREAM:
            return marks.regional()
        if not HAS_LITE_MODE:
            raise RegionalExplorerError("This torch has no torch.compile(mode='lite'); leave the variant 'lite' out.")
        return marks.lite(dynamic=self.dynamic)

    def traces(self) -> dict[VariantName, int]:
        """Return how often Dynamo has traced the call for each variant so far."""
        captures = len(self.program.capture.frames)
        torch_traces = {name: traces_of(compiled.function) for name, compiled in self._compiled.items()}
        return {VariantName.AOT_EAGER: captures, VariantName.REGIONAL: captures, **torch_traces}

    def _release_variant(self, name: VariantName) -> None:
        if (compiled := self._compiled.pop(name, None)) is not None:
            release_compiled(compiled.function)

    def _release_twin(self) -> None:
        if self._twin is not None:
            release_compiled(self._twin.function)
            self._twin = None

    def traced_since(self, before: Mapping[VariantName, int]) -> dict[VariantName, int]:
        """Return how often Dynamo has traced each variant since ``traces`` returned ``before``, without zeros."""
        since = {name: count - before[name] for name, count in self.traces().items() if count != before[name]}
        self._retraced |= since.keys()
        return since

    def given_up(self) -> set[VariantName]:
        """Return the variants that Dynamo traced again during a measurement and has given up on."""
        return {name for name in self._retraced if has_given_up(self.function(name))}

    def close(self) -> None:
        """Free what torch compiled, and what torch keeps for each compile."""
        for name in list(self._compiled):
            self._release_variant(name)
        self._release_twin()


def compile_failed_diagnostic(name: VariantName, error: Exception) -> Diagnostic:
    """Return the diagnostic of a variant of ``BY_TORCH`` whose compile raised."""
    raised = f": {type(error).__name__}: {torch_error_line(error)}"
    if name is VariantName.FULL:
        return DiagnosticCode.FULL_FAILED.finding(
            "Plain torch.compile failed on this call",
            raised,
            remedy="Call torch.compile(fn) with the same arguments to see the full error. "
            "The other variants are measured.",
        )
    return DiagnosticCode.UPSTREAM_FAILED.finding(
        f"The variant {name} failed on this call",
        raised,
        remedy="Run the plan with rx.compile instead. The other variants of the benchmark are not affected.",
    )
