from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from regional_explorer.page import static
from regional_explorer.style.element import TAGS
from regional_explorer.ui.panel import Panel
from regional_explorer.ui.widget import SessionView
from tests.ui_graph.reading import NODE, needs_node, node

BUDGET = 110_000
SOURCE_BUDGET = 125_000
FILES = sorted(path for path in static.FOLDER.iterdir() if path.suffix in {".js", ".css"})

LARGE = """
const count = 300_000, zeros = Array(count).fill(0), keys = [...zeros.keys()];
const texts = "targets values modules sources looks titles signs outside flags".split(" ");
const columns = Object.fromEntries(texts.map((name) => [name, zeros]));
const facts = { ...columns, names: zeros, ops: keys, reads: keys.map(() => []), texts: [""], title: "g" };
const folds = { parents: [], homes: zeros.map(() => -1), node_pieces: zeros.map(() => -1), texts: [""] };
const outline = new Outline({ id: "g" }, [{ id: "g", names: keys, facts, folds, pieces: [] }], []);
const picture = new Picture(outline, {}, () => 1);
console.log(JSON.stringify([picture.range(0, count - 1).length, picture.rects.length]));
"""
FAILING = """
const context = () => ({ setTransform() {} });
globalThis.OffscreenCanvas = class { getContext = context; };
const pen = context(), painter = new Painter({ getContext: () => pen });
painter.scene = () => { throw new Error("no luck"); };
try { painter.copy({ x0: 0, y0: 0, x1: 1, y1: 1 }, 1, {}); } catch ({ message }) { console.log(message); }
console.log(painter.pen === pen, painter.letters.pen === pen);
"""


def test_all_scripts_and_styles_are_small() -> None:
    assert sum(path.stat().st_size for path in FILES) <= SOURCE_BUDGET


@pytest.mark.parametrize("view", [SessionView, Panel])
def test_what_one_view_sends_is_small(view: type) -> None:
    assert len(f"{view._esm}{getattr(view, '_css', '')}".encode()) <= BUDGET  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_is_fetched_and_no_markup_is_made(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace('"http://www.w3.org/2000/svg"', "")  # a name, never fetched
    found = re.findall(
        r"https?:|//\w+\.|fetch\(|XMLHttp|WebSocket|@import|url\(|innerHTML|outerHTML|insertAdjacent|document\.write|eval\(",
        text,
    )
    assert found == []


@pytest.mark.parametrize("path", sorted(static.FOLDER.glob("*.css")), ids=lambda path: path.name)
def test_styles_and_classes_stay_our_own(path: Path) -> None:
    selectors = re.findall(r"^([^\s@}][^{]*)\{", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert all(re.search(r"\.rx[gs]|\.rx-(panel|gone)", one) for rule in selectors for one in rule.split(","))


@pytest.mark.parametrize("name", ["view", "panel", "page"])
def test_modules_become_one(name: str) -> None:
    text = static.script(name)
    assert text.count("export default") == (name != "page")
    assert not re.search(r"^\s*(import|export (?!default))", text, re.MULTILINE)
    if NODE:
        node("--check", program=text)


@needs_node
def test_pictures_of_any_size_are_drawn() -> None:
    assert json.loads(node(program=static.script("picture") + LARGE)) == [300_000, 300_000]


@needs_node
def test_a_frame_is_drawn_after_one_that_failed() -> None:
    assert node(program=static.script("painter") + FAILING).splitlines() == ["no luck", "true true"]


def test_the_page_makes_what_the_kernel_describes_and_nothing_else() -> None:
    listed = re.search(r"const TAGS = /\^\((.*)\)\$/", (static.FOLDER / "dom.js").read_text(encoding="utf-8"))
    assert listed
    assert set(listed[1].replace("h[134]", "h1|h3|h4").split("|")) == TAGS


def test_comments_and_indents_stay_at_home() -> None:
    assert static._stripped("/** @type {x} gone */ a;\n  /** gone */\n") == "a;"
    assert static._stripped('// gone\nif (a) {\n  b = " // c";\n\n}\n') == 'if (a) {\nb = " // c";\n}'
