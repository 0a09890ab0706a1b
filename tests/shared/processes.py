"""Python in a new process, and the state of other processes."""

from __future__ import annotations

import ctypes
import gc
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
class EndedProcess:
    """An ended process: its output and its exit status, which is negative for the signal that ended it."""

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
) -> EndedProcess:
    """Run ``program``, source or a file, in a new process; return its output once it has ended.

    It imports this checkout. Assert that it ends with ``status``, or with any if that is None. ``env`` adds environment
    variables, and None removes one. ``cache`` is its directory for Inductor's files, by default that of the tests.
    """
    alone = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}  # with more, Inductor starts a process that imports torch again
    changes: dict[str, str | Path | None] = {"PYTHONPATH": ROOT, **alone, **(env or {})}
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
    return EndedProcess(done.stdout, done.stderr, done.returncode)


def assert_mended(program: str, how: str, tmp_path: Path) -> None:
    """Assert that a program prints ``mended`` at its end, although files cannot be written in between.

    Its text has a ``{constant}``, new in each run and so in no cache, and the lines ``{break_it}`` and ``{mend_it}``:
    no file may grow, as on a full disk (``how="full"``), Inductor's cache directory is below a file
    (``"no directory"``), or it is deleted (``"gone"``).
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


def wait_until(condition: Callable[[], Found], seconds: float = 60.0) -> Found:
    """Wait until ``condition`` holds, for ``seconds`` at most; return its result."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # Orphans that nobody waits for stay as zombies, which do not run.
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def resident_mib() -> float:
    """Return the MiB that this process holds after collecting garbage and giving free memory back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 2**20
