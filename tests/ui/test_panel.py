"""The panel as objects: values are set and buttons clicked as the front end would, without one."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
from ipywidgets.widgets.widget import _instances

from regional_explorer.compiler.run import Run
from regional_explorer.errors import MeasureError
from regional_explorer.exploration.exploration import Exploration
from regional_explorer.record.figure import Noise
from regional_explorer.record.json_file import load_plan
from regional_explorer.record.session import Session
from regional_explorer.style.element import Node, words
from regional_explorer.ui import state, widget
from regional_explorer.ui.control import Control, control_of
from regional_explorer.ui.jobs import CANCELLED_NOTE, INTERRUPTED_NOTE
from regional_explorer.ui.panel import PARTS, Panel, Part
from regional_explorer.ui.parts import traceback
from regional_explorer.ui.state import PanelState, Shown
from tests.shared.panel import Blocked, button, elements, enabled, make, nodes, pick, rows, text, type_in


def alert(panel: Panel) -> str:
    return text(panel, "problem")


def switch(panel: Panel, name: str, *, on: bool) -> None:
    panel.press("switch", name, value=on)


def checked(panel: Panel, name: str) -> bool:
    return bool(button(panel, "regions", "switch", name)[1].get("checked", False))


# ---------------------------------------------------------------------------------------------------------------- plan


def test_a_row_per_region_says_how_it_stands_whoever_changed_it(
    panel: Panel, control: Control, exploration: Exploration
) -> None:
    assert list(rows(panel)) == ["mm", "act"]
    assert {"stale", "max_fusion_size=8"} <= set(rows(panel)["mm"].split())
    assert "default" in rows(panel)["act"]
    assert "small" in text(panel, "header")
    number = [tab["id"] for tab in panel.tabs].index(panel.first)
    assert getattr(panel, f"facts{number}")["ops"]
    assert panel.part_source
    exploration.rename("mm", "product")
    control.refresh()
    assert list(rows(panel)) == ["product", "act"]


def test_a_busy_machine_is_told_once_in_the_header(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "noise", Noise(10, 5, 5))
    said = {name: words(["div", {}, *part.make(control.shown())]) for name, part in PARTS.items()}
    assert [name for name, text in said.items() for _ in range(text.count("machine was busy"))] == ["header"]


def test_edits_are_undone_and_redone(panel: Panel, exploration: Exploration) -> None:
    def offered() -> list[str]:
        return [do for do in ("undo", "redo") if enabled(panel, "tools", do)]

    assert offered() == []
    switch(panel, "mm", on=False)
    assert not exploration.plan["mm"].enabled
    assert "eager" in rows(panel)["mm"]
    assert offered() == ["undo"]
    panel.press("undo")
    assert exploration.plan["mm"].enabled
    assert checked(panel, "mm")
    assert offered() == ["redo"]
    panel.press("redo")
    assert not exploration.plan["mm"].enabled
    panel.press("remove", "mm")
    assert list(rows(panel)) == ["act"]
    panel.press("undo")
    assert list(rows(panel)) == ["mm", "act"], "where it was"
    switch(panel, "act", on=True)
    assert offered() == ["undo", "redo"], "what changes nothing is no edit"
    panel.press("remove", "act")
    assert offered() == ["undo"], "an edit forgets what was undone"
    panel.press("redo")
    assert list(rows(panel)) == ["mm"]


def test_undoing_has_a_limit(panel: Panel, control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_UNDO", 3)
    for number in range(4):
        switch(panel, "mm", on=bool(number % 2))
    for _ in range(4):
        panel.press("undo")
    assert not enabled(panel, "tools", "undo")
    assert not checked(panel, "mm")


def test_a_tab_is_about_the_row_selected_last_or_else_about_the_region_that_was_open(panel: Panel) -> None:
    def shown_after(*picked: str) -> str:
        panel.press("pane", "source")
        pick(panel, *picked)
        panel.press("pane", "code")
        return text(panel, "code").split(" ", 3)[2]

    assert [shown_after(), shown_after(), shown_after("act"), shown_after("mm", "act")] == ["mm", "mm", "act", "act"]


def test_nothing_is_drawn_anew_when_nothing_changed(panel: Panel, control: Control) -> None:
    drawn: list[object] = []
    panel.observe(drawn.append)
    session = control.session
    control.refresh()
    assert control.session is session
    assert drawn == []


# ------------------------------------------------------------------------------------------------------------- marking


def mark(panel: Panel, kind: str, pattern: str, name: str = "") -> None:
    for do, value in (("kind", kind), ("pattern", pattern), ("name", name)):
        type_in(panel, do, value)
    panel.press("mark")


def test_a_region_is_marked_by_the_form_under_the_name_typed_or_proposed(panel: Panel) -> None:
    type_in(panel, "kind", "ops")
    assert elements(panel.part("marking"), value="aten.relu.default")
    for name in ("total", "", ""):
        mark(panel, "ops", "aten.sum*", name)
    assert list(rows(panel)) == ["mm", "act", "total", "sum", "sum_2"]
    assert panel.control.state.mark.name == ""


@pytest.mark.parametrize(
    ("pattern", "name", "message"),
    [("", "x", "Enter a pattern"), ("aten.nothing", "x", "aten.nothing"), ("aten.nothing", "", "aten.nothing")],
)
def test_a_wrong_mark_is_told_in_the_form(panel: Panel, pattern: str, name: str, message: str) -> None:
    mark(panel, "ops", pattern, name)
    assert message in text(panel, "marking")
    type_in(panel, "pattern", "aten.s")
    assert "✗" not in text(panel, "marking")
    assert list(rows(panel)) == ["mm", "act"]


def test_without_a_region_the_panel_says_how_to_mark_one(panel: Panel, exploration: Exploration) -> None:
    for name in ("mm", "act"):
        panel.press("remove", name)
    assert "No region yet" in text(panel, "marking")
    assert panel.part("regions") == []


# ---------------------------------------------------------------------------------------------------------------- work


def test_the_primary_button_measures_what_was_chosen_and_nothing_else_is_done_meanwhile(
    panel: Panel, control: Control, blocked_work: Blocked
) -> None:
    type_in(panel, "variant", value=False, of="full")
    type_in(panel, "budget", "2.5")
    panel.press("measure")
    assert blocked_work.begun.wait(10)
    assert control.state.busy
    assert not enabled(panel, "tools", "measure")
    assert "disabled" in button(panel, "regions", "switch", "mm")[1]
    assert enabled(panel, "tools", "cancel")
    assert "compiling mm" in text(panel, "progress")
    assert elements(panel.part("progress"), value="0.500")
    panel.press("compile")  # as another front end may, before it hears that work began
    assert "Another job is running" in alert(panel)
    switch(panel, "mm", on=False)
    assert "A job is running" in alert(panel)
    assert control.exploration.plan["mm"].enabled
    blocked_work.go_on.set()
    assert control.jobs.wait(10)
    assert blocked_work.calls == [(("eager", "aot_eager", "regional"), 2.5, True)]
    assert not control.state.busy
    assert enabled(panel, "tools", "measure")


def test_cancel_ends_the_work_and_says_so(panel: Panel, control: Control, blocked_work: Blocked) -> None:
    panel.press("compile")
    assert blocked_work.begun.wait(10)
    panel.press("cancel")
    assert control.jobs.wait(10)
    assert CANCELLED_NOTE in text(panel, "progress")
    assert not enabled(panel, "tools", "cancel")
    panel.press("compile")
    blocked_work.go_on.set()
    assert control.jobs.wait(10)
    assert CANCELLED_NOTE not in text(panel, "progress")


@pytest.mark.parametrize(
    ("error", "message", "traced"),
    [
        (MeasureError("Nothing could be measured."), "Nothing could be measured.", False),
        (KeyError("x"), "KeyError", True),
        (SystemExit(1), "SystemExit", True),
        (CancelledError(), "CancelledError", True),
    ],
)
def test_whatever_ends_the_work_is_shown_and_the_panel_is_free_again(
    panel: Panel, control: Control, error: BaseException, message: str, traced: bool
) -> None:
    control.exploration.benchmark = Blocked(error=error)  # type: ignore[method-assign]
    panel.press("measure")
    assert control.jobs.wait(10)
    assert not control.state.busy
    assert message in alert(panel)
    assert ("Traceback" in alert(panel)) is traced
    panel.press("dismiss")
    assert alert(panel) == ""


def test_a_traceback_keeps_its_lines_and_indentation() -> None:
    details = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    y = 1 / 0\nZeroDivisionError'
    (fold,) = traceback(details)
    assert fold[-1] == ["code", {}, details]
    assert traceback("") == []


def test_an_error_of_a_callback_is_shown(panel: Panel, control: Control) -> None:
    control.exploration.disable = Mock(side_effect=ZeroDivisionError("broken"))  # type: ignore[method-assign]
    switch(panel, "mm", on=False)
    assert "ZeroDivisionError: broken" in alert(panel)
    assert checked(panel, "mm")


def test_work_of_a_cell_is_shown_and_cannot_be_cancelled_by_button(panel: Panel, control: Control) -> None:
    with control.jobs.running_in_cell("Compile & measure") as run:
        run.progress("round 3", 0.3)
        assert not enabled(panel, "tools", "cancel")
        assert "interrupt the kernel" in text(panel, "progress")
        assert not enabled(panel, "tools", "measure")
        run.progress("round 4", 1.5)
        run.progress("compiling act", 1.5)
        assert elements(panel.part("progress"), value="1.000")
    ended = control.state
    assert not ended.busy
    run.progress("what is told too late", 0.5)
    assert control.state == ended


def test_of_all_parts_a_report_of_progress_makes_one_anew(
    panel: Panel, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def counted(name: str, part: Part, shown: Shown) -> list[Node]:
        made.append(name)
        return part.make(shown)

    counted_parts = {name: replace(part, make=partial(counted, name, part)) for name, part in PARTS.items()}
    monkeypatch.setattr("regional_explorer.ui.panel.PARTS", counted_parts)
    with control.jobs.running_in_cell("Compile & measure") as run:
        assert {"tools", "regions"} <= set(made)
        made.clear()
        run.progress("round 1", 0.1)
        assert made == ["progress"]


@pytest.mark.parametrize("readable", [True, False])
def test_an_interrupt_ends_the_job_of_a_cell_and_of_a_button_and_is_noted(
    panel: Panel, control: Control, monkeypatch: pytest.MonkeyPatch, readable: bool
) -> None:
    if not readable:  # a second one, while the results are read
        monkeypatch.setattr(control, "read_exploration", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt), control.jobs.running_in_cell("Compile"):
        raise KeyboardInterrupt
    assert not control.state.busy
    assert INTERRUPTED_NOTE in text(panel, "progress")
    monkeypatch.undo()
    control.exploration.compile = Blocked(error=KeyboardInterrupt())  # type: ignore[method-assign]
    panel.press("compile")
    assert control.jobs.wait(10)
    assert not control.state.busy
    assert INTERRUPTED_NOTE in text(panel, "progress")


def test_progress_undoes_nothing_that_was_pressed_meanwhile(panel: Panel, control: Control) -> None:
    go_on, end = threading.Event(), threading.Event()

    def work(_exploration: Exploration, _state: PanelState, run: Run) -> None:
        go_on.wait(10)
        run.progress("compiling act", 0.5)
        end.wait(10)

    control.jobs.start("Compile", work)
    with control.lock:
        go_on.set()
        time.sleep(0.2)  # now the report waits for the lock
        type_in(panel, "budget", "2.5")
        panel.press("cancel")
    while control.state.job is not None and not control.state.job.doing:
        time.sleep(0.01)
    assert control.state.job is not None
    assert control.state.job.cancelling
    assert control.state.budget_s == 2.5
    end.set()
    assert control.jobs.wait(10)


def test_a_job_whose_results_cannot_be_read_ends_with_the_error(
    panel: Panel, control: Control, blocked_work: Blocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "read_exploration", Mock(side_effect=ZeroDivisionError("no results")))
    blocked_work.go_on.set()
    panel.press("measure")
    assert control.jobs.wait(10)
    assert not control.state.busy
    assert "ZeroDivisionError: no results" in alert(panel)


def test_a_job_that_nobody_can_be_told_of_is_not_begun(control: Control, blocked_work: Blocked) -> None:
    control.listeners.append(broken_listener := Mock(side_effect=ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):
        control.jobs.start("Compile", lambda exploration, _state, _run: exploration.compile())
    with pytest.raises(ZeroDivisionError), control.jobs.running_in_cell("Compile"):
        pass
    control.listeners.remove(broken_listener)
    assert not control.state.busy
    assert blocked_work.calls == []


def test_a_job_without_a_thread_is_not_begun(
    panel: Panel, control: Control, blocked_work: Blocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def start_others(thread: threading.Thread) -> None:
        if thread.name == "regional_explorer":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_others)
    panel.press("compile")
    assert "can't start new thread" in alert(panel)
    assert not control.state.busy
    assert control.jobs.wait(10)
    monkeypatch.undo()
    blocked_work.go_on.set()
    panel.press("compile")
    assert control.jobs.wait(10)
    assert len(blocked_work.calls) == 1


# ------------------------------------------------------------------------------------------------------------- drawing


@pytest.mark.parametrize("broken", ["graph_traits", "source_pane"])
def test_a_graph_that_cannot_be_drawn_says_so_and_the_rest_is_up_to_date(
    panel: Panel, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    monkeypatch.setattr(widget, broken, Mock(side_effect=RuntimeError("no luck")))
    panel.press("remove", "mm")
    assert panel.problem == "RuntimeError: no luck"
    assert list(rows(panel)) == ["act"]
    assert alert(panel) == ""
    monkeypatch.undo()
    panel.press("undo")
    assert panel.problem == ""


# ------------------------------------------------------------------------------------------------------ several panels


def test_two_panels_of_one_exploration_show_the_same(panel: Panel, control: Control) -> None:
    other = Panel(control_of(control.exploration))
    assert other.control is control
    switch(panel, "mm", on=False)
    assert not checked(other, "mm")
    other.close()
    switch(panel, "mm", on=True)
    assert control.exploration.plan["mm"].enabled


def test_two_explorations_do_not_touch_each_other(panel: Panel, control: Control, blocked_work: Blocked) -> None:
    second = make()
    other = Panel(control_of(second))
    panel.press("measure")
    assert blocked_work.begun.wait(10)
    switch(other, "act", on=False)
    assert not second.plan["act"].enabled
    assert control.exploration.plan["act"].enabled
    assert not other.control.state.busy
    blocked_work.go_on.set()
    assert control.jobs.wait(10)
    other.close()
    second.close()


def test_closing_leaves_no_widget_and_no_thread(exploration: Exploration) -> None:
    before = set(_instances)
    threads = set(threading.enumerate())
    panel = Panel(control_of(exploration))
    panel.press("open", "mm")
    assert len(_instances) > len(before)
    panel.close()
    assert set(_instances) == before
    assert set(threading.enumerate()) == threads


def test_what_is_selected_in_the_graph_becomes_a_region(panel: Panel, control: Control) -> None:
    name = f"0/forward:{control.session.graph('0/forward').ops[0].name}"
    mark(panel, "selection", "", "picked")
    assert "Enter a pattern" in text(panel, "marking")
    panel.press("select", value=[name])
    assert elements(panel.part("marking"), value="1 node selected")
    panel.press("mark")
    assert "✗" not in text(panel, "marking")
    assert control.state.plan["picked"].selectors[0].patterns == (name,)


def test_selecting_rows_selects_their_nodes_everywhere(panel: Panel, control: Control) -> None:
    panel.press("pick", "mm")
    assert set(panel.selection) == nodes(control, "mm")
    panel.press("pick", "act", ctrl=True)
    assert set(panel.selection) == nodes(control, "mm", "act")
    assert [row[1]["aria-selected"] for row in elements(panel.part("regions"), data_do="pick")] == ["true", "true"]
    panel.press("pick", "mm", ctrl=True)
    assert set(panel.selection) == nodes(control, "act")
    panel.press("pick", "mm", shift=True)
    assert control.state.picked == ("act", "mm")


def test_rows_are_selected_with_all_between_in_the_order_shown(panel: Panel, control: Control) -> None:
    for name in ("d", "c"):
        control.exploration.mark(name, ops="aten.sum*")
    control.refresh()
    assert list(rows(panel)) == ["mm", "act", "d", "c"]
    for name, picked in (("c", "c"), ("act", "c act d"), ("mm", "c mm act d")):
        panel.press("pick", name, shift=True)
        assert list(control.state.picked) == picked.split()
    panel.press("sort", "name")
    panel.press("pick", "c")
    panel.press("pick", "mm", shift=True)
    assert control.state.picked == ("c", "d", "mm")


def test_a_region_that_goes_is_neither_open_nor_selected_and_one_renamed_stays_so(
    panel: Panel, control: Control, exploration: Exploration
) -> None:
    panel.press("open", "mm")
    pick(panel, "mm", "act")
    exploration.rename("mm", "product")
    control.refresh()
    assert (control.state.opened, control.state.picked) == ("product", ("product", "act"))
    panel.press("remove", "act")
    assert (control.state.opened, control.state.picked) == ("product", ("product",))
    panel.press("remove", "product")
    assert (control.state.opened, control.state.picked) == (None, ())


def test_rows_are_ordered_by_a_column(panel: Panel) -> None:
    def ascending() -> list[str]:
        return [words(head) for head in elements(panel.part("regions"), aria_sort="ascending")]

    for heads, order in ((["region ↑"], ["act", "mm"]), ([], ["mm", "act"]), ([], ["mm", "act"])):
        panel.press("sort", "name")
        assert (ascending(), list(rows(panel))) == (heads, order)
    panel.press("sort", "name")
    panel.press("sort", "ops")
    assert ascending() == ["ops ↑"], "another column begins upwards"
    panel.press("sort", "compiled")
    assert list(rows(panel)) == ["mm", "act"], "nothing is measured: the order of the plan, and none lost"


def test_forty_regions_are_one_widget(exploration: Exploration, control: Control) -> None:
    before = len(_instances)
    panel = Panel(control)
    few = len(_instances) - before
    panel.close()
    for number in range(40):
        exploration.mark(f"r{number}", nodes=f"0/forward:{control.session.graph('0/forward').ops[0].name}")
    control.refresh()
    panel = Panel(control)
    assert len(_instances) - before == few
    assert len(rows(panel)) == 42
    panel.close()


# ------------------------------------------------------------------------------------------- tabs, taking things out


def shown_tab(panel: Panel) -> list[str]:
    return [one[1]["aria-label"] for one in elements(panel.tree, role="tabpanel") if "hidden" not in one[1]]


def test_one_tab_is_seen_beside_the_graph(panel: Panel) -> None:
    assert shown_tab(panel) == ["source"]
    assert "Diagnostics 1" in text(panel, "tabs")
    panel.press("pane", "diagnostics")
    assert shown_tab(panel) == ["diagnostics"]
    panel.press("open", "act")
    assert shown_tab(panel) == ["config"]
    assert "Config of act" in text(panel, "config")
    panel.press("pick", "mm")  # the tab is about the row that is selected
    assert "Config of mm" in text(panel, "config")
    panel.press("pane", "code")
    assert shown_tab(panel) == ["code"]
    assert "Code of mm" in text(panel, "code")
    assert text(panel, "config") == "Select a region: its config is shown here."
    panel.press("pane", "nonsense")
    assert shown_tab(panel) == ["code"]


def test_edit_buttons_come_with_a_selection(panel: Panel) -> None:
    assert panel.part("editing") == []
    panel.press("pick", "mm")
    assert "mm selected" in text(panel, "editing")
    panel.press("clear")
    assert panel.part("editing") == []
    assert panel.control.state.selection == ()


def test_the_plan_is_copied_as_text_and_as_python(panel: Panel, control: Control) -> None:
    def copied() -> tuple[str, str]:
        found = {words(one): one[1]["data-of"] for one in elements(panel.part("header"), data_do="copy")}
        return found["Copy plan"], found["Copy as Python"]

    plan, python = copied()
    assert load_plan(plan) == control.state.plan
    assert panel.plan == plan
    assert "ex.configure('mm', {'max_fusion_size': 8})" in python
    control.owner = lambda: "rx.last()"
    panel.press("remove", "act")
    plan, python = copied()
    assert python.startswith("import regional_explorer as rx\nex = rx.last()\n")
    assert "act" not in plan
    assert "rx.last()" in text(panel, "header")
    control.owner = lambda: ""
    panel.press("undo")
    assert copied()[1].startswith("ex = ...  # Put your exploration here")
    assert "in no variable" in text(panel, "header")


def test_results_are_saved_by_button_and_nothing_is_overwritten(
    panel: Panel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in ("html", "json", "json", "exe"):
        panel.press("save", kind)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small-2.json", "small.html", "small.json"]
    assert "Saved to small-2.json" in text(panel, "progress")
