"""Merging, splitting and carving: each edit is a new plan, and the graphs are cut as it says."""

from collections import Counter

import pytest
import torch
from torch import nn

import regional_explorer as rx
from regional_explorer.compiler import program
from regional_explorer.export.to_source import plan_source
from regional_explorer.record.files import dump_plan, load_plan
from regional_explorer.record.plan import CutRule, SelectorKind
from regional_explorer.regions.cut import cut_graph
from regional_explorer.torch_api.graphs import inductor_honours_fallback
from tests.shared import programs
from tests.shared.checks import assert_compiled_is_right, assert_eager_pieces_are_bitwise, cut_by_region, diagnostics_of


def ops(ex, region, graph="0/forward"):
    """Return the ops of each partition of a region by their initials, m for addmm, views left out."""
    nodes = ex.session.graph(graph).by_name
    found = [[nodes[name].op for name in part] for part in cut_by_region(ex, graph)[region]]
    return ["".join("m" if op == "addmm" else op[0] for op in part if op not in ("t", "getitem")) for part in found]


def source_recreates_regions(ex):
    """Return whether the plan's source, run on an empty plan, gives the same members and partitions."""
    members, partitions = ex.session.members, [part.nodes for part in ex.session.partitions]
    source, plan = plan_source(ex.plan), ex.plan
    ex.plan = rx.Plan()
    exec(source, {"ex": ex, "rx": rx})  # noqa: S102 - that is what it is for
    same = (ex.session.members, [part.nodes for part in ex.session.partitions]) == (members, partitions)
    ex.plan = plan
    return same


def merge_norm_with(ex, other):
    return ex.mark("norm", modules="layers.*.norm").mark(other, modules=f"layers.*.{other}").merge("norm", other)


def mark_and_split(ex, at="0/forward:gelu_1"):
    return ex.mark("layer", modules="layers.*").split("layer", at=at)


def mark_and_carve(ex):
    return ex.mark("layer", modules="layers.*").carve("layer", ops="aten.gelu*")


EDITS = {
    "merged": (lambda ex: merge_norm_with(ex, "up"), {"norm": "nm"}),
    "split": (mark_and_split, {"layer.1": "nm", "layer.2": "gma"}),
    "split in the backward": (lambda ex: mark_and_split(ex, "gelu_backward"), {"layer.1": "nm", "layer.2": "gma"}),
    "split again": (
        lambda ex: mark_and_split(ex).split("layer.2", at="linear_1"),
        {"layer.1": "nm", "layer.2.1": "g", "layer.2.2": "ma"},
    ),
    "split and merged": (lambda ex: mark_and_split(ex).merge("layer.1", "layer.2", name="layer"), {"layer": "nmgma"}),
    "carved": (mark_and_carve, {"layer": "nm ma"}),
    "carved and uncarved": (lambda ex: mark_and_carve(ex).uncarve("layer"), {"layer": "nmgma"}),
}


@pytest.mark.parametrize(("edit", "pieces"), EDITS.values(), ids=EDITS)
def test_edited_layers_are_cut_like_their_source(ex, edit, pieces):
    edit(ex)
    forward = {name: 3 * layer.split() for name, layer in pieces.items()}
    assert {region.name: ops(ex, region.name) for region in ex.plan.regions} == forward
    backward = Counter(part.region for part in ex.session.partitions if part.graph == "0/backward")
    assert backward == {name: len(parts) for name, parts in forward.items()}
    assert not [item for item in ex.diagnostics if item.severity != "info"]
    assert source_recreates_regions(ex)
    assert_eager_pieces_are_bitwise(ex)


# ------------------------------------------------------------------------------------------------------------- merging


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        return (q @ k.t()).softmax(-1) @ v


def test_fan_out_stays_in_one_instance():
    model = nn.Sequential(nn.LayerNorm(4), Attention(), nn.LayerNorm(4), Attention())
    ex = rx.explore(model, (torch.randn(2, 4),), grad=False).mark("norm", modules=["0", "2"])
    ex.mark("to", modules=["*.q", "*.k", "*.v"]).merge("norm", "to")
    assert ops(ex, "norm", "0/inference") == ["nmmm"] * 2


def test_blocks_of_the_source_merge_under_one_config():
    ex = rx.explore(programs.neighbours, programs.pair())
    with pytest.raises(rx.PlanError, match=r"different configs .*max_fusion_size': 1.*Give the config to use: config="):
        ex.merge("first", "second")
    with pytest.raises(rx.UnknownConfigKeyError):
        ex.merge("first", "second", config={"max_fusion_sise": 2})
    ex.merge("first", "second", config={"max_fusion_size": 3})
    assert cut_by_region(ex) == {"first": [["sin", "mul", "cos", "add"]]}
    assert dict(ex.plan["first"].config) == {"max_fusion_size": 3}
    assert ex.diagnostics == []


