"""``rx.compile`` and the Dynamo backend: they run what ``ex.compiled`` runs, and report differences."""

import copy
import json
import pickle
import random
import re
import shutil
import tomllib
import warnings
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.fx.passes.regional_inductor import regional_inductor

import regional_explorer as rx
from regional_explorer.backend import planned_backend
from regional_explorer.backend.planned_backend import planned_backend_of, regional_explorer
from regional_explorer.compiler.compilation import compile_stale
from regional_explorer.errors import InvalidArgumentError, PlanError
from regional_explorer.record.plan import Direction
from regional_explorer.torch_api.dynamo import ISOLATES
from tests.shared import programs
from tests.shared.checks import BEFORE_2_13, needs_region_ids, partitions_and_configs, train_step
from tests.shared.processes import ROOT, python

pytestmark = [pytest.mark.compiles, pytest.mark.usefixtures("own_recompile_limit")]


PLAN = (
    programs.plan_of(norm="layers.*.norm", up="layers.*.up")
    .configured("norm", {"max_fusion_size": 4})
    .configured("up", {"max_fusion_size": 2}, Direction.BACKWARD)
)


@pytest.fixture
def net():
    return programs.Stack(1)


@pytest.fixture
def x():
    return torch.randn(4, 16)


@pytest.fixture(scope="module")
def explored_plan(tmp_path_factory):
    with rx.explore(programs.Stack(1), (torch.randn(4, 16),), plan=PLAN) as ex:
        return ex.save_plan(tmp_path_factory.mktemp("explored") / "plan.json")


@pytest.fixture
def saved_plan(explored_plan, tmp_path):
    """Return a saved plan that the test may change."""
    return Path(shutil.copy(explored_plan, tmp_path))


def assert_trains_as_eager(module, compiled, *args):
    expected = train_step(module, module, *args)
    for _ in range(3):
        torch.testing.assert_close(train_step(compiled, module, *args), expected)


def call_without_warnings(compiled, *args):
    """Return the result of a call; a warning is an error."""
    with warnings.catch_warnings(action="error", category=UserWarning):
        return compiled(*args)


OF_AN_EXPLORATION = re.compile(r"\bex\.\w|[Uu]pstream")
"""Words that no text has in production."""


def states(compiled):
    return {str(part.state) for part in rx.status(compiled).partitions}


def diagnostics_of(diagnosed, code):
    """Return the diagnostics of this code, of a compiled function or of an exploration."""
    found = diagnosed.diagnostics if isinstance(diagnosed, rx.Exploration) else rx.status(diagnosed).diagnostics
    return [item for item in found if item.code == code]


@pytest.mark.parametrize("partitioner", ["default", "min_cut"])
def test_compile_matches_the_exploration(x, tmp_path, partitioner):
    net = programs.Stack(2)
    ex = rx.explore(net, (x,), plan=PLAN, tracing=rx.Tracing(partitioner))
    ex.compile()
    path = ex.save_plan(tmp_path / "plan.json")
    assert rx.explore(net, (x,), plan=path).plan.tracing.partitioner == partitioner
    compiled = rx.compile(net, path)
    assert_trains_as_eager(net, compiled, x)
    assert partitions_and_configs(rx.status(compiled)) == partitions_and_configs(ex.session)
    assert states(compiled) == {"compiled"}
    torch.testing.assert_close(compiled(x), ex.compiled(x), rtol=0, atol=0)


def smooth(x):
    return F.gelu(x.sin()).tanh()


BY_BACKWARD = {"node": {"nodes": ["0/backward:gelu_backward"]}, "op": {"ops": "aten.gelu_backward"}}


@pytest.mark.parametrize("dynamic", [None, True])  # if sizes are saved, the backward is compiled ahead
@pytest.mark.parametrize("selected", BY_BACKWARD.values(), ids=BY_BACKWARD)
def test_a_region_of_backward_ops_has_their_forward_ops_too(selected, dynamic, tmp_path):
    x = torch.randn(4, 3, requires_grad=True)
    with rx.explore(smooth, (x,), dynamic=dynamic) as ex:
        ex.mark("g", **selected).compile()
        path = ex.save_plan(tmp_path / "plan.json")
        assert [part.graph for part in ex.session.partitions] == ["0/forward", "0/backward"]
    compiled = rx.compile(smooth, path, strict=True, dynamic=dynamic)
    result, expected = call_without_warnings(compiled, x), smooth(x)
    assert [part.graph for part in rx.status(compiled).partitions if part.state == "compiled"] == ["0/forward"]
    assert not rx.status(compiled).diagnostics
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), x), torch.autograd.grad(expected.sum(), x))
    assert partitions_and_configs(rx.status(compiled)) == partitions_and_configs(ex.session)
    assert not rx.status(compiled).diagnostics


class SineWithOtherGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.exp()


def test_a_backward_only_region_is_not_reported_missing_in_the_forward(tmp_path):
    def program(x):
        return SineWithOtherGradient.apply(x.tanh()).exp()

    x = torch.randn(4, requires_grad=True)
    with rx.explore(program, (x,)) as ex:
        ex.mark("r", nodes=["0/backward:exp_1"]).compile()
        path = ex.save_plan(tmp_path / "plan.json")
    compiled = rx.compile(program, path, strict=True)
    result = call_without_warnings(compiled, x)
    assert not rx.status(compiled).diagnostics
    result.sum().backward()
    assert partitions_and_configs(rx.status(compiled)) == partitions_and_configs(ex.session)
    assert not rx.status(compiled).diagnostics


