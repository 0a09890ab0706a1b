"""The panel without a browser: values and presses as a page sends them, with messages in any order."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ipywidgets.widgets.widget import _instances

from regional_explorer.exploration.exploration import Exploration
from regional_explorer.page.panes import COLUMNS
from regional_explorer.record import graph
from regional_explorer.record.figure import Noise
from regional_explorer.record.files import load_plan, load_plan_file
from regional_explorer.record.session import Session
from regional_explorer.style.element import words
from regional_explorer.ui import state, widget
from regional_explorer.ui.control import Control, control_of
from regional_explorer.ui.panel import EVENTS, PARTS, Panel
from regional_explorer.ui.state import PANES, PanelState
from regional_explorer.ui.widget import MAX_WAITING, OrderedMessages
from tests.shared.panel import button, elements, is_enabled, message, pick, region_nodes, rows, small_exploration, text
from tests.shared.sessions import HOSTILE


def switch(panel: Panel, name: str, *, on: bool) -> None:
    panel.press("enable", name, value=on)


def cells(panel: Panel, name: str) -> list[str]:
    """Return the texts in a region's row, one for each element of a cell."""
    (row,) = elements(panel.part("regions"), data_do="pick", data_of=name)
    return [text.strip("◌ ") for cell in row[2:] for child in cell[2:] for text in [words(child).strip()]]


def is_checked(panel: Panel, name: str) -> bool:
    return bool(button(panel, "regions", "enable", name)[1].get("checked", False))


# ---------------------------------------------------------------------------------------------------------------- plan


