from __future__ import annotations

import io

from regional_explorer.compiler.run import REPORT_INTERVAL_S, StreamProgress, Throttle


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_one_kind_of_work_is_told_now_and_then() -> None:
    shown: list[str] = []
    now_s = 10.0
    throttle = Throttle(lambda doing, _: shown.append(doing), clock=lambda: now_s)
    throttle("round 1", 0.1)
    throttle("round 2", 0.2)
    now_s += REPORT_INTERVAL_S
    throttle("round 3", 0.3)
    throttle("round 4", 0.4)
    assert shown == ["round 1", "round 3"]


def test_another_kind_of_work_is_told_at_once() -> None:
    shown: list[str] = []
    throttle = Throttle(lambda doing, _: shown.append(doing), clock=lambda: 0.0)
    for doing in ("compiling a", "compiling b", "warming up eager"):
        throttle(doing, 0.0)
    assert shown == ["compiling a", "compiling b", "warming up eager"]


def test_a_pipe_gets_one_line_per_kind() -> None:
    stream = io.StringIO()
    progress = StreamProgress(stream)
    for doing in ("compiling a", "round 1", "round 22"):
        progress(doing, 0.5)
    progress.close()
    assert stream.getvalue() == "compiling a\nround 1\n"


def test_a_terminal_gets_one_line_that_goes_away() -> None:
    stream = Terminal()
    progress = StreamProgress(stream)
    progress("round 1", 0.25)
    progress("round 2", 0.5)
    progress.close()
    assert "\n" not in stream.getvalue()
    assert "round 2" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")
