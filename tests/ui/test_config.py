"""The config of a region in the panel: fields by type, the list of keys, presets."""

from __future__ import annotations

from typing import Any

import pytest

from regional_explorer.compiler.region_config import catalogue
from regional_explorer.exploration.exploration import Exploration
from regional_explorer.export.plan_as_python import configure_calls
from regional_explorer.style.element import words
from regional_explorer.ui.config_editor import MAX_KEYS, key_list
from regional_explorer.ui.panel import Panel
from tests.shared.panel import elements, rows, text, type_in


def field(panel: Panel, key: str) -> Any:
    (found,) = elements(panel.part("config"), data_do="set", data_of=key)
    return found


def fields(panel: Panel) -> list[str]:
    return [one[1]["data-of"] for one in elements(panel.part("config"), data_do="set")]


def fill(panel: Panel, key: str, value: str | bool) -> None:
    type_in(panel, "set", value, key)


def wrong(panel: Panel) -> str:
    boxes = elements(panel.part("config"), class_="rx-field")
    return " ".join(words(error) for box in boxes for error in elements([box], role="alert"))


def directions(panel: Panel) -> str:
    (menu,) = elements(panel.part("config"), data_do="direction")
    return str(next(option[1]["value"] for option in menu[2:] if option[1].get("selected")))


@pytest.mark.parametrize(
    ("key", "tag", "kind", "typed", "value"),
    [
        ("max_fusion_size", "input", "number", "4", 4),
        ("epilogue_fusion", "input", "checkbox", True, True),
        ("cpp.simdlen", "input", "text", "512", 512),
        ("cpp.simdlen", "input", "text", "None", None),
        ("cpp.vec_isa_ok", "input", "text", "True", True),
        ("max_autotune_gemm_backends", "input", "text", "ATEN,CPP", "ATEN,CPP"),
        ("cuda.arch", "input", "text", "90", "90"),
        ("max_autotune_gemm_search_space", "select", None, "EXHAUSTIVE", "EXHAUSTIVE"),
    ],
)
def test_a_field_fits_the_type_of_its_key(
    panel: Panel, exploration: Exploration, key: str, tag: str, kind: str | None, typed: Any, value: object
) -> None:
    panel.press("open", "act")
    panel.press("add", key)
    assert key in exploration.plan["act"].config
    shown = field(panel, key)
    assert (shown[0], shown[1].get("type")) == (tag, kind)
    fill(panel, key, typed)
    assert exploration.plan["act"].config[key] == value
    assert wrong(panel) == ""


def test_a_wrong_value_is_told_at_its_field_and_changes_nothing(panel: Panel, exploration: Exploration) -> None:
    exploration.configure("act", {"cpp.simdlen": 512})
    panel.control.refresh()
    panel.press("open", "act")
    fill(panel, "cpp.simdlen", "abc")
    assert "takes an int or None" in wrong(panel)
    shown = field(panel, "cpp.simdlen")[1]
    assert (shown["value"], shown["class"]) == ("abc", "rx-wrong")
    assert exploration.plan["act"].config == {"cpp.simdlen": 512}
    fill(panel, "cpp.simdlen", "256")
    assert wrong(panel) == ""
    assert "class" not in field(panel, "cpp.simdlen")[1]
    assert exploration.plan["act"].config == {"cpp.simdlen": 256}


def test_a_wrong_text_stays_at_its_field_until_that_changes(panel: Panel, exploration: Exploration) -> None:
    def fill_wrongly() -> None:
        panel.press("undo")
        panel.press("open", "mm") if panel.control.state.opened is None else None
        fill(panel, "max_fusion_size", "abc")
        assert "takes an int" in wrong(panel)

    panel.press("remove", "act")
    fill_wrongly()
    panel.press("switch", "act", value=False)
    assert field(panel, "max_fusion_size")[1]["value"] == "abc"
    exploration.configure("mm", {"max_fusion_size": 4})
    panel.control.refresh()
    assert field(panel, "max_fusion_size")[1]["value"] == "4"
    assert wrong(panel) == ""
    fill_wrongly()
    panel.press("remove", "mm")
    assert panel.control.state.invalid_inputs == {}
    fill_wrongly()
    panel.press("unset", "max_fusion_size")
    assert panel.control.state.invalid_inputs == {}


def listed(panel: Panel) -> list[str]:
    lists = elements(panel.part("config"), class_="rx-keys")
    return [item[2][2][2] for item in lists[0][2:]] if lists else []


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("cpp.simdlem", "Did you mean 'cpp.simdlen'"),
        ("fx_graph_cache", "Cannot be set for one region"),
        ("no such text", "no key"),
    ],
)
def test_a_key_that_cannot_be_added_is_shown_in_the_list(
    panel: Panel, exploration: Exploration, typed: str, message: str
) -> None:
    panel.press("open", "act")
    type_in(panel, "key query", typed)
    assert message in text(panel, "config")
    panel.press("add", typed)  # no page offers it
    assert exploration.plan["act"].config == {}
    assert panel.control.state.problem is not None


