"""The magic in a real shell, and in a notebook without a front end."""

from __future__ import annotations

import contextlib
import gc
import json
import signal
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from IPython.core.error import UsageError
from ipywidgets.widgets.widget import _instances

import regional_explorer as rx
from regional_explorer.command.options import OPTIONS, completions
from regional_explorer.compiler import progress_line
from regional_explorer.errors import MeasureError, SessionError
from regional_explorer.exploration.exploration import Exploration
from regional_explorer.picture.svg import session_svg
from regional_explorer.record.benchmark import BY_DEFAULT, VariantName
from regional_explorer.record.files import plan_line
from regional_explorer.record.session import Session
from regional_explorer.style.element import words
from regional_explorer.ui import display
from regional_explorer.ui.control import control_of
from regional_explorer.ui.panel import Panel
from tests.command.conftest import CALL, ERASED, MADE, SETUP, Output, Outputs, Run
from tests.conftest import ReplaceBenchmark
from tests.shared.panel import BlockedMethod, elements, text
from tests.shared.processes import ROOT

ExploreLine = Callable[[str], Exploration]
Refusal = Callable[[str], str]


@pytest.fixture
def explore_line(run: Run, shell: Any) -> ExploreLine:
    """Return a function that runs the magic on options and a call, without measuring, and returns the exploration."""

    def explore_line(line: str) -> Exploration:
        run(f"%regional_compile --no-bench -o ex {line}")
        exploration: Exploration = shell.user_ns["ex"]
        return exploration

    return explore_line


@pytest.fixture
def refusal(shell: Any, capsys: Output) -> Refusal:
    """Return a function that runs a cell that has to be refused, and returns the line of the error."""

    def refusal(cell: str) -> str:
        capsys.readouterr()
        done = shell.run_cell(cell, store_history=True)
        assert isinstance(done.error_in_exec, UsageError)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        assert err.startswith("UsageError: ")
        assert len(err.splitlines()) == 1
        return err

    return refusal


# --------------------------------------------------------------------------------------------------------------- calls


@pytest.mark.parametrize(
    ("call", "title"),
    [
        ("f(x)", "f"),
        ("f(x, k=3)", "f"),
        ("f(*xs, **{'k': 3})", "f"),
        ("model(x)", "Net"),
        ("model.half(x, by=4)", "Net.half"),
        ("f(torch.cos(f(x)))", "f"),
        ("(lambda a: a + 1)(x)", "<lambda>"),
        ("f(x)  # a comment", "f"),
        ("f({'a': x}['a'])", "f"),
        ("f({'a': x}[f'{key}'])", "f"),  # names in braces, which IPython would expand
    ],
)
def test_every_form_of_call_is_captured(explore_line: ExploreLine, call: str, title: str) -> None:
    assert explore_line(call).session.title.endswith(title)


def test_the_call_gets_its_own_arguments(run: Run, capsys: Output) -> None:
    run("def g(*args, **kwargs):\n    print(args[0] is xs[0], args[1:], kwargs)\n    return f(x)")
    capsys.readouterr()
    run("%regional_compile --no-bench g(*xs, 3, k=4, **{'j': 5});")
    assert "True (3,) {'k': 4, 'j': 5}" in capsys.readouterr().out


def test_local_names_of_a_function_are_found(run: Run, shell: Any) -> None:
    run("def inside():\n    mine = torch.ones(3)\n    %regional_compile --no-bench -o ex f(mine)\ninside()")
    assert "ex" in shell.user_ns


def test_a_cell_runs_and_its_last_line_is_the_call(run: Run, shell: Any) -> None:
    run(
        "%%regional_compile --no-bench -r sine=lines:g:2 -o ex\n"
        "def g(x):\n    y = torch.sin(x)\n    return y + 1\n\ntwo = 2\n!true\ng(\n    x,\n)"
    )
    assert shell.user_ns["two"] == 2
    assert len(shell.user_ns["ex"].session.members["sine"]["0/inference"]) == 1
    sources = [node.source for node in shell.user_ns["ex"].session.graphs[0].ops]
    assert {source.line for source in sources} == {3, 4}  # as numbered in the cell, its magic included


def test_annotations_in_a_cell_are_evaluated_as_in_plain_cells(run: Run, shell: Any) -> None:
    run("%%regional_compile --no-bench\ndef g(x: torch.Tensor):\n    return x.sin()\n\ng(x)")
    assert shell.user_ns["g"].__annotations__ == {"x": shell.user_ns["torch"].Tensor}


