"""Checks what compiling requires of a machine: a supported torch, and a C++ compiler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from regional_explorer.errors import RegionalExplorerError


@dataclass(frozen=True)
class Finding:
    """The result of one check: whether the thing was found and works, what was found, and what to do if it was not.

    ``needed`` means that nothing can be explored or compiled without it.
    """

    name: str
    works: bool
    found: str
    remedy: str = ""
    needed: bool = False

    def __str__(self) -> str:
        """Return one line."""
        sign = "ok " if self.works else "no " if self.needed else "-  "
        return f"{sign} {self.name}: {self.found}{f'. {self.remedy}' if self.remedy else ''}"


def torch_findings() -> Iterator[Finding]:
    """Yield a finding each for torch, the C++ compiler and GPUs; torch must be installed."""
    import torch

    try:
        from regional_explorer.torch_api import NO_COMPILER, compiler_version
    except (RegionalExplorerError, ImportError) as error:
        yield Finding("torch", works=False, found=str(error), needed=True)
        return
    yield Finding("torch", works=True, found=torch.__version__, needed=True)
    version = compiler_version()
    if version is None:
        yield Finding("C++ compiler", works=False, found="none that works", remedy=NO_COMPILER, needed=True)
    else:
        yield Finding("C++ compiler", works=True, found=version, needed=True)
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    yield Finding("GPU", bool(gpus), ", ".join(gpus) or "none; regions run on the CPU")
