"""``ex.repro``: torch's script for what Inductor gets of a partition, which needs torch alone."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.repro import after_aot

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
import os, runpy, sys, traceback
import torch._dynamo.repro.after_aot, torch._inductor.compile_fx
torch.compile(torch.sin)(torch.ones(1))  # what a compile loads and asks the compiler, once for all scripts
for path in sys.argv[1:]:
    sys.argv = [path]
    if os.fork() == 0:  # what a script sets stays there
        try:
            runpy.run_path(path, run_name="__main__")
            print("done")
        except Exception:
            traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        os._exit(0)
    os.wait()
    print("=====", flush=True)
"""


def outputs_of(scripts, folder):
    """Run scripts in a process that does not find this project; return what each wrote, and what it raised."""
    paths = [folder / f"repro_{number}.py" for number in range(len(scripts))]
    for path, script in zip(paths, scripts, strict=True):
        path.write_text(script)
    done = python(ALL, *paths, cwd=folder, env={"PYTHONPATH": None})
    return done.out.split("=====")[:-1]


TABLE = torch.arange(6.0).reshape(2, 3)


def computed(x):
    with rx.region("r"):
        y = x * torch.tensor([1.5, float("inf")])[0] + torch.cat([x, x], 1)[:, : x.shape[1]]
        return torch.where(y > 0, y, float("nan")).softmax(0) * TABLE.sum()


def shifted(x, number):
    with rx.region("r"):
        return x.sin() * number + max(number, 2)


def chunked(x):
    q, k, v = x.sin().chunk(3, -1)
    with rx.region("r"):
        return (q * k + v).relu()


def random(x):
    with rx.region("r"):
        return F.dropout(x) + torch.rand_like(x)


def in_cpp(x):
    with rx.region("r", cpp_wrapper=True):
        return x.sin() + 1


def transposed(x, w):
    return (x @ w.t() + TABLE[0]).softmax(-1).sum()


def does_not_compile(x):
    with rx.region("r", fx_wrapper=True):
        return x.sin() + 1


@pytest.fixture(scope="module")
def layers():
    ex = rx.explore(programs.Stack(2), (torch.randn(4, 16),)).mark("layer", modules="layers.*")
    return ex.configure("layer", {"max_fusion_size": 4})


def backward_of(ex):
    return next(part.id for part in ex.session.partitions if "backward" in part.graph)


DYNAMIC = {"dynamic sizes", "a dynamic number"} if hasattr(after_aot, "_get_compile_args") else set()
"""The scripts with dynamic sizes, which those of torch 2.11 cannot compile."""
RIGHT = ["a module", "a backward", "shared", "random", "as torch.compile", *sorted(DYNAMIC & {"dynamic sizes"})]
ALSO_RIGHT = ["in C++", "decomposed", *sorted(DYNAMIC & {"a dynamic number"})]
"""Scripts with other settings of what those of ``RIGHT`` set too."""
WRONG = """
flat = lambda args: args[0] if isinstance(args[0], list) else args
compile_fx.compile_fx_inner = lambda gm, inputs, **_: lambda *args: [0 * result for result in gm(*flat(args))]
if __name__ =="""


@pytest.fixture(scope="module")
def scripts(layers):
    torch._dynamo.mark_dynamic(x := torch.randn(5, 3), 0)
    args = torch.randn(4, 8, requires_grad=True), torch.randn(3, 8, requires_grad=True)
    as_torch_compile = rx.explore(transposed, args, plan=rx.Plan(tracing=AS_TORCH_COMPILE)).mark("r", ops="*")
    explorations = {
        "shared": rx.explore(chunked, (torch.randn(4, 12),)),
        "random": rx.explore(random, (torch.randn(4, 4),)),
        "in C++": rx.explore(in_cpp, (torch.randn(4, 4),)),
        "decomposed": rx.explore(transposed, args, tracing=rx.Tracing(decompositions=True)).mark("r", ops="*"),
        "a failure": rx.explore(does_not_compile, (torch.randn(4, 4),)),
        "dynamic sizes": rx.explore(computed, (x,)),
        "a dynamic number": rx.explore(shifted, (torch.randn(4, 4), -3), dynamic=True),
    }
    found = {
        "a module": layers.repro("layer"),
        "a backward": layers.repro("layer", partition=backward_of(layers)),
        "as torch.compile": as_torch_compile.repro("r", partition=backward_of(as_torch_compile)),
        **{name: ex.repro("r") for name, ex in explorations.items() if "dynamic" not in name or name in DYNAMIC},
    }
    return {**found, "a wrong result": found["a module"].replace("\nif __name__ ==", WRONG)}


@pytest.mark.slow
def test_scripts_with_other_settings_run_with_torch_alone(scripts, tmp_path):
    outputs = outputs_of([scripts[name] for name in ALSO_RIGHT], tmp_path)
    assert [output.strip() for output in outputs] == ["done"] * len(ALSO_RIGHT)


