"""How much of the generated code is linked to nodes and source lines: ``python -m benchmarks.provenance [MODEL …]``.

Each model's training step is compiled by regions, and ``ex.code`` links the kernels of every region. Where ``tlparse``
(PyPI) is installed, its own mapping of the same compile stands beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import regional_explorer as rx
from benchmarks.models import explore
from regional_explorer.record.region_code import partition_codes, total_coverage

MODELS = ("quickstart", "gpt", "dit", "bert", "albert", "gpt2", "llama", "vit", "mamba")
GOAL = 0.95

HEADER = (
    "| model | artifacts | kernels linked | compute nodes linked | of these inferred | with a line | other code "
    "| compile, s | code, s | tlparse: kernels | tlparse: nodes |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Mapping:
    """What tlparse links: kernels, and nodes of the partitions, over all artifacts."""

    kernels: int
    linked_kernels: int
    nodes: int


def explored(name: str) -> rx.Exploration:
    """Return the exploration of a model's training step."""
    return quickstart_gpt() if name == "quickstart" else explore(name, training=True)[0]


def quickstart_gpt() -> rx.Exploration:
    """Return the exploration of the quickstart notebook's GPT: its cell without the magic."""
    notebook = Path(__file__).resolve().parent.parent / "notebooks" / "quickstart.ipynb"
    cells = ("".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"])
    source = next(cell for cell in cells if "class GPT" in cell)
    lines = [line for line in source.splitlines() if not line.startswith("%")]
    names: dict[str, Any] = {"torch": torch, "nn": nn, "F": F, "rx": rx}
    exec(compile("\n".join(lines), "<quickstart>", "exec"), names)  # noqa: S102 - the project's own notebook
    return rx.explore(names["model"], (names["tokens"], names["targets"]))


def row(name: str, tlparse: Mapping | None) -> tuple[str, bool]:
    """Return a row of the Markdown table, and whether the goals are met."""
    ex = explored(name)
    started = time.perf_counter()
    ex.compile()
    compile_s = time.perf_counter() - started
    for region in ex.plan.regions:
        ex.code(region.name)
    # Equal partitions have one code: each is counted once.
    parts = list({part.code.artifact: part for part in partition_codes(ex.session)}.values())
    found = total_coverage(tuple(part.coverage for part in parts))
    lines = sum(bool(linked.lines) for part in parts for linked in part.kernels)
    other = sum(not part.code.same_code or part.code.problem is not None for part in parts)
    code_s = sum(part.code.seconds for part in parts)
    ex.close()
    theirs = ("–", "–") if tlparse is None else (f"{tlparse.linked_kernels}/{tlparse.kernels}", str(tlparse.nodes))
    text = (
        f"| {name} | {len(parts)} | {found.linked_kernels}/{found.kernels} | {found.linked}/{found.nodes} "
        f"({100 * found.share:.1f} %) | {found.linked - found.recorded} | {lines}/{found.kernels} | {other} "
        f"| {compile_s:.1f} | {code_s:.1f} | {theirs[0]} | {theirs[1]} |"
    )
    return text, found.share >= GOAL and found.linked_kernels == found.kernels == lines and not other


def mapped_by_tlparse(name: str) -> Mapping | None:
    """Compile a model in a process of its own that logs for tlparse, and return what that links; None without it."""
    if shutil.which("tlparse") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        trace, out = Path(folder, "trace"), Path(folder, "out")
        environment = {
            **os.environ,
            "TORCH_TRACE": str(trace),
            "INDUCTOR_PROVENANCE": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(Path(folder, "cache")),
        }
        code = f"from benchmarks.provenance import explored; explored({name!r}).compile()"
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
        for log in trace.glob("*.log"):
            command = ["tlparse", str(log), "-o", str(out / log.stem), "--overwrite", "--no-browser"]
            subprocess.run(command, check=True, capture_output=True)
        return _read_mappings(out)


def _read_mappings(out: Path) -> Mapping:
    kernels = linked = nodes = 0
    for path in out.rglob("inductor_provenance_tracking_node_mappings*.json"):
        found = json.loads(path.read_text())
        to_post, to_pre = found.get("cppCodeToPost", {}), found.get("postToPre", {})
        kernels += len(to_post)
        linked += sum(bool(posts) for posts in to_post.values())
        nodes += len({pre for posts in to_post.values() for post in posts for pre in to_pre.get(post, ())})
    return Mapping(kernels, linked, nodes)


def main() -> None:
    """Print the table, a row as soon as it is there, and end with 1 where a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.provenance", description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--no-tlparse", action="store_true", help="leave tlparse's mapping out")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(HEADER)
    met = []
    for name in options.models:
        text, good = row(name, None if options.no_tlparse else mapped_by_tlparse(name))
        print(text, flush=True)
        met.append(good)
    if shutil.which("tlparse") is None:
        print("\ntlparse is not installed: its mapping was not compared (pip install tlparse).")
    goals = f"every kernel linked, {100 * GOAL:.0f} % of the compute nodes, the code that was compiled"
    print(f"\ngoals ({goals}): met by {sum(met)} of {len(met)}")
    sys.exit(not all(met))


if __name__ == "__main__":
    main()
