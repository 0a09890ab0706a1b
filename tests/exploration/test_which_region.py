"""Methods of a region, called without its name: all regions, the only one, or an error that lists them."""

import pytest
import torch

import regional_explorer as rx

ONE_REGION = [
    lambda view: view.code().region,
    lambda view: view.stages().region,
]


def step(x):
    with rx.region("up"):
        y = x.sin().exp()
    y = y.flip(0)
    with rx.region("down"):
        y = (y.cos() + 1).tanh()
    return y.flip(0)


@pytest.fixture(scope="module")
def two_regions():
    ex = rx.explore(step, (torch.randn(64, 64),))
    ex.compile()
    return ex


@pytest.fixture(scope="module")
def one_region():
    ex = rx.explore(step, (torch.randn(64, 64),))
    ex.unmark("down")
    ex.compile()
    return ex


@pytest.mark.compiles
def test_without_a_name_the_only_region_is_used(one_region):
    ex = one_region
    assert [call(ex) for call in ONE_REGION] == ["up", "up"]
    assert [call(ex.results) for call in ONE_REGION] == ["up", "up"]
    assert "Partition up" in ex.repro()
    assert ex.code(config={"max_fusion_size": 1}).region == "up"


@pytest.mark.compiles
@pytest.mark.parametrize(
    "call", [*ONE_REGION, lambda ex: ex.code(target="h100"), lambda ex: ex.repro(), lambda ex: ex.results.code()]
)
def test_the_error_without_a_name_lists_several_regions(two_regions, call):
    with pytest.raises(rx.UnknownRegionError, match=r"^Which region\? up, down$"):
        call(two_regions)


@pytest.mark.compiles
def test_without_a_name_kernel_times_cover_all_regions(two_regions, one_region):
    times = two_regions.kernel_times(budget_s=0.1)
    assert set(times["region"]) == {"up", "down"}
    wasted = times["wasted_us"].dropna()
    assert list(wasted) == sorted(wasted, reverse=True)
    assert set(two_regions.results.kernel_times()["region"]) == {"up", "down"}
    assert set(one_region.kernel_times(budget_s=0.1)["region"]) == {"up"}
    assert set(two_regions.kernel_times("up", 0.1)["region"]) == {"up"}


@pytest.mark.compiles
def test_all_regions_are_diagnosed_within_one_budget(two_regions, monkeypatch):
    budgets = []
    of_one = rx.Exploration.diagnose

    def diagnose(ex, name=None, budget_s=4.0, **options):
        budgets.append((name, budget_s))
        return of_one(ex, name, budget_s, **options)

    monkeypatch.setattr(rx.Exploration, "diagnose", diagnose)
    found = two_regions.diagnose(budget_s=0.2)
    assert budgets == [(None, 0.2), ("up", 0.1), ("down", 0.1)]
    assert all(finding in two_regions.diagnostics for finding in found)


@pytest.mark.compiles
@pytest.mark.parametrize("call", [lambda ex: ex.kernel_times(budget_s=0.1), lambda ex: ex.diagnose(budget_s=0.1)])
def test_a_region_that_runs_eagerly_is_left_out(two_regions, call):
    two_regions.disable("down")
    try:
        assert len(call(two_regions)) >= 0
        two_regions.disable("up")
        with pytest.raises(rx.NotCompiledError, match="'up' has no code: it is disabled"):
            call(two_regions)
    finally:
        two_regions.enable("up").enable("down")


@pytest.mark.parametrize("method", ["code", "stages", "kernel_times", "diagnose", "repro"])
def test_without_a_region_the_error_says_how_to_mark_one(method):
    ex = rx.explore(torch.sin, (torch.ones(3),))
    with pytest.raises(rx.UnknownRegionError, match=r"There is no region yet: mark one, as in ex\.mark"):
        getattr(ex, method)()


def test_the_error_names_the_uncompiled_region():
    ex = rx.explore(step, (torch.ones(3),))
    for method in (ex.kernel_times, ex.diagnose):
        with pytest.raises(rx.NotCompiledError, match=r"Region 'up' has no code yet.*Call ex\.compile\(\)"):
            method()
