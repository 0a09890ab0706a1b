"""The generated code of a region, with its kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from regional_explorer.record.graph import Node, SourceLine

KERNEL = re.compile(r"\b((?:cpp|triton)_(?:fused|red|per|poi|tem)\w*)\s*=")


@dataclass(frozen=True, slots=True)
class PartitionCode:
    """The generated code of one partition, the names of its kernels, and the source lines it comes from."""

    partition: str
    text: str
    kernels: tuple[str, ...]
    source: tuple[SourceLine, ...]


@dataclass(frozen=True)
class RegionCode:
    """The generated code of a region, one entry per partition that has been compiled."""

    region: str
    partitions: tuple[PartitionCode, ...]

    def __iter__(self) -> Iterator[PartitionCode]:
        """Iterate over the partitions."""
        return iter(self.partitions)

    def __str__(self) -> str:
        """Return the code of all partitions as text, each under a heading."""
        if not self.partitions:
            return f"No code yet for region {self.region!r}: it has not been compiled. Call ex.compile()."
        return "\n\n".join(
            f"# {'=' * 100}\n# {code.partition}: {len(code.kernels)} kernel{'s' * (len(code.kernels) != 1)}"
            f"{''.join(f'{chr(10)}#   {name}' for name in code.kernels)}"
            f"{''.join(f'{chr(10)}# from {line}: {line.text}' for line in code.source)}\n\n{code.text}"
            for code in self.partitions
        )

    __repr__ = __str__


def partition_code(partition: str, text: str, nodes: Sequence[str], graph: Mapping[str, Node]) -> PartitionCode:
    """Return the code of one partition with its kernels and the distinct lines of its nodes."""
    lines = dict.fromkeys(line for name in nodes if (line := graph[name].source) is not None)
    return PartitionCode(partition, text, tuple(dict.fromkeys(KERNEL.findall(text))), tuple(lines))
