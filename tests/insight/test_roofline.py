"""Full Inductor as the roofline: borders and their bytes, decompositions, and what makes it bitwise eager."""

import math
import tracemalloc

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace

import regional_explorer as rx
from regional_explorer.compiler.run import PLAIN_RUN, Run
from regional_explorer.errors import MeasureError
from regional_explorer.exploration import live
from regional_explorer.insight import roofline
from regional_explorer.insight.roofline import (
    TRIALS,
    bitwise_trials,
    full_graphs,
    op_differences,
    phase_reaches,
    region_reaches,
    share_of_gain,
)
from regional_explorer.record.artifact import ArtifactCode, Kernel, KernelKind
from regional_explorer.record.benchmark import Phase, Verdict
from regional_explorer.record.figure import Figure, exactly
from regional_explorer.record.graph import Graph, GraphKind, Node, Role, TensorSpec
from regional_explorer.record.roofline import (
    EAGER_OPS,
    BitwiseTrial,
    FullGraph,
    PhaseReach,
    RegionReach,
    Roundings,
    borders,
    eager_ops,
    roundings,
    size_of,
)
from regional_explorer.tables.roofline import ops_table, reach_table, region_reach_table
from tests.shared.checks import BEFORE_2_13
from tests.shared.locks import WAITING, held_by_another_thread
from tests.shared.sessions import op, session, timing, training_session

ROWS, COLUMNS = 16, 64
SIZE = 4 * ROWS * COLUMNS


def chain(x, w):
    y = x.sin()
    with rx.region("r"):
        y = y.cos()
    return (y * 2) @ w


def explore_chain():
    return rx.explore(chain, (torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS, COLUMNS)))


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (Verdict.SLOWER, "full is not faster"),
        (Verdict.BUSY, "full may not be faster"),
        (Verdict.INCONCLUSIVE, "full may not be faster"),
        (Verdict.UNKNOWN, "full may not be faster"),
    ],
)
def test_only_a_sure_verdict_says_that_full_is_no_faster(verdict, text):
    timings = tuple(
        timing(name, seconds, 1e-3 / seconds, phase=Phase.FORWARD, verdict=verdict)
        for name, seconds in (("eager", 1e-3), ("regional", 1e-3), ("full", 2e-3))
    )
    assert text in reach_table(phase_reaches(replace(session(), timings=timings)), None, ()).text()


def test_every_dtype_has_its_own_size():
    dtypes = {str(one).removeprefix("torch."): one for one in vars(torch).values() if isinstance(one, torch.dtype)}
    specs = {name: TensorSpec(name, (2, 5), (5, 1), "cpu") for name in dtypes}
    sizes = {name: size_of(Node(name, Role.OP, name, values=(spec,))) for name, spec in specs.items()}
    assert sizes == {name: 10 * dtype.itemsize for name, dtype in dtypes.items()}


HALF = Figure(0.5, 0.4, 0.6)


def reach(eager_s, regional_s, full_s, share, **more):
    times = (eager_s, regional_s, full_s, eager_s - full_s)
    return PhaseReach(Phase.FORWARD, *map(exactly, times), share, **more)


def test_shares_are_withheld_if_full_gains_nothing():
    assert reach(3.0, 2.0, 1.0, HALF).share == HALF
    assert reach(1.0, 2.0, 3.0, HALF).share is None
    assert reach(3.0, 2.0, 2.9, HALF, full_wins=False).share is None


def test_a_share_is_the_median_over_rounds_with_its_interval():
    even = np.ones(20)
    assert share_of_gain(3 * even, 2 * even, even) == HALF_EXACTLY
    drift = np.linspace(1.0, 3.0, 20)
    assert share_of_gain(3 * drift, 2 * drift, drift) == HALF_EXACTLY, "of one machine in each round"
    assert share_of_gain(3 * even[:5], 2 * even, even) == Figure(0.5, why="too few rounds (5)")
    assert share_of_gain(even, even, 2 * even).why == "full gained nothing in any round"
    once = np.where(np.arange(20) == 3, 4.0, 1.0)
    assert share_of_gain(3 * even, 2 * even, once) == HALF_EXACTLY, "one round in which full gained nothing"
    often = np.where(np.arange(20) % 2, 4.0, 1.0)
    assert share_of_gain(3 * even, 2 * even, often) == Figure(0.5, why="full gained nothing in too many rounds")


HALF_EXACTLY = Figure(0.5, 0.5, 0.5)


def test_share_intervals_have_nominal_coverage():
    chance, covered = np.random.default_rng(0), []
    for _ in range(500):
        drift = chance.uniform(1.0, 1.5, 20)
        eager, regional, full = drift * np.array([[3.0], [2.4], [2.0]]) * np.exp(chance.gamma(1.0, 0.05, (3, 20)))
        low, high = share_of_gain(eager, regional, full).bounds or (-np.inf, np.inf)
        covered.append(low <= 0.6 <= high)
    assert np.mean(covered) >= 0.98, "99 %, and twice the standard error of five hundred runs"


