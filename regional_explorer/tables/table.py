"""Tables: columns declared once, and a record per row; shown as DataFrame, text and elements."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from regional_explorer.record.benchmark import VariantName
from regional_explorer.record.figure import MEASURED_ONCE, Figure
from regional_explorer.record.partition import State
from regional_explorer.style.css import paint, toned
from regional_explorer.style.element import Node, clean, node
from regional_explorer.style.formats import NONE, unit_of, word

if TYPE_CHECKING:
    from regional_explorer.tables.frame import ShownFrame

R = TypeVar("R")
S = TypeVar("S")

Cell = Callable[[R], Sequence[Node | str]]
"""Returns the elements of a row's cell."""

TEXT_WIDTH = 100
WIDEST_CELL = 34
LONGEST_WORD = 24


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """A column of a table: the value it takes from a record, and how texts and pages show it.

    ``name`` is the column's name in the DataFrame, and ends with the unit of its numbers: ``eager_us``, ``compile_s``,
    ``peak_bytes``. A column without a name is not in the DataFrame. ``value`` is exact, in seconds or bytes. ``dtype``
    is the DataFrame's, if pandas would not find it.

    ``head`` is the title in texts and pages, by default the name without unit. There ``text`` writes a row, or
    ``write`` a value that is not None; by default, the unit says how. ``tone`` is good, bad, warn or quiet. ``region``
    is the number of the region whose letter stands before the text. ``right`` columns are aligned to the right and
    never wrapped. ``nodes`` returns the elements of a page's cell; the text is shown if there are none. ``class_`` is
    the class of the cells in a panel. Rows are sorted by ``order``, by default the value.
    """

    name: str
    value: Callable[[R], Any]
    head: str | None = None
    text: Callable[[R], str] | None = None
    write: Callable[[Any], str] | None = None
    tone: str | Callable[[R], str] = ""
    region: Callable[[R], int | None] | None = None
    right: bool = False
    dtype: str = ""
    nodes: Cell[R] | None = None
    class_: str = ""
    order: Callable[[R], Any] | None = None

    @property
    def title(self) -> str:
        """The title in texts and pages."""
        if self.head is not None:
            return self.head
        unit = unit_of(self.name)
        return self.name.removesuffix(unit.ending if unit else "").replace("_", " ")

    def exact(self, row: R) -> Any:
        """Return the value of a row for the DataFrame, in the unit at the end of the column's name."""
        value, unit = number_of(self.value(row)), unit_of(self.name)
        if isinstance(value, StrEnum):
            return str(value)
        if isinstance(value, Mapping):
            return dict(value)
        return value if value is None or unit is None else value * unit.factor

    def shown_text(self, row: R) -> str:
        """Return the value of a row for people; a state stays a state, so that its sign can be shown."""
        if self.text is not None:
            return self.text(row)
        value, unit = number_of(self.value(row)), unit_of(self.name)
        if value is None:
            return NONE
        if self.write is not None:
            return self.write(value)
        return unit.text(value) if unit else value if isinstance(value, StrEnum) else clean(value)

    def plain_text(self, row: R) -> str:
        """Return the value of a row as plain text."""
        shown = self.shown_text(row)
        return word(shown) if isinstance(shown, StrEnum) else shown

    def header(self) -> Node:
        """Return the title as the head of a column, with its meaning as the tooltip."""
        return node("th", self.title, class_="rx-figure" if self.right else None, title=ABOUT.get(self.title))

    def tone_of(self, row: R) -> str:
        """Return the tone of a row."""
        return self.tone if isinstance(self.tone, str) else self.tone(row)

    def content(self, row: R) -> list[Node | str]:
        """Return the value of a row as elements, after the letter of its region."""
        if self.nodes is not None and (nodes := self.nodes(row)):
            return list(nodes)
        text, tone = self.shown_text(row), self.tone_of(row)
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
    """A column of numbers or figures."""

    right: bool = True


def columns_of(part: Callable[[R], S | None], columns: Iterable[Column[S]]) -> tuple[Column[R], ...]:
    """Return the columns applied to a part of each record; the cells of a row are empty if its part is None."""

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
            dtype=column.dtype,
        )

    return tuple(map(of, columns))