def test_an_error_in_the_cell_shows_no_frames_of_this_package(shell: Any, capsys: Output) -> None:
    done = shell.run_cell("%%regional_compile --no-bench\nz = 1 / 0\nf(x)", store_history=True)
    assert isinstance(done.error_in_exec, ZeroDivisionError)
    out, err = capsys.readouterr()
    assert "z = 1 / 0" in out + err
    assert "magic.py" not in out + err


# ------------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("line", "configs"),
    [
        (
            "-r up=modules:up -r act=ops:aten.relu* -c act:max_fusion_size=4 -c up:cpp.simdlen=None model(x)",
            {"up": ((None, {"cpp.simdlen": None}),), "act": ((None, {"max_fusion_size": 4}),)},
        ),
        (
            "-r act=ops:aten.relu* -c act:max_fusion_size=4 -c act.backward:max_fusion_size=2 f(x)",
            {"act": (("forward", {"max_fusion_size": 4}), ("backward", {"max_fusion_size": 2}))},
        ),
        (
            "--region='a b=ops:aten.relu*' -c\"a b:max_fusion_size=4\" --output=ex f(x)",
            {"a b": ((None, {"max_fusion_size": 4}),)},
        ),
    ],
)
def test_regions_and_configs_of_the_line_are_applied(
    explore_line: ExploreLine, line: str, configs: dict[str, Any]
) -> None:
    assert {region.name: region.configs for region in explore_line(line).plan.regions} == configs


def test_a_region_of_that_name_comes_before_a_direction(explore_line: ExploreLine) -> None:
    both = "-r act=ops:aten.relu* -r act.backward=ops:aten.sum*"
    with pytest.warns(UserWarning, match=r"the region called 'act.backward', not the backward config of 'act'"):
        plan = explore_line(f"{both} -c act.backward:max_fusion_size=2 f(x)").plan
    assert plan["act.backward"].config == {"max_fusion_size": 2}
    assert plan["act"].configs == ((None, {}),)


def test_plans_are_read_from_panel_lines_and_files(explore_line: ExploreLine, tmp_path: Path) -> None:
    ex = explore_line(f"--no-grad -r act=ops:aten.relu* -c act:max_fusion_size=4 --save '{tmp_path}/out.json' f(x)")
    assert json.loads((tmp_path / "out.json").read_text())["title"] == "f"
    assert not ex.session.grad
    ex.save_plan(tmp_path / "plan.json")
    for plan in (plan_line(ex.plan), f"{tmp_path}/plan.json"):
        assert explore_line(f"--plan {plan} f(x)").plan == ex.plan


def test_requested_variants_are_measured(run: Run, replace_benchmark: ReplaceBenchmark) -> None:
    replace_benchmark(benchmark := Mock())
    run("%regional_compile --variants regional,full --budget 0.5 f(x);")
    run("%regional_compile -r act=ops:aten.relu* f(x);")
    first, second = (call.kwargs for call in benchmark.call_args_list)
    assert (first["variants"], first["budget_s"], second["budget_s"]) == (("regional", "full"), 0.5, 5.0)


def test_call_without_region_is_profiled(run: Run, replace_benchmark: ReplaceBenchmark, capsys: Output) -> None:
    replace_benchmark(benchmark := Mock())
    run("%regional_compile --budget 0.05 -o ex f(x)")
    assert "Where the time goes: modules" in capsys.readouterr().out
    run("%regional_compile --variants full f(x);")
    assert [call.kwargs["variants"] for call in benchmark.call_args_list] == [("full",)], "full was requested"


def test_the_value_is_the_exploration_and_out_does_not_keep_it(run: Run, shell: Any, capsys: Output) -> None:
    assert isinstance(run("%regional_compile --no-bench f(x)"), Exploration)
    run("ex = %regional_compile --no-bench f(x)")
    assert isinstance(shell.user_ns["ex"], Exploration)
    capsys.readouterr()
    assert isinstance(run("%regional_compile --no-bench f(x);  # hush"), Exploration)
    out, err = capsys.readouterr()
    assert ("graph breaks" in out, err) == (False, "")
    assert not any(isinstance(value, Exploration) for value in shell.user_ns["_oh"].values())