def test_scripts_run_with_torch_alone(scripts, tmp_path, subtests):
    """One test, as the scripts take long: with several, each process of a run would run them."""
    names = [*RIGHT, "a wrong result", "a failure"]
    outputs = dict(zip(names, outputs_of([scripts[name] for name in names], tmp_path), strict=True))
    for name in RIGHT:
        with subtests.test(name):
            assert outputs[name].strip() == "done"
    with subtests.test("a script raises if compiled and eager results differ"):
        assert "Bad accuracy detected" in outputs["a wrong result"]
        assert "accuracy=False" in scripts["random"]  # the two draw different numbers
    with subtests.test("the script of a failing region raises its error"):
        ex = rx.explore(does_not_compile, (torch.randn(4, 4),))
        ex.compile()
        found = only(ex, "region-failed")
        error = re.search(r"Inductor raised (\w+)", found.message)
        assert error is not None
        assert "Traceback" in outputs["a failure"]
        assert error[1] in outputs["a failure"]
        assert found.message.splitlines()[-1] in outputs["a failure"]


def test_scripts_have_the_config_settings_and_name_of_their_partition(layers, scripts):
    script = scripts["a module"]
    assert "torch._inductor.config.max_fusion_size = 4\n" in script
    assert f"torch.set_num_threads({torch.get_num_threads()})" in script
    assert "CACHE_DIR" not in script
    backward = backward_of(layers)
    with torch._inductor.config.patch({"epilogue_fusion": False}):
        other = layers.repro("layer", partition=backward)
    assert f"# Partition {backward} of region 'layer'" in other
    assert "torch._inductor.config.epilogue_fusion = False\n" in other
    assert "epilogue_fusion = False" not in script
    with pytest.raises(ReproError, match=r"has no partition 'nowhere'; there is layer"):
        layers.repro("layer", partition="nowhere")
    with pytest.raises(UnknownRegionError):
        layers.repro("nowhere")


def test_the_graph_is_what_inductor_gets(scripts):
    forward, backward = scripts["a module"], scripts["as torch.compile"]
    assert "aten.var_mean" in forward
    assert "native_layer_norm" not in forward
    assert ["'is_backward': True" in script for script in (forward, backward)] == [False, True]


def calls_an_operator_of_the_user(x):
    with rx.region("r"):
        return torch.ops.repro_test.twice(x.sin()) + 1


def has_bodies(x):
    with rx.region("r"):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


def computes_with_floats(x):
    with rx.region("r"):
        return x.sin() * int(x.shape[1] * 0.7)


def has_a_size_that_is_no_python(x):
    z = torch.ones(torch.sym_max(x.shape[0], 9), 3)
    with rx.region("r"):
        return z.sin().sum() + x.cos()


def plain(x):
    with rx.region("r"):
        return x.sin() + 1


@pytest.mark.parametrize(
    ("function", "config", "problem"),
    [
        (calls_an_operator_of_the_user, {}, r"operator repro_test\.twice\.default\. Carve it out of the region first"),
        (has_bodies, {}, "it cannot contain the operator cond"),
        (computes_with_floats, {}, "it does not import math_trunc"),
        (has_a_size_that_is_no_python, {}, r"the size Max\(9, s\d+\) has no Python literal"),
        (plain, {"post_grad_custom_post_pass": print}, "config 'post_grad_custom_post_pass' is a builtin_function"),
    ],
)
def test_repro_refuses_what_torchs_script_cannot_contain(function, config, problem):
    dynamic = function in (computes_with_floats, has_a_size_that_is_no_python)
    if dynamic and not DYNAMIC:
        problem = "scripts cannot compile dynamic sizes"
    with torch._inductor.config.patch(config), pytest.raises(ReproError, match=problem):
        rx.explore(function, (torch.randn(6, 4),), dynamic=dynamic).repro("r")


def test_repro_refuses_carved_ops():
    plan = rx.Plan(cut="upstream")  # carved ops stay in its partitions
    ex = rx.explore(programs.Stack(1), (torch.randn(4, 16),), plan=plan).mark("r", modules="layers.*")
    with pytest.raises(ReproError, match=r"it would compile aten\.gelu\.default, which is carved out"):
        ex.carve("r", ops="gelu").repro("r")


@pytest.mark.slow
def test_partitions_of_convolutions_embeddings_and_attention_run(tmp_path):
    def attention(words):
        x = F.embedding(words, torch.ones(9, 16)).reshape(2, 4, 4, 4)
        return F.scaled_dot_product_attention(x, x * 2, x, is_causal=True)

    pooled = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
    convolutions = rx.explore(pooled, (torch.randn(2, 3, 12, 12),)).mark("all", ops="*")
    scripts = [convolutions.repro("all", partition=part.id) for part in convolutions.session.partitions]
    attending = rx.explore(attention, (torch.randint(0, 9, (2, 4)),)).mark("all", ops="*")
    assert [output.strip() for output in outputs_of([*scripts, attending.repro("all")], tmp_path)] == ["done"] * 3
