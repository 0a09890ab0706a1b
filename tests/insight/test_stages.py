"""A region from stage to stage: what each stage changed, and nodes that are followed through all."""

import pytest
import torch
import torch.nn.functional as F

import regional_explorer as rx
from regional_explorer.record.graph import Node, Role
from regional_explorer.record.stages import StageKind, stage_change


def mlp(x, w, b):
    with rx.region("mlp"):
        y = F.linear(x, w, b)
        y = F.gelu(y)
    return y * 2


def explore_mlp(*, grad=False):
    return rx.explore(mlp, (torch.randn(8, 16, requires_grad=grad), torch.randn(32, 16), torch.randn(32)))


@pytest.fixture(scope="module")
def ex():
    """Return an exploration for tests that only read its stages."""
    ex = explore_mlp()
    ex.compile()
    return ex


def op(name, target):
    return Node(name, Role.OP, target)


def test_a_stage_counts_its_changes():
    before = [op("view", "aten.view.default"), op("gelu", "aten.gelu.default"), op("mm", "aten.mm.default")]
    before += [op("add", "aten.add.Tensor"), op("clone", "aten.clone.default")]
    after = [op("mul", "aten.mul.Tensor"), op("erf", "aten.erf.default"), op("addmm", "aten.addmm.default")]
    after += [op("seeds", "prims.inductor_seeds.default")]
    sources = {"mul": ("gelu",), "erf": ("gelu",), "addmm": ("mm", "add")}
    found = stage_change(before, after, sources)
    assert (found.ops_before, found.ops, found.views_before) == (4, 4, 1)
    assert (found.decomposed, found.fused, found.into) == (1, 2, 1)
    assert (found.removed, found.inserted, found.elided, found.replaced) == (1, 1, 1, 0)
    assert "gelu → mul, erf" in str(found)
    assert "mm, add → addmm" in str(found)
    assert "1 of 1 views elided" in str(found)


def test_an_unchanged_stage_is_labelled_unchanged():
    node = op("mul", "aten.mul.Tensor")
    assert str(stage_change([node], [node], {"mul": ("mul",)})) == "1 op → 1: none changed."
    assert str(stage_change([node], [node], {"mul": ("mul",)}, kernels=True)) == "1 op → 1 kernel: one for each."


@pytest.mark.compiles
def test_a_forward_has_its_stages_in_order(ex):
    stages = ex.stages("mlp")
    (part,) = stages
    assert [stage.kind for stage in part.stages] == list(StageKind)
    dynamo, aot, cut, passed, output = part.stages
    assert [node.op for node in dynamo.ops] == ["linear", "gelu"]
    assert {node.op for node in aot.ops} == {"t", "addmm", "gelu"} or {"mm", "add"} <= {node.op for node in aot.ops}
    assert [node.name for node in cut.ops] == [node.name for node in aot.ops]
    assert "erf" in {node.op for node in passed.ops}
    assert passed.change.decomposed == 1
    kernels = [linked.kernel.name.split(".")[-1] for linked in ex.code("mlp").partitions[0].kernels]
    assert [node.op for node in output.ops] == kernels
    assert output.ops[1].inputs == ("kernel_1",), "the second kernel reads what the first wrote"
    assert "gelu →" in str(passed.change)
    assert "C++" in output.note


@pytest.mark.compiles
def test_following_a_node_finds_it_in_earlier_and_later_stages(ex):
    followed = ex.stages("mlp").follow("gelu")
    (part,) = followed
    found = part.followed(followed.nodes)
    assert len(found[StageKind.DYNAMO]) == 1
    assert found[StageKind.PARTITION] == {"gelu"}
    names = {node.name: node.op for node in part.stages[3].ops}
    assert {"erf", "mul"} <= {names[name] for name in found[StageKind.AFTER_PASSES]}
    assert found[StageKind.OUTPUT] == {"kernel_2"}
    erf = next(name for name, target in names.items() if target == "erf")
    assert part.followed([erf])[StageKind.PARTITION] == {"gelu"}
    frame = followed.frame
    assert set(frame[frame.followed].stage) == {str(kind) for kind in StageKind}
    assert frame[frame.node == erf].lines.item().endswith("in mlp")
    shown = followed._repr_mimebundle_()
    assert "Stages of mlp" in shown["text/plain"]
    html = shown["text/html"]
    assert html.count("<svg") == len(StageKind)
    assert "gelu" in html
    assert "<script" not in html
    for names, why in ((("gelo",), "No stage has a node called 'gelo'"), ((), "names of nodes")):
        with pytest.raises(rx.InvalidArgumentError, match=why):
            ex.stages("mlp").follow(*names)


@pytest.mark.compiles
def test_forward_and_backward_have_stages_also_in_a_saved_file(tmp_path):
    ex = explore_mlp(grad=True)
    ex.compile()
    stages = ex.stages("mlp")
    assert [part.partition.graph for part in stages] == ["0/forward", "0/backward"]
    backward = stages.partitions[1]
    assert "gelu" in {node.op for node in backward.stages[0].ops}
    assert "gelu_backward" in {node.op for node in backward.stages[1].ops}
    assert all(stage.ops for stage in backward.stages)
    changes = stages.changes
    assert list(changes.stage[:5]) == [str(kind) for kind in StageKind]
    assert str(rx.load(ex.save(tmp_path / "x.json")).stages("mlp")) == str(stages)


@pytest.mark.compiles
def test_stages_of_cached_code_are_the_same(ex):
    second = explore_mlp()
    second.compile()
    assert set(second.partitions.cache) == {"warm"}
    assert str(ex.stages("mlp")) == str(second.stages("mlp"))


@pytest.mark.slow
@pytest.mark.compiles
def test_triton_code_has_an_output_graph():
    pytest.importorskip("triton")
    ex = explore_mlp()
    (part,) = ex.stages("mlp", target="h100").follow("gelu")
    output = part.stages[-1]
    assert output.title == "Inductor's output, as a graph"
    ops = {node.op for node in output.ops}
    assert "empty_strided" in ops
    assert ops & {"mm", "addmm"}, "the product is a call, with its bias or without"
    (kernel,) = part.followed(["gelu"])[StageKind.OUTPUT]
    assert next(node.target for node in output.ops if node.name == kernel).startswith("triton_poi_fused")
