"""Describes how a stage changed the ops of the stage before: decomposed, fused, replaced, removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regional_explorer.errors.texts import count, listing
from regional_explorer.record.graph import Node

NONCOMPUTING_OPS = frozenset(
    {"_unsafe_view", "alias", "as_strided", "chunk", "detach", "expand", "flatten", "getitem", "permute", "reshape"}
    | {"select", "slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unflatten", "unsqueeze"}
    | {"view", "view_as", "T", "mT", "empty_strided", "empty"}
)
"""Ops that compute nothing: they view data, or allocate memory for it."""

MOST_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Change:
    """How many ops and views there were before and are after, and what became of the ops.

    ``decomposed`` ops became several; ``fused`` ops were combined into ``into`` others. ``replaced`` ops became another
    one, ``removed`` none; ``inserted`` ops come from none. ``elided`` views are gone. If ops became ``kernels``,
    ``decomposed`` are those that several kernels compute. ``examples`` describe ``decomposed``, ``fused`` and
    ``replaced`` ops in words.
    """

    ops_before: int
    ops: int
    views_before: int
    views: int
    decomposed: int = 0
    fused: int = 0
    into: int = 0
    replaced: int = 0
    removed: int = 0
    inserted: int = 0
    elided: int = 0
    kernels: bool = False
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return for example ``7 ops → 3: 6 fused into 2 (mul, erf, add → cpp_fused_gelu_0); 4 of 5 views elided``."""
        effects = [
            f"{self.decomposed} {'computed in several' if self.kernels else 'decomposed'}" if self.decomposed else "",
            f"{self.fused} fused into {self.into}" if self.fused else "",
            f"{self.replaced} replaced by another" if self.replaced and not self.kernels else "",
            f"{self.removed} removed" if self.removed else "",
            f"{self.inserted} inserted" if self.inserted else "",
        ]
        summary = ", ".join(filter(None, effects)) or ("one for each" if self.kernels else "none changed")
        examples = f" ({'; '.join(self.examples)})" if self.examples else ""
        views = f"; {self.elided} of {self.views_before} views elided" if self.elided else ""
        after = count(self.ops, "kernel") if self.kernels else f"{self.ops}"
        return f"{count(self.ops_before, 'op')} → {after}: {summary}{examples}{views}."


def computes(node: Node) -> bool:
    """Return whether a node of a stage does more than view data or allocate memory."""
    return node.op not in NONCOMPUTING_OPS


def change(
    before: Sequence[Node], after: Sequence[Node], sources: Mapping[str, tuple[str, ...]], *, kernels: bool = False
) -> Change:
    """Return how a stage changed the ops ``before``; ``sources`` says what each node of ``after`` comes from."""
    by_name = {node.name: node for node in before}
    parents = {node.name: [by_name[name] for name in sources.get(node.name, ()) if name in by_name] for node in after}
    became: dict[str, list[Node]] = {node.name: [] for node in before}
    for node in after:
        for source in parents[node.name]:
            became[source.name].append(node)
    ops = [node for node in before if computes(node)]
    new_ops = {name: [new for new in nodes if computes(new)] for name, nodes in became.items()}
    joint = {node.name for node in after if computes(node) and len([s for s in parents[node.name] if computes(s)]) > 1}
    decomposed = [node for node in ops if len(new_ops[node.name]) > 1]
    fused = [node for node in ops if any(new.name in joint for new in new_ops[node.name])]
    single = [node for node in ops if len(new_ops[node.name]) == 1 and new_ops[node.name][0].name not in joint]
    replaced = [node for node in single if new_ops[node.name][0].op != node.op]
    return Change(
        ops_before=len(ops),
        ops=sum(computes(node) for node in after),
        views_before=len(before) - len(ops),
        views=sum(not computes(node) for node in after),
        decomposed=len(decomposed),
        fused=len(fused),
        into=len(joint),
        replaced=len(replaced),
        removed=sum(not new_ops[node.name] for node in ops),
        inserted=sum(computes(node) and not parents[node.name] for node in after),
        elided=sum(not computes(node) and not became[node.name] for node in before),
        kernels=kernels,
        examples=tuple(
            dict.fromkeys(
                [
                    *(f"{node.op} → {_counted_ops(new_ops[node.name])}" for node in decomposed[:MOST_EXAMPLES]),
                    *(
                        f"{_counted_ops([s for s in parents[node.name] if computes(s)])} → {node.op}"
                        for node in [new for new in after if new.name in joint][:MOST_EXAMPLES]
                    ),
                    *(f"{node.op} → {new_ops[node.name][0].op}" for node in replaced[:MOST_EXAMPLES] if not kernels),
                ]
            )
        ),
    )


def _counted_ops(nodes: Sequence[Node]) -> str:
    """Return the ops of nodes, each once: ``mul ×3, erf, add``."""
    counts = Counter(node.op for node in nodes)
    return listing((f"{op} ×{number}" if number > 1 else op for op, number in counts.items()), 6)
