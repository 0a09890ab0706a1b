"""Writes the drawing of the packages into docs/architecture.md, from the imports of the code.

``python -m scripts.draw_architecture`` writes it; a test fails where it is out of date. An arrow means "imports"; an
arrow that others imply is left out.
"""

from __future__ import annotations

from pathlib import Path

from scripts.code_facts import PACKAGE, package_imports

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "```mermaid\n", "```\n"

Edges = set[tuple[str, str]]


def main() -> None:
    """Write the drawing into the page."""
    PAGE.write_text(with_drawing(PAGE.read_text(encoding="utf-8"), drawing()), encoding="utf-8")


def drawing() -> str:
    """Return the flowchart of the packages, in Mermaid's language."""
    edges = without_implied(package_imports(ROOT / PACKAGE))
    return "\n".join(["flowchart TD", *(f"    {above} --> {below}" for above, below in sorted(edges)), ""])


def with_drawing(page: str, chart: str) -> str:
    """Return the page with its drawing replaced."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{chart}{END}{after}"


def without_implied(edges: Edges) -> Edges:
    """Return the edges that no longer way implies (the transitive reduction of a graph without cycles)."""
    return {(above, below) for above, below in edges if not reaches(edges - {(above, below)}, above, below)}


def reaches(edges: Edges, start: str, goal: str) -> bool:
    """Tell whether a way leads from ``start`` to ``goal``."""
    reached, waiting = {start}, [start]
    while waiting:
        here = waiting.pop()
        found = {below for above, below in edges if above == here} - reached
        reached |= found
        waiting += found
    return goal in reached


if __name__ == "__main__":
    main()
