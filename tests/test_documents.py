"""Documents that are made from the code are up to date, and the code has the shape they describe."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from regional_explorer.errors import RefusalCode
from regional_explorer.record.diagnostic import DiagnosticCode
from scripts import code_facts, draw_architecture

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "regional_explorer"


def test_the_drawing_and_the_list_of_files_are_up_to_date() -> None:
    page = draw_architecture.PAGE.read_text(encoding="utf-8")
    assert draw_architecture.up_to_date(page) == page, "run: python -m scripts.draw_architecture"


def test_packages_do_not_import_each_other_in_a_circle() -> None:
    edges = code_facts.package_imports(PACKAGE)
    assert not [edge for edge in edges if draw_architecture.reaches(edges, edge[1], edge[0])]


def test_files_do_not_import_each_other_in_a_circle() -> None:
    files = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    del files["regional_explorer.__init__"]  # the public names, loaded when first used
    imports = {
        name: {found for found in code_facts.imported(ast.parse(path.read_text(encoding="utf-8"))) if found in files}
        for name, path in files.items()
    }
    waiting = dict(imports)
    while free := [name for name, below in waiting.items() if not below & waiting.keys()]:
        waiting = {name: below for name, below in waiting.items() if name not in free}
    assert sorted(waiting) == []


def test_every_package_stands_in_the_table_of_packages() -> None:
    page = draw_architecture.PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)+)`", page))
    packages = {f"{path.parent.relative_to(PACKAGE)}/" for path in PACKAGE.rglob("__init__.py")} - {"./"}
    subdivided = {"render/"}
    assert packages - subdivided <= named


def test_arrows_that_others_imply_are_left_out() -> None:
    assert draw_architecture.without_implied({("a", "b"), ("b", "c"), ("a", "c")}) == {("a", "b"), ("b", "c")}


def test_logical_lines_are_statements(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text('"""Doc."""\n\n# comment\nx = (\n    1,\n)\n\n\ndef f():\n    """Doc."""\n    return x\n')
    assert code_facts.logical_lines(file) == 3


def test_every_diagnostic_code_has_its_section() -> None:
    page = (ROOT / "docs" / "diagnostics.md").read_text(encoding="utf-8")
    codes = [*map(str, DiagnosticCode), *map(str, RefusalCode)]
    assert re.findall(r"^## ([a-z-]+)$", page, re.MULTILINE) == codes
