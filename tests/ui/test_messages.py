"""Messages of a page are handled in the order in which it sent them, whichever thread of the kernel gets them first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regional_explorer.exploration.exploration import Exploration
from regional_explorer.record.profile import ProfileKind
from regional_explorer.ui.control import Control, control_of
from regional_explorer.ui.events import EVENTS
from regional_explorer.ui.panel import Panel
from regional_explorer.ui.state import PANES, PanelState
from regional_explorer.ui.widget import MAX_WAITING, InOrder
from tests.shared.panel import make, text
from tests.shared.sessions import HOSTILE


def message(number: int, do: str, of: str = "", **more: Any) -> dict[str, Any]:
    return {"page": "one", "number": number, "do": do, "of": of, "value": None, **more}


def test_what_comes_early_waits() -> None:
    done: list[tuple[str, int]] = []
    in_order = InOrder(lambda page, number, _message: done.append((page, number)))
    for page, number in (("one", 2), ("two", 1), ("one", 3), ("one", 1), ("two", 2)):
        in_order.receive(page, number, {})
    assert done == [("two", 1), ("one", 1), ("one", 2), ("one", 3), ("two", 2)]


def test_a_message_that_is_lost_is_not_waited_for_without_end() -> None:
    done: list[int] = []
    in_order = InOrder(lambda _page, number, _message: done.append(number))
    for number in range(2, MAX_WAITING + 3):
        in_order.receive("one", number, {})
    assert done == list(range(2, MAX_WAITING + 3))


def test_a_name_typed_before_a_button_is_known_to_it_although_it_arrives_later(panel: Panel) -> None:
    panel.receive(panel, message(1, "pick", "mm"), [])
    panel.receive(panel, message(3, "rename"), [])
    assert panel.answered == {"one": 1}
    panel.receive(panel, message(2, "new name", value="product"), [])
    assert [region.name for region in panel.control.state.plan.regions] == ["product", "act"]
    assert panel.answered == {"one": 3}


def test_what_is_selected_before_a_button_is_pressed_is_known_to_it_although_it_arrives_later(panel: Panel) -> None:
    name = f"0/forward:{panel.control.session.members['act']['0/forward'][0]}"
    panel.receive(panel, message(2, "mark"), [])
    panel.receive(panel, message(1, "select", value=[name]), [])
    assert panel.control.state.plan.regions[-1].selectors[0].patterns == (name,)


def test_other_messages_do_no_harm(panel: Panel) -> None:
    before = panel.control.state
    for number, (do, of) in enumerate((("fly", ""), ("open", "no region")), 1):
        panel.receive(panel, message(number, do, of), [])
    assert panel.control.state == before
    assert panel.answered == {"one": 2}


ODD = ("", "nonsense", "-1", "999", "²", "module -1", "op x", "nan", "constructor", "0/forward", "mm\n", *HOSTILE)
"""Words that no table has, or that one could be taken in by."""
VALID = (
    *("mm", "act", "name", "speedup", "selection", "ops", "lines", "both", "forward", "backward", "dynamic", "h100"),
    *("full", "eager numerics", "cpp.simdlen", "max_fusion_size", "0.5", "html", "0", "module 0", "op 0", "aten.relu*"),
    *PANES,
)
OTHER_VALUES: tuple[object, ...] = (None, True, False, 0, 1, -1, 1e308, float("nan"), [], ["mm"], {}, {"do": "undo"})
ofs = st.sampled_from((*ODD, *VALID))
values = st.sampled_from((*ODD, *VALID, *OTHER_VALUES))
NAMES = (*sorted(EVENTS), "graph", "shown")


@pytest.fixture(scope="module")
def idle() -> Iterator[Exploration]:
    """An exploration whose jobs end at once: what they would do is not what the page says."""
    ex = make()
    ex.profile(0.05)
    for job in ("benchmark", "compile", "profile", "code", "retrace", "save"):
        setattr(ex, job, lambda *_, **__: None)
    yield ex
    ex.close()


def assert_it_works(panel: Panel, control: Control) -> None:
    """Assert that what people do still does what it says, and that a page can be sent all of it."""
    assert panel.control.jobs.wait(60)
    problem = control.state.problem
    assert problem is None or not problem.details, problem
    panel.press("dismiss")
    panel.press("clear")
    panel.press("kind", value="ops")
    panel.press("pattern", value="aten.sum*")
    panel.press("name", value="sum")
    panel.press("mark")
    assert "sum" in control.exploration.plan
    panel.press("sort", "ops")
    assert "sum" in text(panel, "regions")
    panel.press("pick", "sum")
    assert control.state.picked == ("sum",)
    assert "sum selected" in text(panel, "editing")
    panel.press("pane", "time")
    assert "aot_eager took" in text(panel, "time")
    sent = {name: value for name, value in panel.get_state().items() if name not in {"_esm", "_css", "layout"}}
    json.dumps(sent, ensure_ascii=False, default=lambda _: "").encode()
    assert panel.problem == ""


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NAMES), ofs, values, st.booleans(), st.booleans()), max_size=8))
@example([("graph", "nonsense", None, False, False), ("graph", "1", None, False, False)])
@example([("sort", "nonsense", None, False, False)])
@example([("kind", "", "nonsense", False, False)])
@example([("kind", "", None, False, False)])
@example([("show", "-1", None, False, False), ("show", "nonsense", None, False, False)])
@example([("direction", "", "nonsense", False, False)])
@example([("mark time", "nonsense 0", None, False, False), ("show time", "module -1", None, False, False)])
@example([("take", "-1", None, False, False)])
@example([(do, "mm", [], True, True) for do in NAMES])
def test_no_event_whatever_it_says_breaks_the_panel(idle: Exploration, events: list[tuple[Any, ...]]) -> None:
    control = control_of(idle)
    plan, panel = idle.plan, Panel(control)
    try:
        for do, of, value, shift, ctrl in events:
            panel.press(do, of, value=value, shift=shift, ctrl=ctrl)
        assert_it_works(panel, control)
    finally:
        panel.control.jobs.wait(60)
        idle.plan = plan
        control.read_exploration()
        control.state = PanelState(plan)
        panel.close()


def test_every_row_of_the_time_table_has_a_key_that_is_understood(idle: Exploration) -> None:
    panel = Panel(control_of(idle))
    for kind in ProfileKind:
        panel.press("show time", f"{kind} 0")
        assert panel.control.state.problem is None
    panel.close()
