"""The candidates of a search, in the order of the search: tracings, C++ wrappers, configs, other plans."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from regional_explorer.compiler.passes import products_by_onednn
from regional_explorer.compiler.treatment import described
from regional_explorer.record.benchmark import Verdict
from regional_explorer.record.configs import may_matter
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import (
    AS_TORCH_COMPILE,
    FROZEN,
    WHOLE,
    Direction,
    Plan,
    Region,
    Tracing,
    UserFunction,
    config_of,
    config_texts,
    whole_graph,
    with_config,
)
from regional_explorer.record.statistics import MIN_FLOOR
from regional_explorer.record.tuning import AT_HAND, Outcome, SearchStage, Suggestion, SuggestionKind, Try
from regional_explorer.tuning.bench import RaceResult, TimedPiece

WRAPPER: Mapping[str, Any] = {"cpp_wrapper": True}
"""The config under which C++ calls the kernels instead of Python."""


TUNED_PRODUCTS: Mapping[str, Any] = {"max_autotune": True}
"""The config under which Inductor times several kernels for each matrix product whose weights are constants."""


class Root(NamedTuple):
    """A plan that configs are added to."""

    title: str
    plan: Plan


class Candidate(NamedTuple):
    """A plan to try: ``root`` with ``config`` on top of every region's own config."""

    title: str
    stage: SearchStage
    plan: Plan
    root: Root
    config: Mapping[str, Any]

    def as_try(self, outcome: Outcome, why: str = "", **known: Any) -> Try:
        """Return the record of its try."""
        return Try(self.title, self.stage, outcome, self.plan, why, **known)


def candidate_of(stage: SearchStage, root: Root, config: Mapping[str, Any] = MappingProxyType({})) -> Candidate:
    """Return a plan with ``config`` on top of the configs of all its regions, in both directions."""
    config = dict(sorted(config.items()))
    title = ", ".join([root.title, *config_texts(config)])
    return Candidate(title, stage, with_everywhere(root.plan, config) if config else root.plan, root, config)


def with_everywhere(plan: Plan, config: Mapping[str, Any]) -> Plan:
    """Return a plan with ``config`` on top of the configs of all its regions."""
    regions = tuple(
        replace(
            region,
            config={**region.config, **config},
            backward_config=None if region.backward_config is None else {**region.backward_config, **config},
        )
        for region in plan.regions
    )
    return replace(plan, regions=regions)


WAYS = (
    Tracing("default", joint_passes=True),
    AS_TORCH_COMPILE,
    Tracing("min_cut", joint_passes=True),
    Tracing("default"),
    Tracing("min_cut"),
    Tracing("default", joint_passes=True, decompositions=True),
)
"""Ways to trace a call with a backward, the likeliest first.

On seven training steps one of the first two, without a C++ wrapper or with one, was within 1 % of the best. Each
partition decomposes its ops anyway. Decomposing them before autograd changes what is kept, and pays only with joint
passes.
"""
LIKELIEST = 2
"""The number of tracings that are tried with a C++ wrapper before the other tracings."""


def tracings_to_try(*, grad: bool) -> list[Tracing]:
    """Return the tracings to try; without a backward there is nothing to split, and weights may be constants."""
    if grad:
        return list(WAYS)
    first, *others = list({(way.joint_passes, way.decompositions): way for way in reversed(WAYS)}.values())[::-1]
    return [first, FROZEN, *others]


def whole_graph_candidate(
    stage: SearchStage, tracing: Tracing, config: Mapping[str, Any] = MappingProxyType({})
) -> Candidate:
    """Return the whole graph under a config as a candidate."""
    return candidate_of(stage, Root(f"whole graph, {tracing}", whole_graph(tracing)), config)


def shipped_passes(device_type: str, ops: Collection[str]) -> list[UserFunction]:
    """Return the passes that may make code of ``ops`` on a type of device faster."""
    return [described(products_by_onednn)] if device_type == "cpu" and not {"mm", "addmm"}.isdisjoint(ops) else []


def with_pass(base: Candidate, one: UserFunction) -> Candidate:
    """Return a candidate whose regions have one more pass."""
    plan = base.root.plan
    for region in plan.regions:
        treatment = replace(region.treatment, passes=(*region.treatment.passes, one))
        plan = plan.changed(region.name, treatment=treatment)
    return candidate_of(SearchStage.PASSES, Root(f"{base.root.title}, {one}", plan), base.config)


def likeliest_candidates(*, grad: bool) -> list[Candidate]:
    """Return the plans to try first: the likeliest tracings, without and with a C++ wrapper.

    The first compiles fast and shows what a plan costs. With a backward, the second way without a wrapper has the code
    of ``torch.compile`` itself, so it is tried last. On some processors frozen weights pay only where the kernels of
    matrix products are tuned.
    """
    first, second = tracings_to_try(grad=grad)[:LIKELIEST]
    tuned = [] if grad else [whole_graph_candidate(SearchStage.KEYS, FROZEN, TUNED_PRODUCTS)]
    return [
        whole_graph_candidate(SearchStage.TRACING, first),
        whole_graph_candidate(SearchStage.WRAPPER, second, WRAPPER),
        whole_graph_candidate(SearchStage.WRAPPER, first, WRAPPER),
        whole_graph_candidate(SearchStage.TRACING, second),
        *tuned,
    ]


