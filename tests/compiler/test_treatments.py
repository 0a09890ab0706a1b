"""The treatment of a region beside its config: passes on its pieces, and the backend that compiles them."""

import json
import re
import runpy
import textwrap

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.testing import assert_close

import regional_explorer as rx
from regional_explorer.command.cli import main
from regional_explorer.compiler.treatment import described, function_of, with_treatment
from regional_explorer.record.changes import plan_differences
from regional_explorer.record.files import load_plan
from regional_explorer.record.plan import INDUCTOR
from regional_explorer.torch_api.backends import registered_backends
from tests.shared import programs, treatments
from tests.shared.checks import codes, only, states
from tests.shared.processes import ROOT, python
from tests.shared.treatments import COUNTING, CountingBackend, aten, counting, negate_twice, replaced, sin_to_cos

pytestmark = [pytest.mark.compiles, pytest.mark.usefixtures("own_recompile_limit")]

X = torch.randn(4, 8)


def two_regions(x):
    with rx.region("a"):
        y = x.sin() * 2
    y = y.exp()
    with rx.region("b"):
        return y.sin() + 1


@pytest.fixture
def ex():
    return rx.explore(two_regions, (X,))


@pytest.fixture
def training():
    return rx.explore(two_regions, (X.clone().requires_grad_(),))


def keys_of(ex, region="a"):
    table = ex.partitions
    return set(table[table.region == region].artifact)


def compiled_with(ex, *passes, region="a"):
    ex.configure(region, passes=list(passes)).compile()
    return ex


def untreated(ex):
    return ex.configure("a", passes=[], backend=rx.DEFAULT)


# ------------------------------------------------------------------------------------------------------------- passes


def test_a_pass_runs_on_the_pieces_of_its_region_alone_and_shows_what_it_did(ex, tmp_path):
    compiled_with(ex, negate_twice)
    (row,) = ex.passes.to_dict("records")
    assert (row["region"], row["pass"], row["direction"], row["problem"]) == ("a", "negate_twice", "forward", "")
    assert (row["ops_before"], row["ops_after"], row["change"]) == (2, 4, "+2 aten.neg")
    assert "neg" not in row["before"]
    assert row["after"].count("torch.ops.aten.neg.default") == 2
    assert "f32[4, 8]" in row["after"], "the metadata of new nodes is computed for the pass"
    assert_close(ex.compiled(X), two_regions(X))
    assert codes(ex) == []
    assert "negate_twice" in ex.text
    assert rx.load(ex.save(tmp_path / "session.json")).passes.equals(ex.passes)


def test_passes_run_in_the_order_given(ex):
    def to_exp(gm):
        replaced(gm, aten.cos.default, aten.exp.default)

    changes = compiled_with(ex, sin_to_cos, to_exp).passes.change
    assert list(changes) == ["−1 aten.sin, +1 aten.cos", "−1 aten.cos, +1 aten.exp"]
    assert list(compiled_with(ex, to_exp, sin_to_cos).passes.change) == ["", "−1 aten.sin, +1 aten.cos"]


@pytest.mark.parametrize(
    ("on", "ran_in"), [("forward", ["forward"]), ("backward", ["backward"]), (None, ["backward", "forward"])]
)
def test_a_pass_is_for_one_direction_or_for_both(training, on, ran_in):
    compiled_with(training, rx.Pass(negate_twice, on=on))
    assert sorted(training.passes.direction) == ran_in


def test_only_pieces_with_another_pass_are_compiled_anew():
    ex = compiled_with(rx.explore(two_regions, (X.clone().requires_grad_(),)))
    compiled = ex.configure("a", passes=[rx.Pass(negate_twice, on="backward")]).compile()
    assert list(compiled.graph) == ["0/backward"]
    assert untreated(ex).compile().empty, "the artifacts without the pass are kept"


