"""Configs that differ between forward and backward."""

import json
import re

import pytest
import torch
from msgspec.structs import replace
from torch import nn

import regional_explorer as rx
from regional_explorer.errors import InvalidConfigValueError, PlanError, UnknownConfigKeyError
from regional_explorer.export.plan_as_python import plan_source
from regional_explorer.record.changes import differences
from regional_explorer.record.json_file import dump_plan, dump_session, load_plan, load_session
from regional_explorer.record.plan import Direction, Plan, Region, config_of, with_config
from regional_explorer.tables.results import regions_table
from tests.shared import programs
from tests.shared.sessions import cells

FEW, MANY = {"max_fusion_size": 1}, {"max_fusion_size": 9}


@pytest.fixture
def ex():
    found = rx.explore(programs.Stack(), (torch.randn(4, 16),))
    found.plan = rx.Plan()
    return found.mark("up", modules="layers.*.up")


def asked(ex, column="config_requested"):
    """Return the configs of the partitions by direction."""
    table = ex.partitions
    return {
        direction: table[table.graph.str.contains(direction)][column].tolist() for direction in ("forward", "backward")
    }


@pytest.mark.compiles
def test_each_direction_is_compiled_under_its_own_config(ex):
    ex.configure("up", FEW, direction="forward").configure("up", MANY, direction="backward")
    ex.compile()
    applied = asked(ex, "config_applied")
    assert applied["forward"]
    assert applied["backward"]
    assert all(config == FEW for config in applied["forward"])
    assert all(config == MANY for config in applied["backward"])
    assert applied == asked(ex)


@pytest.mark.compiles
def test_a_change_of_one_direction_compiles_that_one_alone(ex):
    ex.compile()
    again = ex.configure("up", FEW, direction="backward").compile()
    assert len(again)
    assert set(again.graph) == {"0/backward"}


def test_a_preview_knows_the_directions(ex):
    parts = ex.preview(ex.draft().configure("up", FEW, direction="backward").plan).partitions
    assert {part.graph: part.config_requested for part in parts} == {"0/forward": {}, "0/backward": FEW}


def test_what_is_set_for_both_reaches_both(ex):
    ex.configure("up", FEW, direction="backward").configure("up", {"epilogue_fusion": False})
    region = ex.plan["up"]
    assert config_of(region, Direction.FORWARD) == {"epilogue_fusion": False}
    assert config_of(region, Direction.BACKWARD) == {**FEW, "epilogue_fusion": False}


def test_a_key_is_taken_out_of_one_direction(ex):
    ex.configure("up", FEW).configure("up", {"max_fusion_size": rx.DEFAULT}, direction="backward")
    assert (ex.plan["up"].config, ex.plan["up"].backward_config) == (FEW, {})


def test_equal_directions_are_one_config_again(ex):
    before = ex.configure("up", FEW).plan
    ex.configure("up", MANY, direction="backward")
    assert ex.plan != before
    assert ex.configure("up", FEW, direction="backward").plan == before


def test_one_direction_is_reset(ex):
    ex.configure("up", FEW).reset("up", direction="forward")
    assert (ex.plan["up"].config, ex.plan["up"].backward_config) == ({}, FEW)
    ex.reset("up")
    assert ex.plan["up"].configs == ((None, {}),)


def test_nothing_is_cut_again_for_another_config(ex):
    one = ex.plan["up"]
    assert one.same_nodes(with_config(one, FEW, Direction.BACKWARD))


def test_what_is_wrong_is_told(ex):
    with pytest.raises(InvalidConfigValueError, match='"forward" or the "backward"'):
        ex.configure("up", FEW, direction="sideways")
    with pytest.raises(InvalidConfigValueError, match="direction"):
        ex.reset("up", direction=True)
    with pytest.raises(UnknownConfigKeyError):
        ex.configure("up", {"nope": 1}, direction="backward")
    with pytest.raises(PlanError, match="is a dict"):
        replace(ex.plan["up"], backward_config=[1])
    with pytest.raises(UnknownConfigKeyError):
        ex.plan = Plan((replace(ex.plan["up"], backward_config={"nope": 1}),))


def test_a_plan_keeps_its_directions_on_disk(ex, tmp_path):
    ex.configure("up", FEW, direction="forward").configure("up", MANY, direction="backward")
    assert load_plan(ex.save_plan(tmp_path / "plan.json")) == ex.plan
    (tmp_path / "session.json").write_text(dump_session(ex.session))
    assert load_session(tmp_path / "session.json").plan == ex.plan


def test_a_plan_without_directions_is_written_and_read_as_ever(tmp_path):
    """A file of format 1, whose regions have no directions: this version writes it as it was but for the format."""
    text = json.dumps(
        {"format": 1, "kind": "plan", "regions": [{"name": "up", "selectors": [], "config": FEW}]}, indent=2
    )
    (tmp_path / "plan.json").write_text(text)
    plan = load_plan(tmp_path / "plan.json")
    assert plan["up"].configs == ((None, FEW),)
    assert dump_plan(plan) == text.replace('"format": 1', '"format": 3') + "\n"


