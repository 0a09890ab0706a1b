"""Presets to find out what is wrong in a region: no fusion, and asserts whose failures say where."""

import pytest
import torch

import regional_explorer as rx
from regional_explorer.errors import InvalidConfigValueError, RegionAssertionError

pytestmark = pytest.mark.compiles


def logs(x):
    with rx.region("r", "NaN asserts"):
        shifted = x - 1
        return torch.log(shifted) * 2


LOG_LINE = rf"test_debug_presets\.py:{logs.__code__.co_firstlineno + 3} in logs"


def plain(x):
    with rx.region("r"):
        return torch.log(x - 1) * 2


def test_a_nan_names_region_node_and_line_and_infinity_and_what_comes_in_are_told_apart():
    ex = rx.explore(logs, (torch.rand(8, 4) + 2,))
    assert ex.plan["r"].config == {"nan_asserts": True}
    run, good = ex.compiled, torch.rand(8, 4) + 2
    torch.testing.assert_close(run(good), logs(good))
    for x, said in (
        (torch.rand(8, 4) - 2, rf"Region 'r', graph 0/inference: 'log' .*{LOG_LINE}.*gives NaN"),
        (torch.ones(8, 4), r"'log'.* gives infinity"),
        (torch.full((8, 4), torch.nan), r"its input .* holds NaN already"),
    ):
        for _ in range(2):
            with pytest.raises(RegionAssertionError, match=said):
                run(x)
        torch.testing.assert_close(run(good), logs(good))


def test_without_asserts_a_nan_is_a_value_like_others():
    ex = rx.explore(plain, (torch.rand(8, 4) + 2,))
    assert ex.compiled(torch.rand(8, 4) - 2).isnan().all()


def test_a_size_assert_names_the_input():
    ex = rx.explore(plain, (torch.rand(8, 4) + 2,))
    ex.configure("r", "size asserts").compile()
    (switch,) = ex.live.program.switches
    with pytest.raises(RegionAssertionError, match=r"Region 'r'.*a size assert failed: .*It is about '"):
        switch.implementation([torch.rand(4, 8).t()])
    ex.configure("r", dict.fromkeys(ex.plan["r"].config, rx.DEFAULT)).compile()
    (switch,) = ex.live.program.switches
    switch.implementation([torch.rand(4, 8).t()])  # runs eagerly


def softmax(x):
    with rx.region("r"):
        return (x * 2).softmax(-1)


def loops(ex):
    return str(ex.code("r", config={})).count("for(int64_t")


def test_without_fusion_there_are_more_loops_and_the_default_preset_takes_a_config_back():
    ex = rx.explore(softmax, (torch.randn(64, 32),))
    before = loops(ex)
    ex.configure("r", "no fusion")
    assert ex.plan["r"].config == {"max_fusion_size": 1, "epilogue_fusion": False}
    assert loops(ex) > before
    ex.configure("r", "no fusion", direction="backward").configure("r", "default")
    assert ex.plan["r"].configs == ((None, {}),)
    ex.configure("r", "no fusion").configure("r", "default", max_fusion_size=4)
    assert ex.plan["r"].config == {"max_fusion_size": 4}


def test_a_preset_that_is_none_is_told_with_near_names():
    ex = rx.explore(plain, (torch.ones(3),))
    with pytest.raises(InvalidConfigValueError, match=r"No preset is called 'nofusion'\. Did you mean 'no fusion'"):
        ex.configure("r", "nofusion")
    with pytest.raises(InvalidConfigValueError, match="NaN asserts"):
        rx.region("r", "nan")
