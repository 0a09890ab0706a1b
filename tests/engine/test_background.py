"""The toolchain's build ahead of time: when it starts, that it ends, and that nothing is built twice."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from regional_explorer.compiler import toolchain
from tests.shared.processes import ROOT, is_running, python, until

START = """
import sys, time
from regional_explorer.compiler.toolchain import build
print(build.start() and build._child.pid, flush=True)
"""


@pytest.fixture
def surroundings(tmp_path, monkeypatch):
    """Empty caches of Inductor, for this process and its children."""
    for name, value in {"TMPDIR": tmp_path, "TORCHINDUCTOR_CACHE_DIR": tmp_path / "cache"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def compiler(folder, monkeypatch, body):
    """Make ``CXX`` a script that notes its arguments and then does ``body``; return where it notes them."""
    script, log = folder / "cxx", folder / "log"
    script.write_text(f'#!/bin/sh\necho "$$ $*" >> "{log}"\n{body}\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    return log


def fill(folder, *names, age, content=b"built"):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (time.time() - age,) * 2)


def test_caches_that_hold_all_are_known_without_torch(surroundings, monkeypatch):
    compiler(surroundings, monkeypatch, "exit 0")
    header = f"torchinductor_{toolchain._user_name()}/precompiled_headers/cabc.h.gch"
    library = "cache/ab/cab.so"
    assert not toolchain.toolchain_is_built()
    fill(surroundings, header, age=-60)
    assert not toolchain.toolchain_is_built()
    fill(surroundings, library, age=-60, content=b"")  # the linker was killed
    assert not toolchain.toolchain_is_built()
    fill(surroundings, library, age=-60)
    assert toolchain.toolchain_is_built()
    # Built for the compiler that was there before.
    fill(surroundings, library, age=3600)
    assert not toolchain.toolchain_is_built()


def test_nothing_starts_where_the_caches_hold_all_or_no_compiler_is_there(surroundings, monkeypatch):
    monkeypatch.setenv("CXX", str(surroundings / "none"))
    assert toolchain.toolchain_is_built()
    build = toolchain.ToolchainBuild()
    assert not build.start()
    assert build.wait(0)


@pytest.mark.parametrize(("value", "expected"), [("0", False), ("1", True), (None, True)])
def test_the_off_switch(monkeypatch, value, expected):
    monkeypatch.delenv(toolchain.WARM_VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(toolchain.WARM_VARIABLE, value)
    assert toolchain.wanted() is expected


@pytest.mark.skipif(os.name != "posix", reason="processes as POSIX has them")
def test_a_child_that_ends_is_no_zombie_and_starts_once(surroundings, monkeypatch):
    compiler(surroundings, monkeypatch, "exit 1")
    build = toolchain.ToolchainBuild()
    assert build.start()
    assert not build.start()
    assert build.wait(120)
    with pytest.raises(ChildProcessError):
        os.waitpid(build._child.pid, 0)


@pytest.mark.skipif(os.name != "posix", reason="processes as POSIX has them")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_the_child_and_its_compiler_end_with_the_kernel(surroundings, monkeypatch, end):
    log = compiler(surroundings, monkeypatch, "exec sleep 100")
    parent = subprocess.Popen(
        [sys.executable, "-c", START + "time.sleep(100)"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    child = int(parent.stdout.readline())
    assert until(log.exists)
    running = int(log.read_text().split()[0])
    assert is_running(child)
    assert is_running(running)
    parent.send_signal(end)
    parent.wait()
    parent.stdout.close()
    assert until(lambda: not is_running(child) and not is_running(running), 10)


@pytest.mark.slow
@pytest.mark.compiles
def test_a_compile_meanwhile_shares_what_is_built(surroundings, monkeypatch):
    log = compiler(surroundings, monkeypatch, 'exec g++ "$@"')
    compiling = "from regional_explorer.compiler.compilation import warm_toolchain\nwarm_toolchain('cpu')"
    python(f"{START}{compiling}\nbuild.wait()\n")
    words = [line.split() for line in log.read_text().splitlines()]
    built = Counter(line[line.index("-o") + 1] for line in words if "-o" in line and "-E" not in line)
    assert len(built) >= 3
    assert set(built.values()) == {1}
    assert toolchain.toolchain_is_built()
