"""The config of a region in the panel: fields by type, the list of keys, presets."""

from __future__ import annotations

from typing import Any

import ipywidgets
import pytest

from regional_explorer.compiler.config.catalogue import catalogue
from regional_explorer.exploration.exploration import Exploration
from regional_explorer.ui.panel.config_box import ConfigBox
from regional_explorer.ui.panel.key_list import MAX_LISTED, key_tree
from regional_explorer.ui.panel.panel import Panel
from tests.ui.conftest import words


def opened(panel: Panel, name: str) -> ConfigBox:
    panel.regions.tree_widget.press("open", name)
    assert panel.regions.config is not None
    return panel.regions.config


def shown(config: ConfigBox) -> str:
    return " ".join(map(words, config.keys.tree))


@pytest.mark.parametrize(
    ("key", "kind", "typed", "value"),
    [
        ("max_fusion_size", ipywidgets.BoundedIntText, 4, 4),
        ("epilogue_fusion", ipywidgets.Checkbox, True, True),
        ("cpp.simdlen", ipywidgets.Text, "8", 8),
        ("cpp.simdlen", ipywidgets.Text, "None", None),
        ("cpp.vec_isa_ok", ipywidgets.Text, "True", True),
        ("max_autotune_gemm_backends", ipywidgets.Text, "ATEN,CPP", "ATEN,CPP"),
    ],
)
def test_a_field_fits_the_type_of_its_key(
    panel: Panel, exploration: Exploration, key: str, kind: type[Any], typed: Any, value: object
) -> None:
    exploration.configure("act", {})
    config = opened(panel, "act")
    config.keys.press("add", key)
    assert key in exploration.plan["act"].config
    field = config.fields[key]
    assert isinstance(field.input, kind)
    field.input.value = typed
    assert exploration.plan["act"].config[key] == value
    assert field.error.value == ""


def test_a_wrong_value_is_told_at_its_field_and_changes_nothing(panel: Panel, exploration: Exploration) -> None:
    exploration.configure("act", {"cpp.simdlen": 8})
    panel.control.refresh()
    config = opened(panel, "act")
    field = config.fields["cpp.simdlen"]
    field.input.value = "abc"
    assert "takes an int or None" in field.error.value
    assert field.input.value == "abc"
    assert "rx-wrong" in field.input._dom_classes
    assert exploration.plan["act"].config == {"cpp.simdlen": 8}
    field.input.value = "4"
    assert field.error.value == ""
    assert "rx-wrong" not in field.input._dom_classes
    assert exploration.plan["act"].config == {"cpp.simdlen": 4}


def listed(config: ConfigBox) -> list[str]:
    _, *rest = config.keys.tree
    return [item[2][2][2] for item in rest[0][2:]] if rest else []


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
    config = opened(panel, "act")
    config.search.value = typed
    assert message in shown(config)
    config.keys.press("add", typed)  # no page offers it
    assert exploration.plan["act"].config == {}
    assert panel.control.state.problem is not None


def test_keys_worth_trying_are_listed_first_and_all_can_be_searched(panel: Panel) -> None:
    config = opened(panel, "act")
    assert listed(config)[:2] == ["max_fusion_size", "cpp.simdlen"]
    text = shown(config)
    assert "an int, default 64 · can matter on cpu" in text
    assert "how many nodes to allow into a single fusion" in text
    config.search.value = "max_autotune"
    assert listed(config)[0] == "max_autotune"
    assert "No effect here: C++ GEMM templates" in shown(config)
    config.search.value = "SLOW debugging"  # words of the text
    assert "fallback_random" in listed(config)
    config.search.value = "True or False"
    assert len(listed(config)) == MAX_LISTED
    assert "only the first are listed" in shown(config)
    everything = {key for key in catalogue() if key_tree(key, "cpu", ())[1:]}
    assert everything == set(catalogue())


def test_a_key_in_use_cannot_be_added_again(panel: Panel) -> None:
    config = opened(panel, "mm")
    buttons = {item[2][-1][1]["data-of"]: item[2][-1] for item in config.keys.tree[1][2:]}
    assert (buttons["max_fusion_size"][2], buttons["max_fusion_size"][1].get("disabled")) == ("in use", True)
    assert (buttons["cpp.simdlen"][2], buttons["cpp.simdlen"][1].get("disabled")) == ("Add", None)


def test_a_key_is_taken_out_and_a_preset_put_in(panel: Panel, exploration: Exploration) -> None:
    config = opened(panel, "mm")
    config.fields["max_fusion_size"]._remove.click()
    assert exploration.plan["mm"].config == {}
    config.preset.value = "eager numerics"
    assert exploration.plan["mm"].config == {"emulate_precision_casts": True, "fallback_random": True}
    assert set(config.fields) == {"emulate_precision_casts", "fallback_random"}
    assert config.preset.value == ""
    config.preset.value = "default"
    assert exploration.plan["mm"].config == {}


def test_one_config_is_open_at_a_time(panel: Panel) -> None:
    opened(panel, "mm")
    config = opened(panel, "act")
    assert config.name == "act"
    assert len(panel.regions.box.children) == 2
    panel.regions.tree_widget.press("open", "act")
    assert panel.regions.config is None


def test_each_direction_has_its_fields(panel: Panel, exploration: Exploration) -> None:
    config = opened(panel, "mm")
    config.directions.value = "backward"
    config.fields["max_fusion_size"].input.value = 2
    config.keys.press("add", "cpp.simdlen")
    assert exploration.plan["mm"].config == {"max_fusion_size": 8}
    assert exploration.plan["mm"].backward_config == {"max_fusion_size": 2, "cpp.simdlen": None}
    assert "backward max_fusion_size=2" in words(panel.regions.tree_widget.tree[0])
    config.directions.value = "forward"
    assert list(config.fields) == ["max_fusion_size"]
    assert config.fields["max_fusion_size"].input.value == 8
    config.fields["max_fusion_size"].input.value = 3
    assert exploration.plan["mm"].config == {"max_fusion_size": 3}
    assert "direction='backward'" in words(config.python.tree[0])


def test_what_is_wrong_in_one_direction_is_told_there(panel: Panel, exploration: Exploration) -> None:
    config = opened(panel, "act")
    exploration.configure("act", {"cpp.simdlen": 8}).configure("act", {"cpp.simdlen": 4}, direction="backward")
    panel.control.refresh()
    assert config.directions.value == "forward"
    config.fields["cpp.simdlen"].input.value = "abc"
    assert "takes an int or None" in config.fields["cpp.simdlen"].error.value
    config.directions.value = "backward"
    assert config.fields["cpp.simdlen"].error.value == ""
    config.fields["cpp.simdlen"]._remove.click()
    assert exploration.plan["act"].configs[1][1] == {}


def test_one_config_for_both_is_that_of_the_forward(panel: Panel, exploration: Exploration) -> None:
    exploration.configure("mm", {"max_fusion_size": 2}, direction="backward")
    panel.control.refresh()
    config = opened(panel, "mm")
    assert config.directions.value == "forward"
    config.directions.value = None
    assert exploration.plan["mm"].configs == ((None, {"max_fusion_size": 8}),)
    assert config.directions.value is None
    panel.control.undo()
    assert exploration.plan["mm"].backward_config == {"max_fusion_size": 2}
    assert config.directions.value == "forward"