def test_a_terminal_shows_the_text_once_and_no_html(run: Run, capsys: Output) -> None:
    run("%regional_compile --no-bench -r act=ops:aten.relu* f(x)")
    out = capsys.readouterr().out
    assert (out.count("graph breaks"), out.count("ops:aten.relu*"), out.count("<")) == (1, 1, 0)


def test_rx_last_finds_the_exploration_shown_in_a_terminal(run: Run) -> None:
    assert run("ex = %regional_compile --no-bench f(x)") is None
    assert rx.last() is run("ex")


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("3 + 4", "'3 + 4' is not one call"),
        ("f(x); f(x)", "is not one call"),
        ("f(x", "is not Python"),
        ("f(x) --grad", "Options go before the call: --grad … f(x)"),
        ("f(x) -o ex", "Options go before the call: -o … f(x)"),
        ("--no-bench", "The call is missing"),
        ("--no-bnch f(x)", "Unknown option --no-bnch. Did you mean '--no-bench'"),
        ("-o", "-o needs a value: -o ex"),
        ("-o 3x f(x)", "-o takes the name of a variable"),
        ("--grad=yes f(x)", "--grad takes no value"),
        ("f(xx)", "name 'xx' is not defined. Did you mean 'x'"),
        ("f(x, 1 / 0)", "raised ZeroDivisionError before the call"),
        ("f('text')", "[call-raises] The call itself raises TypeError"),
        ("trains(x.clone().requires_grad_())", "backward()"),
        ("--grad f(x)", "requires grad"),
        ("-r act f(x)", "-r marks a region as NAME=KIND:PATTERN"),
        ("-r act=module:up model(x)", "Did you mean 'modules'"),
        ("-r rest=-op:relu f(x)", "Did you mean 'ops'"),
        ('-r "act=ops:relu -ops:aten.sum*" f(x)', "ops:aten.sum* matches no operation of the region"),
        ("-r act=ops:aten.rely* f(x)", "aten.rely*"),
        ("-r act=lines:f f(x)", "not a line range"),
        ("-c act=3 f(x)", "-c sets a config as REGION:KEY=VALUE"),
        ("-r act=ops:aten.relu* -c atc:max_fusion_size=3 f(x)", "No region is called 'atc'. Did you mean 'act'"),
        ("-c a:max_fusio_size=3 f(x)", "Did you mean 'max_fusion_size'"),
        ("-c a:max_fusion_size=big f(x)", "takes an int"),
        ("-c a:fx_graph_cache=True f(x)", "cannot be set for one region"),
        ("--variants eager,ful f(x)", "Did you mean 'full'"),
        ("--budget 0 f(x)", "--budget and --tune take seconds above 0"),
        ("--budget abc f(x)", "--budget and --tune take seconds above 0"),
        ("--plan nowhere.json f(x)", "Cannot read nowhere.json"),
        ("--save out.txt f(x)", "one of .json, .html, .svg, .csv"),
        ("--save nowhere/out.json f(x)", "there is no directory"),
    ],
)
def test_every_bad_line_gives_a_one_line_error(refusal: Refusal, line: str, message: str) -> None:
    assert message in refusal(f"%regional_compile {line}")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("--no-bench\nz = 10", "here the last line is 'z = 10'"),
        ("--no-bench\n# nothing", "the cell has no statement"),
        ("f(x)\nf(x)", "In a cell the call is the last line"),
        ("--budget abc\nz = 10\nf(x)", "--budget and --tune take seconds"),
        (
            "--no-bench\ny = f(x)\nprint(y.sum())",
            "print(y.sum()) calls Python's own print, which has nothing to compile.",
        ),
        (
            "--no-bench\nw = torch.ones(3, requires_grad=True)\nw.sum().backward()\ntorch.optim.SGD([w]).step()",
            # and the error names no line of IPython
            "The call itself runs an optimizer step. Pass the function that returns the loss instead",
        ),
    ],
)
def test_every_bad_cell_gives_a_one_line_error(refusal: Refusal, shell: Any, cell: str, message: str) -> None:
    assert message in refusal(f"%%regional_compile {cell}")
    assert "z" not in shell.user_ns, "the cell did not run"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("-r act=lines:f", "not a line range"),
        ("-r act=lines:f:9-3", "ends before it begins. Did you mean f:3-9?"),
        ("-r act=ops:,", "'ops:,' is no selector: write KIND:PATTERN"),
        (f"-r act=ops:{'a' * 2000}", "at most 1000 are allowed"),
        ("-r act=ops:relu -c act:max_fusio_size=3", "Did you mean 'max_fusion_size'"),
        ("-r act=ops:relu -c act:max_fusion_size=big", "takes an int"),
        ("--plan {plan} -c atc:max_fusion_size=3", "No region is called 'atc'. Did you mean 'act'"),
        ("--plan {plan} -r up=ops:sin -c upp:max_fusion_size=3", "No region is called 'upp'. Did you mean 'up'"),
        ("--plan {plan} -c act.backwrd:max_fusion_size=3", "No region is called 'act.backwrd'"),
    ],
)
def test_a_wrong_region_or_config_is_refused_before_the_cell_runs(
    explore_line: ExploreLine, refusal: Refusal, shell: Any, tmp_path: Path, options: str, message: str
) -> None:
    plan = explore_line("-r act=ops:aten.relu* f(x)").save_plan(tmp_path / "plan.json")
    assert message in refusal(f"%%regional_compile {options.format(plan=plan)}\nran = True\nf(x)")
    assert "ran" not in shell.user_ns


