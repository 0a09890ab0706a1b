"""Against upstream: under ``cut="upstream"`` our partitions are node for node those of torch's regional_inductor."""

import copy

from torch import fx
from torch.fx.passes import regional_inductor


def upstreams(ex):
    """Return, per graph, the partitions that upstream's own scooper cuts out of the same graphs, as sets of ops."""
    found = {}
    for live in ex._capture.live:
        collect(regional_inductor._RegionScooper()(copy.deepcopy(live.gm)), live.id, found)
    return found


def collect(gm, graph_id, found):
    for node in gm.graph.nodes:
        inner = getattr(gm, str(node.target), None)
        if not isinstance(inner, fx.GraphModule):
            continue
        if node.op == "call_module":
            ops = frozenset(op.name for op in inner.graph.nodes if op.op == "call_function")
            found.setdefault(graph_id, set()).add(ops)
        elif node.op == "get_attr":
            collect(inner, f"{graph_id}/{node.target}", found)


def ours(ex):
    found = {}
    for part in ex.session.partitions:
        found.setdefault(part.graph, set()).add(frozenset(part.nodes))
    return found
