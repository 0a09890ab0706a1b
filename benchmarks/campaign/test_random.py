"""Random programs with random regions: every marked op is cut, and cut graphs compute the same."""

import itertools
import operator
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta

import regional_explorer as rx
from regional_explorer.capture.convert import GraphRecorder
from regional_explorer.measure.reference import find_reference
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.plan import AS_UPSTREAM, PARTITIONERS, CutRule, Plan, Region, Selector, SelectorKind
from regional_explorer.regions.cut import cut_graph, pieces_of, with_calls
from regional_explorer.regions.edit import carved, merged, split, uncarved
from regional_explorer.regions.order import written_inputs
from regional_explorer.regions.select import assign, members
from regional_explorer.torch_api.graphs import ORIGIN
from tests.shared.checks import assert_compiled_is_right, assert_eager_pieces_are_bitwise

pytestmark = pytest.mark.slow

GRAPH = "0/inference"
SIZE = 4
INPUTS = 3
OUTPUTS = 3
REGIONS = ("a", "b", "c")


def set_row(x, y):
    x[2] = y[0] * 1
    return x


def write_through(x, y):
    x.t().mul_(y * 1)  # torch refuses memory that overlaps in part
    return x


def writable(x):
    return x * 1 if 0 in x.stride() else x


PURE = {
    "sin": lambda x, _: x.sin(),
    "relu": lambda x, _: x.relu(),
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y * 0.5,
    "mm": lambda x, y: (x @ y).tanh(),
    "softmax": lambda x, _: x.softmax(-1),
    "where": lambda x, y: torch.where(x > y, x, y),
    "detach": lambda x, y: x.detach() + y,
    "range": lambda x, _: x + torch.arange(SIZE),
    "table": lambda x, _: x * torch.tensor([1.0, 2.0, 3.0, 4.0]),
    # views
    "transpose": lambda x, _: x.t(),
    "reshape": lambda x, _: x.reshape(-1).view(SIZE, SIZE),
    "row": lambda x, _: x[1].expand(SIZE, SIZE),
    "same": lambda x, _: x,
    # several results
    "halves": lambda x, y: torch.cat([x.chunk(2)[1], y.chunk(2)[0]]),
    "rows": lambda x, _: torch.stack(x.unbind()[::-1]),
    "highest": lambda x, _: x.max(dim=0, keepdim=True)[0] - x,
    "sorted": lambda x, _: torch.sort(x, dim=-1)[0],
    "norm": lambda x, _: F.layer_norm(x, (SIZE,)),
    # random numbers
    # of an expanded input, Inductor has them in another order (torch 2.13)
    "dropout": lambda x, _: F.dropout(writable(x), 0.4),
    "noise": lambda x, _: x + torch.rand_like(writable(x)),
    "coins": lambda x, _: x * torch.bernoulli(torch.full((SIZE, SIZE), 0.5)),
    # writes in place
    "add_": lambda x, y: (x * 1).add_(y),
    "row_": lambda x, y: set_row(x + 0, y),
    "transposed_": lambda x, y: write_through(x * 1, y),
}
WRITES = {
    "shared_add_": lambda x, y: writable(x).add_(y * 1),  # torch refuses a transpose of itself
    "shared_row_": lambda x, y: set_row(writable(x), y),
    "shared_transposed_": lambda x, y: write_through(writable(x), y),
}
"""Writes to whatever came before, inputs included: autograd would refuse most of them."""

OPS = PURE | WRITES


def programs(*, writes, shortest=1, longest=14):
    """Return a strategy for programs: a step is an op over two earlier values, counted from the last, and a region."""
    step = st.tuples(
        st.sampled_from(list(OPS if writes else PURE)),
        st.integers(0, 6),
        st.integers(0, 6),
        st.sampled_from([None, *REGIONS]),
    )
    return st.lists(step, min_size=shortest, max_size=longest)


def function(steps):
    """Return the program as a function of ``INPUTS`` matrices."""
    plan = [(OPS[name], *rest) for name, *rest in steps]

    def run(*inputs):
        values = list(inputs)
        for op, x, y, region in plan:
            with nullcontext() if region is None else rx.region(region):
                values.append(op(values[-1 - x % len(values)], values[-1 - y % len(values)]))
        return tuple(values[INPUTS:][-OUTPUTS:])

    return run


