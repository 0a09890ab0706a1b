"""The command line: what goes to stdout, what to stderr, and the exit code."""

from __future__ import annotations

import importlib.abc
import importlib.metadata
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock, create_autospec

import pytest
import torch
from msgspec.structs import replace

import regional_explorer as rx
from regional_explorer.command import checks
from regional_explorer.command.checks import PlanCheck, plan_check, read_limit
from regional_explorer.command.cli import EXIT_DONE, EXIT_FAILED, EXIT_MISUSED, EXIT_NO, execute, main, read_source
from regional_explorer.errors import MeasureError, RegionalExplorerError, SessionError
from regional_explorer.exploration.exploration import Exploration
from regional_explorer.record.benchmark import NumericsVerdict, Verdict
from regional_explorer.record.figure import Figure, exactly
from regional_explorer.record.json_file import dump_plan, dump_session, load_session
from regional_explorer.record.session import Session
from tests.conftest import ReplaceBenchmark
from tests.shared.processes import ROOT, python
from tests.shared.sessions import measured_apart as measured

Output = pytest.CaptureFixture[str]

pytestmark = pytest.mark.usefixtures("own_path")

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

def ends():
    raise SystemExit(0)

x = torch.ones(Sizes().width, 8)

if __name__ == "__main__":
    raise SystemExit(9)
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    (tmp_path / "beside.py").write_text("FACTOR = 3\n", encoding="utf-8")
    return written(tmp_path / "model_of_mine.py", MODEL)


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_call_of_a_file_is_explored_saved_and_shown(model: str, tmp_path: Path, capsys: Output) -> None:
    saved = str(tmp_path / "out.json")
    marked = ["-r", "act=ops:aten.relu*", "-r", "a=lines:step:2", "-r", "b=lines:model_of_mine.py:13"]
    assert main(["run", model, "step(x, k=2)", "--no-bench", *marked, "--save", saved]) == EXIT_DONE
    out, err = capsys.readouterr()
    assert out.startswith("step\n")
    assert [row.split()[3] for row in out.splitlines() if ":" in row and row.split()[0] in "ab"] == ["2", "2"]
    assert "ops:aten.relu*" in out
    assert "capturing the call" in err
    assert "capturing" not in out
    assert f"Saved to {saved}." in err
    assert main(["show", saved]) == EXIT_DONE
    assert capsys.readouterr().out == out
    assert main(["show", saved, "--json"]) == EXIT_DONE
    assert load_session(capsys.readouterr().out) == load_session(Path(saved))
    program = (
        "import sys; sys.modules['torch'] = sys.modules['IPython'] = sys.modules['ipywidgets'] = None\n"
        f"from regional_explorer.command.cli import main; sys.exit(main(['show', {saved!r}]))"
    )
    assert python(program).out == out, "without torch"


