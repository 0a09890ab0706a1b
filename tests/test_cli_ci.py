"""The command line in CI: compare, check, doctor, and JSON output."""

from __future__ import annotations

import importlib.metadata
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

import regional_explorer as rx
from regional_explorer.command import checks
from regional_explorer.command.checks import PlanCheck, compare_speed, plan_check, read_limit
from regional_explorer.command.cli import EXIT_DONE, EXIT_FAILED, EXIT_MISUSED, EXIT_NO, main
from regional_explorer.errors import RegionalExplorerError, SessionError
from regional_explorer.record.json_file import dump_plan, dump_session, load_session
from regional_explorer.record.session import Session
from regional_explorer.record.timing import NumericsVerdict, Phase, Verdict
from tests.shared import sessions

ROOT = Path(__file__).resolve().parent.parent
Output = pytest.CaptureFixture[str]


def measured(speedup: float, seed: int, *, machine: float = 1.0, spread: float = 0.04) -> Session:
    """Return a session of 60 rounds; ``machine`` is how slow all of it was, which a comparison must not see."""
    noise = np.random.default_rng(seed).normal(1.0, spread, (2, 60))
    eager, regional = machine * 1e-3 * noise[0], machine * 1e-3 * noise[1] / speedup
    base = sessions.measured()
    timings = tuple(
        replace(
            sessions.timing(variant, float(np.median(samples)), None if variant == "eager" else speedup),
            phase=Phase.FORWARD,
            samples_s=tuple(map(float, samples)),
        )
        for variant, samples in (("eager", eager), ("regional", regional))
    )
    return replace(base, grad=False, timings=timings)


def save(session: Session, path: Path) -> str:
    path.write_text(dump_session(session), encoding="utf-8")
    return str(path)


def test_equal_sessions_rarely_fail_and_slower_ones_do() -> None:
    equal = [compare_speed(measured(1.3, 2 * n), measured(1.3, 2 * n + 1, machine=1.5)) for n in range(200)]
    assert sum(found.is_slower(0.03) for found in equal) <= 2
    slower = [compare_speed(measured(1.3, 2 * n), measured(1.3 / 1.09, 2 * n + 1)) for n in range(40)]
    assert sum(found.is_slower(0.03) for found in slower) >= 36


def test_compare_says_how_much_and_fails_beyond_the_limit(tmp_path: Path, capsys: Output) -> None:
    before, after = save(measured(1.5, 1), tmp_path / "a.json"), save(measured(1.25, 2), tmp_path / "b.json")
    assert main(["compare", before, after]) == EXIT_DONE
    out = capsys.readouterr().out
    assert "A 1.500, B 1.250" in out
    assert "% slower (99% interval of the change in time: +" in out
    assert main(["compare", before, after, "--fail-if-slower", "3%"]) == EXIT_NO
    assert "slower than A by more than 3.0%" in capsys.readouterr().err
    assert main(["compare", before, after, "--fail-if-slower", "0.5"]) == EXIT_DONE
    assert main(["compare", after, before, "--fail-if-slower", "3%"]) == EXIT_DONE
    assert "% faster" in capsys.readouterr().out


def test_a_session_of_too_few_rounds_is_named(tmp_path: Path, capsys: Output) -> None:
    few = measured(1.5, 2)
    few = replace(few, timings=tuple(replace(one, samples_s=one.samples_s[:5], speedup=None) for one in few.timings))
    before, after = save(measured(1.5, 1), tmp_path / "a.json"), save(few, tmp_path / "b.json")
    assert main(["compare", before, after, "--fail-if-slower", "3%"]) == EXIT_FAILED
    assert "Too few rounds to compare in B: measure again with a larger --budget." in capsys.readouterr().err


def test_compare_as_json(tmp_path: Path, capsys: Output) -> None:
    path = save(measured(1.5, 1), tmp_path / "a.json")
    assert main(["compare", path, path, "--json", "--fail-if-slower", "3%"]) == EXIT_DONE
    found = json.loads(capsys.readouterr().out)
    assert found["slowdown"] == pytest.approx(1.0)
    assert found["low"] < 1.0 < found["high"]
    assert found["failed"] is False


