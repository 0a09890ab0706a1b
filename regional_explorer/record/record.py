"""The base of all records, and the numbers in them with their limits."""

from __future__ import annotations

from typing import Annotated

import msgspec

LARGEST = 2**63 - 1
GREATEST = 1e18
"""The greatest float in a record: sums of such stay finite."""

Integer = Annotated[int, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Quantity = Annotated[float, msgspec.Meta(ge=0, le=GREATEST)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=GREATEST)]
Difference = Annotated[float, msgspec.Meta(ge=-GREATEST, le=GREATEST)]
"""A number of either sign: a difference between two times, say, in seconds."""
Ratio = Annotated[float, msgspec.Meta(gt=0, le=GREATEST)]


class Record(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Something known of an exploration: frozen, compared by its fields, and written to a file without its defaults.

    Every class of records says ``frozen=True`` once more, for mypy.
    """
