"""Events that start work: compile, measure, profile, search, trace again, read code, write files."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from regional_explorer.compiler.run import PLAIN_RUN, Run
from regional_explorer.export.to_source import plan_program
from regional_explorer.measure.machine import wait_until_quiet
from regional_explorer.record.answer import BUDGETS_S
from regional_explorer.record.benchmark import VariantName
from regional_explorer.record.gpu_targets import GPU_TARGETS
from regional_explorer.record.plan import Tracing
from regional_explorer.record.session import SHAPES
from regional_explorer.tables.tuning import search_sentences
from regional_explorer.ui.answer import (
    FIND_BEST,
    MEASURE_SUGGESTED,
    QUIET,
    QUIET_SEARCH,
    SEARCHES,
    SUGGEST_S,
    WATERFALL,
    WATERFALL_S,
)
from regional_explorer.ui.control import Control, Event, EventKind, is_choice, is_flag, is_text, one_of
from regional_explorer.ui.jobs import Work
from regional_explorer.ui.parts import MAX_BUDGET_S
from regional_explorer.ui.state import CANCEL, TIME, PanelState

if TYPE_CHECKING:
    from regional_explorer.exploration.exploration import Exploration


def _compile_and_read(ex: Exploration, state: PanelState, run: Run) -> None:
    """Compile stale partitions, then read the generated code of the open region."""
    ex.compile(run=run)
    if state.opened is not None and not run.cancelled():
        ex.code(state.opened, run=run)


def _when_quiet(work: Work) -> Work:
    """Return ``work`` with a wait before it, until no other process disturbs the machine."""

    def wait_first(ex: Exploration, state: PanelState, run: Run) -> None:
        wait_until_quiet(run)
        if not run.cancelled():
            work(ex, state, run)

    return wait_first


def _measure(ex: Exploration, state: PanelState, run: Run) -> None:
    ex.benchmark(tuple(ex.live.measurements.at_once(state.variants)), state.budget_s, run=run)


def _measure_more(ex: Exploration, state: PanelState, run: Run) -> None:
    # Of the variants on screen, whichever are ticked by now: rounds of others would replace those measured.
    ex.benchmark(None, state.budget_s, more=True, run=run)


def _tune(ex: Exploration, _state: PanelState, run: Run, do: str = "tune") -> None:
    ex.tune(SEARCHES[do], run=run)


COMPARE = "compare torch.compile"
"""The job that adds ``torch.compile`` to the figures of the plan; anything else that is to be done cancels it."""

JOBS: Mapping[str, tuple[str, Work]] = {
    "measure": ("Compile & measure", _measure),
    COMPARE: ("torch.compile", lambda ex, state, run: ex.benchmark(state.variants, state.budget_s, run=run)),
    "measure more": ("Measure more", _measure_more),
    "compile": ("Compile", lambda ex, _, run: ex.compile(run=run)),
    "profile": ("Profile", lambda ex, state, run: ex.profile(state.budget_s, run=run)),
    "compile code": ("Compile", _compile_and_read),
    **{do: (FIND_BEST, partial(_tune, do=do)) for do in SEARCHES},
    WATERFALL: ("Take the gain apart", lambda ex, _, run: ex.waterfall(WATERFALL_S, run=run)),
    MEASURE_SUGGESTED: ("Measure the suggestions", lambda ex, _, run: ex.suggest(SUGGEST_S, run=run)),
    QUIET: ("Measure when it is quiet", _when_quiet(_measure)),
    QUIET_SEARCH: ("Search when it is quiet", _when_quiet(_tune)),
    "diagnose": ("Find out why", lambda ex, state, run: ex.diagnose(state.opened, state.budget_s, run=run)),
}
"""The name and the work of each job, by the event that starts it."""


def start_job(control: Control, do: str, *, background: bool = False) -> None:
    """Start the job of the event ``do``; a profile also opens the pane of times."""
    if do == "profile":
        control.update(lambda state: state.with_pane(TIME))
    searches = do in {*SEARCHES, QUIET_SEARCH}
    stop = "Stop, keep the best" if searches else CANCEL
    follows = _tell_of_search if searches else compare_in_background if do in {"measure", QUIET} else None
    control.jobs.start(*JOBS[do], background=background, stop=stop, then=follows and (lambda: follows(control)))


def compare_in_background(control: Control) -> None:
    """Let ``torch.compile`` follow a measurement of the plan, if it takes a compile, until there is other work."""
    session, measurements = control.session, control.exploration.live.measurements
    is_measured = bool(session.timings) and not session.is_outdated and control.state.job is None
    if is_measured and measurements.torch_compile_follows(control.state.variants):
        start_job(control, COMPARE, background=True)


def _tell_of_search(control: Control) -> None:
    """Show how a search has ended: the answer has no word of it if the plan at hand is the best."""
    if control.session.tuning is not None and not control.state.note:
        control.set(note=search_sentences(control.session.tuning))


def _set_budget(control: Control, event: Event) -> None:
    try:
        seconds = float(event.text)
    except ValueError:  # the page shows the old budget again
        return
    if seconds > 0:
        control.set(budget_s=min(seconds, MAX_BUDGET_S))


def _toggle_variant(control: Control, event: Event) -> None:
    chosen = {str(name) for name in control.state.variants} - {event.of} | ({event.of} if event.value else set())
    control.set(variants=tuple(name for name in VariantName if name in chosen or name is VariantName.EAGER))


def trace_again(control: Control, shapes: str, tracing: Tracing | None = None) -> None:
    """Start a job that traces the call again, unless the trace is already so; by default, only the shapes change."""
    tracing = tracing or control.session.plan.tracing
    if shapes == control.session.shapes and tracing == control.session.plan.tracing:
        return

    def trace(exploration: Exploration, _state: PanelState, run: Run) -> None:
        exploration.retrace(dynamic=SHAPES[shapes], tracing=tracing, run=run)

    control.jobs.start("Trace again", trace, shapes=shapes)


def _choose_target(control: Control, event: Event) -> None:
    control.set(target=event.text)
    control.read_code()


def _measure_for(control: Control, event: Event) -> None:
    """Measure for the given seconds, which become the budget of later measurements."""
    if event.of:
        control.set(budget_s=float(event.of))
    start_job(control, "measure more" if event.do == "measure more" else "measure")


WRITERS: Mapping[str, tuple[str, Callable[[Exploration, Path, Run], object]]] = {
    "patch": ("patch", lambda ex, path, run: path.write_text(ex.to_source(run=run), encoding="utf-8")),
    "plan": ("plan.json", lambda ex, path, _: ex.save_plan(path)),
    "python": ("py", lambda ex, path, _: path.write_text(plan_program(ex.plan, ex.title), encoding="utf-8")),
    "html": ("html", lambda ex, path, _: ex.save(path)),
    "json": ("json", lambda ex, path, _: ex.save(path)),
}
"""The ending of each kind of file, and the function that writes it."""


def _measure_with(control: Control, event: Event) -> None:
    """Measure with another variant added; later measurements compare it too."""
    _toggle_variant(control, replace(event, value=True))
    start_job(control, "measure")


def _save(control: Control, event: Event) -> None:
    """Write a new file, never over an existing one. A job writes the formats that take long."""
    ending, write = WRITERS[event.of]
    stem = re.sub(r"\W+", "_", control.session.title).strip("_") or "exploration"
    suffixes = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    paths = (Path(f"{stem}{suffix}.{ending}") for suffix in suffixes)
    path = next(path for path in paths if not path.exists())

    def save(exploration: Exploration, _state: PanelState, run: Run) -> None:
        write(exploration, path, run)
        control.set(saved=str(path), note="")

    if event.of in {"patch", "html"}:  # a patch takes a trace, a page takes pictures
        control.jobs.start("Write the patch" if event.of == "patch" else "Write the page", save)
    else:
        save(control.exploration, control.state, PLAIN_RUN)


JOB_EVENTS: Mapping[str, EventKind] = {
    **dict.fromkeys(JOBS, EventKind(lambda control, event: start_job(control, event.do))),
    "diagnose": EventKind(
        lambda control, event: start_job(control, event.do), when=lambda control: control.state.opened is not None
    ),
    "cancel": EventKind(lambda control, _: control.jobs.cancel(in_cell=True)),
    **dict.fromkeys(
        ("measure for", "measure more"), EventKind(_measure_for, one_of(lambda _: ["", *map(str, BUDGETS_S)]))
    ),
    "measure with": EventKind(_measure_with, one_of(lambda _: map(str, VariantName))),
    "budget": EventKind(_set_budget, value=is_text),
    "variant": EventKind(_toggle_variant, one_of(lambda _: map(str, VariantName)), is_flag),
    "shapes": EventKind(lambda control, event: trace_again(control, event.text), value=is_choice(SHAPES)),
    "code": EventKind(lambda control, _: control.read_code()),
    "target": EventKind(_choose_target, value=is_choice(["", *GPU_TARGETS])),
    "save": EventKind(_save, one_of(lambda _: WRITERS)),
}
