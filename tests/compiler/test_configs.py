"""Configs that differ between forward and backward, and presets that help to debug a region."""

import json
import re
from collections import OrderedDict

import pytest
import torch
from msgspec.structs import replace
from torch import nn

import regional_explorer as rx
from regional_explorer.export.to_source import plan_source
from regional_explorer.record.changes import plan_differences
from regional_explorer.record.files import dump_plan, dump_session, load_plan, load_session
from regional_explorer.record.plan import CutRule, Direction, Region, config_of, with_config
from regional_explorer.record.plan_file import PLAN_FORMAT
from regional_explorer.tables.regions import regions_table
from tests.shared import programs
from tests.shared.checks import codes, only
from tests.shared.sessions import cells

compiles = pytest.mark.compiles

# ---------------------------------------------------------------------------------------------------------- directions

FEW, MANY = {"max_fusion_size": 1}, {"max_fusion_size": 9}


@pytest.fixture(scope="module")
def stack():
    return rx.explore(programs.Stack(), (torch.randn(4, 16),))


@pytest.fixture
def ex(stack):
    """Return an exploration with one region, without a config."""
    stack.plan = rx.Plan()
    return stack.mark("up", modules="layers.*.up")


@compiles
def test_forward_and_backward_have_own_configs_and_compile_separately(ex):
    ex.configure("up", FEW, direction="forward").configure("up", MANY, direction="backward")
    ex.compile()
    for column in ("config_requested", "config_applied"):
        table = ex.partitions
        for direction, config in (("forward", FEW), ("backward", MANY)):
            assert table[table.graph.str.contains(direction)][column].tolist() == [config] * 3
    assert set(ex.configure("up", FEW, direction="backward").compile().graph) == {"0/backward"}


def test_configs_are_set_removed_and_reset_per_direction_or_both(ex):
    before = ex.plan
    ex.configure("up", FEW, direction="backward").configure("up", {"epilogue_fusion": False})
    assert config_of(ex.plan["up"], Direction.FORWARD) == {"epilogue_fusion": False}
    assert config_of(ex.plan["up"], Direction.BACKWARD) == {**FEW, "epilogue_fusion": False}
    ex.reset("up").configure("up", FEW).configure("up", {"max_fusion_size": rx.DEFAULT}, direction="backward")
    assert (ex.plan["up"].config, ex.plan["up"].backward_config) == (FEW, {})
    both = ex.reset("up").configure("up", FEW).plan
    ex.configure("up", MANY, direction="backward")
    assert ex.plan != both
    assert ex.configure("up", FEW, direction="backward").plan == both, "equal directions are one config again"
    ex.reset("up", direction="forward")
    assert (ex.plan["up"].config, ex.plan["up"].backward_config) == ({}, FEW)
    assert ex.plan["up"].same_nodes(before["up"]), "nothing is cut again"
    assert ex.reset("up").plan["up"].configs == Region("a", ()).configs == ((None, {}),)
    assert before["up"].same_nodes(with_config(before["up"], FEW, Direction.BACKWARD))


def set_plan(ex, **changes):
    ex.plan = rx.Plan((replace(ex.plan["up"], **changes),))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda ex: ex.configure("up", FEW, direction="x"), rx.InvalidConfigValueError, '"forward" or the "backward"'),
        (lambda ex: ex.reset("up", direction=True), rx.InvalidConfigValueError, "direction"),
        (lambda ex: ex.configure("up", {"nope": 1}, direction="backward"), rx.UnknownConfigKeyError, "nope"),
        (lambda ex: replace(ex.plan["up"], backward_config=[1]), rx.PlanError, "is a dict"),
        (lambda ex: set_plan(ex, backward_config={"nope": 1}), rx.UnknownConfigKeyError, "nope"),
    ],
)
def test_wrong_configs_are_refused(ex, call, error, message):
    with pytest.raises(error, match=message):
        call(ex)


