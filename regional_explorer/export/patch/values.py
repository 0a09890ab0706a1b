"""Builds the argument of ``annotate``: the region, its config, and the number that distinguishes instances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from regional_explorer.errors.texts import fresh_names
from regional_explorer.export.patch.new_marks import NewMark
from regional_explorer.export.patch.source_file import REGION_KEY, Mark, Statement, dotted_name
from regional_explorer.record.region import Direction, Region, config_of
from regional_explorer.record.selector import SelectorKind

FALLBACK_KEY = "fallback_to_eager"
"""The key of the annotation that makes ops of a region run eagerly."""

TRACEBACK = "torch.fx.traceback"


@dataclass
class LoopIndices:
    """The index variables of loops; ``added`` are those that the patch introduces, by the id of the loop's node."""

    added: dict[int, str] = field(default_factory=dict)

    def name(self, loop: Statement) -> str:
        """Return the index variable of ``loop``, a new one if it has none."""
        node = loop.node
        if (counted := _loop_counter(node)) is not None:
            return counted
        if id(node) not in self.added:
            used = {name.value for name in names_in(loop.suite.function.node)} | set(self.added.values())
            self.added[id(node)] = next(fresh_names("index", used))
        return self.added[id(node)]


def _loop_counter(loop: cst.For) -> str | None:
    """Return the index variable that a loop already has: that of ``range``, or the first of ``enumerate``."""
    kind = dotted_name(loop.iter.func) if isinstance(loop.iter, cst.Call) else ""
    target: cst.BaseExpression = loop.target
    if kind == "enumerate" and isinstance(target, cst.Tuple):
        target = target.elements[0].value
    elif kind != "range":
        return None
    if not isinstance(target, cst.Name):
        return None
    reassigned = (
        node.target.value for nodes in _assignments(loop.body) for node in nodes if isinstance(node.target, cst.Name)
    )
    return target.value if target.value not in set(reassigned) else None


def _assignments(node: cst.CSTNode) -> Iterator[Sequence[Any]]:
    if isinstance(node, cst.Assign):
        yield node.targets
    elif isinstance(node, (cst.AugAssign, cst.AnnAssign)):
        yield [node]
    for child in node.children:
        yield from _assignments(child)


def names_in(node: cst.CSTNode) -> Iterator[cst.Name]:
    """Yield all names below a node."""
    if isinstance(node, cst.Name):
        yield node
    for child in node.children:
        yield from names_in(child)


def value_text(new_mark: NewMark, indices: LoopIndices) -> str:
    """Return the dict of an annotation as Python."""
    if new_mark.carve:
        return f'{{"{FALLBACK_KEY}": True}}'
    entries = []
    if (name := _region_id(new_mark, indices)) is not None:
        entries.append(f'"inductor_region": {name}')
    if config := config_of(new_mark.region, Direction.FORWARD):
        entries.append(f'"inductor_configs": {text_of(config)}')
    return f'{{"{REGION_KEY}": {{{", ".join(entries)}}}}}'


def _region_id(new_mark: NewMark, indices: LoopIndices) -> str | None:
    region = new_mark.region
    if not new_mark.instance:
        return None if is_default(region) else text_of(region.name)
    parts = (str(part) if isinstance(part, int) else indices.name(part) for part in new_mark.instance)
    return f"({text_of(region.name)}, {', '.join(parts)})"


def is_default(region: Region) -> bool:
    """Return whether a region stands for marks without an id, which have no name."""
    return region.name == "default" and all(
        selector.kind is SelectorKind.ANNOTATION and pattern.startswith("default:")
        for selector in region.selectors
        for pattern in selector.patterns
    )


def text_of(value: Any) -> str:
    """Return a plain value as Python source: strings in double quotes, ASCII only."""
    if isinstance(value, str):
        quoted = ascii(value)
        return f'"{quoted[1:-1]}"' if quoted.startswith("'") and '"' not in quoted else quoted
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{text_of(key)}: {text_of(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(text_of, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(text_of, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


def changed_call(mark: Mark, new_mark: NewMark, value: str) -> cst.Call:
    """Return the call of an existing mark with a new value; the form of the call is kept."""
    if not mark.by_region:
        first, *other_args = mark.call.args
        return mark.call.with_changes(args=[first.with_changes(value=cst.parse_expression(value)), *other_args])
    if new_mark.instance:  # a name alone cannot distinguish instances
        annotate_call = cst.parse_expression(f"{TRACEBACK}.annotate({value})")
        assert isinstance(annotate_call, cst.Call)  # noqa: S101 - that is how it is written
        return annotate_call
    config = config_of(new_mark.region, Direction.FORWARD)
    plain = [f"{key}={text_of(item)}" for key, item in config.items() if key.isidentifier()]
    dotted = {key: item for key, item in config.items() if not key.isidentifier()}
    arguments = [text_of(new_mark.region.name), *plain, *([f"**{text_of(dotted)}"] if dotted else [])]
    call = cst.parse_expression(f"f({', '.join(arguments)})")
    assert isinstance(call, cst.Call)  # noqa: S101 - that is how it is written
    return mark.call.with_changes(args=call.args)
