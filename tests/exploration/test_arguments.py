"""Every public function and method with odd arguments: it works, or an error of ours says what to give."""

import contextlib
import copy
import inspect
import io
import json
import pickle
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch.utils.flop_counter import FlopCounterMode

import regional_explorer
from regional_explorer.command.cli import EXIT_DONE, EXIT_FAILED, EXIT_MISUSED, main
from regional_explorer.compiler.region_config import catalogue, check_value
from regional_explorer.compiler.run import SAME_THREAD
from regional_explorer.errors import RegionalExplorerError
from regional_explorer.exploration.edits import Edits
from regional_explorer.exploration.results import RegionStages
from regional_explorer.record.action import show_table_action
from regional_explorer.record.files import dump_plan, load_plan
from regional_explorer.record.plan import AS_TORCH_COMPILE, SelectorKind, whole_graph
from regional_explorer.record.tuning import Outcome, SearchStage, Try, Tuning
from tests.shared.checks import BEFORE_2_13
from tests.shared.mutations import PLAN, run_mutations

rx: Any = regional_explorer  # whose arguments are of the wrong type here on purpose

LONGEST = 500
"""The most characters of an error."""


class Unprintable:
    def __repr__(self):
        raise ValueError("no text for this")


class Callback:
    """A callable that takes any arguments."""

    def __call__(self, *args, **kwargs):
        return True


NAN = float("nan")
ODD = [
    None, True, 3, -1, -1.5, NAN, 10**400, "x", "", " ", "yes", "a\0b", "\ud800", b"x",
    [], ["x"], [3], (), {}, {"x": 1}, {3: 4}, {"x"}, Unprintable(), object, torch.ones(2), torch.ones(9, 99),
    rx.DEFAULT, Callback(),
]  # fmt: skip


def step(x, k=2):
    with rx.region("act"):
        y = torch.relu(x).sin()
    return y * k


X = torch.ones(4)


@pytest.fixture(scope="module")
def ex():
    return rx.explore(step, (X,))


def with_found_plan(ex):
    """Return the exploration as if a search had found a plan."""
    found = Try("found", SearchStage.TRACING, Outcome.MEASURED, whole_graph(AS_TORCH_COMPILE))
    ex.live.tuning = Tuning((found,), answer="found")
    return ex


@pytest.fixture(autouse=True)
def working_directory(tmp_path, monkeypatch):
    """Change to an empty directory, because some of the odd values are valid names of files."""
    monkeypatch.chdir(tmp_path)


def draft(ex):
    return ex.draft().mark("other", ops="*mul*").carve("act", ops="*sin*")


def explore_marked(name, config):
    def fn(x):
        with rx.region(name, **config):
            return x.sin()

    return rx.explore(fn, (X,))


def set_plan(ex, plan):
    before = ex.plan
    try:
        ex.plan = plan
    finally:
        ex.plan = before


