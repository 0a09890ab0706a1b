"""Merging, splitting and carving: each edit is a new plan, and what it says is what is cut."""

import pytest
import torch
from torch import nn

import regional_explorer as rx
from regional_explorer.compiler import program
from regional_explorer.errors import (
    PlanError,
    RegionalExplorerError,
    SelectorError,
    UnknownConfigKeyError,
    UnknownRegionError,
)
from regional_explorer.export.plan_as_python import plan_source
from regional_explorer.record.json_file import dump_plan, load_plan
from regional_explorer.regions.cut import cut_graph
from regional_explorer.torch_api.graphs import inductor_knows_fallback
from tests.shared import programs
from tests.shared.checks import assert_eager_pieces_are_bitwise, cut_by_region, told


def ops(ex, region, graph="0/forward"):
    """Return the ops of each partition of a region by their short names, views left out."""
    nodes = ex.session.graph(graph).by_name
    found = cut_by_region(ex, graph)[region]
    return [[nodes[name].op for name in part if nodes[name].op not in ("t", "getitem")] for part in found]


def source_gives_the_same(ex):
    """Tell whether the plan's own source makes the same members and partitions of a plan without regions."""
    members, partitions = ex.session.members, [part.nodes for part in ex.session.partitions]
    source, plan = plan_source(ex.plan), ex.plan
    ex.plan = rx.Plan()
    exec(source, {"ex": ex, "rx": rx})  # noqa: S102 - that is what it is for
    same = (ex.session.members, [part.nodes for part in ex.session.partitions]) == (members, partitions)
    ex.plan = plan
    return same


# ------------------------------------------------------------------------------------------------------------- merging


def test_modules_that_follow_each_other_become_one_piece(ex):
    ex.mark("norm", modules="layers.*.norm").mark("up", modules="layers.*.up").merge("norm", "up", name="both")
    assert ops(ex, "both") == [["native_layer_norm", "addmm"]] * 3
    assert len(cut_by_region(ex, "0/backward")["both"]) == 3
    assert ex.diagnostics == []
    assert source_gives_the_same(ex)
    assert_eager_pieces_are_bitwise(ex)


def test_layers_that_feed_each_other_stay_one_instance_each(ex):
    ex.mark("layer", modules="layers.*").split("layer", at="gelu")
    assert ops(ex, "layer.1") == [["native_layer_norm", "addmm"]] * 3
    ex.merge("layer.1", "layer.2", name="layer")
    assert ops(ex, "layer") == [["native_layer_norm", "addmm", "gelu", "addmm", "add"]] * 3


