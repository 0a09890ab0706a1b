"""Checks of the running torch version and its cache directory, and the metadata keys of marks and origins."""

from __future__ import annotations

import functools
import inspect
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from regional_explorer.errors import CacheDirectoryError, UnsupportedTorchError

OLDEST_TORCH = (2, 11)

ANNOTATION = "compile_with_inductor"
"""The key under which ``torch.fx.passes.regional_inductor`` looks for a mark."""

FALLBACK = "fallback_to_eager"
"""The key that carves an op out of a region; Inductor itself respects it too (pytorch #166339)."""

ORIGIN = "regional_explorer_origin"
"""Our own key in ``node.meta["custom"]``: the id of the Dynamo node a node descends from."""

MARKS = "regional_explorer_marks"
"""Our own key in ``current_meta["custom"]`` while Dynamo traces a marked block: the ``OpenMark`` of each open block."""


@functools.cache
def inductor_knows_fallback() -> bool:
    """Return whether Inductor calls the eager kernel of an op that carries ``FALLBACK``: torch 2.11 compiles it."""
    import torch._inductor.graph

    return FALLBACK in inspect.getsource(torch._inductor.graph)


BoxedCall = Callable[[list[Any]], Any]


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
