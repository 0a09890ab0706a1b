"""Writes plans into the source of real models: ``python -m benchmarks.source_patches [MODEL …]``.

Each model is explored with its regions by module, the plan is written into a copy of its files, and that is explored:
it must have the same partitions under the same configs. Of a region that no annotation can say, the reason is told.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import regional_explorer as rx
from benchmarks import architectures
from benchmarks.models import explore
from regional_explorer.exploration.exploration import source_patch
from regional_explorer.export.source_patch import SourcePatch

CONFIG = {"max_fusion_size": 8}
"""Given to every region, so that a config that gets lost shows."""


@dataclass
class Row:
    """What came of one model: how many regions are written, and whether the copy has the same partitions by mode."""

    model: str
    regions: int
    written: int = 0
    files: int = 0
    lines: int = 0
    same: dict[str, bool] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    refused: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the row of a Markdown table."""
        same = ", ".join(
            f"{mode}: {'same' if same else 'OTHER'} ({self.partitions[mode]})" for mode, same in self.same.items()
        )
        why = "; ".join(f"{name}: {reason}" for name, reason in self.refused.items())
        return (
            f"| {self.model} | {self.regions} | {self.written} | {self.files} | {self.lines} | {same} "
            f"| {why or '-'} | {self.seconds:.1f} |"
        )


HEADER = (
    "| model | regions | written | files | lines added | partitions of the copy | not written, and why | seconds |\n"
    "|---|---|---|---|---|---|---|---|"
)


def run(name: str) -> Row:
    """Write the plan of a model into a copy of its source, and explore that in both modes."""
    with _marked(name, training=True) as ex:
        row = Row(name, len(ex.plan.regions))
        started = time.perf_counter()
        patch = source_patch(ex.live)
        row.seconds = time.perf_counter() - started
    row.refused = patch.refused
    row.written, row.files = row.regions - len(patch.refused), len(patch.changed)
    row.lines = sum(one.diff().count("\n+") - 1 for one in patch.changed)
    plans = {}
    for mode in ("training", "inference"):
        with _marked(name, training=mode == "training") as ex:
            for refused in patch.refused:
                ex.unmark(refused)
            plans[mode] = partitions(ex)
    with copied(patch):
        for mode, before in plans.items():
            with _explored(name, training=mode == "training") as again:
                after = partitions(again)
            row.same[mode], row.partitions[mode] = after == before, len(before)
    return row


def partitions(ex: rx.Exploration) -> set[Any]:
    """Return the partitions by content."""
    return {(part.region, part.graph, part.nodes, repr(part.config_requested)) for part in ex.session.partitions}


@contextmanager
def _marked(name: str, *, training: bool) -> Iterator[rx.Exploration]:
    ex, _ = explore(name, training=training)
    for region in ex.plan.regions:
        ex.configure(region.name, CONFIG)
    try:
        yield ex
    finally:
        ex.close()


@contextmanager
def _explored(name: str, *, training: bool) -> Iterator[rx.Exploration]:
    """Explore a model with the regions of its source alone."""
    import torch

    torch.manual_seed(0)
    model, inputs = architectures.ARCHITECTURES[name].build()
    ex = rx.explore(model.train(training), kwargs=inputs, grad=training)
    try:
        yield ex
    finally:
        ex.close()


@contextmanager
def copied(patch: SourcePatch) -> Iterator[None]:
    """A block in which the modules of the patched files are run from a patched copy."""
    before, known = dict(sys.modules), dict(architectures.ARCHITECTURES)
    by_file = {getattr(module, "__file__", None): name for name, module in before.items() if name != "__main__"}
    taken: list[tuple[ModuleType, str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for number, changed in enumerate(patch.changed):
                name = by_file[changed.file.path]
                path = Path(folder) / f"{number}_{changed.path.name}"
                path.write_bytes(changed.content()[1])
                old, new = before[name], _loaded(name, path)
                for holder in list(sys.modules.values()):
                    for key, value in list(getattr(holder, "__dict__", {}).items()):
                        if isinstance(value, type) and value.__module__ == name and vars(old).get(key) is value:
                            taken.append((holder, key, value))
                            setattr(holder, key, vars(new)[key])
            yield
        finally:
            for holder, key, value in taken:
                setattr(holder, key, value)
            sys.modules.update(before)
            architectures.ARCHITECTURES.update(known)


def _loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    if name == architectures.__name__:
        architectures.ARCHITECTURES.update(module.ARCHITECTURES)
    return module


def main() -> None:
    """Print the table, a row as soon as it is there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.source_patches", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="all when left out")
    given = parser.parse_args()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    print(HEADER, flush=True)
    for name in given.models or architectures.ARCHITECTURES:
        print(run(name), flush=True)


if __name__ == "__main__":
    main()
