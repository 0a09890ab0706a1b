"""The commands for CI: compare, check, doctor."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from regional_explorer.command.options import CommandError
from regional_explorer.diagnostics.measured import wrong_plan_diagnostic
from regional_explorer.errors import RegionalExplorerError
from regional_explorer.record import Record
from regional_explorer.record.benchmark import NumericsVerdict, VariantName, Verdict
from regional_explorer.record.changes import SpeedChange, plan_differences, session_changes, speed_change
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.figure import QUIET
from regional_explorer.record.partition import State
from regional_explorer.record.session import Session
from regional_explorer.record.speeds import Missing, Speed, plan_speed, speed_text
from regional_explorer.record.statistics import CONFIDENCE
from regional_explorer.style.formats import between

if TYPE_CHECKING:
    from regional_explorer.compiler.run import Run


AGAINST: Mapping[str, tuple[VariantName, ...]] = {
    "eager": (VariantName.EAGER,),
    "torch.compile": (VariantName.EAGER, VariantName.FULL),
}
"""The variants that a plan must not be slower than, by the value of ``--against``."""

BROKEN_PLAN_CODES = frozenset(
    {
        DiagnosticCode.REGION_EMPTY,
        DiagnosticCode.REGION_LOST,
        DiagnosticCode.REGION_FAILED,
        DiagnosticCode.PASS_FAILED,
        DiagnosticCode.PLAN_FAILED,
        DiagnosticCode.CONFIG_UNKNOWN,
        DiagnosticCode.PLAN_DIFFERS,
        DiagnosticCode.NO_COMPILER,
    }
)
"""The codes of diagnostics that mean, as a warning or an error, that a plan does not hold."""


def json_fields(record: Any) -> dict[str, Any]:
    """Return the fields of a record as JSON values; a figure is its value, beside the ends ``low`` and ``high``."""
    fields: dict[str, Any] = structs.asdict(record) if isinstance(record, Record) else asdict(record)
    fields.pop("verdict_speedup", None)  # the verdict is said, and one interval per figure is enough
    for name in fields.keys() & {"speedup", "slowdown"}:
        figure = fields[name]
        fields |= {name: figure and figure.value, "low": figure and figure.low, "high": figure and figure.high}
    return fields


@dataclass(frozen=True)
class PlanCheck:
    """The result of a check: the number of compiled partitions, the numerics verdict, the speeds, and the problems.

    ``busy`` says what else the machine did while the plan was measured.
    """

    partitions: int
    compiled: int
    numerics: str
    speeds: tuple[Speed, ...]
    problems: tuple[str, ...]
    busy: str = ""

    @property
    def holds(self) -> bool:
        """Whether the plan holds."""
        return not self.problems

    @property
    def slower_than(self) -> tuple[str, ...]:
        """The variants that the plan is certainly slower than; none on a busy machine."""
        return tuple(speed.against for speed in self.speeds if speed.is_slower and not self.busy)

    @property
    def no_verdict(self) -> tuple[str, ...]:
        """The variants for which the samples cannot tell whether the plan is slower."""
        unsure = {str(verdict) for verdict in Verdict if verdict.is_unsure}
        return tuple(
            speed.against for speed in self.speeds if speed.verdict in unsure or (speed.is_slower and self.busy)
        )

    @property
    def not_compared(self) -> tuple[str, ...]:
        """The requested variants that could not be measured."""
        return tuple(speed.against for speed in self.speeds if isinstance(speed.verdict, Missing))

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        conclusions = {name: getattr(self, name) for name in ("holds", "slower_than", "not_compared", "no_verdict")}
        return {**conclusions, **asdict(self), "speeds": [json_fields(speed) for speed in self.speeds]}

    def __str__(self) -> str:
        """Return a line for each result and each problem."""
        limits = [f"is slower than {against}" for against in self.slower_than]
        limits += [f"was not compared with {against}" for against in self.not_compared]
        limits += [f"there is no verdict against {against}" for against in self.no_verdict]
        limitation = f", but {' and '.join(limits)}" if self.holds and limits else ""
        return "\n".join(
            [
                f"The plan {'holds' if self.holds else 'does not hold'}{limitation}.",
                f"compiled: {self.compiled} of {self.partitions} partitions",
                f"numerics: {self.numerics}",
                *(f"{speed_text(speed)}{f': {speed.why}' if speed.why else ''}" for speed in self.speeds),
                *([self.busy] if self.busy else []),
                *self.problems,
            ]
        )


def check_saved_plan(
    plan: Path,
    call: tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]],
    run: Run,
    *,
    grad: bool | None = None,
    dynamic: bool | None = None,
    against: str = "eager",
    budget: float = 5.0,
) -> PlanCheck:
    """Explore a call (function, arguments) under a saved plan, compile it, check the numerics and measure it."""
    from regional_explorer.exploration.exploration import explore

    fn, args, kwargs = call
    exploration = explore(fn, tuple(args), kwargs, grad=grad, dynamic=dynamic, plan=plan)
    with closing(exploration):
        variants = (*AGAINST[against], VariantName.REGIONAL)
        saved = [finding for finding in exploration.diagnostics if finding.code is DiagnosticCode.VARIANT_WRONG]
        exploration.benchmark(variants, budget, regions=False, run=run)
        return plan_check(exploration.session, against, saved)


def plan_check(session: Session, against: str, saved: Sequence[Diagnostic] = ()) -> PlanCheck:
    """Return the check of a measured session's plan; ``saved`` are findings about its results in the plan's file.

    If the plan was wrong when it was saved and is right here, save it again: rx.compile warns about the file.
    """
    problems = [
        str(diagnostic)
        for diagnostic in session.diagnostics
        if diagnostic.code in BROKEN_PLAN_CODES and diagnostic.severity is not Severity.INFO
    ]
    verdict = session.plan_numerics or NumericsVerdict.NOT_CHECKED
    problems += map(str, saved if (wrong := wrong_plan_diagnostic(session)) is None else [wrong])
    enabled = [partition for partition in session.partitions if session.plan[partition.region].enabled]
    compiled = sum(partition.state in {State.COMPILED, State.MEASURED} for partition in enabled)
    speeds = tuple(plan_speed(session, variant) for variant in AGAINST[against])
    noise = QUIET if session.conditions is None else session.conditions.noise
    busy = noise.sentence if noise.is_busy else ""
    return PlanCheck(len(enabled), compiled, str(verdict), speeds, tuple(problems), busy)


@dataclass(frozen=True)
class SpeedComparison(SpeedChange):
    """The change of the speedup over eager between two sessions, from ``before`` to ``after``, and other changes."""

    before: float | None = None
    after: float | None = None
    plans_differ: tuple[tuple[str, ...], ...] = ()
    changed: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the comparison in one line, then the differences of the plans and other changes."""
        plans = [f"{name}: {'; '.join(texts)}" for name, texts in zip("AB", self.plans_differ, strict=False) if texts]
        plans += [f"Changed: {'; '.join(self.changed)}"] if self.changed else []
        if self.slowdown is None:
            return "\n".join([self.problem, *plans])
        change = self.slowdown.value - 1.0
        shown = between(self.slowdown, lambda ratio: f"{ratio - 1.0:+.1%}")
        by = f"{abs(change):.1%}"
        differs = "as fast as A" if by == "0.0%" else f"{by} {'slower' if change > 0.0 else 'faster'}"
        line = (
            f"Speedup over eager: A {self.before:.3f}, B {self.after:.3f}. B is {differs} "
            f"({CONFIDENCE:.0%} interval of the change in time: {shown})."
        )
        return "\n".join([line, *plans])


