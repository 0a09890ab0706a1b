"""Against upstream: what is compiled by its cut, and the variants that run the marks alone.

That the partitions of ``cut="upstream"`` are torch's own is in ``tests/golden/test_engine.py``; what is said of
programs under its compilers in ``tests/diagnostics``.
"""

import pytest
import torch
from msgspec.structs import replace
from torch import fx

import regional_explorer as rx
from regional_explorer.compiler import upstream_marks
from regional_explorer.record.plan import Cut
from tests.campaign.programs import PROGRAMS
from tests.shared import programs
from tests.shared.checks import assert_compiled_is_right, needs_region_ids

pytestmark = needs_region_ids
compiles = pytest.mark.compiles


@compiles
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if found.quick else pytest.mark.slow) for name, found in PROGRAMS.items()]
)
def test_compiled_pieces_match_eager_under_either_cut(name):
    """By either cut, what Inductor makes of the pieces gives the right outputs and gradients."""
    program = PROGRAMS[name]
    with program.explore() as ex:
        for cut in (Cut.INSTANCES, Cut.UPSTREAM) if program.upstreams_cut_is_right else (Cut.INSTANCES,):
            ex.plan = replace(ex.plan, cut=cut)
            assert_compiled_is_right(ex)


# ----------------------------------------------------------------------------------------------------------- variants


def benchmark(ex, *variants):
    ex.benchmark(variants, budget_s=0.1, regions=False)
    return ex


def found(ex):
    return {item.code for item in ex.diagnostics if item.code.startswith("upstream-")}


@compiles
def test_upstream_compiles_only_marked_ops(monkeypatch):
    """Marked by module here, not in the source: the marks are put on Dynamo's graph."""
    pieces = []
    note = upstream_marks.Marks._note_piece
    monkeypatch.setattr(
        upstream_marks.Marks, "_note_piece", lambda self, origins: (pieces.append(origins), note(self, origins))
    )
    ex = rx.explore(programs.Stack(depth=1), (torch.randn(4, 16),)).mark("up", modules="layers.*.up")
    benchmark(ex.configure("up", {"max_fusion_size": 8}), "upstream")
    assert set(ex.timings.variant) == {"eager", "upstream"}
    assert set(ex.numerics[ex.numerics.variant == "upstream"].verdict) == {"ok"}
    assert ex.compile_costs.what.tolist()[-1] == "upstream"
    assert found(ex) <= {"upstream-merged"}, "views of weights lie side by side"
    graph = ex.session.graph("0/dynamo")
    marked = {node.origin for node in graph.ops if any(call.path.endswith(".up") for call in node.modules)}
    assert set().union(*pieces) == marked
    count = len(pieces)
    benchmark(ex, "upstream")
    assert len(pieces) == count, "compiled once for one plan"
    benchmark(ex.disable("up").mark("down", modules="layers.*.down"), "upstream")
    assert not marked & set().union(*pieces[count:])


@compiles
def test_variants_of_torch_recompile_under_other_settings():
    """Dynamo does not guard on Inductor's config: its code would be measured beside regions under another."""
    ex = rx.explore(programs.two_regions, (torch.ones(4),))

    def costs():
        benchmark(ex, "full", "upstream")
        return [cost for cost in ex.session.variant_costs if cost.what in {"full", "upstream"}]

    first = costs()
    assert costs() == first
    with torch._inductor.config.patch(epilogue_fusion=False):
        other = costs()
        assert costs() == other
    assert not [cost for cost in other if cost in first]


@compiles
def test_instances_with_different_ids_are_not_joined():
    def layers(x):
        for index in range(3):
            with fx.traceback.annotate({"compile_with_inductor": {"inductor_region": ("layers", index)}}):
                x = (x * 2).sin()
        return x

    ex = benchmark(rx.explore(layers, (torch.ones(4),)), "upstream")
    assert [part.region for part in ex.session.partitions] == ["layers"] * 3
    assert found(ex) == set()