def test_configs_of_regions_in_source_or_plan_are_accepted(explore_line: ExploreLine, run: Run, tmp_path: Path) -> None:
    run("import regional_explorer as rx\ndef marked(x):\n    with rx.region('act'):\n        return x.sin()")
    assert explore_line("-c act:max_fusion_size=4 marked(x)").plan["act"].config == {"max_fusion_size": 4}
    plan = explore_line("-r act=ops:aten.relu* f(x)").save_plan(tmp_path / "plan.json")
    both = explore_line(
        f"--plan {plan} -r up=ops:sin -c act.backward:max_fusion_size=4 -c up:max_fusion_size=2 f(x)"
    ).plan
    assert both["act"].backward_config == {"max_fusion_size": 4}
    assert both["up"].config == {"max_fusion_size": 2}


def test_earlier_results_survive_an_error(explore_line: ExploreLine, refusal: Refusal, shell: Any) -> None:
    earlier = explore_line("f(x)")
    refusal("%regional_compile --no-bench -o ex f(xx)")
    assert shell.user_ns["ex"] is earlier


def test_failed_save_keeps_results(
    refusal: Refusal, shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Exploration, "save", Mock(side_effect=SessionError("Cannot write: no space left on device.")))
    assert "no space left" in refusal(f"%regional_compile --no-bench -o ex --save {tmp_path / 'x.html'} f(x)")
    assert isinstance(shell.user_ns["ex"], Exploration)


def test_verbose_shows_the_traceback(shell: Any, capsys: Output) -> None:
    shell.run_cell("%regional_compile --verbose --no-bench f('text')", store_history=True)
    out, err = capsys.readouterr()
    assert "Traceback" in out + err
    assert "torch.sin(x)" in out + err


def test_interrupt_keeps_results(
    run: Run, refusal: Refusal, shell: Any, replace_benchmark: ReplaceBenchmark, capsys: Output
) -> None:
    replace_benchmark(Mock(side_effect=KeyboardInterrupt))
    run("%regional_compile -r act=ops:aten.relu* -o ex f(x)")
    out, err = capsys.readouterr()
    assert "Interrupted. The results so far are shown." in err
    assert "ops:aten.relu*" in out
    assert isinstance(shell.user_ns["ex"], Exploration)
    run("%regional_compile -r act=ops:aten.relu* f(x);")
    assert "Interrupted. The results so far are kept.\n" in capsys.readouterr().out
    run("def stops(x):\n    raise KeyboardInterrupt")
    assert "Interrupted while capturing" in refusal("%regional_compile stops(x)")


def test_an_interrupt_that_a_compiler_swallows_ends_the_work(
    run: Run, replace_benchmark: ReplaceBenchmark, capsys: Output
) -> None:
    outcomes: list[str] = []

    def swallow_interrupt(self: Exploration, *, run: rx.Run, **_: Any) -> None:
        with self.exclusive_use.turn(run) as run:
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            outcomes.append("cancelled" if run.cancelled() else "not cancelled")

    replace_benchmark(swallow_interrupt)
    run("%regional_compile -r act=ops:aten.relu* f(x)")
    assert outcomes == ["cancelled"]
    assert "Interrupted" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------- help and completion


