"""``ex.repro``: a script that needs torch alone, and does what the partition does."""

import ast
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regional_explorer as rx
from regional_explorer.errors import ReproError, UnknownRegionError
from tests.shared import programs
from tests.shared.processes import python

pytestmark = pytest.mark.compiles

LIBRARY = torch.library.Library("repro_test", "FRAGMENT")
LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
LIBRARY.impl("twice", torch.empty_like, "Meta")


def run(script, tmp_path, status=0):
    path = tmp_path / "repro.py"
    path.write_text(script)
    return python(path, cwd=tmp_path, env={"PYTHONPATH": None}, status=status)


def assert_runs(script, tmp_path):
    done = run(script, tmp_path)
    distances = [float(found) for found in re.findall(r"output \d+: (\S+) apart", done.out)]
    assert distances
    assert max(distances) < 1e-4
    assert re.search(r"op by op [\d.]+ us, compiled [\d.]+ us", done.out)


def imported(script):
    names = {node.module for node in ast.walk(ast.parse(script)) if isinstance(node, ast.ImportFrom)}
    names |= {
        alias.name for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Import) for alias in node.names
    }
    return {name.partition(".")[0] for name in names}


def test_a_partition_of_a_module_runs_with_torch_alone(tmp_path):
    ex = rx.explore(programs.Stack(2), (torch.randn(4, 16),)).mark("layer", modules="layers.*")
    ex.configure("layer", {"max_fusion_size": 4})
    script = ex.repro("layer")
    assert imported(script) == {"torch", "time", "math", "operator"}
    assert "'max_fusion_size': 4" in script
    assert_runs(script, tmp_path)
    backward = next(part.id for part in ex.session.partitions if "backward" in part.graph)
    other = ex.repro("layer", partition=backward)
    assert other != script
    assert f"Partition {backward} of region 'layer'" in other


def test_dynamic_sizes_constants_and_bodies_are_written(tmp_path):
    table = torch.arange(6.0).reshape(2, 3)

    def program(x, flag):
        with rx.region("r", **{"cpp.simdlen": 256}):
            y = torch.cond(flag.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
            y = y * torch.tensor([1.5, float("inf")])[0] + torch.cat([x, x], 1)[:, : x.shape[1]]
        return y * table.sum()

    torch._dynamo.mark_dynamic(x := torch.randn(5, 3), 0)
    script = rx.explore(program, (x, torch.ones(2))).repro("r")
    assert "body_0()" in script
    assert "s0 = size(5, 's0')" in script
    assert_runs(script, tmp_path)


def test_a_region_that_fails_fails_the_same_way(tmp_path):
    def program(x):
        with rx.region("r", fx_wrapper=True):
            return x.sin() + 1

    ex = rx.explore(program, (torch.randn(4, 4),))
    ex.compile()
    (found,) = [found for found in ex.diagnostics if found.code == "region-failed"]
    done = run(ex.repro("r"), tmp_path, status=1)
    error = re.search(r"Inductor raised (\w+)", found.message)
    assert error is not None
    assert error[1] in done.err
    assert found.message.splitlines()[-1] in done.err


def test_settings_that_reach_the_code_are_in_the_script():
    ex = rx.explore(programs.textbook, programs.pair())
    script = ex.repro("middle")
    assert f"torch.set_num_threads({torch.get_num_threads()})" in script
    with torch._inductor.config.patch({"max_fusion_size": 5}):
        assert "'max_fusion_size': 5" in ex.repro("middle")


def test_what_cannot_be_written_is_refused_by_name():
    def custom(x):
        with rx.region("r"):
            return torch.ops.repro_test.twice(x.sin()) + 1

    x = torch.randn(4, 4)
    with pytest.raises(ReproError, match=r"operator repro_test\.twice\.default, which lives in a library"):
        rx.explore(custom, (x,)).repro("r")

    ex = rx.explore(programs.textbook, programs.pair())
    with pytest.raises(ReproError, match="has no partition 'nowhere'; there is middle"):
        ex.repro("middle", partition="nowhere")
    with pytest.raises(UnknownRegionError):
        ex.repro("nowhere")
    ex.close()


def test_inputs_that_share_a_storage_share_one_in_the_script(tmp_path):
    def three(x):
        q, k, v = x.sin().chunk(3, -1)
        with rx.region("r"):
            return (q * k + v).relu()

    text = rx.explore(three, (torch.randn(4, 12),)).repro("r")
    assert "storage_0.as_strided((4, 4), (12, 1), 8)" in text
    assert_runs(text, tmp_path)


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x):
        return F.max_pool2d(F.relu(self.norm(self.first(x))), 2).sum()


@pytest.mark.slow
def test_partitions_of_convolutions_embeddings_and_attention_run(tmp_path):
    def attention(words):
        x = F.embedding(words, torch.ones(9, 16)).reshape(2, 4, 4, 4)
        return F.scaled_dot_product_attention(x, x * 2, x, is_causal=True)

    convolutions = rx.explore(Convolutions(), (torch.randn(2, 3, 12, 12),)).mark("all", ops="*")
    for partition in convolutions.session.partitions:
        assert_runs(convolutions.repro("all", partition=partition.id), tmp_path)
    attending = rx.explore(attention, (torch.randint(0, 9, (2, 4)),)).mark("all", ops="*")
    assert_runs(attending.repro("all"), tmp_path)
