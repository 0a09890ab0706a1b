"""The toolbar: compile, measure, cancel, undo; progress and errors."""

from __future__ import annotations

import ipywidgets as widgets

from regional_explorer.compiler.variants import VariantName
from regional_explorer.render.style.untrusted import LONG_TEXT, clean_page, markup
from regional_explorer.ui.control import Control
from regional_explorer.ui.state import PanelState

DEFAULT_BUDGET_S = 5.0
MAX_BUDGET_S = 3600.0


class Actions:
    """Buttons, the choice of variants and time budget, the progress bar and the error message."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self.measure = widgets.Button(description="Compile & measure", button_style="primary", icon="play")
        self.measure.tooltip = "Compile stale partitions, check the numerics, measure"
        self.measure.on_click(lambda _: self._measure())
        self.compile = widgets.Button(description="Compile only", tooltip="Compile stale partitions without measuring")
        self.compile.on_click(lambda _: self._compile())
        self.cancel = widgets.Button(
            description="Cancel", icon="stop", tooltip="Stop the job; the results so far are kept"
        )
        self.cancel.on_click(lambda _: self._cancel())
        self.undo = widgets.Button(description="Undo", icon="undo", tooltip="Undo the last change of the plan")
        self.undo.on_click(lambda _: self._undo())
        self.redo = widgets.Button(description="Redo", icon="repeat", tooltip="Redo the change")
        self.redo.on_click(lambda _: self._redo())
        self.budget = widgets.BoundedFloatText(
            value=DEFAULT_BUDGET_S, min=0.1, max=MAX_BUDGET_S, step=0.5, description="Budget (s)"
        )
        self.budget.tooltip = "Seconds to measure, without compile time"
        self.budget.add_class("rx-budget")
        self.variants = {
            name: widgets.Checkbox(value=True, description=str(name), indent=False, disabled=name is VariantName.EAGER)
            for name in VariantName
        }
        self.variants[VariantName.EAGER].tooltip = "Always measured: all others are compared with it"
        self._bar = widgets.FloatProgress(min=0.0, max=1.0)
        self._doing = widgets.HTML()
        self._problem = widgets.HTML()
        self._dismiss = widgets.Button(description="Dismiss", tooltip="Dismiss the message")
        self._dismiss.on_click(lambda _: control.change(control.state.failed(None)))
        self._progress = _box("rx-progress", self._bar, self._doing)
        self._alert = _box("rx-alert", self._problem, self._dismiss)
        self._choices = _box("rx-variants", widgets.HTML("<span>Compare</span>"), *self.variants.values())
        self._buttons = _box("rx-buttons", self.measure, self.compile, self.cancel, self.undo, self.redo, self.budget)
        self.box = widgets.VBox([self._buttons, self._choices, self._progress, self._alert])
        self.box.add_class("rx-actions")

    def show(self, state: PanelState) -> None:
        """Enable the buttons that apply, and show the progress, note or error of ``state``."""
        job = state.job
        for widget in (self.measure, self.compile, self.budget, *self.variants.values()):
            widget.disabled = state.busy or widget is self.variants[VariantName.EAGER]
        self.undo.disabled = state.busy or not state.past
        self.redo.disabled = state.busy or not state.future
        self.cancel.disabled = job is None or job.in_cell or job.cancelling
        self.cancel.description = "Cancelling" if job and job.cancelling else "Cancel"
        self._bar.layout.visibility = "visible" if job else "hidden"
        self._bar.value = job.fraction if job else 0.0
        self._doing.value = f'<span role="status">{markup(_doing(state))}</span>'
        self._progress.layout.display = "" if job or state.note else "none"
        self._alert.layout.display = "" if state.problem else "none"
        if state.problem:
            details = traceback_html(state.problem.details)
            self._problem.value = f'<div role="alert">✗ {markup(state.problem.text, LONG_TEXT)}</div>{details}'

    @property
    def chosen(self) -> tuple[str, ...]:
        """The variants to compare."""
        return tuple(str(name) for name, box in self.variants.items() if box.value)

    def _measure(self) -> None:
        names, budget_s = self.chosen, self.budget.value
        with self._control.showing_errors():
            self._control.start(
                "Compile & measure",
                lambda ex, cancelled, progress: ex.benchmark(
                    names, budget_s, cancelled=cancelled, progress=progress, executor=self._control.executor
                ),
            )

    def _compile(self) -> None:
        with self._control.showing_errors():
            self._control.start(
                "Compile", lambda ex, cancelled, progress: ex.compile(cancelled=cancelled, progress=progress)
            )

    def _cancel(self) -> None:
        with self._control.showing_errors():
            self._control.cancel()

    def _undo(self) -> None:
        with self._control.showing_errors():
            self._control.undo()

    def _redo(self) -> None:
        with self._control.showing_errors():
            self._control.redo()


def _doing(state: PanelState) -> str:
    job = state.job
    if job is None:
        return state.note
    words = job.doing or f"{job.name}: starting"
    if job.cancelling:
        return f"Cancelling after this step: {words}"
    return f"{words} (to stop, interrupt the kernel)" if job.in_cell else words


def traceback_html(text: str) -> str:
    """Return a collapsed traceback as HTML, or nothing without text."""
    if not text:
        return ""
    lines = "<br>".join(markup(line, LONG_TEXT) for line in clean_page(text, 4 * LONG_TEXT).splitlines())
    return f"<details><summary>Traceback</summary><code>{lines}</code></details>"


def _box(name: str, *children: widgets.Widget) -> widgets.Box:
    box = widgets.Box(list(children))
    box.add_class(name)
    return box