def test_a_wrong_session_fails_and_an_unmeasured_one_is_refused(tmp_path: Path, capsys: Output) -> None:
    good = measured(1.5, 1)
    timings = tuple(replace(one, numerics=NumericsVerdict.FAILED) for one in good.timings)
    wrong = save(replace(good, timings=timings), tmp_path / "wrong.json")
    right = save(good, tmp_path / "a.json")
    assert main(["compare", right, wrong, "--fail-if-slower", "3%"]) == EXIT_NO
    assert "The numerics of B failed" in capsys.readouterr().out
    with pytest.raises(SessionError, match="B was not measured"):
        compare_speed(good, replace(good, timings=()))
    assert main(["compare", right, save(replace(good, timings=()), tmp_path / "b.json")]) == EXIT_FAILED


def test_a_session_of_another_plan_is_refused(tmp_path: Path, capsys: Output) -> None:
    good = measured(1.5, 1)
    assert good.conditions is not None
    changed = replace(good, conditions=replace(good.conditions, outdated=True))
    right, wrong = save(good, tmp_path / "a.json"), save(changed, tmp_path / "b.json")
    assert main(["compare", right, wrong, "--fail-if-slower", "3%"]) == EXIT_FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert "B was measured for another plan: its plan has changed since." in err


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
    timings = [eager, replace(regional, verdict=Verdict.SLOWER if speedup < 1 else Verdict.FASTER)]
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
    assert "against torch.compile: 0.7" in str(behind)
    assert behind.as_json()["speeds"][1]["verdict"] == "slower"
    assert checked(0.8, full=1.1).slower_than == ("eager", "torch.compile")


def test_a_speed_that_cannot_be_compared_says_why() -> None:
    wrong = checked(1.5, full=1.9, numerics="failed")
    assert str(wrong.speeds[1]) == "against torch.compile: not comparable: numerics failed"
    assert wrong.slower_than == ()
    unmeasured = plan_check(measured(1.5, 1), "torch.compile")
    assert str(unmeasured.speeds[1]) == "against torch.compile: not measured"


@pytest.mark.usefixtures("own_path")
def test_a_plan_that_is_slower_fails_unless_that_is_allowed(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, float]] = []

    defaults = checks.check_saved_plan.__kwdefaults__ or {}

    def check_saved_plan(*_: object, **given: Any) -> PlanCheck:
        options = {**defaults, **given}
        asked.append((options["against"], options["budget"]))
        return checked(0.8)

    monkeypatch.setattr(checks, "check_saved_plan", check_saved_plan)
    file, plan = tmp_path / "f_of_mine.py", tmp_path / "plan.json"
    file.write_text("def f(x):\n    return x\n", encoding="utf-8")
    plan.write_text(dump_plan(rx.Plan()), encoding="utf-8")
    check = ["check", str(plan), str(file), "f(3)"]
    assert main(check) == EXIT_NO
    out, err = capsys.readouterr()
    assert out.startswith("The plan holds, but is slower than eager.\n")
    assert err == "regional-explorer: the plan is slower than eager; --allow-slower accepts that.\n"
    assert main([*check, "--allow-slower", "--against", "torch.compile", "--budget", "9"]) == EXIT_DONE
    out, err = capsys.readouterr()
    assert out.startswith("The plan holds, but is slower than eager.\n")
    assert err == ""
    assert asked == [("eager", 5.0), ("torch.compile", 9.0)]


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


def test_show_as_json(tmp_path: Path, capsys: Output) -> None:
    session = sessions.measured()
    assert main(["show", save(session, tmp_path / "a.json"), "--json"]) == EXIT_DONE
    (tmp_path / "again.json").write_text(capsys.readouterr().out, encoding="utf-8")
    assert dump_session(load_session(tmp_path / "again.json")) == dump_session(session)