OPS = {"ops": "*sin*"}
CANCELLED = {"run": rx.Run(cancelled=lambda: True)}
ENTRIES: dict[str, Any] = {
    "explore": (lambda ex, fn, args, **k: rx.explore(fn, args, **k), [step, (X,)],
                {"kwargs": {}, "grad": None, "dynamic": None, "plan": None, "tracing": None}),
    "load": (lambda ex, path: rx.load(path), ["x.json"], {}),
    "compare": (lambda ex, *views: rx.compare(*views), lambda ex: [ex, ex.session], {}),
    "region": (lambda ex, name, **config: explore_marked(name, config), ["r"], {"max_fusion_size": 8}),
    "Run": (lambda ex, **k: rx.Run(**k), [],
            {"cancelled": lambda: True, "progress": lambda _doing, _fraction: None, "threads": SAME_THREAD}),
    "Selector": (lambda ex, *a, **k: rx.Selector(*a, **k), ["ops", ("*",)], {"innermost": False, "only": ()}),
    "Region": (lambda ex, *a, **k: rx.Region(*a, **k), ["a", PLAN.regions[0].selectors, {}],
               {"enabled": True, "joined": False, "carved": (), "backward_config": None}),
    "products_by_onednn": (lambda ex, fn: draft(ex).configure("act", passes=[fn]), [rx.products_by_onednn], {}),
    "Pass": (lambda ex, *a, **k: draft(ex).configure("act", passes=[rx.Pass(*a, **k)]), [len], {"on": "backward"}),
    "Plan": (lambda ex, *a, **k: rx.Plan(*a, **k), [(), "instances"], {"tracing": rx.Tracing()}),
    "Tracing": (lambda ex, *a, **k: rx.Tracing(*a, **k), ["min_cut"],
                {"joint_passes": True, "decompositions": False, "frozen": False}),
    "Plan[]": (lambda ex, name: PLAN[name], ["a"], {}),
    "Plan.added": (lambda ex, *a: PLAN.added(*a), [PLAN.regions[0]], {}),
    "Plan.removed": (lambda ex, *a: PLAN.removed(*a), ["a"], {}),
    "Plan.replaced": (lambda ex, *a: PLAN.replaced(*a), [["a"], PLAN.regions[0]], {}),
    "Plan.changed": (lambda ex, *a, **k: PLAN.changed(*a, **k), ["a"], {"name": "c", "config": {}, "enabled": True}),
    "SavedSession": (lambda ex, session: rx.SavedSession(session), lambda ex: [ex.session], {}),
    "Session.graph": (lambda ex, graph_id: ex.session.graph(graph_id), ["0/inference"], {}),
    "plan=": (set_plan, lambda ex: [ex.plan], {}),
    "preview": (lambda ex, plan: ex.preview(plan), lambda ex: [ex.plan], {}),
    "mark": (lambda ex, *a, **k: draft(ex).mark(*a, **k), ["new"],
             {"modules": None, "lines": None, "ops": "*sin*", "nodes": None, "innermost": False, "only": None}),
    "mark each": (lambda ex, **k: draft(ex).mark("new", **k), [], {"ops": "*sin*", "each": False}),
    "mark modules": (lambda ex, **k: draft(ex).mark("new", **k), [], {"modules": "*"}),
    "mark lines": (lambda ex, **k: draft(ex).mark("new", **k), [], {"lines": "step:3"}),
    "mark subgraphs": (lambda ex, **k: draft(ex).mark("new", **k), [], {"subgraphs": "*"}),
    "mark nodes": (lambda ex, **k: draft(ex).mark("new", **k), [], {"nodes": "sin"}),
    "unmark": (lambda ex, *a: draft(ex).unmark(*a), ["act"], {}),
    "rename": (lambda ex, *a: draft(ex).rename(*a), ["act", "b"], {}),
    "merge": (lambda ex, *a, **k: draft(ex).merge(*a, **k), ["act", "other"], {"name": "b", "config": {}}),
    "split": (lambda ex, *a, **k: draft(ex).split(*a, **k), ["act"], {"at": "sin"}),
    "carve": (lambda ex, *a, **k: draft(ex).carve(*a, **k), ["act"], OPS),
    "uncarve": (lambda ex, *a, **k: draft(ex).uncarve(*a, **k), ["act"], OPS),
    "disable": (lambda ex, *a: draft(ex).disable(*a), ["act"], {}),
    "enable": (lambda ex, *a: draft(ex).enable(*a), ["act"], {}),
    "reset": (lambda ex, *a, **k: draft(ex).reset(*a, **k), ["act"], {"direction": None}),
    "configure": (lambda ex, *a, **k: draft(ex).configure(*a, **k), ["act", {"max_fusion_size": 4}],
                  {"direction": "forward"}),
    "configure value": (lambda ex, value: draft(ex).configure("act", {"max_fusion_size": value}), [4], {}),
    "configure text": (lambda ex, v: draft(ex).configure("act", {"max_autotune_gemm_backends": v}), ["ATEN"], {}),
    "configure key": (lambda ex, key: draft(ex).configure("act", {key: 1} if isinstance(key, Hashable) else [key]),
                      ["max_fusion_size"], {}),
    "retrace": (lambda ex, **k: ex.retrace(**k), [], {"dynamic": None, "tracing": None, **CANCELLED}),
    "compile": (lambda ex, **k: ex.compile(**k), [], CANCELLED),
    "benchmark": (lambda ex, *a, **k: ex.benchmark(*a, **k), [("eager",), 0.01], {"regions": False, **CANCELLED}),
    "code": (lambda ex, name, **k: ex.code(name, **k), ["act"], CANCELLED),
    "code config": (lambda ex, **k: ex.code("act", **k), [], {"config": {"max_fusion_size": 4}, **CANCELLED}),
    "code target": (lambda ex, target: ex.code("act", target=target, **CANCELLED), ["h100"], {}),
    "stages": (lambda ex, *a, **k: ex.stages(*a, **k), ["act"], {"config": {}, "target": None, **CANCELLED}),
    "suggest": (lambda ex: ex.suggest(), [], {}),
    "apply": (lambda ex, *a: ex.apply(*a), lambda ex: [show_table_action("partitions")], {}),
    "tune": (lambda ex, *a, **k: ex.tune(*a, **k), [0.01],
             {"numerics": "close", "max_memory": None, "max_compile_s": None, "keys": None, "ledger": None,
              "apply": False, **CANCELLED}),
    "waterfall": (lambda ex, *a, **k: with_found_plan(ex).waterfall(*a, **k), [0.01], CANCELLED),
    "floor": (lambda ex, *a, **k: ex.floor(*a, **k), [0.01], CANCELLED),
    "profile": (lambda ex, *a, **k: ex.profile(*a, **k), [0.01], CANCELLED),
    "kernel_times": (lambda ex, *a, **k: ex.kernel_times(*a, **k), ["act", 0.01], CANCELLED),
    "diagnose": (lambda ex, *a, **k: ex.diagnose(*a, **k), ["act", 0.01], CANCELLED),
    "status": (lambda ex, compiled: rx.status(compiled), lambda ex: [rx.compile(step, plan=ex.plan)], {}),
    "graph": (lambda ex, graph_id: ex.graph(graph_id), [None], {}),
    "save": (lambda ex, path: ex.save(path), ["x.csv"], {}),
    "save_plan": (lambda ex, path: ex.save_plan(path), ["plan.json"], {}),
    "repro": (lambda ex, *a, **k: ex.repro(*a, **k), ["act"], {"partition": None}),
    "to_source": (lambda ex, **k: ex.to_source(**k), [], {"apply": False, **CANCELLED}),
    "save_artifacts": (lambda ex, path: ex.save_artifacts(path), ["artifacts"], {}),
    "show": (lambda ex, **k: ex.show(**k), [], {"widget": False}),
}  # fmt: skip
"""A call of each function, with good positional and good keyword arguments."""


