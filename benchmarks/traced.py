"""Training steps of the whole graph as one region, by how the call is traced, beside plain ``torch.compile``.

Each line gives the bytes that its forward keeps for the backward, and the peak memory of a step beside that of
``torch.compile``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import regional_explorer as rx
from benchmarks.row import Row, training_steps
from regional_explorer.measure.memory import gauge_for, measure_peak
from regional_explorer.record.graph import kept_for_backward
from regional_explorer.record.plan import AS_TORCH_COMPILE
from tests.shared.models import GPT, WORDS
from tests.shared.small_models import Experts, Gated, Llama, Norms, Residual

MIB = 2**20


def _floats(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, requires_grad=True)


def _ids(*sizes: int) -> torch.Tensor:
    return torch.randint(2, WORDS, sizes)


Make = Callable[[], tuple[nn.Module, torch.Tensor]]

MODELS: Mapping[str, Make] = {
    "gated": lambda: (Gated(512, depth=4), _floats(1024, 512)),
    "norms": lambda: (Norms(256, depth=4), _floats(256, 256)),
    "gpt-small": lambda: (GPT(64, depth=2).eval(), _ids(2, 32)),
    "llama": lambda: (Llama(256, WORDS, heads=4, depth=4, length=64), _ids(4, 64)),
    "experts": lambda: (Experts(128), _floats(256, 128)),
    "residual": lambda: (Residual(32, depth=3), _floats(4, 3, 32, 32)),
    "gpt": lambda: (GPT(256, depth=4).eval(), _ids(4, 64)),
}
"""Models with their argument; a step takes 3 to 60 ms on two cores."""


@dataclass(frozen=True)
class Line:
    """A way to run a step: all in one region, with this tracing and config; or without a region."""

    what: str
    tracing: rx.Tracing | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    goals: Mapping[str, float] = field(default_factory=dict)
    """The largest time relative to ``torch.compile``, by model: what these ways took when patched together by hand."""

    def function(self, model: nn.Module, x: torch.Tensor) -> tuple[Callable[..., Any], rx.Exploration | None]:
        """Return the compiled function, and its exploration if it has one."""
        if self.tracing is None:
            return torch.compile(model, options=dict(self.config) or None), None
        ex = rx.explore(model, (x,), plan=rx.Plan(tracing=self.tracing)).mark("all", ops="*")
        if self.config:
            ex.configure("all", dict(self.config))
        ex.compile()
        states = {part.state for part in ex.session.partitions}
        assert states == {"compiled"}, f"{self.what}: {ex.diagnostics}"
        return ex.compiled, ex


def _goals(*figures: float) -> dict[str, float]:
    return dict(zip(MODELS, figures, strict=True))


CPP = {"cpp_wrapper": True}
PLAIN = "torch.compile"
LINES = (
    Line("default partitioner", rx.Tracing(), goals=_goals(0.79, 0.88, 1.16, 1.05, 1.03, 0.99, 1.02)),
    Line(
        "default partitioner, joint passes, cpp_wrapper",
        rx.Tracing(joint_passes=True),
        CPP,
        _goals(1.0, 0.85, 1.06, 1.0, 0.98, 0.95, 0.98),
    ),
    Line("min-cut partitioner", rx.Tracing("min_cut"), goals=_goals(0.79, 0.88, 1.08, 1.01, 1.01, 0.98, 1.0)),
    Line("as torch.compile", AS_TORCH_COMPILE, goals=_goals(*[1.0] * 7)),
    Line("as torch.compile, cpp_wrapper", AS_TORCH_COMPILE, CPP, _goals(1.0, 1.0, 0.98, 0.97, 0.97, 1.0, 0.97)),
    Line("torch.compile, cpp_wrapper", None, CPP),
)


def _step(function: Callable[..., Any], x: torch.Tensor, leaves: list[torch.Tensor]) -> Callable[[], object]:
    return lambda: torch.autograd.grad(function(x), leaves)


def traced_rows(models: Sequence[str] = tuple(MODELS), budget_s: float = 40.0) -> Iterator[Row]:
    """Time a step of each model by every line, in interleaved rounds; then the steps of ``call_rows``."""
    for name in models:
        model, x, leaves = reset_and_make(MODELS[name])
        compiled = {line.what: line.function(model, x) for line in LINES}
        plain = torch.compile(model)
        functions: dict[str, Callable[..., Any]] = {"eager": model, PLAIN: plain}
        functions |= {what: function for what, (function, _) in compiled.items()}
        steps = training_steps(functions, x, leaves, budget_s)
        peaks = {what: _peak_mib(what, _step(function, x, leaves)) for what, function in functions.items()}
        for line in (Line("eager"), *LINES):
            _, ex = compiled.get(line.what, (None, None))
            what = f"a step of {name}: {line.what}{_kept_text(ex)}; peak {peaks[line.what]}"
            goal = line.goals.get(name, math.inf)
            yield Row(what, f"{PLAIN}; peak {peaks[PLAIN]}", steps[line.what], steps[PLAIN], goal)
        for _, ex in compiled.values():
            if ex is not None:
                ex.close()
    yield from call_rows([name for name in CALLED if name in models], budget_s)


CALLED = ("gpt-small", "gpt")


def call_rows(models: Iterable[str] = CALLED, budget_s: float = 40.0) -> Iterator[Row]:
    """Time a step traced as by ``torch.compile``: the cost of our calls with one or a dozen partitions per graph."""
    for name in models:
        model, x, leaves = reset_and_make(MODELS[name])
        whole, parts = (rx.explore(model, (x,), plan=rx.Plan(tracing=AS_TORCH_COMPILE)) for _ in range(2))
        for ex in (whole, parts):
            ex.mark("rest", ops="*")
        parts.mark("mlp", modules="layers.*.mlp")
        goals = {whole: 1.0, parts: 1.02}
        functions: dict[str, Callable[..., Any]] = {}
        for ex in goals:
            ex.compile()
            functions[f"{len(ex.partitions)} partitions"] = ex.compiled
        steps = training_steps({**functions, PLAIN: torch.compile(model)}, x, leaves, budget_s)
        for (ex, goal), count in zip(goals.items(), functions, strict=True):
            yield Row(f"a step of {name}, as torch.compile in {count}", PLAIN, steps[count], steps[PLAIN], goal)
            ex.close()


def reset_and_make(make: Make) -> tuple[nn.Module, torch.Tensor, list[torch.Tensor]]:
    """Reset the seed and Dynamo; return a new model, its argument, and the tensors with gradients."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, x = make()
    return model, x, [value for value in (x, *model.parameters()) if value.requires_grad]


def _peak_mib(what: str, step: Callable[[], object]) -> str:
    gauge = gauge_for("cpu")
    if gauge is None:
        return "not known"
    peak = measure_peak(what, step, gauge).peak_bytes
    between = "" if peak.bounds is None else " ({:.1f}–{:.1f})".format(*(end / MIB for end in peak.bounds))
    return f"{peak.value / MIB:.1f}{between} MiB"


def _kept_text(ex: rx.Exploration | None) -> str:
    if ex is None:
        return ""
    sizes = [tensor.size_bytes or 0 for tensor in kept_for_backward(ex.session.graphs)]
    return f", keeps {sum(sizes) / MIB:.1f} MiB"
