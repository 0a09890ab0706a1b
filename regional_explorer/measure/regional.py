"""The regions alone, and what it costs to call them from the cut graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from regional_explorer.compiler.variants import VariantName, Variants
from regional_explorer.measure.benchmark import Outcome, Tell, contender
from regional_explorer.measure.clock import Clock, clock_for
from regional_explorer.measure.effort import Effort
from regional_explorer.measure.partitions import distinct, measure_partitions
from regional_explorer.measure.place import HERE, Place
from regional_explorer.measure.reconcile import AOT_EAGER, CUT
from regional_explorer.measure.result import RoundsResult
from regional_explorer.measure.rounds import run_rounds
from regional_explorer.record.session import Environment


def benchmark_regions(
    variants: Variants,
    effort: Effort,
    environment: Environment,
    outcome: Outcome,
    *,
    cancelled: Callable[[], bool],
    tell: Tell,
    place: Place = HERE,
) -> None:
    """Measure every distinct partition alone, and what dispatching the cut graph costs, writing into ``outcome``."""
    program, clock = variants.program, clock_for(environment.device)
    if not program.switches:
        return
    kinds = place.aside(lambda: distinct(program))
    each = replace(effort, budget_s=effort.budget_s / (len(kinds) + 1))
    rest = replace(effort, budget_s=effort.budget_s - each.budget_s)
    try:
        measure_partitions(
            program, rest, environment, clock, outcome.alone, cancelled=cancelled, tell=tell, place=place
        )
        if not cancelled():
            tell("dispatch of the cut graph", 1.0)
            outcome.cut = _dispatch(variants, each, clock, cancelled, place)
    finally:
        program.settle()
        program.select_regional(on=True)


def _dispatch(
    variants: Variants, effort: Effort, clock: Clock[Any], cancelled: Callable[[], bool], place: Place
) -> RoundsResult:
    """Measure the cut graph with every region eager against the graph as captured."""
    call, program = variants.call, variants.program
    whole, regional = variants.get(VariantName.AOT_EAGER), variants.get(VariantName.REGIONAL)
    for switch in program.switches:
        switch.use_eager()
    with call.kept():
        seats = [contender(call, whole), replace(contender(call, regional), name=CUT)]
        return run_rounds(seats, effort, baseline=AOT_EAGER, clock=clock, cancelled=cancelled, place=place)
