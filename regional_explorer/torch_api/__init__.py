"""The one package that uses private torch APIs and knows how torch versions differ.

Everything here is a thin wrapper; the packages that use a wrapper say what it is for.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import torch

from regional_explorer.errors import CacheDirectoryError, UnsupportedTorchError

OLDEST_TORCH = (2, 11)


def require_cache_directory() -> None:
    """Raise CacheDirectoryError if Inductor's cache directory cannot be created; importing Dynamo creates it."""
    try:
        Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or tempfile.gettempdir()).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheDirectoryError(
            f"Inductor's cache directory cannot be used, and without it torch does not import its compilers: {error}. "
            "Set TORCHINDUCTOR_CACHE_DIR to a directory that can be written, and restart Python."
        ) from error


def require_supported_torch() -> None:
    """Raise UnsupportedTorchError unless the running torch is one this package supports."""
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if release < OLDEST_TORCH:
        raise UnsupportedTorchError(
            f"torch {torch.__version__} is too old: regional_explorer needs torch "
            f"{OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} or newer. Upgrade with `pip install -U torch`."
        )


# An older torch lacks names that the modules import, and without a cache directory the imports fail: raise clear
# errors first.
require_supported_torch()
require_cache_directory()

import torch._dynamo  # noqa: E402 - and before torch._functorch: the two import each other
