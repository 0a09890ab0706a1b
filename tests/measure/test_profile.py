"""The profile: eager time op by op, its sums, its budget, and what an early end keeps."""

import json
import weakref

import pytest
import torch
from msgspec.structs import replace
from torch import fx

import regional_explorer as rx
from regional_explorer.measure.clock import CpuClock, overhead_s
from regional_explorer.measure.profile import OpTimer, bytes_moved, moved_bytes, spans_around_graphs
from regional_explorer.measure.rates import STEPS, Rates
from regional_explorer.page.report import session_html, session_text
from regional_explorer.record.profile import OUTSIDE, ProfileKind
from tests.shared import programs
from tests.shared.fakes import FakeClock, TickingClock, fake_op_times

ATEN = torch.ops.aten


@pytest.fixture(scope="module")
def stack():
    torch.manual_seed(0)
    ex = rx.explore(programs.Stack(), (torch.randn(64, 16),))
    ex.profile(budget_s=0.3)
    return ex


def test_op_times_are_summed_by_module_line_and_op(stack):
    found, frame = stack.session.profile, stack.op_times
    graphs = {graph.id: graph for graph in stack.session.graphs}
    timed = {(op.graph, op.node) for op in found.ops}
    expected = {(graph.id, op.name) for graph in graphs.values() if graph.kind != "dynamo" for op in graph.ops}
    assert timed >= expected
    for kind in ("line", "op"):
        rows = frame[frame.by == kind]
        assert rows.ops.sum() == len(found.ops), "each op is in one row"
        assert rows.eager_us.sum() == pytest.approx(found.seconds.value * 1e6)
    outside = frame[frame.by == "around"]
    assert len(outside) == 4, "before and after the graph of the forward, and that of the backward"
    assert (outside.eager_us > 0).all()
    backward = outside[outside.name.str.contains("backward graph")]
    assert len(backward) == 2
    assert (backward.backward_us > 0).all()
    assert not backward.forward_us.any()
    assert not outside.backward_us.drop(backward.index).any()
    assert rows.share.sum() + outside.share.sum() == pytest.approx(1.0)
    assert found.whole_s == pytest.approx((rows.eager_us.sum() + outside.eager_us.sum()) * 1e-6)
    modules = frame[frame.by == "module"].set_index("name")
    inner = modules.loc[["layers.0.norm", "layers.0.up", "layers.0.down"]]
    assert modules.ops["layers.0"] > inner.ops.sum()
    assert modules.eager_us["layers.0"] > inner.eager_us.max()
    assert (modules.forward_us.drop(OUTSIDE, errors="ignore") > 0).all()
    assert (modules.backward_us.drop(OUTSIDE, errors="ignore") > 0).all()
    layer = next(row for row in found.by(ProfileKind.MODULE) if row.name == "layers.0")
    assert layer.share == modules.share["layers.0"]
    bounded = frame.dropna(subset="low_us")  # a busy machine may have had time for too few rounds
    assert (bounded.low_us <= bounded.eager_us).all()
    assert (bounded.eager_us <= bounded.high_us).all()


def test_equal_layers_share_a_row_of_the_profile(monkeypatch):
    ex = rx.explore(programs.Stack(), (torch.randn(64, 16),))
    fake_op_times(monkeypatch, lambda _: 1e-4)
    frame = ex.profile(0.1)
    modules = frame[frame.by == "module"].set_index("name")
    shares = ex.session.time_shares.by(ProfileKind.MODULE)
    assert list(modules.index) == [share.row.name for share in shares]
    assert (modules.layers["layers.*.up"], modules.layers.get(OUTSIDE, 1)) == (3, 1)
    complete = ex.op_times[ex.op_times.by == "module"].set_index("name")
    paths = [f"layers.{number}.up" for number in range(3)]
    assert modules.eager_us["layers.*.up"] == pytest.approx(complete.eager_us[paths].sum())
    assert modules.ops["layers.*.up"] == complete.ops[paths].sum()
    for kind in ("line", "op", "around"):
        both = [table[table.by == kind].drop(columns="layers", errors="ignore") for table in (frame, ex.op_times)]
        assert both[0].reset_index(drop=True).equals(both[1].reset_index(drop=True)), kind
    for shown in (session_text(ex.session), session_html(ex.session)):
        assert "layers.*.up ×" in shown  # the number may stand in the next line of a text
        assert "layers.1.up" not in shown


def test_layers_of_different_classes_have_one_row_each(monkeypatch):
    ex = rx.explore(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()), (torch.randn(64, 16),))
    fake_op_times(monkeypatch, lambda _: 1e-4)
    frame = ex.profile(0.1)
    assert sorted(frame[frame.by == "module"].name) == ["0", "1"]
    assert set(frame.layers) == {1}
    assert rx.explore(torch.sin, (torch.ones(3),)).op_times.empty


