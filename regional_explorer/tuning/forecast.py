"""What a search is expected to try within a budget, before it starts."""

from __future__ import annotations

from typing import NamedTuple

from regional_explorer.record.configs import speed_configs
from regional_explorer.record.expected import expected_compile_s
from regional_explorer.record.session import Session
from regional_explorer.record.tuning import SuggestionKind
from regional_explorer.regions.suggest import suggest_regions
from regional_explorer.tuning.search import CARRY_COSTS, SHORTER_SHARE
from regional_explorer.tuning.space import tracings_to_try
from regional_explorer.tuning.tries import FINAL_SHARE, RACE_SHARE, SHORTER_RACE_SHARE


class Forecast(NamedTuple):
    """About how many of ``plans`` a search tries on the shorter call, 0 without one, and on the call itself."""

    plans: int
    shorter: int
    whole: int

    def __str__(self) -> str:
        """Return it in words."""
        if not self.shorter:
            return f"about {self.whole} of {self.plans} plans"
        return f"about {self.shorter} of {self.plans} plans on a shorter call, then {self.whole} on the whole one"


def forecast(session: Session, budget_s: float) -> Forecast:
    """Return what a search is expected to try; it is a guess from the graphs and the compiles so far."""
    ops = {op.op for graph in session.graphs for op in graph.ops}
    ways = len(tracings_to_try(grad=session.grad))
    plans = 2 * ways + len(speed_configs(session.environment.device_type, ops))
    full_s = expected_compile_s(session) or 1.0
    left_s = budget_s * (1.0 - FINAL_SHARE) - (0.0 if session.full_cost else full_s)
    suggested, shorter, shorter_s = suggest_regions(session.graphs), 0, 0.0
    layers = [one for one in suggested if one.kind is SuggestionKind.MODULES and one.distinct < one.instances]
    if layers:
        most, all_ops = max(layers, key=lambda one: one.ops), max(one.ops for one in suggested)
        share = 1.0 - most.ops / all_ops * (1.0 - most.distinct / most.instances)
        shorter_s = min(budget_s * SHORTER_SHARE, left_s - CARRY_COSTS * full_s)
        shorter = min(plans, int(shorter_s / (share * full_s + budget_s * SHORTER_RACE_SHARE)))
    if shorter <= 1:
        shorter, shorter_s = 0, 0.0
    whole = int((left_s - shorter_s) / (CARRY_COSTS * full_s + budget_s * RACE_SHARE))
    return Forecast(plans, shorter, min(plans, max(1, whole)))
