"""A pytest plugin that runs upstream's own tests against our cut: ``pytest -p benchmarks.campaign.upstream_shim FILE``.

Upstream's pass scoops the marked ops of a graph into submodules and then compiles those. Only the scooping is replaced
here: our cut makes the submodules, upstream's compiler and serialization take them, and upstream's tests judge. Where a
test looks at the annotations of a graph and compiles nothing, the graph is cut by them and must still compute the same.

The last line that pytest prints counts the tests in which our cut ran; tests that never cut are counted apart.
"""

from __future__ import annotations

import copy
import itertools
import operator
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch._dynamo.backends import common
from torch.fx import traceback
from torch.fx.passes import regional_inductor

from regional_explorer.capture.convert import GraphRecorder
from regional_explorer.record.graph import Graph, GraphKind
from regional_explorer.record.plan import Plan
from regional_explorer.regions.cut import Piece, cut_graph, pieces_of, with_calls
from regional_explorer.regions.select import assign, source_regions
from regional_explorer.torch_api.graphs import ANNOTATION, ORIGIN, BoxedCall, bodies

PREFIX = "__marked_inductor_submod"
"""The prefix of the submodules that upstream compiles."""

cuts: Counter[str] = Counter()
"""How often each test used our cut."""

outcomes: dict[str, str] = {}
running = ""
dynamo: list[Graph] = []
"""Records of the Dynamo graphs of the running test."""

_origins = itertools.count()


@traceback.preserve_node_meta(enable=False)
def scooped(gm: fx.GraphModule) -> fx.GraphModule:
    """Return the graph with the marked ops in submodules, as upstream's scooper does, along our cut."""
    cuts[running] += 1
    cut = _cut(gm)
    for holder in _graph_modules(cut):
        _replace_by_submodules(holder)
    return cut


def _cut(gm: fx.GraphModule) -> fx.GraphModule:
    if not any(ORIGIN in (node.meta.get("custom") or {}) for inner in _graph_modules(gm) for node in inner.graph.nodes):
        give_origins(gm)  # a graph that did not come through Dynamo
    origins = {node.origin: node for graph in dynamo for node in graph.nodes if node.origin is not None}
    graphs = GraphRecorder(GraphKind.FORWARD, 0, origins=origins).record(gm, "cut")
    plan = Plan(tuple(source_regions(dynamo)))
    records = {graph.id: graph.by_name for graph in graphs}
    order = [region.name for region in plan.regions]
    cut = cut_graph(gm, "cut", records, assign([*dynamo, *graphs], plan), order)
    return with_calls(cut, {piece: _call_for(piece) for piece in pieces_of(cut)})


def give_origins(gm: fx.GraphModule) -> None:
    """Give the ops of a graph their origins, which the forward and the backward inherit, as a capture does."""
    _stamp(gm)
    dynamo.extend(GraphRecorder(GraphKind.DYNAMO, 0).record(gm, f"{len(dynamo)}"))


def aot_autograd(**options: Any) -> Callable[..., Any]:
    """Return upstream's backend, which takes the graphs of Dynamo once they have origins."""
    backend = _aot_autograd(**options)

    def compile_graph(gm: fx.GraphModule, inputs: Any, **more: Any) -> Any:
        give_origins(gm)
        return backend(gm, inputs, **more)

    return compile_graph


def _call_for(piece: Piece) -> BoxedCall:
    def call(args: list[Any]) -> Any:
        return piece.gm(*args)

    call.piece = piece  # type: ignore[attr-defined]  # how the call is recognised below
    return call


def _stamp(gm: fx.GraphModule) -> None:
    for node in gm.graph.nodes:
        if node.op not in ("placeholder", "output"):
            node.meta["custom"] = {**(node.meta.get("custom") or {}), ORIGIN: next(_origins)}
    for _, body in bodies(gm):
        _stamp(body)


def _graph_modules(gm: fx.GraphModule) -> list[fx.GraphModule]:
    return [gm, *(inner for _, body in bodies(gm) for inner in _graph_modules(body))]


def _replace_by_submodules(gm: fx.GraphModule) -> None:
    """Replace the calls of pieces by calls of submodules, and the readers of their results by ``getitem``."""
    for number, node in enumerate(list(gm.graph.nodes)):
        piece = getattr(node.target, "piece", None)
        if piece is None:
            continue
        name, fed = f"{PREFIX}_{number}", node.args[0]
        gm.add_submodule(name, piece.gm)
        with gm.graph.inserting_before(node):
            called = gm.graph.call_module(name, tuple(fed.args[0]))
        for taken in node.users:
            taken.target = operator.getitem
        node.replace_all_uses_with(called)
        gm.graph.erase_node(node)
        gm.graph.erase_node(fed)
    gm.recompile()


def check_cut_and_get_metadata(gm: fx.GraphModule) -> str:
    """Cut a copy of a graph by its annotations and compare it; return the metadata that the test asked for."""
    cuts[running] += 1
    marked = copy.deepcopy(gm)
    for inner in _graph_modules(marked):
        for node in inner.graph.nodes:
            if custom := node.meta.get("custom"):
                node.meta["custom"] = {ANNOTATION: {"inductor_region": repr(custom)}}
    inputs = [_random_like(node.meta["val"]) for node in marked.graph.find_nodes(op="placeholder")]
    expected = fx.Interpreter(marked).run(*inputs, enable_io_processing=False)
    found = fx.Interpreter(_cut(marked)).run(*inputs, enable_io_processing=False)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    return _asked(gm)


def _random_like(value: Any) -> Any:
    return torch.randn(value.shape).to(value.dtype) if isinstance(value, torch.Tensor) else value


_asked = traceback._get_custom_metadata
_aot_autograd = common.aot_autograd


def pytest_configure() -> None:
    """Put our cut in the place of upstream's, before any test is imported."""
    regional_inductor._RegionScooper = lambda: scooped  # type: ignore[assignment,misc,return-value]
    traceback._get_custom_metadata = check_cut_and_get_metadata
    common.aot_autograd = aot_autograd  # type: ignore[assignment]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember the running test."""
    global running  # noqa: PLW0603 - upstream's functions know nothing of tests
    running = item.nodeid
    dynamo.clear()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember the outcome of a test."""
    if report.when == "call" or report.outcome != "passed":
        outcomes[report.nodeid] = report.outcome


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many tests ran our cut, and how they ended."""
    ended = Counter(outcome for test, outcome in outcomes.items() if cuts[test])
    without = Counter(outcome for test, outcome in outcomes.items() if not cuts[test])
    terminalreporter.write_line(
        f"our cut: {ended['passed']} passed, {ended['failed']} failed, of {ended.total()}; "
        f"never cut: {without['passed']} passed, {without['failed']} failed, {without['skipped']} skipped"
    )