def test_short_ops_are_summed(monkeypatch):
    ex = rx.explore(programs.Stack(), (torch.randn(64, 16),))
    fake_op_times(monkeypatch, lambda name: 5e-6 if name.startswith("t_") else 1e-4)
    ex.profile(0.1)
    found = ex.session.profile
    assert {op.node.rstrip("0123456789") for op in found.short_ops} == {"t_"}, "less than ten times the cost of a stamp"
    (short,) = [row for row in found.by(ProfileKind.OP) if row.name.startswith("ops shorter than")]
    assert short.name == "ops shorter than 10.0 µs each"
    assert short.ops == len(found.short_ops)
    assert "too short to be measured individually are combined" in " ".join(session_text(ex.session).split())


def test_the_profile_is_shown_saved_and_read_again(stack, tmp_path):
    assert "Where the time goes: modules" in session_text(stack.session)
    assert "Where the time goes: source lines" in session_html(stack.session)
    path = stack.save(tmp_path / "x.json")
    again = rx.load(path)
    assert again.session.profile == stack.session.profile
    assert again.op_times.equals(stack.op_times)
    without = json.loads(path.read_text())
    del without["profile"]
    path.write_text(json.dumps(without))
    assert rx.load(path).op_times.empty


def test_profiling_ignores_the_plan_and_compiles_nothing(stack):
    before = stack.session.profile
    stack.mark("layers", modules="layers.*")
    assert (stack.session.profile, set(stack.partitions.state)) == (before, {"stale"})
    stack.unmark("layers")


def test_cancelled_profile_keeps_its_rounds():
    ex = rx.explore(programs.textbook, programs.pair())
    for at in ("warming up", "profiling: round"):

        def progress(doing, _fraction):
            if at in doing:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            ex.profile(60.0, run=rx.Run(progress=progress))
        assert (ex.session.profile is None) is (at == "warming up")
    assert ex.session.profile.stopped == "interrupted"
    assert ex.session.profile.rounds > 0
    seen = []
    ex.profile(60.0, run=rx.Run(cancelled=lambda: len(seen) > 6, progress=lambda doing, _fraction: seen.append(doing)))
    assert ex.session.profile.stopped == "cancelled"
    assert ex.session.profile.rounds > 0
    ex.profile(1e-6)
    assert ex.session.profile.rounds == 1
    with pytest.raises(rx.MeasureError, match="budget_s"):
        ex.profile(0.0)
    assert ex.compiled(*programs.pair()) is not None


def test_progress_prints_while_the_call_is_muted(capsys):
    def call(x):
        torch._dynamo.graph_break()
        print("of the call")
        return x.sin()

    ex = rx.explore(call, (torch.randn(4),))
    capsys.readouterr()
    shown = []

    def show(doing, _fraction):
        print(doing)
        shown.append(doing)

    ex.profile(60.0, run=rx.Run(progress=show, cancelled=lambda: any("round" in doing for doing in shown)))
    printed = capsys.readouterr().out
    assert "profiling: warming up" in printed
    assert "profiling: round" in printed
    assert "of the call" not in printed


def graph_of(*ops):
    """Return a graph whose ops read the values numbered in their arguments, the input first; it returns the last."""
    graph = fx.Graph()
    values = [graph.placeholder("x")]
    for target, arguments in ops:
        values.append(graph.call_function(target, tuple(values[number] for number in arguments)))
    graph.output((values[-1],))
    return fx.GraphModule({}, graph)


def test_timer_computes_the_graph_and_frees_values():
    alive, first = [], []

    def note(x):
        first.append(weakref.ref(x))
        return x + 1

    def look(x):
        alive.append(first[0]() is not None)
        return x * 2

    gm = graph_of((ATEN.sin.default, (0,)), (note, (1,)), (look, (2,)))
    timer, x = OpTimer(gm, CpuClock()), torch.randn(8)
    timer.calls.append([])
    args = [x]
    (result,) = timer.run(args)
    assert torch.equal(result, (x.sin() + 1) * 2)
    assert args == []
    assert alive == [False]
    timer.run([x])
    (runs,) = timer.calls
    assert len(runs) == 2, "a graph may run more than once in a call"
    for stamps in runs:
        assert [name for name, _ in timer.spans(stamps)] == ["sin_default", "note", "look"]
    assert overhead_s(CpuClock()) > 0