def test_ops_selected_by_their_backward_are_found_in_later_traces():
    selectors = rx.Selector("ops", ("aten.gelu_backward",)), rx.Selector("ops", ("aten.tanh",))
    plan = rx.Plan((rx.Region("g", selectors, joined=True),))
    x, larger = (torch.randn(size, requires_grad=True) for size in (4, 6))
    explored = rx.explore(smooth, (x,), plan=plan)
    with pytest.warns(UserWarning, match="1 new forward partition"):
        explored.compiled(larger)
    torch._dynamo.reset()  # or the first trace is for all sizes
    compiled = rx.compile(smooth, plan)
    compiled(x)
    compiled(larger)
    assert states(compiled) == {"compiled", "stale"}, "no backward has run"
    assert {"0/forward", "1/forward"} <= {part.graph for part in rx.status(compiled).partitions}


def test_an_earlier_backward_selects_no_ops_of_later_graphs(tmp_path):
    def program(x):
        x = x.sin()  # with a cosine in its backward
        torch._dynamo.graph_break()
        return x.cos().exp()

    x = torch.randn(4, requires_grad=True)
    with rx.explore(program, (x,)) as ex:
        ex.mark("c", ops="aten.cos*").compile()
        path = ex.save_plan(tmp_path / "plan.json")
    compiled = rx.compile(program, path, strict=True)
    compiled(x).sum().backward()
    assert partitions_and_configs(rx.status(compiled)) == partitions_and_configs(ex.session)
    assert not rx.status(compiled).diagnostics


def test_first_run_compiles_and_runs_compiled_code(net, x):
    compiled = rx.compile(net, PLAN)
    assert rx.status(compiled).partitions == rx.status(compiled).diagnostics == ()
    assert "no call was traced" in repr(rx.status(compiled))

    def loss_of(x):
        loss = compiled(x)
        compiled_graphs.append({part.graph for part in rx.status(compiled).partitions if part.state == "compiled"})
        return loss

    compiled_graphs = []
    first, again = train_step(loss_of, net, x), train_step(loss_of, net, x)
    assert compiled_graphs == [{"0/forward"}, {"0/forward", "0/backward"}]
    assert states(compiled) == {"compiled"}
    assert "compiled" in repr(rx.status(compiled))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    with torch.no_grad():
        first = compiled(x)
        with torch.profiler.profile() as profile:
            assert torch.equal(compiled(x), first)
    assert not [event for event in profile.events() if event.name == "aten::native_layer_norm"]


def test_status_keeps_keys_of_the_current_cut(net, x):
    compiled = rx.compile(net, PLAN)
    with torch.no_grad():
        compiled(x)
    program = planned_backend_of(compiled).program
    keys = program.keys()
    assert set(keys) == set(program.switches)
    with torch._inductor.config.patch(max_fusion_size=3):
        assert program.keys() == keys
    keys.clear()
    assert set(program.keys()) == set(program.switches)
    program.cut(program.plan)
    assert set(program.keys()) <= set(program.switches)


def test_plans_run_under_inference_autocast_and_inference_mode(net, x):
    compiled = rx.compile(net, PLAN)
    for block in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16)):
        with block:
            expected = net(x)
            for _ in range(3):
                torch.testing.assert_close(compiled(x), expected, rtol=0.02, atol=0.02)
    assert states(compiled) == {"compiled"}
    graphs = Counter(part.graph for part in rx.status(compiled).partitions)
    assert graphs == {"0/inference": 2, "1/inference": 2, "2/forward": 2}, "a trace for each"


@pytest.mark.parametrize("dynamic", [None, True])
def test_dynamic_shapes_train_as_eager_and_stay_compiled(net, saved_plan, dynamic):
    compiled = rx.compile(net, saved_plan, strict=True, dynamic=dynamic)
    for size in (4, 5, 6, 9):
        assert_trains_as_eager(net, compiled, torch.randn(size, 16))
    assert states(compiled) == {"compiled"}
    graphs = {part.graph for part in rx.status(compiled).partitions}
    assert len(graphs) == (2 if dynamic else 4), "one more trace for all sizes"
    assert not diagnostics_of(compiled, "plan-differs"), "dynamic sizes are no other dtypes"


def test_regions_in_several_frames_are_compiled():
    a, b = programs.pair()
    compiled = rx.compile(programs.break_between_regions)
    for _ in range(2):
        torch.testing.assert_close(compiled(a, b), programs.break_between_regions(a, b))
    compiled(a, b).sum().backward()
    status = rx.status(compiled)
    assert [region.name for region in status.plan.regions] == ["before", "after"]
    assert status.graphs == ("0/forward", "0/backward", "1/forward", "1/backward")
    assert {part.region for part in status.partitions} == {"before", "after"}
    assert states(compiled) == {"compiled"}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=r"\[region")  # "after" is not reported as empty in the first frame
        rx.compile(programs.break_between_regions, status.plan, strict=True)(a, b)