@pytest.mark.parametrize(
    "line",
    ["%regional_compile", "%regional_compile --help", "%regional_compile -h f(x)", "%%regional_compile --help\nf(x)"],
)
def test_an_empty_line_and_help_list_every_option(run: Run, shell: Any, capsys: Output, line: str) -> None:
    run(line)
    out = capsys.readouterr().out
    assert out.rstrip() == (shell.find_line_magic("regional_compile").__doc__ or "").rstrip()
    for option in OPTIONS:
        assert all(name in out for name in (*option.names, option.example))


LAYERS = """
class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(4, 4)

class Lazy:
    @property
    def plan(self):
        raise RuntimeError("no plan yet")
    __class__ = plan

net = torch.nn.Module()
net.layers = torch.nn.ModuleList(Layer() for _ in range(2))
other = torch.nn.Sequential(torch.nn.Linear(4, 4))
lazy = Lazy()  # no attribute of a user's object is read
"""


def test_completion_offers_options_paths_keys_and_values(explore_line: ExploreLine, run: Run, shell: Any) -> None:
    run(LAYERS)
    explore_line("-r known=ops:aten.relu* f(x);")
    for line, expected in (
        ("%regional_compile --no-b", {"--no-bench"}),
        ("%%regional_compile --no-w", {"--no-widget"}),
        ("ex = %regional_compile --no-b", {"--no-bench"}),
        ("ex: object = %regional_compile -c known:cpp.simd", {"cpp.simdlen="}),
        ("%regional_compile -r act=ops:aten.relu* -c a", {"act:"}),
        ("%regional_compile -c kno", {"known:", "known.backward:"}),
        ("%regional_compile --variants aot", {"aot_eager"}),
        ("%regional_compile -r a=mod", {"modules:"}),
        ("%regional_compile -c known:cpp.simd", {"cpp.simdlen="}),
        ("%regional_compile -r a=modules:layers.", {"layers.0.up"}),
        ("%regional_compile -c known:epilogue_fusion=", {"False", "True"}),
    ):
        assert expected <= set(shell.complete(None, line, len(line))[1]), line


def test_completions_are_ordered_by_likelihood(run: Run, shell: Any) -> None:
    run(LAYERS)

    def offers(before: str, after: str = "") -> list[str]:
        line = f"%regional_compile {before}"
        return completions(shell.user_ns, line, line + after)

    assert offers("")[:2] == ["-r", "--region"]
    paths = ["layers.*", "layers.*.up", "layers", "layers.0", "layers.0.up", "layers.1", "layers.1.up"]
    assert offers("-r a=modules:", " net(x)") == paths
    anything = offers("-r a=modules:")
    assert anything[:2] == paths[:2]
    assert {*paths, "0"} <= set(anything), "the modules of all that the notebook holds"
    values = ("-r a=ops:", "-c a:epilogue_fusion=", "-c a:max_fusion_size=", "-c a:no_such_key=")
    assert [offers(before) for before in values] == [[], ["False", "True"], ["64"], []]


def test_unloading_takes_the_magic_away(shell: Any) -> None:
    shell.run_line_magic("unload_ext", "regional_explorer")
    assert shell.find_line_magic("regional_compile") is None
    assert shell.find_cell_magic("regional_compile") is None
    shell.run_line_magic("load_ext", "regional_explorer")


# ------------------------------------------------------------------------------------------------------------ notebook


WIDGET = "application/vnd.jupyter.widget-view+json"


def test_the_static_copy_and_the_panel_are_separate_outputs(run: Run, outputs: Outputs) -> None:
    run(CALL)
    static_copy, panel = outputs.shown
    assert WIDGET not in static_copy
    assert all(part in static_copy["text/html"] for part in ("<svg", "ops:aten.relu*", display.STATIC_COPY))
    assert "ops:aten.relu*" in static_copy["text/plain"]
    assert WIDGET in panel
    assert "text/html" not in panel
    outputs.cell = "second"
    run("ex.show()")
    run("%regional_compile --no-bench --no-widget f(x)")
    assert [WIDGET in data for data in outputs.shown] == [False, True, False, True, False]
    assert display.STATIC_COPY not in outputs.shown[-1]["text/html"], "no panel takes its place"