def compare_speed(before: Session, after: Session) -> SpeedComparison:
    """Compare the whole call's speedup over eager in two sessions, each against its own session's eager samples."""
    change = speed_change(before, after)
    plans = tuple(map(tuple, plan_differences([before.plan, after.plan])))
    speedups = (session.whole_timings[VariantName.REGIONAL].speedup for session in (before, after))
    earlier, later = (figure and figure.value for figure in speedups)
    changed = tuple(session_changes(before, after))
    return SpeedComparison(change.slowdown, change.problem, change.busy, earlier, later, plans, changed)


def read_limit(text: str) -> float:
    """Return ``3%`` or ``0.03`` as 0.03.

    Raises:
        CommandError: the text has neither form, or the value is not below 1.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", text)
    limit = float(match[1]) / (100.0 if match[2] else 1.0) if match else -1.0
    if not 0.0 <= limit < 1.0:
        raise CommandError(f"--fail-if-slower takes a fraction below 1, such as 3% or 0.03; got {text!r}.")
    return limit


@dataclass(frozen=True)
class Finding:
    """The result of one check of the machine: whether a component works, its version or problem, and a remedy.

    A component is ``needed`` if nothing can be explored or compiled without it.
    """

    name: str
    works: bool
    found: str
    remedy: str = ""
    needed: bool = False

    def __str__(self) -> str:
        """Return one line."""
        sign = "ok " if self.works else "no " if self.needed else "-  "
        return f"{sign} {self.name}: {self.found}{f'. {self.remedy}' if self.remedy else ''}"


def examine() -> Iterator[Finding]:
    """Yield a finding for torch, the C++ compiler, GPUs, and each package for drawing and notebooks."""
    yield Finding("Python", works=True, found=platform.python_version(), needed=True)
    if importlib.util.find_spec("torch") is None:
        yield Finding("torch", works=False, found="not installed", remedy="pip install torch", needed=True)
    else:
        yield from _torch_findings()
    yield _package_finding("rx.explore and its tables", "pandas", needed=True)
    for name, package in (
        ("layout of graphs", "pygraphviz"),
        ("ex.graph()", "graphviz"),
        ("JupyterLab", "jupyterlab"),
        ("panel", "ipywidgets"),
        ("graph of the panel", "anywidget"),
    ):
        yield _package_finding(name, package)


def _torch_findings() -> Iterator[Finding]:
    """Yield a finding each for torch, which must be installed, the C++ compiler and GPUs."""
    try:
        import torch

        from regional_explorer.torch_api.inductor import NO_COMPILER, compiler_version
    except (RegionalExplorerError, ImportError, OSError) as error:  # OSError: a library of torch is missing
        yield Finding("torch", works=False, found=str(error), needed=True)
        return
    yield Finding("torch", works=True, found=torch.__version__, needed=True)
    version = compiler_version()
    if version is None:
        yield Finding("C++ compiler", works=False, found="no working compiler", remedy=NO_COMPILER, needed=True)
    else:
        yield Finding("C++ compiler", works=True, found=version, needed=True)
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    yield _products_finding()
    yield Finding("GPU", bool(gpus), ", ".join(gpus) or "none; regions run on the CPU")


def _products_finding() -> Finding:
    """Return how many products were measured here for the floors of calls, and which libraries were the fastest."""
    from regional_explorer.measure.floor import ProductFile, machine_text

    file, name = ProductFile(), "measured products"
    fastest = Counter(entry.library for entry in file.here).most_common()
    if not fastest:
        return Finding(name, works=False, found="none on this machine", remedy="ex.floor() measures those of a call")
    libraries = ", ".join(f"{number} fastest by {library}" for library, number in fastest)
    return Finding(name, works=True, found=f"{libraries}; {machine_text()}; {file.path}")


def _package_finding(name: str, package: str, *, needed: bool = False) -> Finding:
    try:
        return Finding(name, works=True, found=f"{package} {importlib.metadata.version(package)}", needed=needed)
    except importlib.metadata.PackageNotFoundError:
        remedy = f"pip install {package}"
        return Finding(name, works=False, found=f"{package} is not installed", remedy=remedy, needed=needed)
