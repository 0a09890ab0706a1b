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


ABOUT: Mapping[str, str] = {
    # what was measured
    "phase": "The part of the call: forward, backward, or the whole step",
    "variant": "What was run: the name of the variant in Python is in the tooltip of its cell",
    "median": "The time of one call: the middle one of all samples",
    "IQR": "Half of all samples lie within this range around the median",
    "speedup": "eager ÷ this, from the same rounds; above 1 is faster",
    "CI": "Confidence interval: where the true figure lies, at the confidence given below",
    "against eager": "The speedup with its interval; the dashed line is eager",
    "verdict": "What the samples, or the comparison of results, allow to conclude",
    "numerics": "Results compared with eager's, which themselves are compared with float64",
    "against trace": "traced ÷ this: compared with the captured graphs, where those differ from eager",
    "verdict (trace)": "What the samples allow to conclude against the captured graphs",
    "samples": "How many blocks of calls were timed",
    "your plan: speedup": "eager ÷ your plan, from the same rounds",
    # regions and their pieces
    "region": "What was marked, under one name and config",
    "partition": "One piece cut out of one graph: region, instance, graph",
    "graph": "The captured graph that it was cut from",
    "instances": "Which occurrences of the region: a module call, say",
    "selector": "What picks its ops",
    "state": "One of: not compiled, compiled, measured, eager, failed",
    "ops": "How many ops it has",
    "ops forward": "How many ops it has in forward graphs",
    "ops backward": "How many ops it has in backward graphs",
    "partitions": "How many pieces were cut out of the graphs",
    "config": "Inductor config keys that it is compiled under",
    "requested": "The config in the plan",
    "applied": "The config that was read back inside the compile",
    "artifacts": "How many compiled codes they run: equal pieces share one",
    "eager": "Time of one call, run op by op",
    "compiled": "Time of one call, compiled",
    "gain per call": "What compiling saves in each call, measured alone",
    "worst": "The tensor whose results are farthest from eager's",
    "compile": "Seconds waited for its compiles, and whether a cache had them",
    "paid for after": "After how many calls the compile time is regained",
    # how it adds up, memory, numerics
    "part": "Sums begin with =; what stands below one leads to the next",
    "time": "Seconds that it takes",
    "what it is": "Where this time is spent",
    "peak of one call": "Memory above what was in use before the call",
    "read from": "Which counter was read",
    "tensor": "An output or a gradient, or what a forward keeps",
    "dtype": "The type of its numbers",
    "bitwise": "Whether every bit equals eager's",
    "− eager": "Root mean square of the differences from eager",
    "largest": "The largest difference from eager",
    "eager − f64": "How far eager itself is from float64: what rounding does",
    "variant − f64": "How far the variant is from float64",
    "allowed": "The difference from eager that counts as rounding",
    "note": "What the check took into account",
    # compiles
    "what": "What was compiled",
    "waited": "Its part of the seconds waited, where compiles ran side by side",
    "new code": "Seconds waited for compiling what no plan above it has",
    "cache": "Whether a cache had it (warm) or not (cold)",
    "answer": "What Inductor's cache answered",
    "why": "Why it was compiled again, or not",
    "passes before autograd": "Whether passes before autograd ran",
    "all": "The whole compile",
    "tracing": "Tracing and graph passes",
    "lowering": "Turning ops into loops",
    "scheduling": "Deciding what is fused",
    "code": "Generating code; of a graph break, the line",
    "build": "The C++ compiler, or Triton",
    "load": "Loading the built code",
    "other": "The rest",
    "pattern": "The function in Inductor that makes the pattern, or that replaces its matches",
    "trace": "How often it matched when the call was traced",
    "regions": "How often it matched in the compiles of each region",
    # what is kept, and graph breaks
    "op": "The operator",
    "shape": "Its sizes",
    "kept": "Bytes kept for the backward",
    "line": "The line of the source",
    "where": "The line at which the graph breaks",
    "reason": "What Dynamo says of it",
    # where the time goes
    "module": "A module with all inside it; equal layers are one row",
    "around": "What runs around the graphs",
    "share": "Its part of the call",
    "forward": "Time of its ops in the forward",
    "backward": "Time of its ops in the backward",
    "moves": "Bytes that its ops read and write",
    "copying that takes": "The least time in which this machine copies as many bytes",
    # plans side by side
    "plan": "The number of the plan, in the order measured",
    "differences": "What differs between these plans",
    "against plan 1": "Time of plan 1 ÷ time of this one; above 1 is faster",
    "traced": "The captured graphs, run op by op: nothing is compiled",
    "your plan": "Each region compiled under its config, the rest op by op",
    "torch.compile": "The whole call under plain torch.compile",
    "upstream": "The same marks under torch's own regional_inductor",
    "lite": "The same marks under torch.compile(mode='lite')",
}
"""The meaning of each head, by its text."""