def test_a_quiet_run_says_no_progress(model: str, tmp_path: Path, capsys: Output) -> None:
    assert main(["run", model, "step(x)", "--no-bench", "--quiet", "--save", str(tmp_path / "x.json")]) == EXIT_DONE
    out, err = capsys.readouterr()
    assert out.startswith("step\n")
    assert err == ""
    assert main(["run", model, "step('text')", "--quiet"]) == EXIT_FAILED
    assert capsys.readouterr().err.startswith("regional-explorer: [call-raises]")
    assert main(["run", model, "step('text')", "--verbose"]) == EXIT_FAILED
    assert "Traceback" in capsys.readouterr().err


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
    model: str, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Exploration, "save", Mock(side_effect=SessionError("No space left on device")))
    assert main(["run", model, "step(x)", "--no-bench", "--save", str(tmp_path / "out.json")]) == EXIT_FAILED
    out, err = capsys.readouterr()
    assert out.startswith("step\n")
    assert "No space left on device" in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "{model}", "step(x"], EXIT_MISUSED, "is not Python"),
        (["run", "{model}", "stp(x)"], EXIT_MISUSED, "Did you mean 'step'"),
        (["run", "nowhere.py", "step(x)"], EXIT_MISUSED, "Cannot read nowhere.py"),
        (["run", "{model}", "step(x)", "--variants", "ful"], EXIT_MISUSED, "Did you mean 'full'"),
        (["run", "{model}", "step('text')"], EXIT_FAILED, "[call-raises] The call itself raises TypeError"),
        (["run", "{model}", "ends()", "--no-bench"], EXIT_FAILED, "[call-raises] The call itself raises SystemExit"),
        (["run", "{model}", "stops(x)"], EXIT_FAILED, "interrupted"),
        (["run", "{model}", "step(x)", "-c", "act:max_fusion_size=3"], EXIT_MISUSED, "No region is called 'act'"),
        (["run", "{model}", "step(x)", "-c", "act:max_fusion_sze=3"], EXIT_MISUSED, "Did you mean 'max_fusion_size'"),
        (["run", "{model}", "step(x)", "-r", "act=ops:aten.erf"], EXIT_MISUSED, "matches no operation of this call"),
        (["show", "nowhere.json"], EXIT_FAILED, "Cannot read nowhere.json"),
        (["show", "{model}"], EXIT_FAILED, "Only files saved as .json are read back"),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(
    model: str, capsys: Output, arguments: list[str], code: int, message: str
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
def test_arguments_that_cannot_be_read_exit_with_2(arguments: list[str], capsys: Output) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == EXIT_MISUSED
    assert "usage: regional-explorer" in capsys.readouterr().err


def test_an_error_of_the_file_names_its_line(tmp_path: Path, capsys: Output) -> None:
    assert main(["run", written(tmp_path / "broken_of_mine.py", "a = 1\nb = a / 0\n"), "f(x)"]) == EXIT_FAILED
    assert "broken_of_mine.py, line 2: ZeroDivisionError" in capsys.readouterr().err


def test_a_file_is_read_in_the_encoding_that_python_reads_it_in(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "encoded.py"
    for data in (b"\xef\xbb\xbfname = 'caf\xc3\xa9'\n", b"# coding: latin-1\nname = 'caf\xe9'\n"):
        path.write_bytes(data)
        assert execute(path, read_source(path))["name"] == "café"
    path.write_bytes(b"# coding: none\n")
    assert main(["run", str(path), "f(x)"]) == EXIT_MISUSED
    assert "Cannot read" in capsys.readouterr().err


@pytest.mark.parametrize("code", ["0", "1", ""])
def test_a_file_that_ends_the_program_is_told_what_to_do(tmp_path: Path, capsys: Output, code: str) -> None:
    plan = written(tmp_path / "plan.json", '{"kind": "plan"}')
    file = written(tmp_path / "ends_of_mine.py", f"import sys\ndef f(x): return x\nsys.exit({code})\n")
    for command in (["run"], ["check", plan]):
        assert main([*command, file, "f(1)"]) == EXIT_FAILED
        assert "ends_of_mine.py, line 3: the file ends the program here." in capsys.readouterr().err


def test_the_arguments_of_the_command_are_not_those_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        'import argparse, sys\np = argparse.ArgumentParser()\np.add_argument("--width", type=int, default=8)\n'
        "width, argv = p.parse_args().width, sys.argv\n"
    )
    file = tmp_path / "parses_of_mine.py"
    monkeypatch.setattr(sys, "argv", ["regional-explorer", "run", written(file, source), "f(x)"])
    names = execute(file, source)
    assert (names["width"], names["argv"]) == (8, [str(file)])
    assert sys.argv[1] == "run"


def test_what_was_found_is_printed_when_interrupted_and_a_failure_told(
    model: str, capsys: Output, replace_benchmark: ReplaceBenchmark
) -> None:
    replace_benchmark(Mock(side_effect=KeyboardInterrupt))
    assert main(["run", model, "step(x)"]) == EXIT_FAILED
    out, err = capsys.readouterr()
    assert out.startswith("step\n")
    assert "interrupted; the results so far are shown" in err
    replace_benchmark(Mock(side_effect=MeasureError("No variant could be measured.")))
    assert main(["run", model, "step(x)"]) == EXIT_FAILED
    assert "No variant could be measured." in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------------------- in CI


def save(session: Session, path: Path) -> str:
    return written(path, dump_session(session))


def test_compare_says_how_much_and_fails_beyond_the_limit(tmp_path: Path, capsys: Output) -> None:
    sessions = measured(1.5, 1), measured(1.25, 2)
    before, after = (save(one, tmp_path / f"{name}.json") for name, one in zip("ab", sessions, strict=True))
    assert main(["compare", before, after]) == EXIT_DONE
    out = capsys.readouterr().out
    speedups = [(one.timings[1].speedup or exactly(0.0)).value for one in sessions]
    assert speedups == pytest.approx([1.5, 1.25], rel=0.03)
    assert "A {:.3f}, B {:.3f}".format(*speedups) in out
    assert "% slower (99% interval of the change in time: +" in out
    assert main(["compare", before, after, "--fail-if-slower", "3%"]) == EXIT_NO
    assert "slower than A by more than 3.0%" in capsys.readouterr().err
    assert main(["compare", before, after, "--fail-if-slower", "0.5"]) == EXIT_DONE
    assert main(["compare", after, before, "--fail-if-slower", "3%"]) == EXIT_DONE
    assert "% faster" in capsys.readouterr().out


def test_compare_as_json(tmp_path: Path, capsys: Output) -> None:
    path = save(measured(1.5, 1), tmp_path / "a.json")
    assert main(["compare", path, path, "--json", "--fail-if-slower", "3%"]) == EXIT_DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["slowdown"], found["failed"]) == (pytest.approx(1.0), False)
    assert found["low"] < 1.0 < found["high"]


