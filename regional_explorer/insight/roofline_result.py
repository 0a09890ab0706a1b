"""The result of ``ex.roofline()``, and how it is displayed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from regional_explorer.record.profile import Bandwidth
from regional_explorer.record.roofline import (
    BitwiseTrial,
    Border,
    Launches,
    OpDifference,
    Reach,
    RegionReach,
    Roundings,
)
from regional_explorer.record.timing import US_PER_S
from regional_explorer.render.report.roofline_tables import (
    borders_table,
    ops_table,
    reach_table,
    regions_table,
    trials_table,
)
from regional_explorer.render.report.table import Table
from regional_explorer.render.report.table_node import table_nodes
from regional_explorer.render.report.text import table_text
from regional_explorer.render.style.css import PAGE, page_css
from regional_explorer.render.style.element import to_html

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Roofline:
    """Full Inductor as the roofline of a plan; displayed as text or HTML.

    ``reach`` is the part of full's gain that the plan reaches, ``regions`` what each region gains, ``borders`` the data
    that crosses the borders of regions, ``launches`` the kernels that run, None where full's code is not known.
    ``ops`` are those that full computes differently, None where they were not compared, ``roundings`` the roundings
    that it leaves out; ``trials`` show which config makes full bitwise equal to eager. ``problems`` say what could not
    be determined.
    """

    reach: tuple[Reach, ...]
    regions: tuple[RegionReach, ...]
    borders: tuple[Border, ...]
    launches: Launches | None
    roundings: Roundings
    ops: tuple[OpDifference, ...] | None = ()
    trials: tuple[BitwiseTrial, ...] = ()
    bandwidth: Bandwidth | None = None
    problems: tuple[str, ...] = ()

    @property
    def border_frame(self) -> pd.DataFrame:
        """One row per border: tensors, bytes, how much of them full fuses away, and the time that saves at most."""
        frame, rate = _records_frame(Border, self.borders), self.bandwidth.bytes_per_s if self.bandwidth else None
        frame["at_most_us"] = [
            None if rate is None else border.fused_bytes / rate * US_PER_S for border in self.borders
        ]
        return frame

    @property
    def op_frame(self) -> pd.DataFrame:
        """One row per op that Inductor decomposes: its count, how many are bitwise equal, and the differences."""
        return _records_frame(OpDifference, self.ops or ())

    @property
    def region_frame(self) -> pd.DataFrame:
        """One row per region: its gain, and its share of the gain of full."""
        return _records_frame(RegionReach, self.regions)

    def _tables(self) -> Iterator[Table]:
        yield reach_table(self.reach, self.launches, self.problems)
        yield regions_table(self.regions)
        if self.launches is not None:
            yield borders_table(self.borders, self.bandwidth)
        if self.ops is not None:
            yield ops_table(self.ops, self.roundings)
        yield trials_table(self.trials)

    def __str__(self) -> str:
        """Return the tables as text."""
        return "\n\n".join(map(table_text, self._tables()))

    __repr__ = __str__

    def _repr_mimebundle_(self, **_wanted: Any) -> dict[str, str]:
        """Return plain text and HTML for Jupyter front ends."""
        nodes = [node for table in self._tables() for node in table_nodes(table)]
        html = f'<div class="{PAGE}"><style>{page_css()}</style>{to_html(*nodes)}</div>'
        return {"text/plain": str(self), "text/html": html}


def _records_frame(kind: type[Any], rows: Sequence[Any]) -> pd.DataFrame:
    from regional_explorer.render.report.shown_frame import ShownFrame  # which imports pandas

    return ShownFrame(rows, columns=[field.name for field in fields(kind)])
