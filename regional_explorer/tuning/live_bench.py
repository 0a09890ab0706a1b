"""Traces, compiles, checks and times the plans of a live call."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from msgspec.structs import replace

from regional_explorer.capture.trace import Capture
from regional_explorer.compiler import toolchain
from regional_explorer.compiler.artifact_folder import Machine
from regional_explorer.compiler.compilation import compile_plan
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run import Run, T
from regional_explorer.compiler.switch import Switch
from regional_explorer.errors import RegionCompileError
from regional_explorer.measure.benchmark import Results, check_numerics, memory_peak
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.memory import gauge_for
from regional_explorer.measure.numerics import in_words
from regional_explorer.measure.timings import MeasureContext
from regional_explorer.measure.variants import Variants
from regional_explorer.record.benchmark import MemoryPeak, VariantName
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.grouping import grouped
from regional_explorer.record.kept import kept_for_backward
from regional_explorer.record.plan import Plan
from regional_explorer.record.session import Environment, Session
from regional_explorer.record.tracing import Tracing
from regional_explorer.record.tuning import EAGER, TORCH_COMPILE
from regional_explorer.tuning.search import Built, Checked


@dataclass(frozen=True)
class LivePlan:
    """A plan on a trace of the call; ``frames`` is how many that trace had when the plan was cut."""

    variants: Variants
    key: str
    kept_bytes: int | None
    frames: int

    @property
    def program(self) -> Program:
        """The cut graphs."""
        return self.variants.program


class LiveBench:
    """What a search does with the plans of a call, done for real.

    Each way of tracing has one trace, which plans share; that of the plan at hand is the exploration's. All share its
    artifacts, so that equal code is compiled once, and none again when the answer is applied. To be closed.
    """

    def __init__(self, variants: Variants, environment: Environment, run: Run) -> None:
        self.variants = variants
        self._call = variants.call
        self.grad = variants.call.grad
        self.at_hand = variants.program.plan
        self.device_type = environment.device_type
        self.context = MeasureContext.of(run, replace(environment, threads=torch.get_num_threads()))
        self._machine = Machine.here([environment.device.partition(" ")[0]])
        self._captures: dict[Tracing, Capture] = {}
        self._kept_keys: set[str] = set()

    # ---------------------------------------------------------------------------------------------------------- plans

    def prepare(self, plan: Plan) -> LivePlan:
        """Trace the call in the way of a plan, unless that was done, and cut it.

        Raises:
            CaptureError: it cannot be traced like that.
        """
        return self._untimed(lambda: self._prepare(plan))

    def _prepare(self, plan: Plan) -> LivePlan:
        variants, earlier = self.variants, self.variants.program
        if plan != self.at_hand:
            if plan.tracing not in self._captures:
                self._captures[plan.tracing] = Capture(self._call, plan.tracing, dynamic=variants.dynamic)
            capture = self._captures[plan.tracing]
            program = Program(capture, plan, earlier.store, tried=earlier.tried, toolchain=earlier.toolchain)
            variants = Variants(self._call, program, dynamic=variants.dynamic)
        program = variants.program
        program.record_layouts()
        keys = program.keys()
        key = _content(program, lambda switch: keys.get(switch, f"{switch.failure}"))
        facts = f"{key}{self._machine}{torch.get_num_threads()}{self.grad}"
        return LivePlan(
            variants, hashlib.sha256(facts.encode()).hexdigest()[:20], self._kept(program), len(program.capture.frames)
        )

    def _kept(self, program: Program) -> int | None:
        """Return the bytes that forwards keep for their backward; None if one is not known, or without a backward."""
        graphs = tuple(program.capture.graphs)
        kept = kept_for_backward(Session("", self.context.environment, self.grad, graphs))
        sizes = [tensor.size_bytes for tensor in kept]
        known = [one for one in sizes if one is not None]
        return sum(known) if self.grad and len(known) == len(sizes) else None

    def compile(self, prepared: Sequence[LivePlan], run: Run) -> list[Built | None]:
        """Compile plans side by side; None for those that were not reached before ``run`` was cancelled.

        Raises:
            NoCompilerError: there is no C++ compiler.
        """
        first, *others = [one.program for one in prepared]
        self._untimed(lambda: compile_plan(first, run, beside=others))
        return [_built(one.program) for one in prepared]

    def check(self, prepared: LivePlan) -> Checked:
        """Compare the results of a plan with eager's, as ``ex.benchmark`` does.

        Raises:
            CancelledError: the search was cancelled.
            RegionCompileError: the plan does not run.
        """
        run, results, ready = self.context.run.silent(), Results(), [VariantName.REGIONAL]
        verdicts, _ = check_numerics(prepared.variants, ready, run, results)
        if run.cancelled():
            raise CancelledError
        if not ready:
            raise RegionCompileError(results.diagnostics[-1].message)
        if trouble := self.trouble(prepared):
            raise RegionCompileError(trouble)
        verdict = verdicts[VariantName.REGIONAL]
        rows = [row for row in results.numerics if row.variant == VariantName.REGIONAL]
        worst = max(rows, key=lambda row: (row.verdict.withholds_speedup, row.share))
        wrong = f"numerics {verdict}: {in_words(worst)}" if verdict.withholds_speedup else ""
        return Checked(wrong, all(row.bitwise for row in rows))

    def trouble(self, prepared: LivePlan) -> str:
        """Return what has gone wrong since a plan was prepared; empty if nothing has."""
        if len(prepared.program.capture.frames) != prepared.frames:
            return "Dynamo traced the call again while it ran"
        refusals = (switch.refusal for switch in prepared.program.switches if switch.refused is not None)
        return next(filter(None, refusals), "")

    # ---------------------------------------------------------------------------------------------------------- calls

    def call(self, prepared: LivePlan, title: str) -> TimedCall:
        """Return the call under a compiled plan."""
        return dataclasses.replace(prepared.variants.get(VariantName.REGIONAL), name=title)

    def eager(self) -> TimedCall:
        """Return the call as it is."""
        return dataclasses.replace(self.variants.get(VariantName.EAGER), name=EAGER)

    def full(self) -> tuple[TimedCall, float]:
        """Return the call under plain ``torch.compile``, and the seconds of its compile.

        Raises:
            Exception: whatever torch raises.
        """
        compiled = self._untimed(lambda: self.variants.compile(VariantName.FULL))
        return dataclasses.replace(self.variants.get(VariantName.FULL), name=TORCH_COMPILE), compiled.cost.seconds

    def peak(self, call: TimedCall, limit_s: float) -> MemoryPeak | None:
        """Return the peak memory of a call; None if it cannot be read on this system."""
        gauge = gauge_for(self.context.environment.device)
        return None if gauge is None else self._untimed(lambda: memory_peak(self.variants, call, gauge, limit_s))

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """A block in which calls are timed: afterwards the user's state is as before."""
        toolchain.build.wait()
        try:
            with self._call.restoring():
                yield
        finally:
            self.variants.program.select_regional(on=True)

    # -------------------------------------------------------------------------------------------------------- freeing

    def free(self, keep: Collection[Tracing]) -> None:
        """Free the traces in other ways than these."""
        for tracing in self._captures.keys() - set(keep):
            self._captures.pop(tracing).close()

    def keep(self, prepared: LivePlan) -> None:
        """Keep the artifacts of a plan when the traces are freed: it is going to be applied."""
        self._kept_keys |= set(prepared.program.keys().values())

    @contextmanager
    def closing(self) -> Iterator[None]:
        """A block at whose end all traces are freed, and all artifacts but those of the plans to ``keep``."""
        program = self.variants.program
        known_keys = set(program.store.artifacts)
        try:
            yield
        finally:
            kept_keys = known_keys | self._kept_keys | set(program.keys().values())
            for key in program.store.artifacts.keys() - kept_keys:
                del program.store.artifacts[key]
            self.free(())
            program.select_regional(on=True)

    def _untimed(self, work: Callable[[], T]) -> T:
        return self.context.run.threads.run_untimed(work)


