"""Real models with regions by module, run and trained: ``python -m benchmarks.models [MODEL …]``.

Each is traced, cut, compiled and compared with eager and float64, once for inference and once for a training step. What
torch itself cannot capture is told, and nothing crashes. ``--steps`` times the training steps of some models instead,
with the sums of gradients inside the regions and without.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

import regional_explorer as rx
from benchmarks.architectures import ARCHITECTURES
from benchmarks.row import Row as TimedRow
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.rounds import run_rounds
from regional_explorer.record.plan import Cut
from regional_explorer.record.timing import Phase, VariantName

STEPS = ("gpt", "bert", "llama", "vit", "mamba")
"""The models that ``--steps`` times when none is named."""

BUDGET_S = 0.2
"""Seconds spent on timing each: the numbers that come of it are not shown, the comparison before it is."""


@dataclass(frozen=True)
class Row:
    """What came of one model in one mode.

    ``marked`` counts the partitions there would be with sums of gradients left eager. ``artifacts`` counts runs of
    Inductor: partitions that are equal share one. ``numerics`` is the verdict over all outputs and gradients, or why
    there is none. ``diagnostics`` counts what the exploration had to say, by code; ``failures`` says what did not
    compile, and why.
    """

    model: str
    mode: str
    numerics: str
    seconds: float
    graphs: int = 0
    breaks: int = 0
    regions: int = 0
    marked: int = 0
    partitions: int = 0
    artifacts: int = 0
    diagnostics: str = ""
    failures: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the row of a Markdown table."""
        return (
            f"| {self.model} | {self.mode} | {self.graphs} | {self.breaks} | {self.regions} | {self.marked} "
            f"| {self.partitions} | {self.artifacts} | {self.numerics} | {self.diagnostics or '-'} "
            f"| {self.seconds:.0f} |"
        )


HEADER = (
    "| model | mode | graphs | breaks | regions | partitions, sums eager | partitions | artifacts | numerics "
    "| diagnostics | seconds |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)


def explore(name: str, *, training: bool, repeats: int = 1) -> tuple[rx.Exploration, int]:
    """Return the exploration of a model with its regions marked, and how many regions that are.

    Its inputs are repeated ``repeats`` times along their first dimension, the batch.
    """
    torch.manual_seed(0)
    chosen = ARCHITECTURES[name]
    model, inputs = chosen.build()
    model.train(training)
    if repeats > 1:
        inputs = {
            key: torch.cat([value] * repeats) if torch.is_tensor(value) else value for key, value in inputs.items()
        }
    ex = rx.explore(model, kwargs=inputs, grad=training)
    for glob in chosen.modules:
        try:
            ex.mark(glob.replace("*", "").strip(".").replace("..", "."), modules=glob)
        except rx.SelectorError:
            # Names of submodules differ between versions of transformers; one glob that matches will do.
            if glob == chosen.modules[-1] and not ex.plan.regions:
                raise
    return ex, len(ex.plan.regions)


def run(name: str, *, training: bool) -> Row:
    """Explore, compile and compare one model in one mode."""
    mode = "training" if training else "inference"
    started = time.perf_counter()
    try:
        ex, regions = explore(name, training=training)
    except rx.CaptureError as error:
        return Row(name, mode, f"not captured: {str(error).splitlines()[0]}", time.perf_counter() - started)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ex.benchmark(("aot_eager", "regional"), BUDGET_S, regions=False)
    seconds = time.perf_counter() - started
    verdicts = Counter(ex.numerics[ex.numerics.variant == "regional"].verdict)
    session = ex.session
    row = Row(
        name,
        mode,
        numerics=", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())),
        seconds=seconds,
        graphs=sum(graph.kind == "dynamo" and graph.parent is None for graph in session.graphs),
        breaks=len(session.breaks),
        regions=regions,
        marked=len(ex.preview(replace(ex.plan, cut=Cut.MARKED)).partitions),
        partitions=len(session.partitions),
        artifacts=len({part.artifact for part in session.partitions if part.artifact}),
        diagnostics=", ".join(f"{count} {code}" for code, count in Counter(d.code for d in ex.diagnostics).items()),
        failures=tuple(d.message for d in ex.diagnostics if d.code == "region-failed"),
    )
    ex.close()
    return row


def step_row(name: str, budget_s: float) -> TimedRow:
    """Time a training step whose regions have their sums of gradients, beside one whose sums run eagerly."""
    explorations = {cut: explore(name, training=True)[0] for cut in (Cut.INSTANCES, Cut.MARKED)}
    calls = []
    for cut, ex in explorations.items():
        ex.plan = replace(ex.plan, cut=cut)
        ex.compile()
        regional = ex.live.variants.get(VariantName.REGIONAL)
        calls.append(TimedCall(str(cut), regional.forward, regional.backward))
    result = run_rounds(calls, budget_s, baseline=str(Cut.MARKED))
    ours, theirs = (result.samples[str(cut)][Phase.STEP] for cut in explorations)
    counts = [len(ex.partitions) for ex in explorations.values()]
    for ex in explorations.values():
        ex.close()
    return TimedRow(f"{name}: {counts[0]} partitions", f"sums eager: {counts[1]} partitions", ours, theirs, 1.0)


def step_lines(names: list[str], budget_s: float) -> Iterator[str]:
    """Yield the Markdown table of ``step_row``, a line as soon as it is there."""
    yield "| a training step | against | rounds | ratio |\n|---|---|---|---|"
    for name in names:
        row = step_row(name, budget_s)
        yield f"| {row.what} | {row.against} | {len(row.ours)} | {row.ratio:.3f} |"


def main() -> None:
    """Print the table, a row as soon as it is there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"some of {', '.join(ARCHITECTURES)}")
    parser.add_argument("--mode", choices=["inference", "training"], help="one of the two; both when left out")
    parser.add_argument(
        "--steps", action="store_true", help=f"time training steps, of {', '.join(STEPS)} if none named"
    )
    parser.add_argument("--budget", type=float, default=30.0, metavar="S", help="seconds for each step that is timed")
    given = parser.parse_args()
    chosen = given.models or list(ARCHITECTURES)
    if unknown := [name for name in chosen if name not in ARCHITECTURES]:
        parser.error(f"no model is called {unknown[0]!r}; there are {', '.join(ARCHITECTURES)}")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    if given.steps:
        for text in step_lines(given.models or list(STEPS), given.budget):
            print(text, flush=True)
        return
    print(HEADER, flush=True)
    for name in chosen:
        for mode in [given.mode] if given.mode else ["inference", "training"]:
            print(run(name, training=mode == "training"), flush=True)


if __name__ == "__main__":
    main()