def test_modules_are_found_behind_a_graph_break():
    class Broken(programs.Stack):
        def forward(self, x):
            first, second = self.layers
            x = first(x)
            torch._dynamo.graph_break()
            return second(x).sum()

    module = Broken(2)
    compiled = rx.compile(module, programs.plan_of(second="layers.1.up"))
    assert_trains_as_eager(module, compiled, torch.randn(4, 16))
    assert {part.region for part in rx.status(compiled).partitions} == {"second"}


@needs_region_ids
def test_results_equal_upstreams_regional_inductor_on_the_same_source():
    program, (a, b) = programs.neighbours, programs.pair()
    backend = aot_autograd(fw_compiler=regional_inductor, bw_compiler=regional_inductor)
    upstream = torch.compile(program, backend=backend)
    with torch.fx.traceback.preserve_node_meta(enable=False):
        expected = upstream(a, b)
    compiled = rx.compile(program)
    for _ in range(2):
        torch.testing.assert_close(compiled(a, b), expected)
    wanted = torch.autograd.grad(expected.sum(), (a, b))
    for _ in range(2):
        torch.testing.assert_close(torch.autograd.grad(compiled(a, b).sum(), (a, b)), wanted)


@pytest.mark.parametrize("is_random", [False, True])
def test_traced_graphs_that_fail_are_repaired_in_the_first_call(is_random):
    linear, weight = nn.Linear(8, 8), torch.randn(4, 4, requires_grad=True)

    def program(x):
        with rx.region("r"):
            z = torch.softmax(linear(x).sin().exp(), -1)
        z = F.dropout(linear(z), 0.5 if is_random else 1e-9)
        return (z.transpose(1, 2) @ weight).sum()

    def run_with_seed(function):
        torch.manual_seed(0)
        return *torch.autograd.grad(function(x), x), torch.rand(1)

    x, compiled = torch.randn(2, 4, 8, requires_grad=True), rx.compile(program)
    first = run_with_seed(compiled)
    torch.testing.assert_close(run_with_seed(compiled), first, rtol=0, atol=0)
    torch.testing.assert_close(run_with_seed(program), first)
    assert diagnostics_of(compiled, "aot-eager-failed")
    assert states(compiled) == {"compiled"}
    assert [part.id for part in rx.status(compiled).partitions] == ["r.0/0/forward", "r.0/0/backward"]


# ------------------------------------------------------------------------------------------ what differs from the plan


IN_VAIN = {
    "a module that is gone": ('"layers.*.norm"', '"blocks.*"', "region-empty", "Region 'norm'"),
    "a config key of another torch": ('"max_fusion_size": 4', '"max_fusion_siz": 4', "config-unknown", "region 'norm'"),
}


@pytest.mark.parametrize(("there", "here", "code", "message"), IN_VAIN.values(), ids=IN_VAIN)
def test_unmatched_region_is_reported_once(there, here, code, message, net, x, saved_plan):
    saved_plan.write_text(saved_plan.read_text().replace(there, here))
    (found,) = diagnostics_of(rx.explore(net, (x,), plan=saved_plan), code)
    assert found.region == "norm"
    compiled = rx.compile(net, saved_plan)
    with pytest.warns(UserWarning, match=rf"\[{code}\] .*{message}") as caught:
        compiled(x)
    ours = [one for one in caught if str(one.message).startswith("[")]  # torch's first compile has warnings of its own
    assert [Path(one.filename).name for one in ours] == ["test_backend.py"]
    call_without_warnings(compiled, x)
    status = rx.status(compiled)
    assert len(diagnostics_of(compiled, code)) == 1
    assert not diagnostics_of(compiled, "plan-differs")
    assert ("norm  not in any graph" in repr(status)) is (code == "region-empty")
    assert {str(part.config_requested) for part in status.partitions if part.region == "norm"} <= {"{}"}
    strict = rx.compile(net, saved_plan, strict=True)
    for _ in range(2):  # the second call is not traced
        with pytest.raises(PlanError, match=code):
            strict(x)
    assert states(strict) == {"compiled"}


def test_unapplied_config_is_reported_until_changed(net, x, saved_plan):
    saved_plan.write_text(saved_plan.read_text().replace('"max_fusion_size": 4', '"max_fusion_siz": 4'))
    explored = rx.explore(net, (x,), plan=saved_plan)
    explored.unmark("norm").mark("norm", modules="layers.0.norm")
    assert diagnostics_of(explored, "config-unknown"), "no more of it is set than before"
    explored.configure("norm", max_fusion_size=4)
    assert not diagnostics_of(explored, "config-unknown")
    explored.reset("norm")
    assert diagnostics_of(explored, "config-unknown")
    explored.unmark("norm")
    assert not explored.diagnostics


def test_missing_regions_are_reported(x):
    compiled = rx.compile(lambda x: x.sin() * 2)
    with pytest.warns(UserWarning, match=r"\[region-empty\] There is no region"):
        compiled(x)
    assert "no region: everything runs eagerly" in repr(rx.status(compiled))
    with pytest.raises(PlanError, match="There is no region"):
        rx.compile(lambda x: x.cos() * 2, strict=True)(x)