def test_an_edit_does_not_recompute_what_the_graphs_keep(panel: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Header, table and note show it."""
    monkeypatch.setattr(graph, "_computed_for", found := Mock(side_effect=graph._computed_for))
    switch(panel, "mm", on=False)
    assert "Kept for the backward" in text(panel, "results")
    assert found.call_count == 0, "the graphs have not changed"
    assert not graph.kept_for_backward(panel.control.session.graphs[:1])
    assert graph.kept_for_backward(panel.control.session.graphs)
    assert found.call_count == 1, "of the one backward"


def test_rows_show_the_state_of_regions_after_any_change(panel: Panel, exploration: Exploration) -> None:
    assert list(rows(panel)) == ["mm", "act"]
    assert {"not compiled", "max_fusion_size=8"} <= set(cells(panel, "mm"))
    assert "default" in rows(panel)["act"]
    assert "small" in text(panel, "header")
    number = [tab["id"] for tab in panel.tabs].index(panel.first)
    assert getattr(panel, f"facts{number}")["ops"]
    assert panel.part_source
    exploration.rename("mm", "product")
    panel.control.refresh()
    assert list(rows(panel)) == ["product", "act"]


def test_only_the_answer_says_that_the_machine_was_busy(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "noise", Noise(10, 5, 5))
    texts = {name: words(["div", {}, *part.make(control.shown())]) for name, part in PARTS.items()}
    assert [name for name, text in texts.items() for _ in range(text.count("machine was busy"))] == ["answer"]


def test_edits_are_undone_and_redone(panel: Panel, exploration: Exploration) -> None:
    def enabled_actions() -> list[str]:
        return [do for do in ("undo", "redo") if is_enabled(panel, "tools", do)]

    assert enabled_actions() == []
    switch(panel, "mm", on=False)
    assert not exploration.plan["mm"].enabled
    assert "eager" in rows(panel)["mm"]
    assert enabled_actions() == ["undo"]
    panel.press("undo")
    assert exploration.plan["mm"].enabled
    assert is_checked(panel, "mm")
    assert enabled_actions() == ["redo"]
    panel.press("redo")
    assert not exploration.plan["mm"].enabled
    panel.press("remove", "mm")
    assert list(rows(panel)) == ["act"]
    panel.press("undo")
    assert list(rows(panel)) == ["mm", "act"], "where it was"
    switch(panel, "act", on=True)
    assert enabled_actions() == ["undo", "redo"], "an action without effect is no edit"
    panel.press("remove", "act")
    assert enabled_actions() == ["undo"], "an edit forgets what was undone"
    panel.press("redo")
    assert list(rows(panel)) == ["mm"]


def test_the_number_of_undo_steps_is_limited(panel: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_UNDO", 3)
    for number in range(4):
        switch(panel, "mm", on=bool(number % 2))
    for _ in range(4):
        panel.press("undo")
    assert not is_enabled(panel, "tools", "undo")
    assert not is_checked(panel, "mm")


def test_nothing_is_drawn_again_if_nothing_changed(panel: Panel, control: Control) -> None:
    drawn: list[object] = []
    panel.observe(drawn.append)
    session = control.session
    control.refresh()
    assert control.session is session
    assert drawn == []


@pytest.mark.parametrize("broken", ["graph_traits", "source_pane"])
def test_a_graph_that_cannot_be_drawn_leaves_other_parts_updated(
    panel: Panel, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    monkeypatch.setattr(widget, broken, Mock(side_effect=RuntimeError("no luck")))
    panel.press("remove", "mm")
    assert panel.problem == "RuntimeError: no luck"
    assert list(rows(panel)) == ["act"]
    assert text(panel, "problem") == ""
    monkeypatch.undo()
    panel.press("undo")
    assert panel.problem == ""


def test_an_error_of_a_callback_is_shown(panel: Panel, exploration: Exploration) -> None:
    exploration.disable = Mock(side_effect=ZeroDivisionError("broken"))  # type: ignore[method-assign]
    switch(panel, "mm", on=False)
    assert "ZeroDivisionError: broken" in text(panel, "problem")
    assert is_checked(panel, "mm")


def test_the_plan_is_copied_as_text_and_as_python(panel: Panel, control: Control) -> None:
    def texts_to_copy() -> tuple[str, str]:
        found = {words(one): one[1]["data-of"] for one in elements(panel.part("header"), data_do="copy")}
        return found["Copy plan"], found["Copy as Python"]

    plan, python = texts_to_copy()
    assert load_plan(plan) == control.state.plan
    assert panel.plan == plan
    assert "ex.configure('mm', {'max_fusion_size': 8})" in python
    control.owner = lambda: "rx.last()"
    panel.press("remove", "act")
    plan, python = texts_to_copy()
    assert python.startswith("import regional_explorer as rx\nex = rx.last()\n")
    assert "act" not in plan
    assert "rx.last()" in text(panel, "header")
    control.owner = lambda: ""
    panel.press("undo")
    assert texts_to_copy()[1].startswith("ex = ...  # Put your exploration here")
    assert "not assigned to a variable" in text(panel, "header")


def test_results_are_saved_by_button_and_nothing_is_overwritten(
    panel: Panel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in ("html", "plan", "python", "patch", "json", "json", "exe"):
        panel.press("save", kind)
        assert panel.control.jobs.wait(60)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["small-2.json", *(f"small.{ending}" for ending in ("html", "json", "patch", "plan.json", "py"))]
    assert "Saved to small-2.json" in text(panel, "progress")
    assert button(panel, "progress", "file", "small-2.json")
    assert load_plan_file(tmp_path / "small.plan.json").plan == panel.control.state.plan
    assert "Region 'mm'" in (tmp_path / "small.patch").read_text()
    compile((tmp_path / "small.py").read_text(), "small.py", "exec")


# ------------------------------------------------------------------------------------------------------- rows and tabs


def test_selecting_rows_selects_their_nodes_everywhere(panel: Panel, control: Control) -> None:
    panel.press("pick", "mm")
    assert set(panel.selection) == region_nodes(control, "mm")
    panel.press("pick", "act", ctrl=True)
    assert set(panel.selection) == region_nodes(control, "mm", "act")
    assert [row[1]["aria-selected"] for row in elements(panel.part("regions"), data_do="pick")] == ["true", "true"]
    panel.press("pick", "mm", ctrl=True)
    assert set(panel.selection) == region_nodes(control, "act")
    panel.press("pick", "mm", shift=True)
    assert control.state.selected_rows == ("act", "mm")


def test_shift_selects_all_rows_between_in_the_shown_order(panel: Panel, control: Control) -> None:
    for name in ("d", "c"):
        control.exploration.mark(name, ops="aten.sum*")
    control.refresh()
    assert list(rows(panel)) == ["mm", "act", "d", "c"]
    for name, picked in (("c", "c"), ("act", "c act d"), ("mm", "c mm act d")):
        panel.press("pick", name, shift=True)
        assert list(control.state.selected_rows) == picked.split()
    panel.press("sort", "region")
    panel.press("pick", "c")
    panel.press("pick", "mm", shift=True)
    assert control.state.selected_rows == ("c", "d", "mm")


def test_removed_regions_are_deselected_and_renamed_ones_stay_selected(
    panel: Panel, control: Control, exploration: Exploration
) -> None:
    panel.press("open", "mm")
    pick(panel, "mm", "act")
    exploration.rename("mm", "product")
    control.refresh()
    assert (control.state.opened, control.state.selected_rows) == ("product", ("product", "act"))
    panel.press("remove", "act")
    assert (control.state.opened, control.state.selected_rows) == ("product", ("product",))
    panel.press("remove", "product")
    assert (control.state.opened, control.state.selected_rows) == (None, ())


def test_rows_are_ordered_by_a_column(panel: Panel) -> None:
    def ascending_heads() -> list[str]:
        return [words(head) for head in elements(panel.part("regions"), aria_sort="ascending")]

    for heads, order in ((["region ↑"], ["act", "mm"]), ([], ["mm", "act"]), ([], ["mm", "act"])):
        panel.press("sort", "region")
        assert (ascending_heads(), list(rows(panel))) == (heads, order)
    panel.press("sort", "region")
    panel.press("sort", "selector")
    assert ascending_heads() == ["selector ↑"], "another column begins upwards"
    panel.press("sort", "of the call")
    assert list(rows(panel)) == ["mm", "act"], "nothing is measured: the order of the plan, and none lost"


def test_the_tab_counts_the_diagnostics(panel: Panel, control: Control, exploration: Exploration) -> None:
    assert "Why Code" in text(panel, "tabs")
    exploration.configure("act", {"coordinate_descent_tuning": True})  # it has no effect on the CPU
    control.refresh()
    assert "Why 1 Code" in text(panel, "tabs")


def test_one_pane_is_shown_unless_its_column_is_hidden(panel: Panel) -> None:
    def shown_columns() -> list[str]:
        columns = [one for name in COLUMNS for one in elements(panel.tree, data_column=name) if "hidden" not in one[1]]
        panes = [one for one in elements(columns, role="tabpanel") if "hidden" not in one[1]]
        return [*(one[1]["data-column"] for one in columns), *(one[1]["aria-label"] for one in panes)]

    assert shown_columns() == ["graph", "source", "beside", "why"]
    panel.press("column", "beside")
    assert shown_columns() == ["graph", "source"]
    panel.press("why", "mm")
    assert shown_columns() == ["graph", "source", "beside", "why"]
    panel.press("column", "source")
    panel.press("open", "act")
    assert shown_columns() == ["graph", "beside", "config"]
    assert "Config of act" in text(panel, "config")
    panel.press("pick", "mm")  # the tab is about the selected row
    assert "Config of mm" in text(panel, "config")
    panel.press("pane", "code")
    assert shown_columns() == ["graph", "beside", "code"]
    assert "Code of mm" in text(panel, "code")
    assert text(panel, "config") == "Select a region: its config is shown here."
    panel.press("pane", "nonsense")
    assert shown_columns() == ["graph", "beside", "code"]
    panel.press("column", "beside")
    assert shown_columns() == ["graph"]


def test_a_tab_shows_the_last_selected_row_or_open_region(panel: Panel) -> None:
    def region_shown_after(*picked: str) -> str:
        panel.press("pane", "code")
        panel.press("column", "beside")
        pick(panel, *picked)
        panel.press("pane", "code")
        return text(panel, "code").split(" ", 3)[2]

    assert [region_shown_after(), region_shown_after(), region_shown_after("act"), region_shown_after("mm", "act")] == [
        "mm",
        "mm",
        "act",
        "act",
    ]


# ------------------------------------------------------------------------------------------------------ several panels


def test_two_panels_of_one_exploration_show_the_same(panel: Panel, control: Control) -> None:
    other = Panel(control_of(control.exploration))
    assert other.control is control
    switch(panel, "mm", on=False)
    assert not is_checked(other, "mm")
    other.close()
    switch(panel, "mm", on=True)
    assert control.exploration.plan["mm"].enabled


def test_a_new_panel_waits_for_changes_of_the_state(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    filled = threading.Event()
    monkeypatch.setattr(Panel, "show", lambda *_: filled.set())
    with ThreadPoolExecutor(1) as pool:
        with control.lock:
            opened = pool.submit(Panel, control)
            assert not filled.wait(0.5)
        opened.result(60).close()
    assert filled.is_set()


def test_a_panel_has_few_widgets_and_leaves_none_behind(exploration: Exploration, control: Control) -> None:
    before, threads = set(_instances), set(threading.enumerate())

    def count_widgets(regions: int) -> int:
        panel = Panel(control)
        panel.press("open", "mm")
        assert len(rows(panel)) == regions
        opened = len(_instances) - len(before)
        panel.close()
        assert set(_instances) == before
        assert set(threading.enumerate()) <= threads
        return opened

    few = count_widgets(2)
    node = f"0/forward:{control.session.graph('0/forward').ops[0].name}"
    for number in range(40):
        exploration.mark(f"r{number}", nodes=node)
    control.refresh()
    assert count_widgets(42) == few > 0


# ------------------------------------------------------------------------------------------------------------ messages


def test_early_messages_wait_for_the_missing_one() -> None:
    done: list[tuple[str, int]] = []
    in_order = OrderedMessages(lambda page, number, _message: done.append((page, number)))
    for page, number in (("one", 2), ("two", 1), ("one", 3), ("one", 1), ("two", 2)):
        in_order.receive(page, number, {})
    assert done == [("two", 1), ("one", 1), ("one", 2), ("one", 3), ("two", 2)]


def test_waiting_for_a_lost_message_ends() -> None:
    done: list[int] = []
    in_order = OrderedMessages(lambda _page, number, _message: done.append(number))
    for number in range(2, MAX_WAITING + 3):
        in_order.receive("one", number, {})
    assert done == list(range(2, MAX_WAITING + 3))


def test_a_button_sees_earlier_input_that_arrives_later(panel: Panel) -> None:
    panel.receive(panel, message(1, "pick", "mm"), [])
    panel.receive(panel, message(3, "rename"), [])
    assert panel.answered == {"one": 1}
    panel.receive(panel, message(2, "new name", value="product"), [])
    assert list(rows(panel)) == ["product", "act"]
    assert panel.answered == {"one": 3}
    relu, *_ = sorted(region_nodes(panel.control, "act", graph="0/forward"))
    panel.receive(panel, message(5, "mark"), [])
    panel.receive(panel, message(4, "select", value=[relu]), [])
    marked = panel.control.state.plan.regions[-1].name
    assert relu in region_nodes(panel.control, marked, graph="0/forward")


ODD = ("", "nonsense", "-1", "999", "²", "module -1", "op x", "nan", "constructor", "0/forward", "mm\n", *HOSTILE)
"""Values that no table has, or that look valid."""
VALID = (
    *("mm", "act", "name", "speedup", "selection", "ops", "lines", "both", "forward", "backward", "dynamic", "h100"),
    *("full", "eager numerics", "cpp.simdlen", "max_fusion_size", "0.5", "html", "0", "module 0", "op 0", "aten.relu*"),
    *PANES,
)
OTHER_VALUES: tuple[object, ...] = (None, True, False, 0, 1, -1, 1e308, float("nan"), [], ["mm"], {}, {"do": "undo"})
targets = st.sampled_from((*ODD, *VALID))
values = st.sampled_from((*ODD, *VALID, *OTHER_VALUES))
NAMES = (*sorted(EVENTS), "graph", "shown")


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exploration]:
    """An exploration whose jobs end at once, because these tests are about messages of the page."""
    with small_exploration() as ex:
        ex.profile(0.05)
        jobs = "benchmark compile profile code retrace save save_plan tune to_source diagnose"
        for job in jobs.split():
            setattr(ex, job, lambda *_, **__: "")
        saved = tmp_path_factory.mktemp("saved")
        with patch("regional_explorer.ui.job_events.wait_until_quiet"), contextlib.chdir(saved):
            yield ex


def assert_panel_works(panel: Panel, control: Control) -> None:
    """Assert that usual events still have their effect, and that the whole state can be sent to a page."""
    assert control.jobs.wait(60)
    problem = control.state.problem
    assert problem is None or not problem.details, problem
    for do, value in (("dismiss", None), ("clear", None), ("kind", "ops"), ("pattern", "aten.sum*"), ("name", "sum")):
        panel.press(do, value=value)
    panel.press("mark")
    assert "sum" in control.exploration.plan
    panel.press("sort", "ops")
    assert "sum" in text(panel, "regions")
    panel.press("pick", "sum")
    assert control.state.selected_rows == ("sum",)
    assert "sum selected" in text(panel, "editing")
    panel.press("pane", "time")
    assert "the trace took" in text(panel, "time")
    sent = {name: value for name, value in panel.get_state().items() if name not in {"_esm", "_css", "layout"}}
    json.dumps(sent, ensure_ascii=False, default=lambda _: "").encode()
    assert panel.problem == ""


@pytest.mark.parametrize("count", [20, pytest.param(300, marks=pytest.mark.slow)])
def test_no_event_breaks_the_panel(idle: Exploration, count: int) -> None:
    @settings(max_examples=count, deadline=None)
    @given(st.lists(st.tuples(st.sampled_from(NAMES), targets, values, st.booleans(), st.booleans()), max_size=8))
    @example([("graph", "nonsense", None, False, False), ("graph", "1", None, False, False)])
    @example([("sort", "nonsense", None, False, False)])
    @example([("kind", "", "nonsense", False, False)])
    @example([("kind", "", None, False, False)])
    @example([("show", "-1", None, False, False), ("show", "nonsense", None, False, False)])
    @example([("direction", "", "nonsense", False, False)])
    @example([("mark time", "nonsense 0", None, False, False), ("show time", "module -1", None, False, False)])
    @example([("take", "-1", None, False, False)])
    @example([(do, "mm", [], True, True) for do in NAMES])
    def check(events: list[tuple[Any, ...]]) -> None:
        control = control_of(idle)
        plan, panel = idle.plan, Panel(control)
        try:
            for do, of, value, shift, ctrl in events:
                panel.press(do, of, value=value, shift=shift, ctrl=ctrl)
            assert_panel_works(panel, control)
        finally:
            control.jobs.wait(60)
            idle.plan = plan
            control.read_exploration()
            control.state = PanelState(plan)
            panel.close()

    check()
