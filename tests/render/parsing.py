"""Reading back what was drawn and written."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

from regional_explorer.tables.table import Table


def parse(svg: str | bytes) -> ET.Element:
    """Return the root of ``svg``; what is not well formed raises."""
    return ET.fromstring(svg)  # noqa: S314 - our own output


def cells(table: Table[Any]) -> list[list[str]]:
    """Return the texts that ``table`` shows, row by row."""
    return [[str(column.shown(row)) for column in table.shown_columns] for row in table.shown_rows]


def note(table: Table[Any]) -> str:
    """Return the notes of ``table``, a line each."""
    return "\n".join(table.notes())