def test_a_plan_of_another_call_or_torch_is_reported(net, x, saved_plan):
    differs = r"\[plan-differs\] Region 'norm' gave 1 partition in the forward.*and 2 here"
    with pytest.warns(UserWarning, match=differs):
        rx.compile(programs.Stack(2), saved_plan)(x)
    explored = rx.explore(programs.Stack(2), (x,), plan=saved_plan)
    assert len(diagnostics_of(explored, "plan-differs")) == 4, "two regions, forward and backward"
    explored.configure("norm", max_fusion_size=8).disable("up").retrace()
    assert len(diagnostics_of(explored, "plan-differs")) == 4, "they are marked as they were"
    explored.unmark("norm")
    assert {found.region for found in diagnostics_of(explored, "plan-differs")} == {"up"}
    explored.unmark("up").mark("up", modules="layers.0.up")
    assert not diagnostics_of(explored, "plan-differs")
    saved_plan.write_text(saved_plan.read_text().replace(f'"torch": "{torch.__version__}"', '"torch": "1.0"'))
    (found,) = diagnostics_of(rx.explore(net, (x,), plan=saved_plan), "plan-differs")
    assert "torch 1.0, here" in found.message
    rx.compile(net, saved_plan, strict=True)(x)
    with pytest.raises(PlanError, match=r"torch 1\.0, here .* With strict='environment' this is an error"):
        rx.compile(net, saved_plan, strict="environment")(x)


def test_failing_region_runs_eagerly_and_is_reported(net, x):
    broken = rx.Plan((rx.Region("norm", PLAN["norm"].selectors, {"max_fusion_size": 7}),))
    compiled = rx.compile(net, broken)
    with torch._inductor.config.patch({"cpp.cxx": ("no-such-compiler",), "force_disable_caches": True}):
        with pytest.warns(UserWarning, match=r"\[no-compiler\]") as caught:
            torch.testing.assert_close(compiled(x), net(x))
        (warned,) = [one for one in caught if str(one.message).startswith("[")]
        assert "[no-compiler]" in str(warned.message)
        assert Path(warned.filename).name == "programs.py"
        assert {str(part.state) for part in rx.status(compiled).partitions if "forward" in part.graph} == {"failed"}
        with pytest.raises(PlanError, match="no-compiler"):
            rx.compile(net, broken, strict=True)(x)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"plan": 3}, InvalidArgumentError, "plan=3"),
        ({"strict": "yes"}, InvalidArgumentError, "strict"),
        ({"strict": "machine"}, InvalidArgumentError, "strict='machine': give True, False or 'environment'"),
        ({"ranges": "all"}, InvalidArgumentError, "ranges"),
        ({"plan": "no-such-plan.json"}, PlanError, "Cannot read"),
    ],
)
def test_wrong_options_are_refused(net, options, error, message):
    with pytest.raises(error, match=message):
        rx.compile(net, **{"plan": PLAN, **options})


def test_invalid_plan_file_is_refused(net, x, tmp_path):
    path = tmp_path / "session.json"
    rx.explore(net, (x,)).save(path)
    with pytest.raises(PlanError, match="is not a saved plan") as caught:
        rx.compile(net, path)
    assert not OF_AN_EXPLORATION.search(str(caught.value))


# ---------------------------------------------------------------------------------------------------- copies and names


def test_copies_and_pickles_as_torch_compile_does(net, x, tmp_path):
    compiled = rx.compile(net, PLAN, artifacts=tmp_path / "artifacts")
    compiled(x)
    for again in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):  # noqa: S301 - our own bytes
        assert type(again) is type(torch.compile(net, backend="eager"))
        assert rx.status(again).partitions == ()
        torch.testing.assert_close(again(x), net(x))
        assert {part.region for part in rx.status(again).partitions} == {"norm", "up"}
        assert rx.status(again).plan == PLAN
        assert {artifact.compile.cache for artifact in rx.status(again).artifacts.values()} == {"shipped"}
    of_function = rx.compile(programs.textbook)
    assert copy.deepcopy(of_function) is of_function, "as any function"
    for function in (of_function, torch.compile(programs.textbook)):
        with pytest.raises(pickle.PicklingError):
            pickle.dumps(function)
    with pytest.raises(InvalidArgumentError, match="was not compiled under a plan"):
        rx.status(torch.compile(net))


@pytest.mark.skipif(not ISOLATES, reason="torch 2.11 counts all compiles of one function")
def test_repeated_compiles_share_no_recompile_limit():
    for _ in range(10):
        compiled = rx.compile(programs.textbook)
        compiled(*programs.pair(grad=False))
        assert rx.status(compiled).graphs == ("0/inference",)


def test_the_backend_by_name_takes_options(net, x, saved_plan, tmp_path):
    torch._dynamo.register_backend(regional_explorer, name="regional_explorer_by_name")
    options = {"plan": str(saved_plan), "artifacts": str(tmp_path / "artifacts")}
    compiled = torch.compile(net, backend="regional_explorer_by_name", options=options)
    assert_trains_as_eager(net, compiled, x)
    assert states(compiled) == {"compiled"}
    assert list((tmp_path / "artifacts").glob("*.artifact"))
    in_place = programs.Stack(1)
    in_place.compile(backend="regional_explorer_by_name", options={"plan": PLAN})
    in_place(x)
    assert {part.region for part in rx.status(in_place).partitions} == {"norm", "up"}
    with pytest.raises(Exception, match="no option 'plans'"):
        torch.compile(programs.textbook, backend="regional_explorer_by_name", options={"plans": 1})(x, x)


