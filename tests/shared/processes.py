"""Python in a process of its own, and looking at processes from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[2]

Found = TypeVar("Found")


@dataclass(frozen=True)
class Done:
    """A process that has ended: what it wrote, and its exit status, negative for the signal that ended it."""

    out: str
    err: str
    status: int

    @property
    def json(self) -> Any:
        """Return the value in the last line of its output."""
        return json.loads(self.out.splitlines()[-1])


def python(
    program: str | Path,
    *arguments: str | Path,
    flags: tuple[str, ...] = (),
    cwd: Path = ROOT,
    env: Mapping[str, str | Path | None] | None = None,
    cache: Path | None = None,
    status: int | None = 0,
    timeout: float = 300,
) -> Done:
    """Run ``program``, source or a file, in a process of its own, and wait for it.

    It finds this checkout, and ends with ``status``, whatever that is if it is None. ``env`` has environment variables
    that it sees besides those of this process; None takes one away. ``cache`` is its own directory for Inductor's
    files, else it shares that of the tests.
    """
    changes: dict[str, str | Path | None] = {"PYTHONPATH": ROOT, **(env or {})}
    if cache is not None:
        changes["TORCHINDUCTOR_CACHE_DIR"] = cache
    environment = {name: value for name, value in os.environ.items() if name not in changes}
    environment |= {name: str(value) for name, value in changes.items() if value is not None}
    what = [program] if isinstance(program, Path) else ["-c", program]
    done = subprocess.run(
        [sys.executable, *flags, *what, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    assert status in (None, done.returncode), f"{done.returncode}: {done.stdout[-1000:]}{done.stderr[-4000:]}"
    return Done(done.stdout, done.stderr, done.returncode)


def assert_mended(program: str, how: str, tmp_path: Path) -> None:
    """Run a program that ends with printing ``mended`` while its files cannot be written.

    Its text has a ``{constant}``, new in each run and so in no cache, and lines that ``{break_it}`` and ``{mend_it}``:
    no file may grow, as on a full disk (``how="full"``), Inductor's cache directory is below a file
    (``"no directory"``), or it is deleted (``"gone"``). Where nothing is written to it, it is that of the tests.
    """
    cache = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) if how == "no directory" else tmp_path / "cache"
    (tmp_path / "file").touch()
    variable = "import os; os.environ['TORCHINDUCTOR_CACHE_DIR']"
    broken, mended = {
        "full": [f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, -1))" for size in (0, -1)],
        "no directory": [f"{variable} = {str(path)!r}" for path in (tmp_path / "file" / "below", cache)],
        "gone": [f"import shutil; shutil.rmtree({str(cache)!r})", ""],
    }[how]
    text = program.format(constant=time.time_ns() % 1000, break_it=broken, mend_it=mended)
    done = python(f"exec(compile({text!r}, {str(tmp_path / 'p.py')!r}, 'exec'))", cache=cache, status=None)
    assert done.out.splitlines()[-1:] == ["mended"], done.out[-1000:] + done.err[-3000:]


def until(condition: Callable[[], Found], seconds: float = 60.0) -> Found:
    """Wait until ``condition`` holds, for ``seconds`` at most, and return what it gives."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # Where nobody collects orphans they stay as zombies, which run no more.
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