def refusal(ex, entry, place, value):
    """Return our error if ``value`` replaces the good argument at ``place``; empty if it is accepted."""
    call, args, kwargs = ENTRIES[entry]
    given, named = list(args(ex) if callable(args) else args), dict(kwargs)
    (given if isinstance(place, int) else named)[place] = value
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            call(ex, *given, **named)
    except RegionalExplorerError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("entry", ENTRIES)
def test_odd_arguments_are_accepted_or_refused_with_advice(ex, entry):
    _, args, kwargs = ENTRIES[entry]
    for place in (*range(len(args) if isinstance(args, list) else args.__code__.co_argcount), *kwargs):
        refusals = list(filter(None, (refusal(ex, entry, place, value) for value in ODD)))
        assert len(refusals) >= 5, place
        assert all(20 < len(text) < LONGEST for text in refusals)


NOTHING_FITS = ("load", "mark modules", "mark subgraphs")


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry not in NOTHING_FITS])
def test_good_arguments_are_accepted(ex, entry):
    call, args, kwargs = ENTRIES[entry]
    with contextlib.redirect_stdout(io.StringIO()):
        call(ex, *(args(ex) if callable(args) else args), **kwargs)


def test_every_public_method_is_tested():
    public = {name for name in vars(Edits) if not name.startswith("_")}
    public |= {name for name, value in inspect.getmembers(rx.Exploration, callable) if not name.startswith("_")}
    public |= {name for name in rx.__all__ if callable(getattr(rx, name)) and not name.endswith("Error")}
    without_arguments = {"draft", "close", "last"}
    made_by_others = {"Exploration", "Session", "Status"}
    assert public - without_arguments - made_by_others <= {entry.split()[0] for entry in ENTRIES}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ex: rx.explore(3), r"fn=3 is not callable: give the function"),
        (lambda ex: rx.explore(step, X), "args=tensor.*give a tuple"),
        (lambda ex: rx.explore(step, (X,), [1]), r"kwargs=\[1\]: give a dict"),
        (lambda ex: rx.explore(step, (X,), {3: 4}), "names of keyword arguments"),
        (lambda ex: rx.Tracing("x"), "partitioner='x': give 'default' or 'min_cut'"),
        (lambda ex: rx.Tracing("mincut"), "Did you mean 'min_cut'"),
        (lambda ex: rx.explore(step, (X,), grad="yes"), "grad='yes': give True, False or None"),
        (lambda ex: rx.explore(step, (X,), dynamic="yes"), "dynamic='yes': give True, False or None"),
        (lambda ex: rx.explore(step, (X,), plan=[]), r"A plan is an rx.Plan, .* got \[\]"),
        (lambda ex: ex.benchmark(variants="eager"), r"variants='eager': give a tuple of names"),
        (lambda ex: ex.benchmark(variants=("eagr",)), "Did you mean 'eager'"),
        *(
            (lambda ex, s=s: ex.benchmark(budget_s=s), "give a positive, finite number")
            for s in (0, -1, NAN, "a", 10**400)
        ),
        (lambda ex: ex.compile(run=rx.Run(cancelled=3)), "cancelled=3 is not callable"),
        (lambda ex: ex.save_plan("nowhere/plan.json"), "there is no directory .*nowhere. Make it first"),
        (lambda ex: ex.save("nowhere/x.json"), "there is no directory .*nowhere. Make it first"),
        (lambda ex: ex.graph("0/forwrd"), "No graph is called '0/forwrd'.* Graphs: 0/dynamo, 0/inference"),
        (copy.deepcopy, r"cannot be copied or pickled. .*rx\.explore\(fn, args, plan=ex\.plan\)"),
        (copy.copy, "cannot be copied or pickled"),
        (pickle.dumps, "cannot be copied or pickled"),
        (lambda ex: rx.Plan(ex.plan.regions * 2), "Two regions are called 'act'"),
        (lambda ex: rx.Plan().changed("act"), "There is no region yet"),
        (lambda ex: ex.plan.changed("act", colour="red"), "A region has no 'colour'"),
        (lambda ex: rx.compare(ex, 3), "3 cannot be compared"),
        (lambda ex: ex.configure("act", None), r"A config is a dict, such as .* got None"),
        (lambda ex: ex.configure("act", config=None, max_fusion_size=3), r"A config is a dict, .* got None"),
        (lambda ex: replace(ex.session, graphs=()).graph("0"), r"No graph is called '0'. There is no graph\.$"),
        (lambda ex: RegionStages("act", ex.session, ()).follow("sin"), r"No stage .* 'sin'. There is no node\.$"),
        (lambda ex: ex.draft().mark("r", ops="sinn"), "Did you mean 'sin'"),
        (lambda ex: explore_marked("", {}), "A region's name must be a non-blank string"),
    ],
)
def test_the_error_says_what_to_do(ex, call, message):
    with pytest.raises(RegionalExplorerError, match=message):
        call(ex)