def test_the_named_backend_separates_plans_with_equal_region_names(x):
    def first(x):
        with rx.region("r", max_fusion_size=1):
            return x.sin() * 2

    def second(x):
        with rx.region("r", max_fusion_size=8):
            return x.cos() + 1

    for function, size in ((first, 1), (second, 8)):
        compiled = torch.compile(function, backend=regional_explorer)
        compiled(x)
        assert [part.config_requested for part in rx.status(compiled).partitions] == [{"max_fusion_size": size}]


def test_named_backend_reads_the_plan_per_compile(x, saved_plan):
    def compile_and_call(layers):
        compiled = torch.compile(programs.Stack(layers), backend=regional_explorer, options={"plan": str(saved_plan)})
        compiled(x)
        return compiled

    first = compile_and_call(1)
    not_traced = compile_and_call(1)  # Dynamo runs what it has for an equal compile of the same code
    assert rx.status(not_traced).partitions == rx.status(first).partitions
    saved_plan.write_text(saved_plan.read_text().replace('"max_fusion_size": 4', '"max_fusion_size": 6'))
    with pytest.warns(UserWarning, match="plan-differs"):
        second = compile_and_call(2)
    requested = [
        {part.config_requested["max_fusion_size"] for part in rx.status(compiled).partitions if part.region == "norm"}
        for compiled in (first, second)
    ]
    assert requested == [{4}, {6}]


IMPORTS = """
import sys
import regional_explorer as rx
assert "torch" not in sys.modules
import torch
from torch import nn
plan = rx.Plan((rx.Region("act", (rx.Selector("modules", ("1",)),)),))
options = {"backend": "regional_explorer", "options": {"plan": plan}}
for compile in (lambda model: rx.compile(model, plan), lambda model: torch.compile(model, **options)):
    compiled = compile(nn.Sequential(nn.Linear(4, 4), nn.GELU()))
    compiled(torch.randn(2, 4)).sum().backward()
    compiled(torch.randn(2, 4))
    assert {part.state for part in rx.status(compiled).partitions} == {"compiled"}, rx.status(compiled)
    loaded = {name.partition(".")[0] for name in sys.modules}
    assert not loaded & {"pandas", "IPython", "ipywidgets", "anywidget", "graphviz"}, loaded
    ours = {name.split(".")[1] for name in sys.modules if name.startswith("regional_explorer.")}
    assert not ours & {"measure", "export", "insight", "ui", "tables", "picture", "page"}, ours
"""


def test_a_plan_runs_in_a_process_without_pandas_notebook_packages_or_measuring(tmp_path):
    """It runs by ``rx.compile``, and as a backend that torch finds by its name.

    This checkout gives the entry points, as an installation would write them; the environment's may be older.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = tmp_path / "regional_explorer-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: regional-explorer\nVersion: 0.1.0\n")
    groups = project["entry-points"].items()
    text = "\n".join(f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in found.items()) for group, found in groups)
    (info / "entry_points.txt").write_text(text)
    python(IMPORTS, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"})


def test_first_runs_that_raise_are_repeated_by_the_next_call():
    embedding = nn.Embedding(4, 4)

    def looked_up(index):
        with rx.region("r"):
            return embedding(index).sin() * 2

    compiled = rx.compile(looked_up, strict=True)
    with pytest.raises(IndexError):
        compiled(torch.tensor([9]))
    torch.testing.assert_close(compiled(torch.tensor([1])), looked_up(torch.tensor([1])))
    assert "r  1 compiled" in str(rx.status(compiled))


@pytest.mark.parametrize("regions", [{}, {"r": "0"}], ids=["nothing is cut", "a region is cut"])
def test_the_call_after_a_raising_first_call_is_checked(regions):
    looked_up = nn.Sequential(nn.Embedding(4, 4), nn.Tanh())
    compiled = rx.compile(looked_up, programs.plan_of(**regions, gone="no.*"), strict=True)
    for _ in range(2):
        with pytest.raises(IndexError):
            compiled(torch.tensor([9]))
    for _ in range(2):
        with pytest.raises(PlanError, match=r"region-empty.*'gone'"):
            compiled(torch.tensor([1]))


@pytest.mark.skipif(BEFORE_2_13, reason="torch drops the checks of linalg, in plain torch.compile too")
def test_a_first_run_that_raises_advances_the_generator_once():
    def inverse(x):
        noise = torch.rand_like(x)
        with rx.region("r"):
            noisy = x.sin() + noise
        return torch.linalg.inv(x) + noisy

    compiled, numbers = rx.compile(inverse), []
    for function in (inverse, compiled):
        torch.manual_seed(0)
        with pytest.raises(torch.linalg.LinAlgError):
            function(torch.zeros(3, 3))
        numbers.append(torch.rand(1))
    assert torch.equal(*numbers)
    compiled(torch.eye(3))
    assert "r  1 compiled" in str(rx.status(compiled))
    assert not diagnostics_of(compiled, "aot-eager-failed")


@torch.no_grad()
def test_calls_with_other_sizes_do_not_make_the_plan_differ(tmp_path):
    linear = nn.Linear(8, 8)

    def activated(x):
        return F.gelu(linear(x))

    with warnings.catch_warnings(action="ignore"):
        ex = rx.explore(activated, (torch.randn(4, 8),)).mark("r", ops="gelu")
        ex.compile()
        ex.compiled(torch.randn(6, 8))
        assert len(ex.partitions) == 2
    path = ex.save_plan(tmp_path / "plan.json")
    compiled = rx.compile(activated, path)
    for rows in (4, 6):
        compiled(torch.randn(rows, 8))
    assert not diagnostics_of(compiled, "plan-differs")


# ------------------------------------------------------------------------------------------- a run stopped and resumed


class DropoutModel(nn.Module):
    """A model with dropout inside and outside its regions. In bfloat16, layer norms have other dtypes than traced."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.drop, self.last = programs.Layer(), nn.Dropout(0.2), nn.Linear(16, 4)

    def forward(self, x, target):
        x = self.drop(F.gelu(self.layer(x)))
        return F.cross_entropy(self.last(F.dropout(x, 0.1, self.training)), target)