def is_whole(plan: Plan) -> bool:
    """Return whether ``whole_graph`` made a plan."""
    return WHOLE in plan and plan == whole_graph(plan.tracing, plan[WHOLE].config)


def keys_for(base: Candidate, keys: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the configs of ``keys`` that may change the code of a plan."""
    return [change for change in keys if may_matter(change, constants=base.plan.tracing.frozen)]


def neighbours(base: Candidate, keys: Sequence[Mapping[str, Any]]) -> Iterator[Candidate]:
    """Yield the plans that differ from a plan by one of the configs ``keys``: with the config, or without it."""
    for change in keys_for(base, keys):
        if change.items() <= base.config.items():
            changed = {key: value for key, value in base.config.items() if key not in change}
        else:
            changed = {**base.config, **change}
        yield candidate_of(SearchStage.KEYS, base.root, changed)


def without_cpp_wrapper(base: Candidate) -> Candidate:
    """Return a candidate without the C++ wrapper in its config."""
    config = {key: value for key, value in base.config.items() if key not in WRAPPER}
    return candidate_of(base.stage, base.root, config)


def with_configs_of(base: Candidate, better: Sequence[Candidate]) -> Candidate:
    """Return the plan under the configs of all ``better`` plans; the first plan that sets a key decides its value."""
    config = {key: value for changed in reversed((base, *better)) for key, value in changed.config.items()}
    return candidate_of(SearchStage.TOGETHER, base.root, config)


def other_plans(
    at_hand: Plan, suggested: Sequence[Suggestion], tracings: Sequence[Tracing], best: Tracing
) -> Iterator[Candidate]:
    """Yield the plan at hand under other tracings, then each suggested region under the best tracing."""
    if at_hand.regions and not is_whole(at_hand):
        for tracing in tracings:
            if tracing != at_hand.tracing:
                yield candidate_of(SearchStage.OTHERS, Root(f"{AT_HAND}, {tracing}", at_hand.traced(tracing)))
    for suggestion in suggested:
        if suggestion.kind is not SuggestionKind.WHOLE:
            yield suggested_plan(suggestion, best)


def suggested_plan(suggestion: Suggestion, tracing: Tracing) -> Candidate:
    """Return the plan with a suggested region alone as a candidate."""
    plan = Plan((Region(suggestion.name, suggestion.selectors),), tracing=tracing)
    return candidate_of(SearchStage.OTHERS, Root(f"suggested: {suggestion.name}, {tracing}", plan))


# -------------------------------------------------------------------------------------------------- configs per region


Place = tuple[str, Direction]
"""A region in one direction, which has a config of its own in a plan."""


def best_changes(raced: Sequence[tuple[TimedPiece, Mapping[str, RaceResult]]]) -> dict[Place, str]:
    """Return the config change for each region and direction, if one makes its pieces faster.

    A region may have several kinds of pieces, and they share its config: it gets the change under which the pieces that
    a call runs take the least time in all. One of them has to be certainly faster under it, and none may be wrong.
    """
    return {
        place: best
        for place, pieces in grouped(
            ((piece.region, piece.direction), (piece, results)) for piece, results in raced
        ).items()
        if (best := _best_change(pieces))
    }


def _best_change(pieces: Sequence[tuple[TimedPiece, Mapping[str, RaceResult]]]) -> str:
    now_s = sum(piece.seconds_per_call for piece, _ in pieces)
    common = [change for change in pieces[0][1] if all(change in results for _, results in pieces)]
    faster = [change for change in common if any(results[change].verdict is Verdict.FASTER for _, results in pieces)]
    then_s = {
        change: sum(piece.seconds_per_call / results[change].speedup.value for piece, results in pieces)
        for change in faster
    }
    best = min(then_s, key=then_s.__getitem__, default="")
    return best if best and then_s[best] < now_s * (1.0 - MIN_FLOOR) else ""


def with_changes(plan: Plan, changes: Mapping[Place, Mapping[str, Any]]) -> Plan:
    """Return the plan with ``changes`` on top of regions' own configs, each in one direction."""
    regions = []
    for region in plan.regions:
        for (name, direction), change in changes.items():
            if name == region.name:
                region = with_config(region, {**config_of(region, direction), **change}, direction)  # noqa: PLW2901
        regions.append(region)
    return replace(plan, regions=tuple(regions))


def in_words(changes: Mapping[Place, Mapping[str, Any]]) -> str:
    """Return for example ``attention backward max_fusion_size=16; mlp forward cpp.simdlen=256``."""
    return "; ".join(
        f"{name} {direction} {', '.join(config_texts(change))}" for (name, direction), change in changes.items()
    )