def test_merged_region_takes_the_place_of_the_first(ex):
    ex.mark("a", ops="aten.pow*").mark("b", ops="aten.gelu*").mark("c", ops="aten.mean*")
    ex.disable("c").merge("c", "a")
    assert [(region.name, region.enabled) for region in ex.plan.regions] == [("c", True), ("b", True)]


def test_a_merge_that_joins_nothing_is_reported(ex):
    found = diagnostics_of(merge_norm_with(ex, "down"), "region-split")
    assert len(found) == 2
    assert "modules:layers.*.norm" in found[0].message
    assert found[0].nodes
    ex.mark("norm", modules="layers.*.up").mark("norm", ops="aten.gelu*")
    assert ops(ex, "norm") == ["nmgm"] * 3
    assert not diagnostics_of(ex, "region-split")


# ----------------------------------------------------------------------------------------------------------- splitting


def test_every_instance_becomes_a_region(ex):
    ex.mark("up", modules="layers.*.up").configure("up", {"max_fusion_size": 2}).split("up")
    assert [(r.name, r.selection, dict(r.config)) for r in ex.plan.regions] == [
        (f"up.{index + 1}", f"modules:layers.{index}.up", {"max_fusion_size": 2}) for index in range(3)
    ]
    assert source_recreates_regions(ex)
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
    assert source_recreates_regions(ex)
    with pytest.raises(rx.PlanError, match="is one connected piece: say at which node"):
        ex.split("r.1")


def test_an_unconnected_part_of_a_region_stays_one_piece():
    def marked_call(model, x):
        with rx.region("attention"):
            return model(x)

    x = torch.randn(3, 4)
    by_module = rx.explore(nn.Sequential(Attention()), (x,), grad=False).mark("attention", modules="0")
    by_source = rx.explore(marked_call, (Attention(), x), grad=False)
    for ex in (by_module, by_source):
        ex.split("attention", at="softmax")
        assert [len(parts) for parts in cut_by_region(ex, "0/inference").values()] == [1, 1]


def test_a_split_leaves_instances_without_its_op_whole():
    model = nn.Sequential(
        nn.Sequential(nn.Linear(4, 4), nn.GELU()), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    )
    ex = rx.explore(model, (torch.randn(2, 4),), grad=False).mark("r", modules=["0", "2"]).split("r", at="gelu")
    assert {name: ops(ex, name, "0/inference") for name in (region.name for region in ex.plan.regions)} == {
        "r": ["mt"],
        "r.1": ["m"],
        "r.2": ["g"],
    }


def test_a_region_without_ops_cannot_be_split(ex):
    for at in (None, "gelu"):
        draft = ex.draft()
        draft.plan = programs.plan_of(gone="gone")
        with pytest.raises(rx.PlanError, match="Region 'gone' has no op in this call: there is nothing to split"):
            draft.split("gone", at=at)


def test_a_node_name_in_two_graphs_is_refused():
    ex = rx.explore(programs.break_between_regions, programs.pair(), plan=rx.Plan()).mark(
        "all", lines="break_between_regions:1-9"
    )
    with pytest.raises(rx.SelectorError, match=r"Several nodes .* 0/forward:mul, 1/forward:mul"):
        ex.split("all", at="mul")
    ex.split("all", at="1/forward:mul")
    assert cut_by_region(ex, "1/forward") == {"all.1": [["cos"]], "all.2": [["mul"]]}
    assert cut_by_region(ex) == {"all": [["mul", "add"]]}


# ------------------------------------------------------------------------------------------------------------- carving


def test_an_uncarved_op_is_a_member_again(ex):
    mark_and_carve(ex).uncarve("layer", nodes="gelu_1")
    assert ops(ex, "layer") == ["nm", "ma", "nmgma", "nm", "ma"]
    nodes, members = ex.session.graph("0/forward").by_name, ex.session.members["layer"]["0/forward"]
    assert [(nodes[name].carved, name in members) for name in ("gelu", "gelu_1")] == [(True, False), (False, True)]
    with pytest.raises(rx.SelectorError, match="matches no operation"):
        ex.uncarve("layer", nodes="gelu_1")


def test_a_carve_applies_only_to_its_region(ex):
    ex.mark("one", modules="layers.0").mark("two", modules="layers.1").carve("one", ops="aten.gelu*")
    assert [ops(ex, name) for name in ("one", "two")] == [["nm", "ma"], ["nmgma"]]
    ex.merge("one", "two", name="both")
    carved = [node.name for node in ex.session.graph("0/forward").ops if node.carved]
    assert carved == ["gelu"], "after a merge, the carve of one region does not apply to ops of the other"


