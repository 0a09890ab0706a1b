"""Runs six actions of a user, and counts what each executes: files and functions of the package.

The function explored has five ops, so the counts are of the house and not of a model.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

PACKAGE = str(Path(__file__).resolve().parent.parent / "regional_explorer")
CELL = "-r r=ops:aten.s* --budget 0.1 call(x)"


class Trip(NamedTuple):
    """What an action executes."""

    files: int
    functions: int


def call(x: torch.Tensor) -> torch.Tensor:
    """Return a sum of five ops."""
    return (x.sin() * 2).softmax(-1).sum()


@contextmanager
def recording() -> Iterator[set[CodeType]]:
    """Collect the functions of the package that run in the block, on this thread or a new one: those with a name."""
    functions = set[CodeType]()

    def notice(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and not code.co_name.startswith("<") and code.co_filename.startswith(PACKAGE):
            functions.add(code)

    threading.setprofile(notice)
    sys.setprofile(notice)
    try:
        yield functions
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def trips() -> dict[str, Trip]:
    """Run the actions and return what each executes."""
    import torch
    from IPython.core.interactiveshell import InteractiveShell

    import regional_explorer as rx
    from regional_explorer.ui.control import control_of
    from regional_explorer.ui.panel import Panel

    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "regional_explorer")
    x = torch.ones(64, 64, requires_grad=True)
    shell.user_ns |= {"call": call, "x": x}
    ex = rx.explore(call, (x,)).mark("r", ops="aten.s*")
    ex.benchmark(budget_s=0.1)
    _ = ex.timings
    control = control_of(ex)
    panel = Panel(control)
    panel.press("open", "r")

    def measure() -> None:
        panel.press("measure")
        while control.state.busy:
            time.sleep(0.01)

    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        ex.save_plan(plan)
        ledger = Path(folder) / "ledger.jsonl"
        actions: dict[str, Callable[[], object]] = {
            "rx.explore": lambda: rx.explore(call, (x,)),
            "cell": lambda: shell.run_line_magic("regional_compile", CELL),
            "config edit": lambda: panel.press("set", "max_fusion_size", value="8"),
            "its job": measure,
            "ex.tune": lambda: ex.tune(2.0, keys=[{"max_fusion_size": 8}], ledger=ledger),
            "rx.compile": lambda: rx.compile(call, plan)(x).backward(),
        }
        counts = {}
        for name, action in actions.items():
            with recording() as functions, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                action()
            counts[name] = Trip(len({code.co_filename for code in functions}), len(functions))
    return counts


if __name__ == "__main__":
    for name, trip in trips().items():
        print(f"{name:16}{trip.files:6} files{trip.functions:8,} functions")