def test_a_wrong_pass_gives_wrong_results_with_the_first_tensor(ex):
    ex.configure("a", passes=[sin_to_cos]).benchmark(budget_s=0.1)
    assert "output" in only(ex, "variant-wrong").message
    assert only(ex, "region-numerics").remedy == "Leave out pass sin_to_cos, or ex.disable('a')."


def test_dynamic_sizes_stay_dynamic_under_a_pass():
    ex = rx.explore(two_regions, (X,), dynamic=True).configure("a", passes=[negate_twice])
    ex.compile()
    wider = torch.randn(6, 9)
    assert_close(ex.compiled(wider), two_regions(wider))
    assert set(states(ex).values()) == {"compiled"}


# ------------------------------------------------------------------------------------------------------------ the key


def defined(source, name="fuse", **names):
    """Return a function as a cell defines it."""
    scope = {**names, "torch": torch, "__name__": "__main__"}
    exec(textwrap.dedent(source), scope)  # noqa: S102 - a cell of the test's own
    return scope[name]


CELL = """
def fuse(gm, times=1):
    for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default):
        node.target = torch.ops.aten.cos.default
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("cos", "exp"),
        ("times=1", "times=2"),
        ("fuse(gm", "fuse(gm, other=None"),
    ],
)
def test_an_edited_cell_is_another_pass(before, after):
    first, again, edited = defined(CELL), defined(CELL), defined(CELL.replace(before, after))
    assert described(first).digest == described(again).digest
    assert described(first).digest != described(edited).digest


def test_what_a_pass_uses_is_part_of_it():
    def closing(limit):
        return lambda gm: limit

    helped = "def fuse(gm):\n    return helper(gm)\ndef helper(gm):\n    return LIMIT"
    assert described(closing(1)).digest != described(closing(2)).digest
    assert described(closing({"a", "b"})).digest == described(closing({"b", "a"})).digest
    assert described(closing(torch.ones(2))).digest != described(closing(torch.zeros(2))).digest
    assert described(defined(helped, LIMIT=1)).digest != described(defined(helped, LIMIT=2)).digest
    assert described(defined(helped)).digest != described(defined(helped.replace("LIMIT", "gm"))).digest


def test_functions_that_another_function_has_made_are_told_apart():
    def backend(fw_compiler):
        return described(aot_autograd(fw_compiler=fw_compiler)).digest

    assert backend(counting) == backend(counting)
    assert backend(counting) != backend(CountingBackend)
    names = [name for name in ("eager", "aot_eager", "aot_eager_decomp_partition") if name in registered_backends()]
    digests = {with_treatment(INDUCTOR, None, name).digests[0][1] for name in names}
    assert len(digests) == len(names) == 3


def test_an_edited_pass_is_compiled_anew_and_the_old_one_is_still_known(ex):
    first = keys_of(compiled_with(ex, defined(CELL)))
    assert keys_of(compiled_with(ex, defined(CELL.replace("cos", "exp")))) != first
    assert ex.configure("a", passes=[defined(CELL)]).compile().empty
    assert keys_of(ex) == first


def test_regions_with_different_passes_share_no_artifact():
    def alike(x):
        with rx.region("a"):
            y = x.sin()
        y = y.exp()
        with rx.region("b"):
            return y.sin()

    ex = rx.explore(alike, (X,))
    ex.compile()
    assert keys_of(ex, "a") == keys_of(ex, "b")
    compiled_with(ex, negate_twice)
    assert not keys_of(ex, "a") & keys_of(ex, "b")
    compiled_with(ex, negate_twice, region="b")
    assert keys_of(ex, "a") == keys_of(ex, "b")


@pytest.mark.slow  # another process imports torch
def test_the_same_pass_in_another_process_has_the_same_digest_and_loads_the_artifact(ex, tmp_path):
    compiled_with(ex, negate_twice)
    ex.save_artifacts(tmp_path / "artifacts")
    plan = ex.save_plan(tmp_path / "plan.json")
    program = f"""
