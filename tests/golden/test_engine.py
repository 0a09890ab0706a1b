"""What the engine makes of many programs: graphs, partitions and diagnostics, as one text per program group.

The names of nodes are those of the torch that the project pins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from textwrap import indent

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from regional_explorer.exploration.exploration import Exploration
from regional_explorer.record.session import Session
from tests.campaign.program import Program
from tests.campaign.programs_cutting import CUTTING
from tests.campaign.programs_higher import HIGHER
from tests.campaign.programs_state import STATE
from tests.campaign.programs_values import VALUES
from tests.engine.diagnostics_programs import CLEAN, explored, page_programs
from tests.golden.test_golden import SNAPSHOT_FILES

pytestmark = pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="nodes have other names under another torch"
)

CAMPAIGN: Mapping[str, Mapping[str, Program]] = {
    "cutting": CUTTING,
    "state": STATE,
    "values": VALUES,
    "higher": HIGHER,
}


def of_campaign(group: str, _folder: Path) -> Iterator[tuple[str, Callable[[], Exploration]]]:
    yield from ((name, program.explore) for name, program in CAMPAIGN[group].items())


def of_page(_group: str, folder: Path) -> Iterator[tuple[str, Callable[[], Exploration]]]:
    yield from ((code, lambda source=source: explored(source, folder)) for code, source in page_programs().items())
    yield from CLEAN.items()


def described(session: Session) -> Iterator[str]:
    for graph in session.graphs:
        yield f"graph {graph.id}"
        for node in graph.nodes:
            yield f"    {node.name} = {node.role} {node.target}({', '.join(node.inputs)})"
    for part in session.partitions:
        yield f"partition {part.id} of {part.region!r}, {part.state}: {', '.join(part.nodes)}"
    for found in session.diagnostics:
        lines = ", ".join(f"{Path(line.file).name}:{line.line}" for line in found.where)
        yield f"{found.severity} {found.code}: {found.message} ({lines}) {found.remedy}"


def without_chance(text: str) -> str:
    """Return a text without addresses, and without the size of a difference that each run draws anew."""
    return re.sub(r"\b0x[0-9a-f]{6,}|(?<=off by up to )[\d.e-]+", "…", text)


@pytest.mark.parametrize("group", [*CAMPAIGN, "page"])
def test_group(group: str, snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    texts = []
    for name, explore in (of_campaign if group in CAMPAIGN else of_page)(group, tmp_path):
        torch.manual_seed(0)
        torch._dynamo.reset()
        with explore() as ex:
            texts.append(f"{name}\n" + indent("\n".join(described(ex.session)), "    ") + "\n")
    assert without_chance("\n".join(texts)) == snapshot(extension_class=SNAPSHOT_FILES["txt"])
