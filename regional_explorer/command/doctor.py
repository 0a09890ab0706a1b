"""Says what works on this machine, and what to install for the rest."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from regional_explorer.errors import RegionalExplorerError


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for: whether it is there, which it is, and what to do where it is not.

    ``needed`` says that nothing compiles without it.
    """

    name: str
    works: bool
    found: str
    remedy: str = ""
    needed: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        """Return one line."""
        sign = "ok " if self.works else "no " if self.needed else "-  "
        return f"{sign} {self.name}: {self.found}{'' if self.works or not self.remedy else f'. {self.remedy}'}"


def examine() -> Iterator[Finding]:
    """Yield what works here: torch, the C++ compiler, GPUs, and the packages that draw and show."""
    yield Finding("Python", works=True, found=platform.python_version(), needed=True)
    if importlib.util.find_spec("torch") is None:
        yield Finding("torch", works=False, found="not installed", remedy="pip install torch", needed=True)
    else:
        yield from _torch()
    notebook = "pip install 'regional-explorer[notebook]'"
    for name, package in (("tables", "pandas"), ("layout of graphs", "pygraphviz"), ("ex.graph()", "graphviz")):
        yield _package(name, package, "pip install pandas" if package == "pandas" else notebook)
    for name, package in (
        ("JupyterLab", "jupyterlab"),
        ("panel", "ipywidgets"),
        ("graph of the panel", "anywidget"),
    ):
        yield _package(name, package, notebook)


def _torch() -> Iterator[Finding]:
    import torch

    try:
        from regional_explorer.torch_api import NO_COMPILER, compiler_version, require_supported_torch

        require_supported_torch()
    except (RegionalExplorerError, ImportError) as error:
        yield Finding("torch", works=False, found=str(error), needed=True)
        return
    yield Finding("torch", works=True, found=torch.__version__, needed=True)
    version = compiler_version()
    yield Finding("C++ compiler", version is not None, version or "none that works", NO_COMPILER, needed=True)
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    yield Finding("GPU", bool(gpus), ", ".join(gpus) or "none; regions run on the CPU")


def _package(name: str, package: str, remedy: str) -> Finding:
    try:
        return Finding(name, works=True, found=f"{package} {importlib.metadata.version(package)}")
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, works=False, found=f"{package} is not installed", remedy=remedy)