def test_what_fans_out_is_one_instance():
    class Fan(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(4)
            self.q_proj, self.k_proj = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            for _ in range(2):
                x = self.norm(x)
                x = self.q_proj(x) * self.k_proj(x)
            return x

    ex = rx.explore(Fan(), (torch.randn(2, 4),), grad=False).mark("norm", modules="norm").mark("to", modules="*_proj")
    ex.merge("norm", "to")
    assert ops(ex, "norm", "0/inference") == [["native_layer_norm", "addmm", "addmm"]] * 2


def test_blocks_of_the_source_merge_under_one_config():
    ex = rx.explore(programs.neighbours, programs.pair())
    with pytest.raises(PlanError, match=r"different configs .*max_fusion_size': 1.*Say which one counts: config="):
        ex.merge("first", "second")
    with pytest.raises(UnknownConfigKeyError):
        ex.merge("first", "second", config={"max_fusion_sise": 2})
    ex.merge("first", "second", config={"max_fusion_size": 3})
    assert cut_by_region(ex) == {"first": [["sin", "mul", "cos", "add"]]}
    assert dict(ex.plan["first"].config) == {"max_fusion_size": 3}
    assert ex.diagnostics == []


def test_a_merged_region_stands_where_the_first_stood(ex):
    ex.mark("a", ops="aten.pow*").mark("b", ops="aten.gelu*").mark("c", ops="aten.mean*")
    ex.disable("c").merge("c", "a")
    assert [(region.name, region.enabled) for region in ex.plan.regions] == [("c", True), ("b", True)]


def test_a_merge_that_joins_nothing_says_so(ex):
    ex.mark("norm", modules="layers.*.norm").mark("down", modules="layers.*.down").merge("norm", "down")
    found = told(ex, "region-split")
    assert len(found) == 2
    assert "modules:layers.*.norm" in found[0].message
    assert found[0].nodes
    ex.mark("norm", modules="layers.*.up").mark("norm", ops="aten.gelu*")
    assert ops(ex, "norm") == [["native_layer_norm", "addmm", "gelu", "addmm"]] * 3
    assert not told(ex, "region-split")


# ----------------------------------------------------------------------------------------------------------- splitting


def test_every_instance_becomes_a_region(ex):
    ex.mark("up", modules="layers.*.up").configure("up", {"max_fusion_size": 2}).split("up")
    assert [(r.name, r.selection, dict(r.config)) for r in ex.plan.regions] == [
        (f"up.{index + 1}", f"modules:layers.{index}.up", {"max_fusion_size": 2}) for index in range(3)
    ]
    assert source_gives_the_same(ex)
    ex.plan = rx.Plan()
    ex.mark("up.1", ops="aten.pow*").mark("up", modules="layers.*.up").split("up")
    assert [region.name for region in ex.plan.regions] == ["up.1", "up.2", "up.3", "up.4"], "names never clash"


def test_connected_parts_become_regions():
    def apart(x, y):
        with rx.region("r", max_fusion_size=4):
            a = x.sin() + 1
            b = y.cos() * 2
        return a, b

    ex = rx.explore(apart, programs.pair()).split("r")
    assert cut_by_region(ex) == {"r.1": [["sin", "add"]], "r.2": [["cos", "mul"]]}
    assert source_gives_the_same(ex)
    with pytest.raises(PlanError, match="is one connected piece: say at which node"):
        ex.split("r.1")


def test_a_split_cuts_all_equal_instances_at_one_place(ex):
    ex.mark("layer", modules="layers.*").split("layer", at="0/forward:gelu_1")
    assert ops(ex, "layer.1") == [["native_layer_norm", "addmm"]] * 3
    assert ops(ex, "layer.2") == [["gelu", "addmm", "add"]] * 3
    assert ops(ex, "layer.2", "0/backward")[0][-1] == "gelu_backward"
    assert source_gives_the_same(ex)
    assert_eager_pieces_are_bitwise(ex)
    again = ex.draft()
    again.plan = rx.Plan()
    gradient = next(node.name for node in ex.session.graph("0/backward").ops if node.op == "gelu_backward")
    assert again.mark("layer", modules="layers.*").split("layer", at=gradient).plan == ex.plan
    ex.split("layer.2", at="linear_1")
    assert [region.name for region in ex.plan.regions] == ["layer.1", "layer.2.1", "layer.2.2"]
    assert ops(ex, "layer.2.2") == [["addmm", "add"]] * 3


def test_a_part_that_does_not_hang_together_stays_one_piece():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            q, k, v = self.q(x), self.k(x), self.v(x)
            return (q @ k.t()).softmax(-1) @ v

    def in_source(model, x):
        with rx.region("attention"):
            return model(x)

    x = torch.randn(3, 4)
    by_module = rx.explore(nn.Sequential(Attention()), (x,), grad=False).mark("attention", modules="0")
    by_source = rx.explore(in_source, (Attention(), x), grad=False)
    for ex in (by_module, by_source):
        ex.split("attention", at="softmax")
        assert [len(parts) for parts in cut_by_region(ex, "0/inference").values()] == [1, 1]


def test_instances_of_other_ops_stay_whole():
    model = nn.Sequential(
        nn.Sequential(nn.Linear(4, 4), nn.GELU()), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    )
    ex = rx.explore(model, (torch.randn(2, 4),), grad=False).mark("r", modules=["0", "2"]).split("r", at="gelu")
    assert {name: ops(ex, name, "0/inference") for name in (region.name for region in ex.plan.regions)} == {
        "r": [["addmm", "tanh"]],
        "r.1": [["addmm"]],
        "r.2": [["gelu"]],
    }


def test_a_region_without_ops_cannot_be_split(ex):
    for at in (None, "gelu"):
        draft = ex.draft()
        draft.plan = programs.plan_of(gone="gone")
        with pytest.raises(PlanError, match="Region 'gone' has no op in this call: there is nothing to split"):
            draft.split("gone", at=at)


def test_a_name_that_two_graphs_have_is_not_enough():
    ex = rx.explore(programs.with_break, programs.pair(), plan=rx.Plan()).mark("all", lines="with_break:1-9")
    with pytest.raises(SelectorError, match=r"Several nodes .* 0/forward:mul, 1/forward:mul"):
        ex.split("all", at="mul")
    ex.split("all", at="1/forward:mul")
    assert cut_by_region(ex, "1/forward") == {"all.1": [["cos"]], "all.2": [["mul"]]}
    assert cut_by_region(ex) == {"all": [["mul", "add"]]}


# ------------------------------------------------------------------------------------------------------------- carving


def test_carved_ops_run_eagerly_and_come_back(ex):
    ex.mark("layer", modules="layers.*").carve("layer", ops="aten.gelu*")
    assert ops(ex, "layer") == [["native_layer_norm", "addmm"], ["addmm", "add"]] * 3
    gelu = ex.session.graph("0/forward").by_name["gelu"]
    assert gelu.carved
    assert "gelu" not in ex.session.members["layer"]["0/forward"]
    assert not [item for item in ex.diagnostics if item.severity != "info"]
    assert source_gives_the_same(ex)
    assert_eager_pieces_are_bitwise(ex)
    ex.uncarve("layer", nodes="gelu_1")
    assert [len(part) for part in ops(ex, "layer")] == [2, 2, 5, 2, 2]
    with pytest.raises(SelectorError, match="matches no operation"):
        ex.uncarve("layer", nodes="gelu_1")
    ex.uncarve("layer")
    assert [len(part) for part in ops(ex, "layer")] == [5, 5, 5]


def test_a_carve_holds_for_its_region_alone(ex):
    ex.mark("one", modules="layers.0").mark("two", modules="layers.1").carve("one", ops="aten.gelu*")
    assert [len(ops(ex, name)) for name in ("one", "two")] == [2, 1]
    ex.merge("one", "two", name="both")
    carved = [node.name for node in ex.session.graph("0/forward").ops if node.carved]
    assert carved == ["gelu"], "a rule of one region holds for none of the other's ops when merged"


def test_upstreams_cut_leaves_carved_ops_in_their_partition(ex):
    ex.mark("layer", modules="layers.1").carve("layer", nodes="gelu_1")
    ex.plan = rx.Plan(ex.plan.regions, rx.record.plan.Cut.UPSTREAM)
    if not inductor_knows_fallback():
        assert ops(ex, "layer") == [["native_layer_norm", "addmm"], ["addmm", "add"]]
        return
    assert ops(ex, "layer") == [["native_layer_norm", "addmm", "gelu", "addmm", "add"]]
    piece = next(switch.piece for switch in ex.live.program.switches)
    (carved,) = [node.name for node in piece.gm.graph.nodes if "fallback_to_eager" in (node.meta.get("custom") or {})]
    assert carved == "gelu_1"
    live = next(live for live in ex.live.capture.live if live.kind == "forward")
    assert not any("fallback_to_eager" in (node.meta.get("custom") or {}) for node in live.gm.graph.nodes)


REFUSED = [
    (lambda ex: ex.merge("a", "a"), PlanError, "two regions or more"),
    (lambda ex: ex.merge("a", "x"), UnknownRegionError, "'x'"),
    (lambda ex: ex.merge("a", "b", name="c"), PlanError, "'c' exists already"),
    (lambda ex: ex.merge("a", "b", config=3), RegionalExplorerError, "got "),
    (lambda ex: ex.split("a", at="gello"), SelectorError, r"has no node 'gello'. Did you mean 'gelu"),
    (lambda ex: ex.split("a", at="layer_norm"), PlanError, "begins with 'layer_norm'"),
    (lambda ex: ex.split(3), RegionalExplorerError, "called 3"),
    (lambda ex: ex.carve("a", ops="aten.gello.default"), SelectorError, "of the region. Did you mean 'aten.gelu"),
    (lambda ex: ex.carve("a", ops="aten.pow*"), SelectorError, "matches no operation of the region"),
    (lambda ex: ex.carve("a", modules="layers.*"), PlanError, "all of region 'a'"),
    (lambda ex: ex.uncarve("a"), PlanError, "carves nothing out"),
    (lambda ex: ex.configure("a", [1]), RegionalExplorerError, "got "),
    (lambda ex: ex.configure("a", {3: 1}), RegionalExplorerError, "got "),
    (lambda ex: setattr(ex, "plan", {}), RegionalExplorerError, "got "),
    (lambda ex: ex.preview(None), RegionalExplorerError, "got "),
]


@pytest.mark.parametrize(("edit", "error", "says"), REFUSED)
def test_an_edit_that_cannot_be_made_is_refused_and_changes_nothing(ex, edit, error, says):
    ex.mark("a", modules="layers.*").mark("b", ops="aten.pow*").mark("c", ops="aten.mean*")
    before = ex.plan
    with pytest.raises(error, match=says):
        edit(ex)
    assert ex.plan is before


# -------------------------------------------------------------------------------------------------- plans and previews


def test_a_plan_file_keeps_parts_merges_and_carves(ex, tmp_path):
    ex.mark("layer", modules="layers.*").split("layer", at="gelu").carve("layer.2", ops="aten.add*")
    ex.mark("loss", ops=["aten.pow*", "aten.mean*"]).mark("x", nodes="mean").merge("loss", "x")
    path = tmp_path / "plan.json"
    path.write_text(dump_plan(ex.plan))
    assert load_plan(path) == ex.plan


def test_many_edits_in_a_row_cost_one_cut_and_only_of_what_moves_nodes(ex, monkeypatch):
    ex.mark("layer", modules="layers.*")
    made = ex.live.program.switches
    ex.configure("layer", {"max_fusion_size": 8}).disable("layer").enable("layer")
    assert ex.live.program.switches[0] is made[0]
    ex.carve("layer", ops="aten.gelu*")
    assert len(ex.live.program.switches) == 2 * len(made)
    ex.plan = rx.Plan()
    assert ex.partitions.empty
    cut = []
    monkeypatch.setattr(program, "cut_graph", lambda *given: cut.append(given[1]) or cut_graph(*given))
    ex.mark("layer", modules="layers.*").mark("down", modules="layers.*.down")
    ex.carve("layer", ops="aten.gelu*").rename("layer", "rest")
    assert cut == []
    assert set(ex.partitions.region) == {"rest", "down"}
    assert cut == ["0/forward", "0/backward"]


def test_a_plan_that_cannot_be_taken_leaves_all_as_it_was(ex):
    ex.mark("layer", modules="layers.*")
    before = ex.session
    with pytest.raises(rx.SelectorError, match="garbage"):
        ex.plan = rx.Plan((rx.Region("r", (rx.Selector("lines", ("garbage",)),)),))
    assert ex.session == before


def test_a_preview_tells_what_would_be_and_changes_nothing(ex):
    ex.mark("layer", modules="layers.*")
    plan, made = ex.plan, ex.live.program.switches
    drafts = [
        ex.draft().mark("act", ops="aten.gelu*"),
        ex.draft().split("layer", at="gelu"),
        ex.draft().carve("layer", ops="aten.gelu*"),
        ex.draft().unmark("layer"),
    ]
    seen = [ex.preview(draft.plan) for draft in drafts]
    assert ex.plan is plan
    assert ex.live.program.switches[0] is made[0]
    assert seen[0].counts("layer") == {"0/forward": 6, "0/backward": 6}
    for draft, preview in zip(drafts, seen, strict=True):
        ex.plan = draft.plan
        assert [(p.id, p.nodes) for p in preview.partitions] == [(p.id, p.nodes) for p in ex.session.partitions]
        assert list(preview.diagnostics) == ex.diagnostics


@pytest.mark.compiles
def test_edited_regions_compile_under_their_configs_and_compute_the_same(ex):
    ex.mark("layer", modules="layers.*").split("layer", at="gelu").carve("layer.2", nodes="add")
    ex.mark("loss", ops="aten.pow*").mark("mean", ops="aten.mean*").merge("loss", "mean", config={"max_fusion_size": 5})
    ex.configure("layer.1", {"max_fusion_size": 3})
    assert_eager_pieces_are_bitwise(ex)
    ex.compile()
    applied = {part.region: dict(ex.session.artifact_of(part).config) for part in ex.session.partitions}
    assert applied == {"layer.1": {"max_fusion_size": 3}, "layer.2": {}, "loss": {"max_fusion_size": 5}}
    assert {str(part.state) for part in ex.session.partitions} == {"compiled"}
    whole = [tensor.detach() for tensor in gradients(ex, on=False)]
    torch.testing.assert_close(gradients(ex, on=True), whole)


def gradients(ex, *, on):
    ex.live.program.select_regional(on=on)
    outputs = ex.live.call.forward(ex.live.capture.run)
    return [value for value in ex.live.call.backward(outputs) if value is not None]
