"""Against upstream: compiled code under its cut, and the variants that run only the marks.

That the partitions of ``cut="upstream"`` are torch's own is in ``tests/golden/test_engine.py``; diagnostics
of programs under its compilers are in ``tests/diagnostics``.
"""

import pytest
import torch
from msgspec.structs import replace
from torch import fx

import regional_explorer as rx
from benchmarks.campaign.programs import PROGRAMS
from regional_explorer.compiler import upstream_marks
from regional_explorer.record.plan import CutRule
from tests.shared import programs
from tests.shared.checks import assert_compiled_is_right, needs_region_ids

pytestmark = needs_region_ids
compiles = pytest.mark.compiles


@compiles
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if found.quick else pytest.mark.slow) for name, found in PROGRAMS.items()]
)
def test_compiled_pieces_match_eager_under_either_cut(name):
    """Under either cut, the code of the pieces gives the right outputs and gradients."""
    program = PROGRAMS[name]
    with program.explore() as ex:
        for cut in (CutRule.INSTANCES, CutRule.UPSTREAM) if program.upstreams_cut_is_right else (CutRule.INSTANCES,):
            ex.plan = replace(ex.plan, cut=cut)
            assert_compiled_is_right(ex)


# ----------------------------------------------------------------------------------------------------------- variants


def benchmark(ex, *variants):
    ex.benchmark(variants, budget_s=0.1, regions=False)
    return ex


def upstream_codes(ex):
    return {item.code for item in ex.diagnostics if item.code.startswith("upstream-")}


@compiles
def test_upstream_compiles_only_marked_ops(monkeypatch):
    """The region is marked by module: its marks are put on Dynamo's graph, not into the source."""
    pieces = []
    note = upstream_marks.Marks._record_piece
    monkeypatch.setattr(
        upstream_marks.Marks, "_record_piece", lambda self, origins: (pieces.append(origins), note(self, origins))
    )
    ex = rx.explore(programs.Stack(depth=1), (torch.randn(4, 16),)).mark("up", modules="layers.*.up")
    benchmark(ex.configure("up", {"max_fusion_size": 8}), "upstream")
    assert set(ex.timings.variant) == {"eager", "upstream"}
    assert set(ex.numerics[ex.numerics.variant == "upstream"].verdict) == {"ok"}
    assert ex.compile_costs.what.tolist()[-1] == "upstream"
    assert upstream_codes(ex) <= {"upstream-merged"}, "views of weights lie side by side"
    graph = ex.session.graph("0/dynamo")
    marked = {node.origin for node in graph.ops if any(call.path.endswith(".up") for call in node.modules)}
    assert set().union(*pieces) == marked
    count = len(pieces)
    benchmark(ex, "upstream")
    assert len(pieces) == count, "compiled once for one plan"
    benchmark(ex.disable("up").mark("down", modules="layers.*.down"), "upstream")
    assert not marked & set().union(*pieces[count:])


@compiles
def test_full_and_upstream_recompile_when_inductor_config_changes():
    """Dynamo does not guard on Inductor's config, so both have to be compiled again when it changes."""
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
    assert upstream_codes(ex) == set()