def test_progress_without_the_widget_updates_one_output_and_empties_it(
    run: Run, outputs: Outputs, replace_benchmark: ReplaceBenchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_line, "AFTER_S", 0.0)
    during: list[str] = []

    def show_progress(_self: Exploration, *, run: Any, **_: Any) -> None:
        for number in range(1000):
            run.progress(f"round {number}", number / 1000)
        during.append(outputs.shown[-1]["text/plain"])

    replace_benchmark(show_progress)
    run("%regional_compile --no-widget -r act=ops:aten.relu* f(x)")
    of_exploring, of_drawing, of_result, of_measuring = outputs.shown
    assert of_exploring == of_drawing == of_measuring == ERASED
    assert "<svg" in of_result["text/html"]
    (line,) = during
    assert line.startswith("round ")
    assert outputs.updates < 20


def test_the_progress_line_of_a_plain_cell_is_removed(
    shell: Any, outputs: Outputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []

    def publish(data: dict[str, Any], *given: Any, **more: Any) -> None:
        texts.append(data.get("text/plain", ""))
        outputs.publish(data, *given, **more)

    monkeypatch.setattr(shell.display_pub, "publish", publish)
    shell.run_cell("import regional_explorer as rx\nex = rx.explore(f, (x,))")
    assert texts == [], "quick calls show nothing"
    monkeypatch.setattr(progress_line, "AFTER_S", 0.0)
    shell.run_cell("def stops(x):\n    raise KeyboardInterrupt")
    for cell, doing in (
        ("again = rx.explore(f, (x,))", "running the call eagerly"),
        ("found = ex.profile(0.05)", "profiling"),
        ("drawn = ex.graph()", "drawing the graphs"),
        ("rx.explore(stops, (x,))", "running the call eagerly"),
        ("rx.explore(f, (x, 'two'))", "running the call eagerly"),
    ):
        texts.clear()
        shell.run_cell(cell)
        assert [text for text in texts if text.startswith(doing)], cell
        assert texts[-1] == ""
        assert outputs.shown[-1] == ERASED


def test_drawing_shows_progress(run: Run, outputs: Outputs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line, "AFTER_S", 0.0)
    run("ex = %regional_compile --no-bench f(x)")
    for cell, results in (("ex.show()", [False, True]), ("ex.show(widget=False)", [False]), ("ex", [])):
        outputs.cell = cell
        before = len(outputs.shown)
        run(cell)
        line, *shown = outputs.shown[before:]
        assert line == ERASED
        assert [WIDGET in data for data in shown] == results


def test_the_static_copy_is_updated_with_the_panel(
    run: Run, outputs: Outputs, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def draw_later(session: Session) -> str:
        go_on.wait(10)
        return session_svg(session)

    run(CALL)
    outputs.cell = "second"
    run("ex.rename('act', 'relus')")
    assert "relus" not in outputs.static_copy
    updates = outputs.updates
    run("1 + 1")
    assert outputs.updates == updates
    monkeypatch.setattr(display, "session_svg", draw_later)
    control_of(shell.user_ns["ex"]).edit(lambda ex: ex.disable("relus"))
    assert "disabled" not in outputs.static_copy
    go_on.set()
    outputs.wait_for_html("disabled")
    assert "relus" in outputs.static_copy


def test_the_static_copy_is_updated_by_its_cell(
    run: Run, outputs: Outputs, replace_benchmark: ReplaceBenchmark
) -> None:
    replace_benchmark(lambda ex, **_: ex.rename("act", "relus"))
    run("%regional_compile -r act=ops:aten.relu* f(x)")
    assert "relus" in outputs.static_copy


def newest_panel() -> Panel:
    return [widget for widget in _instances.values() if isinstance(widget, Panel)][-1]


def test_a_panel_shows_only_its_explorations_variable(run: Run, outputs: Outputs) -> None:
    run("one = %regional_compile --no-bench f(x)")
    named = newest_panel()
    assert "in Python: one" in text(named, "header")
    outputs.cell = "second"
    run("%regional_compile --no-bench f(x)")
    unnamed = newest_panel()
    assert "in Python: import regional_explorer as rx; rx.last()" in text(unnamed, "header")
    run("import regional_explorer as rx")
    assert "in Python: rx.last()" in text(unnamed, "header")
    outputs.cell = "third"
    run("%regional_compile --no-bench f(x)")
    assert "in Python: rx.last()" in text(newest_panel(), "header")
    assert "not assigned to a variable" in text(unnamed, "header")
    assert "in Python: one" in text(named, "header")


@pytest.mark.parametrize("imported", ["", "import regional_explorer as rx"])
def test_copied_python_runs_in_the_next_cell(run: Run, outputs: Outputs, imported: str) -> None:
    run(imported)
    run(CALL)
    exploration = rx.last()
    copies = {words(one): one[1]["data-of"] for one in elements(newest_panel().part("header"), data_do="copy")}
    exploration.unmark("act")
    run(copies["Copy as Python"])
    assert run("ex") is exploration
    assert "act" in exploration.plan


@pytest.mark.parametrize("cell_ids", [("first", "second", "third"), ("", "", "")])
def test_a_panel_is_updated_by_later_cells_without_ids_too(
    run: Run, outputs: Outputs, cell_ids: tuple[str, ...]
) -> None:
    panels = []
    for number, cell in enumerate((CALL, "%regional_compile --no-bench -o other f(x)", "ex.rename('act', 'relus')")):
        outputs.cell, outputs.run_number = cell_ids[number], number
        run(cell)
        panels.append(newest_panel())
    assert "relus" in text(panels[0], "regions")


def test_an_exploration_shown_without_a_panel_is_freed_with_its_variable(
    run: Run, outputs: Outputs, shell: Any
) -> None:
    run("ex = %regional_compile --no-bench --no-widget f(x)")
    exploration = weakref.ref(shell.user_ns.pop("ex"))
    gc.collect()
    assert exploration() is None


def test_a_cell_that_runs_again_leaves_nothing_of_its_last_run(run: Run, outputs: Outputs) -> None:
    run("import ipywidgets")
    run(CALL)
    many = len(_instances)
    for number in range(1, 3):
        outputs.run_number = number
        run(CALL)
        assert len(_instances) == many
    outputs.cell = "second"
    run(CALL)
    assert len(_instances) > many


def test_a_cell_does_not_wait_for_torch_compile_where_there_is_a_panel(
    run: Run, outputs: Outputs, replace_benchmark: ReplaceBenchmark
) -> None:
    replace_benchmark(benchmark := Mock())
    for options in ("", "--no-widget", "--variants full"):
        run(f"%regional_compile {options} -r act=ops:aten.relu* -o ex f(x)")
    compared = [tuple(call.kwargs["variants"]) for call in benchmark.call_args_list]
    at_once = tuple(name for name in BY_DEFAULT if name is not VariantName.FULL)
    assert compared == [at_once, BY_DEFAULT, ("full",)]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("gpt = %regional_compile", "rx.last()"),
        ("%regional_compile --no-widget -o gpt", "gpt"),
        ("%regional_compile", "rx.last()"),
    ],
)
def test_the_message_of_a_cell_that_runs_again_says_how_to_restore_regions(
    run: Run, outputs: Outputs, line: str, name: str
) -> None:
    run("import regional_explorer as rx")
    run(f"{line} --no-bench f(x)")
    run(f"{name}.mark('made', ops='sin');")
    gc.collect()  # without a panel the variable alone holds the exploration, and it is bound again
    run(f"{line} --no-bench f(x)")
    assert f"without the earlier region &#x27;made&#x27;: {name}.plan = earlier_plan restores" in str(outputs.shown)
    run(f"{name}.plan = earlier_plan")
    assert run(f"[region.name for region in {name}.plan.regions]") == ["made"]


