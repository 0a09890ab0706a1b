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
import sys
from typing import TYPE_CHECKING, Any

from regional_explorer import errors
from regional_explorer.errors import *  # noqa: F403 - all of them

if TYPE_CHECKING:
    from regional_explorer.backend.compile import Status as Status
    from regional_explorer.backend.compile import compile as compile  # noqa: A004 - as torch.compile is called
    from regional_explorer.backend.compile import status as status
    from regional_explorer.compiler.passes import products_by_onednn as products_by_onednn
    from regional_explorer.compiler.run import Run as Run
    from regional_explorer.compiler.treatment import Pass as Pass
    from regional_explorer.exploration.exploration import Exploration as Exploration
    from regional_explorer.exploration.exploration import explore as explore
    from regional_explorer.exploration.results import SavedSession as SavedSession
    from regional_explorer.exploration.results import load as load
    from regional_explorer.record.plan import DEFAULT as DEFAULT
    from regional_explorer.record.plan import Plan as Plan
    from regional_explorer.record.plan import Region as Region
    from regional_explorer.record.plan import Selector as Selector
    from regional_explorer.record.plan import Tracing as Tracing
    from regional_explorer.record.session import Session as Session
    from regional_explorer.regions.annotate import region as region

__version__ = "0.1.0"

_HOMES = {
    "DEFAULT": "record.plan",
    "Exploration": "exploration.exploration",
    "Pass": "compiler.treatment",
    "Plan": "record.plan",
    "Region": "record.plan",
    "Run": "compiler.run",
    "SavedSession": "exploration.results",
    "Selector": "record.plan",
    "Session": "record.session",
    "Status": "backend.compile",
    "Tracing": "record.plan",
    "compare": "exploration.results",
    "compile": "backend.compile",
    "explore": "exploration.exploration",
    "load": "exploration.results",
    "products_by_onednn": "compiler.passes",
    "region": "regions.annotate",
    "status": "backend.compile",
}
"""The module of each public name; it is imported when the name is first used."""

__all__ = [*_HOMES, *errors.__all__, "last"]  # noqa: PLE0604 - they are strings


@errors.user_facing
def __getattr__(name: str) -> Any:
    """Load a public name from its home when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})


@errors.user_facing
def last() -> Exploration:
    """Return the exploration that was shown last.

    Raises:
        SessionError: none was shown, or it is no longer referenced.
    """
    display = sys.modules.get(f"{__name__}.ui.display")  # a module that is not loaded has shown nothing
    exploration: Exploration | None = getattr(display, "last_shown", lambda: None)()
    if exploration is None:
        raise errors.SessionError(
            "No exploration is shown. Run %regional_compile f(x), or ex = rx.explore(f, (x,)); ex.show()."
        )
    return exploration


def load_ipython_extension(ipython: Any) -> None:
    """Register ``%regional_compile`` in ``ipython``; called by ``%load_ext regional_explorer``."""
    errors.require_notebook("%load_ext regional_explorer")
    importlib.import_module(f"{__name__}.command.magic").load_ipython_extension(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Unregister ``%regional_compile`` from ``ipython``; called by ``%unload_ext``."""
    importlib.import_module(f"{__name__}.command.magic").unload_ipython_extension(ipython)
