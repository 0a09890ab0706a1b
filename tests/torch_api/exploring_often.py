"""Explore again and again, and count the live objects: run as a program of its own, without pytest."""

import gc
import json
import linecache
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo.guards import GuardManagerWrapper
from torch._inductor import compile_fx as _all_of_it  # noqa: F401 - loaded before anything is counted
from torch._inductor.codecache import PyCodeCache
from torch._subclasses.fake_tensor import FakeTensor

import regional_explorer as rx

KINDS = (FakeTensor, fx.GraphModule, fx.Node, GuardManagerWrapper)
BEFORE, CYCLES = 1, 2
CLOSED: list[rx.Exploration] = []
"""Closed explorations, kept until the end: closing frees their objects, not dropping them."""


def straight(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with rx.region("product"):
        y = torch.sin(x @ w)
    return y.square().mean()


def marked(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with rx.region("product"):
        return torch.sin(x @ w)


def break_after_region(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = marked(x, w)
    torch._dynamo.graph_break()
    return y.square().mean()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with rx.region("product"):
            return torch.sin(self.inner(x) @ w).mean()


def live_objects() -> Counter[str]:
    for _ in range(3):  # finalizers of one collection release more objects
        gc.collect()
    found = Counter(kind.__name__ for one in gc.get_objects() for kind in KINDS if issubclass(type(one), kind))
    found["sources of graphs"] = sum(name.startswith("<eval_with_key>") for name in linecache.cache)
    found["modules of Inductor"] = len(PyCodeCache.modules)
    return found


def pair() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)


def explore_and_run(fn: Callable[..., Any], *, close: bool) -> None:
    ex = rx.explore(fn, pair())
    ex.compiled(*pair()).backward()
    if close:
        ex.close()
        CLOSED.append(ex)


def explore_and_measure() -> None:
    with torch.no_grad():
        ex = rx.explore(straight, pair())
    ex.benchmark(variants=("eager", "full"), budget_s=0.05)
    ex.close()
    CLOSED.append(ex)


def growth(act: Callable[[], None]) -> dict[str, int]:
    """Return how many objects ``act`` leaves in ``CYCLES`` calls, after calls that may leave some once."""
    for _ in range(BEFORE):
        act()
    before = live_objects()
    for _ in range(CYCLES):
        act()
    after = live_objects()
    return {name: count - before[name] for name, count in after.items()}


def main() -> None:
    """Print the growth of every case as JSON."""
    cases: dict[str, Callable[[], None]] = {"whole compile": explore_and_measure}
    for name, fn in {"straight": straight, "graph break": break_after_region, "module": Net()}.items():
        for close in (True, False):
            how = "closed" if close else "dropped"
            cases[f"{name}, {how}"] = lambda fn=fn, close=close: explore_and_run(fn, close=close)  # type: ignore[misc]
    gc.collect()
    gc.freeze()  # or each collection visits all of torch
    json.dump({name: growth(act) for name, act in cases.items()}, sys.stdout)


if __name__ == "__main__":
    main()
