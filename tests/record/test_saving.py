"""Saving: a file is complete or unchanged, and a spreadsheet that opens the CSV runs nothing."""

from __future__ import annotations

import csv
import errno
import io
import os
import resource
import signal
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from msgspec.structs import replace

import regional_explorer as rx
from regional_explorer.diagnostics.measured import plan_diagnostics, slower_speeds
from regional_explorer.errors import PlanError, RegionalExplorerError, SessionError
from regional_explorer.exploration import exploration
from regional_explorer.exploration.results import ENDINGS, save
from regional_explorer.record.benchmark import Timing, Verdict
from regional_explorer.record.diagnostic import Severity
from regional_explorer.record.environment import Environment
from regional_explorer.record.files import load_plan_file, save_plan
from regional_explorer.record.plan import Plan
from regional_explorer.record.plan_file import ExplorationRecord, slower_when_explored
from tests.shared import sessions


@contextmanager
def full_disk() -> Iterator[None]:
    """Let the system refuse to write more than 100 bytes to a file."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("name", [*(f"x{ending}" for ending in ENDINGS), "plan.json"])
def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, name: str) -> None:
    session = sessions.measured()
    write = partial(save_plan, session.plan) if name == "plan.json" else partial(save, session)
    before = write(tmp_path / name).read_bytes()
    with full_disk(), pytest.raises(RegionalExplorerError, match=os.strerror(errno.EFBIG)):
        write(tmp_path / name)
    (left,) = tmp_path.iterdir()
    assert left.read_bytes() == before


def test_an_interrupt_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(sessions.measured(), tmp_path / "x.json")
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        save(sessions.training_session(), path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == before


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_new_files_have_default_permissions_replaced_ones_keep_theirs(
    mask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All threads share the umask: while one changes it, a file of another thread would be open to everybody."""
    before = os.umask(mask)
    try:
        with monkeypatch.context() as patched:
            patched.setattr("os.umask", lambda mask: pytest.fail(f"the umask is set to {mask:o}"))
            path = save(sessions.measured(), tmp_path / "x.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    path.chmod(0o640)
    save(sessions.measured(), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_stays_a_link_and_a_pipe_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    link, real, pipe = tmp_path / "x.json", tmp_path / "inner" / "real.json", tmp_path / "x.csv"
    link.symlink_to(real)
    for _ in range(2):
        save(sessions.measured(), link)
        assert link.is_symlink()
        assert real.stat().st_size > 100
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    save(sessions.measured(), pipe)
    assert os.read(reader, 1 << 16).startswith(b"variant,")
    os.close(reader)
    assert pipe.is_fifo()


def test_unwritable_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    for path, message in (
        (tmp_path / "nowhere" / "x.json", "there is no directory"),
        (tmp_path / "folder.json", "it is a directory"),
        (tmp_path / f"{300 * 'x'}.json", "Cannot write"),
        (f"{tmp_path}/a\0b.json", "Cannot write"),
        ("", "Give the path of a file"),
        (3, "Give the path of a file"),
        (None, "Give the path of a file"),
    ):
        with pytest.raises(SessionError, match=message):
            save(sessions.measured(), path)  # type: ignore[arg-type]
        with pytest.raises(PlanError, match=message):
            save_plan(Plan(), path)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", sessions.HOSTILE)
def test_hostile_names_can_be_written(tmp_path: Path, text: str) -> None:
    for ending in ("json", "html", "svg", "csv"):
        assert save(sessions.hostile_session(text), tmp_path / f"x.{ending}").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1+1", "'+1+1"),
        ("-1+1", "'-1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1+1", "'=1+1"),
        ("\r\n=1+1", "'=1+1"),
        ("\x00=1+1", "'=1+1"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("a\x1b[31m\x00b\nc", "a[31mb c"),
        ("-1.5", "-1.5"),
        ("+2e-3", "+2e-3"),
        ("aot_eager", "aot_eager"),
        ("noisy: 3 %, =1+1", "noisy: 3 %, =1+1"),
        ("\ud800", ""),
    ],
)
def test_no_cell_of_the_csv_is_run_by_a_spreadsheet(tmp_path: Path, text: str, cell: str) -> None:
    (row,) = csv_rows(tmp_path, sessions.timing(text, 1.0, 1.5, warnings=(text,)))
    assert [row[name] for name in ("variant", "warnings")] == [cell] * 2


def csv_rows(folder: Path, *timings: Timing) -> list[dict[str, str]]:
    """Return the rows of the CSV of a session with these timings."""
    path = save(replace(sessions.measured(), timings=timings), folder / "x.csv")
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def test_numbers_of_the_csv_stay_numbers(tmp_path: Path) -> None:
    (row,) = csv_rows(tmp_path, sessions.timing("eager", 1.5e-6, None, iqr_s=-2e-9))
    assert float(row["median_us"]) == 1.5
    assert float(row["iqr_us"]) == pytest.approx(-0.002)
    assert (row["speedup"], row["samples"]) == ("", "40")
    assert csv_rows(tmp_path) == []
    assert (tmp_path / "x.csv").read_text(encoding="utf-8").startswith("variant,phase,"), "the columns"


@pytest.mark.parametrize("verdict", [Verdict.FASTER, Verdict.SLOWER, Verdict.SAME])
def test_slower_plan_is_reported_when_saved(verdict: Verdict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ex = rx.explore(torch.sin, (torch.ones(3),))
    slower = verdict is Verdict.SLOWER
    eager, regional = sessions.timing("eager", 1.0, 1.0), sessions.timing("regional", 1.25, 0.8, verdict=verdict)
    measured = replace(sessions.measured(), grad=False, timings=(eager, regional))
    monkeypatch.setattr(exploration, "plan_diagnostics", lambda _session: plan_diagnostics(measured))
    monkeypatch.setattr(exploration, "slower_speeds", lambda _session: slower_speeds(measured))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        ex.save_plan(tmp_path / "plan.json")
    how_slow = "20 % slower than eager (17–23)"
    message = f"The plan is {how_slow}."
    assert [message in str(one.message) for one in found] == [True] * slower
    assert all(one.filename == __file__ for one in found)
    explored = load_plan_file(tmp_path / "plan.json").explored
    assert explored is not None
    assert explored.slower == ({"eager": how_slow} if slower else {})
    assert ex.to_source().startswith(f"# {message}\n") is slower


def test_production_reports_a_plan_that_was_slower_when_explored() -> None:
    explored = ExplorationRecord("f", Environment("2.13.0", "3.11", "cpu", 2), grad=False)
    assert slower_when_explored(explored) == []
    ways = "9 % slower than torch.compile (6–12)"
    (found,) = slower_when_explored(replace(explored, slower={"torch.compile": ways}))
    assert found.message == f"When it was explored, the plan was {ways}."
    assert "ex." not in str(found)
    assert found.severity is Severity.INFO