def test_what_cannot_be_compared_is_told(tmp_path: Path, capsys: Output) -> None:
    good = measured(1.5, 1)
    right = save(good, tmp_path / "a.json")
    assert good.conditions is not None
    wrong = (replace(one, numerics=NumericsVerdict.FAILED) for one in good.timings)
    few = (replace(one, median_s=Figure(1e-3, why="too few rounds (5)"), speedup=None) for one in good.timings)
    busy = (replace(one, speedup=Figure(1.5, why="the machine was too busy")) for one in good.timings)
    for other, code, message in (
        (replace(good, timings=tuple(wrong)), EXIT_NO, "The numerics of B failed"),
        (replace(good, timings=()), EXIT_FAILED, "B was not measured"),
        (
            replace(good, timings=tuple(few)),
            EXIT_FAILED,
            "No speedup to compare in B (too few rounds (5)): measure again with a larger --budget",
        ),
        (replace(good, timings=tuple(busy)), EXIT_FAILED, "No speedup to compare in B (the machine was too busy)"),
        (
            replace(good, conditions=replace(good.conditions, outdated=True)),
            EXIT_FAILED,
            "B was measured for another plan: its plan has changed since.",
        ),
    ):
        assert main(["compare", right, save(other, tmp_path / "b.json"), "--fail-if-slower", "3%"]) == code
        out, err = capsys.readouterr()
        assert message in (out if code == EXIT_NO else err)
        assert bool(out) == (code == EXIT_NO)


class ClosedPipe(io.StringIO):
    """What stdout and stderr are once their reader has left."""

    def write(self, _text: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise BrokenPipeError


def test_a_reader_that_leaves_does_not_change_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = save(measured(1.5, 1), tmp_path / "a.json"), save(measured(1.25, 2), tmp_path / "b.json")
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, ClosedPipe())
    assert main(["compare", before, after, "--fail-if-slower", "3%"]) == EXIT_NO
    assert sys.stdout is sys.stderr is None, "which Python would flush at exit, and exit with 120"


@pytest.mark.parametrize("text", ["three", "-3%", "100%", "1.5", ""])
def test_a_limit_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(RegionalExplorerError, match=r"such as 3% or 0\.03"):
        read_limit(text)
    path = save(measured(1.5, 1), tmp_path / "a.json")
    assert main(["compare", path, path, f"--fail-if-slower={text}"]) == EXIT_MISUSED


