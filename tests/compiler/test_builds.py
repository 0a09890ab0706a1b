"""Builds ahead of time and beside the lowering of other partitions, and the commands of child processes."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
import torch
from torch._inductor import codecache
from torch._inductor.async_compile import AsyncCompile, get_compile_threads

import regional_explorer as rx
from regional_explorer.compiler import toolchain
from regional_explorer.compiler.compilation import warm_toolchain
from regional_explorer.record.regions import region_summaries
from regional_explorer.torch_api.inductor import covered_s
from tests.shared.checks import states
from tests.shared.processes import ROOT, is_running, python, wait_until

posix = pytest.mark.skipif(os.name != "posix", reason="processes as POSIX has them")

# ---------------------------------------------------------------------------------------- the toolchain, ahead of time

START = """
import sys, time
from regional_explorer.compiler.toolchain import build
build.start()
while not build.workers.pids:
    time.sleep(0.01)
print(*build.workers.pids, flush=True)
"""


@pytest.fixture
def cache_root(tmp_path, monkeypatch):
    """Return the root of empty Inductor caches, for this process and its children."""
    for name, value in {"TMPDIR": tmp_path, "TORCHINDUCTOR_CACHE_DIR": tmp_path / "cache"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def fake_compiler(folder, monkeypatch, body):
    """Make ``CXX`` a script that logs its arguments and then runs ``body``; return the log."""
    script, log = folder / "cxx", folder / "log"
    script.write_text(f'#!/bin/sh\necho "$$ $*" >> "{log}"\n{body}\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    return log


def fill(path, *, age, content=b"built"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (time.time() - age,) * 2)


def test_complete_caches_are_recognized_without_torch(cache_root, monkeypatch):
    fake_compiler(cache_root, monkeypatch, "exit 0")
    library = cache_root / "cache" / "ab" / "cab.so"
    assert not toolchain.toolchain_is_built()
    headers = cache_root / f"torchinductor_{toolchain._user_name()}" / "precompiled_headers"
    fill(headers / "cabc.h.gch", age=-60)
    assert not toolchain.toolchain_is_built()
    fill(library, age=-60, content=b"")  # the linker was killed
    assert not toolchain.toolchain_is_built()
    fill(library, age=-60)
    assert toolchain.toolchain_is_built()
    fill(library, age=3600)  # for the compiler that was there before
    assert not toolchain.toolchain_is_built()


def test_warming_needs_a_compiler(cache_root, monkeypatch):
    monkeypatch.setenv("CXX", str(cache_root / "none"))
    assert toolchain.toolchain_is_built()
    build = toolchain.ToolchainBuild()
    assert not build.start()
    assert build.wait(0)


@pytest.mark.parametrize(("value", "expected"), [("0", False), ("1", True), (None, True)])
def test_the_environment_variable_turns_warming_off(monkeypatch, value, expected):
    monkeypatch.delenv(toolchain.WARM_VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(toolchain.WARM_VARIABLE, value)
    assert toolchain.is_warming_wanted() is expected


@posix
def test_the_process_starts_once_and_leaves_no_zombie(cache_root, monkeypatch):
    fake_compiler(cache_root, monkeypatch, "exit 1")
    monkeypatch.setattr(toolchain, "fill_caches", os.getpid)
    build = toolchain.ToolchainBuild()
    assert build.start()
    assert not build.start()
    assert build.wait(120)
    pid = build._built.result()
    assert wait_until(lambda: not build.workers.pids)
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)


@posix
def test_the_process_and_its_compiler_end_with_the_kernel(cache_root, monkeypatch):
    log = fake_compiler(cache_root, monkeypatch, "exec sleep 100")
    parent = subprocess.Popen(
        [sys.executable, "-c", START + "time.sleep(100)"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    started = int(parent.stdout.readline())
    assert wait_until(log.exists)
    running = int(log.read_text().split()[0])
    assert is_running(started)
    assert is_running(running)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert wait_until(lambda: not is_running(started) and not is_running(running), 10)


@pytest.mark.slow
@pytest.mark.compiles
def test_concurrent_compile_shares_builds(cache_root, monkeypatch):
    log = fake_compiler(cache_root, monkeypatch, 'exec g++ "$@"')
    compiling = "from regional_explorer.compiler.compilation import warm_toolchain\nwarm_toolchain('cpu')"
    python(f"{START}{compiling}\nbuild.wait()\n")
    words = [line.split() for line in log.read_text().splitlines()]
    built = Counter(line[line.index("-o") + 1] for line in words if "-o" in line and "-E" not in line)
    assert len(built) >= 3
    assert set(built.values()) == {1}
    assert toolchain.toolchain_is_built()


# ------------------------------------------------------------------------------------------- beside the lowering


def test_the_time_of_overlapping_builds_is_counted_once():
    assert covered_s([]) == 0
    assert covered_s([(5, 6), (0, 2), (1, 3), (1.5, 2)]) == 4


def three_regions(x, w):
    with rx.region("a"):
        y = (x @ w).sin() * x
    with rx.region("b"):
        z = (y * 2).exp().cos()
    with rx.region("c"):
        return (z + y).tanh()


def arguments():
    return torch.randn(6, 8, generator=torch.manual_seed(0)), torch.randn(8, 8, generator=torch.manual_seed(1))


class HeldBuilds:
    """Holds the builds of C++ kernels until ``go`` is set; those whose number is in ``failing`` raise ``error``.

    ``seen`` has the lock file of each build, one per kernel, in the order in which they begin.
    """

    def __init__(self, worker):
        self._worker = worker
        self.go = threading.Event()
        self.seen = []
        self.free = self.failing = ()
        self.error = None

    def __call__(self, lock_path, builders):
        if lock_path not in self.seen:
            self.seen.append(lock_path)
        number = self.seen.index(lock_path)
        if number not in self.free:
            assert self.go.wait(100)
        if number in self.failing and self.error is not None:
            raise self.error
        self._worker(lock_path, builders)


@pytest.fixture
def builds(monkeypatch):
    if get_compile_threads() <= 1:
        pytest.skip("Inductor builds on threads of its own")
    warm_toolchain("cpu")
    found = HeldBuilds(codecache._worker_compile_cpp)
    monkeypatch.setattr(codecache, "_worker_compile_cpp", found)
    yield found
    found.go.set()


def assert_as_eager(ex):
    torch.testing.assert_close(ex.compiled(*arguments()), three_regions(*arguments()))


@pytest.mark.compiles
def test_all_partitions_are_lowered_before_the_first_is_built(builds):
    ex = rx.explore(three_regions, arguments(), dynamic=True)
    tasks = []

    def progress(doing, fraction):
        tasks.append((doing.partition(":")[0], fraction))
        if doing.startswith("building"):
            builds.go.set()

    ex.compile(run=rx.Run(progress=progress), cold=True)
    steps = [doing for doing, _ in tasks if doing != "warming up the toolchain"]
    assert steps[:4] == ["compiling a", "compiling b", "compiling c", "building a"]
    fractions = [fraction for _, fraction in tasks]
    assert fractions == sorted(fractions)
    assert set(ex.partitions.cache) == {"cold"}
    assert (ex.partitions.compile_s > 0.1).all()
    assert_as_eager(ex)


@pytest.mark.compiles
def test_the_time_of_a_compile_is_its_own_lowering_and_build(builds):
    builds.go.set()
    ex = rx.explore(three_regions, arguments())
    ex.disable("b")
    ex.disable("c")
    free = threading.Event()
    for _ in range(get_compile_threads()):  # others keep Inductor's threads busy
        AsyncCompile.pool().submit(free.wait, 100)

    def progress(doing, _fraction):
        if doing.startswith("building"):
            time.sleep(0.5)
            free.set()

    started = time.monotonic()
    ex.compile(run=rx.Run(progress=progress), cold=True)
    seconds = time.monotonic() - started
    assert 0.1 < ex.partitions.compile_s[0] < seconds - 0.4
    compiled = ex.live.program.switches[0].artifact.made
    assert sum(compiled.phases.values()) == pytest.approx(compiled.seconds)


def compile_in_parallel_s(ex, builds, **options):
    """Compile what is stale, with parallel builds; return the elapsed seconds."""
    builds.go.clear()

    def progress(doing, _fraction):
        if doing.startswith("building"):
            time.sleep(0.3)
            builds.go.set()

    began = time.monotonic()
    ex.compile(run=rx.Run(progress=progress), **options)
    return time.monotonic() - began


@pytest.mark.compiles
def test_cost_is_the_time_waited(builds):
    ex = rx.explore(three_regions, arguments())
    waited_s = compile_in_parallel_s(ex, builds, cold=True)
    costs = ex.compile_costs.set_index("what").drop("toolchain (once per process)")
    assert costs.waited_s.sum() <= waited_s < costs.compile_s.sum(), "two were built at a time"
    assert ex.session.compile_s == pytest.approx(costs.waited_s.sum())
    assert sum(summary.compile_s for summary in region_summaries(ex.session)) == pytest.approx(costs.waited_s.sum())
    assert ex.partitions.compile_s.sum() == pytest.approx(costs.compile_s.sum()), "the detailed table has each alone"
    ex.disable("b")
    ex.disable("c")
    builds.go.set()
    ex.compile(cold=True)
    (made,) = (made for _, made in ex.session.compiled_partitions)
    assert made.overlapped_s == 0.0, "nothing was compiled beside it"


@pytest.mark.compiles
def test_plan_costs_only_its_own_compiles(builds):
    builds.go.set()
    ex = rx.explore(three_regions, arguments())
    ex.compile(cold=True)
    ex.benchmark(("regional",), 0.02, regions=False)
    first = ex.session
    ex.configure("a", {"max_fusion_size": 3})
    ex.compile(cold=False)
    ex.benchmark(("regional",), 0.02, regions=False)
    (own,) = (made for part, made in ex.session.compiled_partitions if part.region == "a")
    assert ex.history.compile_s.tolist() == pytest.approx([first.compile_s, own.seconds])
    ex.plan = first.plan
    ex.benchmark(("regional",), 0.02, regions=False)
    assert ex.history.compile_s.tolist() == pytest.approx([own.seconds, first.compile_s]), "measured once more"
    ex.rename("b", "bee")
    ex.disable("c")
    ex.benchmark(("regional",), 0.02, regions=False)
    assert ex.history.compile_s.tolist() == pytest.approx([own.seconds, first.compile_s, 0.0]), "all of it reused"


@pytest.mark.compiles
def test_failed_build_fails_one_partition_and_is_retried(builds):
    builds.go.set()
    builds.failing, builds.error = (1,), OSError(28, "No space left on device")
    ex = rx.explore(three_regions, arguments())
    ex.compile(cold=True)
    assert states(ex) == {"a": "compiled", "b": "failed", "c": "compiled"}
    (found,) = [item for item in ex.diagnostics if item.severity == "error"]
    assert (found.code, found.region) == ("region-failed", "b")
    assert "No space left on device" in found.message
    assert_as_eager(ex)
    builds.error = None
    ex.compile()
    assert set(states(ex).values()) == {"compiled"}
    assert_as_eager(ex)


@pytest.mark.compiles
@pytest.mark.parametrize("way", ["cancel", "interrupt"])
def test_interrupt_keeps_finished_builds(builds, way):
    builds.free = (0,)
    ex = rx.explore(three_regions, arguments())
    tasks = []

    def progress(doing, _fraction):
        tasks.append(doing.partition(":")[0])
        if way == "interrupt" and doing.startswith("building b"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) if way == "interrupt" else contextlib.nullcontext():
        ex.compile(run=rx.Run(lambda: tasks[-1:] == ["building b"], progress), cold=True)
    assert tasks.index("compiling c") < tasks.index("building b")
    assert states(ex) == {"a": "compiled", "b": "stale", "c": "stale"}
    builds.go.set()
    assert_as_eager(ex)
    assert set(states(ex).values()) == {"compiled"}
