"""Handles the events that start or cancel jobs (compile, measure, trace, read code) or set their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from regional_explorer.exploration.exploration import Exploration
from regional_explorer.record.gpu_targets import GPU_TARGETS
from regional_explorer.record.session import SHAPES
from regional_explorer.record.variant_name import VariantName
from regional_explorer.ui.control import Control
from regional_explorer.ui.panel.event import Event, Handler
from regional_explorer.ui.panel.tools import MAX_BUDGET_S
from regional_explorer.ui.state import TIME
from regional_explorer.ui.threads.progress import Throttle


def _measure(control: Control, _event: Event) -> None:
    names, budget_s = tuple(str(name) for name in control.state.variants), control.state.budget_s
    control.jobs.start(
        "Compile & measure",
        lambda ex, cancelled, progress: ex.benchmark(
            names, budget_s, cancelled=cancelled, progress=progress, executor=control.jobs.executor
        ),
    )


def _compile(control: Control, _event: Event) -> None:
    control.jobs.start("Compile", lambda ex, cancelled, progress: ex.compile(cancelled=cancelled, progress=progress))


def _profile(control: Control, _event: Event) -> None:
    budget_s = control.state.budget_s
    control.change(control.state.with_pane(TIME))
    control.jobs.start(
        "Profile",
        lambda ex, cancelled, progress: ex.profile(
            budget_s, cancelled=cancelled, progress=progress, executor=control.jobs.executor
        ),
    )


def _compile_and_read_code(control: Control, _event: Event) -> None:
    """Compile what is stale, then read the generated code of the open region."""
    name = control.state.opened

    def work(ex: Exploration, cancelled: Callable[[], bool], progress: Throttle) -> None:
        ex.compile(cancelled=cancelled, progress=progress)
        if name is not None and not cancelled():
            ex.code(name, cancelled=cancelled, progress=progress)

    control.jobs.start("Compile", work)


def _budget(control: Control, event: Event) -> None:
    try:
        seconds = float(event.text)
    except ValueError:  # the page shows the old one again
        return
    if seconds > 0:
        control.change(replace(control.state, budget_s=min(seconds, MAX_BUDGET_S)))


def _variant(control: Control, event: Event) -> None:
    chosen = {str(name) for name in control.state.variants} - {event.of} | ({event.of} if event.value else set())
    kept = tuple(name for name in VariantName if name in chosen or name is VariantName.EAGER)
    control.change(replace(control.state, variants=kept))


def retrace(control: Control, shapes: str) -> None:
    """Start a job that traces the call again with these ``shapes``, unless it was traced with them."""
    if shapes == control.session.shapes:
        return
    dynamic = SHAPES[shapes]
    with control.lock:
        control.jobs.start(
            "Trace again",
            lambda ex, cancelled, progress: ex.retrace(dynamic=dynamic, cancelled=cancelled, progress=progress),
        )
        control.change(replace(control.state, retracing=shapes))


def _shapes(control: Control, event: Event) -> None:
    if event.text in SHAPES:
        retrace(control, event.text)


def _target(control: Control, event: Event) -> None:
    if not event.text or event.text in GPU_TARGETS:
        control.change(replace(control.state, target=event.text))
        control.read_code()


JOB_EVENTS: Mapping[str, Handler] = {
    "measure": _measure,
    "compile": _compile,
    "profile": _profile,
    "code": lambda control, _: control.read_code(),
    "compile code": _compile_and_read_code,
    "cancel": lambda control, _: control.jobs.cancel(),
    "budget": _budget,
    "variant": _variant,
    "shapes": _shapes,
    "target": _target,
}
