"""The cost of looking into the generated code, the share of it that is linked, and the findings in it.

Kernels, links and refused fusions come from lowering each distinct partition once more, on request.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import torch

import regional_explorer as rx
from benchmarks.row import Row, cells, elapsed_s, heads, in_process, regional_steps
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.region_code import PartitionCode, grouped_by_artifact, partition_codes, total_coverage
from regional_explorer.torch_api import lowering
from tests.shared.models import explore, quickstart

MODELS = ("quickstart", "gpt", "dit", "bert", "albert", "gpt2", "llama", "vit", "mamba")


def read_all_code(ex: rx.Exploration) -> None:
    """Ask for the code of all regions."""
    for region in ex.plan.regions:
        ex.code(region.name)


def look_rows(repeats: int = 3, budget_s: float = 60.0) -> Iterator[Row]:
    """Compile the quickstart's GPT cold and look at all of its code; time steps with and without having looked.

    Raises:
        AssertionError: looking changed the code that runs, or a compile looked without a request.
    """
    with_code, without = [], []
    for _ in range(repeats):
        with quickstart() as ex:
            with mock.patch.object(lowering, "lower_piece", side_effect=AssertionError("nobody asked")):
                compiled_s = elapsed_s(partial(ex.compile, cold=True))
            codes = [artifact.code for artifact in ex.live.program.store.artifacts.values()]
            without.append(compiled_s)
            with_code.append(compiled_s + elapsed_s(lambda ex=ex: read_all_code(ex)))  # type: ignore[misc]
            codes_after = [artifact.code for artifact in ex.live.program.store.artifacts.values()]
            assert codes_after == codes, "looking changed the code that runs"
            assert not any(part.code.problem for part in partition_codes(ex.session)), "lowered again, it is other code"
    yield Row("compile the quickstart's GPT and look at all of its code", "compile alone", with_code, without, 1.2)
    explorations = {"looked at": quickstart(), "not looked at": quickstart()}
    for name, ex in explorations.items():
        ex.compile()
        if name == "looked at":
            read_all_code(ex)
    ours, theirs = regional_steps(explorations, budget_s)
    yield Row("a training step after looking at the code", "before", ours, theirs, 1.01)


# ------------------------------------------------------------------------------------------------------- kernel times

LEAST_S = 100e-6
"""Partitions whose kernels take less in all are left out: launching is a larger part of them."""

COPIED = 1 << 28
"""Bytes that the copy reads and writes together."""


def kernel_rows(models: Iterable[str] = ("quickstart", "gpt", "bert", "vit"), budget_s: float = 3.0) -> Iterator[Row]:
    """Time a copy beside the bandwidth, then the kernels of each distinct partition beside the partition.

    Kernels are timed with clocks between them, and so is the time between them: launching, allocating. Their sum should
    be the time of the same partition without clocks.
    """
    yield _copy_row(budget_s)
    for name in models:
        with explore(name) as ex:
            ex.compile()
            for region in ex.plan.regions:
                ex.kernel_times(region.name, budget_s)
            for key, artifact in ex.session.artifacts.items():
                times = artifact.kernel_times
                if times is not None and times.problem is None and times.kernels_s > LEAST_S:
                    what = f"{name}: {ex.session.owners[key]}, {times.kernels_s / times.parts_s:.0%} of it in kernels"
                    yield Row(what, "the same without clocks", [times.parts_s], [times.whole.value], 1.1, least=0.9)


def _copy_row(budget_s: float) -> Row:
    def negated(x: torch.Tensor) -> torch.Tensor:
        with rx.region("copy"):
            return -x

    with rx.explore(negated, (torch.ones(COPIED // 8),)) as ex:
        ex.compile()
        ex.kernel_times("copy", budget_s)
        (times,) = (artifact.kernel_times for artifact in ex.session.artifacts.values())
        assert times is not None
    source = torch.ones(COPIED // 8)
    copied_s = [elapsed_s(source.clone) for _ in range(16)][1:]
    return Row("a kernel that moves 256 MiB", "a copy to fresh memory", [times.kernels_s], copied_s, 1.1, least=0.9)


# -------------------------------------------------------------------------------------------------------------- links

LINKED = 0.95


def links(models: Iterable[str] = MODELS) -> Iterator[str]:
    """Yield a table of how many kernels and nodes are linked to each other and to lines, and how many tlparse links."""
    yield heads(
        *("model", "artifacts", "kernels linked", "compute nodes linked", "of these inferred", "with a line"),
        *("other code", "compile, s", "code, s", "tlparse: kernels", "tlparse: nodes"),
    )
    met = []
    for name in models:
        with explore(name) as ex:
            compile_s = elapsed_s(ex.compile)
            read_all_code(ex)
            # Equal partitions share one code, which is counted once.
            parts = [equal[0] for equal in grouped_by_artifact(partition_codes(ex.session))]
        coverage = total_coverage(tuple(part.coverage for part in parts))
        lines = sum(bool(linked.lines) for part in parts for linked in part.kernels)
        other = sum(part.code.problem is not None for part in parts)
        kernels = f"{coverage.linked_kernels}/{coverage.kernels}"
        nodes = f"{coverage.linked}/{coverage.nodes} ({100 * coverage.share:.1f} %)"
        code_s = sum(part.code.seconds for part in parts)
        yield cells(
            *(name, len(parts), kernels, nodes, coverage.linked - coverage.recorded),
            *(f"{lines}/{coverage.kernels}", other, f"{compile_s:.1f}", f"{code_s:.1f}", *_linked_by_tlparse(name)),
        )
        met.append(coverage.share >= LINKED and coverage.linked_kernels == coverage.kernels == lines and not other)
    goals = f"every kernel linked, {100 * LINKED:.0f} % of the compute nodes, the code that was compiled"
    yield f"\ngoals ({goals}): met by {sum(met)} of {len(met)}"


def _linked_by_tlparse(name: str) -> tuple[str, str]:
    """Return the kernels and nodes that tlparse links in a compile by a process of its own; dashes without tlparse."""
    if shutil.which("tlparse") is None:
        return "–", "–"
    with tempfile.TemporaryDirectory() as folder:
        trace, out = Path(folder, "trace"), Path(folder, "out")
        traced = {"TORCH_TRACE": str(trace), "INDUCTOR_PROVENANCE": "1", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache"}
        in_process(f"from tests.shared.models import explore; explore({name!r}).compile()", **traced)
        for log in trace.glob("*.log"):
            command = ["tlparse", str(log), "-o", str(out / log.stem), "--overwrite", "--no-browser"]
            subprocess.run(command, check=True, capture_output=True)
        kernels = linked = nodes = 0
        for path in out.rglob("inductor_provenance_tracking_node_mappings*.json"):
            links = json.loads(path.read_text())
            to_post, to_pre = links.get("cppCodeToPost", {}), links.get("postToPre", {})
            kernels += len(to_post)
            linked += sum(bool(posts) for posts in to_post.values())
            nodes += len({pre for posts in to_post.values() for post in posts for pre in to_pre.get(post, ())})
    return f"{linked}/{kernels}", str(nodes)


# ----------------------------------------------------------------------------------------------------------- findings

REMEDIED = (DiagnosticCode.OP_RECOMPUTED, DiagnosticCode.FUSION_REFUSED)


def findings(models: Iterable[str] = (*MODELS, "convnext"), budget_s: float = 4.0) -> Iterator[str]:
    """List the findings of ``ex.diagnose`` in each region, in two measurements, remedies included."""
    yield heads("model", "region", "found", "measured again")
    for name in models:
        with explore(name) as ex:
            ex.compile()
            compiled = {part.region for part in ex.session.partitions if part.artifact is not None}
            rows = [
                cells(name, f"`{region.name}`", *row)
                for region in ex.plan.regions
                if region.name in compiled
                for row in _found_twice(ex, region.name, budget_s)
            ]
            yield from rows or [cells(name, f"all {len(ex.plan.regions)}", "nothing", "")]


def _found_twice(ex: rx.Exploration, region: str, budget_s: float) -> Iterator[tuple[str, str]]:
    first, second = (
        {(item.code, item.graph): item for item in ex.diagnose(region, budget_s) if item.code != "region-time"}
        for _ in range(2)
    )
    for key, item in first.items():
        yield f"`{item.code}` {_figures(item)}", _figures(second[key]) if key in second else "not found"
    for key in second.keys() - first.keys():
        yield "nothing", f"`{second[key].code}` {_figures(second[key])}"


def _figures(item: Diagnostic) -> str:
    """Return a short text of a diagnostic's finding, and of its remedy's gain."""
    if item.code in REMEDIED:
        finding = re.search(r"computes (.+) per element|\((.+)\)", item.message)
        gain = re.search(r"measured (.+) as now", item.remedy)
        assert finding is not None
        assert gain is not None
        return f"{finding[1] or finding[2]}; remedy {gain[1]}"
    share = re.search(r"\d+ ?%", item.message)
    return share[0] if share else ""


# ----------------------------------------------------------------------------------------------------- code for GPUs

GPU_MODELS = ("quickstart", "gpt", "bert", "albert", "gpt2", "llama", "vit")


def gpu_code(models: Iterable[str] = GPU_MODELS, targets: Iterable[str] = ("h100", "mi300x")) -> Iterator[str]:
    """Generate code for GPUs that are not here, of each distinct partition; nothing is compiled for the CPU."""
    yield heads(
        *("model", "target", "partitions that worked", "kernels of Triton", "extern calls"),
        *("nodes linked", "spilling kernels", "seconds"),
    )
    worked = partitions = 0
    for name in models:
        for target in targets:
            parts: dict[int, PartitionCode] = {}
            with explore(name) as ex:
                started = time.perf_counter()
                for region in ex.plan.regions:
                    parts |= {id(part.code): part for part in ex.code(region.name, target=target)}
                seconds = time.perf_counter() - started
            good = [part for part in parts.values() if part.code.problem is None]
            kernels = [linked.kernel for part in good for linked in part.kernels]
            triton = [kernel.gpu for kernel in kernels if kernel.gpu is not None]
            spilling = sum(bool(gpu.spilled_bytes) for gpu in triton)
            nodes = total_coverage(tuple(part.coverage for part in good))
            yield cells(
                *(name, target, f"{len(good)}/{len(parts)}", len(triton), len(kernels) - len(triton)),
                *(f"{nodes.linked}/{nodes.nodes}", spilling, f"{seconds:.0f}"),
            )
            for part in parts.values():
                if part.code.problem is not None:
                    yield f"    {part.partition.id}: {part.code.problem}"
            worked, partitions = worked + len(good), partitions + len(parts)
    yield f"\n{worked} of {partitions} partitions worked ({100 * worked / max(1, partitions):.0f} %)"