def test_upstreams_cut_leaves_carved_ops_in_their_partition(ex):
    ex.mark("layer", modules="layers.1").carve("layer", nodes="gelu_1")
    ex.plan = rx.Plan(ex.plan.regions, CutRule.UPSTREAM)
    if not inductor_honours_fallback():
        assert ops(ex, "layer") == ["nm", "ma"]
        return
    assert ops(ex, "layer") == ["nmgma"]
    piece = next(switch.piece for switch in ex.live.program.switches)
    (carved,) = [node.name for node in piece.gm.graph.nodes if "fallback_to_eager" in (node.meta.get("custom") or {})]
    assert carved == "gelu_1"
    live = next(live for live in ex.live.capture.live if live.kind == "forward")
    assert not any("fallback_to_eager" in (node.meta.get("custom") or {}) for node in live.gm.graph.nodes)


UNREADABLE = rx.Plan((rx.Region("r", (rx.Selector(SelectorKind.LINES, ("garbage",)),)),))
REFUSED = [
    (lambda ex: ex.merge("a", "a"), rx.PlanError, "two regions or more"),
    (lambda ex: ex.merge("a", "x"), rx.UnknownRegionError, "'x'"),
    (lambda ex: ex.merge("a", "b", name="c"), rx.PlanError, "'c' exists already"),
    (lambda ex: ex.merge("a", "b", config=3), rx.RegionalExplorerError, "got "),
    (lambda ex: ex.split("a", at="gello"), rx.SelectorError, r"has no node 'gello'. Did you mean 'gelu"),
    (lambda ex: ex.split("a", at="layer_norm"), rx.PlanError, "begins with 'layer_norm'"),
    (lambda ex: ex.split(3), rx.RegionalExplorerError, "called 3"),
    (lambda ex: ex.carve("a", ops="aten.gello.default"), rx.SelectorError, "of the region. Did you mean 'aten.gelu"),
    (lambda ex: ex.carve("a", ops="aten.pow*"), rx.SelectorError, "matches no operation of the region"),
    (lambda ex: ex.carve("a", modules="layers.*"), rx.PlanError, "every op of region 'a'"),
    (lambda ex: ex.uncarve("a"), rx.PlanError, "carves nothing out"),
    (lambda ex: ex.configure("a", [1]), rx.RegionalExplorerError, "got "),
    (lambda ex: ex.configure("a", {3: 1}), rx.RegionalExplorerError, "got "),
    (lambda ex: setattr(ex, "plan", {}), rx.RegionalExplorerError, "got "),
    (lambda ex: setattr(ex, "plan", UNREADABLE), rx.SelectorError, "garbage"),
    (lambda ex: ex.preview(None), rx.RegionalExplorerError, "got "),
]


@pytest.mark.parametrize(("edit", "error", "message"), REFUSED)
def test_an_edit_that_cannot_be_made_is_refused_and_changes_nothing(ex, edit, error, message):
    ex.mark("a", modules="layers.*").mark("b", ops="aten.pow*").mark("c", ops="aten.mean*")
    before, session = ex.plan, ex.session
    with pytest.raises(error, match=message):
        edit(ex)
    assert ex.plan is before
    assert ex.session == session


# -------------------------------------------------------------------------------------------------- plans and previews


def test_a_plan_file_keeps_parts_merges_and_carves(ex, tmp_path):
    ex.mark("layer", modules="layers.*").split("layer", at="gelu").carve("layer.2", ops="aten.add*")
    ex.mark("loss", ops=["aten.pow*", "aten.mean*"]).mark("x", nodes="mean").merge("loss", "x")
    path = tmp_path / "plan.json"
    path.write_text(dump_plan(ex.plan))
    assert load_plan(path) == ex.plan


def test_many_edits_cost_one_cut(ex, monkeypatch):
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


def test_preview_changes_nothing(ex):
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
def test_edited_regions_compile_under_their_configs_and_match_eager(ex):
    ex.mark("layer", modules="layers.*").split("layer", at="gelu").carve("layer.2", nodes="add")
    ex.mark("loss", ops="aten.pow*").mark("mean", ops="aten.mean*").merge("loss", "mean", config={"max_fusion_size": 5})
    ex.configure("layer.1", {"max_fusion_size": 3})
    assert_eager_pieces_are_bitwise(ex)
    assert_compiled_is_right(ex)
    applied = {part.region: dict(ex.session.artifact_of(part).config) for part in ex.session.partitions}
    assert applied == {"layer.1": {"max_fusion_size": 3}, "layer.2": {}, "loss": {"max_fusion_size": 5}}
