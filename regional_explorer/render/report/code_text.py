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


def code_text(region: str, codes: Sequence[PartitionCode], note: str = "") -> str:
    """Return the kernels, source lines and code of each partition of a region; equal code is printed once."""
    return "\n\n".join(filter(None, [note, *_partition_texts(codes)])) if codes else not_compiled(region)


def cut_note(code: PartitionCode) -> str:
    """Return the note below code that is cut; empty if all of it is shown."""
    more = len(code.text) - MOST_TEXT
    return f"The code goes on for {more:,} characters: see .text of this partition." if more > 0 else ""


def _partition_texts(codes: Sequence[PartitionCode]) -> Iterator[str]:
    for first, *equal in by_artifact(codes):
        lines = dict.fromkeys(f"# from {line}: {clean(line.text)}" for code in (first, *equal) for line in code.source)
        equal_note = f"\n# {equal_code(equal)}" if equal else ""
        note = f"\n# {cut_note(first)}" if cut_note(first) else ""
        heading = f"# {'=' * 100}\n{table_text(kernels_table(first))}{equal_note}"
        yield "\n\n".join((heading, "\n".join(lines), f"{first.text[:MOST_TEXT]}{note}"))


def equal_code(equal: Sequence[PartitionCode]) -> str:
    """Return the text for partitions that have the code shown above."""
    names = listing([code.partition.id for code in equal])
    return f"The code of {count(len(equal), 'more partition')} is the same: {names}."
