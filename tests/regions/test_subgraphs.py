"""Bodies of ``nested_compile_region`` as regions."""

import functools
import importlib

import pytest
import torch
from torch import nn

import regional_explorer as rx
from regional_explorer.export.to_source import plan_source
from regional_explorer.record.diagnostic import Severity
from regional_explorer.record.files import dump_session, load_session
from tests.shared.checks import BEFORE_2_13, assert_compiled_is_right, codes, only

MODULE = importlib.import_module("torch._higher_order_ops.invoke_subgraph")
HAS_OPTIONS = hasattr(MODULE, "get_invoke_subgraph_compile_options")
HAS_DIRECTIONS = "inductor_config_patches" in getattr(MODULE.NestedCompileRegionOptions, "__dataclass_fields__", ())
NO_OPTIONS = "torch has no options for nested_compile_region"
INLINES = not BEFORE_2_13
"""Whether torch inlines a body without options that is called once; 2.11 does not."""
ASKED = {"max_autotune": False}
"""A config that every version takes in options."""


@pytest.fixture(scope="module", autouse=True)
def enable_options():
    from torch._dynamo import config

    name = "enable_invoke_subgraph_regional_compile"
    with config.patch({name: True} if hasattr(config, name) else {}):
        yield


def options(config=None, **others):
    """Return options of ``nested_compile_region``; skip the test if torch has none."""
    if not HAS_OPTIONS:
        pytest.skip(NO_OPTIONS)
    return MODULE.get_invoke_subgraph_compile_options(config, **others)