def test_a_record_can_be_copied(ex):
    assert copy.deepcopy(ex.session) == ex.session
    assert pickle.loads(pickle.dumps(ex.plan)) == ex.plan  # noqa: S301 - our own


# ------------------------------------------------------------------------------------------------------------ torch.jit


def doubled_sine(x):
    y = x.sin()
    return y * 2


def test_torch_jit_modules_are_refused(recwarn):
    scripted, traced = torch.jit.script(torch.nn.Tanh()), torch.jit.trace(torch.nn.Tanh(), (X,))
    for module in (scripted, traced):
        with pytest.raises(
            rx.InvalidArgumentError, match=r"was made by torch\.jit.*Explore the module that it was made"
        ):
            rx.explore(module, (X,))
    with pytest.raises(rx.InvalidArgumentError, match=r"The module '0' was made by torch\.jit"):
        rx.explore(torch.nn.Sequential(traced), (X,))
    inside = "ScriptModules" if BEFORE_2_13 else r"Dynamo does not support tracing into torch\.jit\.script"
    with pytest.raises(rx.CaptureError, match=inside):
        rx.explore(torch.nn.Sequential(scripted), (X,))
    for function in (torch.jit.script(doubled_sine), torch.jit.trace(doubled_sine, (X,))):
        assert [graph.id for graph in rx.explore(function, (X,)).session.graphs] == ["0/dynamo", "0/inference"]

    def calls_scripted(x):
        return scripted(doubled_sine(x))

    ex = rx.explore(calls_scripted, (X,))
    assert [node.target for node in ex.session.graphs[-1].ops] == ["aten.sin.default", "aten.mul.Tensor"]
    assert ("ScriptModules" if BEFORE_2_13 else "torch.jit.script") in ex.session.breaks[0].reason


