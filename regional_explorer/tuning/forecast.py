"""What a search is expected to try within a budget, before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from regional_explorer.record.configs import speed_configs
from regional_explorer.record.expected import expected_compile_s
from regional_explorer.record.graph import Graph, GraphKind, layer_glob
from regional_explorer.record.grouping import grouped
from regional_explorer.record.session import Session, derived
from regional_explorer.tuning.search import CARRY_COSTS, SHORTER_SHARE
from regional_explorer.tuning.space import shipped_passes, tracings_to_try
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
    (plans, full_s, share), shorter = _search_space(session), 0
    left_s = budget_s * (1.0 - FINAL_SHARE) - (0.0 if session.full_cost else full_s)
    shorter_s = min(budget_s * SHORTER_SHARE, left_s - CARRY_COSTS * full_s)
    if share < 1.0:
        shorter = min(plans, int(shorter_s / (share * full_s + budget_s * SHORTER_RACE_SHARE)))
    if shorter <= 1:
        shorter, shorter_s = 0, 0.0
    whole = int((left_s - shorter_s) / (CARRY_COSTS * full_s + budget_s * RACE_SHARE))
    return Forecast(plans, shorter, min(plans, max(1, whole)))


@derived
def _search_space(session: Session) -> tuple[int, float, float]:
    """Return the number of plans, the expected seconds of a compile of all ops, and the share of a shorter call."""
    ops = {op.op for graph in session.graphs for op in graph.ops}
    ways = len(tracings_to_try(grad=session.grad))
    device_type = session.environment.device_type
    plans = 2 * ways + len(speed_configs(device_type, ops)) + len(shipped_passes(device_type, ops))
    return plans, expected_compile_s(session) or 1.0, _share_of_shorter_call(session.graphs)


def _share_of_shorter_call(graphs: Sequence[Graph]) -> float:
    """Return the share of the ops that stay if of the equal layers with most ops only one runs.

    It goes by the paths of modules, which is fast: the panel shows a forecast after each edit.
    """
    ops = [op for graph in graphs if graph.kind is GraphKind.DYNAMO for op in graph.ops]
    layers = (next((call.path for call in op.modules if layer_glob(call.path) != call.path), "") for op in ops)
    by_layers = grouped((layer_glob(path), path) for path in layers if path)
    left_out = (len(paths) * (1.0 - 1.0 / len({*paths})) for paths in by_layers.values())
    return 1.0 - max(left_out, default=0.0) / max(1, len(ops))
