"""Opens the panel of an exploration when first needed, checks its packages, and remembers what was shown last.

The engine needs no widgets, so the panel is imported only then.

The package's ``__init__`` sets the module of the panel, so ``ex.show()`` works whether or not the notebook extension
was loaded.
"""

from __future__ import annotations

import importlib
import importlib.util
import weakref
from collections.abc import Sequence
from typing import Any

from regional_explorer.errors import MissingPackageError, SessionError

NOTEBOOK_PACKAGES = ("IPython", "ipywidgets", "anywidget")

_panel_module = ""
_last_exploration: weakref.ref[Any] | None = None


def use_panel(module: str) -> None:
    """Set the module whose ``show(exploration, **options)`` opens the panel; it is imported when first used."""
    global _panel_module  # noqa: PLW0603 - one panel per process, named once
    _panel_module = module


def remember_last(exploration: Any) -> None:
    """Make ``last`` return ``exploration``, for as long as it is referenced."""
    global _last_exploration  # noqa: PLW0603 - one per process, as the panel
    _last_exploration = weakref.ref(exploration)


def last() -> Any:
    """Return the exploration that was shown last.

    Raises:
        SessionError: none was shown, or it is no longer referenced.
    """
    exploration = None if _last_exploration is None else _last_exploration()
    if exploration is None:
        raise SessionError("No exploration is shown. Run %regional_compile f(x), or rx.explore(f, (x,)).show().")
    return exploration


def is_last(exploration: Any) -> bool:
    """Return whether ``last`` returns ``exploration``."""
    return _last_exploration is not None and _last_exploration() is exploration


def open_panel(exploration: Any, **options: Any) -> None:
    """Show ``exploration`` in the notebook.

    Raises:
        MissingPackageError: the packages of the notebook are not installed.
    """
    require_notebook("ex.show()")
    importlib.import_module(_panel_module).show(exploration, **options)


def require_notebook(what: str, packages: Sequence[str] = NOTEBOOK_PACKAGES) -> None:
    """Raise MissingPackageError, naming the pip command, if a package that ``what`` needs is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPackageError(
            f"{what} needs what is not installed: {', '.join(missing)}. Install it: pip install {' '.join(missing)}. "
            "Tables, ex.save() and everything else work without it."
        )