def why_no_interval(value: Any) -> str:
    """Return why a figure has no interval; empty if it has an interval, or if the value is no figure."""
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

    Texts and pages show the columns with the titles ``heads``, in this order, or all columns if it is empty. They show
    the records ``shown``, or all if it is None, and the text ``empty`` in place of an empty table. ``notes`` returns
    the lines below the table.

    ``outdated`` says what the figures are of, if not of the present state: the DataFrame says so in a column ``plan``,
    and the title in words. It is None if the figures are always of the present state. ``fold`` makes the
    rows collapsible: "unless bad" shows them at first if a row is bad or a warning, "closed" never.
    """

    title: str
    columns: tuple[Column[R], ...]
    rows: Sequence[R]
    empty: str = ""
    notes: Callable[[], Iterable[str]] = tuple
    heads: tuple[str, ...] = ()
    shown: Sequence[R] | None = None
    outdated: str | None = None
    fold: Literal["", "unless bad", "closed"] = ""

    def dataframe(self) -> ShownFrame:
        """Return all rows with exact values."""
        from regional_explorer.tables.frame import ShownFrame  # imports pandas

        columns = [column for column in self.columns if column.name]
        frame = ShownFrame(
            [[column.exact(row) for column in columns] for row in self.rows],
            columns=[column.name for column in columns],
        )
        if self.outdated is not None:
            frame["plan"] = self.outdated or "current"
        # A column of numbers that has none yet has another dtype in pandas.
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
        """The title, with a note if the rows are of another plan or an earlier state."""
        return f"{self.title} of {self.outdated}" if self.outdated and self.shown_rows else self.title

    def text(self, width: int = TEXT_WIDTH) -> str:
        """Return the table with aligned columns, about ``width`` wide; long cells are wrapped."""
        if not self.shown_rows:
            return "\n  ".join([self.full_title, *_wrap(self.empty, width - 2)])
        texts = [[column.plain_text(row) for row in self.shown_rows] for column in self.shown_columns]
        filled = [(column, cells) for column, cells in zip(self.shown_columns, texts, strict=True) if any(cells)]
        notes = [line for note in (*self.notes(), *self.unsure()) if note for line in _wrap(note, width - 2)]
        return "\n".join([self.full_title, *_aligned_lines(filled, width), *(f"  {line}" for line in notes)])

    def unsure(self) -> Iterator[str]:
        """Yield each reason why shown figures have no interval, with the titles of their columns."""
        heads: dict[str, dict[str, None]] = {}
        for column in self.shown_columns:
            for row in self.shown_rows:
                if (why := why_no_interval(column.value(row))) and column.shown_text(row) != NONE:
                    heads.setdefault(why, {})[column.title] = None
        for why, titles in heads.items():
            yield f"Without interval: {', '.join(titles)} ({why})."

    def edited(self, heads: Iterable[str], cells: Mapping[str, Cell[R]], last: Cell[R]) -> Table[R]:
        """Return the table as a panel shows it: the columns ``heads``, some with other ``cells``, and a last one."""
        columns = (replace(one, nodes=cells[one.title]) if one.title in cells else one for one in self.columns)
        buttons: Column[R] = Column("", lambda _: "", nodes=last, class_="rxt-last")
        return replace(self, columns=(*columns, buttons), heads=(*heads, ""))

    def ordered(self, title: str, *, descending: bool) -> Table[R]:
        """Return the table with its rows in the order of a column; those without a value come last."""
        column = next(column for column in self.columns if column.title == title)
        order = column.order or column.value
        known = [row for row in self.shown_rows if order(row) not in (None, "")]
        unknown = [row for row in self.shown_rows if order(row) in (None, "")]
        return replace(self, shown=[*sorted(known, key=lambda r: number_of(order(r)), reverse=descending), *unknown])

    def grid(
        self,
        *,
        heads: Callable[[Column[R]], Node] | None = None,
        row: Callable[[R], Mapping[str, object]] = lambda _row: {},
        named: bool = True,
        **attributes: object,
    ) -> Node:
        """Return the rows as a table element.

        Args:
            heads: Returns the head of a column, in place of its title.
            row: Returns the attributes of a row.
            named: Whether cells have the title and the class of their column, as in a panel.
            attributes: Those of the table.
        """

        def cell(column: Column[R], content: Sequence[Node | str]) -> Node:
            classes = (column.class_ * named, "rx-figure" * column.right, "rxt-none" * (named and content == [NONE]))
            class_ = " ".join(filter(None, classes))
            return node("td", *content, class_=class_ or None, data_head=column.title or None if named else None)

        columns = self.shown_columns
        rows = (
            node("tr", *(cell(column, column.content(one)) for column in columns), **row(one))
            for one in self.shown_rows
        )
        head = node("thead", node("tr", *map(heads or Column[R].header, columns)))
        return node("table", head, node("tbody", *rows), **attributes)

    def elements(self) -> list[Node]:
        """Return title, rows and notes as HTML elements, collapsible if ``fold`` says so."""
        title = node("h4", self.full_title)
        if not self.shown_rows:
            return [title, node("p", self.empty, class_="rx-empty")]
        notes = (node("p", line, class_="rx-note") for line in self.notes() if line)
        class_ = "rx-wide rx-outdated" if self.outdated else "rx-wide"
        inside = [node("div", self.grid(named=False), tabindex="0", class_=class_), *notes]
        if not self.fold:
            return [title, *inside]
        return [node("details", node("summary", self.full_title), *inside, open=self.opens)]

    @property
    def opens(self) -> bool:
        """Whether the rows are shown at first."""
        bad = (column.tone_of(row) in {"bad", "warn"} for column in self.shown_columns for row in self.shown_rows)
        return not self.fold or (self.fold == "unless bad" and any(bad))


def _aligned_lines(columns: Sequence[tuple[Column[Any], Sequence[str]]], width: int) -> Iterator[str]:
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
        # Narrow the widest column first, and no column below its head and its longest word.
        shrinkable = [n for n, wide in enumerate(widths) if min(wide, limits[n]) > minimums[n]]
        if sum(widths) + 2 * len(widths) <= width or not shrinkable:
            break
        widest = max(shrinkable, key=lambda n: widths[n])
        limits[widest] = min(limits[widest], widths[widest]) - 1
    row_lines = (zip_longest(*row, fillvalue="") for row in zip(*cells, strict=True))
    for line in [heads, ["─" * wide for wide in widths], *chain.from_iterable(row_lines)]:
        # A wide character takes two columns of a terminal, but Python counts it as one.
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
    """Return how many columns of a terminal ``text`` takes: wide characters take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def chip(region: int, **attributes: object) -> Node:
    """Return the letter of a region on its colour."""
    return node("span", paint(region).letter, class_=f"rx-chip rx-r{region}", **attributes)


