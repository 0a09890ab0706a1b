"""Opens the panel of an exploration without importing it: the engine needs no widgets.

The package's ``__init__`` names the panel when it is imported, so ``ex.show()`` works whether or not the notebook
extension was loaded.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

from regional_explorer.errors import MissingPackageError

NOTEBOOK_PACKAGES = ("IPython", "ipywidgets", "anywidget")

_panel = ""


def use_panel(module: str) -> None:
    """Set the module whose ``show(exploration, **options)`` opens the panel; it is imported when first used."""
    global _panel  # noqa: PLW0603 - one panel per process, named once
    _panel = module


def open_panel(exploration: Any, **options: Any) -> None:
    """Show ``exploration`` in the notebook.

    Raises:
        MissingPackageError: the packages of the notebook are not installed.
    """
    require_notebook("ex.show()")
    importlib.import_module(_panel).show(exploration, **options)


def require_notebook(what: str, packages: Sequence[str] = NOTEBOOK_PACKAGES) -> None:
    """Raise MissingPackageError, naming the pip command, if a package that ``what`` needs is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPackageError(
            f"{what} needs {', '.join(missing)}, which is not installed: pip install 'regional-explorer[notebook]'. "
            "Tables, ex.save() and everything else work without it."
        )
