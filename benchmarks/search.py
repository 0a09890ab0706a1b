"""What a search misses in a space that is compiled whole, what it costs, and whether gains measured alone add up."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._inductor.utils import fresh_cache

import regional_explorer as rx
from benchmarks.programs import DiffusionTransformer, quickstart
from benchmarks.row import Row
from benchmarks.small_models import Experts, Gated, Norms
from benchmarks.traced import MODELS as TRACED
from benchmarks.traced import Make, made_anew
from regional_explorer.compiler.run import PLAIN_RUN
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.rounds import RoundsResult
from regional_explorer.measure.timings import measure_rounds
from regional_explorer.record.benchmark import Phase, VariantName, Verdict
from regional_explorer.record.configs import to_be_faster
from regional_explorer.record.figure import Figure, exactly
from regional_explorer.record.statistics import median_figure, paired_gaps
from regional_explorer.record.tuning import EAGER, TORCH_COMPILE, Outcome, SearchStage, Suggestion, Try, Tuning
from regional_explorer.tuning.crew import Crew
from regional_explorer.tuning.live_bench import LiveBench
from regional_explorer.tuning.space import (
    LIKELIEST,
    WRAPPER,
    Candidate,
    Root,
    candidate_of,
    ways,
    whole_graph_candidate,
)
from regional_explorer.tuning.tries import BATCH

SMALL: Mapping[str, Make] = {
    "gated": lambda: (Gated(), torch.randn(256, 64, requires_grad=True)),
    "norms": lambda: (Norms(), torch.randn(256, 32, requires_grad=True)),
    "gpt-small": TRACED["gpt-small"],
    "experts": lambda: (Experts(), torch.randn(64, 16, requires_grad=True)),
}
"""Models that compile in seconds."""


class Denoising(nn.Module):
    """A step of a diffusion transformer at fixed times, with fixed labels."""

    def __init__(self) -> None:
        super().__init__()
        self.model = DiffusionTransformer(128)
        self.register_buffer("time", torch.rand(4) * 1000)
        self.register_buffer("label", torch.arange(4))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return a scalar loss."""
        return self.model(image, self.time, self.label)


MODELS: Mapping[str, Make] = {**TRACED, "dit": lambda: (Denoising(), torch.randn(4, 3, 32, 32))}


def search_anew(ex: rx.Exploration, search_s: float, **options: Any) -> Tuning:
    """Search for a plan with an empty ledger, and return the record."""
    with tempfile.TemporaryDirectory() as folder:
        return ex.tune(search_s, ledger=Path(folder, "tries.jsonl"), **options).record


# ------------------------------------------------------------------------------------------------- what it has missed


def exhaustive_rows(
    models: Sequence[str] = tuple(SMALL), search_s: float = 90.0, compile_s: float = 160.0, rounds_s: float = 15.0
) -> Iterator[Row | str]:
    """Take a step by the plan found, and by the fastest other one of a space that is compiled as far as the time goes.

    The space is all ways of tracing, and the likeliest ones with each config that the search tries, both without and
    with a C++ wrapper. Which plan is the fastest shows in one interleaved run of all; it is then timed again beside the
    plan found.
    """
    for name in models:
        model, x, _ = made_anew(SMALL[name])
        with rx.explore(model, (x,)) as ex:
            found = search_anew(ex, search_s)
            bench = LiveBench(ex.live.variants, ex.live.environment, PLAIN_RUN, lambda _timed: nullcontext(), Crew(0))
            with bench.closing():
                yield from _beside_the_space(name, bench, found, compile_s, rounds_s)


