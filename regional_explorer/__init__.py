"""See, compile and measure regions of a PyTorch function.

The names below are loaded when first used, so importing the package is quick and does not import torch:

    import regional_explorer as rx

    ex = rx.explore(fn, (x, y))
    ex.mark("mlp", modules="layers.*.mlp")
    ex.benchmark()

In a notebook, ``%load_ext regional_explorer`` brings ``%regional_compile``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from regional_explorer.exploration.viewer import last, require_notebook, use_panel

if TYPE_CHECKING:
    from regional_explorer.backend.compile import (
        Status,
        compile,  # noqa: A004 - as torch.compile is called
        status,
    )
    from regional_explorer.compiler.run import Run
    from regional_explorer.errors import (
        ArtifactError,
        BusyError,
        CacheDirectoryError,
        CaptureError,
        ClosedError,
        CompileEnvironmentError,
        InvalidArgumentError,
        InvalidConfigKeyError,
        InvalidConfigValueError,
        MeasureError,
        MissingPackageError,
        NoCompilerError,
        NotCompiledError,
        PlanError,
        RegionalExplorerError,
        RegionAssertionError,
        RegionCompileError,
        ReproError,
        SelectorError,
        SessionError,
        SourcePatchError,
        UnknownConfigKeyError,
        UnknownRegionError,
        UnsupportedTorchError,
    )
    from regional_explorer.exploration.exploration import Exploration, explore
    from regional_explorer.exploration.results import SavedSession, load
    from regional_explorer.record.plan import DEFAULT, Plan, Region, Selector
    from regional_explorer.record.session import Session
    from regional_explorer.regions.annotate import region

__version__ = "0.1.0"

use_panel(f"{__name__}.ui.display")

__all__ = [
    "DEFAULT",
    "ArtifactError",
    "BusyError",
    "CacheDirectoryError",
    "CaptureError",
    "ClosedError",
    "CompileEnvironmentError",
    "Exploration",
    "InvalidArgumentError",
    "InvalidConfigKeyError",
    "InvalidConfigValueError",
    "MeasureError",
    "MissingPackageError",
    "NoCompilerError",
    "NotCompiledError",
    "Plan",
    "PlanError",
    "Region",
    "RegionAssertionError",
    "RegionCompileError",
    "RegionalExplorerError",
    "ReproError",
    "Run",
    "SavedSession",
    "Selector",
    "SelectorError",
    "Session",
    "SessionError",
    "SourcePatchError",
    "Status",
    "UnknownConfigKeyError",
    "UnknownRegionError",
    "UnsupportedTorchError",
    "compare",
    "compile",
    "explore",
    "last",
    "load",
    "region",
    "status",
]

_HOMES = {
    "DEFAULT": "record.plan",
    "Exploration": "exploration.exploration",
    "Plan": "record.plan",
    "Region": "record.plan",
    "Run": "compiler.run",
    "SavedSession": "exploration.results",
    "Selector": "record.plan",
    "Session": "record.session",
    "Status": "backend.compile",
    "compare": "exploration.results",
    "compile": "backend.compile",
    "explore": "exploration.exploration",
    "last": "exploration.viewer",
    "load": "exploration.results",
    "region": "regions.annotate",
    "status": "backend.compile",
}
"""Where a public name lives; every other one is an error class."""


def __getattr__(name: str) -> Any:
    """Load a public name from its home when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_HOMES.get(name, 'errors')}")
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})


def load_ipython_extension(ipython: Any) -> None:
    """Bring ``%regional_compile`` into ``ipython``; called by ``%load_ext regional_explorer``."""
    require_notebook("%load_ext regional_explorer")
    importlib.import_module(f"{__name__}.command.magic").load_ipython_extension(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Take ``%regional_compile`` out of ``ipython`` again; called by ``%unload_ext``."""
    importlib.import_module(f"{__name__}.command.magic").unload_ipython_extension(ipython)
