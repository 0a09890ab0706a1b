"""Writes tables as CSV that spreadsheets open safely: text stays text, numbers stay numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regional_explorer.render.style.untrusted import LONG_TEXT, clean

if TYPE_CHECKING:
    import pandas as pd

FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""How a text begins that spreadsheets run as a formula; some take the wide forms of East Asian scripts for the same."""


def table_csv(frame: pd.DataFrame) -> str:
    """Return ``frame`` as CSV, with the texts in it made harmless."""
    text: str = frame.apply(lambda column: column.map(_cell)).to_csv(index=False)
    return text


def _cell(value: Any) -> Any:
    """Return a text on one line, without control characters, after a ``'`` if it would be run as a formula."""
    if not isinstance(value, str):
        return value
    text = clean(value, LONG_TEXT)
    return f"'{text}" if text.startswith(FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
