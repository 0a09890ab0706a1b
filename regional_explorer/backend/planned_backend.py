"""The Dynamo backend that runs a plan: ``torch.compile(fn, backend="regional_explorer", options={"plan": ...})``."""

from __future__ import annotations

import re
import warnings
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from regional_explorer.backend.backend_options import BackendOptions
from regional_explorer.backend.planned_program import PlannedProgram
from regional_explorer.capture.reachable_modules import module_names, reachable_modules
from regional_explorer.capture.traced_graphs import TracedGraphs
from regional_explorer.compiler.artifacts.artifact import ArtifactStore
from regional_explorer.compiler.artifacts.folder import ArtifactFolder, folder_at
from regional_explorer.compiler.partition_records import environment_of, partitions, unmatched_regions
from regional_explorer.compiler.recompiles import stacklevel_of_caller
from regional_explorer.errors import PlanError
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.plan import Plan
from regional_explorer.record.plan_file import environment_difference, mode_differences, partition_differences
from regional_explorer.torch_api import backend_of, calling_wrapper, named_backend, traced_call

if TYPE_CHECKING:
    from torch import fx

NOTHING_MARKED = Diagnostic(
    DiagnosticCode.REGION_EMPTY,
    "There is no region: no plan was given, or an empty one, and nothing in the first call is marked. "
    "All of it runs eagerly.",
    remedy="Give a plan, or mark ops in the source with rx.region.",
)


_EDIT = re.compile(r"\bex\.\w")
_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z])")

CHANGE_THE_PLAN = (
    "Explore the call under this plan, with rx.explore(fn, args, plan=…): it says which change of the plan or of the "
    "source helps. Then save the plan again."
)


def in_production(diagnostic: Diagnostic) -> Diagnostic:
    """Return a diagnostic as it is said here, where there is no exploration ``ex`` and no upstream to compare with."""
    sentences = [text for text in _SENTENCE_END.split(diagnostic.remedy) if "upstream" not in text]
    remedy = CHANGE_THE_PLAN if _EDIT.search(diagnostic.remedy) else " ".join(sentences)
    return replace(diagnostic, upstream="", remedy=remedy)


def subject_of(diagnostic: Diagnostic) -> tuple[str, str | None, str]:
    """Return what a diagnostic is about: two with the same subject are said once."""
    return diagnostic.code, diagnostic.region, diagnostic.message if diagnostic.region is None else ""