def _content(program: Program, name_of: Callable[[Switch], str]) -> str:
    """Return a hash of all that runs: the partitions of each graph by their names, and the ops around them."""
    switches = grouped((switch.piece.graph_id, switch) for switch in program.switches)
    content = []
    for graph in program.capture.graphs:
        inside = {name for switch in switches.get(graph.id, ()) for name in switch.piece.nodes}
        if graph.kind is not GraphKind.DYNAMO:
            around = [node.target for node in graph.ops if node.name not in inside]
            content.append((graph.id, [name_of(switch) for switch in switches.get(graph.id, ())], around))
    return hashlib.sha256(repr(content).encode()).hexdigest()[:20]


def _built(program: Program) -> Built | None:
    """Return what became of the compile of a program; None if it was not completed."""
    store, keys = program.store, program.keys()
    failed = next((switch.failure for switch in program.switches if switch.failure is not None), "")
    failed_keys = [key for key in keys.values() if key in store.failures]
    if failed or failed_keys:
        failure = failed or store.failures[failed_keys[0]]
        return Built("", 0.0, failure, may_succeed_later=any(key in store.retried for key in failed_keys))
    if any(key not in store.artifacts for key in keys.values()):
        return None
    code = _content(
        program, lambda switch: store.code_hash(keys[switch]) or keys[switch] if switch in keys else "eager"
    )
    return Built(code, sum(store.artifacts[key].made.waited_s for key in set(keys.values())))