ABOUT: Mapping[str, str] = {
    # what was measured
    "phase": "The part of the call: forward, backward, or the whole step",
    "variant": "A way to run the call; the tooltip of its cell has the variant's name in Python",
    "median": "The time of one call: the median of all samples",
    "IQR": "Half of all samples lie within this range around the median",
    "speedup": "eager ÷ this, from the same rounds; above 1 is faster",
    "CI": "Confidence interval: where the true figure lies, at the confidence given below",
    "against eager": "The speedup with its interval; the dashed line is eager",
    "verdict": "The conclusion that the samples, or the comparison of results, allow",
    "numerics": "The verdict on the results: compared with eager's, and both with float64",
    "against trace": "traced ÷ this: the speedup over the captured graphs, if these differ from eager",
    "verdict (trace)": "The conclusion that the samples allow against the captured graphs",
    "samples": "How many blocks of calls were timed",
    "your plan: speedup": "eager ÷ your plan, from the same rounds",
    # regions and their pieces
    "region": "The ops that were marked under one name; they share a config",
    "partition": "A piece cut out of one graph: its region, instance and graph",
    "graph": "The captured graph that the piece was cut from",
    "instances": "The occurrences of the region, such as module calls",
    "selector": "The rule that picks the region's ops",
    "state": "One of: not compiled, compiled, measured, eager, failed",
    "ops": "The ops of the row, or their number",
    "ops forward": "The number of ops in forward graphs",
    "ops backward": "The number of ops in backward graphs",
    "partitions": "The number of pieces cut out of the graphs",
    "config": "The Inductor config that the region is compiled under",
    "requested": "The config in the plan",
    "applied": "The config that was read back inside the compile",
    "artifacts": "The number of compiled callables that the pieces run: equal pieces share one",
    "eager": "Time of one call, run op by op",
    "compiled": "Time of one call, compiled",
    "eager → compiled": "Medians of the region's eager and compiled time in each call; the speedup with its interval, "
    "which compares within each round and may differ from the ratio of the medians; the state, unless it is measured",
    "of the call": "What it saves of each call by its speedup, measured alone; a dash if that exceeds the call",
    "gain per call": "The time that compiling saves in each call by the speedup, measured alone",
    "worst": "The tensor whose results are farthest from eager's",
    "compile": "Seconds waited for the compiles, and whether a cache had them (warm) or not (cold)",
    "paid for after": "The number of calls that regain the compile time",
    # how it adds up, memory, numerics
    "part": "A sum begins with =; the parts below it lead to the next sum",
    "time": "The time of the row",
    "what it is": "Where this time is spent",
    "peak of one call": "Memory above the amount in use before the call",
    "read from": "The counter that was read",
    "tensor": "An output or a gradient, or what a forward keeps",
    "dtype": "The tensor's dtype",
    "bitwise": "Whether every bit equals eager's",
    "− eager": "Root mean square of the differences from eager",
    "largest": "The largest difference from eager",
    "eager − f64": "How far eager itself is from float64: what rounding does",
    "variant − f64": "How far the variant is from float64",
    "allowed": "The difference from eager that counts as rounding",
    "note": "What the check took into account",
    # compiles
    "what": "What was compiled",
    "waited": "This compile's part of the elapsed time, if compiles ran side by side",
    "new code": "Seconds waited for compiling code that no plan above has",
    "cache": "Whether a cache had the code (warm) or not (cold)",
    "answer": "The answer of Inductor's cache: hit, miss, bypass or off",
    "why": "Why the code was compiled again, or not",
    "passes before autograd": "Whether passes before autograd ran",
    "look-up": "Computing keys, and looking them up in caches",
    "tracing": "Tracing and graph passes",
    "lowering": "Turning ops into loops",
    "scheduling": "Deciding what is fused",
    "code": "Generating code; of a graph break, the line",
    "build": "The C++ compiler, or Triton",
    "load": "Loading the built code",
    "other": "The rest",
    "pattern": "The function in Inductor that makes the pattern, or that replaces its matches",
    "trace": "How often the pattern matched when the call was traced",
    "regions": "How often the pattern matched in the compiles of each region",
    # what is kept, and graph breaks
    "op": "The operator",
    "shape": "The tensor's sizes",
    "kept": "Bytes kept for the backward",
    "line": "The line of the source",
    "where": "The line at which the graph breaks",
    "reason": "Dynamo's reason for the graph break",
    # where the time goes
    "module": "A module with everything inside it; equal layers are one row",
    "around": "Code that runs around the graphs",
    "share": "The row's part of the call's time",
    "forward": "Time of the row's ops in the forward",
    "backward": "Time of the row's ops in the backward",
    "moves": "Bytes that the row's ops read and write",
    "copying that takes": "The least time in which this machine copies as many bytes",
    # plans side by side
    "plan": "The number of the plan, in the order of measuring",
    "differences": "What differs between these plans",
    "against plan 1": "Time of plan 1 ÷ time of this plan; above 1 is faster",
    "traced": "The captured graphs, run op by op: nothing is compiled",
    "your plan": "Each region compiled under its config, the rest op by op",
    "torch.compile": "The whole call under plain torch.compile",
    "upstream": "The same marks under torch's own regional_inductor",
    "lite": "The same marks under torch.compile(mode='lite')",
}
"""The meaning of each head, by its text."""