def test_the_message_names_the_lost_regions_of_a_cell(
    run: Run, refusal: Refusal, outputs: Outputs, replace_benchmark: ReplaceBenchmark
) -> None:
    replace_benchmark(Mock(side_effect=MeasureError("Nothing could be measured.")))
    refusal("%regional_compile --variants full -o ex f(x)")
    run("ex.mark('made', ops='sin');")
    refusal("%regional_compile --variants full -o ex f(x)")
    assert "without the earlier region &#x27;made&#x27;" in str(outputs.shown)


def test_a_job_continues_when_its_panels_cell_runs_again(run: Run, outputs: Outputs, shell: Any) -> None:
    run("import regional_explorer as rx; own = rx.explore(f, (x,))")
    run("own.show()")
    exploration = shell.user_ns["own"]
    compiling = exploration.compile = BlockedMethod()
    control = control_of(exploration)
    pressed = Panel(control)
    pressed.press("compile")
    assert compiling.begun.wait(60)
    pressed.close()
    outputs.run_number += 1
    run("own.show()")
    assert control.state.busy
    compiling.go_on.set()
    assert control.jobs.wait(60)
    assert (control.state.note, control.state.problem) == ("", None)


@pytest.mark.compiles
def test_a_small_call_is_compiled_and_measured(run: Run, shell: Any, capsys: Output) -> None:
    run("%regional_compile -r act=ops:aten.relu* --variants regional --budget 0.2 -o ex f(x)")
    ex = shell.user_ns["ex"]
    assert set(ex.timings["variant"]) == {"eager", "regional"}
    assert [part.state for part in ex.session.partitions] == ["measured"]
    out, err = capsys.readouterr()
    assert "under your plan" in out
    assert "compiling act" in err