def test_saved_files_keep_forward_and_backward_configs(ex, tmp_path):
    path = tmp_path / "file.json"
    ex.configure("up", FEW)
    text = dump_session(ex.session)
    assert "backward_config" not in text
    path.write_text(text)
    read = load_session(path)
    assert read.plan == ex.plan
    assert [dict(part.config_requested) for part in read.partitions] == [FEW] * 6
    ex.configure("up", MANY, direction="backward")
    path.write_text(dump_session(ex.session))
    assert load_session(path).plan == load_plan(ex.save_plan(tmp_path / "plan.json")) == ex.plan
    plan = {"format": PLAN_FORMAT, "kind": "plan", "regions": [{"name": "up", "selectors": [], "config": FEW}]}
    path.write_text(json.dumps(plan))
    assert load_plan(path)["up"].configs == ((None, FEW),)
    assert dump_plan(load_plan(path)) == json.dumps(plan, indent=2) + "\n"


def test_the_source_of_a_plan_sets_forward_and_backward_configs(ex):
    ex.configure("up", {**FEW, "epilogue_fusion": False}).configure("up", MANY, direction="backward")
    ex.configure("up", {"epilogue_fusion": rx.DEFAULT}, direction="backward")
    for merged in (False, True):
        if merged:
            ex.mark("norm", modules="layers.*.norm").merge("norm", "up", name="both", config=FEW)
            ex.configure("both", MANY, direction="backward")
        plan, source = ex.plan, plan_source(ex.plan)
        ex.plan = rx.Plan()
        exec(source, {"ex": ex, "rx": rx})  # noqa: S102 - that is what it is for
        assert [region.configs for region in ex.plan.regions] == [region.configs for region in plan.regions]
        assert merged or ex.plan == plan


def test_the_source_of_a_plan_sets_its_cut(ex):
    ex.plan = plan = replace(ex.plan, cut=CutRule.MARKED)
    source = plan_source(plan)
    ex.plan = rx.Plan()
    exec(source, {"ex": ex, "rx": rx})  # noqa: S102 - that is what it is for
    assert ex.plan == plan


def test_a_source_mark_cannot_express_a_backward_config():
    def f(x):
        with rx.region("r", max_fusion_size=8):
            return x.sin() + 1

    ex = rx.explore(f, (torch.ones(3, requires_grad=True),)).configure("r", FEW, direction="backward")
    source = plan_source(ex.plan)
    assert "with rx.region('r', max_fusion_size=8):" in source
    assert re.search(r"# rx\.region takes one config.*\nex\.configure\('r', .*, direction='backward'\)", source)
    assert codes(ex) == []


def test_merge_refuses_differing_backward_configs_and_split_keeps_them(ex):
    ex.mark("norm", modules="layers.*.norm").configure("norm", FEW, direction="backward")
    with pytest.raises(rx.PlanError, match=r"backward \{'max_fusion_size': 1\}"):
        ex.merge("norm", "up")
    ex.merge("norm", "up", config=MANY)
    assert ex.plan["norm"].configs == ((None, MANY),)
    ex.configure("norm", FEW, direction="backward").split("norm")
    assert {region.backward_config["max_fusion_size"] for region in ex.plan.regions} == {1}


def test_tables_previews_and_differences_show_configs_of_both_directions(ex):
    assert ex.regions.backward_config.tolist() == [None]
    before = ex.plan
    after = ex.draft().configure("up", FEW, direction="backward").plan
    parts = ex.preview(after).partitions
    assert {part.graph: part.config_requested for part in parts} == {"0/forward": {}, "0/backward": FEW}
    ex.plan = after
    row = ex.regions.iloc[0]
    assert (row.config, row.backward_config) == ({}, FEW)
    assert cells(regions_table(ex.session))[0][2] == "forward default; backward max_fusion_size=1"
    assert plan_differences([before, after]) == [[], ["up.backward: max_fusion_size=1"]]


@compiles
def test_key_without_effect_is_reported_per_direction(ex):
    ex.configure("up", {"coordinate_descent_tuning": True}, direction="backward")
    found = only(ex, "config-inert")
    assert "(backward)" in found.message
    assert found.graph == "0/backward"
    assert "direction='backward'" in found.remedy


@pytest.fixture
def denormal_numbers():
    """Keep them: what g++ compiles for unsafe math turns them off in the whole process when it is loaded."""
    yield
    torch.set_flush_denormal(False)


