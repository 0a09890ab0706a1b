"""The saved page folds as the panel does: its scripts, run by Node.js, against the kernel's own pictures."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from regional_explorer.page import static
from regional_explorer.page.view import SHADES, box_heat, fold_times, share_fills
from regional_explorer.picture.compose import Detail, Opening, Turn
from regional_explorer.picture.records import PARTITIONS, Outlines, Payload, folded, picture
from regional_explorer.record.plan import Plan
from regional_explorer.record.session import Session
from regional_explorer.record.time_shares import TimeShares
from tests.shared import sessions
from tests.ui_graph.reading import Read, unpack

NODE = shutil.which("node") or shutil.which("node", path=str(Path(sys.executable).parent))
pytestmark = pytest.mark.skipif(NODE is None, reason="there is no Node.js")

PROGRAM = """
import { readFileSync } from "node:fs";
%s
const { whole, states } = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(states.map((state) => {
    const tab = Object.assign(whole, state);
    unfold(tab);
    const { kept, folds, ...found } = shown(tab);
    return { ...found, heat: heat(whole.colours ?? {}, { kept, number: 7 }) };
})));
"""
DETAILS = {None: Detail.MODULES, True: Detail.OPS, False: Detail.NOTHING}


def bundle() -> str:
    return "\n".join(
        (static.FOLDER / f"{name}.js").read_text(encoding="utf-8").replace("export function", "function")
        for name in ("folds",)
    )


def run(whole: Payload, states: list[dict[str, Any]]) -> list[Payload]:
    assert NODE is not None
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", PROGRAM % bundle()],
        input=json.dumps({"whole": whole, "states": states}),
        text=True,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found: list[Payload] = json.loads(done.stdout)
    return found


def random_states(whole: Payload, count: int) -> list[dict[str, Any]]:
    """Return ways to open and close folds by hand, from each way to begin."""
    chance = random.Random(0)  # noqa: S311 - nothing is secret
    keys = [fold["key"] for fold in whole["folds"] if fold["parts"] and fold["key"]]
    states: list[dict[str, Any]] = []
    for number in range(count):
        chosen = {key: chance.random() < 0.6 for key in chance.sample(keys, min(len(keys), number % 7))}
        states.append({"all": [None, True, False][number % 3], "chosen": chosen})
    return states


def nested() -> Session:
    """Return a session with repeats, and with pieces of regions of several ops and of one."""
    base = sessions.trained(9)
    members = {**base.members, "norm": {"0/forward": ("norm0", "norm5", "add5"), "0/backward": ("sum3",)}}
    return replace(base, plan=Plan((*base.plan.regions, sessions.region("norm"))), members=members)


@pytest.mark.parametrize("tab", ["0/forward", "0/backward", PARTITIONS])
def test_the_page_shows_the_boxes_that_the_panel_would(tab: str) -> None:
    session = nested()
    outlines = Outlines(session)
    whole, _ = folded(session, tab, outlines)
    whole = json.loads(json.dumps(whole))
    states = random_states(whole, 42)
    for state, found in zip(states, run(whole, states), strict=True):
        kernel = Read(
            picture(session, tab, Opening(DETAILS[state["all"]], chosen=state["chosen"]), outlines=outlines).facts
        )
        texts = [found["texts"][number] for number in found["box_texts"]]
        assert [texts[at : at + 5] for at in range(0, len(texts), 5)] == [
            [kernel.texts[number] for number in box] for box in kernel.boxes
        ]
        assert found["node_boxes"] == kernel.node_boxes
        assert {*zip(found["edges"][::2], found["edges"][1::2], strict=True)} == {*kernel.edges}
        assert sorted(found["group_pieces"]) == sorted(kernel.group_pieces)
        held = [found["group_pieces"][group] if group >= 0 else None for group in found["box_groups"]]
        assert held == [kernel.group_pieces[group] if group >= 0 else None for group in kernel.groups]
        assert [graph["boxes"] for graph in found["graphs"]] == [graph["boxes"] for graph in kernel.payload["graphs"]]
        looks = [found["styles"]["light"]["boxes"][style]["look"] for style in found["box_styles"]]
        assert looks == kernel.looks
        assert found["box_shares"] == [number for (number,) in unpack("I", kernel.payload["box_shares"], 1)]
        ends = [0, *found["box_tooltip_ends"]]
        told = [found["texts"][number] for number in found["box_tooltips"]]
        assert [told[a:b] for a, b in pairwise(ends)] == [
            [word for row in rows for word in row] for rows in kernel.rows
        ]


@pytest.mark.parametrize("tab", ["0/forward", "0/backward", PARTITIONS])
def test_the_page_colours_the_share_of_the_time_as_the_panel_would(tab: str) -> None:
    session = sessions.profiled(nested())
    outlines, shares = Outlines(session), TimeShares.of(session)
    assert shares
    whole, first = folded(session, tab, outlines)
    for fold, time in zip(whole["folds"], fold_times(shares, tab, first.reads, whole), strict=True):
        fold["time"] = time
    whole = json.loads(json.dumps({**whole, "colours": share_fills()}))
    states = random_states(whole, 12)
    for state, found in zip(states, run(whole, states), strict=True):
        opening = Opening(DETAILS[state["all"]], chosen=state["chosen"])
        kernel = box_heat(shares, picture(session, tab, opening, outlines=outlines), tab)
        page = found["heat"]
        assert page["of"] == 7
        assert page["dark"] == kernel["dark"]
        assert max(kernel["steps"]) == max(filter(None, page["steps"])) == SHADES
        for box, step in enumerate(kernel["steps"]):
            if step < 0:
                assert page["steps"][box] is None
                continue
            assert abs(page["steps"][box] - step) <= 1  # the page has three digits of the time
            assert (page["labels"][box], page["tooltips"][box]) == (kernel["labels"][box], kernel["tooltips"][box])


def test_the_page_knows_the_turns_by_the_kernels_numbers() -> None:
    named = re.findall(r"([A-Z_]+) = (-?\d+)", (static.FOLDER / "folds.js").read_text(encoding="utf-8"))
    assert {name: int(number) for name, number in named} == {
        turn.name: turn.value for turn in (Turn.FIXED, Turn.AT_ONCE, Turn.NEVER)
    }
