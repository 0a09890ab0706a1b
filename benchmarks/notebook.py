"""Fresh kernels: how soon a cell shows text, the panel and a compiled result, beside plain ``torch.compile``."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

from benchmarks.page import limit_row
from benchmarks.row import Row, in_process, turns
from scripts.demo import WIDGET_VIEW, ThisPython

IDLE_S = 20.0
"""Seconds between the first cell of a fresh kernel and the cell that compiles: the time to type it."""

# ---------------------------------------------------------------------------------------------- the first compiled time

FRESH = """
import sys, time
from IPython.core.interactiveshell import InteractiveShell
first, then, idle_s = sys.argv[1:]
shell = InteractiveShell.instance()
shell.run_cell(first).raise_error()
time.sleep(float(idle_s))
started = time.perf_counter()
shell.run_cell(then).raise_error()
print(time.perf_counter() - started)
"""
PREPARE = """
import torch
from tests.shared.models import Chain, inputs
model, x = Chain(12, equal=True), inputs()
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
CELLS = {"ours": (f"%load_ext regional_explorer\n{PREPARE}", OURS), "plain": (PREPARE, PLAIN)}


def first_rows(*, warm: bool, repeats: int = 3, idle_s: float = IDLE_S) -> Iterator[Row]:
    """Time a fresh kernel from the cell that requests a compiled function to its first result.

    A cold start has empty cache directories; a ``warm`` start has those that the same program filled before.
    """
    with tempfile.TemporaryDirectory(prefix="regional-explorer-bench-") as folder:
        caches = {side: Path(folder, side) for side in CELLS}
        if warm:
            for side, cache in caches.items():
                _fresh_kernel(side, cache, 0.0)

        def seconds(side: str) -> float:
            return _fresh_kernel(side, caches[side] if warm else Path(tempfile.mkdtemp(dir=folder)), idle_s)

        ours, theirs = turns(repeats, *(partial(seconds, side) for side in caches))
    state = "filled" if warm else "empty"
    what = f"first compiled time in a fresh kernel, {state} Inductor cache, {idle_s:.0f} s after %load_ext"
    yield Row(what, "plain torch.compile, the same", ours, theirs, 1.05 if warm else 0.6)


def _fresh_kernel(side: str, cache: Path, idle_s: float) -> float:
    """Return the seconds of the second cell in a new process; all caches and precompiled headers are in ``cache``."""
    cache.mkdir(exist_ok=True)
    # Inductor keeps precompiled headers below the directory for temporary files, whatever its cache directory is.
    folders = {"TMPDIR": str(cache), "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor")}
    return float(in_process(FRESH, *CELLS[side], idle_s, **folders).split()[-1])


# --------------------------------------------------------------------------------------------- the first text and panel

LOAD = "%load_ext regional_explorer"
MODEL = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(n_layer=4, n_embd=128, n_head=4, vocab_size=512, n_positions=128, use_cache=False)
model, tokens = GPT2LMHeadModel(config), torch.randint(0, 512, (4, 64))

def step(tokens):
    return model(tokens, labels=tokens).loss
"""
SHOWN = "%regional_compile step(tokens)"
COMPILED = "torch.compile(step)(tokens)"
TIMEOUT_S = 600.0


def opening_rows(repeats: int = 3) -> Iterator[Row]:
    """Time the magic in a fresh kernel from the start of its cell to its first text, and to the panel with the graph.

    The model is a GPT-2 of four layers from ``transformers``. Nothing is compiled. ``drawing`` times the page itself.
    """
    texts = []

    def ours() -> float:
        seconds = _seconds_to_outputs(LOAD + MODEL, SHOWN)
        texts.append(seconds["text"])
        return seconds["panel"]

    panels, theirs = turns(repeats, ours, lambda: _seconds_to_outputs(MODEL, COMPILED)["end"])
    yield limit_row(1.0, "first text below the magic in a fresh kernel", *texts)
    yield Row("panel with the graph in a fresh kernel", "the first result of plain torch.compile", panels, theirs, 0.3)


def _seconds_to_outputs(first: str, then: str) -> Mapping[str, float]:
    """Return the seconds from the start of the second cell to its first text, its panel and its end."""
    seconds: dict[str, float] = {}

    def note(message: Mapping[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind in {"display_data", "stream"}:
            shown = "panel" if WIDGET_VIEW in content.get("data", ()) else "text"
            seconds.setdefault(shown, time.perf_counter() - started)

    with tempfile.TemporaryDirectory(prefix="regional-explorer-bench-") as folder:
        manager = KernelManager(kernel_spec_manager=ThisPython())
        manager.start_kernel(env={**os.environ, "TMPDIR": folder, "TORCHINDUCTOR_CACHE_DIR": folder})
        client = manager.blocking_client()
        try:
            client.wait_for_ready(timeout=TIMEOUT_S)
            client.execute_interactive(first, timeout=TIMEOUT_S, output_hook=lambda _: None)
            time.sleep(IDLE_S)
            started = time.perf_counter()
            client.execute_interactive(then, timeout=TIMEOUT_S, output_hook=note)
            seconds["end"] = time.perf_counter() - started
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
    return seconds
