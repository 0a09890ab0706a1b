"""The plans that ``ex.tune`` finds, timed again: training steps, steps equal to eager's to the bit, inference."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch import nn

import regional_explorer as rx
from benchmarks.row import Row, inference_calls, training_steps
from benchmarks.search import MODELS, UNTUNED, search_from_scratch
from benchmarks.traced import PLAIN, reset_and_make
from regional_explorer.record.reach import reach_of
from regional_explorer.record.tuning import TORCH_COMPILE, NumericsRequirement

SEARCH_S = 120.0
"""The budget of each search, except for training."""


def tuning_rows(models: Sequence[str] = (*MODELS, *UNTUNED), search_s: float = 300.0) -> Iterator[Row]:
    """Search for the plan of each model with an empty ledger, then time training steps with it in other rounds."""
    ratios = []
    for name in models:
        model, x, leaves = reset_and_make({**MODELS, **UNTUNED}[name])
        with rx.explore(model, (x,)) as ex:
            search = search_from_scratch(ex, search_s, apply=True)
            functions: dict[str, Callable[..., Any]] = {"eager": model, PLAIN: torch.compile(model)}
            if search.plan is not None:
                ex.compile()
                functions[search.answer] = ex.compiled
            steps = training_steps(functions, x, leaves, budget_s=30.0)
        best = min(("eager", PLAIN), key=lambda name_: statistics.median(steps[name_]))
        answer = PLAIN if search.answer == TORCH_COMPILE else search.answer
        row = Row(f"a step of {name} by the plan found: {answer}", best, steps[answer], steps[best], 1.01)
        ratios += [row.ratio] if name in MODELS else []
        yield row
    if len(ratios) > 1:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        yield Row(f"the geometric mean of these {len(ratios)}", "the better reference", [mean], [1.0], 0.88, unit="×")


def floor_rows(models: Sequence[str] = (*MODELS, *UNTUNED), search_s: float = SEARCH_S) -> Iterator[Row]:
    """Search for the plan of a step of each model, then give the floor of the step beside the fastest plan."""
    for name in models:
        model, x, _ = reset_and_make({**MODELS, **UNTUNED}[name])
        with rx.explore(model, (x,)) as ex:
            search_from_scratch(ex, search_s)
            floor, reach = ex.floor(), reach_of(ex.session)
            assert reach is not None, "no plan was measured"
            what = f"the floor of a step of {name}; {floor.sentence}"
            yield Row(what, reach.title, [floor.record.seconds], [reach.seconds.value], 1.0, least=0.75)


SGD_STEPS = 20


def bitwise_rows(models: Sequence[str] = ("gated", "norms", "gpt-small"), search_s: float = SEARCH_S) -> Iterator[Row]:
    """Search for a plan with eager's results to the bit, train by SGD with both, and time both."""
    for name in models:
        model, x, leaves = reset_and_make(MODELS[name])
        with rx.explore(model, (x,)) as ex:
            search = search_from_scratch(ex, search_s, numerics=NumericsRequirement.BITWISE, apply=True)
            assert search.answer != TORCH_COMPILE, "torch.compile was not compared to the bit"
            if search.plan is not None:
                ex.compile()
            function = model if search.plan is None else ex.compiled
            before = copy.deepcopy(model.state_dict())
            trained = []
            for step in (model, function):
                model.load_state_dict(before)
                trained.append(_train(model, step, x))
            differing = [key for key, value in trained[0].items() if not torch.equal(value, trained[1][key])]
            steps = training_steps({"eager": model, "plan": function}, x, leaves, budget_s=30.0)
        equal = f"{', '.join(differing)} differ" if differing else "all parameters equal to the bit"
        what = f"a step of {name} by {search.answer}; after {SGD_STEPS} steps of SGD {equal}"
        yield Row(what, "eager", steps["plan"], steps["eager"], 1.0)


def _train(model: nn.Module, step: Callable[..., Any], x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the state of a model after steps of SGD on the loss of ``step``."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(SGD_STEPS):
        optimizer.zero_grad()
        step(x).backward()
        optimizer.step()
    return copy.deepcopy(model.state_dict())


FREEZING = f"{PLAIN} under freezing"


def inference_rows(
    models: Sequence[str] = ("norms", "gpt-small", "llama", "residual"), search_s: float = SEARCH_S
) -> Iterator[Row]:
    """Search for the plan of an inference in float32 and in bfloat16, beside torch.compile and its freezing."""
    for name in models:
        for dtype in (torch.float32, torch.bfloat16):
            model, x, _ = reset_and_make(MODELS[name])
            model, x = model.eval().to(dtype), x.detach().to(dtype) if x.is_floating_point() else x
            with rx.explore(model, (x,), grad=False) as ex:
                search = search_from_scratch(ex, search_s, apply=True)
                # Different options make Dynamo distinguish the two compiles; it reads this config before the options
                # take effect.
                frozen = torch.compile(copy.deepcopy(model), options={"freezing": True})
                with inductor_config.patch(freezing=True), torch.no_grad():
                    frozen(x)
                functions: dict[str, Callable[..., Any]] = {
                    "eager": model,
                    PLAIN: torch.compile(model),
                    FREEZING: frozen,
                }
                if search.plan is not None:
                    ex.compile()
                    functions[search.answer] = ex.compiled
                calls = inference_calls(functions, x, budget_s=30.0)
            what = f"a call of {name} in {str(dtype).removeprefix('torch.')} by the plan found: {search.answer}"
            for against in (PLAIN, FREEZING):
                yield Row(what, against, calls[search.answer], calls[against], 1.0)
