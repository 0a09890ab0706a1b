from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from regional_explorer.render import static
from regional_explorer.render.style.element import TAGS
from regional_explorer.ui.panel.panel import Panel
from regional_explorer.ui.views.graph_view import GraphView
from regional_explorer.ui.views.source_view import SourceView

BUDGET = 100_000
FILES = sorted(path for path in static.FOLDER.iterdir() if path.suffix in {".js", ".css"})


def test_all_scripts_and_styles_are_small() -> None:
    assert sum(path.stat().st_size for path in FILES) <= BUDGET


@pytest.mark.parametrize("view", [GraphView, Panel, SourceView])
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


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_styles_and_classes_stay_our_own(path: Path) -> None:
    if path.suffix == ".css":
        selectors = re.findall(r"^([^\s@}][^{]*)\{", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert all(re.search(r"\.rx[gs]|\.rx-(panel|gone)", one) for rule in selectors for one in rule.split(","))


@pytest.mark.parametrize("name", ["graph", "element_tree", "panel", "page"])
def test_modules_become_one(name: str) -> None:
    text = static.script(name)
    assert text.count("export default") == (name != "page")
    assert not re.search(r"^\s*(import|export (?!default))", text, re.MULTILINE)
    node = shutil.which("node")
    if node:
        done = subprocess.run(
            [node, "--input-type=module", "--check"], input=text, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_the_page_makes_what_the_kernel_describes_and_nothing_else() -> None:
    listed = re.search(r"const TAGS = /\^\((.*)\)\$/", (static.FOLDER / "dom.js").read_text(encoding="utf-8"))
    assert listed
    assert set(listed[1].replace("h[134]", "h1|h3|h4").split("|")) == TAGS


def test_comments_and_indents_stay_at_home() -> None:
    assert static._stripped("/** @type {x} gone */ a;\n  /** gone */\n") == "a;"
    assert static._stripped('// gone\nif (a) {\n  b = " // c";\n\n}\n') == 'if (a) {\nb = " // c";\n}'
