"""Selectors: the rules that pick the nodes of a region."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from regional_explorer.errors import SelectorError, did_you_mean
from regional_explorer.errors.arguments import check_flag, shown_value

LONGEST_PATTERN = 1_000
"""Longer patterns are rejected: nobody writes them, and they would take minutes to match."""


class SelectorKind(StrEnum):
    """What a selector matches: modules, lines, ops, nodes, or marks in the source.

    ``ANNOTATION`` and ``SUBGRAPH`` are for marks in the source: blocks, and ``nested_compile_region`` with options.
    """

    ANNOTATION = "annotation"
    SUBGRAPH = "subgraph"
    MODULES = "modules"
    LINES = "lines"
    OPS = "ops"
    NODES = "nodes"
    SUBGRAPHS = "subgraphs"


@dataclass(frozen=True, slots=True)
class Selector:
    """A rule that picks nodes: ``Selector(SelectorKind.MODULES, ("layers.*.attn",))``.

    ``innermost`` narrows a line selector to ops of these lines themselves, leaving out those of functions called there.
    ``only`` narrows any selector to these nodes, as ``graph:name``, without changing the instances: the parts of a
    split region are selected so.
    """

    kind: SelectorKind
    patterns: tuple[str, ...]
    innermost: bool = False
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the fields: a selector without patterns picks nothing.

        Raises:
            SelectorError: the kind does not exist, or the patterns are not texts, or too long.
        """
        kinds = [str(kind) for kind in SelectorKind]
        if not isinstance(self.kind, str) or self.kind not in kinds:
            raise SelectorError(
                f"No selector is of the kind {shown_value(self.kind)}.{did_you_mean(self.kind, kinds)} "
                f"Kinds: {', '.join(kinds)}."
            )
        object.__setattr__(self, "kind", SelectorKind(self.kind))
        for name in ("patterns", "only"):
            object.__setattr__(self, name, _checked_texts(name, getattr(self, name)))
        check_flag("innermost", self.innermost)
        longest = max(self.patterns, key=len, default="")
        if len(longest) > LONGEST_PATTERN and self.kind is not SelectorKind.ANNOTATION:
            raise SelectorError(
                f"{self.kind}={longest[:40] + '…'!r} has {len(longest)} characters; at most {LONGEST_PATTERN} are "
                "allowed. Give a list of patterns instead of one long text."
            )
        if not self.patterns:
            raise SelectorError(f"A selector by {self.kind} needs at least one pattern.")

    def __str__(self) -> str:
        """Return for example ``modules:layers.*.attn``, or ``source`` and ``subgraph`` for marks made there."""
        in_source = {SelectorKind.ANNOTATION: "source", SelectorKind.SUBGRAPH: "subgraph"}
        text = in_source.get(self.kind) or f"{self.kind}:{','.join(self.patterns)}"
        return f"{text} (a part)" if self.only else text


def _checked_texts(name: str, texts: object) -> tuple[str, ...]:
    checked = tuple(texts) if isinstance(texts, Iterable) and not isinstance(texts, str) else None
    if checked is None or not all(isinstance(text, str) and text for text in checked):
        raise SelectorError(f"{name}={shown_value(texts)}: give a tuple of strings, such as ('layers.*.mlp',).")
    return checked
