"""Run as a program: rounds of threads that explore and compile at once beside plain torch.compile.

A failure breaks torch for the whole process, so this runs in its own. Prints ``ok`` and the count of rounds. With
``--quick`` each thread has an exploration while the caches are cold, and all share one once they are warm.
"""

import argparse
import itertools
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch._inductor.compile_fx  # threads that enter torch's circular imports at two places see half-made modules
from torch import nn

import regional_explorer as rx
from tests.shared.checks import BEFORE_2_13


class Model(nn.Module):
    """Two regions; each round has a new model, so that nothing is traced already."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        with rx.region("a"):
            y = self.first(x).sin() * x
        y = y.exp()
        with rx.region("b"):
            y = torch.softmax(self.second(y), -1) + y.cos()
        return y.square().sum()

    def unmarked(self, x):
        """Compute the same: eager code with marks in several threads is not safe (docs/upstream.md)."""
        y = (self.first(x).sin() * x).exp()
        return (torch.softmax(self.second(y), -1) + y.cos()).square().sum()


def check(compiled, model):
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
    (mine,), (theirs,) = (torch.autograd.grad(function(x), (x,)) for function in (compiled, model.unmarked))
    # Elements near zero are differences of larger terms, and have the rounding errors of those.
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4 * theirs.abs().max().item())


def explore_model(*, cold):
    """Explore a model; with ``cold`` under configs that were never compiled before."""
    model = Model()
    ex = rx.explore(model, (torch.randn(4, 8, requires_grad=True),))
    for region in ("a", "b") if cold else ():
        ex.configure(region, {"max_fusion_size": random.SystemRandom().randrange(1000, 2**31)})
    return model, ex


def compile_plainly(model):
    torch.manual_seed(1)
    check(torch.compile(model), model)


def run_round(threads, *, distinct, cold):
    """Run ``threads`` threads and one that compiles plainly; raise what one of them raised."""
    shared = None if distinct else explore_model(cold=cold)
    barrier = threading.Barrier(threads + 1)

    def run(work):
        barrier.wait()
        work()

    def explore():
        model, ex = shared or explore_model(cold=cold)
        ex.compile()
        partitions = ex.partitions
        if set(partitions.state) != {"compiled"}:
            raise AssertionError(partitions[["state", "error"]].drop_duplicates().to_string())
        check(ex.compiled, model)

    with ThreadPoolExecutor(threads + 1) as pool:
        list(pool.map(run, [explore] * threads + [lambda: compile_plainly(Model())]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if BEFORE_2_13:
        compile_plainly(Model())  # on the thread that outlives the others: pull request 178950 (docs/upstream.md)
    stdout, backward = sys.stdout, torch.Tensor.backward
    torch.set_num_threads(1)
    count, began = 0, time.monotonic()
    for number in range(options.rounds):
        for distinct, cold in itertools.product((True, False), (True, False)):
            if distinct is cold or not options.quick:
                run_round(options.threads, distinct=distinct, cold=cold)
                count += 1
        print(f"{number}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    compile_plainly(Model())
    if sys.stdout is not stdout or torch.Tensor.backward is not backward:
        raise AssertionError("something of the process was left changed")
    print("ok", count)


if __name__ == "__main__":
    main()
