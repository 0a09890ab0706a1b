"""The live objects of an exploration; keeps the session made from them until a result or the plan changes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from regional_explorer.capture.call import Call, traced_again
from regional_explorer.capture.trace import Capture
from regional_explorer.compiler.compilation import Compiling
from regional_explorer.compiler.exclusive_use import ExclusiveUse
from regional_explorer.compiler.partition_records import environment_of
from regional_explorer.compiler.variants import Variants
from regional_explorer.errors import ClosedError
from regional_explorer.exploration.benchmarks import Benchmarks
from regional_explorer.exploration.dropped import note_when_dropped
from regional_explorer.exploration.initial_plan import initial_program
from regional_explorer.exploration.snapshot import Insights, take_snapshot
from regional_explorer.insight.code_store import Codes
from regional_explorer.insight.diagnose import Diagnoses
from regional_explorer.insight.kernel_timer import KernelTimes
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.plan import Plan
from regional_explorer.record.plan_file import PlanFile
from regional_explorer.record.profile import Profile
from regional_explorer.record.region import Region
from regional_explorer.record.session import Session

Part = TypeVar("Part")
Result = TypeVar("Result")
P = ParamSpec("P")


class Live:
    """The call, its trace and its program, and the objects that compile it, measure it and read its code.

    For tools that build on an exploration; none of it is saved, and the classes may change. Whatever traces, compiles
    or runs the call does so in a block of ``exclusive_use``. ``other_ops`` are the regions that this trace gives other
    ops than the trace before, with their diagnostics. ``saved_artifacts`` has the SHA-256 of each artifact that
    ``ex.save_artifacts`` has written, by key.
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
        self.other_ops: tuple[tuple[Region, Diagnostic], ...] = ()
        self.saved_artifacts: dict[str, str] = {}
        self.is_open = True
        self.exclusive_use = ExclusiveUse()
        self._snapshot: tuple[Any, Session] | None = None
        note_when_dropped(self, self.capture)

    @property
    def session(self) -> Session:
        """The frozen record of all results so far; after ``close`` the last one."""
        revision = None
        if self.is_open:
            insights = self.codes.revision, self.kernel_times.revision, self.diagnoses.revision
            revision = (self.program.revision(), self.benchmarks.revision, insights, self.profile)
        if self._snapshot is None or (revision is not None and self._snapshot[0] != revision):
            snapshot = take_snapshot(
                self.title,
                self.environment,
                self.program,
                self.compiling.toolchain,
                self.benchmarks,
                (*self.plan_diagnostics, *self._other_op_diagnostics()),
                Insights(self.codes.found, self.kernel_times.found, self.diagnoses.found),
            )
            self._snapshot = (revision, replace(snapshot, profile=self.profile))
        return self._snapshot[1]

    def _other_op_diagnostics(self) -> Iterator[Diagnostic]:
        """Yield the diagnostics in ``other_ops`` whose regions are still marked as they were."""
        for region, diagnostic in self.other_ops:
            if region.name in self.program.plan and region.same_nodes(self.program.plan[region.name]):
                yield diagnostic

    def require_open(self) -> None:
        """Raise ClosedError if the exploration is closed."""
        if not self.is_open:
            if self.capture.instead is traced_again:  # by another thread, while this one waited for its turn
                raise ClosedError(f"The call of {self.title} was traced again meanwhile. Try again.")
            raise ClosedError(f"The exploration of {self.title} was closed. Make a new one with rx.explore(...).")

    def traced_again(self, *, dynamic: bool | None) -> Live:
        """Return new live objects of the same call, under the same plan.

        Raises:
            CaptureError: it cannot be traced with these shapes.
        """
        plan, partitioner = self.program.plan, self.capture.partitioner
        live = Live(self.call, self.title, dynamic=dynamic, plan=plan, partitioner=partitioner)
        live.exclusive_use = self.exclusive_use
        return live

    def take_over(self, earlier: Live) -> None:
        """Continue with the artifacts and the measured runs of an earlier trace of the call, and free that trace."""
        self.plan_diagnostics = earlier.plan_diagnostics
        self.compiling.toolchain = earlier.compiling.toolchain
        self.benchmarks.runs = earlier.benchmarks.runs
        self.saved_artifacts = earlier.saved_artifacts
        earlier.capture.instead = traced_again
        earlier.keep_session()
        self.program.take_over(earlier.program)
        earlier.free_trace()

    def close(self) -> None:
        """Free arguments, traces and artifacts. The session stays readable.

        Raises:
            BusyError: a measurement is running, which would not restore what the call changes.
        """
        with self.exclusive_use.editing():
            if self.is_open:
                self.keep_session()
                self.call.close()
                self.free_trace()

    def keep_session(self) -> None:
        """Keep the session as it is now; nothing can be run after that."""
        self._snapshot = (None, self.session)
        self.is_open = False

    def free_trace(self) -> None:
        """Free the traces and artifacts, but not the call."""
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
