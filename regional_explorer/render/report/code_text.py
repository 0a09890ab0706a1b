"""The generated code of a region as plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regional_explorer.errors.texts import count, listing
from regional_explorer.record.region_code import PartitionCode, by_artifact
from regional_explorer.render.report.code_tables import kernels_table
from regional_explorer.render.report.text import table_text
from regional_explorer.render.style.untrusted import clean

MOST_TEXT = 400_000
"""How many characters of one partition's code are shown at most."""


def not_compiled(region: str) -> str:
    """Return the text for a region without code."""
    name = clean(repr(region))
    return f"No code of region {name} is known here: it has not been compiled, or ex.code({name}) was not called."


def code_text(region: str, parts: Sequence[PartitionCode], note: str = "") -> str:
    """Return the kernels, source lines and code of each partition of a region; equal code is printed once."""
    return "\n\n".join(filter(None, [note, *_texts(parts)])) if parts else not_compiled(region)


def cut_note(part: PartitionCode) -> str:
    """Return the note below code that is cut; empty if all of it is shown."""
    more = len(part.text) - MOST_TEXT
    return f"The code goes on for {more:,} characters: see .text of this partition." if more > 0 else ""


def _texts(parts: Sequence[PartitionCode]) -> Iterator[str]:
    for first, *others in by_artifact(parts):
        lines = dict.fromkeys(f"# from {line}: {clean(line.text)}" for part in (first, *others) for line in part.source)
        same = f"\n# {equal_code(others)}" if others else ""
        rest = f"\n# {cut_note(first)}" if cut_note(first) else ""
        heading = f"# {'=' * 100}\n{table_text(kernels_table(first))}{same}"
        yield "\n\n".join((heading, "\n".join(lines), f"{first.text[:MOST_TEXT]}{rest}"))


def equal_code(others: Sequence[PartitionCode]) -> str:
    """Return the text for partitions that have the code shown above."""
    names = listing([part.partition.id for part in others])
    return f"The code of {count(len(others), 'more partition')} is the same: {names}."
