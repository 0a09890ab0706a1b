"""Checks the claims of sessions of fifty functions and eight models, on a quiet machine and beside other work.

``python -m benchmarks.claims [--busy] [--models] [--only NAME …]`` looks for impossible figures in everything that a
session says about a call, its regions and their kernels. Every count is expected to be 0; the exit status is 1 if one
is not.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import regional_explorer as rx
from benchmarks.measuring import REPEATS, other_work
from benchmarks.row import cells, heads
from regional_explorer.measure.rounds import run_rounds
from regional_explorer.record.benchmark import Phase, VariantName, Verdict
from regional_explorer.record.diagnostic import DiagnosticCode
from regional_explorer.record.reach import reach_of
from regional_explorer.record.session import Session
from regional_explorer.tables.benchmark import timings_table
from regional_explorer.tables.regions import regions_table
from tests.shared.claims import BOUND, Claim, claims_of, table_claims, text_claims
from tests.shared.models import explore
from tests.shared.work import torch_threads

# --------------------------------------------------------------------------------------------------------- what is said

LIMIT = "kernel-bound, and another config is 15 % faster"
VERDICT = "verdicts beside other work that contradict those without"


@dataclass
class ClaimCounts:
    """Counts the statements by kind, and those that cannot be true."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)

    def add(self, where: str, claims: Iterable[Claim]) -> int:
        """Count claims; print those that cannot be true beside the table, and return their number."""
        before = self.wrong.total()
        for kind, holds, text in claims:
            self.counts[kind] += 1
            if not holds:
                self.wrong[kind] += 1
                print(f"{where}: {kind}: {text}", file=sys.stderr, flush=True)
        return self.wrong.total() - before

    def lines(self) -> Iterator[str]:
        """Yield a row per kind.

        Raises:
            AssertionError: a statement cannot be true.
        """
        yield heads("impossible", "found", "of")
        for kind, number in self.counts.items():
            yield cells(kind, self.wrong[kind], number)
        if self.wrong:
            raise AssertionError(f"{self.wrong.total()} statements cannot be true")


# ------------------------------------------------------------------------------------------------------------ functions


def _norm(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:])


SIZES = {"1 kB": (1, 256), "64 kB": (64, 256), "1 MB": (512, 512), "16 MB": (2048, 2048), "64 MB": (4096, 4096)}
OF_ONE: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu,
    "scaled sine": lambda x: x.sin() * 2 + 1,
    "sum of rows": lambda x: x.sum(-1),
    "variance of columns": lambda x: x.var(0, correction=0),
    "softmax": lambda x: x.softmax(-1),
    "layer norm": _norm,
    "norm of gelu": lambda x: _norm(F.gelu(x)),
}
Function = tuple[Callable[..., torch.Tensor], tuple[tuple[int, ...], ...], torch.dtype]
"""The function, the shapes of its inputs, and their dtype."""
FLOAT = torch.float32
FUNCTIONS: Mapping[str, Function] = {
    **{f"{name}, {size}": (of, (SIZES[size],), FLOAT) for name, of in OF_ONE.items() for size in SIZES},
    **{
        f"product, {size}, {str(dtype).removeprefix('torch.')}": (torch.mm, ((size, size), (size, size)), dtype)
        for size, dtype in product((64, 256, 768), (FLOAT, torch.bfloat16, torch.float64))
    },
    "gelu of a product": (lambda x, w: F.gelu(x @ w), ((256, 512), (512, 512)), FLOAT),
    "convolution 3 × 3": (F.conv2d, ((4, 16, 64, 64), (32, 16, 3, 3)), FLOAT),
    "convolution 1 × 1": (F.conv2d, ((4, 64, 32, 32), (64, 64, 1, 1)), FLOAT),
    "convolution by channel": (partial(F.conv2d, groups=32), ((4, 32, 64, 64), (32, 1, 3, 3)), FLOAT),
    "attention": (F.scaled_dot_product_attention, ((2, 4, 128, 32),) * 3, FLOAT),
    "attention, causal": (partial(F.scaled_dot_product_attention, is_causal=True), ((1, 8, 512, 64),) * 3, FLOAT),
}

WHOLE_CALLS = ("gelu of a product", "attention")
"""Functions for which full Inductor is measured, too."""
CONFIGS: tuple[dict[str, Any], ...] = (
    {"realize_opcount_threshold": 3},
    {"max_fusion_size": 1},
    {"max_fusion_size": 512},
    {"loop_ordering_after_fusion": True},
    {"split_reductions": False},
    {"cpp.threads": 1},
    {"cpp.simdlen": 256},
    {"cpp.min_chunk_size": 64},
    {"cpp.dynamic_threads": True},
    {"cpp.enable_tiling_heuristics": False},
)
"""Configs to try if a region is said to be at the limit of its kernels."""
FASTER = 1.15


def measured_claims(ex: rx.Exploration, budget_s: float, *, whole: bool) -> Iterator[Claim]:
    """Measure a call and its regions, and yield what the session claims about them."""
    ex.benchmark(("eager", "regional", *(["full"] if whole else [])), budget_s)
    for region in ex.plan.regions:
        ex.diagnose(region.name, budget_s)
    ex.profile(budget_s)
    if whole:
        floor = ex.floor()
        reach = reach_of(ex.session)
        is_above = reach is None or floor.record.seconds > reach.seconds.value
        yield Claim(BOUND, floor.frame.empty is is_above, str(floor))
        yield from table_claims("The floor of the call", floor.frame)
        yield from text_claims(str(floor))
    yield from claims_of(ex.session)