def test_a_session_without_directions_is_written_as_before_and_read(ex, tmp_path):
    ex.configure("up", FEW)
    text = dump_session(ex.session)
    assert "backward_config" not in text
    (tmp_path / "x.json").write_text(text)
    read = load_session(tmp_path / "x.json")
    assert read.plan == ex.plan
    assert [dict(part.config_requested) for part in read.partitions] == [FEW] * 6


def test_the_source_sets_each_direction(ex):
    ex.configure("up", {**FEW, "epilogue_fusion": False}).configure("up", MANY, direction="backward")
    ex.configure("up", {"epilogue_fusion": rx.DEFAULT}, direction="backward")
    plan, source = ex.plan, plan_source(ex.plan)
    ex.plan = rx.Plan()
    exec(source, {"ex": ex, "rx": rx})  # noqa: S102 - that is what it is for
    assert ex.plan == plan


def test_the_source_of_merged_regions_sets_each_direction(ex):
    ex.mark("norm", modules="layers.*.norm").merge("norm", "up", name="both")
    ex.configure("both", FEW).configure("both", MANY, direction="backward")
    plan, source = ex.plan, plan_source(ex.plan)
    ex.plan = rx.Plan()
    exec(source, {"ex": ex, "rx": rx})  # noqa: S102 - that is what it is for
    assert ex.plan["both"].configs == plan["both"].configs


def test_a_block_cannot_say_it():
    def f(x):
        with rx.region("r", max_fusion_size=8):
            return x.sin() + 1

    ex = rx.explore(f, (torch.ones(3, requires_grad=True),)).configure("r", FEW, direction="backward")
    source = plan_source(ex.plan)
    assert "with rx.region('r', max_fusion_size=8):" in source
    assert re.search(r"# rx\.region takes one config.*\nex\.configure\('r', .*, direction='backward'\)", source)
    assert [one.code for one in ex.diagnostics] == ["config-direction"]
    assert "max_fusion_size" in ex.diagnostics[0].message


def test_regions_of_other_backward_configs_are_not_merged_unasked(ex):
    ex.mark("norm", modules="layers.*.norm").configure("norm", FEW, direction="backward")
    with pytest.raises(PlanError, match=r"backward \{'max_fusion_size': 1\}"):
        ex.merge("norm", "up")
    ex.merge("norm", "up", config=MANY)
    assert ex.plan["norm"].configs == ((None, MANY),)


def test_a_split_keeps_the_directions(ex):
    ex.configure("up", FEW, direction="backward").split("up")
    assert {region.backward_config["max_fusion_size"] for region in ex.plan.regions} == {1}


def test_tables_show_both(ex):
    assert ex.regions.backward_config.tolist() == [None]
    ex.configure("up", FEW, direction="backward")
    row = ex.regions.iloc[0]
    assert (row.config, row.backward_config) == ({}, FEW)
    shown = cells(regions_table(ex.session))[0][2]
    assert shown == "forward default; backward max_fusion_size=1"


def test_plans_that_differ_in_one_direction_are_told_apart(ex):
    one = ex.plan
    other = ex.configure("up", FEW, direction="backward").plan
    assert differences([one, other]) == [[], ["up.backward: max_fusion_size=1"]]


@pytest.mark.compiles
def test_a_key_without_effect_is_told_for_its_direction(ex):
    ex.configure("up", {"max_autotune": True}, direction="backward")
    (found,) = [one for one in ex.diagnostics if one.code == "config-inert"]
    assert "(backward)" in found.message
    assert found.graph == "0/backward"
    assert 'direction="backward"' in found.remedy


def test_neighbours_are_compared_in_their_own_direction():
    def f(x):
        with rx.region("first", max_fusion_size=1):
            a = x.sin()
        with rx.region("second", max_fusion_size=1):
            return a.cos()

    ex = rx.explore(f, (torch.ones(3, requires_grad=True),))
    assert "config-neighbour" not in [one.code for one in ex.diagnostics]
    ex.configure("first", MANY, direction="backward")
    (found,) = [one for one in ex.diagnostics if one.code == "config-neighbour"]
    assert found.graph == "0/backward"
    assert "'first' under {'max_fusion_size': 1} of 'second'" in found.upstream


def test_regions_without_a_backward_config_are_as_they_were():
    assert Region("a", ()).configs == ((None, {}),)
    assert [Direction.of_graph(name) for name in ("0/forward", "0/inference", "1/backward", "0/backward/body")] == [
        Direction.FORWARD,
        Direction.FORWARD,
        Direction.BACKWARD,
        Direction.BACKWARD,
    ]


def test_a_module_called_backward_is_no_direction():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backward = nn.Linear(3, 3)

        def forward(self, x):
            return self.backward(x)

    ex = rx.explore(Net(), (torch.ones(2, 3),)).mark("backward", modules="backward").configure("backward", FEW)
    assert ex.plan["backward"].configs == ((None, FEW),)
