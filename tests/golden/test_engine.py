"""Graphs, partitions and diagnostics of many programs, as one text per group of programs.

Under our cut a program gives bitwise the results of the uncut call; under upstream's cut its partitions are those of
torch's own scooper. The names of nodes in the texts are those of the torch that the project pins.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from textwrap import indent

import pytest
import torch
from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion
from torch import fx
from torch.fx.passes import regional_inductor

from regional_explorer.exploration.exploration import Exploration
from regional_explorer.record.plan import CutRule
from regional_explorer.record.session import Session
from tests.campaign.program import Program
from tests.campaign.programs_cutting import CUTTING
from tests.campaign.programs_higher import HIGHER
from tests.campaign.programs_state import STATE
from tests.campaign.programs_values import VALUES
from tests.golden.snapshots import SNAPSHOT_FILES
from tests.shared.checks import assert_eager_pieces_are_bitwise, needs_region_ids
from tests.shared.diagnostics_programs import CLEAN, page_programs, run_page_program

PINNED = torch.__version__.startswith("2.13.")

CAMPAIGN: Mapping[str, Mapping[str, Program]] = {
    "cutting": CUTTING,
    "state": STATE,
    "values": VALUES,
    "higher": HIGHER,
}


def session_lines(session: Session) -> Iterator[str]:
    for graph in session.graphs:
        yield f"graph {graph.id}"
        for node in graph.nodes:
            yield f"    {node.name} = {node.role} {node.target}({', '.join(node.inputs)})"
    for part in session.partitions:
        yield f"partition {part.id} of {part.region!r}, {part.state}: {', '.join(part.nodes)}"
    for found in session.diagnostics:
        lines = ", ".join(f"{Path(line.file).name}:{line.line}" for line in found.where)
        yield f"{found.severity} {found.code}: {found.message} ({lines}) {found.remedy}"


def without_random_parts(text: str) -> str:
    """Return a text without addresses, and without the size of a difference, which is random."""
    return re.sub(r"\b0x[0-9a-f]{6,}|(?<=off by up to )[\d.e-]+", "…", text)


def program_text(name: str, ex: Exploration) -> str:
    return f"{name}\n" + indent("\n".join(session_lines(ex.session)), "    ") + "\n"


def assert_matches_snapshot(texts: list[str], snapshot: SnapshotAssertion) -> None:
    if PINNED:
        assert without_random_parts("\n".join(texts)) == snapshot(extension_class=SNAPSHOT_FILES["txt"])


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
            texts.append(program_text(name, ex))
            assert ex.session.partitions
            assert_eager_pieces_are_bitwise(ex)
            ex.plan = replace(ex.plan, cut=CutRule.UPSTREAM)
            assert our_partitions(ex) == upstreams_partitions(ex)
            if program.upstreams_cut_is_right:
                assert_eager_pieces_are_bitwise(ex)
    assert_matches_snapshot(texts, snapshot)


@pytest.mark.skipif(not PINNED, reason="nodes have other names under another torch")
def test_programs_of_the_page(snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    texts = []
    sources = {code: partial(run_page_program, source, tmp_path) for code, source in page_programs().items()}
    for name, explore in (sources | CLEAN).items():
        torch.manual_seed(0)
        torch._dynamo.reset()
        with explore() as ex:
            texts.append(program_text(name, ex))
    assert_matches_snapshot(texts, snapshot)
