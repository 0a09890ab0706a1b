"""Module selectors: pick ops by the paths of the modules around them, in the callers of shared bodies too."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

from regional_explorer.record.graph import Chain, Graph, GraphKind, ModuleCall, traced_from
from regional_explorer.regions.instances import Instance
from regional_explorer.regions.subgraphs import calls_of


def pick_modules(patterns: Sequence[str], graphs: Sequence[Graph]) -> dict[int, Instance]:
    """Return the origins of the ops in modules that a pattern matches, each with the module call that it belongs to.

    A pattern that is the path of a module means that module: names may have characters of globs, as in ``acts.a[0]``.
    """
    rules = [
        re.compile(re.escape(pattern)) if _is_path(pattern, graphs) else module_glob(pattern) for pattern in patterns
    ]
    shared = _shared_callers(graphs)
    instances: dict[int, Instance] = {}
    for graph in graphs:
        if graph.kind is GraphKind.DYNAMO:
            for node in graph.ops:
                above = max((len(traced_from(node.modules, callers)) for callers in shared[graph.id]), default=0)
                instance = _instance_of(node.modules, rules, above)
                if instance is not None and node.origin is not None:
                    instances[node.origin] = instance
    return instances


def _is_path(pattern: str, graphs: Sequence[Graph]) -> bool:
    """Return whether a pattern with characters of globs is the path of a module around an op."""
    if not re.search(r"[*?[]", pattern):
        return False
    chains = {node.modules for graph in graphs if graph.kind is GraphKind.DYNAMO for node in graph.ops}
    paths = (path for calls in chains for call in calls for path in (call.path, *call.aliases))
    return any(f"{path}.".startswith(f"{pattern}.") for path in paths)


def _shared_callers(graphs: Sequence[Graph]) -> dict[str, list[list[Chain]]]:
    """Return, for each graph, the modules around the calls of each body around it that several calls share.

    A mark on one of these modules holds for that call only, so it picks nothing inside: other calls run the same body.
    """
    shared: dict[str, list[list[Chain]]] = {}
    for graph in graphs:
        if graph.kind is GraphKind.DYNAMO:
            outer = shared[graph.parent[0]] if graph.parent is not None else []
            callers = [call.modules for call in calls_of(graph, graphs)]
            shared[graph.id] = [*outer, *([callers] if len(callers) > 1 else [])]
    return shared


def _instance_of(calls: Sequence[ModuleCall], rules: Sequence[re.Pattern[str]], skip: int) -> Instance:
    """Return the outermost module call around an op that a rule matches, else the outermost module that contains one.

    The root has no path, so no rule matches it. A module may contain what is called without being called itself, or
    without a record in the trace: a ModuleList, or a layer that runs in pieces because of a graph break. The first
    ``skip`` calls are left out.
    """
    for call in calls[skip:]:
        if any(path and rule.fullmatch(path) for rule in rules for path in (call.path, *call.aliases)):
            return call.path, call.call
    skipped_depth = _path_depth(calls[skip - 1].path) if skip else 0
    for call in calls[skip:]:
        for path in (call.path, *call.aliases):
            parts = path.split(".")
            first_depth = skipped_depth + len(parts) - _path_depth(call.path)  # an alias may be longer
            for holder in (".".join(parts[:depth]) for depth in range(first_depth + 1, len(parts))):
                if any(rule.fullmatch(holder) for rule in rules):
                    return holder, 0
    return None


def _path_depth(path: str) -> int:
    return len(path.split(".")) if path else 0


def module_glob(pattern: str) -> re.Pattern[str]:
    """Return a module glob as a regular expression: ``*`` stays within one level of the path, ``**`` does not.

    ``?`` and ``[0-3]`` or ``[!0-3]`` stand for one character of a level.
    """
    special = {"**": ".*", "*": "[^.]*", "?": "[^.]"}

    def expression(token: str) -> str:
        if token.startswith("["):
            return rf"(?!\.){fnmatch.translate(token)[:-2]}"  # without the anchor for the end of the text
        return special.get(token) or re.escape(token)

    return re.compile("".join(map(expression, re.split(r"(\*\*|\*|\?|\[!?[^]]+\])", pattern))))
