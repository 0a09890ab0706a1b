"""The plans that a search misses in a fully compiled space, its cost, and whether gains measured alone add up."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn
from torch._inductor.utils import fresh_cache

import regional_explorer as rx
from benchmarks.row import Row
from benchmarks.traced import MODELS as TRACED
from benchmarks.traced import Make, reset_and_make
from regional_explorer.compiler.run import PLAIN_RUN
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.rounds import RoundsResult
from regional_explorer.measure.timings import measure_rounds
from regional_explorer.record.benchmark import Phase, VariantName, Verdict
from regional_explorer.record.configs import speed_configs
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
    tracings_to_try,
    whole_graph_candidate,
)
from regional_explorer.tuning.tries import BATCH
from tests.shared.models import DiffusionTransformer, quickstart
from tests.shared.small_models import Experts, Gated, Norms

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


class WithLoss(nn.Module):
    """A language model of ``transformers`` that returns its loss on its own input."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return a scalar loss."""
        loss: torch.Tensor = self.model(input_ids=ids, labels=ids).loss
        return loss


def _bert() -> tuple[nn.Module, torch.Tensor]:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        hidden_size=128, num_hidden_layers=12, num_attention_heads=4, intermediate_size=512, vocab_size=1000
    )
    return WithLoss(BertForMaskedLM(config)).eval(), torch.randint(0, 1000, (2, 64))


def _qwen3() -> tuple[nn.Module, torch.Tensor]:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=48,
        vocab_size=1000,
    )
    return WithLoss(Qwen3ForCausalLM(config)), torch.randint(0, 1000, (2, 64))


UNTUNED: Mapping[str, Make] = {"bert": _bert, "qwen3": _qwen3}
"""Models that nothing of the search was chosen by."""


def search_from_scratch(ex: rx.Exploration, search_s: float, **options: Any) -> Tuning:
    """Search for a plan with an empty ledger, and return the record."""
    with tempfile.TemporaryDirectory() as folder:
        return ex.tune(search_s, ledger=Path(folder, "tries.jsonl"), **options).record


# ------------------------------------------------------------------------------------------------- what it has missed


def exhaustive_rows(
    models: Sequence[str] = tuple(SMALL), search_s: float = 90.0, compile_s: float = 160.0, rounds_s: float = 15.0
) -> Iterator[Row | str]:
    """Time a step by the plan found, and by the fastest other plan of a space that is compiled as far as the time goes.

    The space has all tracings, and the likeliest tracings with each config that the search tries, without and with a
    C++ wrapper. One interleaved run of all shows the fastest plan, which is then timed again beside the plan found.
    """
    for name in models:
        model, x, _ = reset_and_make(SMALL[name])
        with rx.explore(model, (x,)) as ex:
            search = search_from_scratch(ex, search_s)
            bench = LiveBench(ex.live.variants, ex.live.environment, PLAIN_RUN, lambda _timed: nullcontext(), Crew(0))
            with bench.closing():
                yield from _space_rows(name, bench, search, compile_s, rounds_s)


def _space_rows(name: str, bench: LiveBench, search: Tuning, compile_s: float, rounds_s: float) -> Iterator[Row | str]:
    space = list({candidate.title: candidate for candidate in _space(bench, search)}.values())
    calls, same = _compile_space(bench, space, compile_s)
    calls |= {EAGER: bench.eager(), TORCH_COMPILE: bench.full()[0]}

    def race(titles: Sequence[str]) -> RoundsResult:
        with bench.step(timed=True), bench.measuring(bench.context) as context:
            return measure_rounds([calls[title] for title in titles], rounds_s, context, baseline=search.answer)

    all_of_them = race(list(calls))
    others = [title for title in all_of_them.samples if title != search.answer]
    best = min(others, key=lambda title: all_of_them.time(title, Phase.STEP).value)
    rerun = race([search.answer, best])
    ours, theirs = (rerun.samples[title][Phase.STEP] for title in (search.answer, best))
    reached = sum(map(len, same.values()))
    counted = f"the fastest other of {len(calls)} codes, from {reached} of {len(space)} plans"
    yield Row(f"a step of {name} by the plan found: {search.answer}", f"{best}, {counted}", ours, theirs, 1.03)
    if rerun.verdict(best, Phase.STEP) is Verdict.FASTER:
        yield f"{name}: a faster plan was missed: {_why_missed(search, same.get(best, [best]))}"