def test_keys_worth_trying_are_listed_first_and_all_can_be_searched(panel: Panel) -> None:
    panel.press("open", "act")
    assert listed(panel)[:2] == ["max_fusion_size", "cpp.simdlen"]
    shown = text(panel, "config")
    assert "an int, default 64 · can matter on cpu" in shown
    assert "how many nodes to allow into a single fusion" in shown
    type_in(panel, "key query", "max_autotune")
    assert listed(panel)[0] == "max_autotune"
    assert "No effect here: C++ GEMM templates" in text(panel, "config")
    type_in(panel, "key query", "SLOW debugging")  # words of the text
    assert "fallback_random" in listed(panel)
    type_in(panel, "key query", "True or False")
    assert len(listed(panel)) == MAX_KEYS
    assert "only the first are listed" in text(panel, "config")
    everything = {key for key in catalogue() if key_list(key, "cpu", ())[1:]}
    assert everything == set(catalogue())


def test_a_key_in_use_cannot_be_added_again(panel: Panel) -> None:
    panel.press("open", "mm")
    buttons = {one[1]["data-of"]: one for one in elements(panel.part("config"), data_do="add")}
    assert (words(buttons["max_fusion_size"]), buttons["max_fusion_size"][1].get("disabled")) == ("in use", True)
    assert (words(buttons["cpp.simdlen"]), buttons["cpp.simdlen"][1].get("disabled")) == ("Add", None)


def test_a_key_is_taken_out_and_a_preset_put_in(panel: Panel, exploration: Exploration) -> None:
    panel.press("open", "mm")
    panel.press("unset", "max_fusion_size")
    assert exploration.plan["mm"].config == {}
    type_in(panel, "preset", "eager numerics")
    assert exploration.plan["mm"].config == {"emulate_precision_casts": True, "fallback_random": True}
    assert fields(panel) == ["emulate_precision_casts", "fallback_random"]
    type_in(panel, "preset", "default")
    assert exploration.plan["mm"].config == {}


def test_one_config_is_open_at_a_time_and_its_row_offers_to_close_it(panel: Panel) -> None:
    def closing() -> list[str]:
        return [name for name, row in rows(panel).items() if "Close" in row]

    for name, shown in (("mm", ["max_fusion_size"]), ("act", [])):
        panel.press("open", name)
        assert text(panel, "config").startswith(f"Config of {name}")
        assert (fields(panel), closing()) == (shown, [name])
    panel.press("pane", "source")
    assert closing() == []
    panel.press("open", "mm")
    panel.press("open", "mm")
    assert (fields(panel), closing(), panel.control.state.pane) == ([], [], "source")


def test_each_direction_has_its_fields(panel: Panel, exploration: Exploration) -> None:
    panel.press("open", "mm")
    type_in(panel, "direction", "backward")
    fill(panel, "max_fusion_size", "2")
    panel.press("add", "cpp.simdlen")
    assert exploration.plan["mm"].config == {"max_fusion_size": 8}
    assert exploration.plan["mm"].backward_config == {"max_fusion_size": 2, "cpp.simdlen": None}
    assert "backward max_fusion_size=2" in text(panel, "regions")
    type_in(panel, "direction", "forward")
    assert fields(panel) == ["max_fusion_size"]
    assert field(panel, "max_fusion_size")[1]["value"] == "8"
    fill(panel, "max_fusion_size", "3")
    assert exploration.plan["mm"].config == {"max_fusion_size": 3}
    (shown,) = elements(panel.part("config"), class_="rx-python")
    calls = shown[2][2].splitlines()
    assert calls == list(configure_calls(exploration.plan["mm"]))
    assert ["direction='backward'" in call for call in calls] == [False, True]


def test_what_is_wrong_in_one_direction_is_told_there(panel: Panel, exploration: Exploration) -> None:
    panel.press("open", "act")
    exploration.configure("act", {"cpp.simdlen": 512}).configure("act", {"cpp.simdlen": 256}, direction="backward")
    panel.control.refresh()
    assert directions(panel) == "forward"
    fill(panel, "cpp.simdlen", "abc")
    assert "takes an int or None" in wrong(panel)
    type_in(panel, "direction", "backward")
    assert wrong(panel) == ""
    panel.press("unset", "cpp.simdlen")
    assert exploration.plan["act"].configs[1][1] == {}


def test_one_config_for_both_is_that_of_the_forward(panel: Panel, exploration: Exploration) -> None:
    exploration.configure("mm", {"max_fusion_size": 2}, direction="backward")
    panel.control.refresh()
    panel.press("open", "mm")
    assert directions(panel) == "forward"
    type_in(panel, "direction", "both")
    assert exploration.plan["mm"].configs == ((None, {"max_fusion_size": 8}),)
    assert directions(panel) == "both"
    panel.press("undo")
    assert exploration.plan["mm"].backward_config == {"max_fusion_size": 2}
    assert directions(panel) == "forward"