class PlannedBackend:
    """The backend of one ``torch.compile`` under a plan, with its graphs, artifacts and findings.

    ``findings`` are the diagnostics so far: each was a warning, or an error with ``strict``.
    """

    def __init__(self, options: BackendOptions) -> None:
        self.__name__ = "regional_explorer"  # the name of the backend in torch.compile's logs
        self.options = options
        self.loaded = options.load()
        self.traced = TracedGraphs(self.loaded.partitioner)
        self.program = PlannedProgram(
            self.traced,
            self.loaded.plan or Plan(),
            ArtifactStore(folder=self._folder()),
            report=self.report,
            from_source=self.loaded.plan is None,
            ranges=options.ranges,
        )
        self.findings: list[Diagnostic] = []
        self._checked = False

    def _folder(self) -> ArtifactFolder | None:
        """Return the directory of artifacts, if one was given."""
        options = self.options
        if options.artifacts is None:
            return None
        listed = None if options.trust_artifacts else self.loaded.artifacts or None
        return folder_at(options.artifacts, listed=listed, is_trusted=options.trust_artifacts)

    def __call__(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """Compile a graph of Dynamo's: return the callable to run for it."""
        call = traced_call()
        if call is not None:
            self.traced.names = module_names(reachable_modules(call.fn, call.args, call.kwargs))
            call.at_end(self._check_plan)
        return self.traced.add_frame(gm, inputs)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle only the options: as with any ``torch.compile``, a copy is traced again."""
        return PlannedBackend, (self.options,)

    def _check_plan(self) -> None:
        """Report, at the end of a call that was traced, how it differs from the plan.

        Which parts of the plan were not found is a question of the first call alone.
        """
        if not self._checked:
            self._checked = True
            self._check_first_call()
        for diagnostic in self._mode_differences():
            if diagnostic.severity is not Severity.INFO:
                self.report(diagnostic)

    def _check_first_call(self) -> None:
        unmatched = unmatched_regions(self.program)
        empty_regions = {diagnostic.region for diagnostic in unmatched if diagnostic.severity is not Severity.INFO}
        differences = [found for found in self._partition_differences() if found.region not in empty_regions]
        if self.options.strict == "environment":
            differences += [replace(found, severity=Severity.WARNING) for found in self._environment_difference()]
        if not self.program.plan.regions:
            self.report(NOTHING_MARKED)
        for diagnostic in (*self.loaded.unknown, *self.program.source_diagnostics, *unmatched, *differences):
            if diagnostic.severity is not Severity.INFO:
                self.report(diagnostic)

    def differences(self) -> list[Diagnostic]:
        """Return the differences from the exploration that a saved plan comes from."""
        return [*self._partition_differences(), *self._environment_difference(), *self._mode_differences()]

    def _partition_differences(self) -> list[Diagnostic]:
        explored = self.loaded.explored
        return partition_differences(explored, partitions(self.program), self.traced.late_graphs) if explored else []

    def _environment_difference(self) -> list[Diagnostic]:
        explored = self.loaded.explored
        return environment_difference(explored, environment_of(self.traced.graphs)) if explored else []

    def _mode_differences(self) -> list[Diagnostic]:
        explored = self.loaded.explored
        return mode_differences(explored, self.traced.modes_of_calls()) if explored else []

    def report(self, diagnostic: Diagnostic) -> None:
        """Warn, once per region and code, that something does not run as planned; without a region, once per text.

        Raises:
            PlanError: the option ``strict`` is set.
        """
        diagnostic = in_production(diagnostic)
        is_reported = any(subject_of(other) == subject_of(diagnostic) for other in self.findings)
        if not is_reported:
            self.findings.append(diagnostic)
        text = str(diagnostic)
        if self.options.strict:
            raise PlanError(f"{text} With strict={self.options.strict!r} this is an error.")
        if not is_reported:
            warnings.warn(f"{text} rx.status(compiled) says what runs.", stacklevel=stacklevel_of_caller())


_NAMED_BACKENDS: list[tuple[weakref.ref[Any], PlannedBackend]] = []
"""The backends of functions compiled with ``backend="regional_explorer"``, each with torch's wrapper object for it."""


def regional_explorer(gm: fx.GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Any:
    """Compile a graph of Dynamo's under the plan in ``options``: the entry point of the backend's name."""
    wrapper = calling_wrapper()
    backend = _find_named(wrapper)
    if backend is None:
        backend = PlannedBackend(BackendOptions.of(options))
        if wrapper is not None:
            _NAMED_BACKENDS.append((weakref.ref(wrapper, _forget_named), backend))
    return backend(gm, inputs)


def _forget_named(wrapper_ref: weakref.ref[Any]) -> None:
    _NAMED_BACKENDS[:] = [(ref, backend) for ref, backend in _NAMED_BACKENDS if ref is not wrapper_ref]


def _find_named(wrapper: Any) -> PlannedBackend | None:
    # Equal wrappers share Dynamo's cache entries, and so the backend.
    return next((backend for ref, backend in _NAMED_BACKENDS if wrapper is not None and ref() == wrapper), None)


def planned_backend_of(compiled: Any) -> PlannedBackend | None:
    """Return the backend behind what ``rx.compile`` or ``torch.compile`` returned; None if it is another one."""
    wrapper = backend_of(compiled)
    backend = named_backend(wrapper)
    if backend is regional_explorer:
        return _find_named(wrapper)
    return backend if isinstance(backend, PlannedBackend) else None
