"""Graphs, partitions and diagnostics of many programs, as one text per group of programs.

Under our cut a program gives bitwise the results of the uncut call; under upstream's cut its partitions are those of
torch's own scooper. The names of nodes in the texts are those of the torch that the project pins.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import pytest
import torch
from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion
from torch import fx
from torch.fx.passes import regional_inductor

from benchmarks.campaign.program import Program
from benchmarks.campaign.programs_cutting import CUTTING
from benchmarks.campaign.programs_higher import HIGHER
from benchmarks.campaign.programs_state import STATE
from benchmarks.campaign.programs_values import VALUES
from regional_explorer.exploration.exploration import Exploration
from regional_explorer.record.plan import CutRule
from tests.golden.snapshots import assert_matches_snapshot, program_text
from tests.shared.checks import assert_eager_pieces_are_bitwise, needs_region_ids

CAMPAIGN: Mapping[str, Mapping[str, Program]] = {
    "cutting": CUTTING,
    "state": STATE,
    "values": VALUES,
    "higher": HIGHER,
}


Ops = dict[str, set[frozenset[str]]]
"""The ops of each partition, by graph."""


def upstreams_partitions(ex: Exploration) -> Ops:
    """Return the partitions that upstream's own scooper cuts out of the same graphs."""
    found: Ops = {}
    for live in ex.live.capture.live:
        collect_partitions(regional_inductor._RegionScooper()(copy.deepcopy(live.gm)), live.id, found)
    return found


def collect_partitions(gm: fx.GraphModule, graph_id: str, found: Ops) -> None:
    for node in gm.graph.nodes:
        inner = getattr(gm, str(node.target), None)
        if not isinstance(inner, fx.GraphModule):
            continue
        if node.op == "call_module":
            ops = frozenset(op.name for op in inner.graph.nodes if op.op == "call_function")
            found.setdefault(graph_id, set()).add(ops)
        elif node.op == "get_attr":
            collect_partitions(inner, f"{graph_id}/{node.target}", found)


def our_partitions(ex: Exploration) -> Ops:
    found: Ops = {}
    for part in ex.session.partitions:
        found.setdefault(part.graph, set()).add(frozenset(part.nodes))
    return found


@needs_region_ids
@pytest.mark.parametrize("group", CAMPAIGN)
def test_programs_and_their_cuts(group: str, subtests: pytest.Subtests, snapshot: SnapshotAssertion) -> None:
    texts = []
    for name, program in CAMPAIGN[group].items():
        torch._dynamo.reset()
        with program.explore() as ex, subtests.test(name):
            texts.append(program_text(name, ex.session))
            assert ex.session.partitions
            assert_eager_pieces_are_bitwise(ex)
            ex.plan = replace(ex.plan, cut=CutRule.UPSTREAM)
            assert our_partitions(ex) == upstreams_partitions(ex)
            if program.upstreams_cut_is_right:
                assert_eager_pieces_are_bitwise(ex)
    assert_matches_snapshot(texts, snapshot)
