"""Against upstream: with ``cut="upstream"`` our partitions are node for node those of torch's regional_inductor."""

import copy

import pytest
from msgspec.structs import replace
from torch import fx
from torch.fx.passes import regional_inductor

from regional_explorer.record.plan import Cut
from tests.campaign.programs import PROGRAMS
from tests.shared.checks import assert_compiled_is_right, assert_eager_pieces_are_bitwise, needs_region_ids

pytestmark = needs_region_ids


def upstreams_partitions(ex):
    """Return, per graph, the ops of each partition that upstream's own scooper cuts out of the same graphs."""
    found = {}
    for live in ex.live.capture.live:
        collect(regional_inductor._RegionScooper()(copy.deepcopy(live.gm)), live.id, found)
    return found


def collect(gm, graph_id, found):
    for node in gm.graph.nodes:
        inner = getattr(gm, str(node.target), None)
        if not isinstance(inner, fx.GraphModule):
            continue
        if node.op == "call_module":
            ops = frozenset(op.name for op in inner.graph.nodes if op.op == "call_function")
            found.setdefault(graph_id, set()).add(ops)
        elif node.op == "get_attr":
            collect(inner, f"{graph_id}/{node.target}", found)


def our_partitions(ex):
    found = {}
    for part in ex.session.partitions:
        found.setdefault(part.graph, set()).add(frozenset(part.nodes))
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_cut(name):
    """By our own cut the program computes what it did; by upstream's the partitions are upstream's."""
    program = PROGRAMS[name]
    ex = program.explore()
    assert ex.session.partitions
    assert_eager_pieces_are_bitwise(ex)
    ex.plan = replace(ex.plan, cut=Cut.UPSTREAM)
    assert our_partitions(ex) == upstreams_partitions(ex)
    if program.upstreams_cut_is_right:
        assert_eager_pieces_are_bitwise(ex)


@pytest.mark.compiles
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if found.quick else pytest.mark.slow) for name, found in PROGRAMS.items()]
)
def test_compiled(name):
    """By either cut, what Inductor makes of the pieces gives the right outputs and gradients."""
    program = PROGRAMS[name]
    ex = program.explore()
    assert_compiled_is_right(ex)
    if program.upstreams_cut_is_right:
        ex.plan = replace(ex.plan, cut=Cut.UPSTREAM)
        assert_compiled_is_right(ex)
