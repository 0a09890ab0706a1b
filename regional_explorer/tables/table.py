"""Tables: columns declared once, and rows that are records; as DataFrame, text and elements."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from regional_explorer.record.benchmark import VariantName
from regional_explorer.record.figure import MEASURED_ONCE, Figure
from regional_explorer.record.partition import State
from regional_explorer.style.css import paint, toned
from regional_explorer.style.element import Node, clean, node
from regional_explorer.style.formats import NONE, unit_of, word
from regional_explorer.tables.heads import ABOUT

if TYPE_CHECKING:
    from regional_explorer.tables.frame import ShownFrame

R = TypeVar("R")
S = TypeVar("S")

TEXT_WIDTH = 100
WIDEST_CELL = 34
LONGEST_WORD = 24


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """A column of a table: the value it takes from a record, and how texts and pages show it.

    ``name`` is its name in the DataFrame, with the unit of the numbers there at its end: ``eager_us``, ``compile_s``,
    ``peak_bytes``; without a name it is not in the DataFrame. ``value`` is exact, in seconds or bytes. ``head`` is the
    title in texts and pages, by default the name without unit; ``text`` writes a row there, or ``write`` a value, if
    there is one; by default by the unit. ``tone`` is good, bad, warn or quiet. ``region`` is the number of the region
    whose letter stands before the text. ``drawn`` makes, of all rows that are shown, the function that draws one of
    them in place of the text. ``right`` columns are aligned to the right and never wrapped. ``dtype`` is that of the
    DataFrame, if pandas would not find it.
    """

    name: str
    value: Callable[[R], Any]
    head: str | None = None
    text: Callable[[R], str] | None = None
    write: Callable[[Any], str] | None = None
    tone: str | Callable[[R], str] = ""
    region: Callable[[R], int | None] | None = None
    drawn: Callable[[Sequence[R]], Callable[[R], Node | None]] | None = None
    right: bool = False
    dtype: str = ""

    @property
    def title(self) -> str:
        """Its title in texts and pages."""
        if self.head is not None:
            return self.head
        unit = unit_of(self.name)
        return self.name.removesuffix(unit.ending if unit else "").replace("_", " ")

    def exact(self, row: R) -> Any:
        """Return the value of a row for the DataFrame, in the unit that the name says."""
        value, unit = number_of(self.value(row)), unit_of(self.name)
        if isinstance(value, StrEnum):
            return str(value)
        if isinstance(value, Mapping):
            return dict(value)
        return value if value is None or unit is None else value * unit.factor

    def shown(self, row: R) -> str:
        """Return the value of a row for people; a state stays a state, so that its sign can be shown."""
        if self.text is not None:
            return self.text(row)
        value, unit = number_of(self.value(row)), unit_of(self.name)
        if value is None:
            return NONE
        if self.write is not None:
            return self.write(value)
        return unit.text(value) if unit else value if isinstance(value, StrEnum) else clean(value)

    def written(self, row: R) -> str:
        """Return the value of a row as plain text."""
        shown = self.shown(row)
        return word(shown) if isinstance(shown, StrEnum) else shown

    def tone_of(self, row: R) -> str:
        """Return the tone of a row."""
        return self.tone if isinstance(self.tone, str) else self.tone(row)

    def content(self, row: R) -> list[Node | str]:
        """Return the value of a row as elements, after the letter of its region."""
        text, tone = self.shown(row), self.tone_of(row)
        number = self.region(row) if self.region else None
        letter: list[Node | str] = [] if number is None else [chip(number), " "]
        if text != NONE and (why := why_no_interval(self.value(row))):
            # Grey marks figures that may differ when measured again.
            return [*letter, toned(text, tone if why == MEASURED_ONCE else "quiet", title=why)]
        if isinstance(text, VariantName) and word(text) != text:
            return [*letter, node("span", word(text), title=text)]
        return [*letter, toned(text, tone) if tone or isinstance(text, State) else text]


@dataclass(frozen=True, slots=True)
class Number(Column[R]):
    """A column of numbers, or of figures."""

    right: bool = True


def columns_of(part: Callable[[R], S | None], columns: Iterable[Column[S]]) -> tuple[Column[R], ...]:
    """Return the columns for a part of each record; their cells are empty if the part is None."""

    def of(column: Column[S]) -> Column[R]:
        text, tone = column.text, column.tone
        return Column(
            column.name,
            lambda row: None if (found := part(row)) is None else column.value(found),
            column.head,
            text and (lambda row: NONE if (found := part(row)) is None else text(found)),
            column.write,
            tone if isinstance(tone, str) else lambda row: "quiet" if (found := part(row)) is None else tone(found),
            right=column.right,
        )

    return tuple(map(of, columns))


def why_no_interval(value: Any) -> str:
    """Return why a figure has no interval; empty if it has one, and for values that are no figure."""
    return value.why if isinstance(value, Figure) and value.bounds is None else ""


def number_of(value: Any) -> Any:
    """Return the number of a figure; any other value unchanged."""
    return value.value if isinstance(value, Figure) else value


def bound_columns(
    low: str, high: str, figure: Callable[[R], Figure | None], text: Callable[[R], str] | None = None
) -> tuple[Column[R], ...]:
    """Return two DataFrame columns with the ends of a figure's CI, and a column with both for texts and pages."""
    return (
        Number(low, lambda row: (found := figure(row)) and found.low),
        Number(high, lambda row: (found := figure(row)) and found.high),
        Number("", figure, "CI", text=text, tone="quiet"),
    )


