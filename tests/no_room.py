"""Programs whose files cannot be written for a while, each in a process of its own."""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def assert_mended(program: str, how: str, tmp_path: Path) -> None:
    """Run a program that ends with printing ``mended``.

    Its text has a ``{constant}``, new in each run and so in no cache, and lines that ``{break_it}`` and ``{mend_it}``:
    no file may grow, as on a full disk (``how="full"``), Inductor's cache directory is below a file
    (``"no directory"``), or it is deleted (``"gone"``).
    """
    cache = tmp_path / "cache"
    (tmp_path / "file").touch()
    variable = "import os; os.environ['TORCHINDUCTOR_CACHE_DIR']"
    broken, mended = {
        "full": [f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, -1))" for size in (0, -1)],
        "no directory": [f"{variable} = {str(path)!r}" for path in (tmp_path / "file" / "below", cache)],
        "gone": [f"import shutil; shutil.rmtree({str(cache)!r})", ""],
    }[how]
    text = program.format(constant=time.time_ns() % 1000, break_it=broken, mend_it=mended)
    done = subprocess.run(
        [sys.executable, "-c", f"exec(compile({text!r}, {str(tmp_path / 'p.py')!r}, 'exec'))"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": str(cache)},
    )
    assert done.stdout.splitlines()[-1:] == ["mended"], done.stdout[-1000:] + done.stderr[-3000:]
