"""The generated code of a region as plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regional_explorer.record.region_code import PartitionCode
from regional_explorer.render.report.code_tables import kernels_table
from regional_explorer.render.report.text import table_text
from regional_explorer.render.style.untrusted import clean


def not_compiled(region: str) -> str:
    """Return the text for a region without code."""
    return f"No code yet for region {clean(repr(region))}: it has not been compiled. Call ex.compile()."


def code_text(region: str, parts: Sequence[PartitionCode], note: str = "") -> str:
    """Return the kernels, source lines and code of each partition of a region; equal code is printed once."""
    return "\n\n".join(filter(None, [note, *_texts(parts)])) if parts else not_compiled(region)


def _texts(parts: Sequence[PartitionCode]) -> Iterator[str]:
    first: dict[str, str] = {}
    for part in parts:
        source = "".join(f"\n# from {line}: {clean(line.text)}" for line in part.source)
        same = first.setdefault(part.code.artifact, part.partition.id)
        code = part.text if same == part.partition.id else f"# the code of {same}"
        yield f"# {'=' * 100}\n{table_text(kernels_table(part))}\n{source}\n\n{code}"
