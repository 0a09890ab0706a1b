"""The variants ``upstream`` and ``lite``: what the marks alone give, and what is said of it."""

import pytest
import torch
from torch import nn

import regional_explorer as rx
from regional_explorer.compiler import upstream_marks
from tests.shared.checks import needs_region_ids

pytestmark = [pytest.mark.compiles, needs_region_ids]


def benchmark(ex, *variants):
    ex.benchmark(variants, budget_s=0.1, regions=False)
    return ex


def found(ex):
    return {item.code: item for item in ex.diagnostics if item.code.startswith("upstream-")}


def test_the_marks_of_a_plan_run_under_upstream(ex):
    """Marked by module here, not in the source: the marks are put on Dynamo's graph."""
    benchmark(ex.mark("up", modules="layers.*.up").configure("up", {"max_fusion_size": 8}), "upstream")
    assert set(ex.timings.variant) == {"eager", "upstream"}
    assert set(ex.numerics[ex.numerics.variant == "upstream"].verdict) == {"ok"}
    assert ex.compile_costs.what.tolist()[-1] == "upstream"
    assert set(found(ex)) <= {"upstream-merged"}, "views of weights lie side by side"


def test_upstream_compiles_what_is_marked_and_nothing_else(ex, monkeypatch):
    pieces = []
    note = upstream_marks.Marks._note_piece
    monkeypatch.setattr(
        upstream_marks.Marks, "_note_piece", lambda self, origins: (pieces.append(origins), note(self, origins))
    )
    benchmark(ex.mark("up", modules="layers.*.up"), "upstream")
    graph = ex.session.graph("0/dynamo")
    marked = {node.origin for node in graph.ops if any(call.path.endswith(".up") for call in node.modules)}
    assert set().union(*pieces) == marked
    count = len(pieces)
    benchmark(ex, "upstream")
    assert len(pieces) == count, "compiled once for one plan"
    benchmark(ex.disable("up").mark("down", modules="layers.*.down"), "upstream")
    assert not marked & set().union(*pieces[count:])


def test_what_torch_compiles_is_compiled_again_under_other_settings(ex):
    """Dynamo does not guard on Inductor's config: its code would be measured beside regions under another."""

    def costs():
        benchmark(ex, "full", "upstream")
        return [cost for cost in ex.session.variant_costs if cost.what in {"full", "upstream"}]

    ex.mark("up", modules="layers.*.up")
    first = costs()
    assert costs() == first
    with torch._inductor.config.patch(epilogue_fusion=False):
        other = costs()
        assert costs() == other
    assert not set(other) & set(first)


def test_neighbours_lend_their_config():
    def f(x):
        with rx.region("a", max_fusion_size=2):
            y = x.sin()
        with rx.region("b", max_fusion_size=8):
            z = y.cos()
        return z

    ex = benchmark(rx.explore(f, (torch.ones(4),)), "regional", "upstream")
    said = found(ex)["upstream-config"]
    assert said.region == "b"
    assert "max_fusion_size=2; requested was max_fusion_size=8" in said.message
    assert [dict(ex.session.artifact_of(part).config) for part in ex.session.partitions] == [
        {"max_fusion_size": 2},
        {"max_fusion_size": 8},
    ]


def test_layers_of_one_id_are_joined_and_those_of_ids_of_their_own_are_not():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            for index, layer in enumerate(self.layers):
                with torch.fx.traceback.annotate({"compile_with_inductor": {"inductor_region": ("layers", index)}}):
                    x = layer(x)
            return x

    x = torch.randn(2, 4)
    apart = benchmark(rx.explore(Net(), (x,)), "upstream")
    assert [part.region for part in apart.session.partitions if part.graph == "0/forward"] == ["layers"] * 3
    assert found(apart) == {}
    marked = benchmark(
        rx.explore(nn.Sequential(*(nn.Linear(4, 4) for _ in range(3))), (x,)).mark("l", modules="?"), "upstream"
    )
    assert found(marked)["upstream-merged"].message == "Upstream compiles 3 instances of region 'l' as one piece."


def test_what_crashes_is_told_and_the_others_are_measured():
    def f(x, y):
        with rx.region("a"):
            a1 = x.sin()
        with rx.region("b"):
            b1 = a1.cos()
            b2 = y.exp()
            b3 = b1 + b2
        with rx.region("a"):
            a2 = a1 * b2
        return a2, b3

    ex = benchmark(rx.explore(f, (torch.ones(4), torch.ones(4))), "upstream")
    assert "upstream-failed" in found(ex)
    assert set(ex.timings.variant) == {"eager"}


def test_lite_mode_says_what_it_leaves_to_eager():
    def f(x):
        with rx.region("r", max_fusion_size=8):
            y = x.sin() * 2
        return y + 1

    ex = benchmark(rx.explore(f, (torch.ones(4),)), "lite")
    assert set(ex.timings.variant) == {"eager", "lite"}
    assert set(ex.numerics[ex.numerics.variant == "lite"].verdict) == {"ok"}
    said = found(ex)
    assert "upstream-ignored" in said or "upstream-config" in said, "no config of a region reaches lite mode"


def test_neither_is_compared_unless_asked_for(ex):
    ex.mark("up", modules="layers.*.up").benchmark(budget_s=0.1, regions=False)
    assert set(ex.timings.variant) == {"eager", "aot_eager", "regional", "full"}