def test_roofline_reports_the_measured_times():
    eager, regional = timing("eager", 3.0, None, verdict=Verdict.BASELINE), timing("regional", 2.0, None)
    measured = replace(training_session(2), timings=(eager, regional, timing("full", 1.0, None)))
    (reach,) = phase_reaches(measured)
    assert (reach.share, reach.gain_s) == (HALF_EXACTLY, exactly(2.0))
    assert region_reaches(measured, reach) == ()
    with pytest.raises(MeasureError, match="full was not measured"):
        phase_reaches(replace(measured, timings=(eager, regional)))


@pytest.mark.compiles
def test_fusable_borders_are_shown_after_measuring():
    ex = explore_chain()
    with pytest.raises(MeasureError, match=r"not measured.*ex\.benchmark\(\)"):
        ex.roofline()
    ex.benchmark(budget_s=0.5)
    full = full_graphs(ex.live.program)
    (graph,) = full.values()
    assert [kernel.ops for kernel in graph.code.kernels] == [("sin", "cos", "mul"), ("mm",)]
    found = {(row.source, row.reader): row for row in borders(ex.session, full)}
    into, out, rest = found[EAGER_OPS, "r"], found["r", EAGER_OPS], found[EAGER_OPS, EAGER_OPS]
    assert (into.tensors, into.moved_bytes, into.fused, into.fused_bytes) == (1, 2 * SIZE, 1, 2 * SIZE)
    assert (out.tensors, out.moved_bytes, out.fused_bytes) == (1, 2 * SIZE, 2 * SIZE)
    assert (rest.moved_bytes, rest.fused_bytes) == (2 * SIZE, 0), "a matrix product reads what was written"
    assert eager_ops(ex.session, full) == 3
    assert roundings(ex.session, full).results == 0
    shown = ex.roofline(bitwise=False)
    text, html = str(shown), shown._repr_mimebundle_()["text/html"]
    for part in (
        "How much of torch.compile's gain the plan reaches",
        "3 eager ops and 1 kernel of regions; under full Inductor it launches 2 kernels",
        "≤",
        "cannot be measured",
    ):
        assert part in text
    assert "Tensors that cross borders" in html
    assert "<script" not in html
    assert list(shown.border_frame.columns[:3]) == ["source", "reader", "tensors"]
    assert shown.trials == ()
    with pytest.warns(UserWarning, match="traced again"):
        ex.compiled(torch.randn(ROWS // 2, COLUMNS), torch.randn(COLUMNS, COLUMNS))
    ex.benchmark(("regional", "full"), 0.1, regions=False)
    later = ex.roofline(bitwise=False)
    assert (later.launches, later.borders) == (shown.launches, shown.borders), "one call runs one of the traces"


@pytest.mark.compiles
def test_a_cond_counts_as_one_eager_op():
    ex = rx.explore(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), (torch.ones(3),))
    assert eager_ops(ex.session, full_graphs(ex.live.program)) == 3, "sum, gt and cond"


@pytest.mark.compiles
def test_decompositions_are_measured_and_casts_make_bf16_bitwise():
    def two_roundings(x):
        with rx.region("r"):
            y = x * x  # not a constant, which torch 2.15 rounds too: docs/upstream.md
        return F.gelu(y) + y

    ex = rx.explore(two_roundings, (torch.randn(64, 64, dtype=torch.bfloat16),))
    ex.compile()
    gelu = next(row for row in op_differences(ex.live.variants) if "gelu" in row.op)
    assert gelu.nodes == 1
    assert gelu.eager_error is not None
    found = roundings(ex.session, full_graphs(ex.live.program))
    assert (found.results, found.elided) == (3, 2), "mul and gelu stay in float32"
    configs = ({}, {"emulate_precision_casts": True})
    plain, emulated = bitwise_trials(ex.live.variants, configs, Run())
    assert not plain.equal
    assert emulated.equal is not BEFORE_2_13, "in torch 2.11 they are not emulated on the CPU"
    assert bitwise_trials(ex.live.variants, configs, Run(cancelled=lambda: True)) == ()


def test_a_nan_on_one_side_alone_is_an_infinite_difference(monkeypatch):
    inputs = torch.tensor([1.0, torch.nan, torch.inf])
    ex = rx.explore(lambda x: x.relu(), (inputs,))

    def difference(decomposed):
        monkeypatch.setattr(roofline, "decomposition_of", lambda _node: lambda *_args, **_kwargs: decomposed)
        return next(row for row in op_differences(ex.live.variants) if "relu" in row.op)

    eager = inputs.relu()
    assert eager.isnan().tolist() == [False, True, False]
    same = difference(eager)
    assert (same.bitwise, same.max_difference, same.decomposed_error) == (1, 0.0, same.eager_error)
    for position, value in enumerate((torch.nan, 0.0, -torch.inf)):
        other = eager.clone()
        other[position] = value
        found = difference(other)
        assert (found.bitwise, found.max_difference, found.decomposed_error) == (0, math.inf, math.inf)
    assert "inf" in ops_table([found], Roundings(0, 0)).text()


@pytest.mark.compiles
def test_a_cancelled_roofline_is_labelled_cancelled(monkeypatch):
    ex, tasks = explore_chain(), []
    ex.benchmark(("regional", "full"), 0.1, regions=False)
    for name in ("copy_bandwidth", "op_differences", "bitwise_trials"):
        monkeypatch.setattr(live, name, lambda *_: pytest.fail("nothing is run"))
    found = ex.roofline(run=rx.Run(cancelled=lambda: True))
    assert (found.bandwidth, found.launches, found.ops, found.trials) == (None, None, None, ())
    assert len(found.reach) == 1
    for shown in found._repr_mimebundle_().values():
        assert "Cancelled: the remaining steps are left out." in shown
        for left_out in ("launches", "crosses a border", "decomposes no op"):
            assert left_out not in shown
    assert found.border_frame.empty
    assert found.op_frame.empty
    asked = iter([True])
    with held_by_another_thread(ex.exclusive_use.turn(PLAIN_RUN)):
        # It is cancelled at one query only: a step that asks later must not begin either.
        ex.roofline(run=rx.Run(lambda: bool(tasks) and next(asked, False), lambda doing, _: tasks.append(doing)))
    assert tasks[0] == WAITING
    assert {artifact.code for artifact in ex.session.artifacts.values()} == {None}


@pytest.mark.compiles
def test_the_trial_of_eager_kernels_ignores_marks():
    """The last trial runs each op by its eager kernel, marked ops too; lite mode would compile those."""
    norm = torch.nn.LayerNorm(64)

    def marked(x, w):
        with rx.region("r"):
            y = F.gelu(norm(x @ w)).softmax(-1)
        return F.silu(y @ w + x).sum()

    ex = rx.explore(marked, (torch.randn(64, 64, requires_grad=True), torch.randn(64, 64)))
    plain, eager = bitwise_trials(ex.live.variants, (TRIALS[0], TRIALS[-1]), Run())
    assert not plain.problem
    assert not plain.equal
    assert eager.equal, eager


@pytest.mark.compiles
def test_users_own_compile_is_not_compared():
    x, dropped = torch.ones(64), rx.region("r")(lambda x: F.dropout(x, 0.5))
    torch.compile(dropped)(x)
    ex = rx.explore(dropped, (x,))
    ex.compile()
    (trial,) = bitwise_trials(ex.live.variants, ({},), Run())
    assert trial.config == {"fallback_random": True}
    assert trial.equal


@pytest.mark.compiles
def test_bitwise_trials_skip_results_that_cannot_be_compared():
    x = torch.ones(4)
    with_opaque = rx.explore(lambda x: (x + 1, iter([1])), (x,))
    (trial,) = bitwise_trials(with_opaque.live.variants, ({},), Run())
    assert (trial.tensors, trial.equal) == (1, True)
    assert not BitwiseTrial({}).equal, "nothing was compared"


def test_memory_grows_linearly_with_the_number_of_results():
    def peak(number):
        names = [f"sin_{position}" for position in range(number)]
        spec = TensorSpec("bfloat16", (8,), (1,), "cpu")
        nodes = tuple(
            replace(op(name, "aten.sin.default", *names[:position][-1:]), values=(spec,))
            for position, name in enumerate(names)
        )
        graph = Graph("0/forward", GraphKind.FORWARD, 0, nodes)
        code = ArtifactCode("", (Kernel("k", KernelKind.POINTWISE, nodes=tuple(range(number))),))
        full = {graph.id: FullGraph(graph.id, tuple(names), code)}
        record = session([graph])
        tracemalloc.start()
        try:
            assert roundings(record, full) == Roundings(number, number - 1)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(800) < 6 * peak(200)


def test_unwritten_memory_is_not_compared():
    ex = rx.explore(lambda x: torch.empty_like(x)[:0].sum() + x.sin().mean(), (torch.ones(64),))
    assert not [row.op for row in op_differences(ex.live.variants) if "empty" in row.op]


@pytest.mark.parametrize(
    ("share", "ending"),
    [
        (HALF, "50 % (40 % to 60 %)"),
        (Figure(0.9, 0.7, 1.3), "90 % (70 % to 100 %)"),
        (
            Figure(0.5, why="too few rounds (5)"),
            "50 %\n  Without interval: torch.compile's gain reached (too few rounds (5)).",
        ),
        (Figure(1.1, 1.05, 1.2), "all: it is faster than full"),
        (Figure(1.1, 0.9, 1.2), "all, as far as the rounds tell"),
        (Figure(-0.5, -0.6, -0.4), "none"),
    ],
)
def test_share_of_a_gain_is_at_most_one(share, ending):
    text = reach_table([reach(2.0, 1.5, 1.0, share)], None, ()).text()
    assert text.endswith(ending)
    of_region = region_reach_table([RegionReach("r", exactly(1.0), Figure(share.value, why="one round"))])
    assert ("%" in of_region.text()) is (0.0 <= share.value <= 1.0)
