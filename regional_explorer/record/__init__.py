"""The frozen record of an exploration, and all that can be derived from it without torch.

The base of all records is here, and the numbers in them with their limits.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

LARGEST_INTEGER = 2**63 - 1
"""The largest integer in a record, which fits into 64 bits."""
LARGEST_FLOAT = 1e18
"""The largest float in a record, so that sums stay finite."""

Integer = Annotated[int, msgspec.Meta(ge=-LARGEST_INTEGER, le=LARGEST_INTEGER)]
Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_INTEGER)]
Quantity = Annotated[float, msgspec.Meta(ge=0, le=LARGEST_FLOAT)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=LARGEST_FLOAT)]
Difference = Annotated[float, msgspec.Meta(ge=-LARGEST_FLOAT, le=LARGEST_FLOAT)]
"""A number of either sign, such as a difference of two times in seconds."""
Ratio = Annotated[float, msgspec.Meta(gt=0, le=LARGEST_FLOAT)]


class Record(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A frozen record of an exploration, compared by its fields and written to a file without its defaults.

    Every class of records says ``frozen=True`` once more, for mypy.
    """