def inputs(*, grad):
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(SIZE, SIZE, generator=generator).requires_grad_(grad) for _ in range(INPUTS))


def examples(count):
    """Return the settings of a test: the same examples on every machine, however slow it is."""
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


assignments = st.lists(st.sampled_from([None, *REGIONS]), min_size=1, max_size=24)
"""The regions of the first node, the second, …; the list repeats."""


def trace_steps(steps):
    """Return the program as a graph that writes in place anywhere; AOTAutograd's graphs do so only at their end."""
    with preserve_node_meta():
        gm = make_fx(function(steps), tracing_mode="fake")(*inputs(grad=False))
    for number, node in enumerate(gm.graph.nodes):
        node.meta["custom"] = {**(node.meta.get("custom") or {}), ORIGIN: number}
    return gm, GraphRecorder(GraphKind.INFERENCE, 0).record(gm, GRAPH)[0]


def plan_of(named):
    """Return a plan whose regions select nodes by name; ``named`` has pairs of a region and a node."""
    held = {region: [] for region in REGIONS}
    for region, name in named:
        if region is not None:
            held[region].append(name)
    return Plan(
        tuple(Region(region, (Selector(SelectorKind.NODES, tuple(names)),)) for region, names in held.items() if names)
    )


def plan_of_single_nodes(graph, pattern):
    """Return a plan that assigns single nodes to regions, connected or not."""
    return plan_of(zip(itertools.cycle(pattern), (node.name for node in graph.ops), strict=False))


def plan_of_own_marks(graph):
    """Return the plan of the program's own marks."""
    return plan_of((node.annotation["inductor_region"], node.name) for node in graph.ops if node.annotated)


def check_cut(gm, graph, plan):
    """Cut a graph; assert that each op is in the partition of its region, and that the results stay the same."""
    whole, assignment = run(gm), assign([graph], plan)
    cut = cut_graph(gm, GRAPH, {GRAPH: graph.by_name}, assignment, [region.name for region in plan.regions])
    pieces = pieces_of(cut)
    # A graph calls functions, no methods.
    made = with_calls(cut, {piece: lambda args, gm=piece.gm: gm(*args) for piece in pieces})
    home = {}
    for piece in pieces:
        for name in piece.nodes:
            assert name not in home, "a node is in two partitions"
            home[name] = piece.claim.region
    wanted = {}
    for node in gm.graph.nodes:
        producer = node.args[0] if node.target is operator.getitem else None
        claim = assignment.claim(GRAPH, node.name)
        if producer is not None:
            wanted[node.name] = wanted.get(producer.name)
        elif claim is not None and not written_inputs(node):
            wanted[node.name] = claim.region
    assert home == {name: region for name, region in wanted.items() if region is not None}
    torch.testing.assert_close(run(made), whole, rtol=0, atol=0, equal_nan=True)


def run(gm):
    torch.manual_seed(0)
    arguments = [value.clone() for value in inputs(grad=False)]
    results = gm(*arguments)
    return [*results, *arguments]


@examples(2000)
@given(programs(writes=True, longest=30), assignments)
def test_cut_graphs_match_the_uncut_graph(steps, pattern):
    gm, graph = trace_steps(steps)
    for plan in (plan_of_single_nodes(graph, pattern), plan_of_own_marks(graph)):
        check_cut(gm, graph, plan)


tracings = st.builds(rx.Tracing, st.sampled_from(PARTITIONERS), st.booleans(), st.booleans())
"""How a program is traced."""


def explore(steps, *, grad, tracing=AS_UPSTREAM):
    torch.manual_seed(0)
    try:
        return rx.explore(function(steps), inputs(grad=grad), **asdict(tracing))
    except rx.CaptureError as error:
        assert "runs no torch operation" in str(error)  # noqa: PT017 - any other is a failure
        reject()


