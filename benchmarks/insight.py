"""What looking into the generated code costs: ``python -m benchmarks insight``.

Kernels, provenance and refused fusions come of lowering each distinct partition once more, when somebody asks. Here
that is added to a cold compile; and the steps of an exploration whose code was looked at run in turns with those of one
whose code was not.
"""

from __future__ import annotations

from unittest import mock

import regional_explorer as rx
from benchmarks.provenance import quickstart_gpt
from benchmarks.row import Row, timed
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.rounds import run_rounds
from regional_explorer.record.timing import Phase, VariantName
from regional_explorer.torch_api import lowering

REPEATS = 3
BUDGET_S = 60.0


def rows(repeats: int = REPEATS, budget_s: float = BUDGET_S) -> list[Row]:
    """Return the cost at the compile, and at the steady step.

    Raises:
        AssertionError: looking changed the code that runs, or a compile looked without being asked.
    """
    return [compile_row(repeats), step_row(budget_s)]


def compile_row(repeats: int) -> Row:
    """Compile the quickstart's GPT cold, without looking; then look at all of its code."""
    with_code, without = [], []
    for _ in range(repeats):
        ex = quickstart_gpt()
        with mock.patch.object(lowering, "lower_piece", side_effect=AssertionError("nobody asked")):
            compiled_s = timed(lambda ex=ex: ex.compile(cold=True))  # type: ignore[misc]
        codes = [artifact.code for artifact in ex.live.program.store.artifacts.values()]
        without.append(compiled_s)
        with_code.append(compiled_s + timed(lambda ex=ex: _look(ex)))  # type: ignore[misc]
        if codes != [artifact.code for artifact in ex.live.program.store.artifacts.values()]:
            raise AssertionError("looking changed the code that runs")
        if not all(code.same_code for code in ex.session.codes):
            raise AssertionError("lowered again, a partition gave other code")
        ex.close()
    return Row("compile the quickstart's GPT and look at all of its code", "compile alone", with_code, without, 1.2)


def step_row(budget_s: float) -> Row:
    """Run training steps of both in interleaved rounds."""
    explorations = {"looked at": quickstart_gpt(), "not looked at": quickstart_gpt()}
    calls = []
    for name, ex in explorations.items():
        ex.compile()
        if name == "looked at":
            _look(ex)
        regional = ex.live.variants.get(VariantName.REGIONAL)
        calls.append(TimedCall(name, regional.forward, regional.backward))
    result = run_rounds(calls, budget_s, baseline="not looked at")
    ours, theirs = (result.samples[name][Phase.STEP] for name in explorations)
    for ex in explorations.values():
        ex.close()
    return Row("a training step after looking at the code", "before", ours, theirs, 1.01)


def _look(ex: rx.Exploration) -> None:
    for region in ex.plan.regions:
        ex.code(region.name)