def nested_model(**given):
    """Return a model of equal blocks, each a nested_compile_region with the options given, if any."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(8, 8)

        @torch.compiler.nested_compile_region(**given)
        def forward(self, x):
            h = torch.tanh(self.up(x))
            return x + h * h.sigmoid()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.Sequential(Block(), Block(), Block())

        def forward(self, x):
            return self.blocks(x).sum()

    return Net()


def nested_sine(**given):
    """Return a function that is a nested_compile_region with the options given, if any."""

    @torch.compiler.nested_compile_region(**given)
    def g(x):
        return x.sin() * 2

    return g


def explore_nested(*, grad=True, **given):
    return rx.explore(nested_model(**given), (torch.randn(4, 8),), grad=None if grad else False)


# ------------------------------------------------------------------------------------------------------------- options


@pytest.fixture(scope="module")
def ex_with_options():
    """Return an exploration of bodies whose options have a config."""
    return explore_nested(options=options(ASKED))


def test_body_with_options_becomes_one_region(ex_with_options, tmp_path):
    (row,) = ex_with_options.regions.to_dict("records")
    assert (row["region"], row["selector"], row["config"]) == ("Block", "subgraph", ASKED)
    assert row["backward_config"] is None
    assert codes(ex_with_options) == []
    bodies = [graph for graph in ex_with_options.session.graphs if graph.parent and graph.kind != "dynamo"]
    assert any(op.origin is None for body in bodies for op in body.ops), "a sum of gradients, for h is used twice"
    assert {part.graph: set(part.nodes) for part in ex_with_options.session.partitions} == {
        body.id: {op.name for op in body.ops} for body in bodies
    }
    (tmp_path / "session.json").write_text(dump_session(ex_with_options.session))
    read = load_session(tmp_path / "session.json")
    assert read.plan == ex_with_options.plan
    assert [graph.options for graph in read.graphs] == [graph.options for graph in ex_with_options.session.graphs]


def test_options_without_config_request_none():
    wrapped = functools.partial(lambda gm, inputs, **_: None, inductor_config_patches={"max_fusion_size": 1})
    for given in (options(), MODULE.NestedCompileRegionOptions(fw_compiler=wrapped, bw_compiler=wrapped)):
        assert explore_nested(options=given).plan["Block"].configs == ((None, {}),)


@pytest.mark.compiles
def test_bodies_are_compiled_and_give_eagers_results(ex_with_options):
    assert_compiled_is_right(ex_with_options)
    assert all(config == ASKED for config in ex_with_options.partitions.config_applied)
    assert ex_with_options.partitions.shared_with.notna().any()


@pytest.mark.skipif(not HAS_DIRECTIONS, reason="torch has one config for both directions")
@pytest.mark.compiles
def test_forward_and_backward_options_become_the_regions_configs():
    backward = {"fallback_by_default": True}
    ex = explore_nested(options=options(ASKED, bw_inductor_config_patches=backward))
    assert [dict(config) for _, config in ex.plan["Block"].configs] == [ASKED, backward]
    ex.compile()
    table = ex.partitions
    assert table[table.graph.str.contains("forward")].config_applied.tolist() == [ASKED] * 3
    assert table[table.graph.str.contains("backward")].config_applied.tolist() == [backward] * 3


def test_functions_with_different_options_are_separate_regions():
    one = nested_sine(options=options(ASKED))

    @torch.compiler.nested_compile_region(options=options({}))
    def g(x):
        return x.cos() * 3

    ex = rx.explore(lambda x: g(one(x)), (torch.ones(3),))
    assert [(region.name, dict(region.config)) for region in ex.plan.regions] == [("g", ASKED), ("g'", {})]
    assert len(ex.session.partitions) == 2


def test_a_body_with_options_is_separate_from_a_surrounding_block():
    g = nested_sine(options=options(ASKED))

    def f(x):
        with rx.region("outer"):
            return g(x.cos()).exp()

    ex = rx.explore(f, (torch.ones(3),))
    graphs = {part.region: part.graph for part in ex.session.partitions}
    assert graphs["outer"] == "0/inference"
    assert graphs["g"].startswith("0/inference/")
    assert "region-shrunk" in codes(ex)


def test_the_source_marks_the_same_bodies(ex_with_options):
    ex, before = ex_with_options, ex_with_options.plan
    ex.configure("Block", {"max_fusion_size": 2}, direction="backward")
    parts, configs, source = ex.session.partitions, ex.plan["Block"].configs, plan_source(ex.plan)
    assert "# In the source it is a nested_compile_region" in source
    assert "rx.region" not in source
    ex.plan = rx.Plan()
    exec(source, {"ex": ex, "rx": rx})  # noqa: S102 - that is what it is for
    assert ex.session.partitions == parts
    assert ex.plan["Block"].configs == configs
    ex.plan = before


def test_a_global_config_key_of_a_body_is_left_out():
    ex = explore_nested(options=options(ASKED if HAS_DIRECTIONS else {**ASKED, "fx_graph_cache": False}))
    assert ex.plan["Block"].config == ASKED
    assert ("config-global" in codes(ex)) is not HAS_DIRECTIONS


# ------------------------------------------------------------------------------------------- options no plan can hold


def test_a_partitioner_and_decompositions_in_the_options_are_used():
    """The decompositions apply only to the trace of the body."""

    def tanh(x):
        return 2 * torch.sigmoid(2 * x) - 1

    given = {torch.ops.aten.tanh.default: tanh}
    ex = explore_nested(options=options(ASKED, partitioner="default_partition", decompositions=given), grad=False)
    found = only(ex, "subgraph-options")
    assert found.severity is Severity.INFO
    message = found.message.replace("'", "")
    assert "partitioner=default_partition" in message
    assert "decompositions of aten.tanh.default" in message
    assert "These are ignored" not in message
    traced = [op.op for graph in ex.session.graphs if graph.kind == "inference" and graph.parent for op in graph.ops]
    assert "tanh" not in traced


@pytest.mark.skipif(not HAS_OPTIONS, reason=NO_OPTIONS)
def test_a_compiler_in_the_options_is_ignored():
    def mine(gm, inputs, **_):
        raise NotImplementedError

    found = only(explore_nested(options=MODULE.NestedCompileRegionOptions(fw_compiler=mine)), "subgraph-options")
    assert found.severity is Severity.WARNING
    assert all(text in found.message for text in ("These are ignored", "fw_compiler=", "mine", "bw_compiler=None"))


# ----------------------------------------------------------------------------------------------------- without options


@pytest.fixture(scope="module")
def without_options():
    return explore_nested()


@pytest.fixture
def unmarked_ex(without_options):
    """Return an exploration of bodies without options, without regions."""
    without_options.plan = rx.Plan()
    return without_options


def test_bodies_without_options_run_eagerly(unmarked_ex):
    assert unmarked_ex.plan.regions == ()
    assert len(unmarked_ex.partitions) == 0
    with pytest.raises(rx.SelectorError, match="Did you mean 'Block'"):
        unmarked_ex.mark("blocks", subgraphs="Blok")


@pytest.mark.parametrize("pattern", ["*", "nested_model.Block.forward", "Block", "forward", "subgraph_*"])
def test_a_body_is_marked_by_its_name(unmarked_ex, pattern):
    ex = unmarked_ex.mark("blocks", subgraphs=pattern)
    assert len(ex.partitions) == (4 if INLINES else 6)
    assert codes(ex) == []
    assert ex.regions.selector.tolist() == [f"subgraphs:{pattern}"]


def test_one_of_several_functions_is_marked():
    @torch.compiler.nested_compile_region
    def one(x):
        return x.sin() * 2

    @torch.compiler.nested_compile_region
    def other(x):
        return x.cos() * 3

    ex = rx.explore(lambda x: other(one(other(one(x)))), (torch.ones(3),)).mark("it", subgraphs="one")
    assert len(ex.partitions) == 1
    assert len(ex.mark("it", subgraphs="other").partitions) == 2


@pytest.mark.skipif(not INLINES, reason="this torch inlines none")
def test_inlined_body_is_reported():
    g = nested_sine()
    with pytest.raises(rx.SelectorError, match="inlines a body without options that is called once"):
        rx.explore(lambda x: g(x).exp(), (torch.ones(3),)).mark("g", subgraphs="g")


def test_branches_of_cond_are_not_subgraphs():
    ex = rx.explore(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), (torch.ones(3),))
    assert codes(ex) == []
    with pytest.raises(rx.SelectorError):
        ex.mark("branches", subgraphs="*")


def test_a_region_of_subgraphs_can_be_carved_and_split(unmarked_ex):
    ex = unmarked_ex.mark("blocks", subgraphs="*")
    whole = [part.nodes for part in ex.session.partitions]
    ex.carve("blocks", ops="*sigmoid*")
    assert len(ex.partitions) == 2 * len(whole)
    assert not [part for part in ex.session.partitions if any("sigmoid" in name for name in part.nodes)]
    ex.uncarve("blocks")
    assert [part.nodes for part in ex.session.partitions] == whole
    bodies = [graph for graph in ex.session.graphs if graph.parent and graph.kind == "dynamo"]
    if len(bodies) == 1:  # the calls of the body are nothing to compile
        with pytest.raises(rx.PlanError, match="is one connected piece"):
            ex.split("blocks")
        ex.split("blocks", at="sigmoid")
    else:
        ex.split("blocks")
    assert [region.name for region in ex.plan.regions] == ["blocks.1", "blocks.2"]
    assert "region-empty" not in codes(ex)