# ------------------------------------------------------------------------------------- a notebook nobody looks at

SHOWN_OFTEN = """
from IPython.display import clear_output, display
from ipywidgets import Output
from ipywidgets.widgets.widget import _instances

ex.show()
one = len(_instances)
for turn in range(9):
    clear_output(wait=bool(turn % 2))
    ex.show()
assert len(_instances) == one > 0
"""
CLEARED = """
ex.show()
clear_output(wait=True)
waiting = len(_instances)
display("something else")
assert len(_instances) < waiting
"""
BESIDE_AN_OUTPUT_WIDGET = """
ex.show()
beside = Output()
display(beside)
before = len(_instances)
with beside:
    clear_output()
beside.clear_output()
assert len(_instances) == before
"""
VALUES = (
    f"%%time\nex = {MADE}",
    "type(ex).__name__",
    f"async def made():\n    ex = {MADE}\n    return ex\nother = await made()\nother",
    "other is ex",
)
LARGEST_OUTPUT = 100_000


def run_notebook(*cells: str) -> list[Any]:
    import nbformat  # takes seconds, as does what runs it
    from nbclient import NotebookClient

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": ROOT}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PREFER_ENV_PATH", "1")
        client.execute()
    return [cell.outputs for cell in notebook.cells]


@pytest.fixture(scope="module")
def notebook_outputs() -> list[Any]:
    """The outputs of a notebook's cells: one call, three that clear its panel, and those that use values."""
    setup = f"%load_ext regional_explorer\n{SETUP}"
    return run_notebook(setup, CALL, SHOWN_OFTEN, CLEARED, BESIDE_AN_OUTPUT_WIDGET, *VALUES)[1:]


def test_a_program_that_runs_a_notebook_gets_the_value_of_the_magic(notebook_outputs: list[Any]) -> None:
    made, name, last, differs = notebook_outputs[4:]
    assert name[0].data["text/plain"] == "'Exploration'"
    shown = [output.data["text/plain"] for output in last if output.output_type == "execute_result"]
    assert shown == []
    assert differs[0].data["text/plain"] == "False"
    assert sum("text/html" in output.get("data", {}) for output in made) == 1


def test_cleared_panels_are_closed(notebook_outputs: list[Any]) -> None:
    outputs = [output for output in notebook_outputs[0] if output.get("data") != ERASED]
    assert len(outputs) < len(notebook_outputs[0]), "the line about importing torch is removed"
    assert [output.output_type for output in outputs] == ["display_data", "display_data"]
    assert all(part in outputs[0].data["text/html"] for part in ("ops:aten.relu*", "<svg"))
    assert WIDGET not in outputs[0].data
    assert WIDGET in outputs[1].data
    import nbformat
    from nbconvert.exporters.html import HTMLExporter

    page, _ = HTMLExporter().from_notebook_node(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CALL, outputs=outputs)])
    )
    assert all(part in page for part in ("ops:aten.relu*", "<svg"))


@pytest.mark.compiles
@pytest.mark.slow
def test_a_measured_training_step_keeps_a_small_result() -> None:
    gpt = (ROOT / "tests" / "ui" / "gpt.py").read_text(encoding="utf-8")
    call = "model = GPT()\ntokens, targets = torch.randint(0, 512, (2, 2, 64))"
    outputs = run_notebook(
        f"%load_ext regional_explorer\n{gpt}\n{call}",
        "%regional_compile --budget 3 --variants regional,full model(tokens, targets)",
    )[1]
    # On a slow machine a line of progress stands before the static copy.
    static_copy = next(output.data["text/html"] for output in outputs if "text/html" in output.data)
    assert "Nothing measured yet" not in static_copy
    assert len(json.dumps(outputs).encode()) <= LARGEST_OUTPUT
