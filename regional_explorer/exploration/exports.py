"""What an exploration exports: ``ex.to_source``, ``ex.save_plan``, ``ex.save_artifacts``, ``ex.repro``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from regional_explorer.compiler.artifacts.artifact import label_of, save_artifact
from regional_explorer.compiler.artifacts.folder import folder_at
from regional_explorer.compiler.partition_records import preview_of
from regional_explorer.compiler.recompiles import stacklevel_of_caller
from regional_explorer.compiler.run_context import RunContext
from regional_explorer.errors import ArtifactError, MissingPackageError, ReproError
from regional_explorer.errors.arguments import check_argument, check_flag
from regional_explorer.exploration.live import Live
from regional_explorer.export.save import save_plan
from regional_explorer.insight.repro import repro_script
from regional_explorer.record.diagnostic import DiagnosticCode
from regional_explorer.record.plan_file import Explored
from regional_explorer.record.timing import Verdict
from regional_explorer.render.style.formats import bounds

if TYPE_CHECKING:
    from regional_explorer.export.patch.source_patch import SourcePatch


class Exports:
    """Exports the plan, its artifacts and bug reports of an exploration."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def to_source(self, *, apply: bool = False) -> str:
        """Return the plan as a change of the source: a unified diff, and the new text of cells of a notebook.

        Regions become ``torch.fx.traceback.annotate`` around statements, functions and calls, such that exploring the
        changed source gives the same partitions and configs. For a region that no annotation can express, the text says
        why, and has the calls that mark it.

        Args:
            apply: also write the files. They must be tracked by git and clean; either all are written or none.

        Raises:
            SourcePatchError: ``apply``, and a file is not tracked or not clean, is a cell, or cannot be written.
            MissingPackageError: libcst is not installed.
        """
        self._live.require_open()
        check_flag("apply", apply)
        patch = self.source_patch()
        if apply:
            patch.apply()
        return str(patch)

    def source_patch(self) -> SourcePatch:
        """Return the change of the source that marks the plan there.

        Raises:
            MissingPackageError: libcst is not installed.
        """
        try:
            import libcst  # noqa: F401 - unlike Python's ``ast``, it keeps comments and layout of a file
        except ImportError as error:
            raise MissingPackageError(
                "Writing a plan into the source needs libcst: pip install libcst. ex.save_plan(…) does without."
            ) from error
        from regional_explorer.export.patch.source_patch import source_patch

        program, capture = self._live.program, self._live.capture
        return source_patch(
            capture.graphs, capture.breaks, program.plan, lambda plan: preview_of(program, plan).partitions
        )

    def save_plan(self, path: str | Path) -> Path:
        """Write the plan to a JSON file, for ``explore(..., plan=path)`` and ``rx.compile(fn, path)``.

        The file also says what the plan was explored and measured on; a warning says so if it was slower than eager. It
        lists the SHA-256 of its artifacts that
        ``ex.save_artifacts`` has written so far: ``rx.compile`` then loads no others.

        Raises:
            PlanError: the file cannot be written.
        """
        live = self._live
        session = live.session
        modes = live.capture.modes_of_calls()[0]
        explored = Explored.of(session, live.capture.partitioner, live.capture.late_graphs, modes)
        keys = {partition.artifact for partition in session.partitions}
        artifacts = sorted({sha256 for key, sha256 in live.saved_artifacts.items() if key in keys})
        saved = save_plan(live.program.plan, path, explored, tuple(artifacts))
        if explored.verdict is Verdict.SLOWER and explored.speedup is not None:
            warnings.warn(
                f"The plan is slower than eager: {explored.speedup:.2f}× "
                f"({bounds(explored.speedup_low, explored.speedup_high)}). It was saved all the same; "
                "ex.region_timings says which regions to disable, ex.reconciliation where the time goes.",
                stacklevel=stacklevel_of_caller(),
            )
        return saved

    def save_artifacts(self, path: str | Path) -> Path:
        """Write the compiled partitions of the plan to a directory, for ``rx.compile(fn, plan, artifacts=path)``.

        Stale partitions are compiled first. A process that runs the same call under the same plan then starts without
        compiling, on a machine without a compiler too. Artifacts are code: loading them runs them. A plan that is saved
        afterwards lists them.

        Raises:
            ArtifactError: an artifact cannot be written, or torch cannot serialize it; the others are written. Or
                ``path`` is not a directory, or one that others may write.
            NoCompilerError: there is no C++ compiler.
            BusyError: another thread, such as a job of the panel, measures.
        """
        saved_keys: set[str] = set()
        run = RunContext.checked()
        with self._live.exclusive_use.compiling(run):
            self._live.require_open()
            folder = folder_at(path)
            self._live.compiling.compile_stale(run)
            for switch in self._live.program.switches:
                artifact, inputs = switch.artifact, switch.inputs
                if artifact is None or inputs is None or artifact.key in saved_keys:
                    continue
                saved_keys.add(artifact.key)
                config = self._live.program.config_for(switch)
                label = label_of(artifact.key, switch.piece, inputs, config, switch.fingerprint())
                with self._live.capture.generated.collected():
                    sha256 = save_artifact(folder, label, artifact)
                if sha256 is not None:
                    self._live.saved_artifacts[artifact.key] = sha256
            folder.finish()
        unsaved = [finding for finding in folder.findings if finding.code is DiagnosticCode.ARTIFACT_UNSAVED]
        if unsaved:
            raise ArtifactError(" ".join(finding.message for finding in unsaved))
        return folder.path

    def repro(self, name: str, *, partition: str | None = None) -> str:
        """Return a script that compiles, checks and times one partition of a region, to attach to a bug report.

        It needs nothing but torch: the graph is written as code, the inputs by size, stride and dtype, the config as
        requested. A partition that does not compile fails there as it does here. Nothing needs to be compiled.

        Args:
            name: the region.
            partition: the id of one of its partitions; by default one that failed, else the first.

        Raises:
            UnknownRegionError: there is no such region.
            ReproError: the region has no such partition, or it cannot be written as a script.
            BusyError: another thread, such as a job of the panel, measures.
        """
        check_argument("partition", partition, (str, type(None)), "the id of a partition")
        with self._live.exclusive_use.compiling(RunContext.checked()):
            self._live.require_open()
            region = self._live.program.plan[name]
            self._live.program.record_layouts()
        switches = [switch for switch in self._live.program.switches if switch.piece.claim.region == region.name]
        keys, failures = self._live.program.keys(), self._live.program.store.failures
        switches.sort(key=lambda switch: keys.get(switch) not in failures)
        chosen = [switch for switch in switches if partition in (None, switch.partition.name)]
        if not chosen:
            existing = ", ".join(switch.partition.name for switch in switches) or "none at all"
            requested = "partition" if partition is None else f"partition {partition!r}"
            raise ReproError(f"Region {name!r} has no {requested}; there is {existing}.")
        switch, function = chosen[0], self._live.title
        title = f"Partition {switch.partition.name} of region {name!r} of {function}, graph {switch.piece.graph_id}."
        if switch.inputs is None:
            raise ReproError(f"Partition {switch.partition.name} cannot be written as a script: {switch.failure}.")
        try:
            return repro_script(title, switch.piece, switch.inputs, self._live.program.config_for(switch))
        except ReproError as problem:
            raise ReproError(f"Partition {switch.partition.name} cannot be written as a script: {problem}") from problem
