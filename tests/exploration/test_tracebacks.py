"""Errors that the user made reach the user's code without frames of this package; other exceptions keep them."""

import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from IPython.core.ultratb import FormattedTB

import regional_explorer
from regional_explorer.command.cli import main
from regional_explorer.errors import FULL_TRACEBACKS
from regional_explorer.exploration.live import Live
from regional_explorer.ui import display
from tests.shared.processes import ROOT

rx: Any = regional_explorer  # whose arguments are of the wrong type here on purpose
PACKAGE = str(ROOT / "regional_explorer")
X = torch.ones(4, requires_grad=True)


def step(x):
    with rx.region("act"):
        y = torch.relu(x).sin()
    return y.sum()


def raises(x):
    return fails_below(x)


def fails_below(x):
    raise ValueError(f"not {x.shape}")


def calls_backward(x):
    loss = x.sum()
    loss.backward()


@pytest.fixture(scope="module")
def ex():
    return rx.explore(step, (X,))


def set_invalid_plan(ex):
    ex.plan = 3


def last_without_exploration():
    with mock.patch.object(display, "_last_shown", None):
        rx.last()


MISTAKES = {
    "explore": lambda _: rx.explore(step, X),
    "explore a call that raises": lambda _: rx.explore(raises, (X,)),
    "explore a call that calls backward": lambda _: rx.explore(calls_backward, (X,)),
    "load": lambda _: rx.load("nowhere.json"),
    "compare": lambda _: rx.compare(3),
    "compile": lambda _: rx.compile(3),
    "status": lambda _: rx.status(3),
    "last": lambda _: last_without_exploration(),
    "mark": lambda ex: ex.mark("r", modules="nothing"),
    "mark a draft": lambda ex: ex.draft().mark("r", ops="nothing"),
    "configure": lambda ex: ex.configure("act", max_fusion_siz=3),
    "plan": set_invalid_plan,
    "plan[]": lambda ex: ex.plan["b"],
    "Plan": lambda _: rx.Plan(3),
    "Region": lambda _: rx.Region("", ()),
    "Selector": lambda _: rx.Selector("kind", ("x",)),
    "Run": lambda _: rx.Run(cancelled=3),
    "benchmark": lambda ex: ex.benchmark(budget_s=-1),
    "code": lambda ex: ex.code("act"),
    "code of results": lambda ex: ex.results.code("b"),
    "save": lambda ex: ex.save("/nowhere/x.json"),
    "save_plan": lambda ex: ex.save_plan("/nowhere/x.json"),
    "graph": lambda ex: ex.session.graph("7"),
    "retrace": lambda ex: ex.retrace(dynamic=3),
}


def error_of(mistake, ex):
    with pytest.raises(rx.RegionalExplorerError) as raised:
        mistake(ex)
    return raised.value


@pytest.mark.parametrize("name", MISTAKES)
def test_an_error_has_no_frame_of_this_package(ex, name):
    error = error_of(MISTAKES[name], ex)
    text = "".join(traceback.format_exception(error))
    assert PACKAGE not in text
    assert Path(__file__).name in text
    assert "pathlib.py" not in text


def test_the_users_own_frames_stay(ex):
    by_call = "".join(traceback.format_exception(error_of(MISTAKES["explore a call that raises"], ex)))
    assert all(function in by_call for function in ("in raises", "in fails_below", "ValueError: not", "direct cause"))
    by_backward = "".join(traceback.format_exception(error_of(MISTAKES["explore a call that calls backward"], ex)))
    assert "in calls_backward" in by_backward


def test_a_cause_inside_this_package_is_kept_but_not_shown(ex):
    error = error_of(MISTAKES["load"], ex)
    assert isinstance(error.__context__, FileNotFoundError)
    assert "FileNotFoundError" not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("mode", ["Plain", "Context", "Verbose"])
def test_a_traceback_in_a_notebook_shows_only_the_cell(ex, mode):
    error = error_of(MISTAKES["mark"], ex)
    shown = FormattedTB(mode, theme_name="nocolor").text(type(error), error, error.__traceback__)
    assert "matches no operation" in shown
    assert "edit.py" not in shown


def test_another_exception_keeps_its_frames(ex, monkeypatch):
    def broken(*_, **__):
        raise KeyError("a bug")

    monkeypatch.setattr(Live, "retraced", broken)
    with pytest.raises(KeyError) as raised:
        ex.retrace()
    assert PACKAGE in "".join(traceback.format_exception(raised.value))


def test_the_environment_variable_keeps_the_frames(ex, monkeypatch):
    monkeypatch.setenv(FULL_TRACEBACKS, "1")
    assert PACKAGE in "".join(traceback.format_exception(error_of(MISTAKES["mark"], ex)))


def test_a_program_ends_with_the_users_line(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import regional_explorer as rx\nrx.compare(3)\n")
    ran = subprocess.run([sys.executable, program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.stderr.splitlines()[:3] == [
        "Traceback (most recent call last):",
        f'  File "{program}", line 2, in <module>',
        "    rx.compare(3)",
    ]
    assert PACKAGE not in ran.stderr
    assert "regional_explorer.errors.InvalidArgumentError: 3 cannot be compared" in ran.stderr.splitlines()[-1]


def test_verbose_on_the_command_line_shows_all_frames(tmp_path, capsys):
    (tmp_path / "model.py").write_text("import torch\nx = torch.ones(3)\ndef f(x):\n    raise ValueError('no')\n")
    assert main(["run", str(tmp_path / "model.py"), "f(x)", "--verbose"])
    assert PACKAGE in capsys.readouterr().err


def test_a_warning_names_the_users_line(ex, tmp_path, monkeypatch):
    from regional_explorer.exploration import exploration

    slow = type("Slow", (), {"message": "slow", "remedy": ""})
    monkeypatch.setattr(exploration, "plan_diagnostics", lambda _: [slow])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ex.save_plan(tmp_path / "plan.json")
    assert [warning.filename for warning in caught] == [__file__]
