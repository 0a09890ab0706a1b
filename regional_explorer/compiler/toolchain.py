"""The C++ toolchain, warmed ahead of time."""

from __future__ import annotations

import concurrent.futures
import contextlib
import getpass
import importlib.util
import os
import shutil
import sys
import tempfile
from concurrent.futures import Future
from pathlib import Path

from regional_explorer.compiler.workers import Workers, can_have_workers
from regional_explorer.errors import RegionCompileError

WARM_VARIABLE = "REGIONAL_EXPLORER_WARM"
"""Environment variable; with ``0`` nothing is built ahead of the first compile."""

NICENESS = 10


def is_warming_wanted() -> bool:
    """Return whether the user allows building caches ahead of time."""
    return os.environ.get(WARM_VARIABLE, "1") != "0"


class ToolchainBuild:
    """One process that compiles a tiny graph, which fills Inductor's caches with what every compile shares.

    Compiles in other processes wait for Inductor's own file locks meanwhile, so nothing is built twice.
    """

    def __init__(self) -> None:
        self.workers: Workers | None = None
        self._built: Future[None] | None = None

    def start(self) -> bool:
        """Start the build if the platform allows it and the caches are incomplete; return whether it was started."""
        if self.workers is not None or not can_have_workers() or toolchain_is_built():
            return False
        self.workers = workers = Workers(1)
        self._built = workers.submit(fill_caches)
        self._built.add_done_callback(lambda _: workers.shutdown(wait=False))
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the caches are built, and return whether they are; True if no build was started."""
        return self._built is None or bool(concurrent.futures.wait([self._built], timeout_s).done)

    def stop(self) -> None:
        """End the process if it is still running."""
        if self.workers is not None:
            self.workers.shutdown()


build = ToolchainBuild()
"""The build of this process."""


def probe_once_built() -> None:
    """Wait for the build of the caches, then probe the CPU's instruction set, which compiles too."""
    from regional_explorer.torch_api.inductor import probe_instruction_set

    build.wait()
    probe_instruction_set()


def fill_caches() -> None:
    """Compile the tiny graph; runs in the build's own process."""
    os.nice(NICENESS)
    from regional_explorer.compiler.compilation import warm_toolchain

    with contextlib.suppress(RegionCompileError):
        warm_toolchain("cpu")


def toolchain_is_built() -> bool:
    """Return, without importing torch, whether Inductor's caches hold what its first C++ compile needs.

    They do if a precompiled header and a shared library are newer than torch and the C++ compiler. True as well if
    there is no torch or no compiler, as nothing can be built then.
    """
    torch_spec = importlib.util.find_spec("torch")
    compiler = shutil.which(os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++"))
    if torch_spec is None or torch_spec.origin is None or compiler is None:
        return True
    installed = max(Path(torch_spec.origin).stat().st_mtime, Path(compiler).resolve().stat().st_mtime)
    # Inductor keeps precompiled headers in the default directory, whatever its cache directory is.
    default = Path(tempfile.gettempdir(), f"torchinductor_{_user_name()}")
    cache = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or default)
    return _has_newer_file(default / "precompiled_headers", (".gch", ".pch"), installed) and _has_newer_file(
        cache, (".so",), installed
    )


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, ImportError, OSError):
        return f"uid_{os.getuid()}"


def _has_newer_file(folder: Path, suffixes: tuple[str, ...], since: float) -> bool:
    """Return whether a folder, or a folder in it, has a non-empty file newer than ``since``."""
    names = [f"{level}{suffix}" for level in ("*", "*/*") for suffix in suffixes]
    with contextlib.suppress(OSError):  # other processes may remove files and directories meanwhile
        files = (path.stat() for name in names for path in folder.glob(name))
        return any(file.st_mtime > since and file.st_size for file in files)  # a killed compiler may leave an empty one
    return False
