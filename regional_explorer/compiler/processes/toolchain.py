"""Builds what Inductor's first C++ compile needs, in a process of its own, while the user still types.

This file imports the standard library only: it is loaded by ``%load_ext``, which does not wait for torch.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from regional_explorer.compiler.processes.child import Child, can_have_children, serve_parent

SWITCH = "REGIONAL_EXPLORER_WARM"
"""Environment variable: ``0`` leaves everything to the first compile."""

NICENESS = 10


def wanted() -> bool:
    """Return whether anything may be got ready ahead of time."""
    return os.environ.get(SWITCH, "1") != "0"


class ToolchainBuild:
    """One child process that compiles a tiny graph, so that Inductor's caches hold what every compile shares.

    Whoever compiles meanwhile waits for Inductor's own file locks, so nothing is built twice.
    """

    def __init__(self) -> None:
        self._child: Child | None = None
        self._reaper: threading.Thread | None = None

    def start(self) -> bool:
        """Start the child where the platform allows and the caches lack something; return whether it was started."""
        if self._child is not None or not can_have_children() or toolchain_is_built():
            return False
        try:
            self._child = Child(__name__)
        except OSError:
            return False
        self._reaper = threading.Thread(target=self._child.wait, name="regional-explorer-toolchain", daemon=True)
        self._reaper.start()
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the child is gone, and return whether it is; True where none was started."""
        if self._reaper is not None:
            self._reaper.join(timeout_s)
        return self._reaper is None or not self._reaper.is_alive()

    def stop(self) -> None:
        """End the child if it still runs."""
        if self._child is not None:
            self._child.end()


build = ToolchainBuild()
"""The one of this process."""


def probe_once_built() -> None:
    """Probe the CPU's instruction set, once the caches have been built: the probe compiles too."""
    from regional_explorer.torch_api import probe_instruction_set

    build.wait()
    probe_instruction_set()


def main() -> None:
    """In the child: compile the tiny graph, unless the parent ends first."""
    os.nice(NICENESS)
    serve_parent()
    from regional_explorer.compiler.processes.warmup import warm_toolchain
    from regional_explorer.errors import NoCompilerError, RegionCompileError

    with contextlib.suppress(NoCompilerError, RegionCompileError):
        warm_toolchain("cpu")


def toolchain_is_built() -> bool:
    """Return, without torch, whether Inductor's caches hold what the running torch and C++ compiler need.

    They do if something in each was built after both were installed: a precompiled header, and a shared library. Where
    there is no torch or no compiler, nothing can be built, and so nothing is lacking.
    """
    torch = importlib.util.find_spec("torch")
    compiler = shutil.which(os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++"))
    if torch is None or torch.origin is None or compiler is None:
        return True
    installed = max(Path(torch.origin).stat().st_mtime, Path(compiler).resolve().stat().st_mtime)
    # Inductor keeps headers at its default place, whatever its cache directory is.
    default = Path(tempfile.gettempdir(), f"torchinductor_{_user()}")
    cache = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or default)
    headers = _newer(default / "precompiled_headers", (".gch", ".pch"), installed)
    return headers and _newer(cache, (".so",), installed)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, ImportError, OSError):
        return f"uid_{os.getuid()}"


def _newer(folder: Path, suffixes: tuple[str, ...], time: float) -> bool:
    return any(entry.name.endswith(suffixes) and entry.stat().st_mtime > time for entry in _files(folder))


def _files(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the files below ``folder`` as deep as Inductor keeps them: two levels."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                with contextlib.suppress(OSError), os.scandir(entry.path) as inner:
                    yield from inner
            else:
                yield entry
