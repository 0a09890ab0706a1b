"""DataFrames as a notebook shows them, and as CSV."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regional_explorer.errors import MissingPackageError
from regional_explorer.style.element import LONG_TEXT, clean, markup
from regional_explorer.style.formats import NONE, Unit, config_text, significant, unit_of

try:
    import pandas as pd
except ImportError as error:
    raise MissingPackageError(
        f"rx.explore and its tables need pandas, which cannot be imported: {error}. Install it: pip install pandas. "
        "rx.compile, rx.status and `regional-explorer show` work without it."
    ) from error

MOST_FRAME_ROWS = 60
"""The most rows that are shown, as in pandas; the frame holds all."""

_CELL_STYLE = "text-align:{};white-space:normal;max-width:26em;overflow-wrap:break-word;vertical-align:top"
# A table wider than its cell scrolls: columns that narrow at will would break their words.
_SCROLLING_BOX = '<div style="overflow-x:auto">{}</div>'


class ShownFrame(pd.DataFrame):
    """A DataFrame of exact values whose HTML is rounded; operations on it return a plain DataFrame."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        units = [unit_of(str(name)) for name in self.columns]
        head = "".join(_cell("th", str(name), number=unit is not None) for name, unit in zip(self, units, strict=True))
        rows = self.iloc[:MOST_FRAME_ROWS]
        body = "".join(
            f"<tr><th>{markup(clean(index))}</th>{''.join(map(_value_cell, values, units))}</tr>"
            for index, values in zip(rows.index, rows.astype(object).itertuples(index=False, name=None), strict=True)
        )
        more = f"<p>The first {MOST_FRAME_ROWS} of {len(self):,} rows.</p>" if len(self) > MOST_FRAME_ROWS else ""
        table = f'<table class="dataframe"><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>'
        return _SCROLLING_BOX.format(table) + more


def _value_cell(value: Any, unit: Unit | None) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return _cell("td", _value_text(value, unit), number=number or unit is not None)


def _value_text(value: Any, unit: Unit | None) -> str:
    """Return a value for people; a number stays in the unit that the name of its column says."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return NONE
    if isinstance(value, Mapping):
        return config_text(value) or NONE
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return clean(value, LONG_TEXT)
    return f"{value:,.0f}" if isinstance(value, int) or (unit is not None and unit.whole) else significant(value)


def _cell(tag: str, text: str, *, number: bool) -> str:
    return f'<{tag} style="{_CELL_STYLE.format("right" if number else "left")}">{markup(text, LONG_TEXT)}</{tag}>'


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
