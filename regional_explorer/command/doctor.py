"""``regional-explorer doctor``: checks what works on this machine, and what to install for the rest."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from collections.abc import Iterator

from regional_explorer.compiler.requirements import Finding, torch_findings


def examine() -> Iterator[Finding]:
    """Yield a finding for torch, the C++ compiler, GPUs, and each package for drawing and notebooks."""
    yield Finding("Python", works=True, found=platform.python_version(), needed=True)
    if importlib.util.find_spec("torch") is None:
        yield Finding("torch", works=False, found="not installed", remedy="pip install torch", needed=True)
    else:
        yield from torch_findings()
    yield _package_finding("rx.explore and its tables", "pandas", needed=True)
    for name, package in (
        ("layout of graphs", "pygraphviz"),
        ("ex.graph()", "graphviz"),
        ("JupyterLab", "jupyterlab"),
        ("panel", "ipywidgets"),
        ("graph of the panel", "anywidget"),
    ):
        yield _package_finding(name, package)


def _package_finding(name: str, package: str, *, needed: bool = False) -> Finding:
    try:
        return Finding(name, works=True, found=f"{package} {importlib.metadata.version(package)}", needed=needed)
    except importlib.metadata.PackageNotFoundError:
        remedy = f"pip install {package}"
        return Finding(name, works=False, found=f"{package} is not installed", remedy=remedy, needed=needed)