def checked(speedup: float, *, full: float | None = None, numerics: str = "ok") -> PlanCheck:
    """Return the check of a plan with this speedup over eager; ``full`` is that of torch.compile."""
    session = measured(speedup, 1)
    eager, regional = session.timings
    figure = Figure(speedup, speedup - 0.03, speedup + 0.03)
    timings = [eager, replace(regional, speedup=figure, verdict=Verdict.SLOWER if speedup < 1 else Verdict.FASTER)]
    if full is not None:
        whole = measured(full, 2).timings[1]
        timings.append(replace(whole, variant="full", numerics=NumericsVerdict(numerics)))
    return plan_check(replace(session, timings=tuple(timings)), "eager" if full is None else "torch.compile")


def test_a_check_says_what_the_plan_is_slower_than() -> None:
    assert str(checked(1.5)).splitlines()[::3] == ["The plan holds.", "against eager: 1.50× (1.47–1.53), faster"]
    slower = checked(0.8)
    assert str(slower).startswith("The plan holds, but is slower than eager.\n")
    assert "against eager: 0.80× (0.77–0.83), slower" in str(slower)
    assert (slower.holds, slower.slower_than) == (True, ("eager",))
    assert checked(1.5, full=1.2).slower_than == ()
    behind = checked(1.5, full=1.9)
    assert behind.slower_than == ("torch.compile",)
    assert "against torch.compile: 0." in str(behind)
    assert behind.as_json()["speeds"][1]["verdict"] == "slower"
    assert checked(0.8, full=1.1).slower_than == ("eager", "torch.compile")


def test_on_a_machine_too_busy_to_tell_no_plan_is_slower_than_torch_compile() -> None:
    session = measured(1.5, 1)
    timings = (*session.timings, replace(measured(1.9, 2).timings[1], variant="full"))
    assert plan_check(replace(session, timings=timings), "torch.compile").slower_than == ("torch.compile",)
    for number in (1, 2):
        busy = replace(timings[number], median_s=Figure(1e-3, why="the machine was too busy"))
        found = plan_check(replace(session, timings=(*timings[:number], busy, *timings[number + 1 :])), "torch.compile")
        assert (found.slower_than, found.speeds[1].verdict) == ((), "not enough data")


def test_a_speed_that_cannot_be_compared_says_why() -> None:
    wrong = checked(1.5, full=1.9, numerics="failed")
    assert str(wrong.speeds[1]) == "against torch.compile: not comparable: numerics failed"
    assert wrong.slower_than == ()
    unmeasured = plan_check(measured(1.5, 1), "torch.compile")
    assert str(unmeasured.speeds[1]) == "against torch.compile: not measured"
    assert str(unmeasured).startswith("The plan holds, but was not compared with torch.compile.\n")
    assert (unmeasured.holds, unmeasured.as_json()["not_compared"]) == (True, ("torch.compile",))