def test_op_times_add_up_to_the_graph():
    clock = TickingClock(tick_s=1.0)

    def slow(x):
        clock.spend(10.0)
        return x + 1

    timer = OpTimer(graph_of((ATEN.sin.default, (0,)), (slow, (1,)), (ATEN.cos.default, (2,))), clock)
    timer.calls.append([])
    timer.run([torch.randn(2)])
    clock.synchronize()
    assert dict(timer.spans(*timer.calls[0])) == {"sin_default": 1.0, "slow": 11.0, "cos_default": 1.0}
    assert overhead_s(clock) == 1.0


def test_times_around_graphs_have_names_and_add_up():
    runs = [(8.0, 9.0), (1.0, 3.0), (3.5, 4.0), (6.0, 7.5)]  # in the order of the graphs, not of the runs
    found = list(spans_around_graphs(FakeClock(), (0.0, 5.0, 10.0), runs))
    assert [name.partition(":")[0] for name, _ in found] == [
        "before the first graph",
        "between graphs",
        "after the last forward graph",
        "before the first backward graph",
        "between backward graphs",
        "after the last backward graph",
    ]
    assert [seconds for _, seconds in found] == [1.0, 0.5, 1.0, 1.0, 0.5, 1.0]
    assert sum(seconds for _, seconds in found) + sum(end - begin for begin, end in runs) == 10.0
    assert [seconds for _, seconds in spans_around_graphs(FakeClock(), (0.0, 5.0), runs[1:2])] == [1.0, 2.0]


def test_moved_bytes_follow_the_traced_sizes(monkeypatch):
    monkeypatch.setattr("regional_explorer.measure.profile.LEAST_OVERHEADS", 0)  # no op is too short for a row

    def sizes(x, table):
        return (x.sin().t() * 2)[:, : x.shape[0]] + table[0].expand(4, 16)

    for shapes in (False, True):
        ex = rx.explore(sizes, (torch.randn(16, 4), torch.randn(3, 1)), dynamic=shapes)
        ex.profile(0.05)
        (live,) = ex.live.program.capture.live
        moved = bytes_moved(live.gm)
        assert (moved["sin"], moved["t"], moved["mul"]) == (2 * 256, 0, 2 * 256)
        assert moved["add"] == 2 * 256 + 4, "what is repeated counts once"
        assert ex.op_times.set_index("name").moved_bytes["aten.add.Tensor"] == moved["add"]


def test_a_call_of_views_alone_has_a_profile(monkeypatch):
    monkeypatch.setattr("regional_explorer.measure.profile.rates_of", Rates)
    ex = rx.explore(lambda x: x.t(), (torch.randn(3, 4),))
    assert not ex.profile(0.05).empty
    assert ex.session.profile.bandwidth.bytes_per_s.value > 0


def test_an_op_of_unknown_size_moves_unknown_bytes():
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        ex = rx.explore(lambda x: x[x > 0] * 2, (torch.randn(16),))
    assert all("mul" not in bytes_moved(live.gm) for live in ex.live.program.capture.live)


def test_bytes_moved_by_an_op():
    x, out = torch.randn(16, 4), torch.randn(16, 4)
    assert moved_bytes(ATEN.add.Tensor, ((x, x), {}), x + x) == 3 * 256
    assert moved_bytes(ATEN.view.default, ((x,), {}), x.view(64)) == 0
    assert moved_bytes(ATEN.sin.default, ((x[:1].expand(16, 4),), {}), out) == 16 + 256, "what is repeated counts once"
    assert moved_bytes(ATEN.copy_.default, ((x, out), {}), x) == 3 * 256
    assert moved_bytes(ATEN.cat.default, (([x, x],), {}), torch.cat([x, x])) == 4 * 256


def test_copy_time_does_not_exceed_the_op(monkeypatch):
    """The rate of large copies to new memory gave a copy of 113.5 µs for an op of 51.9 µs."""

    class SlowRates(Rates):
        def measure(self, works, limit_s):
            self.fastest = dict.fromkeys((("copy", step) for step in STEPS), 1.0)

    monkeypatch.setattr("regional_explorer.measure.profile.rates_of", SlowRates)
    ex = rx.explore(torch.nn.GELU(), (torch.randn(256, 256),))
    found = ex.profile(0.1)
    ops = found[found["by"] == "op"]
    assert ops.moved_bytes.tolist() == [2 * 256 * 256 * 4]
    assert ops.copy_us.isna().all()
    rows = tuple(replace(row, copy_s=row.seconds.value / 2) for row in ex.session.profile.rows)
    ex.live.profile = replace(ex.session.profile, rows=rows)
    ops = ex.op_times[ex.op_times["by"] == "op"]
    assert (ops.copy_us < ops.eager_us).all()