def _space(bench: LiveBench, search: Tuning) -> Iterator[Candidate]:
    if search.plan is not None:
        yield candidate_of(SearchStage.REFERENCE, Root(search.answer, search.plan))
    tracings = tracings_to_try(grad=bench.grad)
    bases: list[tuple[rx.Tracing, Mapping[str, Any]]] = [(tracing, {}) for tracing in tracings]
    ops = {op.op for graph in bench.variants.program.capture.graphs for op in graph.ops}
    for config in speed_configs(bench.device_type, ops):
        bases += [(tracing, config) for tracing in tracings[:LIKELIEST] if config != WRAPPER]
    for way, config in bases:
        yield whole_graph_candidate(SearchStage.KEYS, way, config)
        yield whole_graph_candidate(SearchStage.KEYS, way, {**config, **WRAPPER})


def _compile_space(
    bench: LiveBench, space: Sequence[Candidate], compile_s: float
) -> tuple[dict[str, TimedCall], dict[str, list[str]]]:
    """Return the calls of plans with distinct code and right results, and the titles of all plans with equal code."""
    end_s, calls, titles_by_code = time.monotonic() + compile_s, dict[str, TimedCall](), dict[str, list[str]]()
    for begin in range(0, len(space), BATCH):
        if time.monotonic() > end_s:
            break
        batch = space[begin : begin + BATCH]
        with bench.step(timed=False):
            prepared = [bench.prepare(candidate.plan) for candidate in batch]
            results = bench.compile(prepared, PLAIN_RUN)
        for candidate, plan, built in zip(batch, prepared, results, strict=True):
            if built is None or built.failure:
                continue
            titles = titles_by_code.setdefault(built.code, [])
            titles.append(candidate.title)
            if len(titles) == 1:
                with bench.step(timed=False):
                    checked = bench.check(plan)
                if checked.outcome is Outcome.MEASURED:
                    calls[candidate.title] = bench.call(plan, candidate.title)
    return calls, {titles[0]: titles for titles in titles_by_code.values()}


def _why_missed(search: Tuning, titles: Sequence[str]) -> str:
    tried = [search.by_title[title] for title in titles if title in search.by_title]
    tried = [try_ for try_ in tried if try_.outcome is not Outcome.NOT_TRIED]
    return f"tried, and not picked: {tried[0].title}: {tried[0].outcome}" if tried else f"never tried: {titles[0]}"


# ------------------------------------------------------------------------------------------------- the shorter call


def shorter_rows(
    models: Sequence[str] = ("gpt", "llama", "dit", "norms", *UNTUNED), rounds_s: float = 10.0
) -> Iterator[Row | str]:
    """Time a step traced as is fastest on the shorter call, beside the way of tracing that is fastest on the step.

    Before each row, a line says how alike both calls rank the ways, plain ``torch.compile`` among them.
    """
    for name in models:
        model, x, _ = reset_and_make({**MODELS, **UNTUNED}[name])
        with rx.explore(model, (x,)) as ex:
            bench = LiveBench(ex.live.variants, ex.live.environment, PLAIN_RUN, lambda _timed: nullcontext(), Crew(0))
            with bench.closing():
                with bench.step(timed=False):
                    shorter = bench.shorter()
                if shorter is None:
                    yield f"{name}: no shorter call"
                    continue
                whole_s, short_s = _ways_s(bench, rounds_s), _ways_s(shorter, rounds_s)
        common = [way for way in whole_s if way in short_s]
        whole, short = (pd.Series({way: statistics.median(side[way]) for way in common}) for side in (whole_s, short_s))
        correlation = whole.rank().corr(short.rank())
        yield f"{name} ({shorter.repeats}): rank correlation of {len(common)} codes: {correlation:.2f}"
        chosen, best = str(short.idxmin()), str(whole.idxmin())
        what = f"a step of {name}, traced as is fastest on the shorter call: {chosen}"
        yield Row(what, f"the fastest on the step: {best}", whole_s[chosen], whole_s[best], 1.02, unit="s")


def _ways_s(bench: LiveBench, rounds_s: float) -> dict[str, tuple[float, ...]]:
    """Return the seconds of a step, by round, under each way of tracing with code of its own and ``torch.compile``."""
    ways = [whole_graph_candidate(SearchStage.TRACING, way) for way in tracings_to_try(grad=bench.grad)]
    calls, _ = _compile_space(bench, ways, math.inf)
    calls[TORCH_COMPILE] = bench.full()[0]
    with bench.step(timed=True), bench.measuring(bench.context) as context:
        result = measure_rounds(list(calls.values()), rounds_s, context, baseline=TORCH_COMPILE)
    return {title: phases[Phase.STEP] for title, phases in result.samples.items()}


# ---------------------------------------------------------------------------------------------------- what it costs