import torch
import regional_explorer as rx
from tests.shared.treatments import negate_twice
from tests.compiler.test_treatments import two_regions
from regional_explorer.compiler.treatment import described
from regional_explorer.compiler import artifact

def refuse(*_):
    raise AssertionError("it is compiled again")

artifact.start_compile = refuse
compiled = rx.compile(two_regions, {str(plan)!r}, artifacts={str(tmp_path / "artifacts")!r}, strict=True)
with torch.no_grad():
    compiled(torch.ones(4, 8))
print(described(negate_twice).digest, len(rx.status(compiled).artifacts))
"""
    assert python(program).out.split() == [described(negate_twice).digest, "2"]


# ------------------------------------------------------------------------------------------------------ hostile passes


@torch.library.custom_op("treatments::fakeless", mutates_args=())
def fakeless(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def raises(gm):
    return {}["no"]


def visits_what_it_adds(gm):
    for node in gm.graph.nodes:
        if node.op == "call_function":
            with gm.graph.inserting_after(node):
                gm.graph.call_function(aten.neg.default, (node,))


def erases_what_is_used(gm):
    for node in gm.graph.nodes:
        if node.target is aten.sin.default:
            gm.graph.erase_node(node)


def returns_another_thing(gm):
    return gm.graph


def adds_an_input(gm):
    with gm.graph.inserting_before(next(iter(gm.graph.nodes))):
        gm.graph.placeholder("more")


def drops_a_result(gm):
    gm.graph.output_node().args = ((),)


def returns_no_tuple(gm):
    gm.graph.output_node().args = (gm.graph.output_node().args[0][0],)


def changes_the_shape(gm):
    (result,) = gm.graph.output_node().args[0]
    with gm.graph.inserting_after(result):
        total = gm.graph.call_function(aten.sum.default, (result,))
    gm.graph.output_node().args = ((total,),)


def returns_its_input(gm):
    gm.graph.output_node().args = ((gm.graph.find_nodes(op="placeholder")[0],),)


def uses_too_early(gm):
    first, *_, last = [node for node in gm.graph.nodes if node.op == "call_function"]
    first.args = (last,)


def has_no_fake(gm):
    replaced(gm, aten.sin.default, torch.ops.treatments.fakeless.default)


def takes_wrong_arguments(gm):
    replaced(gm, aten.sin.default, aten.mm.default)


HOSTILE = {
    raises: "it raised KeyError: 'no'",
    visits_what_it_adds: "it added more than 10,000 nodes",
    erases_what_is_used: "it raised RuntimeError: .*op_1",
    returns_another_thing: "it returned Graph instead of a GraphModule",
    adds_an_input: "it changed the inputs from in_0 to more, in_0",
    drops_a_result: "it changed the number of results from 1 to 0",
    returns_no_tuple: "its result is no tuple",
    changes_the_shape: r"it changed result 0 from float32\[4, 8\] on cpu to float32\[\] on cpu",
    returns_its_input: "it changed which results share memory",
    uses_too_early: "it left a graph that is malformed: RuntimeError: .*op_1",
    has_no_fake: r"treatments.fakeless.default \(op_1\): ",
    takes_wrong_arguments: r"aten.mm.default \(op_1\): ",
}


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda function: function.__name__)
def test_a_hostile_pass_ends_in_a_sentence_and_the_region_runs_without_it(ex, hostile):
    compiled_with(ex, negate_twice, hostile)
    found = only(ex, "pass-failed")
    assert re.search(HOSTILE[hostile], found.message), found.message
    assert found.message.startswith(f"Region 'a' is compiled without pass '{hostile.__name__}' (a.0/0/inference): ")
    assert "\n" not in found.message
    assert set(states(ex).values()) == {"compiled"}
    assert_close(ex.compiled(X), two_regions(X))
    first, second = ex.passes.to_dict("records")
    assert (first["problem"], second["ops_after"]) == ("", 4), "the other pass still runs"


def returns_none_unchanged(gm):
    assert all("val" in node.meta for node in gm.graph.nodes if node.op != "output")


def writes_wrong_metadata(gm):
    for node in gm.graph.nodes:
        node.meta = {"val": torch.empty(1, device="meta"), "tensor_meta": "wrong"}


@pytest.mark.parametrize("harmless", [returns_none_unchanged, writes_wrong_metadata])
def test_what_a_pass_writes_into_metadata_or_does_not_return_is_no_fault(ex, harmless):
    compiled_with(ex, harmless)
    assert codes(ex) == []
    assert_close(ex.compiled(X), two_regions(X))


def test_a_pass_cannot_change_the_eager_piece_through_a_body():
    def branching(x, flag):
        with rx.region("a"):
            return torch.cond(flag, lambda x: x.sin(), lambda x: x.cos(), (x,))

    def change_bodies(gm):
        for body in gm.children():
            replaced(body, aten.sin.default, aten.exp.default)

    call = (X, torch.tensor(True))
    ex = compiled_with(rx.explore(branching, call), change_bodies)
    assert not ex.passes.empty
    assert torch.equal(ex.disable("a").compiled(*call), X.sin())


# ----------------------------------------------------------------------------------------------------------- backends


@pytest.fixture
def counted():
    COUNTING.__init__()
    return COUNTING


def test_a_backend_runs_exactly_its_region_in_an_exploration(ex, counted):
    ex.configure("b", backend=counting).compile()
    assert counted.pieces == [["aten.sin.default", "aten.add.Tensor"]]
    before = counted.calls
    assert_close(ex.compiled(X), two_regions(X))
    assert counted.calls == before + 1
    ex.benchmark(budget_s=0.1)
    assert counted.calls > before + 1
    assert set(ex.partitions.numerics) == {"ok"}


def test_forward_and_backward_are_compiled_by_the_backend(training, counted):
    training.configure("a", backend=counting).compile()
    assert len(counted.pieces) == 2
    assert set(training.partitions[training.partitions.region == "a"].graph) == {"0/forward", "0/backward"}


def test_a_backend_runs_exactly_its_region_in_production(ex, counted, tmp_path):
    plan = ex.configure("a", backend=counting).save_plan(tmp_path / "plan.json")
    assert (
        json.loads(plan.read_text())["regions"][0]["treatment"]["backend"]["path"] == "tests.shared.treatments:counting"
    )
    compiled = rx.compile(two_regions, plan, strict=True, artifacts=tmp_path / "artifacts")
    for calls in (1, 2, 3):
        assert_close(compiled(X), two_regions(X))
        assert counted.calls == calls
    assert counted.pieces == [["aten.sin.default", "aten.mul.Tensor"]]
    assert len(list((tmp_path / "artifacts").glob("*.artifact"))) == 1, "what another backend compiles is not kept"


@pytest.mark.parametrize("name", ["eager", "aot_eager", "inductor"])
def test_a_backend_is_given_by_the_name_that_torch_knows(training, name, tmp_path):
    plan = training.configure("a", backend=name).save_plan(tmp_path / "plan.json")
    assert load_plan(plan)["a"].treatment == training.plan["a"].treatment
    training.benchmark(budget_s=0.1)
    assert set(states(training).values()) == {"measured"}
    assert "failed" not in set(training.numerics.verdict)


def test_a_backend_gets_dynamic_sizes_as_fakes():
    def backend(gm, examples):
        assert any(isinstance(value, torch.SymInt) for value in examples)
        return gm

    ex = rx.explore(two_regions, (X,), dynamic=True).configure("a", backend=backend)
    ex.compile()
    wider = torch.randn(6, 9)
    assert_close(ex.compiled(wider), two_regions(wider))
    assert states(ex)["a"] == "compiled"


def backend_that_raises(gm, examples):
    raise ValueError("not today")


def backend_that_returns_nothing(gm, examples):
    return None


def backend_of_one_tensor(gm, examples):
    return lambda *args: gm(*args)[0]


@pytest.mark.parametrize(
    ("backend", "text"),
    [
        (backend_that_raises, "The backend 'backend_that_raises' raised ValueError: not today"),
        (backend_that_returns_nothing, "returned NoneType, which cannot be called"),
        (backend_of_one_tensor, "returned no tuple of 1"),
    ],
)
def test_a_broken_backend_leaves_its_region_eager(ex, backend, text):
    ex.configure("a", backend=backend).compile()
    assert_close(ex.compiled(X), two_regions(X))
    assert text in only(ex, "region-failed").message


def test_the_code_of_a_backend_is_not_shown_as_inductors(ex):
    ex.configure("a", backend="eager").compile()
    assert "The backend 'eager' compiles the region" in str(ex.code("a"))
    with pytest.raises(rx.ReproError, match="the backend 'eager' compiles it"):
        ex.repro("a")


# ------------------------------------------------------------------------------------------- plans, tables, comparison


def test_a_treatment_is_shown_only_where_some_region_has_one(ex):
    assert "treatment" not in ex.regions
    ex.configure("a", passes=[rx.Pass(negate_twice, on="forward")], backend="eager")
    assert list(ex.regions.treatment) == ["pass negate_twice (forward), backend eager", ""]
    assert "negate_twice" in ex.to_source()
    plain = ex.plan.changed("a", treatment=ex.plan["b"].treatment)
    assert plan_differences([plain, ex.plan])[1] == ["a: pass negate_twice (forward)", "a: backend eager"]


def test_parts_of_a_treatment_are_set_and_removed_one_by_one(ex):
    before = ex.plan
    ex.configure("a", passes=[negate_twice]).configure("a", backend="eager").configure("a", max_fusion_size=4)
    assert len(ex.plan["a"].treatment.functions) == 2
    assert ex.plan["a"].same_nodes(before["a"]), "nothing is cut again"
    assert len(ex.configure("a", backend=rx.DEFAULT).plan["a"].treatment.functions) == 1
    assert not ex.configure("a", passes=[]).plan["a"].treatment.functions
    assert ex.configure("a", passes=[negate_twice]).reset("a").plan["a"].treatment.functions, "reset is for the config"
    assert untreated(ex).plan == before
    ex.plan = before.changed("a", treatment=ex.configure("a", backend="eager").plan["a"].treatment)
    with pytest.raises(rx.PlanError, match="different passes or backends"):
        ex.merge("a", "b")


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"passes": negate_twice}, "give a list of functions"),
        ({"passes": ["fuse"]}, "'fuse' is no pass"),
        ({"passes": [rx.Pass(negate_twice, on="sideways")]}, "is no pass"),
        ({"backend": "egaer"}, r"No backend is called 'egaer'. Did you mean 'eager'\?"),
        ({"backend": "regional_explorer"}, "No backend is called 'regional_explorer'"),
        ({"backend": 3}, "backend=3: give a name, or a function"),
    ],
)
def test_what_is_no_pass_or_backend_is_refused(ex, keywords, message):
    before = ex.plan
    with pytest.raises(rx.InvalidArgumentError, match=message):
        ex.configure("a", **keywords)
    assert ex.plan == before


def test_a_plan_file_brings_passes_and_backend_by_name(ex, tmp_path):
    path = ex.configure("a", passes=[negate_twice]).configure("b", backend="eager").save_plan(tmp_path / "plan.json")
    assert rx.explore(two_regions, (X,), plan=path).plan == ex.plan
    saved = json.loads(path.read_text())
    saved["regions"][0]["treatment"]["passes"][0]["digest"] = "another version of the module"
    path.write_text(json.dumps(saved))
    assert rx.explore(two_regions, (X,), plan=path).plan == ex.plan, "what is imported now is what runs"


def test_a_pass_of_a_cell_is_refused_when_the_plan_is_saved(ex, tmp_path):
    ex.configure("a", passes=[defined(CELL)])
    with pytest.raises(rx.PlanError, match="the pass fuse of region 'a': it is defined in a notebook cell"):
        ex.save_plan(tmp_path / "plan.json")
    assert not (tmp_path / "plan.json").exists()
    ex.configure("a", passes=rx.DEFAULT, backend=lambda gm, _: gm)
    with pytest.raises(rx.PlanError, match="the backend <lambda> of region 'a'"):
        ex.save_plan(tmp_path / "plan.json")
    assert rx.load(ex.save(tmp_path / "session.json")).regions.treatment[0] == "backend <lambda>"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("treatments:negate_twice", "treatments:gone"), "treatments:gone, which cannot be imported: AttributeError"),
        (("tests.shared.treatments:", "no_such_module:"), "cannot be imported: ModuleNotFoundError"),
        (('"path": "eager"', '"path": "eagre"'), "No backend is called 'eagre'. Did you mean 'eager'"),
        (
            ('"path": "tests.shared.treatments:negate_twice"', '"path": ""'),
            "in a notebook or script of another process",
        ),
    ],
)
def test_production_and_explorations_refuse_an_unknown_name_before_the_first_call(ex, tmp_path, edit, message):
    path = ex.configure("a", passes=[negate_twice], backend="eager").save_plan(tmp_path / "plan.json")
    text = re.sub(r'"digest": "\w+"', '"digest": "of another process"', path.read_text())
    path.write_text(text.replace(*edit))
    assert edit[1] in path.read_text()
    with pytest.raises(rx.PlanError, match=message):
        rx.compile(two_regions, path)
    with pytest.raises(rx.PlanError, match=message):
        rx.explore(two_regions, (X,), plan=path)


def test_the_command_line_takes_a_plan_with_passes_and_backends(ex, tmp_path, capsys):
    plan = ex.configure("a", passes=[negate_twice]).configure("b", backend="eager").save_plan(tmp_path / "plan.json")
    saved = str(tmp_path / "out.json")
    assert main(["run", __file__, "two_regions(X)", "--plan", str(plan), "--no-bench", "--save", saved]) == 0
    assert "pass negate_twice" in capsys.readouterr().out
    assert rx.load(saved).session.plan == ex.plan


def test_production_reports_a_pass_that_fails(ex):
    plan = ex.configure("a", passes=[raises]).plan
    compiled = rx.compile(two_regions, plan)
    with pytest.warns(UserWarning, match=r"pass-failed.*without pass 'raises'"):
        compiled(X)
    assert "pass-failed" in [finding.code for finding in rx.status(compiled).diagnostics]
    with pytest.raises(rx.PlanError, match="pass-failed"):
        rx.compile(two_regions, plan, strict=True)(X)


def test_the_programs_of_the_guide_do_what_it_says(tmp_path, capsys):
    page = (ROOT / "docs" / "guides" / "treatments.md").read_text(encoding="utf-8")
    _, passes, backends = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    file = tmp_path / "guide.py"
    file.write_text(f"{passes}\nchanges = list(ex.passes.change)\n{backends}".replace("budget_s=5", "budget_s=0.1"))
    names = runpy.run_path(str(file))
    assert names["changes"] == ["−1 aten.sigmoid"]
    assert capsys.readouterr().out.count("aten.sigmoid") == 1
    assert set(names["ex"].numerics.verdict) == {"ok"}


def test_a_function_is_found_again_by_its_record():
    assert function_of(described(treatments.counting)) is treatments.counting
    assert described(nn.Linear(1, 1)).path == ""


def test_passes_run_on_pieces_of_modules():
    ex = rx.explore(programs.Stack(2), (torch.randn(4, 16),)).mark("up", modules="layers.*.up")
    ex.configure("up", passes=[negate_twice]).compile()
    assert set(ex.passes.direction) == {"forward", "backward"}
    assert set(ex.passes.change) == {""}