# -------------------------------------------------------------------------------------------------------- config values


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("max_fusion_size", "four", "takes an int"),
        ("max_autotune", 1, "takes True or False"),
        ("max_fusion_size", -5, "it takes no number below 0"),
        ("max_fusion_size", 10**400, "more than 64 bits"),
        ("realize_opcount_threshold", -1, "it takes no number below 0"),
        ("max_autotune_gemm_backends", "FOO", "there is no 'FOO'. It takes some of ATen, Triton,"),
        ("max_autotune_gemm_backends", "ATEN,TRITN", "Did you mean 'TRITON'"),
        ("max_autotune_conv_backends", "FOO", "It takes some of ATen, Triton,"),
        ("cpp.enable_floating_point_contract_flag", "of", "takes one of 'off', 'on', 'fast'.*Did you mean 'off'"),
        ("score_fusion_memory_threshold", -1, "it takes no number below 0"),
        ("cpp.simdlen", 3, "the bits of a vector register, 128, 256 or 512, or 0 for code without SIMD"),
        ("cpp.simdlen", 17, "the bits of a vector register"),
        ("cpp.threads", -5, "it takes 1 to 1,024, or -1 for as many as torch has"),
        ("cpp.threads", 0, "it takes 1 to 1,024"),
        ("cpp.threads", 10**6, "it takes 1 to 1,024"),
        ("cpp.min_chunk_size", 0, "it takes no number below 1"),
    ],
)
def test_a_config_value_that_torch_does_not_know_is_refused(ex, key, value, message):
    if key not in catalogue():
        pytest.skip("this torch has no such key")
    with pytest.raises(rx.InvalidConfigValueError, match=message):
        ex.draft().configure("act", {key: value})


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        ("max_fusion_sise", rx.UnknownConfigKeyError, "Did you mean 'max_fusion_size'"),
        ("cpp", rx.UnknownConfigKeyError, "with a dot"),
        ("fx_graph_cache", rx.InvalidConfigKeyError, "cannot be set for one region"),
    ],
)
def test_an_unknown_config_key_is_refused(ex, key, error, message):
    with pytest.raises(error, match=message):
        ex.draft().configure("act", {key: False})
    with pytest.raises(rx.UnknownRegionError, match="Did you mean 'act'"):
        ex.draft().configure("atc", {"max_fusion_size": 1})


