"""The live objects of an exploration; keeps the session made from them until a result or the plan changes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from regional_explorer.capture.call import Call
from regional_explorer.capture.trace import Capture
from regional_explorer.compiler.compilation import Compiling
from regional_explorer.compiler.partition_records import environment_of
from regional_explorer.compiler.variants import Variants
from regional_explorer.errors import ClosedError
from regional_explorer.exploration.benchmarks import Benchmarks
from regional_explorer.exploration.initial_plan import initial_program
from regional_explorer.exploration.snapshot import Insights, take_snapshot
from regional_explorer.insight.code_store import Codes
from regional_explorer.insight.diagnose import Diagnoses
from regional_explorer.insight.kernel_timer import KernelTimes
from regional_explorer.record.plan import Plan
from regional_explorer.record.plan_file import PlanFile
from regional_explorer.record.profile import Profile
from regional_explorer.record.session import Session

Part = TypeVar("Part")
Result = TypeVar("Result")
P = ParamSpec("P")


class Live:
    """The call, its trace and its program, and the objects that compile it, measure it and read its code.

    For tools that build on an exploration; none of it is saved, and the classes may change.
    """

    def __init__(
        self, call: Call, title: str, *, dynamic: bool | None, plan: Plan | PlanFile | None, partitioner: str
    ) -> None:
        self.title = title
        self.call = call
        self.capture = Capture(call, dynamic=dynamic, partitioner=partitioner)
        self.environment = environment_of(self.capture.graphs)
        self.program, self.plan_diagnostics = initial_program(self.capture, plan, self.environment)
        self.variants = Variants(call, self.program, dynamic=dynamic)
        self.compiling = Compiling(self.program, self.environment.device_type)
        self.benchmarks = Benchmarks(self.variants, self.compiling, self.environment)
        self.codes = Codes(self.program)
        self.kernel_times = KernelTimes(self.program)
        self.diagnoses = Diagnoses(self.program, self.codes, self.environment)
        self.profile: Profile | None = None
        self.is_open = True
        self._snapshot: tuple[Any, Session] | None = None

    @property
    def session(self) -> Session:
        """The frozen record of all results so far; after ``close`` the last one."""
        revision = None
        if self.is_open:
            insights = len(self.codes.found), self.kernel_times.revision, self.diagnoses.revision
            revision = (self.program.revision(), self.benchmarks.revision, insights, self.profile)
        if self._snapshot is None or (revision is not None and self._snapshot[0] != revision):
            taken = take_snapshot(
                self.title,
                self.environment,
                self.program,
                self.compiling.toolchain,
                self.benchmarks,
                self.plan_diagnostics,
                Insights(self.codes.found, self.kernel_times.found, self.diagnoses.found),
            )
            self._snapshot = (revision, replace(taken, profile=self.profile))
        return self._snapshot[1]

    def require_open(self) -> None:
        """Raise ClosedError if the exploration is closed."""
        if not self.is_open:
            raise ClosedError(f"The exploration of {self.title} was closed. Make a new one with rx.explore(...).")

    def close(self) -> None:
        """Free arguments, traces and artifacts. The session stays readable."""
        if self.is_open:
            self._snapshot = (None, self.session)
            self.is_open = False
            self.call.close()
            self.variants.close()
            self.program.close()


class LiveOwner(Protocol):
    """An object with live objects."""

    live: Live


def delegate(
    part: Callable[[Live], Part], method: Callable[Concatenate[Part, P], Result]
) -> Callable[Concatenate[LiveOwner, P], Result]:
    """Return a method that calls ``method`` on a ``part`` constructed from its owner's live objects."""

    @functools.wraps(method)
    def delegated(owner: LiveOwner, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return method(part(owner.live), *args, **kwargs)

    return delegated
