"""What a search tries, in the order in which it tries it: ways of tracing, C++ wrappers, configs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from regional_explorer.record.plan import Plan, Region, Selector, SelectorKind, config_texts
from regional_explorer.record.tracing import AS_TORCH_COMPILE, Tracing
from regional_explorer.record.tuning import Stage

WHOLE = "whole"
"""The name of the region that has every op."""

WRAPPER: Mapping[str, Any] = {"cpp_wrapper": True}
"""The config under which C++ calls the kernels instead of Python."""


class Candidate(NamedTuple):
    """A plan to try."""

    title: str
    stage: Stage
    plan: Plan


WAYS = (
    Tracing("default", joint_passes=True),
    Tracing("min_cut", joint_passes=True),
    AS_TORCH_COMPILE,
    Tracing("default"),
    Tracing("min_cut"),
    Tracing("default", joint_passes=True, decompositions=True),
)
"""Ways to trace a call with a backward, the likeliest first.

On seven training steps the first, third and fourth were the best on some, the second and fifth close to them. Ops are
decomposed by each partition anyway: doing it before autograd changes what is kept, and pays with joint passes only.
"""


def ways(*, grad: bool) -> list[Tracing]:
    """Return the ways of tracing to try; without a backward there is nothing to split."""
    if grad:
        return list(WAYS)
    return list({(way.joint_passes, way.decompositions): way for way in reversed(WAYS)}.values())[::-1]


def whole_graph(tracing: Tracing, config: Mapping[str, Any]) -> Plan:
    """Return the plan in which every op is in one region."""
    return Plan((Region(WHOLE, (Selector(SelectorKind.OPS, ("*",)),), config),), tracing=tracing)


def whole(stage: Stage, tracing: Tracing, config: Mapping[str, Any]) -> Candidate:
    """Return the whole graph under a config as a candidate."""
    config = dict(sorted(config.items()))
    title = ", ".join([f"whole graph, {tracing}", *config_texts(config)])
    return Candidate(title, stage, whole_graph(tracing, config))


def config_of(plan: Plan) -> Mapping[str, Any]:
    """Return the config of a plan that ``whole_graph`` made."""
    return plan[WHOLE].config


def is_whole(plan: Plan | None) -> bool:
    """Return whether ``whole_graph`` made a plan."""
    return plan is not None and WHOLE in plan and plan == whole_graph(plan.tracing, config_of(plan))


def neighbours(plan: Plan, keys: Sequence[Mapping[str, Any]]) -> Iterator[Candidate]:
    """Yield the whole-graph plans that differ from this one by one of the configs ``keys``: with it, or without it."""
    config = config_of(plan)
    for change in keys:
        if change.items() <= config.items():
            changed = {key: value for key, value in config.items() if key not in change}
        else:
            changed = {**config, **change}
        yield whole(Stage.KEYS, plan.tracing, changed)


def together(plan: Plan, better: Sequence[Plan]) -> Candidate:
    """Return the plan under the configs of all the ``better`` ones; of those that set a key, the first has it."""
    config = {key: value for one in reversed((plan, *better)) for key, value in config_of(one).items()}
    return whole(Stage.TOGETHER, plan.tracing, config)