class TrainingLoop:
    """A training loop with random batches of torch's generator; its state can be saved and loaded."""

    def __init__(self, autocast: bool, state=None, **options) -> None:
        torch.manual_seed(0)
        self.model, self.autocast = DropoutModel(), autocast
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.step = rx.compile(self.model, programs.plan_of(layer="layer", drop="drop"), strict=True, **options)
        if state is not None:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            torch.set_rng_state(state["random"])
        self.random = torch.get_rng_state()

    def train(self, steps):
        torch.set_rng_state(self.random)  # other runs have used it meanwhile
        for _ in range(steps):
            x, target = torch.randn(8, 16), torch.randint(0, 4, (8,))
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.autocast):
                loss = self.step(x, target)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.random = torch.get_rng_state()
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "random": self.random}
        return copy.deepcopy(state)


@pytest.mark.parametrize("autocast", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_stopped_and_resumed_run_equals_an_uninterrupted_run(autocast, tmp_path):
    run = TrainingLoop(autocast, artifacts=tmp_path / "artifacts")
    saved = run.train(2)
    torch.save(saved, tmp_path / "saved.pt")
    resumed = TrainingLoop(autocast, torch.load(tmp_path / "saved.pt"), artifacts=tmp_path / "artifacts")
    for _ in range(2):
        torch.testing.assert_close(resumed.train(1), run.train(1), rtol=0, atol=0)
    assert states(resumed.step) == states(run.step) == {"compiled"}


COUNTED: list[int] = []


@torch.library.custom_op("production::counted", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    COUNTED.append(1)
    return x + 1


counted.register_fake(torch.empty_like)


def test_a_library_op_runs_once_in_the_first_call():
    def program(x):
        with rx.region("r"):
            return counted(x.sin()).cos() * 2

    COUNTED.clear()
    compiled, x = rx.compile(program), torch.randn(4)
    first = compiled(x)
    assert len(COUNTED) == 1
    assert torch.equal(first, compiled(x))
    assert states(compiled) == {"compiled"}


def test_compiling_in_the_first_call_does_not_rewind_global_generators(net, x, monkeypatch):
    numbers = []

    def draw_random_numbers_and_compile(program):
        numbers.append((np.random.rand(), random.random()))  # noqa: NPY002, S311 - the global ones
        compile_stale(program)

    monkeypatch.setattr(planned_backend, "compile_stale", draw_random_numbers_and_compile)
    rx.compile(net, PLAN)(x)
    for one, other in zip(numbers[0], (np.random.rand(), random.random()), strict=True):  # noqa: NPY002, S311
        assert one != other


@torch.library.custom_op("production::refusing", mutates_args=())
def refusing(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("refused")


refusing.register_fake(torch.empty_like)


@pytest.mark.parametrize(("end", "error"), [(lambda x: x[torch.tensor([9])], IndexError), (refusing, RuntimeError)])
def test_a_library_op_runs_once_in_a_raising_first_call(end, error):
    def program(x):
        y = counted(x)
        with rx.region("r"):
            z = y.sin() * 2
        return end(z)

    COUNTED.clear()
    with pytest.raises(error):
        rx.compile(program)(torch.zeros(4))
    assert len(COUNTED) == 1


def test_a_saved_artifact_loads_if_real_dtypes_differ_from_the_traced(tmp_path):
    """The statistics of a bfloat16 layer norm are bfloat16 in the trace but float32 when it runs."""
    net, x = programs.Stack(1).bfloat16(), torch.randn(4, 16, dtype=torch.bfloat16)
    ex = rx.explore(net, (x,), plan=PLAN)
    ex.compile()
    ex.save_artifacts(tmp_path / "artifacts")
    compiled = rx.compile(net, PLAN, artifacts=tmp_path / "artifacts", strict=True)
    compiled(x).backward()
    artifacts = rx.status(compiled).artifacts
    assert {artifact.compile.cache for artifact in artifacts.values()} == {"shipped"}
    assert set(artifacts) == set(ex.partitions["artifact"])


# ---------------------------------------------------------------------------------------- what is said has no ex in it


def test_status_reports_later_compiles_once(net, x):
    compiled = rx.compile(net, PLAN)
    for size in (4, 6):
        compiled(torch.randn(size, 16)).backward()
    status = rx.status(compiled)
    (found,) = diagnostics_of(compiled, "recompiled")
    assert re.search(
        r"as graph 1 \(.+\), since a guard failed: .*size mismatch.* compiled in that call, at "
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d: \d+ new artifacts in \d+\.\d s\.",
        found.message,
    )
    assert not OF_AN_EXPLORATION.search(repr(status))
    assert [one.graph for one in status.compiles] == ["0/forward", "0/backward", "1/forward", "1/backward"]
    assert all(one.seconds > 0 for one in status.compiles)
    assert sum(one.artifacts for one in status.compiles) == len({part.artifact for part in status.partitions})
    assert "compiled in: 0/forward" in repr(status)


def prints(x):
    with rx.region("r"):
        print("a graph break in a marked block makes the whole function run as plain Python")
        return x.sin() * 2


@pytest.mark.parametrize("strict", [False, True])
def test_untraced_first_call_is_reported(x, strict):
    compiled = rx.compile(prints, strict=strict)
    message = "Dynamo traced nothing of the first call"
    if strict:
        for _ in range(2):
            with pytest.raises(PlanError, match=message):
                compiled(x)
    else:
        with pytest.warns(UserWarning, match=message):
            torch.testing.assert_close(compiled(x), prints(x))
        with warnings.catch_warnings(action="error"):
            compiled(x)
    assert message in repr(rx.status(compiled))


@pytest.mark.filterwarnings("error:.*traced nothing")
def test_an_eager_first_call_is_not_reported(net, x):
    compiled = rx.compile(net, strict=True)
    with torch.compiler.set_stance("force_eager"):
        compiled(x)
    rx.explore(lambda x: compiled(x) * 2, (x,))  # runs the call eagerly before it traces it
    assert not diagnostics_of(compiled, "region-empty")


@pytest.mark.parametrize("strict", [False, True])
def test_recompile_limit_is_reported(strict):
    def marked(x):
        with rx.region("r"):
            return x.sin() * 2

    compiled = rx.compile(marked, dynamic=False, strict=strict)
    with torch._dynamo.config.patch(recompile_limit=2):
        compiled(torch.ones(2))
        with pytest.warns(UserWarning, match="runs as plain Python, without any region"):
            compiled(torch.ones(3))
        assert "recompile_limit allows" in repr(rx.status(compiled))


def test_float_input_is_not_reported_as_another_dtype(tmp_path):
    def scaled(x, scale):
        with rx.region("r"):
            return (x * scale).sin()

    x = torch.randn(4)
    plan = rx.explore(scaled, (x, 1.0)).save_plan(tmp_path / "plan.json")
    torch._dynamo.reset()
    compiled = rx.compile(scaled, plan, strict=True)
    for scale in (1.0, 2.0):  # the second trace takes it as a tensor of float64
        torch.testing.assert_close(compiled(x, scale), scaled(x, scale))
    (found,) = rx.status(compiled).diagnostics
    assert found.message.startswith("A later call was traced again, as graph 1 (float32[4]), since a guard failed: ")


def test_a_trace_after_a_dynamo_reset_is_a_later_trace(x):
    def call(x):
        with rx.region("r"):
            return x.sin() * 2

    compiled = rx.compile(call)
    compiled(x)
    torch._dynamo.reset()
    compiled(x)
    (found,) = diagnostics_of(compiled, "recompiled")
    assert "since torch._dynamo.reset() made Dynamo forget the earlier trace" in found.message


class CallCounter(nn.Module):
    """A model that counts its calls, as an ODE's function does: each number is a guard."""

    def __init__(self):
        super().__init__()
        self.linear, self.calls = nn.Linear(4, 4), 0

    def forward(self, x):
        self.calls += 1
        return self.linear(x).tanh()


def flag_guard():
    linears = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
    linears[1].scale = 2

    def layer(linear, x):
        return linear(x) * linear.scale if hasattr(linear, "scale") else linear(x)

    return layer, linears


def count_guard():
    counting = CallCounter()
    return (lambda module, x: module(x)), [counting, counting]


def gradient_guard():
    linear = nn.Linear(4, 4)
    return (lambda module, x: module(x)), [linear, linear]  # the second call's input requires grad


def size_guard():
    linear = nn.Linear(4, 4)
    return (lambda module, x: module(x)[1:]), [linear, linear]


@pytest.mark.parametrize("layers", [flag_guard, count_guard, gradient_guard, size_guard])
def test_function_traced_twice_matches_its_exploration(layers, tmp_path):
    layer, modules = layers()
    step = torch.compiler.disable(lambda x: x, recursive=False)

    def call(x):
        for module in modules:
            x = layer(module, step(x))
        return x.sum()

    ex = rx.explore(call, (torch.randn(8, 4),))
    ex.mark("r", ops="aten.addmm*")
    assert len({part.graph for part in ex.session.partitions if "forward" in part.graph}) == 2
    plan = ex.save_plan(tmp_path / "plan.json")
    compiled = rx.compile(call, plan, strict=True)
    compiled(torch.randn(8, 4)).backward()
    assert not rx.status(compiled).diagnostics


def test_a_later_graph_without_compiles_has_no_cost(x, tmp_path):
    def call(x):
        if state["scale"] is None:  # a guard that fails in the second call
            state["scale"] = 2
        with rx.region("r"):
            return x.sin() * state["scale"]

    state = {}
    for _ in range(2):
        state["scale"] = None
        torch._dynamo.reset()
        compiled = rx.compile(call, artifacts=tmp_path / "artifacts")
        compiled(x)
        compiled(x)
    (found,) = diagnostics_of(compiled, "recompiled")
    assert "compiled in that call" in found.message
    artifacts = {one.graph: one.artifacts for one in rx.status(compiled).compiles}
    assert artifacts == {"0/inference": 1, "1/inference": 0}


# --------------------------------------------------------------------------------------- modes and the environment


def autocast():
    return torch.autocast("cpu", dtype=torch.bfloat16)


def plan_explored_under(block, path):
    with block, rx.explore(programs.Stack(1), (torch.randn(4, 16),), plan=PLAN) as ex:
        return ex.save_plan(path)


UNDER_AUTOCAST = r"under autocast \(cpu: bfloat16"
OTHER_MODES = {
    "autocast": (nullcontext, autocast, f"without autocast, and a call here runs {UNDER_AUTOCAST}"),
    "no autocast": (autocast, nullcontext, rf"{UNDER_AUTOCAST}\), and a call here runs without autocast"),
    "gradients": (torch.no_grad, nullcontext, "without gradients, and a call here has a backward"),
}


@pytest.mark.parametrize(("explored_under", "called_under", "message"), OTHER_MODES.values(), ids=OTHER_MODES)
def test_another_autocast_or_grad_mode_is_reported_once(explored_under, called_under, message, net, x, tmp_path):
    compiled = rx.compile(net, plan_explored_under(explored_under(), tmp_path / "plan.json"))
    with called_under():
        with pytest.warns(UserWarning, match=rf"\[plan-differs\] The plan was explored {message}"):
            compiled(x)
        call_without_warnings(compiled, x)
    assert len(diagnostics_of(compiled, "plan-differs")) == 1
    assert not OF_AN_EXPLORATION.search(repr(rx.status(compiled)))


def test_a_plan_saved_after_closing_is_the_same_file(net, x, tmp_path):
    with rx.explore(net, (x,), plan=PLAN) as ex:
        before = ex.save_plan(tmp_path / "before.json")
    assert ex.save_plan(tmp_path / "after.json").read_text() == before.read_text()


def test_different_dtypes_are_reported(net, x, saved_plan):
    with pytest.warns(UserWarning, match="explored on inputs of float32, and a call here has some of float64"):
        rx.compile(net.double(), saved_plan)(x.double())


def test_strict_calls_under_another_autocast_raise_and_other_calls_run(net, x, saved_plan):
    strict = rx.compile(net, saved_plan, strict=True)
    for _ in range(2):
        torch.testing.assert_close(strict(x), net(x))
        with pytest.raises(PlanError, match="under autocast"), autocast():
            strict(x)


def test_other_sizes_run_after_a_strict_call_under_another_autocast(net, saved_plan):
    strict = rx.compile(net, saved_plan, strict=True)
    with pytest.raises(PlanError, match="under autocast"), autocast():
        strict(torch.randn(4, 16))
    other = torch.randn(6, 16)
    torch.testing.assert_close(strict(other), net(other))


def test_a_call_without_gradients_is_reported_as_info(net, x, saved_plan):
    compiled = rx.compile(net, saved_plan, strict=True)
    with torch.no_grad():
        compiled(x)
    (noted,) = diagnostics_of(compiled, "plan-differs")
    assert (noted.severity, "with gradients, and a call here runs without" in noted.message) == ("info", True)


def test_the_explored_autocast_is_accepted(net, x, tmp_path):
    path = plan_explored_under(autocast(), tmp_path / "autocast.json")
    with autocast():
        rx.compile(net, path, strict="environment")(x)


def test_a_plan_without_recorded_modes_is_accepted_under_autocast(net, x, saved_plan):
    values = json.loads(saved_plan.read_text())
    assert values["explored"].pop("modes") == {"dtypes": ["float32"], "grad": True}
    saved_plan.write_text(json.dumps(values))
    with autocast():
        rx.compile(net, saved_plan, strict=True)(x)


def test_the_profiler_shows_regions_only_with_ranges(net, x):
    def counts(**options):
        compiled = rx.compile(net, PLAN, **options)
        compiled(x).backward()
        with torch.profiler.profile() as profile:
            compiled(x).backward()
        return Counter(event.name for event in profile.events() if event.name.startswith(("norm", "up")))

    assert counts(ranges=True) == {"norm (forward)": 1, "up (forward)": 1, "norm (backward)": 1, "up (backward)": 1}
    assert not counts()


def test_evaluation_on_other_batch_sizes_stays_compiled():
    run, losses = TrainingLoop(autocast=True), []
    for _ in range(2):
        run.train(2)
        run.model.eval()
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            for size in (16, 16, 5):  # the last batch is smaller
                x, target = torch.randn(size, 16), torch.randint(0, 4, (size,))
                losses.append((run.step(x, target), run.model(x, target)))
        run.model.train()
    for found, expected in losses:
        torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)
    status = rx.status(run.step)
    assert states(run.step) == {"compiled"}
    late = {graph.partition("/")[0] for graph in status.graphs} - {"0"}
    assert [found.graph for found in status.diagnostics if found.code == "recompiled"] == [
        f"{index}/dynamo" for index in sorted(late)
    ]
    assert not [found for found in status.diagnostics if found.severity != "info"]
