"""Writes sessions and plans of real models and reads them again: ``python -m benchmarks.round_trips [MODEL …]``.

The session that is read must be the one that was written, with the same saved page. The plan that is read must be the
same plan, pick the same partitions when it is explored, and give the same file again. Nothing is compiled unless
``--compile`` is given; then the session holds code, timings and numerics too.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import regional_explorer as rx
from benchmarks.architectures import ARCHITECTURES
from benchmarks.models import BUDGET_S, explore
from benchmarks.source_patches import CONFIG, partitions
from regional_explorer.page.saved import page_html
from regional_explorer.record.json_file import dump_session, load_plan, load_session
from regional_explorer.record.session import Session

HEADER = (
    "| model | mode | nodes | partitions | session, kB | page, kB | differs | seconds |"
    "\n|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Row:
    """What was written of one model in one mode, and what ``differs`` when it is read. Sizes are in bytes."""

    model: str
    training: bool
    nodes: int
    partitions: int
    session_bytes: int
    page_bytes: int
    differs: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        """Return the row of a Markdown table."""
        return (
            f"| {self.model} | {'training' if self.training else 'inference'} | {self.nodes} | {self.partitions} "
            f"| {self.session_bytes / 1000:.0f} | {self.page_bytes / 1000:.0f} | {', '.join(self.differs) or '-'} "
            f"| {self.seconds:.0f} |"
        )


def run(name: str, *, training: bool, compiled: bool = False) -> Row:
    """Write and read the session and the plan of one model."""
    started = time.perf_counter()
    ex, _ = explore(name, training=training)
    try:
        for region in ex.plan.regions:
            ex.configure(region.name, CONFIG)
        if compiled:
            ex.benchmark(("eager", "regional"), BUDGET_S)
            for region in ex.plan.regions:
                ex.code(region.name)
        session = ex.session
        with tempfile.TemporaryDirectory() as folder:
            differs = (*session_differences(session, Path(folder)), *plan_differences(ex, Path(folder)))
    finally:
        ex.close()
    return Row(
        name,
        training,
        sum(len(graph.nodes) for graph in session.graphs),
        len(session.partitions),
        len(dump_session(session).encode()),
        len(page_html(session).encode()),
        differs,
        time.perf_counter() - started,
    )


def session_differences(session: Session, folder: Path) -> Iterator[str]:
    """Yield the fields of a session, and the page, that are others when it was written and read."""
    path = folder / "session.json"
    path.write_text(dump_session(session))
    again = load_session(path)
    for field in fields(session):
        if getattr(session, field.name) != getattr(again, field.name):
            yield f"session.{field.name}"
    if dump_session(again) != path.read_text():
        yield "session written again"
    if page_html(again) != page_html(session):
        yield "page"


def plan_differences(ex: rx.Exploration, folder: Path) -> Iterator[str]:
    """Yield what of a plan is other when it was written and read: the plan, its partitions, its file."""
    path = ex.save_plan(folder / "plan.json")
    before: tuple[Any, ...] = (ex.plan, partitions(ex), path.read_text())
    again = load_plan(path)
    ex.plan = rx.Plan()
    ex.plan = again
    after: tuple[Any, ...] = (again, partitions(ex), ex.save_plan(folder / "again.json").read_text())
    for what, old, new in zip(("plan", "partitions", "plan's file"), before, after, strict=True):
        if old != new:
            yield what


def main() -> None:
    """Print the table, a row as soon as it is there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.round_trips", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="all when left out")
    parser.add_argument("--compile", action="store_true", help="compile, measure and show the code before writing")
    given = parser.parse_args()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    print(HEADER, flush=True)
    for name in given.models or ARCHITECTURES:
        for training in (False, True):
            print(run(name, training=training, compiled=given.compile), flush=True)


if __name__ == "__main__":
    main()
