"""Random damage to JSON: values lost, exchanged, doubled, or made what no file should hold."""

from __future__ import annotations

import copy
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regional_explorer.record.plan import CutRule, Plan, Region, Selector, SelectorKind

Path = tuple[str | int, ...]

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 10**400, 2**63, 1e308, -1.5, "", " ", "aten", "\ud800", "\x1b[31m", [], {}, [[]], [None],
    {"float": "nan"}, {"float": "inf"}, {"float": "x"}, {"": ""}, "regional", "mlp", "0/forward",
)  # fmt: skip
"""Replacements of values; others come from the document itself."""


def paths(value: Any, here: Path = ()) -> Iterator[Path]:
    """Yield the path to every value inside ``value``."""
    yield here
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths(item, (*here, key))


def value_at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def typical_paths(document: dict[str, Any]) -> list[Path]:
    """Return the path to one value of each kind: the first and the last item of a list stand for all."""
    found = {}
    for path in paths(document):
        found[tuple("…" if isinstance(key, int) and key > 0 else key for key in path)] = path
    return [path for path in found.values() if path]


@st.composite
def mutations(draw: st.DrawFn, document: dict[str, Any]) -> str:
    """Return the text of ``document`` after one or two random changes, sometimes cut short."""
    changed = copy.deepcopy(document)
    for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
        known = typical_paths(changed)
        if not known:
            break
        *above, key = draw(st.sampled_from(known))
        holder: Any = value_at(changed, tuple(above))
        kin = [value_at(changed, path) for path in known if type(value_at(changed, path)) is type(holder[key])]
        match draw(st.sampled_from(["kin", "odd", "other", "drop", "double", "rename"])):
            case "kin":
                holder[key] = copy.deepcopy(draw(st.sampled_from([*kin, *(v for v in ODD if type(v) is type(kin[0]))])))
            case "odd":
                holder[key] = copy.deepcopy(draw(st.sampled_from(ODD)))
            case "other":
                holder[key] = copy.deepcopy(value_at(changed, draw(st.sampled_from(known))))
            case "drop":
                del holder[key]
            case "double" if isinstance(holder, list):
                holder.insert(int(key), copy.deepcopy(holder[int(key)]))
            case _ if isinstance(holder, dict):
                holder[draw(st.sampled_from(["x", "", "name", "nodes", "float"]))] = holder.pop(str(key))
    text = json.dumps(changed)
    return text[: draw(st.integers(0, len(text)))] if draw(st.integers(0, 49)) == 49 else text


def run_mutations(
    document: dict[str, Any], check: Callable[[pathlib.Path], None], path: pathlib.Path, count: int
) -> None:
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(mutations(document))
    def each(text: str) -> None:
        path.write_text(text, encoding="utf-8")
        check(path)

    each()


PLAN = Plan(
    (
        Region(
            "a",
            (Selector(SelectorKind.MODULES, ("layers.*.mlp",)),),
            {"max_fusion_size": 8, "cpp.simdlen": None},
            backward_config={"max_fusion_size": 4},
        ),
        Region(
            "b",
            (
                Selector(SelectorKind.LINES, ("f:3-4",), innermost=True),
                Selector(SelectorKind.NODES, ("mul",), only=("0/dynamo:mul",)),
            ),
            joined=True,
            enabled=False,
            carved=(Selector(SelectorKind.OPS, ("aten.gelu*",)),),
        ),
    ),
    CutRule.UPSTREAM,
)  # fmt: skip
