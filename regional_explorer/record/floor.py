"""The floor of a call: the least time that its products and its bytes take on this machine."""

from __future__ import annotations

from regional_explorer.record import Count, Record, Seconds
from regional_explorer.record.environment import Environment

ATEN = "ATen"
"""The library that eager and most compiled code calls for a product."""
ONEDNN = "oneDNN"
BY_ONEDNN = "products_by_onednn"
"""The name of the pass by which oneDNN computes products."""


class Product(Record, frozen=True):
    """Equal products of a call: one op on operands of one layout."""

    text: str
    """The op and the shapes of its operands."""
    times: Count
    """How often a call computes it."""
    each_s: Seconds
    """The least time in which any library computed it once on this machine."""
    library: str
    """That library."""
    aten_s: Seconds
    """The least time in which ATen did."""
    has_pass: bool = False
    """Whether that library is oneDNN, and the pass ``products_by_onednn`` lets it compute them."""

    @property
    def seconds(self) -> float:
        """The least time of all of them in a call."""
        return self.times * self.each_s

    @property
    def over_aten_s(self) -> float:
        """The time that a call saves if that library computes all of them instead of ATen."""
        return self.times * (self.aten_s - self.each_s)


class Floor(Record, frozen=True):
    """The least time of a call on this machine: its products, and the bytes that the ops between them have to move."""

    products: tuple[Product, ...]
    """The products, the longest first."""
    moved_bytes: Count
    """The bytes that the other ops read and write at least, if everything between two products is one kernel."""
    moving_s: Seconds
    """The time of these bytes at the highest rates measured for tensors of their sizes."""
    environment: Environment
    """The environment in which it was measured."""
    left_out: Count = 0
    """The number of products whose time is unknown, because of unknown sizes or because the time was over."""
    busy: bool = False
    """Whether some products were measured only on a busy machine, and may be faster."""

    @property
    def seconds(self) -> float:
        """The least time of a call."""
        return sum(product.seconds for product in self.products) + self.moving_s
