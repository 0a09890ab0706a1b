"""A program under ``rx.compile``: its steps beside ``ex.compiled`` and upstream's, and how it starts from artifacts.

The program is checked first: it must have the partitions, configs and artifacts of the exploration whose plan it runs,
and results that are equal to the last bit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._inductor.utils import fresh_cache

import regional_explorer as rx
from benchmarks.engine import upstream
from benchmarks.programs import Chain, inputs
from benchmarks.row import Row, training_steps

REGIONS = 6

START = """
import json, sys, time
import torch
import regional_explorer as rx
from benchmarks.programs import Chain, inputs

torch.manual_seed(0)
torch.set_num_threads({threads})
model, x = Chain({regions}, equal=False), inputs()
compiled = rx.compile(model, {plan!r}, artifacts={artifacts!r})
started = time.perf_counter()
torch.autograd.grad(compiled(x), [x, *model.parameters()])
seconds = time.perf_counter() - started
loss = compiled(x)
status = rx.status(compiled)
assert {{str(part.state) for part in status.partitions}} == {{"compiled"}}, status
caches = sorted({{artifact.compile.cache for artifact in status.artifacts.values()}})
print(json.dumps([seconds, caches, float(loss), float(model(x))]))
"""


def step_rows(budget_s: float = 15.0) -> Iterator[Row]:
    """Take a step under ``rx.compile``, beside the exploration's and upstream's of the same annotated source."""
    for size, number in (("small", 8), ("large", 2048)):
        model, x = Chain(REGIONS, equal=False), inputs(number)
        leaves = [x, *model.parameters()]
        theirs = upstream(model)
        torch.autograd.grad(theirs(x), leaves)
        ex = rx.explore(model, (x,))
        with tempfile.TemporaryDirectory() as folder:
            ours = rx.compile(model, ex.save_plan(Path(folder, "plan.json")), strict=True)
            _check_same(ex, ours, x, leaves)
        steps = training_steps({"ours": ours, "ex.compiled": ex.compiled, "upstream": theirs}, x, leaves, budget_s)
        what = f"a step under rx.compile, {REGIONS} {size} regions"
        yield Row(what, "ex.compiled", steps["ours"], steps["ex.compiled"], 1.02)
        yield Row(what, "upstream's regional_inductor", steps["ours"], steps["upstream"], 1.02)


def _check_same(ex: rx.Exploration, ours: Callable[..., Any], x: torch.Tensor, leaves: list[torch.Tensor]) -> None:
    """Raise RuntimeError unless the program has the exploration's partitions, configs, artifacts and results."""
    for _ in range(2):
        found = [loss := ours(x), *torch.autograd.grad(loss, leaves)]
    wanted = [loss := ex.compiled(x), *torch.autograd.grad(loss, leaves)]
    mine, known = (
        [(part.id, part.nodes, part.artifact, of.artifacts[part.artifact or ""].config) for part in of.partitions]
        for of in (rx.status(ours), ex.session)
    )
    if mine != known:
        raise RuntimeError("rx.compile has other partitions, configs or artifacts than the exploration")
    if not all(map(torch.equal, found, wanted)):
        raise RuntimeError("rx.compile has other results than the exploration")


def start_rows(repeats: int = 3) -> Iterator[Row]:
    """Make the first call, forward and backward, in a fresh process: without a compiler, and compiling."""
    with tempfile.TemporaryDirectory() as kept, fresh_cache():
        plan, artifacts, nothing = Path(kept, "plan.json"), Path(kept, "artifacts"), Path(kept, "nothing")
        nothing.mkdir()
        torch.manual_seed(0)
        ex = rx.explore(Chain(REGIONS, equal=False), (inputs(),))
        ex.save_artifacts(artifacts)
        ex.save_plan(plan)
        ex.close()
        ours, theirs = [], []
        for _ in range(repeats):
            ours.append(_start(plan, artifacts, ["shipped"], PATH=str(nothing)))
            theirs.append(_start(plan, None, ["cold"]))
    what = f"the first call of {REGIONS} regions in a fresh process, from artifacts and with no compiler on the PATH"
    yield Row(what, "compiling", ours, theirs, 0.2)


def _start(plan: Path, artifacts: Path | None, wanted: list[str], **environment: str) -> float:
    code = START.format(
        threads=torch.get_num_threads(),
        regions=REGIONS,
        plan=str(plan),
        artifacts=None if artifacts is None else str(artifacts),
    )
    kept = {key: value for key, value in os.environ.items() if key not in ("CXX", "CC")} if environment else os.environ
    with tempfile.TemporaryDirectory() as cache:
        here = {"TORCHINDUCTOR_CACHE_DIR": cache, **environment}
        done = subprocess.run(
            [sys.executable, "-c", code], env={**kept, **here}, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise RuntimeError(done.stderr)
    seconds, caches, loss, eager = json.loads(done.stdout.splitlines()[-1])
    if caches != wanted or abs(loss - eager) > 1e-4 * abs(eager):
        raise RuntimeError(f"partitions are {caches}, not {wanted}, or the loss {loss} is not eager's, {eager}")
    return float(seconds)


class Tiny(nn.Module):
    """A chain of regions of three ops, each with one eager op behind it."""

    def __init__(self, regions: int) -> None:
        super().__init__()
        self.regions = regions
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a scalar loss."""
        for index in range(self.regions):
            with rx.region(f"r{index:03}"):
                x = (x * self.weight).sin() + x
            x = x.cumsum(-1) / 8
        return x.sum()


def chain_rows(regions: int = 100, budget_s: float = 20.0) -> Iterator[Row]:
    """Take a step of many regions of three ops each: little more than calls."""
    model, x = Tiny(regions), torch.randn(4, 8, requires_grad=True)
    leaves = [x, *model.parameters()]
    theirs = upstream(model)
    torch.autograd.grad(theirs(x), leaves)
    functions = {"rx.compile": rx.compile(model), "ex.compiled": rx.explore(model, (x,)).compiled, "upstream": theirs}
    steps = training_steps(functions, x, leaves, budget_s)
    for name in ("rx.compile", "ex.compiled"):
        what = f"a step of {regions} tiny regions under {name}"
        yield Row(what, "upstream's compiled function", steps[name], steps["upstream"], 1.0)
