"""Named configs of a region, for ``ex.configure("mlp", "no fusion")`` and ``rx.region("mlp", "no fusion")``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regional_explorer.errors import InvalidConfigValueError, did_you_mean
from regional_explorer.errors.arguments import shown_value

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "max-autotune, no cudagraphs": {
        "max_autotune": True,
        "coordinate_descent_tuning": True,
        "triton.cudagraphs": False,
    },
    "eager numerics": {"emulate_precision_casts": True, "fallback_random": True},
    "no fusion": {"max_fusion_size": 1, "epilogue_fusion": False},
    "NaN asserts": {"nan_asserts": True},
    "size asserts": {"size_asserts": True, "scalar_asserts": True, "alignment_asserts": True},
}

ASSERTS = frozenset(("nan_asserts", *PRESETS["size asserts"]))
"""Config keys under which a failing region raises instead of running eagerly."""


def preset(name: str) -> Mapping[str, Any]:
    """Return the config called ``name``.

    Raises:
        InvalidConfigValueError: there is none of that name.
    """
    if name not in PRESETS:
        raise InvalidConfigValueError(
            f"No preset is called {shown_value(name)}.{did_you_mean(name, PRESETS)} Presets: {', '.join(PRESETS)}."
        )
    return PRESETS[name]
