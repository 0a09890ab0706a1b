"""Proposes a name for a region from what is marked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from regional_explorer.errors.texts import fresh_names
from regional_explorer.record.session import Session

COMMON_SHARE = 0.5
"""The share of the selected nodes that must be in one module for its name to be proposed."""


def proposed_name(selector: Mapping[str, Any], session: Session) -> str:
    """Return an unused name for a region marked by ``selector``, the keyword arguments of ``mark``; "" if it is empty.

    ``blocks.*.mlp`` gives ``mlp``, ``aten.gelu*`` gives ``gelu``, ``step:3-7`` gives ``step``; selected nodes give the
    name of the module, the op or the function they have in common.
    """
    if not selector:
        return ""
    (kind, argument), *_ = selector.items()
    word = _word_of_nodes(set(argument), session) if kind == "nodes" else _word_of_pattern(kind, str(argument))
    return next(fresh_names(word or "region", {region.name for region in session.plan.regions}))


def _word_of_pattern(kind: str, pattern: str) -> str:
    plain = pattern.partition(":")[0].removesuffix(".py") if kind == "lines" else pattern
    words = [word for word in re.findall(r"\w+", plain) if not word.isdigit()]
    if kind == "ops":  # namespace.op.overload
        words = words[1:2] or words
    return words[-1] if words else ""


def _word_of_nodes(node_names: set[str], session: Session) -> str:
    nodes = [node for graph in session.graphs for node in graph.ops if f"{graph.id}:{node.name}" in node_names]
    ops = {node.op for node in nodes}
    if len(ops) == 1:
        return ops.pop()
    nodes_per_module = Counter(call.path for node in nodes for call in node.modules if _last_word(call.path))
    # Of the modules that hold most of the nodes, the innermost.
    common_modules = [path for path, contained in nodes_per_module.items() if contained > COMMON_SHARE * len(nodes)]
    if common_modules:
        return _last_word(max(common_modules, key=len))
    functions = {node.source.function for node in nodes if node.source is not None}
    return functions.pop().rpartition(".")[2] if len(functions) == 1 else ""


def _last_word(path: str) -> str:
    return next((word for word in reversed(path.split(".")) if word and not word.isdigit()), "")