def check_call(steps, pattern, *, grad):
    """Compare cut calls with the uncut one: under the program's own marks, then with single nodes marked."""
    ex = explore(steps, grad=grad)
    assert_eager_pieces_are_bitwise(ex)
    ops = [(graph, node) for graph in ex.session.graphs for node in graph.ops]
    named = zip(itertools.cycle(pattern), ops, strict=False)
    over_nodes = plan_of(
        (region, f"{graph.id}:{node.name}") for region, (graph, node) in named if node.origin is not None
    )
    for region in over_nodes.regions:
        ex.mark(region.name, nodes=list(region.selectors[0].patterns))
    assert_eager_pieces_are_bitwise(ex)
    taken = {}
    for cut in (CutRule.MARKED, CutRule.UPSTREAM):
        ex.plan = replace(ex.plan, cut=cut)
        taken[cut] = {(part.region, part.graph, name) for part in ex.session.partitions for name in part.nodes}
    assert taken[CutRule.UPSTREAM] == taken[CutRule.MARKED], "another cut of the same ops"
    ex.live.call.forward(ex.live.capture.run)


edits = st.lists(
    st.tuples(st.sampled_from(["merge", "split", "cut", "carve", "uncarve"]), st.integers(0, 40)), max_size=8
)


REFUSED = {
    "merge": "Name two regions or more to merge",
    "split": "is one connected piece: say at which node to split it",
    "cut": "none of its ops runs before",
    "carve": "That would carve out every op of region",
    "uncarve": "The plan carves nothing out of region",
}
"""The error of each edit that is refused."""


def edited(graph, plan, steps):
    """Return the plan after as many of the edits as it allows."""
    for edit, number in steps:
        names = [region.name for region in plan.regions]
        if not names:
            break
        name, other = names[number % len(names)], names[(number + 1) % len(names)]
        held = members([graph], assign([graph], plan)).get(name, {}).get(GRAPH, ("none",))
        node = f"{GRAPH}:{held[number % len(held)]}"
        chosen = (Selector(SelectorKind.NODES, (node,)),)
        try:
            match edit:
                case "merge":
                    plan = merged(plan, [graph], (name, other))
                case "split":
                    plan = split(plan, [graph], name)
                case "cut":
                    plan = split(plan, [graph], name, node)
                case "carve":
                    plan = carved(plan, [graph], name, chosen)
                case "uncarve":
                    plan = uncarved(plan, [graph], name)
        except rx.RegionalExplorerError as error:
            why = f"{GRAPH}:none" if node == f"{GRAPH}:none" and edit in ("cut", "carve") else REFUSED[edit]
            assert why in str(error)  # noqa: PT017 - any other is a failure
    return plan


@examples(1000)
@given(programs(writes=True, shortest=6, longest=30), assignments, edits)
def test_edited_regions_keep_their_ops(steps, pattern, changes):
    """No edit adds or removes an op; the results stay the same."""
    gm, graph = trace_steps(steps)
    graph = replace(graph, kind=GraphKind.DYNAMO)
    before = plan_of_single_nodes(graph, pattern)
    plan = edited(graph, before, changes)
    wanted, found = (assign([graph], each) for each in (before, plan))
    assert found.owners.keys() == wanted.owners.keys()
    check_cut(gm, graph, plan)


@examples(300)
@given(programs(writes=False, longest=30), assignments)
def test_cut_calls_with_gradients_match_the_uncut_call(steps, pattern):
    check_call(steps, pattern, grad=True)


@examples(100)
@given(programs(writes=True, longest=30), assignments)
def test_cut_calls_that_write_to_inputs_match_the_uncut_call(steps, pattern):
    check_call(steps, pattern, grad=False)


def check_compiled(steps, tracing, *, whole, grad):
    """Compile the program's own regions, or every op in one.

    A program is skipped if upstream's tracing has other results, which is reported: AOTAutograd removes a dropout that
    nothing reads, and the next one gets its random numbers.
    """
    upstreams = explore(steps, grad=grad)
    if find_reference(upstreams.live.call, upstreams.live.program).diagnostics:
        reject()
    ex = explore(steps, grad=grad, tracing=tracing)
    if whole:
        ex.mark("whole", ops="*")
    if ex.plan.regions:
        assert_compiled_is_right(ex)


@pytest.mark.compiles
@examples(10)
@given(programs(writes=True, longest=5), tracings, st.booleans())
def test_compiled_calls_that_write_to_their_inputs_are_right(steps, tracing, whole):
    check_compiled(steps, tracing, whole=whole, grad=False)


@pytest.mark.compiles
@examples(30)
@given(programs(writes=False), tracings, st.booleans())
def test_compiled_calls_are_right(steps, tracing, whole):
    check_compiled(steps, tracing, whole=whole, grad=True)
