"""Messages of a page are handled in the order in which it sent them, whichever thread of the kernel gets them first."""

from __future__ import annotations

from typing import Any

from regional_explorer.ui.panel.messages import MAX_WAITING, InOrder
from regional_explorer.ui.panel.panel import Panel


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


def test_what_is_selected_in_the_graph_comes_with_what_is_pressed(panel: Panel) -> None:
    name = f"0/forward:{panel.control.session.members['act']['0/forward'][0]}"
    panel.receive(panel, message(1, "mark", selection=[name]), [])
    assert panel.control.state.plan.regions[-1].selectors[0].patterns == (name,)


def test_other_messages_do_no_harm(panel: Panel) -> None:
    before = panel.control.state
    for wrong in ({}, None, {"do": "fly", "of": ""}, {"do": "open", "of": "no region"}, {"do": 3, "of": ""}):
        panel.receive(panel, wrong, [])
    assert panel.control.state == before