def _beside_the_space(
    name: str, bench: LiveBench, found: Tuning, compile_s: float, rounds_s: float
) -> Iterator[Row | str]:
    space = list({one.title: one for one in _space(bench, found)}.values())
    calls, same = _compiled(bench, space, compile_s)
    calls |= {EAGER: bench.eager(), TORCH_COMPILE: bench.full()[0]}

    def race(titles: Sequence[str]) -> RoundsResult:
        with bench.step(timed=True), bench.measuring():
            return measure_rounds([calls[one] for one in titles], rounds_s, bench.context, baseline=found.answer)

    all_of_them = race(list(calls))
    others = [title for title in all_of_them.samples if title != found.answer]
    best = min(others, key=lambda title: all_of_them.time(title, Phase.STEP).value)
    again = race([found.answer, best])
    ours, theirs = (again.samples[title][Phase.STEP] for title in (found.answer, best))
    reached = sum(map(len, same.values()))
    counted = f"the fastest other of {len(calls)} codes, from {reached} of {len(space)} plans"
    yield Row(f"a step of {name} by the plan found: {found.answer}", f"{best}, {counted}", ours, theirs, 1.03)
    if again.verdict(best, Phase.STEP) is Verdict.FASTER:
        yield f"{name}: a faster plan was missed: {_why_missed(found, same.get(best, [best]))}"


def _space(bench: LiveBench, found: Tuning) -> Iterator[Candidate]:
    if found.plan is not None:
        yield candidate_of(SearchStage.REFERENCE, Root(found.answer, found.plan))
    all_ways = ways(grad=bench.grad)
    bases: list[tuple[rx.Tracing, Mapping[str, Any]]] = [(way, {}) for way in all_ways]
    for config in to_be_faster(bench.device_type):
        bases += [(way, config) for way in all_ways[:LIKELIEST] if config != WRAPPER]
    for way, config in bases:
        yield whole_graph_candidate(SearchStage.KEYS, way, config)
        yield whole_graph_candidate(SearchStage.KEYS, way, {**config, **WRAPPER})


def _compiled(
    bench: LiveBench, space: Sequence[Candidate], compile_s: float
) -> tuple[dict[str, TimedCall], dict[str, list[str]]]:
    """Return the calls of plans with code of their own and right results, and the titles of all with equal code."""
    end_s, calls, titles_by_code = time.monotonic() + compile_s, dict[str, TimedCall](), dict[str, list[str]]()
    for begin in range(0, len(space), BATCH):
        if time.monotonic() > end_s:
            break
        batch = space[begin : begin + BATCH]
        with bench.step(timed=False):
            prepared = [bench.prepare(one.plan) for one in batch]
            results = bench.compile(prepared, PLAIN_RUN)
        for one, made, built in zip(batch, prepared, results, strict=True):
            if built is None or built.failure:
                continue
            same = titles_by_code.setdefault(built.code, [])
            same.append(one.title)
            if len(same) == 1:
                with bench.step(timed=False):
                    checked = bench.check(made)
                if not checked.wrong:
                    calls[one.title] = bench.call(made, one.title)
    return calls, {same[0]: same for same in titles_by_code.values()}


def _why_missed(found: Tuning, titles: Sequence[str]) -> str:
    tried = [found.by_title[title] for title in titles if title in found.by_title]
    tried = [one for one in tried if one.outcome is not Outcome.NOT_TRIED]
    return f"tried, and not picked: {tried[0].title}: {tried[0].outcome}" if tried else f"never tried: {titles[0]}"


# ---------------------------------------------------------------------------------------------------- what it costs


