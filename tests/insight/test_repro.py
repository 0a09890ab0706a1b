"""``ex.repro``: a script that needs torch alone, and does what the partition does."""

import ast
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regional_explorer as rx
from regional_explorer.errors import ReproError, UnknownRegionError
from regional_explorer.record.plan import AS_TORCH_COMPILE
from tests.shared import programs
from tests.shared.checks import only
from tests.shared.processes import python

pytestmark = pytest.mark.compiles

LIBRARY = torch.library.Library("repro_test", "FRAGMENT")
LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
LIBRARY.impl("twice", torch.empty_like, "Meta")


ALL = """
import runpy, sys, traceback
for path in sys.argv[1:]:
    try:
        runpy.run_path(path, run_name="__main__")
    except Exception:
        traceback.print_exc(file=sys.stdout)
    print("=====")
"""


def outputs_of(scripts, folder):
    """Run scripts in a process that does not find this project; return what each wrote, and what it raised."""
    paths = [folder / f"repro_{number}.py" for number in range(len(scripts))]
    for path, script in zip(paths, scripts, strict=True):
        path.write_text(script)
    done = python(ALL, *paths, cwd=folder, env={"PYTHONPATH": None})
    return done.out.split("=====")[:-1]


def assert_right(output):
    assert "Traceback" not in output, output
    distances = [float(found) for found in re.findall(r"output \d+: (\S+) apart", output)]
    assert distances
    assert max(distances) < 1e-4
    assert re.search(r"op by op [\d.]+ us, compiled [\d.]+ us", output)


def imported_packages(script):
    names = {node.module for node in ast.walk(ast.parse(script)) if isinstance(node, ast.ImportFrom)}
    names |= {
        alias.name for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Import) for alias in node.names
    }
    return {name.partition(".")[0] for name in names}


TABLE = torch.arange(6.0).reshape(2, 3)