@compiles
@pytest.mark.parametrize("config", [{"cpp.threads": 3}, {"cpp.enable_unsafe_math_opt_flag": True}])
def test_build_only_key_has_an_effect(config, denormal_numbers):
    ex = rx.explore(rx.region("r")(lambda x: (x.sin() * 2).cos()), (torch.randn(1 << 16),))
    ex.benchmark(("regional",), 0.1)
    assert ex.regions.state.tolist() == ["measured"]
    ex.code("r", config=config)
    ex.configure("r", config).compile()
    assert ex.regions.state.tolist() == ["compiled"]
    assert "config-inert" not in codes(ex)
    ex.configure("r", {"shape_padding": False}).compile()
    assert "shape_padding" in only(ex, "config-inert").message


def test_a_module_named_backward_is_not_the_backward_direction():
    directions = [Direction.of_graph(name).value for name in ("0/forward", "0/inference", "1/backward", "0/backward/a")]
    assert directions == ["forward", "forward", "backward", "backward"]
    net = nn.Sequential(OrderedDict(backward=nn.Linear(3, 3)))
    ex = rx.explore(net, (torch.ones(2, 3),)).mark("backward", modules="backward").configure("backward", FEW)
    assert ex.plan["backward"].configs == ((None, FEW),)


# ------------------------------------------------------------------------------------------------------------- presets


def log_of_difference(x):
    with rx.region("r", "NaN asserts"):
        shifted = x - 1
        return torch.log(shifted) * 2


LOG_LINE = rf"test_configs\.py:{log_of_difference.__code__.co_firstlineno + 3} in log_of_difference"


@compiles
def test_the_error_of_a_nan_assert_names_node_and_line():
    ex = rx.explore(log_of_difference, (torch.rand(8, 4) + 2,))
    assert ex.plan["r"].config == {"nan_asserts": True}
    run, good = ex.compiled, torch.rand(8, 4) + 2
    torch.testing.assert_close(run(good), log_of_difference(good))
    for x, message in (
        (torch.rand(8, 4) - 2, rf"Region 'r', graph 0/inference: 'log' .*{LOG_LINE}.*gives NaN"),
        (torch.ones(8, 4), r"'log'.* gives infinity"),
        (torch.full((8, 4), torch.nan), r"its input .* holds NaN already"),
    ):
        for _ in range(2):
            with pytest.raises(rx.RegionAssertionError, match=message):
                run(x)
        torch.testing.assert_close(run(good), log_of_difference(good))


@compiles
def test_nan_passes_without_asserts_and_a_size_assert_error_names_the_input():
    ex = rx.explore(lambda x: torch.log(x - 1) * 2, (torch.rand(8, 4) + 2,)).mark("r", ops="*")
    assert ex.compiled(torch.rand(8, 4) - 2).isnan().all()
    ex.configure("r", "size asserts").compile()
    (switch,) = ex.live.program.switches
    with pytest.raises(rx.RegionAssertionError, match=r"Region 'r'.*a size assert failed: .*It is about '"):
        switch.call([torch.rand(4, 8).t()])
    ex.configure("r", dict.fromkeys(ex.plan["r"].config, rx.DEFAULT)).compile()
    (switch,) = ex.live.program.switches
    switch.call([torch.rand(4, 8).t()])  # runs eagerly


@compiles
def test_no_fusion_gives_more_loops_and_default_preset_resets():
    def loops():
        return str(ex.code("r", config={})).count("for(int64_t")

    ex = rx.explore(lambda x: (x * 2).softmax(-1), (torch.randn(64, 32),)).mark("r", ops="*")
    before = loops()
    ex.configure("r", "no fusion")
    assert ex.plan["r"].config == {"max_fusion_size": 1, "epilogue_fusion": False}
    assert loops() > before
    ex.configure("r", "no fusion", direction="backward").configure("r", "default")
    assert ex.plan["r"].configs == ((None, {}),)
    ex.configure("r", "no fusion").configure("r", "default", max_fusion_size=4)
    assert ex.plan["r"].config == {"max_fusion_size": 4}


def test_unknown_preset_suggests_names(ex):
    with pytest.raises(rx.InvalidConfigValueError, match=r"No preset is called 'nofusion'\. Did you mean 'no fusion'"):
        ex.configure("up", "nofusion")
    with pytest.raises(rx.InvalidConfigValueError, match="NaN asserts"):
        rx.region("r", "nan")