def test_a_plan_that_is_slower_fails_unless_that_is_allowed(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_saved_plan = create_autospec(checks.check_saved_plan, return_value=checked(0.8))
    monkeypatch.setattr(checks, "check_saved_plan", check_saved_plan)
    file = written(tmp_path / "f_of_mine.py", "def f(x):\n    return x\n")
    check = ["check", written(tmp_path / "plan.json", dump_plan(rx.Plan())), file, "f(3)"]
    assert main(check) == EXIT_NO
    out, err = capsys.readouterr()
    assert out.startswith("The plan holds, but is slower than eager.\n")
    assert err == "regional-explorer: the plan is slower than eager; --allow-slower accepts that.\n"
    assert main([*check, "--allow-slower", "--against", "torch.compile", "--budget", "9"]) == EXIT_DONE
    out, err = capsys.readouterr()
    assert out.startswith("The plan holds, but is slower than eager.\n")
    assert err == ""
    assert [call.kwargs for call in check_saved_plan.call_args_list] == [{}, {"against": "torch.compile", "budget": 9}]
    check_saved_plan.return_value = plan_check(measured(1.5, 1), "torch.compile")
    assert main([*check, "--against", "torch.compile"]) == EXIT_FAILED, "nobody knows whether it is slower"
    assert capsys.readouterr().err == (
        "regional-explorer: torch.compile could not be measured; --allow-slower accepts that.\n"
    )
    assert main([*check, "--against", "torch.compile", "--allow-slower"]) == EXIT_DONE


def test_a_full_device_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    path = save(measured(1.5, 1), tmp_path / "a.json")
    for arguments in (["show", path], ["compare", path, path, "--json"]):
        with Path("/dev/full").open("w") as full:
            command = [sys.executable, "-m", "regional_explorer.command.cli", *arguments]
            done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == EXIT_FAILED
        assert done.stderr == "regional-explorer: Cannot write the output: No space left on device.\n"


def test_the_version_is_told(capsys: Output) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == EXIT_DONE
    assert capsys.readouterr().out == f"regional-explorer {rx.__version__}\n"


def test_doctor_tells_what_works_and_remedies_for_the_rest(capsys: Output) -> None:
    assert main(["doctor", "--json"]) in (EXIT_DONE, EXIT_NO)
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["torch"]["found"] == torch.__version__
    assert {"Python", "C++ compiler", "GPU", "panel", "rx.explore and its tables"} <= found.keys()
    assert [name for name, one in found.items() if one["works"] and one["remedy"]] == []
    main(["doctor"])
    assert f"torch: {torch.__version__}" in capsys.readouterr().out


def test_doctor_says_what_to_install(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = importlib.metadata.version

    def version(package: str) -> str:
        if package == "pandas":
            raise importlib.metadata.PackageNotFoundError(package)
        return installed(package)

    monkeypatch.setattr("importlib.metadata.version", version)
    with torch._inductor.config.patch({"cpp.cxx": ("no-such-compiler",)}):
        assert main(["doctor"]) == EXIT_NO
    out = capsys.readouterr().out
    assert "no  rx.explore and its tables: pandas is not installed. pip install pandas\n" in out
    assert "no  C++ compiler: none that works. Inductor needs a C++ compiler" in out


def test_doctor_tells_that_torch_does_not_load(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, *_: object) -> None:
            if name == "torch":
                raise OSError("libtorch_cpu.so: cannot open shared object file")

    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    assert [(one.name, one.works, one.found) for one in checks._torch_findings()] == [
        ("torch", False, "libtorch_cpu.so: cannot open shared object file")
    ]


NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.{name} = nn.LayerNorm(8)

    def forward(self, x):
        y = self.{name}(x)
        return y.sin().sum()

net, x = Net(), torch.ones(4, 8)
"""


@pytest.fixture
def net(tmp_path: Path) -> list[str]:
    """The arguments of a command that takes a plan and a call of a file."""
    names: dict[str, Any] = {}
    exec(NET.format(name="norm"), names)  # noqa: S102 - the text above
    rx.explore(names["net"], (names["x"],)).mark("norm", modules="norm").save_plan(tmp_path / "plan.json")
    return [str(tmp_path / "plan.json"), written(tmp_path / "net_of_mine.py", NET.format(name="norm")), "net(x)"]


def test_a_plan_is_shown_as_a_change_of_the_source(net: list[str], capsys: Output) -> None:
    assert main(["source", *net]) == EXIT_DONE
    out = capsys.readouterr().out
    assert "+++ b/" in out
    assert "torch.fx.traceback.annotate" in out
    assert main(["source", *net, "--apply"]) == EXIT_FAILED
    assert "is not under version control" in capsys.readouterr().err


@pytest.mark.compiles
def test_a_plan_is_checked(net: list[str], capsys: Output) -> None:
    check = ["check", *net, "--budget", "0.05"]
    assert main([*check, "--allow-slower"]) == EXIT_DONE
    out, err = capsys.readouterr()
    first, *lines = out.splitlines()
    assert first.startswith("The plan holds")
    assert lines[:2] == ["compiled: 2 of 2 partitions", "numerics: ok"]
    assert [line.partition(":")[0] for line in lines[2:]] == ["against eager"]
    assert "compiling" in err
    written(Path(net[1]), NET.format(name="renamed"))
    assert main([*check, "--json", "--quiet"]) == EXIT_NO
    out, err = capsys.readouterr()
    assert err == "", "no progress"
    found = json.loads(out)
    assert found["holds"] is False
    assert "[region-empty] Region 'norm'" in found["problems"][0]
    assert main(["check", "no.json", *net[1:]]) == EXIT_FAILED
