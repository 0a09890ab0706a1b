"""Compares the size of the house with its budget, the table ``tool.budget`` of pyproject.toml.

What is above its number is an error: a feature is paid for by what it replaces, or a commit raises the number and says
what for. The trips are those of ``scripts.trips``; the slowest tests are those of the last test run in this folder, in
seconds of processor time, which other work on the machine does not change.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator

from scripts.count import PACKAGE, ROOT, size_of
from scripts.trips import trips

SLOWEST = ROOT / "build" / "test-seconds.json"


def measured() -> Iterator[tuple[str, float]]:
    """Yield the name and the size of each part that has a budget."""
    yield "code", size_of((ROOT / PACKAGE).rglob("*.py")).code
    yield "test-lines", size_of((ROOT / "tests").rglob("*.py")).lines
    front_end = (path for path in (ROOT / PACKAGE).rglob("*") if path.suffix in {".js", ".css"})
    yield "front-end-bytes", sum(path.stat().st_size for path in front_end)
    if SLOWEST.exists():
        yield "slowest-test-seconds", max(json.loads(SLOWEST.read_text(encoding="utf-8")).values(), default=0.0)
    for name, trip in trips().items():
        yield f"{name}, files", trip.files
        yield f"{name}, functions", trip.functions


def main() -> int:
    """Print each size beside its budget; return 1 if one is above."""
    budget = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["budget"]
    above = 0
    for name, size in measured():
        above += size > budget[name]
        change = f"{size - budget[name]:+,.0f}{'  above' if size > budget[name] else ''}"
        print(f"{name:26}{size:10,.0f} of {budget[name]:10,}  {change}")
    if above:
        print("Simplify what has grown, or raise its number in pyproject.toml by a commit that says what for.")
    return int(above > 0)


if __name__ == "__main__":
    sys.exit(main())
