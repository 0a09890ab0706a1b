"""Loads code that Inductor generated, possibly modified, as a new Python module."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch._inductor.config as inductor_config


def load_code(text: str, config: Mapping[str, Any], names: Mapping[str, Any]) -> ModuleType:
    """Return the module of generated code, with ``names`` as extra globals.

    Its kernels are compiled under ``config``, or found in Inductor's cache.
    """
    from torch._inductor.codecache import PyCodeCache

    with inductor_config.patch(dict(config)):
        key, path = PyCodeCache.write(text)
        return PyCodeCache.load_by_key_path(key, path, attrs=dict(names))