def test_doctor_tells_what_works(capsys: Output) -> None:
    assert main(["doctor", "--json"]) in (EXIT_DONE, EXIT_NO)
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["torch"]["found"] == torch.__version__
    assert {"Python", "C++ compiler", "GPU", "panel", "rx.explore and its tables"} <= found.keys()
    main(["doctor"])
    assert f"torch: {torch.__version__}" in capsys.readouterr().out


def test_doctor_has_a_remedy_for_nothing_that_works(capsys: Output) -> None:
    main(["doctor", "--json"])
    assert [one["name"] for one in json.loads(capsys.readouterr().out) if one["works"] and one["remedy"]] == []


def test_doctor_says_that_exploring_needs_pandas(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = importlib.metadata.version

    def version(package: str) -> str:
        if package == "pandas":
            raise importlib.metadata.PackageNotFoundError(package)
        return installed(package)

    monkeypatch.setattr("importlib.metadata.version", version)
    assert main(["doctor"]) == EXIT_NO
    assert "no  rx.explore and its tables: pandas is not installed. pip install pandas\n" in capsys.readouterr().out


def test_doctor_without_a_compiler_says_what_to_install(capsys: Output) -> None:
    with torch._inductor.config.patch({"cpp.cxx": ("no-such-compiler",)}):
        assert main(["doctor"]) == EXIT_NO
    assert "no  C++ compiler: none that works. Inductor needs a C++ compiler" in capsys.readouterr().out


MODEL = """
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


@pytest.mark.compiles
@pytest.mark.usefixtures("own_path")
def test_a_plan_is_shown_as_a_change_of_the_source(tmp_path: Path, capsys: Output) -> None:
    file, plan = tmp_path / "net_of_mine.py", tmp_path / "plan.json"
    file.write_text(MODEL.format(name="norm"), encoding="utf-8")
    names: dict[str, object] = {}
    exec(file.read_text(encoding="utf-8"), names)  # noqa: S102 - the text above
    rx.explore(names["net"], (names["x"],)).mark("norm", modules="norm").save_plan(plan)  # type: ignore[arg-type]
    assert main(["source", str(plan), str(file), "net(x)"]) == EXIT_DONE
    out = capsys.readouterr().out
    assert "+++ b/" in out
    assert "torch.fx.traceback.annotate" in out
    assert main(["source", str(plan), str(file), "net(x)", "--apply"]) == EXIT_FAILED
    assert "is not under version control" in capsys.readouterr().err


@pytest.mark.usefixtures("own_path")
def test_a_plan_is_checked(tmp_path: Path, capsys: Output) -> None:
    file, plan = tmp_path / "net_of_mine.py", tmp_path / "plan.json"
    file.write_text(MODEL.format(name="norm"), encoding="utf-8")
    names: dict[str, object] = {}
    exec(file.read_text(encoding="utf-8"), names)  # noqa: S102 - the text above
    rx.explore(names["net"], (names["x"],)).mark("norm", modules="norm").save_plan(plan)  # type: ignore[arg-type]
    check = ["check", str(plan), str(file), "net(x)", "--budget", "0.05"]
    assert main([*check, "--allow-slower"]) == EXIT_DONE
    out, err = capsys.readouterr()
    first, *lines = out.splitlines()
    assert first.startswith("The plan holds")
    assert lines[:2] == ["compiled: 2 of 2 partitions", "numerics: ok"]
    assert [line.partition(":")[0] for line in lines[2:]] == ["against eager"]
    assert "compiling" in err
    file.write_text(MODEL.format(name="renamed"), encoding="utf-8")
    assert main([*check, "--json", "--quiet"]) == EXIT_NO
    out, err = capsys.readouterr()
    assert err == "", "no progress"
    found = json.loads(out)
    assert found["holds"] is False
    assert "[region-empty] Region 'norm'" in found["problems"][0]
    assert main(["check", str(tmp_path / "no.json"), str(file), "net(x)"]) == EXIT_FAILED
