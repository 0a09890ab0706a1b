"""The progress line of a long call: when it is shown, its text, and its end."""

from __future__ import annotations

import builtins
import contextlib
import io
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import regional_explorer as rx
from regional_explorer.compiler import progress_line
from regional_explorer.compiler.progress_line import (
    AFTER_S,
    TICK_S,
    CellPlace,
    ProgressLine,
    TerminalPlace,
    find_place,
    reporting,
    reporting_of_command,
)
from regional_explorer.compiler.run import PLAIN_RUN, REPORT_INTERVAL_S, Run, no_progress
from regional_explorer.record.expected import expected_plan_s
from tests.shared import programs
from tests.ui.methods import METHODS

ERASED = "\r\x1b[K"


class Terminal(io.StringIO):
    """A fake terminal; ``line`` is the text in its last line."""

    def isatty(self) -> bool:
        return True

    @property
    def line(self) -> str:
        return self.getvalue().rpartition(ERASED)[2]


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in place of stderr, on which calls show their lines at once."""
    terminal = Terminal()
    monkeypatch.setattr(progress_line, "sys", SimpleNamespace(stderr=terminal))  # sys.stderr is pytest's
    monkeypatch.setattr(progress_line, "AFTER_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    return terminal


# ------------------------------------------------------------------------------------------------------------- the line


def test_a_short_call_shows_nothing(clock: Clock) -> None:
    terminal = Terminal()
    line = ProgressLine(TerminalPlace(terminal), clock)
    for _ in range(4):
        clock.now_s += 0.1
        line("round 3", 0.5)
        line.tick()
    line.close()
    assert terminal.getvalue() == ""


def test_a_longer_call_shows_its_task_and_time(clock: Clock) -> None:
    terminal = Terminal()
    line = ProgressLine(TerminalPlace(terminal), clock)
    line("compiling mlp", 0.5)
    clock.now_s += AFTER_S
    line.tick()
    assert terminal.line == f"{'━' * 12}{'╌' * 12} compiling mlp"
    clock.now_s += TICK_S
    line.tick()
    assert terminal.line.endswith("compiling mlp · 2 s so far")
    line.left.estimate(12.0)
    clock.now_s += 2 * TICK_S
    line.tick()
    assert terminal.line.endswith("compiling mlp · about 10 s left")
    line.left.estimate(240.0)
    clock.now_s += REPORT_INTERVAL_S
    line("round 4", 2.0)
    assert terminal.line.endswith(" round 4 · about 4 min left")
    line.left.estimate(0.5)
    clock.now_s += 2 * TICK_S
    line.tick()
    assert terminal.line.endswith("round 4 · 6 s so far")
    clock.now_s += 20.0
    line.tick()
    assert terminal.line.endswith("round 4 · a little longer than expected")
    line.close()
    line("round 5", 1.0)
    line.tick()
    assert terminal.getvalue().endswith(ERASED)
    assert "\n" not in terminal.getvalue()


def test_the_bar_moves_while_nothing_is_reported_and_never_falls(clock: Clock) -> None:
    terminal = Terminal()
    line = ProgressLine(TerminalPlace(terminal), clock, after_s=0.0)
    filled = []
    line("compiling the whole call", 0.0)
    line.left.estimate(10.0)
    for _ in range(14):
        clock.now_s += TICK_S
        line.tick()
        filled.append(terminal.line.count("━"))
    assert filled[4] == 12, "half of the time has passed"
    assert filled == sorted(filled)
    assert filled[-1] == 23, "it is not full before the end"
    line.left.estimate(100.0)
    clock.now_s += REPORT_INTERVAL_S
    line("round 1", 0.0)
    assert terminal.line.count("━") == 23


def test_the_line_is_throttled_and_fits_the_terminal(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    terminal = Terminal()
    line = ProgressLine(TerminalPlace(terminal), clock)
    clock.now_s += AFTER_S
    for _ in range(1000):
        clock.now_s += 0.001
        line("a name that is much longer than the terminal is wide", 0.5)
    assert terminal.getvalue().count(ERASED) <= 1 + 1.0 / REPORT_INTERVAL_S
    assert len(terminal.line) < 40


# ------------------------------------------------------------------------------------------------------------ the calls


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("error", [None, StoppedError(), KeyboardInterrupt()], ids=repr)
def test_each_call_removes_its_line_at_the_end(error: BaseException | None, terminal: Terminal) -> None:
    for _ in range(2):
        before = len(terminal.getvalue())
        with contextlib.suppress(StoppedError, KeyboardInterrupt), reporting(PLAIN_RUN) as run:
            run.progress("compiling mlp", 0.5)
            assert "compiling mlp" in terminal.line
            if error is not None:
                raise error
        assert terminal.line == ""
        assert len(terminal.getvalue()) > before


def test_the_progress_line_counts_seconds_without_reports(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line, "TICK_S", 0.0)
    ticks = threading.Semaphore(0)
    monkeypatch.setattr(ProgressLine, "tick", lambda _line: ticks.release())
    before = set(threading.enumerate())
    with reporting(PLAIN_RUN):
        (thread,) = (one for one in threading.enumerate() if "progress" in one.name and one not in before)
        assert all(ticks.acquire(timeout=60) for _ in range(3))
    thread.join(60)
    assert not thread.is_alive()


def test_nested_calls_and_other_threads_share_one_line(terminal: Terminal) -> None:
    def report_on_thread() -> None:
        with reporting(PLAIN_RUN) as run:
            run.progress("elsewhere", 0.5)

    def call_on_thread() -> None:
        thread = threading.Thread(target=report_on_thread)
        thread.start()
        thread.join()

    with reporting(PLAIN_RUN) as run:
        run.progress("outer", 0.5)
        with reporting(PLAIN_RUN) as inner:
            assert inner is PLAIN_RUN
        call_on_thread()
        assert "outer" in terminal.line
    assert "elsewhere" not in terminal.getvalue()
    call_on_thread()
    assert "elsewhere" in terminal.getvalue()
    assert terminal.line == ""


def test_a_callback_of_the_user_replaces_the_line(terminal: Terminal) -> None:
    reports: list[str] = []
    ex = rx.explore(programs.neighbours, programs.pair(grad=False))
    explored = terminal.getvalue()
    assert "running the call eagerly" in explored
    ex.profile(0.05, run=Run(progress=lambda doing, _: reports.append(doing)))
    ex.profile(0.05, run=Run(progress=no_progress))
    assert reports
    assert terminal.getvalue() == explored


@pytest.mark.parametrize("stderr", [io.StringIO(), None], ids=["pipe", "none"])
def test_no_progress_line_without_a_terminal(stderr: io.StringIO | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line, "sys", SimpleNamespace(stderr=stderr))
    assert find_place() is None
    with reporting(PLAIN_RUN) as run:
        assert run is PLAIN_RUN


def test_no_progress_line_on_a_dumb_or_closed_terminal(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert find_place() is None
    monkeypatch.setenv("TERM", "xterm")
    assert find_place() is not None
    terminal.close()
    assert find_place() is None


def test_a_command_has_a_line_unless_it_is_quiet(terminal: Terminal) -> None:
    with reporting_of_command(terminal) as run:
        run.progress("compiling mlp", 0.5)
        assert "compiling mlp" in terminal.line
    assert terminal.line == ""
    before = terminal.getvalue()
    with reporting_of_command(terminal, quiet=True) as run, reporting(PLAIN_RUN) as inner:
        run.progress("compiling mlp", 0.5)
        inner.progress("tracing the call", 0.5)
    assert terminal.getvalue() == before


OTHER_CALLS: dict[str, Callable[[rx.Exploration, Path], object]] = {
    "compiled": lambda ex, _: ex.compiled,
    "to_source": lambda ex, _: ex.to_source(),
    "repro": lambda ex, _: ex.repro("first"),
    "save": lambda ex, path: ex.save(path / "saved.html"),
    "show": lambda ex, _: ex.show(),
    "graph": lambda ex, _: ex.graph(),
    "graph of a session": lambda ex, _: ex.results.graph(),
    "save of a session": lambda ex, path: ex.results.save(path / "saved.html"),
    "display": lambda ex, _: ex.results._repr_mimebundle_(),
    "save_artifacts": lambda ex, path: ex.save_artifacts(path / "artifacts"),
    "floor": lambda ex, _: ex.floor(),
}


@pytest.mark.compiles
def test_every_method_that_may_take_long_shows_a_line(terminal: Terminal, tmp_path: Path) -> None:
    ex = rx.explore(programs.neighbours, programs.pair(grad=False))
    calls = {name: partial(method, ex, PLAIN_RUN) for name, method in METHODS.items()}
    calls |= {name: partial(call, ex, tmp_path) for name, call in OTHER_CALLS.items()}
    silent = []
    for name, call in calls.items():
        before = len(terminal.getvalue())
        call()
        text = terminal.getvalue()[before:]
        if not text.replace(ERASED, "").strip() or not text.endswith(ERASED):
            silent.append(name)
    assert silent == []


# ------------------------------------------------------------------------------------------------------------ time left


class Estimates:
    """Records the estimates that a run has at its reports, by kind of work."""

    def __init__(self) -> None:
        self.left_s: float | None = None
        self.by_kind: dict[str, list[float | None]] = {}
        self.run = Run(progress=self.progress, estimate=self.estimate)

    def estimate(self, left_s: float | None) -> None:
        self.left_s = left_s

    def progress(self, doing: str, _fraction: float) -> None:
        self.by_kind.setdefault(doing.split(" ", maxsplit=1)[0], []).append(self.left_s)


def test_the_estimate_of_a_nested_run_includes_later_steps() -> None:
    estimates = Estimates()
    part = estimates.run.part(0.0, 0.5, then_s=3.0).part(0.0, 0.5, then_s=1.0)
    part.estimate(2.0)
    assert estimates.left_s == 6.0
    part.silent().estimate(5.0)
    assert estimates.left_s == 6.0
    part.estimate(None)
    assert estimates.left_s is None


def test_time_left_is_estimated_from_the_budget() -> None:
    estimates = Estimates()
    ex = rx.explore(programs.neighbours, programs.pair(grad=False))
    ex.profile(0.2, run=estimates.run)
    found = [left_s for rows in estimates.by_kind.values() for left_s in rows if left_s is not None]
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(0.2)


@pytest.mark.compiles
def test_time_left_is_estimated_from_finished_compiles() -> None:
    estimates = Estimates()
    ex = rx.explore(programs.neighbours, programs.pair(grad=False))
    expected_s = expected_plan_s(ex.session)
    ex.compile(run=estimates.run)
    assert estimates.by_kind["compiling"][0] == pytest.approx(expected_s), "before the first compile, from the graphs"
    ex.compile(cold=True, run=estimates.run)
    assert (estimates.by_kind["compiling"][-1] or 0.0) > 0.0


# ------------------------------------------------------------------------------------------------------- in a notebook


class Cell:
    """A fake running cell with the outputs that its shell publishes."""

    def __init__(self) -> None:
        self.outputs: dict[str, dict[str, str]] = {}
        self.shell = SimpleNamespace(kernel=object(), display_pub=SimpleNamespace(publish=self.publish))

    def publish(self, data: dict[str, str], metadata: Any, transient: dict[str, str], update: bool) -> None:
        assert update is (transient["display_id"] in self.outputs)
        self.outputs[transient["display_id"]] = dict(data)


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    """A running cell of a kernel; lines are shown at once."""
    cell = Cell()
    monkeypatch.setattr(builtins, "get_ipython", lambda: cell.shell, raising=False)
    monkeypatch.setattr(progress_line, "AFTER_S", 0.0)
    return cell


INVISIBLE = {"text/html": "<!-- progress was shown here -->"}


def test_the_progress_line_of_a_cell_updates_one_output(cell: Cell, clock: Clock) -> None:
    line = ProgressLine(CellPlace(cell.publish), clock)
    for number in range(8):
        clock.now_s += REPORT_INTERVAL_S
        line(f"round <{number}>", number / 8)
    (output,) = cell.outputs.values()
    assert output["text/plain"] == "round <7> · 8 s so far"
    assert '<progress max="1" value="0.875">' in output["text/html"]
    assert "round &lt;7&gt;" in output["text/html"]
    line.close()
    assert list(cell.outputs.values()) == [INVISIBLE]


def test_a_call_in_a_cell_shows_no_line_on_stderr(cell: Cell, terminal: Terminal) -> None:
    for _ in range(2):
        with reporting(PLAIN_RUN) as run:
            run.progress("compiling mlp", 0.5)
            assert "compiling mlp" in str(cell.outputs)
    assert list(cell.outputs.values()) == [INVISIBLE, INVISIBLE], "each call has its own"
    assert terminal.getvalue() == ""


def test_captured_outputs_have_no_line(cell: Cell) -> None:
    """``%%capture`` keeps outputs to show them later."""
    cell.shell.display_pub.outputs = []
    with reporting(PLAIN_RUN) as run:
        assert run is PLAIN_RUN
    assert cell.outputs == {}