def test_arguments_of_torch_are_accepted():
    assert check_value("max_autotune_gemm_backends", "aten, Triton") == "aten, Triton"
    assert check_value("cpp.threads", -1) == -1
    assert check_value("cpp.threads", 8) == 8
    assert [check_value("cpp.simdlen", bits) for bits in (None, 0, 1, 128, 256, 512)] == [None, 0, 1, 128, 256, 512]
    assert check_value("cpp.min_chunk_size", 1) == 1
    for key, entry in catalogue().items():
        if entry.refused is None:
            assert check_value(key, entry.default) is entry.default


# ---------------------------------------------------------------------------------------------------- plans from a file


@pytest.mark.parametrize("count", [50, pytest.param(3000, marks=pytest.mark.slow)])
def test_a_mutated_plan_is_accepted_or_refused_by_an_exploration(ex, tmp_path, count):
    mine = rx.Plan((rx.Region("act", ex.plan["act"].selectors, {"max_fusion_size": 8}), *PLAN.regions))

    def check(path: Path) -> None:
        with contextlib.suppress(RegionalExplorerError):
            ex.preview(load_plan(path))

    run_mutations(json.loads(dump_plan(mine)), check, tmp_path / "x.json", count)


# ----------------------------------------------------------------------------------------------------------- the shell

TEXTS = ["", " ", "x", "=", ":", "a=b", "a:b", "a=ops:*", "a:b=c", "-1", "1e400", "nan", "\0", "\ud800", "(" * 2000,
         "x.json", "nowhere/x.json", ".", "9" * 5000, "a=lines:f:9-1", "a:max_fusion_size=" + "[" * 9999]  # fmt: skip


@pytest.mark.parametrize("option", ["-r", "-c", "--variants", "--budget", "--plan", "--save"])
def test_every_text_for_an_option_is_accepted_or_refused(tmp_path, capsys, option):
    file = tmp_path / "model.py"
    file.write_text("import torch\ndef f(x): return x.sin()\nx = torch.ones(3)\n", encoding="utf-8")
    for text in TEXTS:
        try:
            code = main(
                ["run", str(file), "f(x)", "--no-bench", f"{option}={text}" if option[1] == "-" else option + text]
            )
        except SystemExit as ended:  # as argparse ends
            code = ended.code
        out, err = capsys.readouterr()
        assert code in (EXIT_DONE, EXIT_FAILED, EXIT_MISUSED)
        assert "Traceback" not in out + err
        assert code == EXIT_DONE or "regional-explorer" in err


@pytest.mark.parametrize(
    "call", ["", " ", "\0", "f(" + "(" * 2000, "f(x" + ")" * 5, "f(" + "-" * 100_000 + "x)", "f(\ud800)"]
)
def test_every_text_for_the_call_is_accepted_or_refused(tmp_path, capsys, call):
    (tmp_path / "model.py").write_text("", encoding="utf-8")
    assert main(["run", str(tmp_path / "model.py"), call, "--no-bench"]) == EXIT_MISUSED
    err = capsys.readouterr().err
    assert err.startswith("regional-explorer: ")
    assert len(err) < 400


@pytest.mark.parametrize("content", [b"\xff", b"\x00", b"def", b"raise ValueError('mine')", b"import nowhere_at_all"])
def test_every_file_that_cannot_be_run_is_refused(tmp_path, capsys, content):
    (tmp_path / "model.py").write_bytes(content)
    assert main(["run", str(tmp_path / "model.py"), "f(x)"]) in (EXIT_FAILED, EXIT_MISUSED)
    assert "None" not in capsys.readouterr().err
    assert main(["run", str(tmp_path), "f(x)"]) == EXIT_MISUSED


def test_the_error_names_the_dispatch_mode_that_prevents_tracing():
    with FlopCounterMode(display=False), pytest.raises(rx.CaptureError, match="does not trace under _FlopCounterMode"):
        rx.explore(doubled_sine, (X,))


def test_diagnostics_print_as_paragraphs():
    ex = rx.explore(doubled_sine, (X,))
    assert repr(ex.diagnostics) == "No diagnostics."
    ex.plan = rx.Plan((rx.Region("r", (rx.Selector(SelectorKind.OPS, ("cos",)),)),))
    assert repr(ex.diagnostics).startswith("[region-empty] Region 'r' has no op in any graph")