def computed(x, flag):
    with rx.region("r", **{"cpp.min_chunk_size": 8}):
        y = torch.cond(flag.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
        y = y * torch.tensor([1.5, float("inf")])[0] + torch.cat([x, x], 1)[:, : x.shape[1]]
    return y * TABLE.sum()


def chunked(x):
    q, k, v = x.sin().chunk(3, -1)
    with rx.region("r"):
        return (q * k + v).relu()


def shifted(x, number):
    with rx.region("r"):
        return x.sin() * number + max(number, 2)


def transposed(x, w):
    return (x @ w.t() + TABLE[0]).softmax(-1).sum()


def does_not_compile(x):
    with rx.region("r", fx_wrapper=True):
        return x.sin() + 1


@pytest.fixture(scope="module")
def layers():
    ex = rx.explore(programs.Stack(2), (torch.randn(4, 16),)).mark("layer", modules="layers.*")
    return ex.configure("layer", {"max_fusion_size": 4})


@pytest.fixture(scope="module")
def scripts(layers):
    torch._dynamo.mark_dynamic(x := torch.randn(5, 3), 0)
    args = torch.randn(4, 8, requires_grad=True), torch.randn(3, 8, requires_grad=True)
    as_torch_compile = rx.explore(transposed, args, plan=rx.Plan(tracing=AS_TORCH_COMPILE)).mark("r", ops="*")
    backward = next(part.id for part in as_torch_compile.session.partitions if "backward" in part.graph)
    alone = rx.explore(transposed, args, decompositions=True).mark("r", ops="*")
    return {
        "a module": layers.repro("layer"),
        "dynamic sizes, constants, bodies": rx.explore(computed, (x, torch.ones(2))).repro("r"),
        "a dynamic number": rx.explore(shifted, (torch.randn(4, 4), -3), dynamic=True).repro("r"),
        "inputs that share a storage": rx.explore(chunked, (torch.randn(4, 12),)).repro("r"),
        "as torch.compile": as_torch_compile.repro("r", partition=backward),
        "decomposed alone": alone.repro("r"),
        "a failure": rx.explore(does_not_compile, (torch.randn(4, 4),)).repro("r"),
    }


@pytest.fixture(scope="module")
def outputs(scripts, tmp_path_factory):
    return dict(zip(scripts, outputs_of(scripts.values(), tmp_path_factory.mktemp("repro")), strict=True))


@pytest.mark.parametrize(
    "name",
    [
        *("a module", "dynamic sizes, constants, bodies", "a dynamic number", "inputs that share a storage"),
        *("as torch.compile", "decomposed alone"),
    ],
)
def test_a_script_runs_with_torch_alone(scripts, outputs, name):
    assert imported_packages(scripts[name]) <= {"torch", "time", "math", "operator"}
    assert_right(outputs[name])


def test_scripts_have_the_config_settings_and_name_of_their_partition(layers, scripts):
    script = scripts["a module"]
    assert imported_packages(script) == {"torch", "time", "math", "operator"}
    assert "'max_fusion_size': 4" in script
    assert f"torch.set_num_threads({torch.get_num_threads()})" in script
    backward = next(part.id for part in layers.session.partitions if "backward" in part.graph)
    with torch._inductor.config.patch({"epilogue_fusion": False}):
        other = layers.repro("layer", partition=backward)
    assert f"Partition {backward} of region 'layer'" in other
    assert "'epilogue_fusion': False" in other
    assert "epilogue_fusion" not in script
    with pytest.raises(ReproError, match=r"has no partition 'nowhere'; there is layer"):
        layers.repro("layer", partition="nowhere")
    with pytest.raises(UnknownRegionError):
        layers.repro("nowhere")


def test_dynamic_sizes_bodies_and_shared_storages_are_written(scripts):
    script = scripts["dynamic sizes, constants, bodies"]
    assert "body_0()" in script
    assert "s0 = size(5, 's0')" in script
    assert "storage_0.as_strided((4, 4), (12, 1), 8)" in scripts["inputs that share a storage"]


def test_a_script_compiles_like_its_partition(scripts):
    assert ["standalone_compile" in scripts[name] for name in ("a module", "as torch.compile")] == [True, False]
    ways = [(name, "joint_graph_passes(gm)" in scripts[name]) for name in ("as torch.compile", "decomposed alone")]
    assert ways == [("as torch.compile", False), ("decomposed alone", True)]
    assert "is_inference=False, is_backward=True" in scripts["as torch.compile"]


def test_the_repro_of_a_failing_region_raises_its_error(outputs):
    ex = rx.explore(does_not_compile, (torch.randn(4, 4),))
    ex.compile()
    found = only(ex, "region-failed")
    error = re.search(r"Inductor raised (\w+)", found.message)
    assert error is not None
    assert "Traceback" in outputs["a failure"]
    assert error[1] in outputs["a failure"]
    assert found.message.splitlines()[-1] in outputs["a failure"]


def test_repro_refuses_custom_ops():
    def custom(x):
        with rx.region("r"):
            return torch.ops.repro_test.twice(x.sin()) + 1

    with pytest.raises(ReproError, match=r"custom operator repro_test\.twice\.default, which a self-contained"):
        rx.explore(custom, (torch.randn(4, 4),)).repro("r")


@pytest.mark.slow
def test_partitions_of_convolutions_embeddings_and_attention_run(tmp_path):
    def attention(words):
        x = F.embedding(words, torch.ones(9, 16)).reshape(2, 4, 4, 4)
        return F.scaled_dot_product_attention(x, x * 2, x, is_causal=True)

    pooled = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
    convolutions = rx.explore(pooled, (torch.randn(2, 3, 12, 12),)).mark("all", ops="*")
    scripts = [convolutions.repro("all", partition=part.id) for part in convolutions.session.partitions]
    attending = rx.explore(attention, (torch.randint(0, 9, (2, 4)),)).mark("all", ops="*")
    for output in outputs_of([*scripts, attending.repro("all")], tmp_path):
        assert_right(output)
