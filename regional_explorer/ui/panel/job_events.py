"""Handles the events that start or cancel jobs (compile, measure, trace, read code) or set their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from regional_explorer.exploration.exploration import Exploration
from regional_explorer.record.gpu_targets import GPU_TARGETS
from regional_explorer.record.session import SHAPES
from regional_explorer.record.variant_name import VariantName
from regional_explorer.ui.control import Control
from regional_explorer.ui.panel.event import Event, EventKind, among, is_choice, is_switch, is_text
from regional_explorer.ui.panel.tools import MAX_BUDGET_S
from regional_explorer.ui.state import TIME
from regional_explorer.ui.threads.progress import Throttle


def _start_benchmark(control: Control, _event: Event) -> None:
    variants, budget_s = tuple(str(name) for name in control.state.variants), control.state.budget_s
    control.jobs.start(
        "Compile & measure",
        lambda ex, cancelled, progress: ex.benchmark(
            variants, budget_s, cancelled=cancelled, progress=progress, executor=control.jobs.executor
        ),
    )


def _start_compile(control: Control, _event: Event) -> None:
    control.jobs.start("Compile", lambda ex, cancelled, progress: ex.compile(cancelled=cancelled, progress=progress))


def _start_profile(control: Control, _event: Event) -> None:
    budget_s = control.state.budget_s
    control.update(lambda state: state.with_pane(TIME))
    control.jobs.start(
        "Profile",
        lambda ex, cancelled, progress: ex.profile(
            budget_s, cancelled=cancelled, progress=progress, executor=control.jobs.executor
        ),
    )


def _start_compile_and_read(control: Control, _event: Event) -> None:
    """Compile what is stale, then read the generated code of the open region."""
    region = control.state.opened

    def compile_and_read(ex: Exploration, cancelled: Callable[[], bool], progress: Throttle) -> None:
        ex.compile(cancelled=cancelled, progress=progress)
        if region is not None and not cancelled():
            ex.code(region, cancelled=cancelled, progress=progress)

    control.jobs.start("Compile", compile_and_read)


def _set_budget(control: Control, event: Event) -> None:
    try:
        seconds = float(event.text)
    except ValueError:  # the page shows the old one again
        return
    if seconds > 0:
        control.update(lambda state: replace(state, budget_s=min(seconds, MAX_BUDGET_S)))


def _toggle_variant(control: Control, event: Event) -> None:
    chosen = {str(name) for name in control.state.variants} - {event.of} | ({event.of} if event.value else set())
    variants = tuple(name for name in VariantName if name in chosen or name is VariantName.EAGER)
    control.update(lambda state: replace(state, variants=variants))


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
        control.update(lambda state: replace(state, retracing=shapes))


def _choose_target(control: Control, event: Event) -> None:
    control.update(lambda state: replace(state, target=event.text))
    control.read_code()


JOB_EVENTS: Mapping[str, EventKind] = {
    "measure": EventKind(_start_benchmark),
    "compile": EventKind(_start_compile),
    "profile": EventKind(_start_profile),
    "code": EventKind(lambda control, _: control.read_code()),
    "compile code": EventKind(_start_compile_and_read),
    "cancel": EventKind(lambda control, _: control.jobs.cancel()),
    "budget": EventKind(_set_budget, value=is_text),
    "variant": EventKind(_toggle_variant, among([str(name) for name in VariantName]), is_switch),
    "shapes": EventKind(lambda control, event: retrace(control, event.text), value=is_choice(SHAPES)),
    "target": EventKind(_choose_target, value=is_choice(["", *GPU_TARGETS])),
}
"""Events that start or cancel jobs, or set their options."""
