"""The command line: its stdout, stderr and exit code."""

from __future__ import annotations

import dataclasses
import importlib.abc
import importlib.metadata
import io
import json
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest.mock import Mock, create_autospec

import pytest
import torch
from msgspec.structs import replace

import regional_explorer as rx
from regional_explorer.command import checks
from regional_explorer.command.checks import PlanCheck, plan_check
from regional_explorer.command.cli import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_MISUSED,
    EXIT_NO,
    EXIT_NO_VERDICT,
    execute,
    main,
    read_source,
)
from regional_explorer.errors import MeasureError, SessionError
from regional_explorer.exploration.exploration import Exploration
from regional_explorer.record.benchmark import NumericsVerdict, Verdict
from regional_explorer.record.figure import Figure, Noise, exactly
from regional_explorer.record.files import dump_plan, dump_session, load_session
from regional_explorer.record.plan import SelectorKind
from regional_explorer.record.session import Session
from tests.conftest import ReplaceBenchmark
from tests.shared.processes import ROOT, python
from tests.shared.sessions import measured_in_process as measured

Run = Callable[..., tuple[str, str]]

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
    return write_file(tmp_path / "model_of_mine.py", MODEL)


def write_file(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that has to end with an exit code; return what it wrote to stdout and to stderr."""

    def run(code: int, *arguments: str) -> tuple[str, str]:
        assert main(arguments) == code
        return capsys.readouterr()

    return run


def test_a_call_of_a_file_is_explored_saved_and_shown(model: str, tmp_path: Path, run: Run) -> None:
    saved = str(tmp_path / "out.json")
    marked = ["-r", "act=ops:aten.relu*", "-r", "a=lines:step:2", "-r", "b=lines:model_of_mine.py:13"]
    out, err = run(EXIT_DONE, "run", model, "step(x, k=2)", "--no-bench", *marked, "--save", saved)
    assert out.startswith("step: ")
    assert [row.split()[3] for row in out.splitlines() if ":" in row and row.split()[0] in "ab"] == ["2", "2"]
    assert "ops:aten.relu*" in out
    assert "capturing the call" in err
    assert "capturing" not in out
    assert f"Saved to {saved}." in err
    assert run(EXIT_DONE, "show", saved) == (out, "")
    as_json, _ = run(EXIT_DONE, "show", saved, "--json")
    assert load_session(as_json) == load_session(Path(saved))
    answer = rx.load(saved).answer
    assert run(EXIT_DONE, "show", saved, "--answer") == (answer.markdown, "")
    assert run(EXIT_DONE, "show", saved, "--answer", "--json") == (f"{answer.json}\n", "")
    program = (
        "import sys; sys.modules['torch'] = sys.modules['IPython'] = sys.modules['ipywidgets'] = None\n"
        f"from regional_explorer.command.cli import main; sys.exit(main(['show', {saved!r}]))"
    )
    assert python(program).out == out, "without torch"


def test_a_quiet_run_prints_no_progress_and_a_verbose_run_everything(model: str, tmp_path: Path, run: Run) -> None:
    out, err = run(EXIT_DONE, "run", model, "step(x)", "--no-bench", "--quiet", "--save", str(tmp_path / "x.json"))
    assert out.startswith("step: ")
    assert err == ""
    assert run(EXIT_FAILED, "run", model, "step('text')", "--quiet")[1].startswith("regional-explorer: [call-raises]")
    assert "Traceback" in run(EXIT_FAILED, "run", model, "step('text')", "--verbose")[1]


def test_unsaved_results_are_printed(model: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Exploration, "save", Mock(side_effect=SessionError("No space left on device")))
    out, err = run(EXIT_FAILED, "run", model, "step(x)", "--no-bench", "--save", str(tmp_path / "out.json"))
    assert out.startswith("step: ")
    assert "No space left on device" in err


@pytest.mark.parametrize(
    ("code", "message", "arguments"),
    [
        (EXIT_MISUSED, "is not Python", ["run", "{model}", "step(x"]),
        (EXIT_MISUSED, "Did you mean 'step'", ["run", "{model}", "stp(x)"]),
        (EXIT_MISUSED, "Cannot read nowhere.py", ["run", "nowhere.py", "step(x)"]),
        (EXIT_MISUSED, "Did you mean 'full'", ["run", "{model}", "step(x)", "--variants", "ful"]),
        (EXIT_FAILED, "[call-raises] The call itself raises TypeError", ["run", "{model}", "step('text')"]),
        (EXIT_FAILED, "[call-raises] The call itself raises SystemExit", ["run", "{model}", "ends()", "--no-bench"]),
        (EXIT_FAILED, "interrupted", ["run", "{model}", "stops(x)"]),
        (EXIT_MISUSED, "No region is called 'act'", ["run", "{model}", "step(x)", "-c", "act:max_fusion_size=3"]),
        (EXIT_MISUSED, "Did you mean 'max_fusion_size'", ["run", "{model}", "step(x)", "-c", "act:max_fusion_sze=3"]),
        (EXIT_MISUSED, "matches no operation of this call", ["run", "{model}", "step(x)", "-r", "act=ops:aten.erf"]),
        (EXIT_FAILED, "Cannot read nowhere.json", ["show", "nowhere.json"]),
        (EXIT_FAILED, "Only files saved as .json are read back", ["show", "{model}"]),
    ],
)
def test_a_mistake_ends_in_one_line_and_an_exit_code(
    model: str, run: Run, code: int, message: str, arguments: list[str]
) -> None:
    out, err = run(code, *(argument.format(model=model) for argument in arguments))
    last = err.splitlines()[-1]
    assert out == ""
    assert last.startswith("regional-explorer: ")
    assert message in last
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments", [[], ["run"], ["run", "a.py", "f(x)", "--budget", "no"], ["run", "a.py", "f(x)", "-o", "ex"]]
)
def test_arguments_that_cannot_be_read_exit_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=str(EXIT_MISUSED)):
        main(arguments)
    assert "usage: regional-explorer" in capsys.readouterr().err


def test_a_file_is_read_in_its_declared_encoding(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "encoded.py"
    for data in (b"\xef\xbb\xbfname = 'caf\xc3\xa9'\n", b"# coding: latin-1\nname = 'caf\xe9'\n"):
        path.write_bytes(data)
        assert execute(path, read_source(path))["name"] == "café"
    path.write_bytes(b"# coding: none\n")
    assert "Cannot read" in run(EXIT_MISUSED, "run", str(path), "f(x)")[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\nb = a / 0\n", "line 2: ZeroDivisionError"),
        *((f"import sys\nsys.exit({code})\n", "line 2: the file exits here.") for code in ("0", "1", "")),
    ],
)
def test_the_error_names_the_line_at_which_a_file_ends(tmp_path: Path, run: Run, text: str, message: str) -> None:
    plan, file = write_file(tmp_path / "plan.json", '{"kind": "plan"}'), write_file(tmp_path / "of_mine.py", text)
    for command in (["run"], ["check", plan]):
        assert f"of_mine.py, {message}" in run(EXIT_FAILED, *command, file, "f(1)")[1]


def test_a_file_does_not_see_the_commands_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        'import argparse, sys\np = argparse.ArgumentParser()\np.add_argument("--width", type=int, default=8)\n'
        "width, argv = p.parse_args().width, sys.argv\n"
    )
    file = tmp_path / "parses_of_mine.py"
    monkeypatch.setattr(sys, "argv", ["regional-explorer", "run", write_file(file, source), "f(x)"])
    names = execute(file, source)
    assert (names["width"], names["argv"]) == (8, [str(file)])
    assert sys.argv[1] == "run"


def test_interrupt_prints_results(model: str, run: Run, replace_benchmark: ReplaceBenchmark) -> None:
    replace_benchmark(Mock(side_effect=KeyboardInterrupt))
    out, err = run(EXIT_FAILED, "run", model, "step(x)")
    assert out.startswith("step: ")
    assert "interrupted; the results so far are shown" in err
    replace_benchmark(Mock(side_effect=MeasureError("No variant could be measured.")))
    assert "No variant could be measured." in run(EXIT_FAILED, "run", model, "step(x)")[1]


# ---------------------------------------------------------------------------------------------------------------- in CI


def save(session: Session, path: Path) -> str:
    return write_file(path, dump_session(session))


@pytest.fixture
def saved_paths(tmp_path: Path) -> tuple[str, str]:
    """Return the paths of two sessions, with 1.5 and 1.25 times the speed of eager."""
    return save(measured(1.5, 1), tmp_path / "before.json"), save(measured(1.25, 2), tmp_path / "after.json")


def test_compare_prints_the_change_and_fails_beyond_the_limit(saved_paths: tuple[str, str], run: Run) -> None:
    before, after = saved_paths
    out, _ = run(EXIT_DONE, "compare", before, after)
    speedups = [(load_session(Path(path)).timings[1].speedup or exactly(0.0)).value for path in saved_paths]
    assert speedups == pytest.approx([1.5, 1.25], rel=0.03)
    assert "A {:.3f}, B {:.3f}".format(*speedups) in out
    assert "% slower (99% interval of the change in time: +" in out
    assert "slower than A by more than 3.0%" in run(EXIT_NO, "compare", before, after, "--fail-if-slower", "3%")[1]
    run(EXIT_DONE, "compare", before, after, "--fail-if-slower", "0.5")
    assert "% faster" in run(EXIT_DONE, "compare", after, before, "--fail-if-slower", "3%")[0]
    assert "B is as fast as A (99% interval" in run(EXIT_DONE, "compare", before, before)[0]
    found = json.loads(run(EXIT_DONE, "compare", before, before, "--json", "--fail-if-slower", "3%")[0])
    assert (found["slowdown"], found["failed"]) == (pytest.approx(1.0), False)
    assert found["low"] < 1.0 < found["high"]


def test_incomparable_files_are_reported(saved_paths: tuple[str, str], tmp_path: Path, run: Run) -> None:
    good = measured(1.5, 1)
    assert good.conditions is not None
    few, busy = Figure(1e-3, why="too few rounds (5)"), Figure(1.5, why="the machine was too busy")
    outdated, unknown = replace(good.conditions, outdated=True), "The speedup of B"

    def changed(**fields: Any) -> Session:
        return replace(good, timings=tuple(replace(timing, **fields) for timing in good.timings))

    def compare(code: int, other: Session) -> tuple[str, str]:
        return run(code, "compare", saved_paths[0], save(other, tmp_path / "b.json"), "--fail-if-slower", "3%")

    assert "The numerics of B failed" in compare(EXIT_NO, changed(numerics=NumericsVerdict.FAILED))[0]
    measure_again = f"{unknown} (too few rounds (5)) has no interval, so it cannot be compared: measure again with a"
    for code, other, message in (
        (EXIT_FAILED, replace(good, timings=()), "B was not measured"),
        (EXIT_NO_VERDICT, changed(median_s=few, speedup=None), measure_again),
        (EXIT_NO_VERDICT, changed(speedup=busy), f"{unknown} (the machine was too busy)"),
        (
            EXIT_FAILED,
            replace(good, conditions=outdated),
            "B was measured for another plan, before a change.",
        ),
    ):
        out, err = compare(code, other)
        assert message in err
        assert out == ""


BUSY = Noise(rounds=100, others=1.5, cores=2)


def with_noise(session: Session) -> Session:
    assert session.conditions is not None
    return replace(session, conditions=replace(session.conditions, noise=BUSY))


def with_speedup(value: float, low: float, high: float) -> Session:
    """Return a session in which the plan has this speedup, with this interval."""
    session = measured(value, 1)
    timings = (session.timings[0], replace(session.timings[1], speedup=Figure(value, low, high)))
    return replace(session, timings=timings)


NARROW = with_speedup(1.0, 0.995, 1.005)
GATES = {
    "equal": (NARROW, NARROW, EXIT_DONE, ""),
    "slower": (NARROW, with_speedup(0.9, 0.895, 0.905), EXIT_NO, "B is slower than A by more than 3.0%"),
    "slower, both busy": (
        with_noise(NARROW),
        with_noise(with_speedup(0.9, 0.895, 0.905)),
        EXIT_NO_VERDICT,
        "3.0%: A: The machine was busy: other processes used 1.5 of 2 cores. B: The machine was busy",
    ),
    "slower, the first busy": (
        with_noise(NARROW),
        with_speedup(0.9, 0.895, 0.905),
        EXIT_NO_VERDICT,
        "A: The machine was busy",
    ),
    "slower, the second busy": (
        NARROW,
        with_noise(with_speedup(0.9, 0.895, 0.905)),
        EXIT_NO_VERDICT,
        "B: The machine was busy",
    ),
    "within the limit, busy": (NARROW, with_noise(with_speedup(0.99, 0.985, 0.995)), EXIT_DONE, ""),
    "faster, busy": (NARROW, with_noise(with_speedup(1.2, 1.19, 1.21)), EXIT_DONE, ""),
    "across the limit": (NARROW, with_speedup(0.98, 0.96, 1.0), EXIT_DONE, ""),
    "across the limit, wide": (
        NARROW,
        with_speedup(1.0, 0.9, 1.1),
        EXIT_NO_VERDICT,
        "is wider than the limit of 3.0%: measure with a larger --budget",
    ),
    "beyond the limit, wide": (NARROW, with_speedup(0.5, 0.4, 0.6), EXIT_NO, "B is slower than A"),
}


@pytest.mark.parametrize(("before", "after", "code", "message"), GATES.values(), ids=GATES)
def test_compare_does_not_fail_for_a_busy_machine_or_a_wide_interval(
    before: Session, after: Session, code: int, message: str, tmp_path: Path, run: Run
) -> None:
    files = save(before, tmp_path / "a.json"), save(after, tmp_path / "b.json")
    out, err = run(code, "compare", *files, "--fail-if-slower", "3%")
    assert message in err
    assert (err == "") is (code == EXIT_DONE)
    assert out.startswith("Speedup over eager: A ")
    found = json.loads(run(code, "compare", *files, "--fail-if-slower", "3%", "--json")[0])
    assert found["failed"] is (code == EXIT_NO)
    assert bool(found["no_verdict"]) is (code == EXIT_NO_VERDICT)
    run(EXIT_DONE, "compare", *files)


def test_without_a_difference_a_limit_of_zero_holds(tmp_path: Path, run: Run) -> None:
    files = save(NARROW, tmp_path / "a.json"), save(NARROW, tmp_path / "b.json")
    run(EXIT_DONE, "compare", *files, "--fail-if-slower", "0")


class ClosedPipe(io.StringIO):
    """Stdout or stderr after its reader has closed the pipe."""

    def write(self, _text: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise BrokenPipeError


def test_closed_pipe_changes_no_exit_code(
    model: str, saved_paths: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.json"
    for command, code in (
        (["compare", *saved_paths, "--fail-if-slower", "3%"], EXIT_NO),
        (["run", model, "step(x)", "--no-bench", "--json", "--save", str(path)], EXIT_DONE),
    ):
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, ClosedPipe())
        assert main(command) == code
        assert sys.stdout is sys.stderr is None, "which Python would flush at exit, and exit with 120"
    assert load_session(path).title == "step"


@pytest.mark.parametrize("text", ["three", "-3%", "100%", "1.5", ""])
def test_an_invalid_limit_is_refused(text: str, saved_paths: tuple[str, str], run: Run) -> None:
    assert "such as 3% or 0.03" in run(EXIT_MISUSED, "compare", *saved_paths, f"--fail-if-slower={text}")[1]


def sample_check(speedup: float, *, full: float | None = None, numerics: str = "ok") -> PlanCheck:
    """Return the check of a plan with this speedup over eager; ``full`` is the speedup of torch.compile."""
    session = measured(speedup, 1)
    eager, regional = session.timings
    figure = Figure(speedup, speedup - 0.03, speedup + 0.03)
    timings = [eager, replace(regional, speedup=figure, verdict=Verdict.SLOWER if speedup < 1 else Verdict.FASTER)]
    if full is not None:
        whole = measured(full, 2).timings[1]
        timings.append(replace(whole, variant="full", numerics=NumericsVerdict(numerics)))
    return plan_check(replace(session, timings=tuple(timings)), "eager" if full is None else "torch.compile")


def test_check_names_the_faster_variant() -> None:
    assert str(sample_check(1.5)).splitlines()[::3] == ["The plan holds.", "1.50× as fast as eager (1.47–1.53)"]
    slower = sample_check(0.8)
    assert str(slower).startswith("The plan holds, but is slower than eager.\n")
    assert "20 % slower than eager (17–23)" in str(slower)
    assert (slower.holds, slower.slower_than) == (True, ("eager",))
    assert sample_check(1.5, full=1.2).slower_than == ()
    behind = sample_check(1.5, full=1.9)
    assert behind.slower_than == ("torch.compile",)
    assert "19 % slower than torch.compile" in str(behind)
    assert behind.as_json()["speeds"][1]["verdict"] == "slower"
    assert sample_check(0.8, full=1.1).slower_than == ("eager", "torch.compile")


def test_a_busy_machine_gives_no_slower_verdict() -> None:
    session = measured(1.5, 1)
    timings = (*session.timings, replace(measured(1.9, 2).timings[1], variant="full"))
    assert plan_check(replace(session, timings=timings), "torch.compile").slower_than == ("torch.compile",)
    for number in (1, 2):
        busy = replace(timings[number], median_s=Figure(1e-3, why="the machine was too busy"))
        found = plan_check(replace(session, timings=(*timings[:number], busy, *timings[number + 1 :])), "torch.compile")
        assert (found.slower_than, found.speeds[1].verdict) == ((), "not enough data")


def busy_check(**given: Any) -> PlanCheck:
    """Return the check of a plan that is slower in all samples, on a busy machine."""
    return dataclasses.replace(sample_check(0.8, **given), busy=BUSY.sentence)


def unsure_check(verdict: Verdict) -> PlanCheck:
    session = measured(1.0, 1)
    timings = (session.timings[0], replace(session.timings[1], verdict=verdict))
    return plan_check(replace(session, timings=timings), "eager")


@pytest.mark.parametrize(
    "found",
    [busy_check(), busy_check(full=1.1), *map(unsure_check, (Verdict.BUSY, Verdict.UNKNOWN, Verdict.INCONCLUSIVE))],
    ids=["slower, busy", "slower than both, busy", "busy", "too few", "inconclusive"],
)
def test_an_unsure_check_has_no_verdict(
    found: PlanCheck, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "check_saved_plan", create_autospec(checks.check_saved_plan, return_value=found))
    file = write_file(tmp_path / "f_of_mine.py", "def f(x):\n    return x\n")
    check = ["check", write_file(tmp_path / "plan.json", dump_plan(rx.Plan())), file, "f(3)"]
    out, err = run(EXIT_NO_VERDICT, *check)
    assert out.startswith("The plan holds, but there is no verdict against eager")
    assert (BUSY.sentence in out) is bool(found.busy)
    assert "no verdict on whether the plan is slower than eager" in err
    assert json.loads(run(EXIT_NO_VERDICT, *check, "--json")[0])["slower_than"] == []
    assert run(EXIT_DONE, *check, "--allow-slower") == (out, "")


def test_a_check_says_how_busy_the_machine_was() -> None:
    assert plan_check(with_noise(measured(0.8, 1)), "eager").busy == BUSY.sentence
    assert sample_check(0.8).busy == ""


def test_a_check_says_why_a_speed_cannot_be_compared() -> None:
    wrong = sample_check(1.5, full=1.9, numerics="failed")
    assert "The results of torch.compile are wrong, so there is no speed to compare." in str(wrong).splitlines()
    assert wrong.slower_than == ()
    unmeasured = plan_check(measured(1.5, 1), "torch.compile")
    assert "torch.compile was not measured." in str(unmeasured).splitlines()
    assert str(unmeasured).startswith("The plan holds, but was not compared with torch.compile.\n")
    assert (unmeasured.holds, unmeasured.as_json()["not_compared"]) == (True, ("torch.compile",))


def test_a_plan_that_is_slower_fails_unless_that_is_allowed(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_saved_plan = create_autospec(checks.check_saved_plan, return_value=sample_check(0.8))
    monkeypatch.setattr(checks, "check_saved_plan", check_saved_plan)
    file = write_file(tmp_path / "f_of_mine.py", "def f(x):\n    return x\n")
    check = ["check", write_file(tmp_path / "plan.json", dump_plan(rx.Plan())), file, "f(3)"]
    against = [*check, "--against", "torch.compile"]
    out, err = run(EXIT_NO, *check)
    assert out.startswith("The plan holds, but is slower than eager.\n")
    assert err == "regional-explorer: the plan is slower than eager; --allow-slower accepts that.\n"
    assert run(EXIT_DONE, *against, "--allow-slower", "--budget", "9") == (out, "")
    assert [call.kwargs for call in check_saved_plan.call_args_list] == [{}, {"against": "torch.compile", "budget": 9}]
    check_saved_plan.return_value = plan_check(measured(1.5, 1), "torch.compile")
    _, err = run(EXIT_FAILED, *against)
    assert err == "regional-explorer: torch.compile could not be measured; --allow-slower accepts that.\n"
    run(EXIT_DONE, *against, "--allow-slower")


def test_a_full_disk_ends_in_one_line_and_an_exit_code(saved_paths: tuple[str, str]) -> None:
    for arguments in (["show", saved_paths[0]], ["compare", *saved_paths, "--json"]):
        with Path("/dev/full").open("w") as full:
            command = [sys.executable, "-m", "regional_explorer.command.cli", *arguments]
            done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == EXIT_FAILED
        assert done.stderr == "regional-explorer: Cannot write the output: No space left on device.\n"


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=str(EXIT_DONE)):
        main(["--version"])
    assert capsys.readouterr().out == f"regional-explorer {rx.__version__}\n"


def test_doctor_lists_checks_and_remedies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) in (EXIT_DONE, EXIT_NO)
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["torch"]["found"] == torch.__version__
    assert {"Python", "C++ compiler", "GPU", "panel", "rx.explore and its tables"} <= found.keys()
    assert [name for name, one in found.items() if one["works"] and one["remedy"]] == []


def test_doctor_names_packages_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = importlib.metadata.version

    def version(package: str) -> str:
        if package == "pandas":
            raise importlib.metadata.PackageNotFoundError(package)
        return installed(package)

    monkeypatch.setattr("importlib.metadata.version", version)
    with torch._inductor.config.patch({"cpp.cxx": ("no-such-compiler",)}):
        out, _ = run(EXIT_NO, "doctor")
    assert f"ok  torch: {torch.__version__}\n" in out
    assert "no  rx.explore and its tables: pandas is not installed. pip install pandas\n" in out
    assert "no  C++ compiler: no working compiler. Inductor needs a C++ compiler" in out


def test_doctor_reports_a_torch_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
            return ModuleSpec(name, self) if name == "torch" else None

        def exec_module(self, _module: object) -> None:
            raise OSError("libtorch_cpu.so: cannot open shared object file")

    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    (found,) = [one for one in checks.examine() if one.name == "torch"]
    assert (found.works, found.found) == (False, "libtorch_cpu.so: cannot open shared object file")


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
def plan_and_call(tmp_path: Path) -> list[str]:
    """Return the arguments of a command that takes a plan and a call of a file."""
    names: dict[str, Any] = {}
    exec(NET.format(name="norm"), names)  # noqa: S102 - the text above
    rx.explore(names["net"], (names["x"],)).mark("norm", modules="norm").save_plan(tmp_path / "plan.json")
    return [str(tmp_path / "plan.json"), write_file(tmp_path / "net_of_mine.py", NET.format(name="norm")), "net(x)"]


def test_a_plan_is_shown_as_a_change_of_the_source(plan_and_call: list[str], run: Run) -> None:
    out, _ = run(EXIT_DONE, "source", *plan_and_call)
    assert "+++ b/" in out
    assert "torch.fx.traceback.annotate" in out
    assert "is not under version control" in run(EXIT_FAILED, "source", *plan_and_call, "--apply")[1]


@pytest.mark.compiles
def test_a_plan_is_checked(plan_and_call: list[str], run: Run) -> None:
    check = ["check", *plan_and_call, "--budget", "0.05"]
    out, err = run(EXIT_DONE, *check, "--allow-slower")
    first, *lines = out.splitlines()
    assert first.startswith("The plan holds")
    assert lines[:2] == ["compiled: 2 of 2 partitions", "numerics: ok"]
    assert len(lines[2:]) == 1
    assert "eager" in lines[2]
    assert "compiling" in err
    write_file(Path(plan_and_call[1]), NET.format(name="renamed"))
    out, err = run(EXIT_NO, *check, "--json", "--quiet")
    assert err == "", "no progress"
    found = json.loads(out)
    assert found["holds"] is False
    assert "[region-empty] Region 'norm'" in found["problems"][0]
    run(EXIT_FAILED, "check", "no.json", *plan_and_call[1:])


RAISES = """
import torch

def step(x):
    return (x / 0).relu().sum()

x = torch.ones(8)
"""


@pytest.mark.compiles
def test_raising_plan_does_not_hold(tmp_path: Path, run: Run) -> None:
    plan = rx.Plan((rx.Region("r", (rx.Selector(SelectorKind.OPS, ("aten.relu*",)),), {"nan_asserts": True}),))
    file = write_file(tmp_path / "raises_of_mine.py", RAISES)
    check = ["check", write_file(tmp_path / "plan.json", dump_plan(plan)), file, "step(x)", "--budget", "0.05"]
    out, err = run(EXIT_NO, *check, "--allow-slower", "--quiet")
    assert out.startswith("The plan does not hold.\n")
    assert "[plan-failed] Variant 'regional' raised" in out
    assert err == ""