@dataclass(frozen=True, slots=True)
class Table(Generic[R]):
    """A titled table with one row per record.

    ``heads`` are the titles of the columns that texts and pages show, in their order: all columns if empty. ``shown``
    are the records that they show: all if None. ``empty`` is said if there are none, ``notes`` makes the lines below.
    ``outdated`` is None if the figures are always those of the plan; otherwise the DataFrame says of which plan they
    are, and so does the title if it is another. ``fold`` says whether the rows are in a fold: never, in one that is
    closed unless one of them is bad or a warning, or in one that is closed.
    """

    title: str
    columns: tuple[Column[R], ...]
    rows: Sequence[R]
    empty: str = ""
    notes: Callable[[], Iterable[str]] = tuple
    heads: tuple[str, ...] = ()
    shown: Sequence[R] | None = None
    outdated: bool | None = None
    fold: Literal["", "unless bad", "closed"] = ""

    def dataframe(self) -> ShownFrame:
        """Return all rows with exact values."""
        from regional_explorer.tables.frame import ShownFrame  # which imports pandas

        columns = [column for column in self.columns if column.name]
        frame = ShownFrame(
            [[column.exact(row) for column in columns] for row in self.rows],
            columns=[column.name for column in columns],
        )
        if self.outdated is not None:
            frame["plan"] = "another" if self.outdated else "current"
        # Without a number in it, pandas does not know that a column has numbers.
        unknown = {column.name for column in columns if column.right and frame[column.name].dtype == object}
        dtypes = {
            column.name: column.dtype or "float64" for column in columns if column.dtype or column.name in unknown
        }
        return ShownFrame(frame.astype(dtypes))

    @property
    def shown_rows(self) -> Sequence[R]:
        """The records that texts and pages show."""
        return self.rows if self.shown is None else self.shown

    @property
    def shown_columns(self) -> Sequence[Column[R]]:
        """The columns that texts and pages show, in their order."""
        by_title = {column.title: column for column in self.columns}
        return [by_title[head] for head in self.heads] if self.heads else self.columns

    @property
    def full_title(self) -> str:
        """The title, with a note if the rows are about another plan."""
        return f"{self.title} of another plan" if self.outdated and self.shown_rows else self.title

    def text(self, width: int = TEXT_WIDTH) -> str:
        """Return the table with aligned columns, about ``width`` wide; long cells are wrapped."""
        if not self.shown_rows:
            return "\n  ".join([self.full_title, *_wrap(self.empty, width - 2)])
        texts = [[column.written(row) for row in self.shown_rows] for column in self.shown_columns]
        filled = [(column, cells) for column, cells in zip(self.shown_columns, texts, strict=True) if any(cells)]
        notes = [line for note in (*self.notes(), *self.unsure()) if note for line in _wrap(note, width - 2)]
        return "\n".join([self.full_title, *_aligned(filled, width), *(f"  {line}" for line in notes)])

    def unsure(self) -> Iterator[str]:
        """Yield why shown figures have no interval, each reason once."""
        heads: dict[str, dict[str, None]] = {}
        for column in self.shown_columns:
            for row in self.shown_rows:
                if (why := why_no_interval(column.value(row))) and column.shown(row) != NONE:
                    heads.setdefault(why, {})[column.title] = None
        for why, titles in heads.items():
            yield f"Without interval: {', '.join(titles)} ({why})."

    def cells(self) -> list[list[list[Node | str]]]:
        """Return the contents of all cells that are shown, row by row."""
        rows = self.shown_rows
        columns = [(column, column.drawn(rows) if column.drawn else None) for column in self.shown_columns]
        return [
            [[drawing] if draw and (drawing := draw(row)) else column.content(row) for column, draw in columns]
            for row in rows
        ]

    def nodes(self) -> list[Node]:
        """Return title, rows and notes as elements, in a fold if the table has one."""
        columns, shown = self.shown_columns, self.shown_rows
        title = node("h4", self.full_title)
        if not shown:
            return [title, node("p", self.empty, class_="rx-empty")]
        classes = ["rx-figure" if column.right else None for column in columns]
        heads = (head(column.title, class_) for column, class_ in zip(columns, classes, strict=True))
        rows = (
            node("tr", *(node("td", *cell, class_=class_) for cell, class_ in zip(row, classes, strict=True)))
            for row in self.cells()
        )
        drawn = node("table", node("thead", node("tr", *heads)), node("tbody", *rows))
        notes = (node("p", line, class_="rx-note") for line in self.notes() if line)
        inside = [
            node("div", drawn, tabindex="0", class_="rx-wide rx-outdated" if self.outdated else "rx-wide"),
            *notes,
        ]
        if not self.fold:
            return [title, *inside]
        bad = any(column.tone_of(row) in {"bad", "warn"} for column in columns for row in shown)
        return [node("details", node("summary", self.full_title), *inside, open=bad and self.fold == "unless bad")]


