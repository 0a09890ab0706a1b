"""Steps under ``rx.compile``, ``ex.compiled`` and upstream, and the start of a program from artifacts.

The program is checked first: it must have the partitions, configs and artifacts of the exploration whose plan it runs,
and results that are equal to the bit.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._inductor.utils import fresh_cache

import regional_explorer as rx
from benchmarks.engine import step, upstream_call
from benchmarks.row import Row, in_process, training_steps, turns
from tests.shared.models import Chain, inputs

REGIONS, TINY = 6, 100

START = """
import json, sys, time
import torch
import regional_explorer as rx
from tests.shared.models import Chain, inputs

torch.manual_seed(0)
threads, regions, plan, artifacts = json.loads(sys.argv[1])
torch.set_num_threads(threads)
model, x = Chain(regions, equal=False), inputs()
compiled = rx.compile(model, plan, artifacts=artifacts)
started = time.perf_counter()
torch.autograd.grad(compiled(x), [x, *model.parameters()])
seconds = time.perf_counter() - started
loss = compiled(x)
status = rx.status(compiled)
assert {str(part.state) for part in status.partitions} == {"compiled"}, status
caches = sorted({artifact.compile.cache for artifact in status.artifacts.values()})
print(json.dumps([seconds, caches, loss.item(), model(x).item()]))
"""


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


def step_rows(budget_s: float = 20.0) -> Iterator[Row]:
    """Time a step through the compiled regions: small, large, and so tiny that the step consists mostly of calls."""
    kinds: dict[str, tuple[nn.Module, torch.Tensor]] = {
        f"{REGIONS} small": (Chain(REGIONS, equal=False), inputs(8)),
        f"{REGIONS} large": (Chain(REGIONS, equal=False), inputs(2048)),
        f"{TINY} tiny": (Tiny(TINY), torch.randn(4, 8, requires_grad=True)),
    }
    for kind, (model, x) in kinds.items():
        leaves = [x, *model.parameters()]
        theirs = upstream_call(model)  # first, because it makes Dynamo forget its traces
        step(theirs, x, leaves)
        ex = rx.explore(model, (x,))
        with tempfile.TemporaryDirectory() as folder:
            ours = rx.compile(model, ex.save_plan(Path(folder, "plan.json")), strict=True)
            _check_same(ex, ours, x, leaves)
        functions = {"rx.compile": ours, "ex.compiled": ex.compiled, "upstream's regional_inductor": theirs}
        steps = training_steps(functions, x, leaves, budget_s)
        for name, other in combinations(functions, 2):
            goal = 1.0 if other != "ex.compiled" and isinstance(model, Tiny) else 1.02
            yield Row(f"a step under {name}, {kind} regions", other, steps[name], steps[other], goal)


def _check_same(ex: rx.Exploration, ours: Callable[..., Any], x: torch.Tensor, leaves: list[torch.Tensor]) -> None:
    """Check that the program has the exploration's partitions, configs, artifacts and results."""
    for _ in range(2):
        results = [loss := ours(x), *torch.autograd.grad(loss, leaves)]
    expected = [loss := ex.compiled(x), *torch.autograd.grad(loss, leaves)]
    records, expected_records = (
        [(part.id, part.nodes, part.artifact, side.artifacts[part.artifact or ""].config) for part in side.partitions]
        for side in (rx.status(ours), ex.session)
    )
    assert records == expected_records, "rx.compile has other partitions, configs or artifacts than the exploration"
    assert all(map(torch.equal, results, expected)), "rx.compile has other results than the exploration"


def start_rows(repeats: int = 3) -> Iterator[Row]:
    """Time the first call, forward and backward, in a fresh process: without a compiler, and with compiling."""
    with tempfile.TemporaryDirectory() as full_cache, fresh_cache():
        plan, artifacts, nothing = (str(Path(full_cache, name)) for name in ("plan.json", "artifacts", "nothing"))
        Path(nothing).mkdir()
        torch.manual_seed(0)
        ex = rx.explore(Chain(REGIONS, equal=False), (inputs(),))
        ex.save_artifacts(artifacts)
        ex.save_plan(plan)
        ex.close()
        without_compiler = partial(_start, plan, artifacts, "shipped", PATH=nothing, CXX="", CC="")
        ours, theirs = turns(repeats, without_compiler, partial(_start, plan, None, "cold"))
    what = f"the first call of {REGIONS} regions in a fresh process, from artifacts and with no compiler on the PATH"
    yield Row(what, "compiling", ours, theirs, 0.2)


def _start(plan: str, artifacts: str | None, expected: str, **environment: str) -> float:
    arguments = json.dumps([torch.get_num_threads(), REGIONS, plan, artifacts])
    with tempfile.TemporaryDirectory() as cache:
        out = in_process(START, arguments, TORCHINDUCTOR_CACHE_DIR=cache, **environment)
    seconds, caches, loss, eager = json.loads(out.splitlines()[-1])
    if caches != [expected] or abs(loss - eager) > 1e-4 * abs(eager):
        raise RuntimeError(f"partitions are {caches}, not {expected}, or the loss {loss} is not eager's, {eager}")
    return float(seconds)