def search_cost_rows(search_s: float = 300.0, sample: int = 6) -> Iterator[Row | str]:
    """Compare a search for the plan of the quickstart's GPT with compiling each of its plans by torch.compile.

    At the beginning of the search, and of each compile, all caches except the toolchain's are empty. Plans with equal
    configs cost the same in plain torch.compile, whatever their tracing; the first config, the last and some between
    them are compiled. Timing the plans is assumed to take as long as in the search.
    """
    with quickstart() as ex:
        with fresh_cache():
            search = search_from_scratch(ex, search_s)
        tried = [try_ for try_ in search.tries if try_.outcome in _COMPILED and try_.plan is not None]
        if not tried:
            yield f"no plan was compiled within {search_s:g} s"
            return
        configs = [dict(config) for config in dict.fromkeys(map(_config, tried))]
        count = min(sample, len(configs))
        chosen = [configs[place * (len(configs) - 1) // max(1, count - 1)] for place in range(count)]
        costs = [_cold_compile_s(ex, config) for config in chosen]
    theirs = statistics.fmean(costs) * len(tried) + search.spent_on["timing"]
    against = f"compiling each by torch.compile ({count} of {len(configs)} configs measured), and timing them as long"
    yield Row(f"a search among {len(tried)} plans of the quickstart's GPT", against, [search.spent_s], [theirs], 0.15)


_COMPILED = (Outcome.MEASURED, Outcome.SLOWER, Outcome.SAME_CODE, Outcome.WRONG)


def _config(tried: Try) -> tuple[tuple[str, Any], ...]:
    assert tried.plan is not None
    return tuple(sorted(tried.plan.regions[0].config.items()))


def _cold_compile_s(ex: rx.Exploration, config: Mapping[str, Any]) -> float:
    """Return the seconds of the first step under plain torch.compile with a config, from an empty cache."""
    with fresh_cache():
        # Dynamo has not seen this new code object, whose compile builds the files that all compiles of a process share.
        first: Callable[..., Any] = torch.compile(eval("lambda x: x.sin() + 1"))  # noqa: S307 - a constant
        first(torch.ones(64))
        with ex.live.variants.twin_of_full(config) as twin:
            return twin.cost.seconds


# -------------------------------------------------------------------------------------------- whether gains add up


def predicted_rows(
    models: Sequence[str] = tuple(MODELS), suggest_s: float = 120.0, rounds_s: float = 20.0
) -> Iterator[Row | str]:
    """Mark the suggestions that together promise most, and compare their promise with the saving in a step.

    Each suggestion was measured as the only region, beside the trace run eagerly. They promise the sum of these gains.
    """
    for name in models:
        model, x, _ = reset_and_make(MODELS[name])
        with rx.explore(model, (x,)) as ex:
            measured = ex.suggest(suggest_s)
            chosen = best_apart([item for item in measured if item.gain_s is not None and not item.brings_nothing])
            if not chosen:
                whys = "; ".join(f"{suggestion.name}: {suggestion.why_not or 'no gain'}" for suggestion in measured)
                yield f"{name}: no gains to add up: {whys}"
                continue
            for suggestion in chosen:
                ex.mark(suggestion.name, *suggestion.selectors)
            ex.benchmark([VariantName.EAGER, VariantName.AOT_EAGER, VariantName.REGIONAL], rounds_s, regions=False)
            timings = ex.session.whole_timings
            traced_s, regional_s = (
                timings[variant].samples_s for variant in (VariantName.AOT_EAGER, VariantName.REGIONAL)
            )
        saved = median_figure(paired_gaps(traced_s, regional_s))
        predicted = sum((gain for suggestion in chosen if (gain := suggestion.gain_s) is not None), start=exactly(0.0))
        names = ", ".join(suggestion.name for suggestion in chosen)
        what = f"what {names} of {name} save: the sum of each alone{interval_text(predicted)}"
        against = f"all of them marked{interval_text(saved)}"
        yield Row(what, against, [predicted.value * 1e3], [saved.value * 1e3], math.inf, unit="ms")


def best_apart(suggestions: Sequence[Suggestion]) -> list[Suggestion]:
    """Return the suggestions without common ops that have the largest summed gain."""
    if not suggestions:
        return []
    first, *others = suggestions
    apart = [other for other in others if other.name not in related(first) and first.name not in related(other)]
    return max([first, *best_apart(apart)], best_apart(others), key=lambda chosen: sum(map(gain_s, chosen)))


def related(suggestion: Suggestion) -> tuple[str, ...]:
    """Return the names of other suggestions that a suggestion says it shares ops with."""
    return (*suggestion.inside, *suggestion.overlaps)


def gain_s(suggestion: Suggestion) -> float:
    """Return the measured gain of a suggestion."""
    return suggestion.gain_s.value if suggestion.gain_s is not None else 0.0


def interval_text(seconds: Figure) -> str:
    """Return the interval of seconds in words; empty if there is none."""
    return " ({:.2f}–{:.2f} ms)".format(*(end * 1e3 for end in seconds.bounds)) if seconds.bounds else ""