def plan_time_rows(search_s: float = 120.0, sample: int = 6) -> Iterator[Row | str]:
    """Search for the plan of the quickstart's GPT, beside compiling each of its plans by plain torch.compile.

    All caches are empty at the beginning of the search, and of each compile, but for the toolchain's. Plans with equal
    configs cost the same there, whatever their way of tracing; of the configs the first, the last and some between them
    are compiled. To time the plans is taken to last as long as in the search.
    """
    with quickstart() as ex:
        with fresh_cache():
            found = search_anew(ex, search_s)
        tried = [one for one in found.tries if one.outcome in _COMPILED and one.plan is not None]
        if not tried:
            yield f"no plan was compiled within {search_s:g} s"
            return
        configs = [dict(config) for config in dict.fromkeys(map(_config, tried))]
        count = min(sample, len(configs))
        chosen = [configs[place * (len(configs) - 1) // max(1, count - 1)] for place in range(count)]
        costs = [_cold_compile_s(ex, config) for config in chosen]
    theirs = statistics.fmean(costs) * len(tried) + found.spent_on["timing"]
    against = f"compiling each by torch.compile ({count} of {len(configs)} configs measured), and timing them as long"
    yield Row(f"a search among {len(tried)} plans of the quickstart's GPT", against, [found.spent_s], [theirs], 1.0)


_COMPILED = (Outcome.MEASURED, Outcome.SLOWER, Outcome.SAME_CODE, Outcome.WRONG)


def _config(one: Try) -> tuple[tuple[str, Any], ...]:
    assert one.plan is not None
    return tuple(sorted(one.plan.regions[0].config.items()))


def _cold_compile_s(ex: rx.Exploration, config: Mapping[str, Any]) -> float:
    """Return the seconds of the first step under plain torch.compile with a config, from an empty cache."""
    with fresh_cache():
        # A new code object, which Dynamo has not seen: it builds what every compile of a process shares.
        first: Callable[..., Any] = torch.compile(eval("lambda x: x.sin() + 1"))  # noqa: S307 - a constant
        first(torch.ones(64))
        with ex.live.variants.twin_of_full(config) as made:
            return made.cost.seconds


# -------------------------------------------------------------------------------------------- whether gains add up


def predicted_rows(
    models: Sequence[str] = tuple(MODELS), suggest_s: float = 120.0, rounds_s: float = 20.0
) -> Iterator[Row | str]:
    """Mark the suggestions that promise most together, and compare what they promised with what a step saves.

    Each was measured as the only region, beside the trace run eagerly. They promise the sum of these gains.
    """
    for name in models:
        model, x, _ = made_anew(MODELS[name])
        with rx.explore(model, (x,)) as ex:
            measured = ex.suggest(suggest_s)
            chosen = best_apart([one for one in measured if one.gain_s is not None and not one.brings_nothing])
            if not chosen:
                whys = "; ".join(f"{one.name}: {one.why_not or 'no gain'}" for one in measured)
                yield f"{name}: nothing to add up: {whys}"
                continue
            for one in chosen:
                ex.mark(one.name, *one.selectors)
            ex.benchmark([VariantName.EAGER, VariantName.AOT_EAGER, VariantName.REGIONAL], rounds_s, regions=False)
            timings = ex.session.whole_timings
            traced_s, regional_s = (timings[of].samples_s for of in (VariantName.AOT_EAGER, VariantName.REGIONAL))
        saved = median_figure(paired_gaps(traced_s, regional_s))
        predicted = sum((one.gain_s for one in chosen if one.gain_s is not None), start=exactly(0.0))
        what = f"what {', '.join(one.name for one in chosen)} of {name} save: the sum of each alone{between(predicted)}"
        against = f"all of them marked{between(saved)}"
        yield Row(what, against, [predicted.value * 1e3], [saved.value * 1e3], math.inf, unit="ms")


def best_apart(suggestions: Sequence[Suggestion]) -> list[Suggestion]:
    """Return those suggestions without a common op whose gains add up to the most."""
    if not suggestions:
        return []
    first, *others = suggestions
    apart = [one for one in others if one.name not in related(first) and first.name not in related(one)]
    return max([first, *best_apart(apart)], best_apart(others), key=lambda found: sum(map(gain_s, found)))


def related(one: Suggestion) -> tuple[str, ...]:
    """Return the names of suggestions that share ops with this one, as far as it names them."""
    return (*one.inside, *one.overlaps)


def gain_s(one: Suggestion) -> float:
    """Return the measured gain of a suggestion."""
    return one.gain_s.value if one.gain_s is not None else 0.0


def between(seconds: Figure) -> str:
    """Return the interval of seconds in words; empty if there is none."""
    return " ({:.2f}–{:.2f} ms)".format(*(end * 1e3 for end in seconds.bounds)) if seconds.bounds else ""
