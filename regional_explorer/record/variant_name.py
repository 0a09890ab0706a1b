"""The names of the variants that are compared."""

from __future__ import annotations

from enum import StrEnum


class VariantName(StrEnum):
    """The variants. ``aot_eager`` is the capture with nothing cut, ``full`` plain ``torch.compile``.

    ``upstream`` is the call with the plan's marks under upstream's ``regional_inductor``, ``lite`` the same under
    ``torch.compile(mode="lite")``: what the annotations give without this package.
    """

    EAGER = "eager"
    AOT_EAGER = "aot_eager"
    REGIONAL = "regional"
    FULL = "full"
    UPSTREAM = "upstream"
    LITE = "lite"


BY_DEFAULT = (VariantName.EAGER, VariantName.AOT_EAGER, VariantName.REGIONAL, VariantName.FULL)
"""The variants that are compared by default."""

BY_TORCH = (VariantName.FULL, VariantName.UPSTREAM, VariantName.LITE)
"""The variants that torch compiles as a whole, each in its own trace."""
