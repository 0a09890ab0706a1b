"""Compiles the stale partitions of a program: each is lowered while the kernels of those before it are built."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from msgspec.structs import replace
from torch import fx

from regional_explorer.compiler.artifact import ArtifactStore, StartedCompile
from regional_explorer.compiler.partition_records import environment_of
from regional_explorer.compiler.program import CutProgram, Program
from regional_explorer.compiler.run import PLAIN_RUN, ProgressCallback, Run
from regional_explorer.compiler.switch import Switch
from regional_explorer.compiler.workpiece import WantedArtifact
from regional_explorer.errors import CompileEnvironmentError, NoCompilerError, RegionCompileError
from regional_explorer.record.benchmark import CompileCost
from regional_explorer.torch_api.compile_lock import compile_lock
from regional_explorer.torch_api.graphs import fake_mode_with_symbols
from regional_explorer.torch_api.inductor import compile_piece, covered_s, empty_caches
from regional_explorer.torch_api.torch_config import settings_text

Elsewhere = Callable[[Sequence[WantedArtifact], Run], Sequence[WantedArtifact]]
"""Compiles artifacts in other processes, keeps results in the store, and returns those still to compile here."""


def all_here(wanted: Sequence[WantedArtifact], _run: Run) -> Sequence[WantedArtifact]:
    """Return all of ``wanted``: nothing is compiled in other processes."""
    return wanted


def compile_stale(
    program: CutProgram,
    run: Run = PLAIN_RUN,
    *,
    cold: bool = False,
    beside: Sequence[CutProgram] = (),
    elsewhere: Elsewhere = all_here,
) -> None:
    """Compile the stale partitions. A region that fails runs eagerly; the other regions are compiled anyway.

    The partitions of programs ``beside`` it, which share its artifacts, follow: they are lowered while its kernels are
    built.
    Partitions that are compiled ``elsewhere`` are not compiled here.

    The compile lock is held for one partition at a time, so that other compiles of the process get their turn. Complete
    artifacts are kept after a cancel or an interrupt. With ``cold``, all artifacts are compiled with empty caches,
    existing artifacts too.

    Raises:
        NoCompilerError: there is no C++ compiler; nothing can be compiled at all.
    """
    programs, store = (program, *beside), program.store
    stale = _stale_artifacts(programs, everything=cold)
    known_failures = dict(store.failures)
    names = {key: f"{switch.piece.claim.region}: {switch.partition.name}" for key, (_, switch) in stale.items()}
    all_wanted = [owner.wanted(key, switch) for key, (owner, switch) in stale.items()]
    # Saved artifacts are loaded first: without a compiler the first compile ends this function.
    todo = [wanted for wanted in all_wanted if cold or store.load(wanted) is None]

    def report(doing: str, wanted: WantedArtifact, number: int, completed: float) -> None:
        waits_s = [artifact.made.waited_s for artifact in store.artifacts.values()]
        if waits_s:  # else what was expected before the first compile holds
            run.estimate(sum(waits_s) / len(waits_s) * (len(todo) - completed))
        run.progress(f"{doing} {names[wanted.key]} ({number} of {len(todo)})", completed / len(todo))

    try:
        caches = empty_caches() if cold else contextlib.nullcontext()
        with caches, contextlib.closing(_StartedCompiles(program, cold)) as building:
            todo = building.compile_elsewhere(elsewhere, todo, run)
            settings = ""
            for index, wanted in enumerate(todo):
                if run.cancelled():
                    return
                report("compiling", wanted, index + 1, index - len(building.queue) / 2)
                with compile_lock(run.cancelled, run.waiting) as has_lock:
                    if not has_lock or run.cancelled():
                        return
                    current = settings_text()
                    settings = settings or current
                    if current != settings:  # changed by another thread: the keys belong to the old settings
                        break
                    building.start(wanted)
                    building.finish_complete()
            while left := len(building.queue):
                first = building.queue[0]
                report("building", first.wanted, len(todo) - left + 1, len(todo) - left / 2)
                if not first.compiled.builds.wait(run.cancelled):
                    return
                with compile_lock(run.cancelled, run.waiting) as has_lock:
                    if not has_lock or run.cancelled():
                        return
                    building.finish_next()
    except KeyboardInterrupt:
        # An interrupt reaches the C++ compiler too: a compile that it ended is not a failure of the region.
        store.failures = known_failures
        raise
    finally:
        for each in programs:
            each.apply_artifacts()


def _stale_artifacts(programs: Sequence[CutProgram], *, everything: bool) -> dict[str, tuple[CutProgram, Switch]]:
    """Return, by key, the program and the first switch that need each artifact still to compile."""
    stale: dict[str, tuple[CutProgram, Switch]] = {}
    for program in programs:
        for key, switch in program.stale(everything=everything).items():
            stale.setdefault(key, (program, switch))
    return stale


@dataclass
class _StartedCompiles:
    """The compiles whose kernels are being built, in the order of their start; ``done`` are complete and kept."""

    program: CutProgram
    cold: bool
    queue: deque[StartedCompile] = field(default_factory=deque)
    done: list[StartedCompile] = field(default_factory=list)

    def close(self) -> None:
        """Keep complete compiles, and skip the builds that have not begun."""
        for started in self.queue:
            started.compiled.builds.abandon()
        self.finish_complete()
        self._record_overlap()

    def _record_overlap(self) -> None:
        """Record how much the compiles overlapped in time."""
        if len(self.done) > 1:  # a single compile overlaps with none
            waited_s = covered_s(span for started in self.done for span in started.compiled.builds.spans)
            record_overlap(self.program.store, [started.wanted.key for started in self.done], waited_s)

    def compile_elsewhere(self, elsewhere: Elsewhere, todo: Sequence[WantedArtifact], run: Run) -> list[WantedArtifact]:
        """Let other processes compile what they can, and return the pieces that are left to compile here."""
        remaining = list(elsewhere(todo, run))
        for wanted in todo:
            if wanted not in remaining and wanted.key in self.program.store.artifacts:
                self._record_config(wanted)
        return remaining

    def start(self, wanted: WantedArtifact) -> None:
        """Lower a piece, and start the builds of its kernels."""
        with _failures_are_kept():
            self.queue.append(self.program.store.start(wanted))

    def finish_complete(self) -> None:
        """Keep the artifacts of the first compiles, up to the first incomplete one."""
        while self.queue and self.queue[0].compiled.builds.are_complete:
            self.finish_next()

    def finish_next(self) -> None:
        """Keep the artifact of the first compile, or its failure: kernels that a later one shares are built by then."""
        started, program = self.queue.popleft(), self.program
        with _failures_are_kept():
            artifact = program.store.finish(started)
            record = replace(artifact.made, cold=self.cold)
            program.store.artifacts[artifact.key] = dataclasses.replace(artifact, made=record)
            self._record_config(started.wanted)
            self.done.append(started)

    def _record_config(self, wanted: WantedArtifact) -> None:
        """Record the config under which a piece was compiled."""
        self.program.tried_configs.setdefault(wanted.workpiece.fingerprint, {})[wanted.key] = wanted.config


def record_overlap(store: ArtifactStore, keys: Sequence[str], waited_s: float) -> None:
    """Record by how much the compiles of ``keys`` overlapped: together they took ``waited_s``."""
    all_s = sum(store.artifacts[key].made.seconds for key in keys)
    overlap = max(0.0, 1.0 - waited_s / all_s) if all_s else 0.0
    for key in keys:
        record = store.artifacts[key].made
        record = replace(record, overlapped_s=overlap * record.seconds)
        store.artifacts[key] = dataclasses.replace(store.artifacts[key], made=record)


@contextlib.contextmanager
def _failures_are_kept() -> Iterator[None]:
    """Context manager: end the block when a region does not compile; the store keeps the failure."""
    try:
        yield
    except NoCompilerError:
        raise
    except RegionCompileError:
        return


def compile_plan(
    program: Program,
    run: Run,
    *,
    cold: bool = False,
    beside: Sequence[Program] = (),
    elsewhere: Elsewhere = all_here,
) -> set[str]:
    """Compile the stale partitions, or with ``cold`` all, with empty caches; return the keys of the new artifacts.

    If one fails, the config keys that cause it are found; of the others, the keys that do not change the code. The
    partitions of programs ``beside`` it, which share its artifacts, are compiled too. Artifacts compiled before an
    interrupt are kept. It waits for compiles of other threads.
    """
    before = dict(program.store.artifacts)
    with compile_lock(run.cancelled, run.waiting) as is_free:
        pass  # released at once: each partition is compiled in a turn of its own
    if is_free:
        if any(each.stale(everything=cold) for each in (program, *beside)):
            start_toolchain(program, run.progress)
        compile_stale(program, run, cold=cold, beside=beside, elsewhere=elsewhere)
        if elsewhere is all_here:  # a search tries configs by itself
            _find_failing_keys(program, run)
            _find_inert_keys(program, run)
    return {key for key, artifact in program.store.artifacts.items() if before.get(key) is not artifact}


def _find_failing_keys(program: Program, run: Run) -> None:
    """Compile the partitions that failed under parts of their configs, until one compiles with the most keys.

    The artifacts are kept: without the keys at fault, the partition is compiled already.
    """
    settings, store = settings_text(), program.store
    for switch, failed in program.keys(settings).items():
        config, workpiece = program.config_for(switch), switch.known_workpiece

        def compiles(names: Sequence[str]) -> bool:
            smaller = {name: config[name] for name in names}  # noqa: B023 - called in this round
            wanted = program.wanted_under(switch, smaller, settings)  # noqa: B023
            if wanted.key not in (store.artifacts | store.failures) and not run.cancelled():
                run.progress(f"finding the key by which {switch.partition.name} fails", 1.0)  # noqa: B023
                program.tried_configs.setdefault(workpiece.fingerprint, {})[wanted.key] = wanted.config  # noqa: B023
                with _failures_are_kept():
                    store.compile(wanted)
            return wanted.key in store.artifacts

        is_cause_sought = failed in store.failures and failed not in store.retried
        kept = list(config) if is_cause_sought and compiles(()) else []
        while kept and not compiles(kept):
            kept.pop(bisect_left(range(1, len(kept)), x=True, key=lambda number: not compiles(kept[:number])))


def _find_inert_keys(program: Program, run: Run) -> None:
    """Generate the code of compiled partitions without their config, and without each key of it if that differs."""
    settings, store = settings_text(), program.store
    for switch, key in program.keys(settings).items():
        config, own = program.config_for(switch), store.code_hash(key)
        for left_out in [tuple(config), *((name,) for name in config if len(config) > 1)] if config and own else ():
            smaller = {name: value for name, value in config.items() if name not in left_out}
            wanted = program.wanted_under(switch, smaller, settings)
            if store.code_hash(wanted.key) is None and not run.cancelled():
                run.progress(f"comparing the code of {switch.partition.name} without {', '.join(left_out)}", 1.0)
                program.tried_configs.setdefault(wanted.workpiece.fingerprint, {})[wanted.key] = smaller
                store.generate(wanted)
            if len(left_out) == len(config) and store.code_hash(wanted.key) == own:
                break


def start_toolchain(program: Program, progress: ProgressCallback) -> None:
    """Compile a tiny graph once, so that later compiles do not include the toolchain's start."""
    if program.toolchain is None:
        progress("warming up the toolchain", 0.0)
        # Each region that fails for the same reason gets a diagnostic of its own.
        with contextlib.suppress(CompileEnvironmentError):
            program.toolchain = warm_toolchain(environment_of(program.capture.graphs).device_type)


@functools.cache
def warm_toolchain(device_type: str) -> CompileCost:
    """Compile one tiny graph, so that the next compile is timed without the toolchain's start; return its cost.

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
