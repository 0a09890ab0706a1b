"""Documents say what is so, and the code has the shape they describe."""

from __future__ import annotations

import re
from pathlib import Path

from regional_explorer.errors import RefusalCode
from regional_explorer.record.diagnostic import DiagnosticCode
from scripts import count

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "regional_explorer"


def test_every_package_stands_in_the_table_of_packages() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)+)`", page))
    packages = {f"{path.parent.relative_to(PACKAGE)}/" for path in PACKAGE.rglob("__init__.py")} - {"./"}
    assert packages <= named


def test_code_and_statements_are_counted() -> None:
    text = '"""Doc."""\n\n# comment\nx = (\n    1,\n)\n\n\ndef f():\n    """Doc."""\n    return x\n'
    assert (count.lines_of_code(text), count.statements(text)) == (5, 5)


def test_every_diagnostic_code_has_its_section() -> None:
    page = (ROOT / "docs" / "diagnostics.md").read_text(encoding="utf-8")
    codes = [*map(str, DiagnosticCode), *map(str, RefusalCode)]
    assert re.findall(r"^## ([a-z-]+)$", page, re.MULTILINE) == codes


def test_the_readme_shows_both_commands_and_how_long_they_take() -> None:
    """Under Start, each with what it does and its time; and the Makefile has them."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    start = page.partition("\n## Start\n")[2].partition("\n## ")[0]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in ("make demo", "make test"):
        line = re.search(rf"^{command} +# (?P<what>.+)$", start, re.MULTILINE)
        assert line, f"README.md, Start: no line for {command}"
        assert re.search(r"\d+ minutes", line["what"]), f"how long does {command} take?"
        assert re.search(rf"^{command.split()[1]}:", makefile, re.MULTILINE)
