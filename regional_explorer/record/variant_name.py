"""The names of the variants that are compared, and the check of those that a user gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from regional_explorer.errors import MeasureError, did_you_mean
from regional_explorer.errors.arguments import shown_value


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


def checked_variants(names: Sequence[str]) -> list[VariantName]:
    """Return the variants of these names and eager, in order.

    Raises:
        MeasureError: ``names`` is not a sequence, or no variant has one of the names.
    """
    valid = [str(name) for name in VariantName]
    if isinstance(names, (str, Mapping)) or not isinstance(names, Iterable):
        raise MeasureError(f"variants={shown_value(names)}: give a tuple of names, such as ('eager', 'regional').")
    names = list(names)
    for name in names:
        if not isinstance(name, str) or name not in valid:
            raise MeasureError(
                f"No variant is called {shown_value(name)}.{did_you_mean(name, valid)} Variants: {', '.join(valid)}."
            )
    return [name for name in VariantName if name in names or name is VariantName.EAGER]
