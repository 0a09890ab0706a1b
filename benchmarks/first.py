"""What a person waits for in a fresh kernel: from the cell that asks for a compiled function to its first result.

Both sides are processes of their own with an IPython shell in them, which run a cell that prepares the call and then
rest for as long as one types; ours has loaded the extension before. A cold start has empty cache directories, a warm
one those that the same program filled before.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.row import Row, turns

IDLE_S = 20.0
"""Seconds between the first cell and the one that compiles."""

BLOCKS = 12
"""Equal blocks of one region, as in a model of that many layers."""

PREPARE = f"""
import torch
from benchmarks.model import Chain, inputs
model, x = Chain({BLOCKS}, equal=True), inputs()
leaves = [x, *model.parameters()]
"""
OURS = """
import regional_explorer as rx
compiled = rx.explore(model, (x,)).compiled
grads = torch.autograd.grad(compiled(x), leaves)
"""
PLAIN = """
compiled = torch.compile(model)
grads = torch.autograd.grad(compiled(x), leaves)
"""


def rows(*, warm: bool, repeats: int = 3) -> list[Row]:
    """Return the row of a filled cache (``warm``), or of an empty one."""
    numbers = count()
    with tempfile.TemporaryDirectory(prefix="regional-explorer-bench-") as folder:
        kept = {side: Path(folder, side) for side in ("ours", "plain")}
        if warm:
            for side, cache in kept.items():
                _run(side, cache, 0.0)

        def seconds(side: str) -> float:
            return _run(side, kept[side] if warm else Path(folder, f"{next(numbers)}"), IDLE_S)

        ours, theirs = turns(repeats, *(partial(seconds, side) for side in kept))
    state = "filled" if warm else "empty"
    what = f"first compiled time in a fresh kernel, {state} Inductor cache, {IDLE_S:.0f} s after %load_ext"
    return [Row(what, "plain torch.compile, the same", ours, theirs, 1.05 if warm else 0.6)]


def _run(side: str, cache: Path, idle_s: float) -> float:
    """Return what a new process of ``side`` took; all caches, precompiled headers too, lie in ``cache``."""
    cache.mkdir(exist_ok=True)
    # Inductor keeps precompiled headers below the directory for temporary files, whatever its cache directory is.
    surroundings = {**os.environ, "TMPDIR": str(cache), "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor")}
    command = [sys.executable, "-m", "benchmarks.first", side, str(idle_s)]
    done = subprocess.run(command, env=surroundings, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.split()[-1])


def main(arguments: Sequence[str]) -> None:
    """Be one of the processes: run the cells, rest in between, print what the last one took."""
    import time

    from IPython.core.interactiveshell import InteractiveShell

    side, idle_s = arguments
    shell: Any = InteractiveShell.instance()
    load = "%load_ext regional_explorer" if side == "ours" else ""
    shell.run_cell(f"{load}\n{PREPARE}").raise_error()
    time.sleep(float(idle_s))
    started = time.perf_counter()
    shell.run_cell(OURS if side == "ours" else PLAIN).raise_error()
    print(time.perf_counter() - started)


if __name__ == "__main__":
    main(sys.argv[1:])
