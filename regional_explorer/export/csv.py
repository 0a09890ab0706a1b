"""Writes tables as CSV that is safe to open in a spreadsheet: no text is run as a formula."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regional_explorer.render.style.untrusted import LONG_TEXT, clean

if TYPE_CHECKING:
    import pandas as pd

FORMULA_STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""First characters of texts that spreadsheets run as formulas, with their full-width forms."""


def table_csv(frame: pd.DataFrame) -> str:
    """Return ``frame`` as CSV, its texts escaped against formulas."""
    text: str = frame.apply(lambda column: column.map(_csv_cell)).to_csv(index=False)
    return text


def _csv_cell(value: Any) -> Any:
    """Return a text on one line without control characters, prefixed by ``'`` if it would be run as a formula."""
    if not isinstance(value, str):
        return value
    text = clean(value, LONG_TEXT)
    return f"'{text}" if text.startswith(FORMULA_STARTS) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
