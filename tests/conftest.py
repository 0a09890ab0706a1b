"""Shared by all tests: one Inductor cache, the same seeds for each test, no compiling without a compiler.

torch is not imported here, so tests of the record alone start at once.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

KEPT_CACHE = "REGIONAL_EXPLORER_TEST_CACHE"
"""Environment variable: a directory for Inductor's cache that stays, so that the next run finds it warm."""

INDUCTOR_CACHE = "TORCHINDUCTOR_CACHE_DIR"
LINKERS = "COMPILER_PATH"
"""Environment variable: where the compiler looks for ``ld`` first."""

ReplaceBenchmark = Callable[[Callable[..., object]], None]

OWN_CACHE = pytest.StashKey[Path]()

SLOWEST = Path(__file__).resolve().parent.parent / "build" / "test-seconds.json"
"""Where a run leaves the seconds of its slowest tests, for ``scripts.budget``."""

A_RUN_OF_MANY = 1000
"""A run with fewer tests was chosen by hand, and says nothing of the slowest."""

# OpenMP's threads sleep while they wait, or threads of several processes would spin against each other. OpenMP reads
# this when torch is imported, which the conftest.py of a folder may do before ``pytest_configure`` is called.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def pytest_configure(config: pytest.Config) -> None:
    """Name Inductor's cache directory before anything imports torch; child processes inherit it.

    All processes of a run share it, as Inductor allows; a test that clears its cache has one of its own. Nothing is
    built or imported ahead of time, but where a test asks for it. Where ``gold`` is installed it links what is
    compiled: the default linker takes a third of the time of a small kernel, because it reads all symbols of torch.
    """
    gc.set_threshold(100_000)  # tests leave little, and each collection visits what torch has made meanwhile
    os.environ.setdefault("REGIONAL_EXPLORER_WARM", "0")
    if kept := os.environ.get(KEPT_CACHE):
        os.environ[INDUCTOR_CACHE] = str(Path(kept).expanduser().resolve())
    elif not os.environ.get(INDUCTOR_CACHE):
        own = Path(tempfile.mkdtemp(prefix="regional-explorer-tests-"))
        config.stash[OWN_CACHE] = own
        os.environ[INDUCTOR_CACHE] = str(own)
    if (gold := shutil.which("ld.gold")) and not os.environ.get(LINKERS):
        linkers = Path(os.environ[INDUCTOR_CACHE]) / "linkers"
        linkers.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (linkers / "ld").symlink_to(gold)
        os.environ[LINKERS] = str(linkers)


@pytest.fixture
def own_recompile_limit() -> None:
    """Let torch 2.11 forget all compiles: it counts all compiles of one function together, and stops after eight."""
    import torch

    from regional_explorer.torch_api.dynamo import ISOLATES

    if not ISOLATES:
        torch._dynamo.reset()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the cache directory if it was made for this run."""
    own = config.stash.get(OWN_CACHE, None)
    if own is not None:
        os.environ.pop(INDUCTOR_CACHE, None)
        shutil.rmtree(own, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what compiles where no C++ compiler is; in CI it runs, and fails."""
    default = "clang++" if sys.platform == "darwin" else "g++"
    compiler = os.environ.get("CXX", default).split()
    if (compiler and shutil.which(compiler[0])) or os.environ.get("CI"):
        return
    skip = pytest.mark.skip(reason="no C++ compiler")
    for item in items:
        if "compiles" in item.keywords:
            item.add_marker(skip)


def cpu_seconds() -> float:
    """Return the processor time of this process and of the compilers it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Note the processor time of a test: other work on the machine does not change it."""
    start_s = cpu_seconds()
    try:
        yield
    finally:
        item.user_properties.append(("cpu_s", round(cpu_seconds() - start_s, 1)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the processor times of the slowest tests of a run of many."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    seconds = {report.nodeid: dict(report.user_properties).get("cpu_s", 0.0) for report in reports}
    if len(seconds) >= A_RUN_OF_MANY:
        SLOWEST.parent.mkdir(exist_ok=True)
        slowest = sorted(seconds.items(), key=lambda item: -item[1])[:20]
        SLOWEST.write_text(json.dumps(dict(slowest), indent=1), encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> None:
    """Leave what lives when a file begins out of later garbage collections: torch alone is 420,000 objects."""
    if "torch" in sys.modules:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def undisturbed() -> Iterator[None]:
    """Let no other work disturb the rounds of what is measured: what a test finds does not depend on the machine."""
    with pytest.MonkeyPatch.context() as patch:
        if "torch" in sys.modules:
            from tests.shared.fakes import ignore_disturbances

            ignore_disturbances(patch)
        yield


@pytest.fixture(autouse=True)
def same_seeds() -> None:
    """Start every test from the same random numbers, of those libraries that are loaded."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture
def replace_benchmark(monkeypatch: pytest.MonkeyPatch) -> ReplaceBenchmark:
    """Return a function that replaces ``Exploration.benchmark``: commands make the exploration that they measure."""

    def replace(benchmark: Callable[..., object]) -> None:
        from regional_explorer.exploration.exploration import Exploration

        monkeypatch.setattr(Exploration, "benchmark", benchmark)

    return replace


@pytest.fixture
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test's ``sys.path`` be its own: running a file puts its folder there."""
    monkeypatch.setattr(sys, "path", list(sys.path))
