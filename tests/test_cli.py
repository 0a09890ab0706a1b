"""The command line: what goes to stdout, what to stderr, and the exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from regional_explorer.command.cli import EXIT_DONE, EXIT_FAILED, EXIT_MISUSED, execute, main
from regional_explorer.errors import MeasureError, SessionError
from regional_explorer.exploration.exploration import Exploration
from regional_explorer.record.json_file import load_session
from tests.conftest import ReplaceBenchmark

ROOT = Path(__file__).resolve().parent.parent

MODEL = """
import dataclasses

import torch
from beside import FACTOR

@dataclasses.dataclass
class Sizes:
    width: "int" = 8

def step(x, k=FACTOR):
    y = torch.sin(x) * k
    return torch.relu(y).sum()

def stops(x):
    raise KeyboardInterrupt

x = torch.ones(Sizes().width, 8)

if __name__ == "__main__":
    raise SystemExit(9)
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_path: None) -> str:
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    (tmp_path / "beside.py").write_text("FACTOR = 3\n", encoding="utf-8")
    (tmp_path / "model_of_mine.py").write_text(MODEL, encoding="utf-8")
    return str(tmp_path / "model_of_mine.py")


def test_a_call_of_a_file_is_explored(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", model, "step(x, k=2)", "--no-bench", "-r", "act=ops:aten.relu*"]) == EXIT_DONE
    out, err = capsys.readouterr()
    assert out.startswith("step\n")
    assert "ops:aten.relu*" in out
    assert "capturing the call" in err
    assert "capturing" not in out


def test_a_quiet_run_says_no_progress(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", model, "step(x)", "--no-bench", "--quiet", "--save", str(tmp_path / "x.json")]) == EXIT_DONE
    out, err = capsys.readouterr()
    assert out.startswith("step\n")
    assert err == ""
    assert main(["run", model, "step('text')", "--quiet"]) == EXIT_FAILED
    assert capsys.readouterr().err.startswith("regional-explorer: [call-raises]")


def test_lines_of_the_file_can_be_marked(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", model, "step(x)", "--no-bench", "-r", "a=lines:step:2", "-r", "b=lines:model_of_mine.py:13"]
    assert main(arguments) == EXIT_DONE
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[3] for row in rows if "lines:" in row][:2] == ["2", "2"]


def test_the_session_is_saved_and_shown(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = str(tmp_path / "out.json")
    assert main(["run", model, "step(x)", "--no-bench", "-r", "act=ops:aten.relu*", "--save", saved]) == EXIT_DONE
    first = capsys.readouterr()
    assert f"Saved to {saved}." in first.err
    assert main(["show", saved]) == EXIT_DONE
    assert capsys.readouterr().out == first.out


def test_the_session_is_saved_although_nobody_reads_on(model: str, tmp_path: Path) -> None:
    saved = tmp_path / "out.json"
    command = [sys.executable, "-m", "regional_explorer.command.cli", "run", model, "step(x)", "--no-bench", "--json"]
    # Both streams go to a pipe whose reader leaves after the first line, which is of the progress.
    with subprocess.Popen(
        [*command, "--save", str(saved)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait() == EXIT_DONE
    assert load_session(saved).title == "step"


def test_what_cannot_be_saved_is_printed(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(_self: Exploration, _path: Path) -> Path:
        raise SessionError("No space left on device")

    monkeypatch.setattr(Exploration, "save", no_room)
    assert main(["run", model, "step(x)", "--no-bench", "--save", str(tmp_path / "out.json")]) == EXIT_FAILED
    out, err = capsys.readouterr()
    assert out.startswith("step\n")
    assert "No space left on device" in err


def test_show_needs_no_torch(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = str(tmp_path / "out.json")
    main(["run", model, "step(x)", "--no-bench", "--save", saved])
    program = (
        "import sys; sys.modules['torch'] = sys.modules['IPython'] = sys.modules['ipywidgets'] = None\n"
        f"from regional_explorer.command.cli import main; sys.exit(main(['show', {saved!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_DONE, done.stderr
    assert done.stdout.startswith("step\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "{model}", "step(x"], EXIT_MISUSED, "is not Python"),
        (["run", "{model}", "stp(x)"], EXIT_MISUSED, "Did you mean 'step'"),
        (["run", "nowhere.py", "step(x)"], EXIT_MISUSED, "Cannot read nowhere.py"),
        (["run", "{model}", "step(x)", "--variants", "ful"], EXIT_MISUSED, "Did you mean 'full'"),
        (["run", "{model}", "step('text')"], EXIT_FAILED, "[call-raises] The call itself raises TypeError"),
        (["run", "{model}", "step(x)", "-c", "act:max_fusion_size=3"], EXIT_MISUSED, "No region is called 'act'"),
        (["run", "{model}", "step(x)", "-c", "act:max_fusion_sze=3"], EXIT_MISUSED, "Did you mean 'max_fusion_size'"),
        (["run", "{model}", "step(x)", "-r", "act=ops:aten.erf"], EXIT_MISUSED, "matches no operation of this call"),
        (["show", "nowhere.json"], EXIT_FAILED, "Cannot read nowhere.json"),
        (["show", "{model}"], EXIT_FAILED, "Only files saved as .json are read back"),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(
    model: str, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    assert main([argument.format(model=model) for argument in arguments]) == code
    out, err = capsys.readouterr()
    last = err.splitlines()[-1]
    assert out == ""
    assert last.startswith("regional-explorer: ")
    assert message in last
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments", [[], ["run"], ["run", "a.py", "f(x)", "--budget", "no"], ["run", "a.py", "f(x)", "-o", "ex"]]
)
def test_arguments_that_cannot_be_read_exit_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == EXIT_MISUSED
    assert "usage: regional-explorer" in capsys.readouterr().err


def test_an_error_of_the_file_names_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken_of_mine.py"
    broken.write_text("a = 1\nb = a / 0\n", encoding="utf-8")
    assert main(["run", str(broken), "f(x)"]) == EXIT_FAILED
    assert "broken_of_mine.py, line 2: ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["run"], ["check", "plan.json"]])
@pytest.mark.parametrize("code", ["0", "1", ""])
def test_a_file_that_ends_the_program_is_told_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], own_path: None, command: list[str], code: str
) -> None:
    (tmp_path / "plan.json").write_text('{"kind": "plan"}', encoding="utf-8")
    file = tmp_path / "ends_of_mine.py"
    file.write_text(f"import sys\ndef f(x): return x\nsys.exit({code})\n", encoding="utf-8")
    arguments = [str(tmp_path / argument) if argument.endswith(".json") else argument for argument in command]
    assert main([*arguments, str(file), "f(1)"]) == EXIT_FAILED
    assert "ends_of_mine.py, line 3: the file ends the program here." in capsys.readouterr().err


def test_a_call_that_ends_the_program_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], own_path: None
) -> None:
    file = tmp_path / "ends_of_mine.py"
    file.write_text("import sys\n\ndef main():\n    sys.exit(0)\n", encoding="utf-8")
    assert main(["run", str(file), "main()", "--no-bench"]) == EXIT_FAILED
    assert "[call-raises] The call itself raises SystemExit" in capsys.readouterr().err


def test_the_arguments_of_the_command_are_not_those_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, own_path: None
) -> None:
    file = tmp_path / "parses_of_mine.py"
    parser = 'import argparse, sys\np = argparse.ArgumentParser()\np.add_argument("--width", type=int, default=8)\n'
    file.write_text(f"{parser}width, argv = p.parse_args().width, sys.argv\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["regional-explorer", "run", str(file), "f(x)"])
    names = execute(file, file.read_text(encoding="utf-8"))
    assert (names["width"], names["argv"]) == (8, [str(file)])
    assert sys.argv[1] == "run"


def test_verbose_shows_the_traceback(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", model, "step('text')", "--verbose"]) == EXIT_FAILED
    assert "Traceback" in capsys.readouterr().err


def test_what_was_found_is_printed_when_interrupted(
    model: str, capsys: pytest.CaptureFixture[str], replace_benchmark: ReplaceBenchmark
) -> None:
    def interrupted(_self: Exploration, **_: Any) -> None:
        raise KeyboardInterrupt

    replace_benchmark(interrupted)
    assert main(["run", model, "step(x)"]) == EXIT_FAILED
    out, err = capsys.readouterr()
    assert out.startswith("step\n")
    assert "interrupted; the results so far are shown" in err
    assert main(["run", model, "stops(x)"]) == EXIT_FAILED
    assert "interrupted" in capsys.readouterr().err


def test_measuring_that_fails_exits_with_1(
    model: str, capsys: pytest.CaptureFixture[str], replace_benchmark: ReplaceBenchmark
) -> None:
    def fails(_self: Exploration, **_: Any) -> None:
        raise MeasureError("No variant could be measured.")

    replace_benchmark(fails)
    assert main(["run", model, "step(x)"]) == EXIT_FAILED
    assert "No variant could be measured." in capsys.readouterr().err