def head(title: str, class_: str | None = None) -> Node:
    """Return the head of a column, with its meaning as the tooltip."""
    return node("th", title, class_=class_, title=ABOUT.get(title))


def _aligned(columns: Sequence[tuple[Column[Any], Sequence[str]]], width: int) -> Iterator[str]:
    """Yield the aligned lines of columns, each given with its texts."""
    heads = [column.title for column, _ in columns]
    # Numbers are not wrapped, so that they stay beside their units.
    minimums = [
        max(map(_text_width, [column.title, *texts]))
        if column.right
        else max(_text_width(column.title), *map(_longest_word, texts))
        for column, texts in columns
    ]
    limits = [WIDEST_CELL] * len(columns)
    while True:
        cells = [[_wrap(text, limit) for text in texts] for (_, texts), limit in zip(columns, limits, strict=True)]
        widths = [
            max(map(_text_width, [head, *(line for lines in column for line in lines)]))
            for head, column in zip(heads, cells, strict=True)
        ]
        # The widest column is narrowed first; none becomes narrower than its head and its longest word.
        shrinkable = [n for n, wide in enumerate(widths) if min(wide, limits[n]) > minimums[n]]
        if sum(widths) + 2 * len(widths) <= width or not shrinkable:
            break
        widest = max(shrinkable, key=lambda n: widths[n])
        limits[widest] = min(limits[widest], widths[widest]) - 1
    row_lines = (zip_longest(*row, fillvalue="") for row in zip(*cells, strict=True))
    for line in [heads, ["─" * wide for wide in widths], *chain.from_iterable(row_lines)]:
        # A wide character takes two columns of a terminal, and is one to Python.
        padded = (
            (text.rjust if column.right else text.ljust)(wide + len(text) - _text_width(text))
            for text, wide, (column, _) in zip(line, widths, columns, strict=True)
        )
        yield f"  {'  '.join(padded)}".rstrip()


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def _longest_word(text: str) -> int:
    return max((min(_text_width(word), LONGEST_WORD) for word in text.split()), default=0)


def _text_width(text: str) -> int:
    """Return how many columns of a terminal ``text`` takes: wide characters take two, marks none."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def chip(region: int, **attributes: object) -> Node:
    """Return the letter of a region on its colour."""
    return node("span", paint(region).letter, class_=f"rx-chip rx-r{region}", **attributes)