def tried_claims(ex: rx.Exploration, explore_again: Callable[[], rx.Exploration], budget_s: float) -> Iterator[Claim]:
    """Yield whether no other config is faster, if the region is said to be at the limit of its kernels."""
    if not any(item.code is DiagnosticCode.KERNEL_BOUND for item in ex.diagnostics):
        return
    codes = {part.code.text for part in ex.code("r")}
    for config in CONFIGS:
        (code,) = {part.code.text for part in ex.code("r", config=config)}
        if code in codes:
            continue
        codes.add(code)
        with explore_again() as other:
            other.configure("r", config)
            other.compile()
            calls = [
                replace(exploration.live.variants.get(VariantName.REGIONAL), name=name)
                for name, exploration in (("now", ex), ("then", other))
            ]
            result = run_rounds(calls, budget_s, baseline="now")
        ratios = result.ratios("then", Phase.FORWARD)
        if ratios is not None:
            faster = result.verdict("then", Phase.FORWARD) is Verdict.FASTER and float(np.median(ratios)) >= FASTER
            yield Claim(LIMIT, not faster, f"{config}: {np.median(ratios):.2f}×")
    yield Claim(LIMIT, True, "")  # noqa: FBT003


def function_rows(only: Iterable[str], busy: Iterable[bool], budget_s: float = 0.1) -> Iterator[str]:
    """Yield a row per function: how many statements about it cannot be true, by condition."""
    counter = ClaimCounts()
    kinds = [(count, is_busy) for count in (1, 2) for is_busy in busy]
    titles = [f"{'busy' if is_busy else 'quiet'}, {count} thread{'s' * (count > 1)}" for count, is_busy in kinds]
    yield heads("function", *titles)
    for name in only:
        wrong: list[int] = []
        for count in (1, 2):
            with torch_threads(count), explore_function(name) as ex:
                ex.compile()
                for is_busy in busy:
                    with other_work(2 * is_busy):
                        claims = [
                            *measured_claims(ex, budget_s, whole=name in WHOLE_CALLS),
                            *tried_claims(ex, partial(explore_function, name), budget_s),
                        ]
                    wrong.append(counter.add(f"{name}, {titles[len(wrong)]}", claims))
        yield cells(name, *wrong)
    yield from counter.lines()


def explore_function(name: str) -> rx.Exploration:
    """Return the exploration of a function that is one region."""
    function, shapes, dtype = FUNCTIONS[name]
    torch.manual_seed(0)

    def call(*args: torch.Tensor) -> torch.Tensor:
        with rx.region("r"):
            return function(*args)

    return rx.explore(call, tuple(torch.randn(shape).to(dtype) for shape in shapes))


# --------------------------------------------------------------------------------------------------------------- models

GIVEN = (Verdict.FASTER, Verdict.SLOWER, Verdict.SAME)


def verdicts(session: Session) -> dict[str, str]:
    """Return the verdicts on the whole call and on its regions, by variant or region."""
    whole, regions = timings_table(session).dataframe(), regions_table(session).dataframe()
    whole = whole[whole.phase == session.whole_phase]
    rows = [*zip(whole.variant, whole.verdict, strict=True), *zip(regions.region, regions.verdict, strict=True)]
    return {name: verdict for name, verdict in rows if verdict in GIVEN}


def model_rows(only: Iterable[str], busy: Iterable[bool], budget_s: float = 2.0) -> Iterator[str]:
    """Yield a row per model: how many statements cannot be true, and the verdicts without and beside other work."""
    yield heads("model", "cannot be true", "verdicts without other work", "the same beside it", "not given", "others")
    counter = ClaimCounts()
    for name in only:
        given, wrong = [], 0
        with explore(name) as ex:
            ex.compile()
            for is_busy in busy:
                with other_work(2 * is_busy):
                    wrong += counter.add(name, measured_claims(ex, budget_s, whole=True))
                given.append(verdicts(ex.session))
        quiet, beside = given[0], given[-1]
        pairs = {key: (quiet[key], beside[key]) for key in quiet.keys() & beside.keys()}
        claims = (Claim(VERDICT, len({*pair}) == 1, f"{key}: {', '.join(pair)}") for key, pair in pairs.items())
        others = counter.add(name, claims)
        yield cells(name, wrong, len(quiet), len(pairs) - others, len(quiet) - len(pairs), others)
    yield from counter.lines()


def main() -> int:
    """Print the table; return 1 if a statement cannot be true."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("--busy", action="store_true", help="measure also beside two processes that compute")
    parser.add_argument("--models", action="store_true", help="measure models instead of functions")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only those whose names contain one of these")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    names = [
        name
        for name in (REPEATS if arguments.models else FUNCTIONS)
        if any(part in name for part in arguments.only or [""])
    ]
    try:
        for line in (model_rows if arguments.models else function_rows)(names, (False, True)[: 1 + arguments.busy]):
            print(line, flush=True)
    except AssertionError as error:
        print(f"\n{error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
